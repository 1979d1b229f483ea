//! Tests `pgfresh run --compare` with real servers.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::profile::{read, rows};
use crate::common::{Scene, User, collect, finish, ground, wait_until};

#[test]
fn comparisons_alternate_and_compare_outcomes() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    // The script runs a long statement, reads a setting that differs between the two servers, and prints a
    // test runner's summary.
    let script = format!(
        "{psql} -XAtqc 'SHOW fsync' >>turns; {psql} -XAtqc 'SELECT pg_sleep(0.1)'; echo 12 passed in 1.2s"
    );
    let words = ["run", "--compare", "-n", "2", "--report", "out.json", "--", "sh", "-euc", &script];
    let outcome = scene.run(words);
    assert!(outcome.code == Some(0) && outcome.stdout.is_empty(), "{outcome}");
    assert!(outcome.stderr.contains("All 4 runs ended the same way: exit code 0, 12 passed."), "{outcome}");
    let turns = fs::read_to_string(scene.directory.join("turns")).unwrap();
    assert_eq!(turns.split_whitespace().collect::<Vec<_>>(), ["on", "off", "off", "on"]);
    let report = read(&scene, "out.json");
    let times = rows(&report, "Times");
    assert_eq!([&times[0]["server"], &times[1]["server"]], ["durable, on disk", "pgfresh"]);
    assert!(times.iter().all(|row| row["suite"]["value"].as_f64().unwrap() > 0.1), "{report}");
    assert!(rows(&report, "How many times as fast")[0]["gain"]["value"].as_f64().unwrap() > 0.0, "{report}");
}

/// A budget would cost time, and which server a test uses doesn't change its number of statements.
#[test]
fn comparisons_say_that_budgets_do_not_apply() {
    let scene = Scene::new(User::Ourselves);
    let script =
        format!("if grep -q x; then exit 9; fi; {} -XAtqc 'SELECT 1' -c 'SELECT 2' x >out", ground::psql());
    let compare = || {
        let mut command = scene.pgfresh(["run", "--compare", "-n", "1", "--", "sh", "-euc", &script]);
        command.stdin(fs::File::open(scene.write("input", "x\n")).unwrap());
        finish(command)
    };
    let said = "[budget] has no effect";
    // The commands don't get pgfresh's standard input.
    let outcome = compare();
    assert!(outcome.code == Some(0) && !outcome.stderr.contains(said), "{outcome}");
    scene.write("pgfresh.toml", "[budget]\nstatements = 1\n");
    let outcome = compare();
    assert!(outcome.code == Some(0), "{outcome}");
    assert_eq!(outcome.stderr.matches(said).count(), 1, "{outcome}");
}

#[test]
fn comparisons_exclude_copies_made_ahead() {
    let scene = Scene::new(User::Ourselves);
    scene.write("schema.sql", "CREATE TABLE t (n int)");
    let script = "$0 status --json >>made; sleep 1; $0 status --json >>made";
    let words = ["run", "--sql", "schema.sql", "--compare", "-n", "1", "--", "sh", "-euc", script];
    let outcome = scene.run(words.iter().chain(&[ground::program().to_str().unwrap()]));
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let made = fs::read_to_string(scene.directory.join("made")).unwrap();
    let made: Vec<Value> = made.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(made.len(), 4);
    for begins_and_ends in made.chunks(2) {
        let [begins, ends] = [0, 1].map(|at: usize| &begins_and_ends[at]["created"]["count"]);
        assert!(begins == ends && ends.as_u64() > Some(0), "{made:?}");
    }
}

/// Ctrl-C reaches both pgfresh and the command, and the command might still succeed.
#[test]
fn interrupted_comparisons_show_partial_results() {
    let scene = Scene::new(User::Ourselves);
    let script = "trap 'exit 0' INT; echo x >>turns; while :; do sleep 0.01; done";
    let words = ["run", "--compare", "-n", "3", "--report", "out.json", "--", "sh", "-euc", script];
    let mut command = scene.pgfresh(words);
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("the first run", || scene.directory.join("turns").exists());
    kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    let outcome = collect(child);
    assert_eq!(outcome.code, Some(130), "{outcome}");
    assert!(outcome.stderr.contains("The only run ended with exit code 0."), "{outcome}");
    assert!(outcome.stderr.ends_with("pgfresh: interrupted\n"), "{outcome}");
    read(&scene, "out.json");
}

#[test]
fn comparisons_show_failures_on_one_side() {
    let scene = Scene::new(User::Ourselves);
    let psql = ground::psql();
    let script = format!("echo the reason; test $({psql} -XAtqc 'SHOW fsync') = on");
    let outcome = scene.run(["run", "--compare", "-n", "1", "--", "sh", "-euc", &script]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let verdict = "The runs ended differently; no gain is reported for a command that fails.";
    assert!(outcome.stderr.contains(verdict) && !outcome.stderr.contains("as fast"), "{outcome}");
    assert!(outcome.stderr.contains("(pgfresh):\nthe reason\n"), "{outcome}");
    assert!(!outcome.stderr.contains("(durable, on disk):"), "{outcome}");
}
