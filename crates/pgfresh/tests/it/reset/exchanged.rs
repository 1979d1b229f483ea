//! Tests that a reset gives the lease another ready database, if there is one to spare, and resets the used
//! database in the background.

use std::time::Duration;

use server::VersionRequest;
use template::ServerOptions;

use crate::common::digests::{DigestFixture, in_place};
use crate::common::leases::LeaseFixture;
use crate::common::{on_every_major, postgres, wait_until};

on_every_major! {
    reset_gives_lease_another_fresh_database
}

const SETUP: &str = "CREATE TABLE e (v text, filler text); CREATE SEQUENCE number";

/// Query for the database, and everything that a lease in this test writes.
const SEEN: &str = "SELECT oid, (SELECT count(*) FROM e), (SELECT last_value || '/' || is_called FROM number) \
    FROM pg_database WHERE datname = current_database()";

fn fixture(options: ServerOptions) -> DigestFixture {
    let fixture = DigestFixture::of(LeaseFixture::new(options, SETUP, Duration::from_mins(10), false));
    wait_for_two(&fixture);
    fixture
}

fn wait_for_two(fixture: &DigestFixture) {
    wait_until("two ready databases", || fixture.server.leases.status().ready[0].1 > 1);
}

/// Uses the lease's database and resets it. Returns the OID that the database had.
fn use_and_reset(fixture: &DigestFixture) -> String {
    let (mut session, _, guard) = fixture.connect("used", "postgres");
    let seen = session.query(SEEN).unwrap().concat();
    assert_eq!(seen[1..], ["0", "1/false"].map(|value| Some(value.to_owned())));
    for statement in [
        "INSERT INTO e VALUES ('a', repeat('x', 300))",
        "UPDATE e SET v = 'a2'",
        "SELECT nextval('number')",
        "INSERT INTO e VALUES ('b', repeat('x', 300))",
    ] {
        session.query(statement).unwrap();
    }
    let rows = session.query("SELECT v FROM e").unwrap().concat();
    assert_eq!(rows, ["a2", "b"].map(|row| Some(row.to_owned())));
    drop((session, guard));
    fixture.server.leases.reset("used", true).unwrap();
    seen[0].clone().unwrap()
}

fn reset_gives_lease_another_fresh_database(major: u32) {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    let fixture = fixture(ServerOptions { installation, ..ServerOptions::default() });
    let mut oids = Vec::new();
    for round in 1..=20 {
        oids.push(use_and_reset(&fixture));
        wait_until("the reset of the used database", || fixture.recycled() == round);
        wait_for_two(&fixture);
    }
    assert!(oids.windows(2).all(|pair| pair[0] != pair[1]), "{oids:?}");
    // Later leases get the earlier databases again.
    oids.sort();
    oids.dedup();
    assert!(oids.len() < 10, "{oids:?}");
    assert_eq!(fixture.server.leases.status().dropped, []);
}

/// The resets follow each other so quickly that the ready databases are used up.
#[test]
fn resets_without_pause_give_fresh_databases() {
    let fixture = fixture(ServerOptions::default());
    for _ in 0..200 {
        use_and_reset(&fixture);
    }
    wait_until("the last reset", || fixture.recycled() == 200);
    assert_eq!(fixture.server.leases.status().dropped, []);
}

/// The next test might immediately use the name of the prepared transaction again.
#[test]
fn prepared_transactions_end_before_reset_is_answered() {
    let fixture = fixture(in_place(ServerOptions::default()));
    for _ in 0..5 {
        let (mut session, _, guard) = fixture.connect("used", "postgres");
        session.query("BEGIN").unwrap();
        session.query("INSERT INTO e VALUES ('a')").unwrap();
        session.query("PREPARE TRANSACTION 'tx'").unwrap();
        drop((session, guard));
        fixture.server.leases.reset("used", true).unwrap();
    }
}
