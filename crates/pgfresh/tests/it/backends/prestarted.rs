//! Tests backends that start before a server's first clients, if clients of an earlier server had the same
//! parameters. Clients don't notice any other difference, and the stored parameters never disturb a client.

use std::process::Command;
use std::time::Duration;

use lease::{Connected, LeaseError};
use pgwire::StartupParams;
use server::{AdminConnection, VersionRequest};
use template::ServerOptions;

use crate::common::digests::in_place;
use crate::common::leases::{LeaseFixture, params};
use crate::common::{WAIT_TIMEOUT, postgres, wait_until};

/// Query that counts WAL sender sessions.
const SENDERS: &str = "SELECT count(*) FROM pg_stat_get_wal_senders()";

/// Starts a server after an earlier server has had a client with `params`, and waits for the first databases.
pub(super) fn after_a_client(options: ServerOptions, sql: &str, params: &StartupParams) -> LeaseFixture {
    let server =
        LeaseFixture::noted(options, sql, None, Duration::from_mins(10), |earlier| earlier.note(params));
    wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    server
}

fn query(connected: Connected, sql: &str) -> Vec<Vec<Option<String>>> {
    let mut session = AdminConnection::adopt(connected.backend.stream, WAIT_TIMEOUT).unwrap();
    session.query(sql).unwrap()
}

/// One of the clients had a role that a test had created, and that the next server doesn't have.
#[test]
fn noted_clients_find_waiting_backends() {
    let [usual, stranger] = [params("postgres"), params("stranger")];
    let options = ServerOptions::default();
    let server = LeaseFixture::noted(options, "SELECT", None, Duration::from_mins(10), |earlier| {
        earlier.note(&usual);
        earlier.admin("CREATE ROLE stranger LOGIN");
        earlier.note(&stranger);
    });
    wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    for name in ["one", "two"] {
        drop(server.connect_with(name, None, &usual).unwrap());
    }
    server.admin("CREATE ROLE stranger LOGIN");
    drop(server.connect_with("three", None, &stranger).unwrap());
    let status = server.leases.status();
    assert_eq!((status.warm, status.cold), (2, 1));
    let log = std::fs::read_to_string(server.started.server.run().log()).unwrap();
    assert!(!log.contains("FATAL"), "{log}");
}

/// A user who can write to the cache can't cause anything worse than a slow start.
#[test]
fn any_note_of_clients_is_harmless() {
    let no_user = "00030000 YXBwbGljYXRpb25fbmFtZQB4AA==\n";
    let (replication, future) =
        ("00030000 dXNlcgBwb3N0Z3JlcwByZXBsaWNhdGlvbgB0cnVlAA==\n", "00030063 dXNlcgBwb3N0Z3JlcwA=\n");
    // The encoded parameters contain -c post_auth_delay=40.
    let slow = "00030000 dXNlcgBwb3N0Z3JlcwBvcHRpb25zAC1jIHBvc3RfYXV0aF9kZWxheT00MAA=\n";
    for note in ["", "no note", "00030000 \n", "ffffffff AAAAAAAA\n", no_user, replication, future, slow] {
        let options = ServerOptions::default();
        let server = LeaseFixture::noted(options, "SELECT", None, Duration::from_mins(10), |earlier| {
            earlier.started.entry.as_ref().unwrap().remember("clients", note).unwrap();
        });
        let Connected { backend, .. } = server.connect_with("a", None, &params("postgres")).unwrap();
        let mut session = AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap();
        assert_eq!(session.query("SELECT 1").unwrap(), [[Some("1".to_owned())]], "{note}");
        // A backend that starts slowly doesn't delay the databases.
        wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
        assert_eq!(server.admin(SENDERS), [[Some("0".to_owned())]], "{note}");
    }
}

#[test]
fn a_pipe_as_note_delays_no_client() {
    let options = ServerOptions::default();
    let server = LeaseFixture::noted(options, "SELECT", None, Duration::from_mins(10), |earlier| {
        let data = earlier.started.entry.as_ref().unwrap().data();
        let made = Command::new("mkfifo").arg(data.with_file_name("clients")).status().unwrap();
        assert!(made.success());
    });
    server.connect_with("a", None, &params("postgres")).unwrap();
}

