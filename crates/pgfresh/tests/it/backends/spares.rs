//! Tests spare backends, which wait in databases without a lease: clients find them, and no statement
//! fails because of them.

use crate::common::connection::{Connection, SqlError};
use crate::common::gateway::Gateway;
use crate::common::{on_every_major, wait_until};

on_every_major! {
    databases_without_lease_have_waiting_backends
    spares_fail_no_statement_about_databases
    spares_have_the_current_settings
    spares_respect_connection_limits
}

/// Returns whether the session's backend started before `moment`.
fn is_older(session: &mut Connection, moment: &str) -> bool {
    let sql = format!("SELECT backend_start < '{moment}' FROM pg_stat_activity WHERE pid = pg_backend_pid()");
    session.value(&sql).unwrap() == "t"
}

impl Gateway {
    /// Opens sessions until one of them finds a backend that was waiting.
    fn wait_for_spare(&self, database: &str) {
        wait_until("a waiting backend", || {
            let sql = "SELECT clock_timestamp()";
            let moment = self.direct("postgres", sql).unwrap()[0][0].clone().unwrap();
            let mut session = self.connect(database, "").unwrap();
            let older = is_older(&mut session, &moment);
            session.close();
            older
        });
        // The next backend might still be starting.
        self.spares(database, |count| count > 0);
    }

    /// Waits until the number of sessions in the database `database` satisfies `condition`.
    fn spares(&self, database: &str, condition: impl Fn(usize) -> bool) {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND application_name = '' \
             AND pid <> pg_backend_pid()"
        );
        wait_until("waiting backends", || {
            let rows = self.direct("postgres", &sql).unwrap();
            condition(rows[0][0].as_deref().unwrap().parse().unwrap())
        });
    }
}

fn start(major: u32) -> Gateway {
    Gateway::start(major, "CREATE TABLE t (id int)", &[])
}

fn databases_without_lease_have_waiting_backends(major: u32) {
    let gateway = start(major);
    gateway.connect("postgres", "").unwrap().rows("CREATE DATABASE other").unwrap();
    for database in ["postgres", "other"] {
        gateway.wait_for_spare(database);
    }
}

/// Runs `sql` in a new session, as a simple query.
fn simple(gateway: &Gateway, database: &str, sql: &str) -> Result<(), SqlError> {
    let mut session = gateway.connect(database, "").unwrap();
    let result = session.rows(sql).map(drop);
    session.close();
    result
}

/// Prepares `sql` in a new session, but runs it only after pgfresh has had time to start a backend.
fn prepared(gateway: &Gateway, database: &str, sql: &str) -> Result<(), SqlError> {
    let mut session = gateway.connect(database, "").unwrap();
    session.send(b'P', format!("later\0{sql}\0\0\0").as_bytes()).unwrap();
    session.send(b'H', b"").unwrap();
    assert_eq!(session.read().unwrap().0, b'1');
    for _ in 0..3 {
        gateway.connect("other", "").unwrap().close();
    }
    session.send(b'B', b"\0later\0\0\0\0\0\0\0").unwrap();
    session.send(b'E', b"\0\0\0\0\0").unwrap();
    session.send(b'S', b"").unwrap();
    // The result of another query shows whether the first query has failed.
    let result = session.rows("SELECT 1").and_then(|_| session.rows("SELECT 1")).map(drop);
    session.close();
    result
}

fn spares_fail_no_statement_about_databases(major: u32) {
    let gateway = start(major);
    let mut admin = gateway.connect("postgres", "").unwrap();
    let ways = [simple as fn(&Gateway, &str, &str) -> Result<(), SqlError>, prepared];
    for (number, way) in ways.into_iter().enumerate() {
        for from in ["postgres", "template1", "leased"] {
            for statement in [
                format!("CREATE DATABASE copy_{number}_{from} TEMPLATE other"),
                "ALTER DATABASE other RENAME TO another".to_owned(),
                "DROP DATABASE other".to_owned(),
            ] {
                admin.rows("DROP DATABASE IF EXISTS another").unwrap();
                if admin.rows("SELECT FROM pg_database WHERE datname = 'other'").unwrap().is_empty() {
                    admin.rows("CREATE DATABASE other").unwrap();
                }
                admin.close();
                gateway.wait_for_spare("other");
                way(&gateway, from, &statement)
                    .unwrap_or_else(|error| panic!("{from}: {statement}: {error}"));
                admin = gateway.connect("postgres", "").unwrap();
            }
        }
    }
}

fn spares_have_the_current_settings(major: u32) {
    let gateway = start(major);
    for (change, expected) in [
        ("ALTER DATABASE postgres SET work_mem = '77kB'", "77kB"),
        ("ALTER ROLE postgres SET work_mem = '78kB'", "78kB"),
        ("ALTER ROLE postgres IN DATABASE postgres SET work_mem = '79kB'", "79kB"),
    ] {
        gateway.wait_for_spare("postgres");
        gateway.direct("template1", change).unwrap();
        let mut session = gateway.connect("postgres", "").unwrap();
        assert_eq!(session.value("SHOW work_mem").unwrap(), expected);
        session.close();
    }
}

fn spares_respect_connection_limits(major: u32) {
    let gateway = start(major);
    gateway.direct("postgres", "CREATE ROLE few LOGIN CONNECTION LIMIT 1").unwrap();
    for _ in 0..4 {
        let open = || Connection::open(&gateway.address(), "postgres", &[("user", "few")]);
        let mut opened = None;
        // The previous session's backend takes a moment to end.
        wait_until("a session within the limit", || {
            opened = open().ok();
            opened.is_some()
        });
        let session = opened.unwrap();
        assert_eq!(open().map(drop).unwrap_err().sqlstate, "53300", "on PostgreSQL {major}");
        session.close();
    }
}

/// A login trigger fires when the client connects, not before.
#[test]
fn login_triggers_keep_spares_away() {
    let gateway = start(18);
    gateway.wait_for_spare("postgres");
    let trigger = "CREATE TABLE logins (pid int); CREATE FUNCTION enter() RETURNS event_trigger LANGUAGE plpgsql AS \
        $$BEGIN INSERT INTO logins VALUES (pg_backend_pid()); END$$; \
        CREATE EVENT TRIGGER entering ON login EXECUTE FUNCTION enter()";
    gateway.direct("postgres", trigger).unwrap();
    let mut session = gateway.connect("postgres", "").unwrap();
    let fired = "SELECT count(*) FROM logins WHERE pid = pg_backend_pid()";
    assert_eq!(session.value(fired).unwrap(), "1");
}
