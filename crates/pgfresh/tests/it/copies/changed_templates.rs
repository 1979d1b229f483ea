//! Tests that copies don't contain a superuser's changes to a template on its server, although a superuser can
//! circumvent the template's protection.

use std::time::Duration;

use lease::{Connected, LeaseError};
use server::{AdminConnection, VersionRequest};
use template::ServerOptions;

use crate::common::digests::DigestFixture;
use crate::common::leases::{LeaseFixture, params};
use crate::common::{WAIT_TIMEOUT, on_every_major, postgres, wait_until};

on_every_major! {
    changed_templates_are_not_copied
    databases_with_a_templates_name_are_not_copied
    vacuum_leaves_a_template_what_it_is
}

/// Name of the template's database on pgfresh's servers.
const TEMPLATE: &str = "pgfresh_template_app";
/// Number of leases. It exceeds the number of databases that are ready and that pgfresh makes ahead.
const LEASES: usize = 6;

fn open(major: u32) -> DigestFixture {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    // Pages with changed hint bits are in the WAL, but don't count as changes.
    let settings = vec![("wal_log_hints".to_owned(), "on".to_owned())];
    let options = ServerOptions { installation, settings, ..ServerOptions::default() };
    let setup = "CREATE TABLE base (id int); CREATE SEQUENCE ticket; CREATE TABLE other (id int); \
        INSERT INTO other SELECT generate_series(1, 1000); DELETE FROM other WHERE id > 500";
    let server = LeaseFixture::new(options, setup, Duration::from_mins(10), false);
    wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    DigestFixture::of(server)
}

impl DigestFixture {
    /// Runs `sql` in the template itself.
    pub(super) fn in_template(&self, sql: &str) {
        let allow =
            |allowed| format!("UPDATE pg_database SET datallowconn = {allowed} WHERE datname = '{TEMPLATE}'");
        self.server.admin(&allow(true));
        self.server.started.server.session(TEMPLATE).unwrap().query(sql).unwrap();
        self.server.admin(&allow(false));
    }

    /// Gives the template database's name to another database.
    pub(super) fn give_template_name_to_another(&self) {
        self.server.admin("CREATE DATABASE impostor");
        self.server.admin(&format!(
            "UPDATE pg_database SET datname = 'hidden' WHERE datname = '{TEMPLATE}';
             UPDATE pg_database SET datname = '{TEMPLATE}' WHERE datname = 'impostor'"
        ));
    }

    /// Leases more databases than are ready. Returns how many of them equal the template, and the next lease's error.
    fn lease_all(&self) -> (usize, Option<LeaseError>) {
        for number in 0..LEASES {
            match self.server.connect_with(&format!("lease_{number}"), None, &params("postgres")) {
                Ok(Connected { backend, .. }) => {
                    let mut session = AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap();
                    let state = "SELECT (SELECT count(*) FROM base), (SELECT is_called FROM ticket), \
                        (SELECT count(*) FROM pg_proc WHERE proname = 'added')";
                    let fresh = ["0", "f", "0"].map(|value| Some(value.to_owned()));
                    assert_eq!(session.query(state).unwrap(), [fresh], "lease {number}");
                }
                Err(error) => return (number, Some(error)),
            }
        }
        (LEASES, None)
    }
}

fn changed_templates_are_not_copied(major: u32) {
    for change in [
        "INSERT INTO base VALUES (1)",
        "SELECT nextval('ticket')",
        "CREATE FUNCTION added() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "TRUNCATE other",
        "COMMENT ON TABLE base IS 'changed'",
        "UPDATE pg_class SET relname = 'renamed' WHERE relname = 'other'",
        "ANALYZE other",
    ] {
        let fixture = open(major);
        fixture.in_template(change);
        let (leased, error) = fixture.lease_all();
        let error = error.unwrap_or_else(|| panic!("{leased} copies after {change}"));
        assert!(matches!(error, LeaseError::Changed(_)), "{change}: {error}");
        // Leased databases stay usable. Until one of them is reset, a client might get the error.
        fixture.server.leases.release("lease_0").unwrap();
        let connect = || fixture.server.connect_with("another", None, &params("postgres"));
        wait_until("a database that was leased", || connect().is_ok());
    }
}

fn databases_with_a_templates_name_are_not_copied(major: u32) {
    let fixture = open(major);
    fixture.give_template_name_to_another();
    let (_, error) = fixture.lease_all();
    assert!(matches!(error, Some(LeaseError::Changed(_))), "{error:?}");
    fixture.server.admin(&format!(
        "UPDATE pg_database SET datname = 'impostor' WHERE datname = '{TEMPLATE}';
         UPDATE pg_database SET datname = '{TEMPLATE}' WHERE datname = 'hidden'"
    ));
    // A copy might have started meanwhile.
    wait_until("copies again", || fixture.lease_all().1.is_none());
}

/// Autovacuum vacuums any database with old rows.
fn vacuum_leaves_a_template_what_it_is(major: u32) {
    for upkeep in ["VACUUM", "VACUUM (FREEZE)"] {
        let fixture = open(major);
        fixture.in_template(upkeep);
        let (_, error) = fixture.lease_all();
        assert!(error.is_none(), "{upkeep}: {error:?}");
    }
}
