//! Tests backends with a pending signal. A backend acts on SIGTERM only when the kernel schedules it. Until then it
//! looks alive, but the next client must not get it.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use lease::{Backend, Connected};
use pgwire::StartupParams;
use rustix::process::{Pid, Signal, kill_process};
use server::AdminConnection;
use template::ServerOptions;

use super::prestarted::after_a_client;

use crate::common::gateway::Gateway;
use crate::common::leases::{LeaseFixture, params};
use crate::common::{WAIT_TIMEOUT, wait_until};

fn pid_of(session: &mut AdminConnection) -> Pid {
    let rows = session.query("SELECT pg_backend_pid()").unwrap();
    Pid::from_raw(rows[0][0].as_deref().unwrap().parse().unwrap()).unwrap()
}

/// Makes a backend with `params` wait in the leased database `name` for the next client.
fn leave_backend(server: &LeaseFixture, name: &str, params: &StartupParams) -> Pid {
    let Connected { backend: Backend { stream, startup_response, seat }, guard } =
        server.connect_with(name, None, params).unwrap();
    let mut session = AdminConnection::adopt(stream, WAIT_TIMEOUT).unwrap();
    let pid = pid_of(&mut session);
    session.query("DISCARD ALL").unwrap();
    guard.give_back(Backend { stream: session.release().unwrap(), startup_response, seat });
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
        // A reset that ignores the stopped backend would end within this time.
        thread::sleep(Duration::from_millis(100));
        kill_process(pid, Signal::CONT).unwrap();
        ended.join().unwrap();
    });
}

#[test]
fn terminated_backends_are_not_reused() {
    let params = params("postgres");
    // This server has analyzed its template before, so it keeps backends.
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

/// Starts a gateway that has analyzed its template, and therefore keeps backends in lasting leases. On a busy
/// machine, clients might have databases from before the analysis. If none of twenty names gets a backend again, the
/// gateway doesn't keep backends.
fn after_clients(template: &str, flags: &[&str]) -> Gateway {
    let gateway = Gateway::start(15, template, &[&["--linger", "60s"], flags].concat());
    let backend = |name: &str| {
        let mut session = gateway.connect(name, "").unwrap();
        session.value("SELECT count(*) FROM t").unwrap();
        let pid = session.value("SELECT pg_backend_pid()").unwrap();
        session.close();
        pid
    };
    for early in (0..20).map(|number| format!("early_{number}")) {
        // The second session might come before the first has gone.
        let pids: BTreeSet<_> = (0..4).map(|_| backend(&early)).collect();
        if pids.len() < 4 {
            break;
        }
    }
    gateway
}

/// Opens the next session while the process `held_up` is stopped, and continues the process after a moment. The
/// session's query must succeed.
fn expect_service(gateway: &Gateway, name: &str, held_up: Pid, way: &str) {
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            kill_process(held_up, Signal::CONT)
        });
        let next = gateway.connect(name, "").unwrap().value("SELECT count(*) FROM t");
        assert_eq!(next.unwrap(), "0", "{way}");
    });
}

/// Covers several kinds of statements, with different spellings, and several signals.
#[test]
fn signalled_backends_are_not_reused() {
    let gateway = after_clients("CREATE TABLE t (id int)", &[]);
    let others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let ends = format!("SELECT count(PG_Terminate_Backend(pid)) {others}");
    let long = format!("/* {} */ {ends}", "x".repeat(70_000));
    let hidden = format!(
        "DO $$ BEGIN EXECUTE 'SELECT count(pg_termi' || 'nate_backend(pid)) {}'; END $$",
        others.replace("current_database()", "''again''")
    );
    let cancels = ends.replace("Terminate", "Cancel");
    for (way, prepare, statement) in [
        ("a statement", "", &ends[..]),
        ("a prepared one", &format!("PREPARE ends AS {ends}"), "EXECUTE ends"),
        ("a long one", "", &long),
        ("a hidden one", "", &hidden),
        ("a cancellation", "", &cancels),
    ] {
        let mut waited = 0;
        for _ in 0..10 {
            let mut client = gateway.connect("again", "").unwrap();
            if !prepare.is_empty() {
                client.rows(prepare).unwrap();
            }
            let mut other = gateway.connect("again", "").unwrap();
            let pid = other.value("SELECT pg_backend_pid()").unwrap();
            other.close();
            let still_there = format!("SELECT count(*) {others} AND pid = {pid} AND query LIKE 'DISCARD%'");
            let begun = Instant::now();
            while client.value(&still_there).unwrap() != "1" && begun.elapsed() < Duration::from_secs(10) {}
            let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
            if kill_process(pid, Signal::STOP).is_ok() {
                waited += 1;
                client.rows(statement).unwrap();
                expect_service(&gateway, "again", pid, way);
            }
        }
        assert!(waited >= 5, "{way}: backends wait for the next client, {waited} of 10");
    }
}

/// A terminated backend that waits in a database without a lease must not serve a client.
#[test]
fn terminated_backends_of_ready_databases_are_unused() {
    let gateway = after_clients("CREATE TABLE t (id int)", &[]);
    let ready =
        "FROM pg_stat_activity WHERE datname LIKE 'pgfresh\\_ready\\_%' AND application_name <> 'pgfresh'";
    let mut client = gateway.connect("ends", "").unwrap();
    for round in 0..5 {
        let mut stopped = None;
        wait_until("a backend that waits in a ready database", || {
            let pid = client.value(&format!("SELECT max(pid) {ready}")).unwrap();
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            stopped = pid.filter(|pid| kill_process(*pid, Signal::STOP).is_ok());
            if stopped.is_none() {
                // The next copies have a waiting backend.
                gateway.connect("more", "-c pgfresh.linger=0").unwrap().close();
                gateway.connect(&format!("more_{round}"), "").unwrap().close();
            }
            stopped.is_some()
        });
        let stopped = stopped.unwrap();
        client.value(&format!("SELECT count(pg_terminate_backend(pid)) {ready}")).unwrap();
        expect_service(&gateway, &format!("next_{round}"), stopped, &format!("round {round}"));
    }
}

/// Without special handling, a waiting backend's idle time would count against its next client.
#[test]
fn idle_timeouts_prevent_waiting_backends() {
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
