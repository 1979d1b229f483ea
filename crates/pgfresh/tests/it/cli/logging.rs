//! Tests logs: the output of `-vv` and `PGFRESH_LOG`, and the background server's log file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::{Outcome, Scene, User, finish, ground};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const VARIABLE: &str = "PGFRESH_LOG";

/// Runs pgfresh with the log filter `filter`.
fn with_filter(scene: &Scene, filter: &str, arguments: &[&str]) -> Outcome {
    let mut command = scene.pgfresh(arguments);
    command.env(VARIABLE, filter);
    finish(command)
}

/// Returns pgfresh's arguments for a command that opens a session in a new database. The database exists only after a
/// background task has ended.
fn session<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["run"], options, &["--", ground::psql(), "-XAtqc", "SELECT 1", "-d", "other"]].concat()
}

#[test]
fn filter_and_double_verbose_show_background_tasks() {
    let scene = Scene::new(User::Ourselves);
    let debug = ": lease::runtime::execute: task ended ";
    for (filter, options, shown) in [
        ("lease=debug", &[][..], true),
        ("warn,lease::runtime::execute=debug", &[], true),
        ("debug,lease=warn", &["-vv"], false),
        ("warn", &["--verbose"], false),
        ("", &["-v"], false),
        ("", &["-vv"], true),
        ("", &["--verbose", "--verbose"], true),
    ] {
        let outcome = with_filter(&scene, filter, &session(options));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "1\n"), "{filter:?}: {outcome}");
        assert_eq!(outcome.stderr.contains(debug), shown, "{filter:?} {options:?}: {outcome}");
        assert_eq!(
            outcome.stderr.contains("pgfresh: PostgreSQL "),
            !options.is_empty(),
            "{options:?}: {outcome}"
        );
    }
}

#[test]
fn short_run_logs_no_warning() {
    let scene = Scene::new(User::Ourselves);
    for _ in 0..6 {
        let outcome = with_filter(&scene, "warn", &["run", "--quiet", "--", "true"]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome}");
    }
}

#[test]
fn invalid_filters_fail_before_the_start() {
    let scene = Scene::new(User::Ourselves);
    for (filter, why) in
        [("lease=loud", "there is no level \"loud\""), ("leese=debug", "there is no target \"leese\"")]
    {
        for (arguments, code) in [(&session(&["-vv"])[..], 125), (&["url"], 1)] {
            let outcome = with_filter(&scene, filter, arguments);
            let message =
                format!("pgfresh: cannot read PGFRESH_LOG \"{filter}\": {why}\nHINT:  Write a level ");
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), ""), "{outcome}");
            assert!(outcome.stderr.starts_with(&message), "{outcome}");
            assert_eq!(outcome.stderr.lines().count(), 2, "{outcome}");
        }
    }
}

/// Returns the path of the log file, as `pgfresh status` prints it.
fn log_file(scene: &Scene) -> PathBuf {
    let status = scene.run(["status"]);
    assert_eq!(status.code, Some(0), "{status}");
    let paths: Vec<_> = status.stdout.lines().filter_map(|line| line.strip_prefix("log ")).collect();
    assert_eq!(paths.len(), 1, "{status}");
    let json: Value = serde_json::from_str(&scene.run(["status", "--json"]).stdout).unwrap();
    assert_eq!(json["log"].as_str(), Some(paths[0]));
    PathBuf::from(paths[0])
}

#[test]
fn status_names_the_private_log() {
    for &user in User::all() {
        let scene = Scene::new(user);
        // A configuration file makes a new project, so that the test doesn't join another project's server.
        scene.write("pgfresh.toml", "");
        let started = with_filter(&scene, "info,lease=debug", &["url", "orders"]);
        assert_eq!(started.code, Some(0), "{started}");
        let path = log_file(&scene);
        assert!(path.starts_with(scene.cache.join("servers")), "{}", path.display());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(" INFO pgfresh::background::server: the server is ready "), "{text}");
        assert!(text.contains(": lease::runtime::execute: task ended "), "{text}");
        let in_utc = |line: &str| line.split_once(' ').is_some_and(|(time, _)| time.ends_with('Z'));
        assert!(text.lines().all(in_utc), "{text}");
        let (user_and_secret, _) = started.stdout.split_once('@').unwrap();
        let (_, secret) = user_and_secret.rsplit_once(':').unwrap();
        assert!(secret.len() >= 32 && !text.contains(secret), "{text}");
        let stopped = scene.run(["stop"]);
        assert_eq!(stopped.stdout, "stopped the background server\n", "{stopped}");
        assert!(!path.exists());
    }
}

#[test]
fn the_next_server_continues_the_log() {
    // The cache is new, because "stop" in another scene would remove the killed server's files.
    let scene = Scene::with_empty_cache(User::Ourselves);
    ground::copy_base_cache(scene.user, &scene.cache);
    scene.write("pgfresh.toml", "");
    assert_eq!(scene.run(["url"]).code, Some(0));
    let path = log_file(&scene);
    let first = fs::read_to_string(&path).unwrap();
    let about = fs::read_to_string(path.with_file_name("about")).unwrap();
    let about: Value = serde_json::from_str(&about).unwrap();
    let pid = i32::try_from(about["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    scene.assert_nothing_left("after a kill");
    assert_eq!(scene.run(["url"]).code, Some(0));
    assert_eq!(log_file(&scene), path);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(&first) && text.matches("the server is ready").count() == 2, "{text}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

#[test]
fn a_run_has_no_log_file() {
    let scene = Scene::new(User::Ourselves);
    let pgfresh = Path::new(ground::program()).display().to_string();
    let outcome = scene.shell(&[], &format!("{pgfresh} status; {pgfresh} status --json"));
    assert!(outcome.contains("\nserver ") || outcome.starts_with("server "), "{outcome}");
    assert!(!outcome.lines().any(|line| line.starts_with("log ")), "{outcome}");
    let json: Value = serde_json::from_str(outcome.lines().last().unwrap()).unwrap();
    assert_eq!(json["log"], Value::Null);
}
