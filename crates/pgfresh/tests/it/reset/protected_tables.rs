//! Tests tables whose rows the server doesn't let a reset write or delete in the usual way.

use server::VersionRequest;
use template::ServerOptions;

use crate::common::digests::DigestFixture;
use crate::common::{on_every_major, postgres, wait_until};

on_every_major! {
    a_published_table_without_a_key_is_reset
    resets_restore_rows_despite_constraints
}

impl DigestFixture {
    fn on(major: u32, setup: &str) -> Self {
        let installation: VersionRequest = postgres(major).parse().unwrap();
        Self::untouched(ServerOptions { installation, ..ServerOptions::default() }, setup)
    }

    /// Runs `change` in several leases, each followed by a reset, and checks that `rows` returns the template's rows.
    fn plays(&self, change: &str, rows: &str, expected: &str) {
        wait_until("two ready databases", || self.server.leases.status().ready[0].1 > 1);
        for round in 0..3 {
            let (mut session, _, guard) = self.connect("a", "postgres");
            let found = session.query(rows).unwrap().concat();
            assert_eq!(found, [Some(expected.to_owned())], "round {round}, before {change}");
            session.query(change).unwrap();
            drop((session, guard));
            self.server.leases.reset("a", false).unwrap();
        }
    }
}

/// The server refuses to delete rows from this table, because it couldn't identify them to subscribers.
fn a_published_table_without_a_key_is_reset(major: u32) {
    let fixture = DigestFixture::on(
        major,
        "CREATE TABLE empty (id int); CREATE TABLE seeded (id int); INSERT INTO seeded VALUES (1); \
         CREATE TABLE target (id int UNIQUE); CREATE TABLE refers (id int REFERENCES target (id)); \
         CREATE PUBLICATION everything FOR ALL TABLES",
    );
    let rows = "SELECT concat_ws(' ', (SELECT count(*) FROM empty), (SELECT count(*) FROM seeded), \
        (SELECT count(*) FROM target))";
    fixture.plays("INSERT INTO empty VALUES (1)", rows, "0 1 0");
    fixture.plays("INSERT INTO seeded VALUES (2)", rows, "0 1 0");
    let status = fixture.server.leases.status();
    assert_eq!((status.errors, status.dropped), (Vec::new(), Vec::new()), "PostgreSQL {major}");
    // The server can't truncate this table alone.
    fixture.plays("INSERT INTO target VALUES (1)", rows, "0 1 0");
    let status = fixture.server.leases.status();
    assert_eq!(status.errors, [], "PostgreSQL {major}");
    let why = "a published table was touched whose rows cannot be deleted and that other tables reference";
    assert_eq!(status.dropped, [(why, 3)], "PostgreSQL {major}");
}

fn resets_restore_rows_despite_constraints(major: u32) {
    let fixture = DigestFixture::on(
        major,
        "CREATE TABLE checked (id int); INSERT INTO checked VALUES (-1); \
         ALTER TABLE checked ADD CHECK (id > 0) NOT VALID; \
         CREATE DOMAIN positive AS int; CREATE TABLE of_domain (id positive); INSERT INTO of_domain VALUES (-1); \
         ALTER DOMAIN positive ADD CHECK (VALUE > 0) NOT VALID",
    );
    let rows = "SELECT concat_ws(' ', (SELECT min(id) FROM checked), (SELECT min(id) FROM of_domain))";
    fixture.plays("INSERT INTO checked VALUES (1)", rows, "-1 -1");
    fixture.plays("DELETE FROM of_domain", rows, "-1 -1");
    let status = fixture.server.leases.status();
    assert_eq!(status.errors, [], "PostgreSQL {major}");
    let why = "a table whose rows cannot be copied was touched";
    assert_eq!(status.dropped, [(why, 6)], "PostgreSQL {major}");
}
