//! What all databases of a server share: faults 10 and 13.

use super::{BRIEF, Findings, LASTING};
use crate::common::gateway::Gateway;
use crate::common::{Scene, User, ground, on_every_major, postgres, wait_until};

on_every_major! {
    a_subscription_goes_with_its_lease
    a_logical_slot_goes_with_its_lease
    a_role_made_in_a_runs_last_moment_is_reported
}

/// How many subscriptions and slots a database has.
const OWN: &str = "SELECT (SELECT count(*) FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid \
    WHERE datname = current_database()) + (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())";

/// Fault 10.
fn a_subscription_goes_with_its_lease(major: u32) {
    let create = "CREATE SUBSCRIPTION s CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false)";
    goes_with_its_lease(&Gateway::clean(major, &[]), create);
}

/// Fault 10.
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

/// The name of a slot is that of the whole server: it must be free again. A dropped database may take a moment.
fn wait_until_gone(gateway: &Gateway) {
    let left = "SELECT (SELECT count(*) FROM pg_subscription) + (SELECT count(*) FROM pg_replication_slots)";
    wait_until("subscriptions and slots to be gone", || {
        gateway.direct("postgres", left).is_ok_and(|rows| rows[0][0].as_deref() == Some("0"))
    });
}

/// Fault 13, in the first moment of a lease, with one that lingers, and with one that has ended.
fn a_role_made_in_a_runs_last_moment_is_reported(major: u32) {
    let scene = Scene::new(User::Ourselves);
    let create = "CREATE ROLE left_behind";
    for linger in ["0", "5s", "60s"] {
        let psql = [ground::psql(), "-XAtqc", create];
        let postgres = postgres(major);
        let words = ["run", "--postgres", &postgres, "--linger", linger, "--"];
        let outcome = scene.run([&words[..], &psql[..]].concat());
        assert_eq!(outcome.code, Some(0), "{outcome}");
        assert!(
            outcome.stderr.contains("roles were changed"),
            "PostgreSQL {major}, linger {linger}: the role is not reported: {outcome}"
        );
    }
    let psql = [ground::psql(), "-XAtqc", "SELECT 1"];
    let outcome = scene.run([&["run", "--postgres", &postgres(major), "--"], &psql[..]].concat());
    assert_eq!(outcome.stderr, "", "nothing was changed: nothing is reported");
}
