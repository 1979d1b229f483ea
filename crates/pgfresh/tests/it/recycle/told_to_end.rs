//! A backend acts on SIGTERM when it is scheduled. Until then it seems to be alive, and must not be given to the next client.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use lease::{Backend, Connected};
use pgwire::StartupParams;
use rustix::process::{Pid, Signal, kill_process};
use server::AdminConnection;
use template::ServerOptions;

use super::expected::after_a_client;
use super::params;
use crate::common::WAIT_TIMEOUT;
use crate::common::gateway::Gateway;
use crate::common::leases::LeaseFixture;

fn pid_of(session: &mut AdminConnection) -> Pid {
    let rows = session.query("SELECT pg_backend_pid()").unwrap();
    Pid::from_raw(rows[0][0].as_deref().unwrap().parse().unwrap()).unwrap()
}

/// Has a backend wait in the leased database `name` for the next client that comes as `params`.
fn leave_backend(server: &LeaseFixture, name: &str, params: &StartupParams) -> Pid {
    let Connected { backend, guard } = server.connect_with(name, None, params).unwrap();
    let mut session = AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap();
    let pid = pid_of(&mut session);
    session.query("DISCARD ALL").unwrap();
    guard.give_back(Backend { stream: session.release().unwrap(), greeting: backend.greeting });
    pid
}

/// Runs `end` on the lease `name` while another session is open in it and the backend `pid` is stopped.
fn end_sessions(server: &LeaseFixture, name: &str, pid: Pid, end: impl FnOnce() + Send) {
    let other = StartupParams::new([("user", "postgres"), ("application_name", "another")]);
    let Connected { backend, guard } = server.connect_with(name, None, &other).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    thread::scope(|scope| {
        let ended = scope.spawn(end);
        let mut session = AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap();
        session.query("SELECT pg_sleep(60)").unwrap_err();
        drop((session, guard));
        // Long enough for a reset that does not notice.
        thread::sleep(Duration::from_millis(100));
        kill_process(pid, Signal::CONT).unwrap();
        ended.join().unwrap();
    });
}

#[test]
fn a_backend_that_was_told_to_end_is_not_the_next_clients() {
    let params = params("postgres");
    // Such a server knows its template, and so keeps backends.
    let server = after_a_client(ServerOptions::default(), "CREATE TABLE t (id int)", &params);
    let ask = |name: &str| {
        let Connected { backend, .. } = server.connect_with(name, None, &params).unwrap();
        let mut session = AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap();
        session.query("SELECT count(*) FROM t").unwrap()
    };
    for round in 0..5 {
        let pid = leave_backend(&server, "reset", &params);
        end_sessions(&server, "reset", pid, || {
            server.leases.reset("reset", true).unwrap();
            assert_eq!(ask("reset"), [[Some("0".to_owned())]], "round {round}");
        });
        let pid = leave_backend(&server, "released", &params);
        end_sessions(&server, "released", pid, || {
            server.leases.release("released").unwrap();
            for next in 0..3 {
                assert_eq!(ask(&format!("next_{round}_{next}")), [[Some("0".to_owned())]], "round {round}");
            }
        });
    }
}

/// A gateway that knows its template, and so keeps backends in leases, which last.
fn after_clients(template: &str, flags: &[&str]) -> Gateway {
    let gateway = Gateway::start(15, template, &[&["--linger", "60s"], flags].concat());
    for early in ["a", "b", "c"] {
        gateway.connect(early, "").unwrap().value("SELECT count(*) FROM t").unwrap();
    }
    gateway
}

/// By a statement of its own, also one that was prepared long before.
#[test]
fn a_backend_that_a_client_has_told_to_end_is_not_the_next_clients() {
    let gateway = after_clients("CREATE TABLE t (id int)", &[]);
    let others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let mut waited = 0;
    for (round, prepared) in [false, true].into_iter().cycle().take(8).enumerate() {
        let name = format!("ends_{round}");
        let mut client = gateway.connect(&name, "").unwrap();
        let statement = format!("SELECT count(PG_Terminate_Backend(pid)) {others}");
        if prepared {
            client.rows(&format!("PREPARE ends AS {statement}")).unwrap();
        }
        let mut other = gateway.connect(&name, "").unwrap();
        let pid = other.value("SELECT pg_backend_pid()").unwrap();
        other.close();
        let still_there = format!("SELECT count(*) {others} AND pid = {pid} AND query LIKE 'DISCARD%'");
        let begun = Instant::now();
        while client.value(&still_there).unwrap() != "1" && begun.elapsed() < Duration::from_secs(1) {}
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        if kill_process(pid, Signal::STOP).is_err() {
            continue;
        }
        waited += 1;
        let ends = if prepared { "EXECUTE ends".to_owned() } else { statement };
        client.value(&ends).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                kill_process(pid, Signal::CONT)
            });
            let next = gateway.connect(&name, "").unwrap().value("SELECT count(*) FROM t");
            assert_eq!(next.unwrap(), "0", "round {round}");
        });
    }
    // Where it is prepared, none does from then on.
    assert!(waited >= 3, "backends wait for the next client");
}

/// The time that a backend has waited would count for its next client.
#[test]
fn no_backend_waits_where_idle_sessions_are_ended() {
    let table = "CREATE TABLE t (id int)";
    let in_template = format!("{table}; ALTER DATABASE app SET idle_session_timeout = '1h'");
    for (template, flags, options, reused) in [
        (table, &[][..], "", true),
        (table, &["--set", "idle_session_timeout=1h"], "", false),
        (table, &[], "-c idle_session_timeout=1h", false),
        (&in_template, &[], "", false),
    ] {
        let gateway = after_clients(template, flags);
        let mut pids = BTreeSet::new();
        for _ in 0..20 {
            let mut session = gateway.connect("again", options).unwrap();
            pids.insert(session.value("SELECT pg_backend_pid()").unwrap());
            session.close();
        }
        assert_eq!(pids.len() < 20, reused, "{flags:?} {options:?}: {pids:?}");
    }
}
