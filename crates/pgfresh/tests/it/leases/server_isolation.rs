//! Tests isolation `server`: a test can break its server in any way. The data are still there after the next restart,
//! and if there is no server, an error gives the reason.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::leftovers::children_of;
use crate::common::{ground, mounts, on_every_major};

on_every_major! {
    the_data_survive_however_the_server_has_ended
    failed_restarts_print_reasons_and_keep_data
    servers_restart_after_sql_excludes_pgfresh
}

/// SQL that ends a server, or one of its processes.
const ENDS: [&str; 6] = [
    "COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'",
    "COPY (SELECT 1) TO PROGRAM 'kill -9 $(head -1 postmaster.pid)'",
    "COPY (SELECT 1) TO PROGRAM 'kill -QUIT $(head -1 postmaster.pid)'",
    "COPY (SELECT 1) TO PROGRAM 'kill -INT $(head -1 postmaster.pid)'",
    "COPY (SELECT 1) TO PROGRAM 'kill -STOP $(head -1 postmaster.pid)'",
    // This statement comes last, because its setting stays: the postmaster ends with the killed backend.
    "ALTER SYSTEM SET restart_after_crash = off; SELECT pg_reload_conf(); SELECT pg_sleep(0.2); \
     COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'",
];

/// Leases `mine` with a table `kept`, which survives a crash.
fn lease(major: u32) -> Gateway {
    let gateway = Gateway::start(major, "SELECT 1", &[]);
    lease_again(&gateway);
    gateway
}

