//! Tests session pools. After a few leases, pgfresh knows how many sessions a lease opens, so each session finds a
//! waiting backend. No session shows traces of an earlier lease.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::connection::Connection;
use crate::common::depth::rounds;
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{on_every_major, wait_until};

/// Number of sessions in a large pool.
const POOL: usize = 10;
/// Options for a lease that ends with its last session, and for a lease that outlives the test.
const BRIEF: &str = "-c pgfresh.linger=0";
const LASTING: &str = "-c pgfresh.linger=1h";
const TEMPLATE: &str = "CREATE TABLE t (id int); CREATE ROLE guest; CREATE SCHEMA away";
/// Number of leases that use up all databases that were ready before the first lease.
const LEASES_TO_LEARN: u32 = 12;
/// Time within which pgfresh usually starts the backends for a pool.
const TIME_TO_START: Duration = Duration::from_secs(10);

on_every_major! {
    later_sessions_of_a_pool_find_waiting_backends
    sessions_of_a_pool_show_no_earlier_lease
    pools_leave_room_in_a_small_server
    definitions_spare_backends_that_no_client_used
}

impl Gateway {
    /// Opens the sessions of a pool, either concurrently or consecutively.
    fn pool(&self, name: &str, options: &str, size: usize, at_once: bool) -> Vec<Connection> {
        let open = || self.connect(name, options).unwrap();
        if !at_once {
            return (0..size).map(|_| open()).collect();
        }
        thread::scope(|scope| {
            let opening: Vec<_> = (0..size).map(|_| scope.spawn(open)).collect();
            opening.into_iter().map(|session| session.join().unwrap()).collect()
        })
    }

    /// Runs enough leases for pgfresh to learn the size of their pools.
    fn teach(&self, options: &str, size: usize) {
        (0..LEASES_TO_LEARN).for_each(|_| self.lease_pool("taught", options, size));
    }

    /// Opens the sessions of a pool concurrently in a new lease, and closes them.
    fn lease_pool(&self, name: &str, options: &str, size: usize) {
        static LEASES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{name}_{}", LEASES.fetch_add(1, Ordering::Relaxed));
        self.pool(&name, options, size, true).into_iter().for_each(Connection::close);
    }

    /// Waits until each ready database with waiting backends has `size` of them, and at least one database
    /// has. A copy that pgfresh made while a client waited has no backends, and pgfresh selects that copy only
    /// if there isn't another.
    ///
    /// Starting backends ahead of clients must not slow down a busy server. So if a backend takes more than a second
    /// to start, pgfresh forgets its startup parameters until the next client. For that case, this function opens
    /// another lease from time to time.
    fn wait_for_backends(&self, options: &str, size: usize) {
        let sql = "SELECT min(waiting), count(*) FROM (SELECT count(pid) AS waiting FROM pg_database \
            JOIN pg_stat_activity USING (datname) WHERE datname LIKE 'pgfresh\\_ready\\_%' GROUP BY datname) AS ready";
        let number = |value: &Option<String>| value.as_deref().map_or(0, |text| text.parse().unwrap());
        let mut last_lease = Instant::now();
        wait_until("backends in each ready database", || {
            let rows = self.direct("postgres", sql).unwrap();
            let (waiting, ready): (usize, usize) = (number(&rows[0][0]), number(&rows[0][1]));
            let are_there = ready > 0 && waiting >= size;
            // The lease would use up one of the databases that are there.
            if !are_there && last_lease.elapsed() > TIME_TO_START {
                self.lease_pool("reminded", options, size);
                last_lease = Instant::now();
            }
            are_there
        });
    }

    fn now(&self) -> String {
        self.direct("postgres", "SELECT clock_timestamp()").unwrap()[0][0].clone().unwrap()
    }
}

/// Counts the sessions whose backends started before `moment`.
fn older(pool: &mut [Connection], moment: &str) -> usize {
    let sql = format!("SELECT backend_start < '{moment}' FROM pg_stat_activity WHERE pid = pg_backend_pid()");
    pool.iter_mut().filter_map(|session| session.value(&sql).ok()).filter(|older| older == "t").count()
}

