//! Tests that sessions and leases that end by a reset, a crash, a timeout, a termination or a
//! disconnection don't leave data.

use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{BRIEF, CHANGES, Findings, LASTING, STATE};
use crate::common::depth;
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{majors_since, on_every_major, wait_until};

on_every_major! {
    a_reset_during_a_leases_end_cleans
    a_crashed_backend_hides_no_change
    unlogged_tables_are_complete_after_a_crash
    unlogged_tables_survive_a_late_noticed_crash
    large_unlogged_tables_are_complete
    terminating_all_other_sessions_harms_no_later_one
    without_linger_each_session_is_clean
}

/// Returns the number of rounds. In each of them, a race can happen.
fn rounds() -> u32 {
    depth::rounds(15)
}

/// Tests resets both by a connection and over HTTP.
fn a_reset_during_a_leases_end_cleans(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut findings = Findings::new(gateway.clean_state());
    for round in 0..rounds() {
        let mut session = gateway.connect_in_time("a", BRIEF);
        session.rows(CHANGES).unwrap();
        drop(session);
        let reset = gateway.connect("a", &format!("{BRIEF} -c pgfresh.reset=on"));
        let reset = findings.note(format!("reset by a connection {round}"), reset, STATE);
        let _ = reset.map(|mut session| session.rows(CHANGES));
    }
    let mut random = Random::new();
    for round in 0..rounds() / 2 {
        let mut session = gateway.connect_in_time("b", "-c pgfresh.linger=200ms");
        session.rows(CHANGES).unwrap();
        session.close();
        // The lease ends shortly before, during or shortly after the reset.
        thread::sleep(Duration::from_millis(185) + random.moment(Duration::from_millis(30)));
        let (status, answer) = gateway.reset("b");
        if !matches!(status, 204 | 404) {
            findings.found(format!("HTTP reset {round}"), &format!("{status} {answer}"));
        }
        let next = gateway.connect("b", "-c pgfresh.linger=200ms");
        findings.note(format!("after HTTP reset {round}"), next, STATE);
    }
    for round in 0..rounds() {
        let session = gateway.connect(&format!("later_{round}"), BRIEF);
        findings.note(format!("later name {round}"), session, STATE);
    }
    findings.assert_none();
}

/// Several sessions' backends change data before one of them crashes.
fn a_crashed_backend_hides_no_change(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut findings = Findings::new(gateway.clean_state());
    for round in 0..3 {
        let mut others: Vec<_> =
            (0..4).map(|other| gateway.connect_in_time(&format!("other_{round}_{other}"), BRIEF)).collect();
        let mut session = gateway.connect_in_time("crashed", LASTING);
        for session in others.iter_mut().chain([&mut session]) {
            // A crash would lose changes that aren't in the WAL yet.
            session.rows("SET synchronous_commit = on").and_then(|_| session.rows(CHANGES)).unwrap();
        }
        let _ = session.rows("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'");
        drop((session, others));
        // The postmaster might notice the crash only now, and then it also ends these sessions.
        wait_until("a session that is not ended with the others", || {
            let mut session = gateway.connect_in_time("crashed", LASTING);
            let answers = session.rows("SELECT 1").is_ok();
            session.close();
            answers
        });
        let (status, answer) = gateway.reset("crashed");
        assert_eq!(status, 204, "{answer}");
        findings.note(format!("reset {round}"), gateway.connect("crashed", LASTING), STATE);
        for later in 0..10 {
            let name = format!("later_{round}_{later}");
            findings.note(&name, gateway.connect(&name, BRIEF), STATE);
        }
    }
    findings.assert_none();
}

/// The server ends idle sessions, including those of pgfresh. Versions before 14 don't have this setting.
#[test]
fn sessions_that_time_out_leave_no_data() {
    majors_since(14).into_iter().for_each(after_timeouts);
}

fn after_timeouts(major: u32) {
    let gateway = Gateway::clean(major, &["--set", "idle_session_timeout=2s"]);
    let mut findings = Findings::new(gateway.clean_state());
    for round in 0..2 {
        let name = format!("a{round}");
        let session = gateway.connect(&name, "-c pgfresh.linger=3s");
        let Some(mut session) = findings.note(&name, session, STATE) else { continue };
        let _ = session.rows(CHANGES).and_then(|_| session.rows("CREATE TABLE dirty ()"));
        session.close();
        let path = format!("/v1/databases/{name}");
        wait_until("the end of the lease", || gateway.http("GET", &path, "").0 == 404);
        // pgfresh's own sessions are also idle for this long.
        thread::sleep(Duration::from_secs(3));
        for later in 0..3 {
            let context = format!("session {later} in round {round}");
            let session = findings.note(&context, gateway.connect(&name, "-c pgfresh.linger=3s"), STATE);
            let dirty = session.map(|mut session| session.value("SELECT to_regclass('dirty')"));
            if dirty == Some(Ok("dirty".to_owned())) {
                findings.found(context, "the table \"dirty\" is there");
            }
        }
    }
    findings.assert_none();
}

