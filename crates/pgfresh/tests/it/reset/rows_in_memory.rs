//! Tests that the template's rows take few bytes in pgfresh's memory, however the server stores them.

use std::fs;

use template::ServerOptions;

use crate::common::digests::DigestFixture;
use crate::common::gateway::Gateway;
use crate::common::wait_until;

/// Returns why a database was dropped after a lease with `statement` in a template made by `setup`, or
/// `None` if it was recycled.
fn why_dropped(setup: &str, statement: &str) -> Option<&'static str> {
    let fixture = DigestFixture::untouched(ServerOptions::default(), setup);
    wait_until("two ready databases", || fixture.server.leases.status().ready[0].1 > 1);
    let (mut session, _, guard) = fixture.connect("used", "postgres");
    session.query(statement).unwrap();
    drop((session, guard));
    fixture.server.leases.reset("used", true).unwrap();
    fixture.server.leases.status().dropped.first().map(|(reason, _)| *reason)
}

#[test]
fn rows_with_large_values_are_not_kept() {
    const LARGE: Option<&str> = Some("a large table with rows in the template was touched");
    let table = "CREATE TABLE seed (id int, value text)";
    let touch = "INSERT INTO seed VALUES (0)";
    let few = format!("{table}; INSERT INTO seed SELECT i, repeat('x', 20000) FROM generate_series(1, 5) i");
    assert_eq!(why_dropped(&few, touch), None);
    let stored_apart = format!(
        "{table}; ALTER TABLE seed ALTER value SET STORAGE EXTERNAL; \
         INSERT INTO seed SELECT i, repeat('x', 100000) FROM generate_series(1, 5) i"
    );
    assert_eq!(why_dropped(&stored_apart, touch), LARGE);
    // These rows take about 120 kB on disk.
    let compressed =
        format!("{table}; INSERT INTO seed SELECT i, repeat('x', 2000000) FROM generate_series(1, 5) i");
    assert_eq!(why_dropped(&compressed, touch), LARGE);
}

#[test]
fn rows_of_all_tables_together_are_bounded() {
    let setup = "DO $$BEGIN FOR t IN 1..40 LOOP \
        EXECUTE format('CREATE TABLE t%s AS SELECT repeat(''x'', 900000) AS value', t); END LOOP; END$$; \
        CREATE TABLE small AS SELECT 1 AS id";
    assert_eq!(why_dropped(setup, "INSERT INTO t1 VALUES ('')"), None);
    assert_eq!(why_dropped(setup, "INSERT INTO small VALUES (2)"), None);
    assert!(why_dropped(setup, "INSERT INTO t40 VALUES ('')").is_some());
}

/// pgfresh once kept all 100 MB of values in memory, and some of the values three times.
#[test]
fn large_rows_of_a_template_take_no_memory() {
    let setup = "CREATE TABLE large (id int, value text); CREATE TABLE small (id int); \
        INSERT INTO large SELECT i, repeat('x', 2000000) FROM generate_series(1, 50) i";
    let gateway = Gateway::start(15, setup, &[]);
    wait_until("a reset of a database", || {
        for statement in ["INSERT INTO small VALUES (1)", "INSERT INTO large VALUES (0)"] {
            let mut session = gateway.connect_in_time("used", "-c pgfresh.linger=0");
            session.rows(statement).unwrap();
            session.close();
        }
        gateway.http("GET", "/v1/status", "").1["recycled"]["count"].as_u64().unwrap() > 0
    });
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.serve.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 80 << 10, "{peak} kB");
}
