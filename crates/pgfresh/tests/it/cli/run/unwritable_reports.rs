//! Tests reports that pgfresh can't write at the end of a command.

use std::fs;

use crate::common::{Scene, User, ground};

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