/// A client ends all other backends, including those that wait for a client.
fn terminating_all_other_sessions_harms_no_later_one(major: u32) {
    const TERMINATE: &str =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
    let gateway = Gateway::clean(major, &[]);
    let mut findings = Findings::new(gateway.clean_state());
    for round in 0..4 {
        let mut session = gateway.connect_in_time("cleaner", LASTING);
        // These sessions leave backends that wait for a client.
        for name in 0..3 {
            let name = format!("before_{round}_{name}");
            findings.note(&name, gateway.connect(&name, BRIEF), STATE);
        }
        session.rows(TERMINATE).unwrap();
        for name in 0..12 {
            let name = format!("after_{round}_{name}");
            findings.note(&name, gateway.connect(&name, BRIEF), STATE);
        }
        session.rows(TERMINATE).unwrap();
        session.close();
        findings.note("the same name", gateway.connect("cleaner", LASTING), STATE);
        let (status, answer) = gateway.reset("cleaner");
        if status != 204 {
            findings.found("reset", &format!("{status} {answer}"));
        }
    }
    findings.assert_none();
}

/// A new session with an ended lease's name is a new lease.
fn without_linger_each_session_is_clean(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let expected = gateway.clean_state();
    let found: Vec<Findings> = thread::scope(|scope| {
        let worker = |worker: u32| {
            let (gateway, expected) = (&gateway, &expected);
            scope.spawn(move || {
                let mut findings = Findings::new(expected);
                for round in 0..rounds() {
                    let name = format!("worker_{worker}");
                    let context = format!("{name} {round}");
                    let Some(mut session) = findings.note(context, gateway.connect(&name, BRIEF), STATE)
                    else {
                        continue;
                    };
                    session.rows(CHANGES).unwrap();
                    // Drivers send Terminate without waiting for its effect.
                    session.send(b'X', b"").unwrap();
                }
                findings
            })
        };
        let workers: Vec<_> = (0..4).map(worker).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut all = Findings::new(expected);
    for findings in found {
        all.rounds += findings.rounds;
        all.wrong.extend(findings.wrong);
    }
    all.assert_none();
}

/// Recovery empties unlogged tables, including those in the template and in ready databases.
fn unlogged_tables_are_complete_after_a_crash(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut session = gateway.connect_in_time("crash", BRIEF);
    let _ = session.rows("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'");
    for number in 0..6 {
        let mut session = gateway.connect_in_time(&format!("later_{number}"), LASTING);
        let count = session.value("SELECT count(*) FROM unlogged_seed").unwrap();
        assert_eq!(count, "2", "database {number} after the crash, on PostgreSQL {major}");
    }
}

/// A database is leased after a backend was killed, and before the postmaster notices that. The database's first
/// session starts after the recovery.
fn unlogged_tables_survive_a_late_noticed_crash(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut witness = gateway.connect_in_time("witness", LASTING);
    let number =
        |text: String| text.lines().next().unwrap().trim().parse().map(Pid::from_raw).unwrap().unwrap();
    let mut killed = gateway.connect_in_time("killed", LASTING);
    let backend = number(killed.value("SELECT pg_backend_pid()").unwrap());
    let postmaster = number(witness.value("SELECT pg_read_file('postmaster.pid')").unwrap());
    wait_until("a ready database", || gateway.status()["templates"][0]["ready"].as_u64() > Some(0));
    kill_process(postmaster, Signal::STOP).unwrap();
    kill_process(backend, Signal::KILL).unwrap();
    let count = thread::scope(|scope| {
        let later = scope.spawn(|| {
            // No waiting backend has this setting.
            let mut session = gateway.connect_in_time("later", &format!("{LASTING} -c work_mem=1234kB"));
            session.value("SELECT count(*) FROM unlogged_seed").unwrap()
        });
        let named = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'later')";
        wait_until("a database for the lease", || witness.value(named).unwrap() == "t");
        kill_process(postmaster, Signal::CONT).unwrap();
        later.join().unwrap()
    });
    assert_eq!(count, "2", "on PostgreSQL {major}");
}

/// The table has too many rows for a reset, so each database is a new copy, until a crash has
/// emptied the template's table.
fn large_unlogged_tables_are_complete(major: u32) {
    let template = "CREATE UNLOGGED TABLE large AS SELECT generate_series(1, 20000) id";
    let gateway = Gateway::start(major, template, &[]);
    for number in 0..4 {
        let mut session = gateway.connect_in_time("large", BRIEF);
        let count = session.value("SELECT count(*) FROM large").unwrap();
        assert_eq!(count, "20000", "database {number} on PostgreSQL {major}");
        session.rows("DELETE FROM large WHERE id > 10").unwrap();
        session.close();
    }
    let _ = gateway.connect_in_time("crash", BRIEF).rows("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'");
    gateway.wait_for_server();
    let state = gateway.connect("later", BRIEF).map(drop).map_err(|error| error.sqlstate);
    assert_eq!(state, Err("58000".to_owned()), "on PostgreSQL {major}");
}
