//! Tests objects that all databases on a server share: they disappear with their lease, or pgfresh reports them.

use super::{BRIEF, Findings, LASTING};
use crate::common::gateway::Gateway;
use crate::common::{Scene, User, ground, on_every_major, postgres, wait_until};

on_every_major! {
    a_subscription_goes_with_its_lease
    a_logical_slot_goes_with_its_lease
    a_role_made_at_the_end_is_reported
    each_change_of_what_all_share_is_reported
}

/// Query for the number of a database's subscriptions and slots.
const OWN: &str = "SELECT (SELECT count(*) FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid \
    WHERE datname = current_database()) + (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())";

/// A lease can end although its database has a subscription.
fn a_subscription_goes_with_its_lease(major: u32) {
    let create = "CREATE SUBSCRIPTION s CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false)";
    goes_with_its_lease(&Gateway::clean(major, &[]), create);
}

/// A lease can end although its database has a logical slot.
fn a_logical_slot_goes_with_its_lease(major: u32) {
    let create = "SELECT pg_create_logical_replication_slot('slot', 'pgoutput')";
    goes_with_its_lease(&Gateway::clean(major, &["--set", "wal_level=logical"]), create);
}

fn goes_with_its_lease(gateway: &Gateway, create: &str) {
    let mut findings = Findings::new("0");
    for round in 0..3 {
        let mut session = gateway.connect_in_time("lasting", LASTING);
        session.rows(create).unwrap_or_else(|error| panic!("{create} in round {round}: {error}"));
        assert_eq!(session.value(OWN).unwrap(), "1");
        session.close();
        let (status, answer) = gateway.reset("lasting");
        assert_eq!(status, 204, "{answer}");
        findings.note(format!("reset {round}"), gateway.connect("lasting", LASTING), OWN);
        wait_until_gone(gateway);
        let mut session = gateway.connect_in_time(&format!("brief_{round}"), BRIEF);
        session.rows(create).unwrap_or_else(|error| panic!("{create} in round {round}: {error}"));
        session.close();
        for later in 0..6 {
            let name = format!("later_{round}_{later}");
            findings.note(&name, gateway.connect(&name, BRIEF), OWN);
        }
        wait_until_gone(gateway);
    }
    findings.assert_none();
}

/// Waits until the slot's name, which is unique on the server, is free again. Dropping the
/// database can take a moment.
fn wait_until_gone(gateway: &Gateway) {
    let left = "SELECT (SELECT count(*) FROM pg_subscription) + (SELECT count(*) FROM pg_replication_slots)";
    wait_until("subscriptions and slots to be gone", || {
        gateway.direct("postgres", left).is_ok_and(|rows| rows[0][0].as_deref() == Some("0"))
    });
}

/// Tests the first moment of a lease, a lingering lease, and an ended lease.
fn a_role_made_at_the_end_is_reported(major: u32) {
    let scene = Scene::new(User::Ourselves);
    let create = "CREATE ROLE left_behind";
    for linger in ["0", "5s", "60s"] {
        let psql = [ground::psql(), "-XAtqc", create];
        let postgres = postgres(major);
        let words = ["run", "--postgres", &postgres, "--linger", linger, "--"];
        let outcome = scene.run([&words[..], &psql[..]].concat());
        assert_eq!(outcome.code, Some(0), "{outcome}");
        assert!(
            outcome.stderr.contains("roles, which all databases of a server share, were changed"),
            "PostgreSQL {major}, linger {linger}: the role is not reported: {outcome}"
        );
    }
    let psql = [ground::psql(), "-XAtqc", "SELECT 1"];
    let outcome = scene.run([&["run", "--postgres", &postgres(major), "--"], &psql[..]].concat());
    assert_eq!(outcome.stderr, "", "nothing was changed: nothing is reported");
}

/// Changes to shared objects: the first major that supports the change, the kind of object, and the SQL. Some of them
/// change an earlier entry's objects.
const CHANGES: [(u32, &str, &str); 19] = [
    (13, "roles", "CREATE ROLE one; CREATE ROLE two; CREATE ROLE admin"),
    (13, "roles", "ALTER ROLE one VALID UNTIL '2030-01-01'"),
    (13, "roles", "COMMENT ON ROLE one IS 'changed'"),
    (13, "roles", "ALTER ROLE one SET work_mem = '5MB'"),
    (13, "roles", "ALTER ROLE one PASSWORD 'secret'"),
    (13, "memberships of roles", "GRANT one TO two"),
    (13, "memberships of roles", "GRANT one TO two WITH ADMIN OPTION"),
    (16, "memberships of roles", "GRANT one TO two WITH INHERIT FALSE"),
    (16, "memberships of roles", "GRANT one TO two WITH SET FALSE"),
    (13, "tablespaces", "SET allow_in_place_tablespaces = on; CREATE TABLESPACE space LOCATION ''"),
    (13, "tablespaces", "ALTER TABLESPACE pg_default SET (random_page_cost = 3)"),
    (13, "tablespaces", "ALTER TABLESPACE pg_default OWNER TO one"),
    (13, "tablespaces", "GRANT CREATE ON TABLESPACE pg_default TO two"),
    (13, "tablespaces", "COMMENT ON TABLESPACE pg_default IS 'changed'"),
    (15, "rights on parameters", "GRANT SET ON PARAMETER work_mem TO one"),
    (15, "rights on parameters", "GRANT ALTER SYSTEM ON PARAMETER work_mem TO one"),
    (13, "replication origins", "SELECT pg_replication_origin_create('origin')"),
    (13, "replication slots", "SELECT pg_create_physical_replication_slot('slot')"),
    (13, "server settings (ALTER SYSTEM)", "ALTER SYSTEM SET work_mem = '6MB'"),
];

fn each_change_of_what_all_share_is_reported(major: u32) {
    let gateway = Gateway::clean(major, &[]);
    let count = |what: &str| {
        let status = gateway.status();
        let all = status["leaks"].as_array().unwrap();
        all.iter().find(|change| change["what"] == what).map_or(0, |change| change["count"].as_u64().unwrap())
    };
    for (number, (since, what, change)) in CHANGES.iter().enumerate() {
        // From version 15 on, a tablespace can be within the data directory, so it doesn't need another directory.
        if major < *since || major < 15 && change.contains("allow_in_place_tablespaces") {
            continue;
        }
        let before = count(what);
        let mut session = gateway.connect_in_time(&format!("shared_{number}"), BRIEF);
        for statement in change.split("; ") {
            session
                .rows(statement)
                .unwrap_or_else(|error| panic!("{statement} on PostgreSQL {major}: {error}"));
        }
        session.close();
        wait_until(&format!("the report of {change} on PostgreSQL {major}"), || count(what) > before);
    }
}