#[test]
fn refused_clients_are_not_noted() {
    let refused = StartupParams::new([("user", "postgres"), ("options", "-c no_such_parameter=1")]);
    let options = ServerOptions::default();
    let server = LeaseFixture::noted(options, "SELECT", None, Duration::from_mins(10), |earlier| {
        for _ in 0..3 {
            let error = earlier.connect_with("refused", None, &refused).unwrap_err();
            assert!(matches!(error, LeaseError::Refused(_)), "{error}");
        }
        earlier.note(&params("postgres"));
    });
    wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    server.connect_with("a", None, &params("postgres")).unwrap();
    let log = std::fs::read_to_string(server.started.server.run().log()).unwrap();
    assert!(server.leases.status().warm == 1 && !log.contains("FATAL"), "{log}");
}

#[test]
fn roles_without_login_find_no_backend() {
    let roles = "CREATE ROLE members; CREATE ROLE app LOGIN; GRANT members TO app";
    let params = StartupParams::new([("user", "app"), ("options", "-c role=members")]);
    let server = after_a_client(ServerOptions::default(), roles, &params);
    server.admin("REVOKE members FROM app");
    let error = server.connect_with("a", None, &params).unwrap_err();
    assert!(matches!(error, LeaseError::Refused(_)), "{error}");
}

#[test]
fn forbidden_parameters_find_no_backend() {
    let right = "CREATE ROLE app LOGIN; GRANT SET ON PARAMETER log_min_messages TO app";
    let params = StartupParams::new([("user", "app"), ("options", "-c log_min_messages=error")]);
    let installation: VersionRequest = postgres(18).parse().unwrap();
    let server = after_a_client(ServerOptions { installation, ..ServerOptions::default() }, right, &params);
    server.admin("REVOKE SET ON PARAMETER log_min_messages FROM app");
    let error = server.connect_with("a", None, &params).unwrap_err();
    assert!(matches!(error, LeaseError::Refused(_)), "{error}");
}

/// Only the start of a session can set this parameter.
#[test]
fn later_configuration_is_in_effect() {
    let server = after_a_client(ServerOptions::default(), "SELECT", &params("postgres"));
    server.admin("ALTER SYSTEM SET log_disconnections = on");
    server.admin("SELECT pg_reload_conf()");
    let show = "SHOW log_disconnections";
    let on = [[Some("on".to_owned())]];
    wait_until("the server has read it", || {
        server.started.server.session("postgres").unwrap().query(show).unwrap() == on
    });
    assert_eq!(query(server.connect_with("a", None, &params("postgres")).unwrap(), show), on);
}

#[test]
fn login_triggers_fire_for_each_client() {
    let trigger = "CREATE TABLE logins (number int); \
        CREATE FUNCTION enter() RETURNS event_trigger LANGUAGE plpgsql AS \
            $$BEGIN INSERT INTO logins VALUES (1); PERFORM set_config('my.login', 'yes', false); END$$; \
        CREATE EVENT TRIGGER entering ON login EXECUTE FUNCTION enter()";
    let installation: VersionRequest = postgres(18).parse().unwrap();
    let server = after_a_client(
        in_place(ServerOptions { installation, ..ServerOptions::default() }),
        trigger,
        &params("postgres"),
    );
    // The trigger hasn't fired in the template or for a session of pgfresh.
    let seen = "SELECT oid, (SELECT count(*) FROM logins), current_setting('my.login', true) \
        FROM pg_database WHERE datname = current_database()";
    let lease = || {
        let seen = query(server.connect_with("a", None, &params("postgres")).unwrap(), seen).concat();
        server.leases.reset("a", true).unwrap();
        seen
    };
    let first = lease();
    assert_eq!(first[1..], [Some("1".to_owned()), Some("yes".to_owned())]);
    for _ in 0..3 {
        assert_eq!(lease(), first);
    }
    let status = server.leases.status();
    assert!(status.recycled.0 >= 3 && status.dropped.is_empty(), "{:?}", status.dropped);
}

/// If a backend waited, the server would have to make all copies itself.
#[test]
fn no_backend_waits_for_replication_clients() {
    let replication = StartupParams::new([("user", "postgres"), ("replication", "database")]);
    let options = ServerOptions::default();
    let server = LeaseFixture::noted(options, "SELECT", None, Duration::from_mins(10), |earlier| {
        drop(earlier.connect_with("replicates", None, &replication).unwrap());
        earlier.note(&params("postgres"));
        let notes = earlier.started.entry.as_ref().unwrap().recall("clients").unwrap();
        assert_eq!(notes.lines().count(), 1, "{notes}");
    });
    wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    assert_eq!(server.admin(SENDERS), [[Some("0".to_owned())]]);
}
