//! Tests that a session's startup response is about the client's own database.

use std::time::Duration;

use lease::{Backend, ConnectRequest, Entered, Isolation, Seat};
use server::{AdminConnection, VersionRequest};
use template::ServerOptions;

use crate::common::leases::{LeaseFixture, params};
use crate::common::{WAIT_TIMEOUT, postgres, wait_until};

/// Template that makes the server warn at the start of each session, because the recorded collation version differs
/// from the actual version.
const SETUP: &str = "CREATE TABLE t (id int); \
    UPDATE pg_database SET datcollversion = '9' WHERE datname = current_database()";

/// Number of leases for each isolation mode.
const LEASES: usize = 6;

/// Asserts that the server has warned about the database `name` only.
fn assert_is_about(name: &str, startup_response: &[u8], what: &str) {
    let startup_response = String::from_utf8_lossy(startup_response);
    let expected = format!("database \"{name}\" has ");
    assert!(
        startup_response.contains(&expected),
        "{what}: {name} gets no warning about itself: {startup_response:?}"
    );
    assert_eq!(
        startup_response.matches("database \"").count(),
        1,
        "{what}: {name} hears of others: {startup_response:?}"
    );
}

fn open(major: u32) -> LeaseFixture {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    let options = ServerOptions { installation, ..ServerOptions::default() };
    let setup = |earlier: &LeaseFixture| earlier.note(&params("postgres"));
    LeaseFixture::noted(options, SETUP, None, Duration::ZERO, setup)
}

/// PostgreSQL versions before 15 don't store the collation version of a database.
#[test]
fn warnings_concern_the_clients_own_database() {
    for major in [15, 18] {
        let server = open(major);
        wait_until("a ready database", || server.leases.status().ready[0].1 > 0);
        for number in 0..LEASES {
            let name = format!("clone_{number}");
            let connected = server.connect_with(&name, None, &params("postgres")).unwrap();
            let Backend { stream, startup_response, .. } = connected.backend;
            assert_is_about(&name, &startup_response, "clone");
            let mut session = AdminConnection::adopt(stream, WAIT_TIMEOUT).unwrap();
            session.query("INSERT INTO t VALUES (1); DISCARD TEMP").unwrap();
            session.query("DISCARD ALL").unwrap();
            let stream = session.release().unwrap();
            connected.guard.give_back(Backend { stream, startup_response, seat: Seat::default() });
            wait_until("a ready database", || server.leases.status().ready[0].1 > 0);
        }
        assert_eq!(server.leases.status().warm, 0, "a backend that has named its database is not used again");
        for number in 0..LEASES {
            let name = format!("rollback_{number}");
            let params = params("postgres");
            let isolation = Some(Isolation::Rollback);
            let request = ConnectRequest { isolation, ..ConnectRequest::new(&name, &params) };
            let Entered::Transaction(mut guard) = server.leases.connect(&request).unwrap() else {
                panic!("a transaction was asked for")
            };
            let (stream, startup_response, transaction) = guard.lend().unwrap();
            assert_is_about(&name, &startup_response, "rollback");
            guard.leave(stream, transaction);
        }
    }
}
