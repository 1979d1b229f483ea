//! Tests which databases of failed tests pgfresh keeps, and how it reports the others.

use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::common::gateway::Gateway;
use crate::common::{Outcome, Scene, User, collect, finish, ground, wait_until};

/// Makes a project.
fn project() -> Scene {
    let scene = Scene::new(User::Ourselves);
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    scene.write("schema.sql", "CREATE TABLE one (id int);");
    scene
}

/// Leases a database, and releases it with the message that the test `test` has failed.
fn fail(scene: &Scene, test: &str) {
    let leased = scene.run(["url"]);
    assert_eq!(leased.code, Some(0), "{leased}");
    let name = leased.stdout.trim().rsplit_once('/').unwrap().1;
    let released = scene.run(["release", name, "--failed", "--test", test]);
    assert_eq!(released.code, Some(0), "{released}");
}

/// Runs `script` with pgfresh as `$0`, and keeps the databases of failed tests.
fn run_keeping(scene: &Scene, options: &[&str], script: &str) -> Outcome {
    let program = ground::program().to_str().unwrap();
    let outcome =
        scene.run([&["run", "--keep-failed"], options, &["--", "sh", "-euc", script, program]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome}");
    outcome
}

/// Returns the kept databases with their tests' names.
fn kept(scene: &Scene) -> Vec<(String, String)> {
    let outcome = scene.run(["status", "--json"]);
    let status: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let word = |kept: &Value, key: &str| kept[key].as_str().unwrap().to_owned();
    let all = status["kept"].as_array().unwrap();
    all.iter().map(|kept| (word(kept, "test"), word(kept, "database"))).collect()
}

#[test]
fn kept_databases_are_bounded() {
    let scene = project();
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n[postgres]\nspace = \"150MB\"\n");
    for _ in 0..3 {
        (0..5).for_each(|number| fail(&scene, &format!("test {number}")));
    }
    let tests: Vec<_> = kept(&scene).into_iter().map(|(test, _)| test).collect();
    assert_eq!(tests, (0..5).map(|number| format!("test {number}")).collect::<Vec<_>>());
    (5..30).for_each(|number| fail(&scene, &format!("test {number}")));
    let tests: Vec<_> = kept(&scene).into_iter().map(|(test, _)| test).collect();
    let expected: Vec<_> = (30 - tests.len()..30).map(|number| format!("test {number}")).collect();
    assert!(tests == expected && tests.len() > 2, "{tests:?}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

/// A rollback lease's data are in a transaction that ends with the lease, whatever other requests do with
/// the name at that time.
#[test]
fn failed_rollback_leases_are_released() {
    let gateway = Gateway::start(15, "", &["--keep-failed"]);
    let lease = || {
        for _ in 0..60 {
            gateway.http("POST", "/v1/databases", r#"{"name":"one","isolation":"rollback"}"#);
            drop(gateway.connect("one", "-cpgfresh.isolation=rollback"));
        }
    };
    let release = || {
        for _ in 0..60 {
            let (status, answer) = gateway.http("DELETE", "/v1/databases/one?failed=true", "");
            assert!([204, 404].contains(&status), "{status}: {answer}");
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(lease);
            scope.spawn(release);
        }
    });
    assert_eq!(gateway.status()["kept"], json!([]));
}

#[test]
fn refusals_name_the_kept_databases() {
    let scene = project();
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n[postgres]\nspace = \"64MB\"\n");
    fail(&scene, "one");
    let (_, name) = kept(&scene).remove(0);
    let url = scene.run(["url", &name]).stdout;
    let mut psql = Command::new(ground::psql());
    let psql = psql.args(["-XAtqc", "SELECT pg_sleep(300)", url.trim()]).spawn().unwrap();
    let refused = (0..100).map(|_| scene.run(["url"])).find(|outcome| outcome.code != Some(0)).unwrap();
    let lines: Vec<_> = refused.stderr.lines().collect();
    assert!(lines[0].ends_with(" are leased, 1 of them kept for failed tests"), "{refused}");
    assert!(lines[1].contains("remove these databases with \"pgfresh stop\""), "{refused}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
    collect(psql);
}

#[test]
fn released_kept_databases_are_forgotten() {
    let scene = project();
    fail(&scene, "one");
    fail(&scene, "two");
    let (_, name) = kept(&scene).remove(0);
    assert_eq!(scene.run(["release", &name]).code, Some(0));
    let left: Vec<_> = kept(&scene).into_iter().map(|(test, _)| test).collect();
    assert_eq!(left, ["two"]);
    let unknown = scene.run(["diff", &name]);
    let expected = format!("pgfresh: no database \"{name}\" is leased or kept\n");
    assert!(unknown.code == Some(1) && unknown.stderr.starts_with(&expected), "{unknown}");
    // Any database can use the name now.
    assert_eq!(scene.run(["psql", &name, "--", "-qc", "INSERT INTO one VALUES (1)"]).code, Some(0));
    assert_eq!(kept(&scene).len(), 1);
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

#[test]
fn ambiguous_test_names_list_kept_databases() {
    let scene = project();
    let script = "\"$0\" url a >url; \"$0\" release a --failed --test 'a test'";
    for _ in 0..2 {
        run_keeping(&scene, &[], script);
    }
    let names: Vec<_> = kept(&scene).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names.len(), 2);
    let refused = scene.run(["diff", "a test"]);
    assert!(
        refused.stderr.starts_with("pgfresh: 2 databases of test \"a test\" are kept\nHINT:"),
        "{refused}"
    );
    for name in &names {
        assert!(refused.stderr.contains(&format!("\"{name}\"")), "{refused}");
        assert_eq!(scene.run(["diff", name]).code, Some(0));
    }
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

#[test]
fn kept_databases_are_found_by_printed_name() {
    let scene = project();
    let script = "\"$0\" url a >url; \"$0\" psql a -- -qc 'INSERT INTO one VALUES (1)'; \"$0\" release a --failed --test 'a test'";
    // A background server serves all other names.
    assert_eq!(scene.run(["url"]).code, Some(0));
    let outcome = run_keeping(&scene, &[], script);
    let (_, name) = kept(&scene).remove(0);
    let words = |command: &str| format!("\"pgfresh {command} {name}\"");
    assert!(
        ["diff", "psql", "release"].iter().all(|command| outcome.stderr.contains(&words(command))),
        "{outcome}"
    );
    let url = format!("a test  {}", scene.run(["url", &name]).stdout);
    assert!(outcome.stderr.contains(&url), "{url}: {outcome}");
    let count = scene.run(["psql", &name, "--", "-XAtc", "SELECT count(*) FROM one"]);
    assert_eq!((count.code, count.stdout.trim()), (Some(0), "1"), "{count}");
    assert!(scene.run(["diff", &name]).stdout.contains("1 inserted"));
    let released = scene.run(["release", &name]);
    assert_eq!((released.code, released.stderr.as_str()), (Some(0), ""), "{released}");
    assert!(kept(&scene).is_empty());
    assert_eq!(scene.run(["stop"]).code, Some(0));
}

#[test]
fn kept_servers_end_with_their_last_database() {
    let scene = project();
    run_keeping(&scene, &["--idle", "0s"], "\"$0\" url a >url; \"$0\" release a --failed");
    let (_, name) = kept(&scene).remove(0);
    assert_eq!(scene.run(["release", &name]).code, Some(0));
    wait_until("the end of its server", || scene.run(["status"]).code != Some(0));
    scene.assert_nothing_left("the end");
}

/// Programs compare the names in JSON with their runner's, so only a terminal gets escaped characters.
#[test]
fn test_name_with_line_break_finds_its_database() {
    let scene = project();
    let test = "new\nline \u{1b}[31m\u{202e}é";
    let shown = "new\\nline \\u{1b}[31m\\u{202e}é";
    let script = "\"$0\" url a >url; \"$0\" psql a -- -qc 'INSERT INTO one VALUES (1)'; \"$0\" release a --failed --test \"$TEST\"
        \"$0\" status --json; \"$0\" status; \"$0\" diff \"$TEST\"";
    let program = ground::program().to_str().unwrap();
    let words =
        ["run", "--keep-failed", "--profile", "--report", "out.json", "--", "sh", "-uc", script, program];
    let mut command = scene.pgfresh(words);
    command.env("TEST", test);
    let outcome = finish(command);
    assert!(outcome.code == Some(0), "{outcome}");
    let status: Value = serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(status["kept"][0]["test"], test, "{outcome}");
    assert!(outcome.stdout.contains(&format!("failed {shown}  ")), "{outcome}");
    assert!(outcome.stdout.contains(&format!("\n{shown}\nnew_line_31m_failed_")), "{outcome}");
    assert!(outcome.stderr.contains(&format!("{shown}  postgres")), "{outcome}");
    let (_, shown_lines) = outcome.stdout.split_once('\n').unwrap();
    for text in [shown_lines, &outcome.stderr] {
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{outcome}");
    }
    let report = std::fs::read_to_string(scene.directory.join("out.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let tests = report["tests"].as_array().unwrap();
    assert!(tests.iter().any(|found| found["name"] == test), "{tests:?}");
    assert_eq!(scene.run(["stop"]).code, Some(0));
}
