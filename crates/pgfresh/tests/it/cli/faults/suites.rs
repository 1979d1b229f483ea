//! Tests suites that retry correctly, that are flaky, that start daemons, or whose databases can't have faults.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::{TRANSACTION, findings, report, scene, shell, trials};

#[test]
fn values_of_another_attempt_are_no_finding() {
    let scene = scene();
    scene.write(
        "schema.sql",
        "CREATE SEQUENCE tickets; CREATE TABLE jobs (id serial, ticket int, day date, at timestamptz(0), \
         key uuid DEFAULT gen_random_uuid(), name text UNIQUE, attempts int DEFAULT 1); \
         INSERT INTO jobs (ticket, name) VALUES (nextval('tickets'), 'first');",
    );
    // Each attempt writes a different day, as a test around midnight might.
    let insert = "n=$(psql -c \"SELECT nextval('tickets')\"); transaction \"INSERT INTO jobs (ticket, day, at, name, attempts) \
        VALUES ($n, date '2026-01-01' + $n, now(), 'lamp', COUNT) ON CONFLICT DO NOTHING\"";
    let script = |count: &str| {
        format!("attempt=0; work() {{ attempt=$((attempt + 1)); {insert}; }}; retry work")
            .replace("COUNT", count)
    };
    let (outcome, report) = shell(&scene, 15, &script("1"));
    assert_eq!((outcome.code, findings(&report)), (Some(0), BTreeSet::new()), "{outcome}");
    let counts = ["sh", "-euc", &format!("{TRANSACTION} {}", script("$attempt"))];
    let outcome = trials(&scene, 15, &[], &counts);
    assert!(findings(&super::report(&outcome)).contains(&("changed_rows", "40001")), "{outcome}");
    let outcome = trials(&scene, 15, &["--ignore", "jobs.attempts"], &counts);
    assert_eq!((outcome.code, findings(&super::report(&outcome))), (Some(0), BTreeSet::new()), "{outcome}");
}

#[test]
fn flaky_command_is_refused() {
    let scene = scene();
    let script = "echo >>runs; psql -XAtqc 'INSERT INTO audit DEFAULT VALUES'; echo try again; [ $(wc -l <runs) -lt 2 ]";
    let outcome = trials(&scene, 15, &[], &["sh", "-uc", script]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{outcome}");
    let expected = "pgfresh: the command is flaky: one of two runs fails without faults, with exit code 1";
    assert!(outcome.stderr.contains(expected) && outcome.stderr.contains("try again"), "{outcome}");
}

#[test]
fn command_that_fails_without_faults_is_refused() {
    let scene = scene();
    let outcome = scene.run(["faults", "--", "sh", "-c", "echo no such luck; exit 3"]);
    assert_eq!(outcome.code, Some(3), "{outcome}");
    assert!(outcome.stderr.contains("no such luck"), "{outcome}");
    assert!(outcome.stderr.contains("the command fails without faults, with exit code 3"), "{outcome}");
}

#[test]
fn command_without_a_lease_is_refused() {
    let scene = scene();
    for (command, code, message) in [
        (&["true"][..], 125, "the command used no database"),
        (&["true", "{test}"], 125, "the command used no database"),
        (
            &["psql", "-XAtqc", "CREATE TABLE t (a int); INSERT INTO t VALUES (1)", "postgres"],
            125,
            "the command used no database that can have faults, but postgres\nHINT:  Connect to any other name:",
        ),
        (&["psql", "-XAtqc", "SET jit = off"], 125, "no fault was tried"),
        (&["./nothing"], 127, "could not run"),
    ] {
        let outcome = scene.run([&["faults", "--"], command].concat());
        assert_eq!(outcome.code, Some(code), "{command:?}: {outcome}");
        assert!(outcome.stderr.contains(message), "{command:?}: {outcome}");
        scene.assert_nothing_left(outcome);
    }
}

#[test]
fn tests_with_one_name_are_distinguished() {
    let scene = scene();
    let script = "for i in 1 2; do psql -XAtqc 'INSERT INTO audit DEFAULT VALUES' \"$(\"$PGFRESH\" url same)\"; \
        \"$PGFRESH\" release same --test same; done";
    let outcome = trials(&scene, 15, &[], &["sh", "-euc", script]);
    let report = report(&outcome);
    assert_eq!((outcome.code, &report["runs"]["shown"]), (Some(0), &10.into()), "{outcome}");
    let outcome = trials(&scene, 15, &["--only", "same (2)"], &["sh", "-euc", script]);
    assert_eq!(super::report(&outcome)["runs"]["made"], 5, "{outcome}");
}

#[test]
fn daemons_do_not_hold_up_trials() {
    let scene = scene();
    // One daemon has a separate session, and keeps the command's output open. The other daemon ends with the command.
    let script = "setsid sleep 100000 & echo $! >>daemons; sleep 100000 & echo $! >>children; \
        psql -XAtqc 'INSERT INTO audit DEFAULT VALUES'";
    let outcome = trials(
        &scene,
        15,
        &["--only", "app:INSERT INTO audit DEFAULT VALUES:40001"],
        &["sh", "-euc", script],
    );
    let pids = |file: &str| -> Vec<Pid> {
        let text = fs::read_to_string(scene.directory.join(file)).unwrap();
        text.lines().filter_map(|line| Pid::from_raw(line.parse().unwrap())).collect()
    };
    let ended = pids("daemons").into_iter().filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count();
    assert_eq!((outcome.code, ended), (Some(0), 3), "{outcome}");
    assert!(pids("children").iter().all(|pid| kill_process(*pid, Signal::KILL).is_err()), "{outcome}");
    scene.assert_nothing_left(outcome);
}

#[test]
fn killed_commands_and_servers_are_no_findings() {
    let scene = scene();
    let insert = "psql -XAtqc 'INSERT INTO audit DEFAULT VALUES'";
    let server = "echo >>runs; data=$(psql -XAtqc 'SHOW data_directory'); \
        [ $(wc -l <runs) -lt 3 ] || kill -KILL $(head -n 1 $data/postmaster.pid)";
    for script in [format!("{insert} || kill -KILL $$"), format!("{server}; {insert}")] {
        let outcome = trials(&scene, 15, &[], &["sh", "-euc", &script]);
        let report = report(&outcome);
        assert_eq!(findings(&report), BTreeSet::new(), "{outcome}");
        assert_eq!(report["runs"]["unconfirmed"], serde_json::json!([]), "{outcome}");
        scene.assert_nothing_left(outcome);
    }
}
