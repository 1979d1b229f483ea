//! Tests signals, budgets and failures of pgfresh: the trials end early, report what they have found,
//! and leave nothing behind.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{TRANSACTION, report, scene};
use crate::common::depth::rounds;
use crate::common::random::Random;
use crate::common::{Scene, collect, mounts, wait_until};

/// Suite whose first fault is a finding, after two runs without faults and two runs with the fault.
const BLIND_RETRY: &str = "echo >>runs; retry transaction \"INSERT INTO orders (item) VALUES ('lamp')\"";
/// Number of the first run after the first finding.
const AFTER_FINDING: usize = 5;

fn runs(scene: &Scene) -> usize {
    fs::read_to_string(scene.directory.join("runs")).map_or(0, |runs| runs.lines().count())
}

#[test]
fn any_signals_leave_findings_whole() {
    let mut random = Random::new();
    for round in 0..rounds(5) {
        let scene = scene();
        let ignores = if random.chance(30) { "trap '' INT TERM HUP;" } else { "" };
        let script = format!("{ignores} {TRANSACTION} {BLIND_RETRY}");
        let words = ["faults", "--jobs", "1", "--json", "--", "sh", "-euc", &script];
        let mut pgfresh = scene.pgfresh(words);
        pgfresh.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = pgfresh.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let begun = 1 + random.below(AFTER_FINDING + 2);
        wait_until("a run", || runs(&scene) >= begun);
        thread::sleep(random.moment(Duration::from_millis(200)));
        let signals: Vec<_> = (0..=random.below(4))
            .map(|_| {
                let signal = *random.choose(&[Signal::INT, Signal::TERM, Signal::HUP]);
                // GNU timeout signals both the process group and the process.
                let _ = if random.chance(50) {
                    kill_process(pid, signal)
                } else {
                    kill_process_group(pid, signal)
                };
                thread::sleep(random.moment(Duration::from_millis(20)));
                signal
            })
            .collect();
        let outcome = collect(child);
        let context = format!("round {round}: {signals:?} in run {begun}, {ignores:?}: {outcome}");
        let report = report(&outcome);
        let found = report["findings"].as_array().unwrap().len();
        assert_eq!(outcome.code, Some(if found > 0 { 1 } else { 130 }), "{context}");
        assert!(begun < AFTER_FINDING || found > 0, "{context}");
        let ran = &report["runs"];
        let reasons = [&ran["not_run_because"], &ran["left_out"][0]["because"]];
        let is_whole =
            ran["not_run"].as_array().unwrap().is_empty() && ran["left_out"].as_array().unwrap().is_empty();
        assert!(
            is_whole || reasons.iter().any(|reason| **reason == "a signal has ended the trials"),
            "{context}"
        );
        scene.assert_nothing_left(context);
    }
}

#[test]
fn signal_before_confirmation_keeps_finding() {
    let scene = scene();
    let script = format!("{TRANSACTION} {BLIND_RETRY}; [ $(wc -l <runs) -lt 4 ] || sleep 100000");
    let mut pgfresh = scene.pgfresh(["faults", "--jobs", "1", "--", "sh", "-euc", &script]);
    let child = pgfresh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the fourth run", || runs(&scene) == 4);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let outcome = collect(child);
    assert_eq!(outcome.code, Some(130), "{outcome}");
    for part in [
        "0 findings in 1 fault,",
        "1 had a finding without a second run",
        "seen once: app:COMMIT:lost after: doubles rows",
        "not run: 6 faults, because a signal has ended the trials",
    ] {
        assert!(outcome.stdout.contains(part), "{part}: {outcome}");
    }
    scene.assert_nothing_left(outcome);
}

#[test]
fn spent_budget_is_named() {
    let scene = scene();
    let outcome = scene.run([
        "faults",
        "--budget",
        "1ms",
        "--report",
        "faults.xml",
        "--",
        "sh",
        "-c",
        "echo >>runs; psql -XAtqc 'INSERT INTO audit DEFAULT VALUES'",
    ]);
    assert_eq!((outcome.code, runs(&scene)), (Some(125), 1), "{outcome}");
    let reason = "all tests: the budget of 1 ms is spent: --budget sets a larger budget";
    assert!(
        outcome.stdout.contains(reason) && outcome.stdout.contains("time: 1 run without faults"),
        "{outcome}"
    );
    assert!(outcome.stderr.contains("no fault was tried"), "{outcome}");
    let junit = fs::read_to_string(scene.directory.join("faults.xml")).unwrap();
    assert!(junit.contains("skipped=\"1\"") && junit.contains("name=\"all tests\""), "{junit}");
    scene.assert_nothing_left(outcome);
}

#[test]
fn full_disk_keeps_findings() {
    let Some(scene) = mounts::scene() else { return };
    scene.write("pgfresh.toml", "[template]\nsql = \"schema.sql\"\n");
    scene.write("schema.sql", super::SCHEMA);
    let fill = "[ $(wc -l <runs) -lt 6 ] || dd if=/dev/zero of=\"$MOUNTED/large\" bs=64k 2>errors || true";
    let script = format!("{TRANSACTION} {BLIND_RETRY}; {fill}");
    let mount = "mount -t tmpfs -o mode=0711,size=200m none \"$MOUNTED\"; export PGFRESH_PLACE=\"$MOUNTED\"";
    let outcome = mounts::run(&scene, mount, &["faults", "--jobs", "1", "--", "sh", "-euc", &script]);
    // The next server fits on the full disk only if this server has used as much space, so either
    // exit code is possible.
    assert!(outcome.code == Some(1) || outcome.code == Some(125), "{outcome}");
    assert!(outcome.stdout.contains("doubles rows, and the test passes"), "{outcome}");
    assert!(outcome.stdout.contains("1 finding in") && !outcome.stdout.contains("left: "), "{outcome}");
}