fn later_sessions_of_a_pool_find_waiting_backends(major: u32) {
    for (options, size) in [(BRIEF, POOL), (LASTING, POOL), (LASTING, 3)] {
        // With a note, the server would start with more copies than these leases use up.
        let gateway = Gateway::start_without_notes(major, TEMPLATE, &[]);
        gateway.teach(options, size);
        for (lease, at_once) in [false, true, false].into_iter().enumerate() {
            gateway.wait_for_backends(options, size);
            let moment = gateway.now();
            let mut pool = gateway.pool(&format!("measured_{lease}"), options, size, at_once);
            assert_eq!(older(&mut pool, &moment), size, "{options}, lease {lease}");
            pool.into_iter().for_each(Connection::close);
        }
    }
}

/// Actions of sessions, and queries whose results are the same in each new session.
const TRACES: [(&str, &str); 10] = [
    ("SET work_mem = '77kB'", "SHOW work_mem"),
    ("SET app.x = 'left'", "SELECT current_setting('app.x', true) IS NULL"),
    ("CREATE TEMP TABLE mine (id int)", "SELECT pg_my_temp_schema()"),
    ("PREPARE left_over AS SELECT 1", "SELECT count(*) FROM pg_prepared_statements"),
    (
        "SELECT pg_advisory_lock(7)",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    ("LISTEN news", "SELECT count(*) FROM pg_listening_channels()"),
    ("SELECT setseed(0.42)", "SELECT random() IN (0.5699319181861568, 0.742944875302392)"),
    ("SET search_path = away", "SHOW search_path"),
    ("SET ROLE guest", "SELECT current_user"),
    ("LOAD 'auto_explain'", "SELECT count(*) FROM pg_settings WHERE name LIKE 'auto_explain.%'"),
];

fn probe(session: &mut Connection) -> Vec<String> {
    TRACES.iter().map(|(_, probe)| session.value(probe).unwrap()).collect()
}

fn sessions_of_a_pool_show_no_earlier_lease(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &[]);
    let random = &mut Random::new();
    let mut first = gateway.connect("first", BRIEF).unwrap();
    let clean = probe(&mut first);
    first.close();
    for round in 0..rounds(6) {
        let mut pool = gateway.pool(&format!("lease_{round}"), BRIEF, POOL, round % 2 == 0);
        let mut done = Vec::new();
        for (number, session) in pool.iter_mut().enumerate() {
            assert_eq!(probe(session), clean, "round {round}, session {number}");
        }
        for session in &mut pool {
            for _ in 0..random.below(4) {
                let (action, _) = *random.choose(&TRACES);
                // Only one session can hold the lock.
                if action.contains("lock") && done.contains(&action) {
                    continue;
                }
                // An action fails if an earlier action prevents it. Then it doesn't leave a trace.
                if session.rows(action).is_ok() {
                    done.push(action);
                }
            }
        }
        for (number, session) in pool.into_iter().enumerate() {
            // Some clients disconnect without a Terminate message.
            if number % 3 > 0 {
                session.close();
            }
        }
    }
}

fn pools_leave_room_in_a_small_server(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &["--set", "max_connections=40"]);
    gateway.teach(LASTING, POOL);
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'pgfresh\\_ready\\_%'";
    let waiting: usize = gateway.direct("postgres", sql).unwrap()[0][0].as_deref().unwrap().parse().unwrap();
    assert!(waiting <= 20, "{waiting} of 40 sessions wait");
    // pgfresh uses the other six sessions.
    let pool = gateway.pool("large", LASTING, 34, false);
    assert_eq!(pool.len(), 34);
}

/// A backend that a client has used might have called functions that another client has defined.
fn definitions_spare_backends_that_no_client_used(major: u32) {
    let gateway = Gateway::start_without_notes(major, TEMPLATE, &[]);
    gateway.teach(LASTING, 3);
    gateway.wait_for_backends(LASTING, 3);
    let moment = gateway.now();
    let mut pool = gateway.pool("defined", LASTING, 1, false);
    let pid = pool[0].value("SELECT pg_backend_pid()").unwrap();
    pool[0].rows("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'").unwrap();
    let used = gateway.connect("defined", LASTING).unwrap();
    used.close();
    let mut later = gateway.pool("defined", LASTING, 2, false);
    assert_eq!(older(&mut later, &moment), 1, "one was never used, and the used one is closed");
    assert!(later.iter_mut().all(|session| session.value("SELECT pg_backend_pid()").unwrap() != pid));
}
