//! Tests the data in a clean database: its rows, how they are stored, and the planner's statistics.

use super::{BRIEF, CHANGES, Findings, LASTING, STATE};
use crate::common::gateway::Gateway;
use crate::common::{majors, on_every_major};

on_every_major! {
    rows_are_restored_whatever_the_client_has_set
    counting_that_is_switched_off_hides_no_change
    planner_statistics_are_those_of_the_template
    rows_come_back_as_they_were_stored
}

/// Startup options that change how the server reads or writes values.
const OPTIONS: [&str; 10] = [
    "client_encoding=LATIN1",
    "client_encoding=SQL_ASCII",
    "TimeZone=Asia/Tokyo",
    "DateStyle=SQL,DMY",
    "IntervalStyle=sql_standard",
    "bytea_output=escape",
    "extra_float_digits=-15",
    "xmloption=document",
    "search_path=information_schema",
    "session_replication_role=replica",
];

/// Includes sessions whose settings change how values are written.
fn rows_are_restored_whatever_the_client_has_set(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut findings = Findings::new(gateway.clean_state());
    for option in OPTIONS {
        // These are resets in the middle of a lease.
        let mut session = gateway.connect("lasting", &format!("{LASTING} -c {option}")).unwrap();
        session.rows("SET search_path = public").and_then(|_| session.rows(CHANGES)).unwrap();
        session.close();
        let (status, answer) = gateway.reset("lasting");
        assert_eq!(status, 204, "{answer}");
        findings.note(format!("reset after {option}"), gateway.connect("lasting", LASTING), STATE);
        // This ends the lease. Afterwards, one of the later names gets its database.
        for round in 0..6 {
            let context = format!("name {round} after {option}");
            findings.note(context, gateway.connect(&format!("{option}_{round}"), BRIEF), STATE);
            let options = format!("{BRIEF} -c {option}");
            let mut session = gateway.connect(&format!("{option}_{round}"), &options).unwrap();
            session.rows("SET search_path = public").and_then(|_| session.rows(CHANGES)).unwrap();
            session.close();
        }
    }
    findings.assert_none();
}

/// From version 14 on, the compression method is a property of the stored value. Debian's PostgreSQL 15
/// has a second method, lz4.
#[test]
fn toast_compression_is_kept() {
    const METHOD: &str = "SELECT pg_column_compression(body) FROM packed";
    let gateway = Gateway::clean(15, &[]);
    gateway.direct("postgres", "SET default_toast_compression = lz4").expect("PostgreSQL 15 with lz4");
    let mut findings = Findings::new(gateway.connect("method", BRIEF).unwrap().value(METHOD).unwrap());
    let options = format!("{LASTING} -c default_toast_compression=lz4");
    let mut session = gateway.connect("compressed", &options).unwrap();
    session.rows(CHANGES).unwrap();
    session.close();
    assert_eq!(gateway.reset("compressed").0, 204);
    findings.note("reset", gateway.connect("compressed", LASTING), METHOD);
    findings.assert_none();
}

