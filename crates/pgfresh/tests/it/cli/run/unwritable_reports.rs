//! Tests reports that pgfresh can't write at the end of a command.

use std::fs;

use crate::common::{Scene, User, finish, ground};

#[test]
fn unwritable_reports_keep_the_commands_code() {
    let program = ground::program().display();
    let lose = format!("{} -qc 'SELECT 1'; rm -r reports; exit $0", ground::psql());
    let profile = format!(
        "{program} profile --url \"$DATABASE_URL\" --report reports/out.json -- sh -c 'rm -r reports; exit '$0"
    );
    for code in ["7", "0"] {
        let own = ["run", "--profile", "--report", "reports/out.json", "--", "sh", "-uc", &lose, code];
        let foreign = ["run", "--", "sh", "-uc", &profile, code];
        for (words, failure) in [(&own[..], 125), (&foreign, 1)] {
            let expected = if code == "7" { 7 } else { failure };
            let scene = Scene::new(User::Ourselves);
            fs::create_dir(scene.directory.join("reports")).unwrap();
            let outcome = scene.run(words);
            assert_eq!(outcome.code, Some(expected), "{outcome}");
            assert!(outcome.stderr.contains("reports/out.json"), "{outcome}");
        }
    }
}

/// GitHub's summary isn't a file that the user named, so pgfresh only warns if it can't write the summary.
#[test]
fn unwritable_step_summary_is_only_a_warning() {
    let scene = Scene::new(User::Ourselves);
    for (path, code) in [("/nonexistent/x", 0), ("/dev/full", 0), ("/nonexistent/x", 3)] {
        let end = format!("{} -qc 'SELECT 1'; exit {code}", ground::psql());
        let mut command = scene.pgfresh(["run", "--profile", "--", "sh", "-c", &end]);
        command.env("GITHUB_STEP_SUMMARY", path);
        let outcome = finish(command);
        let warning = format!("could not write GITHUB_STEP_SUMMARY (\"{path}\")");
        assert!(outcome.code == Some(code) && outcome.stderr.contains(&warning), "{outcome}");
    }
}
