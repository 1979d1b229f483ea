//! Tests that waits for a server end with an error after its postmaster is killed, whatever pgfresh waits for.
//!
//! Backends only notice the end of their postmaster at certain points, and stopped backends never notice it.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::leftovers::{Process, children_of, postmaster_of};
use crate::common::random::Random;
use crate::common::{Outcome, Scene, User, collect, ground, line_of, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// Requests that a command repeats until it gets an error.
const REQUESTS: [&str; 6] = [
    "while \"$0\" url; do :; done",
    "\"$0\" url a; while \"$0\" reset a; do :; done",
    "\"$0\" url a; i=0; while i=$((i + 1)); \"$0\" snapshot a as t$i; do :; done",
    "i=0; while i=$((i + 1)); \"$1\" -XAtqc 'SELECT 1' \"dbname=d$i\"; do :; done",
    "\"$1\" -XAtqc 'SELECT pg_sleep(3600)'",
    "while PGFRESH_ISOLATION=server \"$0\" url; do :; done",
];

/// Kills a postmaster. If `stopped` is set, stops its child processes first. Returns the time of the kill.
fn kill(postmaster: &Process, stopped: bool) -> Instant {
    if stopped {
        for child in children_of(postmaster.pid.cast_unsigned()) {
            let _ = kill_process(Pid::from_raw(child.pid).unwrap(), Signal::STOP);
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(postmaster.kill());
    Instant::now()
}

fn postmaster_in_time(pgfresh: &Child) -> Process {
    let mut found = None;
    wait_until("a postmaster", || {
        found = postmaster_of(pgfresh.id());
        found.is_some()
    });
    found.unwrap()
}

/// Waits for the end of pgfresh, whose postmaster was killed at `since`. If pgfresh didn't notice the kill, it would
/// end only after the test's timeout.
fn end_in_time(pgfresh: Child, since: Instant, context: &str) -> Outcome {
    let outcome = collect(pgfresh);
    println!("{:.0} ms: {context}", since.elapsed().as_secs_f64() * 1000.0);
    outcome
}

#[test]
fn waiting_commands_get_the_servers_end() {
    let mut random = Random::new();
    for (request, stopped) in REQUESTS.iter().flat_map(|request| [(request, false), (request, true)]) {
        for _ in 0..3 {
            let scene = Scene::new(User::Ourselves);
            let script = format!("echo; {request} 2>&1; exit 7");
            let mut command = scene.pgfresh(["run", "--", "sh", "-c", &script]);
            command.arg(ground::program()).arg(ground::psql());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut pgfresh = command.spawn().unwrap();
            let mut pipe = pgfresh.stdout.take().unwrap();
            line_of(&mut pipe);
            pgfresh.stdout = Some(pipe);
            let moment = random.moment(Duration::from_millis(700));
            thread::sleep(moment);
            let since = kill(&postmaster_in_time(&pgfresh), stopped);
            let context = format!("{request}, after {moment:?}, stopped: {stopped}");
            let outcome = end_in_time(pgfresh, since, &context);
            assert_eq!(outcome.code, Some(7), "{context}: {outcome}");
            let last = outcome.stdout.lines().last().unwrap_or_default();
            assert!(!last.starts_with("postgresql://"), "{context}: no error: {outcome}");
            assert!(outcome.stderr.contains("the server went away"), "{context}: no reason: {outcome}");
        }
    }
}

#[test]
fn stopped_servers_end_with_their_run() {
    for with_postmaster in [true, false] {
        let scene = Scene::new(User::Ourselves);
        let script = "\"$0\" -XAtqc 'CREATE ROLE seen' \"dbname=some\" && echo done && cat; exit 7";
        let mut command = scene.pgfresh(["run", "--", "sh", "-c", script, ground::psql()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut pgfresh = command.spawn().unwrap();
        let mut pipe = pgfresh.stdout.take().unwrap();
        assert_eq!(line_of(&mut pipe), "done\n");
        pgfresh.stdout = Some(pipe);
        let postmaster = postmaster_in_time(&pgfresh);
        for process in children_of(postmaster.pid.cast_unsigned()) {
            let _ = kill_process(Pid::from_raw(process.pid).unwrap(), Signal::STOP);
        }
        if with_postmaster {
            kill_process(Pid::from_raw(postmaster.pid).unwrap(), Signal::STOP).unwrap();
        }
        drop(pgfresh.stdin.take());
        let outcome = collect(pgfresh);
        assert_eq!(outcome.code, Some(7), "{outcome}");
    }
}

#[test]
fn builds_fail_with_their_server() {
    let specs = [
        ("sql", "CREATE TABLE t AS SELECT generate_series(1, 100000); SELECT pg_sleep(3600);"),
        ("setup", "sleep 3600"),
        ("setup", "until psql -qc 'SELECT no_such_thing'; do :; done"),
    ];
    let mut random = Random::new();
    for (key, words) in specs {
        for stopped in [false, true] {
            let scene = Scene::new(User::Ourselves);
            scene.write("input", &format!("-- {}\n{words}", random.number()));
            let spec = if key == "sql" { "input" } else { words };
            scene.write("pgfresh.toml", &format!("[template]\n{key} = \"{spec}\"\ninputs = [\"input\"]\n"));
            let mut command = scene.pgfresh(["template", "build"]);
            let pgfresh = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let postmaster = postmaster_in_time(&pgfresh);
            let moment = random.moment(Duration::from_millis(600));
            thread::sleep(moment);
            let since = kill(&postmaster, stopped);
            let context = format!("{key} = {words}, after {moment:?}, stopped: {stopped}");
            let outcome = end_in_time(pgfresh, since, &context);
            assert_eq!(outcome.code, Some(1), "{context}: {outcome}");
            assert!(outcome.stderr.contains("pgfresh: "), "{context}: {outcome}");
        }
    }
}

#[test]
fn an_end_at_boot_fails_at_once() {
    for stopped in [false, true] {
        let scene = Scene::new(User::Ourselves);
        let mut command = scene.pgfresh(["run", "--", "sleep", "0.5"]);
        let pgfresh = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let postmaster = postmaster_in_time(&pgfresh);
        if stopped {
            wait_until("a child of the postmaster", || {
                !children_of(postmaster.pid.cast_unsigned()).is_empty()
            });
        }
        let since = kill(&postmaster, stopped);
        let outcome = end_in_time(pgfresh, since, "while it boots");
        let message = if outcome.code == Some(125) { "could not " } else { "the server went away" };
        assert!(outcome.stderr.contains(message), "{outcome}");
    }
}

#[test]
fn serve_ends_with_its_server() {
    let scene = Scene::new(User::Ourselves);
    let mut command = scene.pgfresh(["serve", "--json"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut pgfresh = command.spawn().unwrap();
    let mut pipe = pgfresh.stdout.take().unwrap();
    line_of(&mut pipe);
    // The standard input of `serve` stays open, so that `serve` doesn't end for another reason.
    let lifeline = pgfresh.stdin.take();
    let since = kill(&postmaster_in_time(&pgfresh), true);
    let outcome = end_in_time(pgfresh, since, "serve");
    drop(lifeline);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.stderr.contains("the server went away"), "{outcome}");
}

#[test]
fn crashes_noticed_late_by_the_postmaster_are_reported() {
    let scene = Scene::new(User::Ourselves);
    let session = ["-XAtqc", "SELECT pg_backend_pid()", "-c", "SELECT pg_sleep(3600)"];
    let mut command = scene.pgfresh(["run", "--", ground::psql()].into_iter().chain(session));
    let mut pgfresh = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let backend = line_of(pgfresh.stdout.as_mut().unwrap()).trim().parse().unwrap();
    let postmaster = Pid::from_raw(postmaster_in_time(&pgfresh).pid).unwrap();
    // The postmaster is stopped until the command has ended.
    kill_process(postmaster, Signal::STOP).unwrap();
    kill_process(Pid::from_raw(backend).unwrap(), Signal::KILL).unwrap();
    thread::sleep(Duration::from_millis(500));
    let continued = kill_process(postmaster, Signal::CONT);
    let outcome = collect(pgfresh);
    assert!(continued.is_ok(), "the run ended before its postmaster: {outcome}");
    let expected = "pgfresh: the server crashed while the command was running: LOG:  server process (PID ";
    assert!(outcome.code == Some(2) && outcome.stderr.contains(expected), "{outcome}");
}

#[test]
fn survived_crashes_are_reported_on_failure() {
    let scene = Scene::new(User::Ourselves);
    // The next session starts after the server has noticed the crash and recovered.
    let script = "\"$0\" -XAtqc \"COPY (SELECT 1) TO PROGRAM 'kill -9 \\$PPID'\" && exit 9
        until \"$0\" -XAtqc 'SELECT 1'; do :; done
        exit $1";
    let run = |code: &str| scene.run(["run", "--", "sh", "-c", script, ground::psql(), code]);
    let failed = run("3");
    let expected = "pgfresh: the server crashed while the command was running: LOG:  server process (PID ";
    let line = failed.stderr.lines().find(|line| line.starts_with(expected));
    let line = line.unwrap_or_else(|| panic!("{failed}"));
    assert!(failed.code == Some(3) && line.contains("was terminated by signal 9: Killed"), "{failed}");
    let fine = run("0");
    assert!(fine.code == Some(0) && !fine.stderr.contains("crashed"), "{fine}");
}