/// A client can turn off the statistics that pgfresh might use to find changes.
fn counting_that_is_switched_off_hides_no_change(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut findings = Findings::new(gateway.clean_state());
    let mut check = |gateway: &Gateway, how: &str, options: &str, first: &str| {
        let mut session = gateway.connect("counted", &format!("{LASTING}{options}")).unwrap();
        session.rows(first).and_then(|_| session.rows(CHANGES)).unwrap();
        session.close();
        assert_eq!(gateway.reset("counted").0, 204);
        findings.note(how, gateway.connect("counted", LASTING), STATE);
        let mut session = gateway.connect("other", &format!("{BRIEF}{options}")).unwrap();
        session.rows(first).and_then(|_| session.rows(CHANGES)).unwrap();
        session.close();
        for round in 0..6 {
            let name = format!("after_{round}");
            findings.note(format!("{how}, name {round}"), gateway.connect(&name, BRIEF), STATE);
        }
    };
    check(&gateway, "SET", "", "SET track_counts = off");
    check(
        &gateway,
        "SET LOCAL",
        "",
        "BEGIN; SET LOCAL track_counts = off; INSERT INTO t VALUES ('x'); COMMIT",
    );
    check(&gateway, "start-up option", " -c track_counts=off", "SELECT 1");
    let alter = |sql: &str| drop(gateway.direct("postgres", sql).unwrap());
    alter("ALTER ROLE postgres SET track_counts = off");
    check(&gateway, "ALTER ROLE", "", "SELECT 1");
    alter("ALTER ROLE postgres RESET track_counts");
    alter("ALTER SYSTEM SET track_counts = off");
    alter("SELECT pg_reload_conf()");
    check(&gateway, "ALTER SYSTEM", "", "SELECT 1");
    let uncounted = Gateway::clean(major, &["--set", "track_counts=off"]);
    check(&uncounted, "--set", "", "SELECT 1");
    findings.assert_none();
}

/// A reset restores the planner's statistics together with the rows.
fn planner_statistics_are_those_of_the_template(major: u32) {
    const STATISTICS: &str = "SELECT md5(string_agg(s, ' ' ORDER BY s)) FROM (SELECT concat_ws(',', relname, relpages, \
        reltuples, relallvisible) s FROM pg_class UNION ALL SELECT t::text FROM pg_statistic t) t";
    let gateway = Gateway::clean(major, &[]);
    let mut findings = Findings::new(gateway.connect("untouched", BRIEF).unwrap().value(STATISTICS).unwrap());
    for statement in ["VACUUM", "ANALYZE", "VACUUM ANALYZE seed", "ANALYZE packed", "VACUUM FULL seed"] {
        let mut session = gateway.connect("analysed", LASTING).unwrap();
        session.rows(statement).unwrap();
        session.close();
        assert_eq!(gateway.reset("analysed").0, 204);
        findings.note(format!("reset after {statement}"), gateway.connect("analysed", LASTING), STATISTICS);
        for round in 0..6 {
            let context = format!("name {round} after {statement}");
            let session = gateway.connect(&format!("analysed_{round}"), BRIEF);
            findings.note(context, session, STATISTICS).unwrap().rows(statement).unwrap();
        }
    }
    findings.assert_none();
}

/// Covers XML with a declaration, generated columns whose function has changed since, and a user's table
/// in `information_schema`.
fn rows_come_back_as_they_were_stored(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let mut findings = Findings::new(gateway.clean_state());
    for change in [
        "UPDATE document SET body = '<b/>'",
        "TRUNCATE document",
        "UPDATE priced SET amount = 1",
        "DELETE FROM priced",
        "INSERT INTO information_schema.extra VALUES (1)",
    ] {
        let mut session = gateway.connect("stored", LASTING).unwrap();
        session.rows(change).unwrap();
        session.close();
        assert_eq!(gateway.reset("stored").0, 204);
        findings.note(change, gateway.connect("stored", LASTING), STATE);
    }
    findings.assert_none();
}

/// Checks that the expected state of a clean database is what the template's SQL makes.
#[test]
fn the_state_that_is_compared_is_the_templates() {
    for major in majors() {
        let gateway = Gateway::clean(major, &[]);
        let state = gateway.clean_state();
        for part in [
            "1=café,2=naïve €,3=plain",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><a>é</a>",
            "100/10.0",
            "1/f",
        ] {
            assert!(state.contains(part), "PostgreSQL {major}: {part:?} is missing in {state}");
        }
        let mut session = gateway.connect("changed", BRIEF).unwrap();
        for change in CHANGES.split("; ") {
            session.rows("BEGIN").unwrap();
            session.rows(change).unwrap();
            let changed = session.value(STATE).unwrap();
            let seen = changed != state || change.contains(" SET id = 2");
            assert!(seen, "PostgreSQL {major}: not seen: {change}");
            session.rows("ROLLBACK").unwrap();
        }
    }
}
