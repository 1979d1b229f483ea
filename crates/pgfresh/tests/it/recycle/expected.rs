//! The first clients of a server find backends that were started for them, if those of an earlier one came alike: nothing else is
//! different for them, and nothing that was noted is in anybody's way.

use std::process::Command;
use std::time::Duration;

use lease::{Connected, LeaseError};
use pgwire::StartupParams;
use server::{AdminConnection, VersionRequest};
use template::ServerOptions;

use super::params;
use crate::common::leases::LeaseFixture;
use crate::common::{WAIT_TIMEOUT, postgres, wait_until};

/// A server after one to which a client came with `params`, with its first databases ready.
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

/// One of these came as a role that a test had made, which the next server does not have.
#[test]
fn backends_wait_for_first_clients_that_come_as_those_of_an_earlier_server() {
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

/// A user who can write into the cache can cause nothing worse than a slow start.
#[test]
fn whatever_is_noted_of_clients_a_server_starts_and_its_first_client_is_served() {
    let no_user = "00030000 YXBwbGljYXRpb25fbmFtZQB4AA==\n";
    let (replication, future) =
        ("00030000 dXNlcgBwb3N0Z3JlcwByZXBsaWNhdGlvbgB0cnVlAA==\n", "00030063 dXNlcgBwb3N0Z3JlcwA=\n");
    // -c post_auth_delay=40
    let slow = "00030000 dXNlcgBwb3N0Z3JlcwBvcHRpb25zAC1jIHBvc3RfYXV0aF9kZWxheT00MAA=\n";
    for note in ["", "no note", "00030000 \n", "ffffffff AAAAAAAA\n", no_user, replication, future, slow] {
        let options = ServerOptions::default();
        let server = LeaseFixture::noted(options, "SELECT", None, Duration::from_mins(10), |earlier| {
            earlier.started.entry.as_ref().unwrap().remember("clients", note).unwrap();
        });
        let Connected { backend, .. } = server.connect_with("a", None, &params("postgres")).unwrap();
        let mut session = AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap();
        assert_eq!(session.query("SELECT 1").unwrap(), [[Some("1".to_owned())]], "{note}");
        // A backend that takes long to start keeps no database from being ready.
        wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    }
}

#[test]
fn a_pipe_in_the_place_of_a_note_holds_up_nobody() {
    let options = ServerOptions::default();
    let server = LeaseFixture::noted(options, "SELECT", None, Duration::from_mins(10), |earlier| {
        let data = earlier.started.entry.as_ref().unwrap().data();
        let made = Command::new("mkfifo").arg(data.with_file_name("clients")).status().unwrap();
        assert!(made.success());
    });
    server.connect_with("a", None, &params("postgres")).unwrap();
}

#[test]
fn a_client_that_the_server_refuses_is_not_expected_again() {
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
fn who_may_not_come_any_more_finds_no_backend() {
    let roles = "CREATE ROLE members; CREATE ROLE app LOGIN; GRANT members TO app";
    let params = StartupParams::new([("user", "app"), ("options", "-c role=members")]);
    let server = after_a_client(ServerOptions::default(), roles, &params);
    server.admin("REVOKE members FROM app");
    let error = server.connect_with("a", None, &params).unwrap_err();
    assert!(matches!(error, LeaseError::Refused(_)), "{error}");
}

#[test]
fn who_may_not_set_a_parameter_any_more_finds_no_backend() {
    let right = "CREATE ROLE app LOGIN; GRANT SET ON PARAMETER log_min_messages TO app";
    let params = StartupParams::new([("user", "app"), ("options", "-c log_min_messages=error")]);
    let installation: VersionRequest = postgres(18).parse().unwrap();
    let server = after_a_client(ServerOptions { installation, ..ServerOptions::default() }, right, &params);
    server.admin("REVOKE SET ON PARAMETER log_min_messages FROM app");
    let error = server.connect_with("a", None, &params).unwrap_err();
    assert!(matches!(error, LeaseError::Refused(_)), "{error}");
}

/// It can be set at the start of a session alone.
#[test]
fn what_was_configured_meanwhile_is_in_effect() {
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
fn a_trigger_at_the_login_fires_for_each_client() {
    let trigger = "CREATE TABLE logins (number int); \
        CREATE FUNCTION enter() RETURNS event_trigger LANGUAGE plpgsql AS \
            $$BEGIN INSERT INTO logins VALUES (1); PERFORM set_config('my.login', 'yes', false); END$$; \
        CREATE EVENT TRIGGER entering ON login EXECUTE FUNCTION enter()";
    let installation: VersionRequest = postgres(18).parse().unwrap();
    let server = after_a_client(
        ServerOptions { installation, ..ServerOptions::default() },
        trigger,
        &params("postgres"),
    );
    // It may have fired in the template, too, when that was made.
    let seen = "SELECT count(*), current_setting('my.login', true) FROM logins";
    let lease = || {
        let seen = query(server.connect_with("a", None, &params("postgres")).unwrap(), seen).concat();
        server.leases.release("a").unwrap();
        seen
    };
    let first = lease();
    assert_eq!(first[1].as_deref(), Some("yes"));
    for _ in 0..3 {
        assert_eq!(lease(), first);
    }
}
