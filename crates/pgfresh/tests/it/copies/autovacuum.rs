//! Tests that frequent autovacuum works in leased databases, but not in templates.

use std::time::Duration;

use server::{AdminConnection, VersionRequest};
use template::ServerOptions;

use crate::common::leases::{LeaseFixture, params};
use crate::common::{WAIT_TIMEOUT, on_every_major, postgres, wait_until};

on_every_major! {
    autovacuum_leaves_a_new_template_alone
    autovacuum_leaves_a_cached_template_alone
}

/// The server copies this template itself, because it has an unlogged table. The other template could be
/// analyzed by autovacuum.
const SETUP: &str = "CREATE UNLOGGED TABLE u AS SELECT 1 AS a; \
    CREATE TABLE t AS SELECT i FROM generate_series(1, 1500) AS i";
/// More databases than pgfresh makes ahead of time.
const LEASES: usize = 6;
/// The rows that ANALYZE writes about a user's tables, and its row estimate.
const ANALYSED: &str = "SELECT (SELECT count(*) FROM pg_statistic WHERE starelid >= 16384), \
    (SELECT reltuples FROM pg_class WHERE relname = 't')";

fn options(major: u32) -> ServerOptions {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    let settings = [("autovacuum_naptime", "1"), ("jit", "on")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    ServerOptions { installation, settings, ..ServerOptions::default() }
}

fn autovacuum_leaves_a_new_template_alone(major: u32) {
    check(&LeaseFixture::new(options(major), SETUP, Duration::from_mins(10), false));
}

fn autovacuum_leaves_a_cached_template_alone(major: u32) {
    check(&LeaseFixture::noted(options(major), SETUP, None, Duration::from_mins(10), |_| ()));
}

fn session(server: &LeaseFixture, name: &str) -> AdminConnection {
    let connected = server.connect_with(name, None, &params("postgres")).unwrap();
    AdminConnection::adopt(connected.backend.stream, WAIT_TIMEOUT).unwrap()
}

/// Waits until autovacuum has visited a leased database twice, so that it has visited every database,
/// then compares new leases.
fn check(server: &LeaseFixture) {
    let mut busy = session(server, "busy");
    let fresh = busy.query(ANALYSED).unwrap();
    assert_eq!(fresh[0][0].as_deref(), Some("0"));
    for visit in 1..=2 {
        busy.query("UPDATE t SET i = i + 1").unwrap();
        let count = "SELECT pg_stat_get_autoanalyze_count('t'::regclass)";
        let visited = |rows: Vec<Vec<Option<String>>>| rows[0][0].as_ref().unwrap().parse::<u32>().unwrap();
        wait_until("autovacuum in a leased database", || visited(busy.query(count).unwrap()) >= visit);
    }
    for number in 0..LEASES {
        let mut later = session(server, &format!("later_{number}"));
        assert_eq!(later.query(ANALYSED).unwrap(), fresh, "lease {number}");
    }
}
