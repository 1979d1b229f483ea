//! Tests new connections: they have the current settings of roles, and nothing is left from earlier sessions.

use super::{BRIEF, Findings, LASTING};
use crate::common::connection::Connection;
use crate::common::depth::rounds;
use crate::common::gateway::Gateway;
use crate::common::{on_every_major, wait_until};

on_every_major! {
    sessions_begin_with_current_role_settings
    a_new_session_shows_no_earlier_state
}

/// `ALTER ROLE ALL` affects each session that starts afterwards.
fn sessions_begin_with_current_role_settings(major: u32) {
    const WORK_MEM: &str = "SHOW work_mem";
    let gateway = Gateway::clean(major, &[]);
    let mut findings = Findings::new("4MB");
    let mut during = Findings::new("15MB");
    let mut admin = Connection::open(&gateway.server(), "postgres", &[]).unwrap();
    for round in 0..rounds(5) {
        admin.rows("ALTER ROLE ALL SET work_mem = '15MB'").unwrap();
        for name in 0..3 {
            let name = format!("during_{round}_{name}");
            during.note(&name, gateway.connect(&name, BRIEF), WORK_MEM);
        }
        admin.rows("ALTER ROLE ALL RESET work_mem").unwrap();
        for name in 0..6 {
            let name = format!("after_{round}_{name}");
            findings.note(&name, gateway.connect(&name, BRIEF), WORK_MEM);
        }
    }
    during.assert_none();
    findings.assert_none();
}

/// Queries for whether a random number is the first after `setseed(0.42)`: before version 15, and from 15 on.
const RANDOM: [&str; 2] = ["SELECT random() = 0.5699319181861568", "SELECT random() = 0.742944875302392"];

/// Action in a session, and a query for whether a session is free of the action's effect.
struct Trace {
    done: String,
    probe: &'static str,
    clean: String,
}

impl Trace {
    fn new(done: impl Into<String>, probe: &'static str, clean: impl Into<String>) -> Self {
        Self { done: done.into(), probe, clean: clean.into() }
    }

    /// Returns all effects that `DISCARD ALL` doesn't remove.
    fn all(gateway: &Gateway) -> Vec<Self> {
        let folder = gateway.socket_directory().display().to_string();
        let dblink =
            format!("SELECT dblink_connect('c', 'host={folder} port=5432 user=postgres dbname=postgres')");
        let origin = "SELECT pg_replication_origin_session_setup('origin')";
        gateway.direct("postgres", "SELECT pg_replication_origin_create('origin')").unwrap();
        let libraries = "SELECT count(*) FROM pg_settings WHERE name LIKE 'auto_explain.%'";
        vec![
            // In one of 10^15 cases, a new session also generates this number.
            Self::new("SELECT setseed(0.42)", RANDOM[usize::from(gateway.major >= 15)], "f"),
            Self::new("LOAD 'auto_explain'", libraries, "0"),
            Self::new(dblink, "SELECT dblink_get_connections() IS NULL", "t"),
            Self::new("SET app.x = 'left'", "SELECT current_setting('app.x', true) IS NULL", "t"),
            Self::new(
                "BEGIN; SET LOCAL app.y = 'left'; COMMIT",
                "SELECT current_setting('app.y', true) IS NULL",
                "t",
            ),
            Self::new(origin, "SELECT pg_replication_origin_session_is_setup()", "f"),
            Self::new("PREPARE left_over AS SELECT 1", "SELECT count(*) FROM pg_prepared_statements", "0"),
            Self::new("CREATE TEMP TABLE mine ()", "SELECT pg_my_temp_schema()", "0"),
            Self::new("LISTEN news", "SELECT count(*) FROM pg_listening_channels()", "0"),
            Self::new(
                "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT",
                "SELECT count(*) FROM pg_cursors WHERE name <> ''",
                "0",
            ),
            Self::new(
                "SELECT pg_advisory_lock(7)",
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
                "0",
            ),
            Self::new("SET work_mem = '77kB'", "SHOW work_mem", "4MB"),
            Self::new("SET SESSION AUTHORIZATION guest", "SELECT session_user", "postgres"),
            Self::new("SET ROLE guest", "SELECT current_user", "postgres"),
            Self::new("SET default_transaction_read_only = on", "SHOW transaction_read_only", "off"),
        ]
    }
}

/// Tests a session with another name, a session with the same name after a reset over HTTP, and a session
/// that requests a reset.
fn a_new_session_shows_no_earlier_state(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    gateway.direct("postgres", "CREATE ROLE guest").unwrap();
    let mut left = Vec::new();
    for trace in Trace::all(&gateway) {
        let mut findings = Findings::new(&trace.clean);
        for round in 0..rounds(2) {
            play(&gateway, &trace, round, &mut findings);
        }
        if !findings.wrong.is_empty() {
            left.push(format!("{}: {} of {}", trace.done, findings.wrong.len(), findings.rounds));
        }
    }
    assert!(left.is_empty(), "seen by later sessions on PostgreSQL {major}:\n{}", left.join("\n"));
}

fn play(gateway: &Gateway, trace: &Trace, round: u32, findings: &mut Findings) {
    let probe = trace.probe;
    // Only one session can use a replication origin, and an ended backend takes a moment to release it. Only the
    // query's result counts, because a failed action doesn't leave anything.
    let leave = |session: Option<Connection>| {
        let Some(mut session) = session else { return };
        wait_until(
            "the end of the session before",
            || !matches!(session.rows(&trace.done), Err(error) if error.sqlstate == "55006"),
        );
        session.close();
    };
    leave(gateway.connect(&format!("new_{round}"), BRIEF).ok());
    leave(gateway.connect("same", LASTING).ok());
    findings.note("new name", gateway.connect(&format!("newer_{round}"), BRIEF), probe);
    let (status, answer) = gateway.reset("same");
    assert_eq!(status, 204, "{answer}");
    let session = findings.note("after a reset", gateway.connect("same", LASTING), probe);
    leave(session);
    let session = gateway.connect("same", &format!("{LASTING} -c pgfresh.reset=on"));
    findings.note("reset by a connection", session, probe);
}