fn lease_again(gateway: &Gateway) {
    let (code, answer) = gateway.http("POST", "/v1/databases", r#"{"name": "mine", "isolation": "server"}"#);
    assert_eq!(code, 201, "{answer}");
    run(gateway, "CREATE TABLE kept AS SELECT 42 AS value");
    run(gateway, "CHECKPOINT");
}

/// Runs statements one by one in a new session. The last statement might break the server.
fn run(gateway: &Gateway, sql: &str) {
    let mut session = gateway.connect("mine", "").unwrap();
    let statements: Vec<_> = sql.split("; ").collect();
    let (last, first) = statements.split_last().unwrap();
    for sql in first {
        session.rows(sql).unwrap();
    }
    let _ = session.rows(last);
}

/// Requests `restart`, `stop`, `crash` or `reset`.
fn act(gateway: &Gateway, action: &str) -> (u16, Value) {
    gateway.http("POST", &format!("/v1/databases/mine/{action}"), r#"{"close_sessions": true}"#)
}

fn release(gateway: &Gateway) {
    let (code, answer) = gateway.http("DELETE", "/v1/databases/mine", r#"{"close_sessions": true}"#);
    assert_eq!(code, 204, "{answer}");
}

fn assert_does(gateway: &Gateway, action: &str, context: &str) {
    let (code, answer) = act(gateway, action);
    assert_eq!(code, 204, "{context}, {action}: {answer}");
}

fn assert_kept(gateway: &Gateway, context: &str) {
    let value = gateway.connect("mine", "").and_then(|mut session| session.value("SELECT value FROM kept"));
    assert_eq!(value.as_deref(), Ok("42"), "{context}");
}

/// Returns psql's message if it can't open a session.
fn refusal(gateway: &Gateway) -> String {
    let url = format!("postgresql://postgres:{}@{}/mine", gateway.serve.secret(), gateway.serve.address());
    let output = Command::new(ground::psql()).args([&url, "-XAtqc", "SELECT 1"]).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the leased server's data directory.
fn data(gateway: &Gateway) -> PathBuf {
    gateway.connect("mine", "").unwrap().value("SHOW data_directory").unwrap().into()
}

fn postmaster(gateway: &Gateway) -> Pid {
    let text = fs::read_to_string(data(gateway).join("postmaster.pid")).unwrap();
    Pid::from_raw(text.lines().next().unwrap().parse().unwrap()).unwrap()
}

fn the_data_survive_however_the_server_has_ended(major: u32) {
    let gateway = lease(major);
    for end in ENDS {
        for action in ["restart", "crash", "stop"] {
            let context = format!("{major}: {end}");
            run(&gateway, end);
            assert_does(&gateway, action, &context);
            if action == "stop" {
                assert_does(&gateway, "restart", &context);
            }
            assert_kept(&gateway, &format!("{context}, {action}"));
        }
    }
}

fn failed_restarts_print_reasons_and_keep_data(major: u32) {
    let gateway = lease(major);
    let data = data(&gateway);
    let (settings, access) = (data.join("postgresql.auto.conf"), data.join("pg_hba.conf"));
    let before = [&settings, &access].map(|path| fs::read_to_string(path).unwrap());
    for (sql, reason) in [
        (
            "ALTER SYSTEM SET shared_preload_libraries = 'nothing_like_it'",
            "could not access file \"nothing_like_it\"",
        ),
        ("ALTER SYSTEM SET max_connections = 1", "superuser_reserved_connections"),
        ("COPY (SELECT 1) TO PROGRAM 'echo nonsense >pg_hba.conf'", "could not load "),
    ] {
        run(&gateway, sql);
        for action in ["restart", "crash"] {
            let (code, answer) = act(&gateway, action);
            let error = &answer["error"];
            let says =
                |part: &str, words: &str| error[part].as_str().is_some_and(|text| text.contains(words));
            let message = "the server of database \"mine\" did not restart";
            assert!(
                code == 500 && error["code"] == "57P03" && error["message"] == message,
                "{sql}: {answer}"
            );
            assert!(says("detail", reason) && says("hint", data.to_str().unwrap()), "{sql}: {answer}");
            let refusal = refusal(&gateway);
            assert!(refusal.contains(message) && refusal.contains(reason), "{sql}: {refusal}");
        }
        for (path, text) in [&settings, &access].into_iter().zip(&before) {
            fs::write(path, text).unwrap();
        }
        assert_does(&gateway, "restart", sql);
        assert_kept(&gateway, sql);
    }
    run(&gateway, "ALTER SYSTEM SET max_connections = 1");
    assert_eq!(act(&gateway, "restart").0, 500);
    assert_does(&gateway, "reset", "another server");
    assert_eq!(
        gateway.connect("mine", "").unwrap().value("SELECT to_regclass('kept') IS NULL").unwrap(),
        "t"
    );
}

fn servers_restart_after_sql_excludes_pgfresh(major: u32) {
    let gateway = lease(major);
    let open = |user| Connection::open(&gateway.address(), "mine", &[("user", user)]);
    for (sql, refusal) in [
        ("ALTER SYSTEM SET port = 6000", ""),
        ("ALTER DATABASE postgres ALLOW_CONNECTIONS false", ""),
        ("DROP DATABASE postgres", ""),
        ("CREATE ROLE other SUPERUSER LOGIN; ALTER ROLE postgres NOLOGIN", "not permitted to log in"),
        ("ALTER SYSTEM SET session_preload_libraries = 'nothing_like_it'", "could not access file"),
    ] {
        run(&gateway, sql);
        let mut session = open("postgres");
        assert_does(&gateway, "restart", sql);
        if refusal.is_empty() {
            assert_kept(&gateway, sql);
        } else {
            // The server itself generates this error, and other users can connect.
            let error = open("postgres").map(drop).unwrap_err();
            assert!(error.message.contains(refusal), "{sql}: {error}");
            session = open("other");
        }
        release(&gateway);
        drop(session);
        lease_again(&gateway);
    }
}

#[test]
fn errors_name_the_end_and_the_restart() {
    let gateway = lease(15);
    run(&gateway, ENDS[1]);
    let refusal = refusal(&gateway);
    for words in [
        "the server of database \"mine\" has ended\n",
        "DETAIL:  postmaster ended with signal: 9 (SIGKILL)",
        "HINT:  POST /v1/databases/NAME/restart starts it",
    ] {
        assert!(refusal.contains(words), "{refusal}");
    }
}

#[test]
fn processes_that_are_stopped_keep_no_request_waiting() {
    let gateway = lease(15);
    for action in ["restart", "crash", "stop", "reset", "release"] {
        if action != "restart" {
            assert_does(&gateway, "restart", action);
        }
        let _session = gateway.connect("mine", "").unwrap();
        let postmaster = postmaster(&gateway);
        for child in children_of(postmaster.as_raw_nonzero().get().cast_unsigned()) {
            let _ = kill_process(Pid::from_raw(child.pid).unwrap(), Signal::STOP);
        }
        kill_process(postmaster, Signal::STOP).unwrap();
        std::thread::scope(|scope| {
            // This client doesn't get a response either.
            scope.spawn(|| gateway.connect("mine", ""));
            std::thread::sleep(Duration::from_millis(100));
            if action == "release" {
                release(&gateway);
            } else {
                assert_does(&gateway, action, "stopped");
            }
        });
    }
}

#[test]
fn a_full_place_is_the_errors_cause() {
    let Some(scene) = mounts::scene() else { return };
    let mount = "mount -t tmpfs -o mode=0711,size=140m none \"$MOUNTED\"; export PGFRESH_PLACE=\"$MOUNTED\"";
    let script = "for i in 1 2 3 4 5 6 7 8; do \"$0\" -XAtqc 'SELECT 1' dbname=s$i || exit 7; done";
    let words = ["run", "--isolation", "server", "--linger", "60s", "--", "sh", "-c", script, ground::psql()];
    let outcome = mounts::run(&scene, mount, &words);
    let message = "could not start a server: cannot place ";
    assert!(outcome.code == Some(7) && outcome.stderr.contains(message), "{outcome}");
    assert!(!outcome.stderr.contains("DETAIL:"), "it says it once: {outcome}");
}
