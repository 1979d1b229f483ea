//! Tests that a panic in the lease table stops the service, and that no client receives a database afterwards.
//!
//! Debug builds panic after a given number of actions on the table, if an environment variable is set.
#![cfg(debug_assertions)]

use std::process::{Command, Stdio};

use crate::common::{Outcome, Scene, User, collect, finish, ground, line_of};

/// Environment variable that plants a panic.
const PANIC: &str = "PGFRESH_TEST_PANIC";
/// Message for a refused client.
const REFUSED: &str = "pgfresh is shutting down after an internal error";
/// Message that the service prints.
const STOPPED: &str = "pgfresh: an internal error has stopped the service";

/// Checks that the service has printed its error once.
#[track_caller]
fn assert_stopped(outcome: &Outcome, code: i32) {
    assert_eq!(outcome.stderr.matches(STOPPED).count(), 1, "{outcome}");
    assert_eq!(outcome.code, Some(code), "{outcome}");
}

#[test]
fn internal_error_fails_run_and_refuses_clients() {
    let open = "i=0; while [ $i -lt 20 ]; do i=$((i + 1)); \"$0\" -XAtqc 'SELECT 1' \"dbname=d$i\" || exit";
    for (actions, end, code) in [(0, "9", 9), (3, "0", 1), (8, "0", 1)] {
        let scene = Scene::new(User::Ourselves);
        let mut command = scene.pgfresh(["run", "--", "sh", "-c", &format!("{open} {end}; done")]);
        command.arg(ground::psql()).env(PANIC, actions.to_string());
        let outcome = finish(command);
        assert_stopped(&outcome, code);
        assert!(outcome.stderr.contains(REFUSED), "{outcome}");
        assert!(outcome.stdout.lines().count() < 20, "{outcome}");
    }
}

#[test]
fn internal_error_ends_server_and_its_sessions() {
    let scene = Scene::new(User::Ourselves);
    let mut command = scene.pgfresh(["serve"]);
    // The first session needs two actions.
    command.env(PANIC, "2").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut pipe = server.stdout.take().unwrap();
    let url = line_of(&mut pipe).trim().to_owned();
    server.stdout = Some(pipe);
    let (address, _) = url.rsplit_once('/').unwrap();
    let psql = |name: &str, sql: &[&str]| {
        let mut command = Command::new(ground::psql());
        command.args(["-XAtq", "-d", &format!("{address}/{name}")]);
        for sql in sql {
            command.args(["-c", sql]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut session = psql("one", &["SELECT 1", "SELECT pg_sleep(600)"]);
    let mut pipe = session.stdout.take().unwrap();
    assert_eq!(line_of(&mut pipe).trim(), "1");
    let refused = collect(psql("other", &["SELECT 1"]));
    assert!(refused.stderr.contains(REFUSED) && refused.stdout.is_empty(), "{refused}");
    let ended = collect(session);
    assert!(ended.stderr.contains("terminating connection"), "{ended}");
    assert_stopped(&collect(server), 1);
}
