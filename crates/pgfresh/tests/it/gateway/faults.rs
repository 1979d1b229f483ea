//! Tests a lease's faults as its client sees them: errors, lost and silent connections, delays, refused
//! sessions, and a failover.

mod boundaries;
mod delays;
mod races;

use std::thread;
use std::time::{Duration, Instant};

use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::{on_every_major, wait_until};

const TEMPLATE: &str =
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int); INSERT INTO accounts VALUES (1, 100);";
const ISOLATIONS: [&str; 3] = ["clone", "rollback", "server"];

on_every_major! {
    errors_leave_the_transaction_as_the_server_does
    lost_connection_keeps_the_outcome_of_the_server
    silent_connection_ends_with_its_lease
    delayed_and_slow_messages_arrive_complete
    failover_ends_sessions_and_refuses_new_ones
    open_sessions_obey_at_once_in_any_state
    wrong_request_is_an_error_of_its_statement
    prepared_request_adds_a_fault_at_each_execute
    failing_query_of_gateway_leaves_transaction_open
    large_values_pass_through_sessions_with_faults
    leases_end_while_faults_begin
}

/// Runs a test in each isolation mode.
fn in_each_isolation(major: u32, test: fn(&Gateway, &str)) {
    for isolation in ISOLATIONS {
        let gateway = Gateway::start(major, TEMPLATE, &["--isolation", isolation, "--linger", "60s"]);
        test(&gateway, isolation);
    }
}

fn session(gateway: &Gateway) -> Connection {
    gateway.connect_in_time("orders", "")
}

/// Requests a fault with SQL.
fn fault(session: &mut Connection, json: &str) {
    session.rows(&format!("SET pgfresh.fault = '{json}'")).unwrap();
}

fn sqlstate<T>(result: Result<T, crate::common::connection::SqlError>) -> String {
    result.err().map_or_else(|| "no error".to_owned(), |error| error.sqlstate)
}

fn errors_leave_the_transaction_as_the_server_does(major: u32) {
    in_each_isolation(major, |gateway, isolation| {
        let mut one = session(gateway);
        if isolation == "clone" {
            one.rows("BEGIN").unwrap();
            fault(&mut one, r#"{"error": "40001", "statement": "NEVER"}"#);
            one.rows("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").unwrap();
            one.rows("COMMIT").unwrap();
        }
        fault(&mut one, r#"{"error": "40001", "at": "commit"}"#);
        one.rows("BEGIN; UPDATE accounts SET balance = 1").unwrap();
        assert_eq!((sqlstate(one.rows("COMMIT")), one.status), ("40001".to_owned(), 'I'));
        assert_eq!(one.value("SELECT balance FROM accounts").unwrap(), "100");
        fault(&mut one, r#"{"error": "40P01", "statement": "UPDATE accounts", "nth": 2}"#);
        one.rows("BEGIN; UPDATE accounts SET balance = 2; SAVEPOINT a").unwrap();
        assert_eq!(sqlstate(one.rows("UPDATE accounts SET balance = 3")), "40P01");
        assert_eq!((sqlstate(one.rows("SELECT 1")), one.status), ("25P02".to_owned(), 'E'));
        one.rows("ROLLBACK TO a; UPDATE accounts SET balance = balance + 1; COMMIT").unwrap();
        assert_eq!(one.value("SELECT balance FROM accounts").unwrap(), "3");
        fault(&mut one, r#"{"error": "57014", "at": "after statement", "statement": "update"}"#);
        assert_eq!(sqlstate(one.rows("UPDATE accounts SET balance = 9")), "57014");
        assert_eq!(one.value("SELECT balance FROM accounts").unwrap(), "3");
        one.close();
    });
}

fn lost_connection_keeps_the_outcome_of_the_server(major: u32) {
    in_each_isolation(major, |gateway, _| {
        for (at, balance) in [("before commit", "100"), ("after commit", "7"), ("before statement", "7")] {
            let mut one = session(gateway);
            fault(&mut one, &format!(r#"{{"connection": "reset", "at": "{at}", "nth": 1}}"#));
            let ended = one.rows("BEGIN").and_then(|_| one.rows("UPDATE accounts SET balance = 7"));
            let ended = ended.and_then(|_| one.rows("COMMIT"));
            assert_eq!(sqlstate(ended), "08006", "{at}");
            assert_eq!(session(gateway).value("SELECT balance FROM accounts").unwrap(), balance, "{at}");
        }
    });
}

fn silent_connection_ends_with_its_lease(major: u32) {
    in_each_isolation(major, |gateway, _| {
        let mut one = session(gateway);
        fault(&mut one, r#"{"connection": "silent", "at": "after statement", "statement": "INSERT"}"#);
        one.send(b'Q', b"INSERT INTO accounts VALUES (2, 5)\0").unwrap();
        // The statement has run, but its client hasn't received a response.
        let mut other = session(gateway);
        wait_until("the insert", || other.value("SELECT count(*) FROM accounts").unwrap() == "2");
        other.close();
        assert_eq!(gateway.http("DELETE", "/v1/databases/orders", "").0 / 100, 2);
        one.wait_for_end();
    });
}

fn delayed_and_slow_messages_arrive_complete(major: u32) {
    in_each_isolation(major, |gateway, _| {
        let mut one = session(gateway);
        fault(&mut one, r#"{"delay": "300ms", "statement": "SELECT … accounts"}"#);
        let begun = Instant::now();
        assert_eq!(one.value("SELECT balance FROM accounts").unwrap(), "100");
        assert!(begun.elapsed() >= Duration::from_millis(300));
        fault(&mut one, r#"{"bandwidth": "100kB", "statement": "SELECT repeat"}"#);
        let begun = Instant::now();
        assert_eq!(one.value("SELECT repeat('x', 50000)").unwrap().len(), 50_000);
        assert!(begun.elapsed() >= Duration::from_millis(400));
        one.close();
        // A lease can end while a message waits.
        let mut two = session(gateway);
        fault(&mut two, r#"{"delay": "1h"}"#);
        two.send(b'Q', b"SELECT 1\0").unwrap();
        thread::sleep(Duration::from_millis(50));
        assert_eq!(gateway.http("DELETE", "/v1/databases/orders", "").0 / 100, 2);
        two.wait_for_end();
    });
}

fn failover_ends_sessions_and_refuses_new_ones(major: u32) {
    in_each_isolation(major, |gateway, isolation| {
        let mut one = session(gateway);
        let read_only = if isolation == "rollback" {
            let wanted = r#"{"error": "failover", "read_only": "1h"}"#;
            let error = one.rows(&format!("SET pgfresh.fault = '{wanted}'")).unwrap_err();
            assert!(error.message.ends_with("it is leased in isolation \"rollback\""), "{error}");
            ""
        } else {
            r#", "read_only": "1h""#
        };
        one.rows("BEGIN; UPDATE accounts SET balance = 1").unwrap();
        let failover = format!(r#"{{"error": "failover", "duration": "1s"{read_only}}}"#);
        // The request itself ends the session that sends it.
        if one.rows(&format!("SET pgfresh.fault = '{failover}'")).is_ok() {
            assert_eq!(sqlstate(one.rows("SELECT 1")), "57P01");
        }
        assert_eq!(sqlstate(gateway.connect("orders", "")), "57P03");
        let mut two = session(gateway);
        assert_eq!(two.value("SELECT balance FROM accounts").unwrap(), "100");
        let expected = if isolation == "rollback" { "no error" } else { "25006" };
        assert_eq!(sqlstate(two.rows("UPDATE accounts SET balance = 2")), expected);
        fault(&mut two, r#"{"error": "53300", "at": "connect", "times": 2}"#);
        two.close();
        for expected in ["53300", "53300", "no error"] {
            assert_eq!(sqlstate(gateway.connect("orders", "")), expected);
        }
        // Only an open session is notified of a crash.
        fault(&mut session(gateway), r#"{"error": "57P02", "at": "connect"}"#);
        assert_eq!(sqlstate(gateway.connect("orders", "")), "57P03");
    });
}

/// Sends extended-protocol messages, and returns the first error up to ReadyForQuery.
fn extended(session: &mut Connection, messages: &[(u8, &[u8])]) -> String {
    for (tag, body) in messages {
        session.send(*tag, body).unwrap();
    }
    let mut state = "no error".to_owned();
    loop {
        let (tag, body) = session.read().unwrap();
        match tag {
            b'E' => state = pgwire::ErrorResponse::read(&body).sqlstate.into_owned(),
            b'Z' => return state,
            _ => {}
        }
    }
}

fn open_sessions_obey_at_once_in_any_state(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &[]);
    let prepare: &[(u8, &[u8])] =
        &[(b'P', b"pay\0UPDATE accounts SET balance = balance - 1\0\0\0"), (b'S', b"")];
    let pay: &[(u8, &[u8])] = &[(b'B', b"\0pay\0\0\0\0\0\0\0"), (b'E', b"\0\0\0\0\0"), (b'S', b"")];
    let mut admin = session(&gateway);
    let mut idle = session(&gateway);
    assert_eq!(extended(&mut idle, prepare), "no error");
    let mut working = session(&gateway);
    assert_eq!(extended(&mut working, prepare), "no error");
    working.rows("BEGIN; UPDATE accounts SET balance = 50").unwrap();
    let mut failed = session(&gateway);
    failed.rows("BEGIN; SELECT nonsense").unwrap_err();
    let mut copied = session(&gateway);
    // The Sync before the data doesn't get a response.
    let copy: &[(u8, &[u8])] = &[
        (b'P', b"\0COPY accounts FROM STDIN\0\0\0"),
        (b'B', b"\0\0\0\0\0\0\0\0"),
        (b'E', b"\0\0\0\0\0"),
        (b'S', b""),
        (b'd', b"5\t5\n"),
        (b'c', b""),
        (b'S', b""),
    ];
    assert_eq!(extended(&mut copied, copy), "no error");
    let begun = Instant::now();
    fault(
        &mut admin,
        r#"{"error": "55P03", "statement": "UPDATE accounts SET balance = balance - 1", "times": 9}"#,
    );
    fault(&mut admin, r#"{"error": "53100", "statement": "SELECT 7", "times": 9}"#);
    assert!(begun.elapsed() < Duration::from_secs(5), "a session did not obey");
    // The gateway doesn't run statements in the client's transaction, so it isn't aware of the
    // prepared statement yet.
    assert_eq!(extended(&mut working, pay), "no error");
    assert_eq!(working.value("ROLLBACK; SELECT balance FROM accounts WHERE id = 1").unwrap(), "100");
    assert_eq!(extended(&mut working, pay), "55P03");
    assert_eq!(extended(&mut idle, pay), "55P03");
    assert_eq!(sqlstate(failed.rows("SELECT 7")), "25P02");
    assert_eq!(sqlstate(failed.rows("ROLLBACK; SELECT 7")), "53100");
    assert_eq!(sqlstate(copied.rows("SELECT 7")), "53100");
}

fn wrong_request_is_an_error_of_its_statement(major: u32) {
    in_each_isolation(major, |gateway, _| {
        let mut one = session(gateway);
        one.rows("CREATE TABLE t ()").unwrap();
        for wrong in ["", "{}", r#"{"error": "1"}"#, r#"{"eror": "40001"}"#] {
            assert_eq!(sqlstate(one.rows(&format!("SET pgfresh.fault TO '{wrong}'"))), "22023", "{wrong}");
        }
        one.rows("BEGIN").unwrap();
        let error = one.rows("SET LOCAL pgfresh.fault = 'x'").unwrap_err();
        assert!(error.message.starts_with("pgfresh.fault is not a fault in JSON"), "{error}");
        assert_eq!(one.status, 'E');
        // A failed transaction rejects each statement.
        assert_eq!(sqlstate(one.rows("SET pgfresh.fault = 'x'")), "25P02");
        assert_eq!(sqlstate(one.rows(r#"SET pgfresh.fault = '{"error": "40001"}'"#)), "25P02");
        one.rows("ROLLBACK").unwrap();
        let request = r#"SET pgfresh.fault = '{"error": "40001", "statement": "SELECT 1"}'"#;
        assert_eq!(sqlstate(one.rows(&format!("BEGIN; {request}"))), "22023");
        let call = "SELECT set_config('pgfresh.fault', '{}', false)";
        assert_eq!(sqlstate(one.rows(call)), "22023");
        for name in [r#""pgfresh"."fault""#, r#"SESSION "pgfresh.fault""#] {
            one.rows(&request.replace("pgfresh.fault", name)).unwrap();
            assert_eq!(sqlstate(one.rows("SELECT 1")), "40001", "{name}");
        }
        assert_eq!(one.value("SELECT 1").unwrap(), "1");
        one.rows(&format!("{request}; {request}")).unwrap();
        assert_eq!([(); 3].map(|()| sqlstate(one.rows("SELECT 1"))), ["40001", "40001", "no error"]);
        one.close();
    });
}

fn prepared_request_adds_a_fault_at_each_execute(major: u32) {
    in_each_isolation(major, |gateway, _| {
        let mut one = session(gateway);
        let bind = b"\0request\0\0\0\0\0\0\0";
        let execute: &[(u8, &[u8])] = &[(b'B', bind), (b'E', b"\0\0\0\0\0"), (b'S', b"")];
        for (json, expected) in
            [(r#"{"error": "40001", "statement": "SELECT 1"}"#, "40001"), ("{}", "no error")]
        {
            let parse = format!("request\0SET pgfresh.fault = '{json}'\0\0\0");
            assert_eq!(extended(&mut one, &[(b'P', parse.as_bytes()), (b'S', b"")]), "no error");
            assert_eq!(one.value("SELECT 1").unwrap(), "1", "a prepared request is no request yet");
            for _ in 0..3 {
                let answer = if json == "{}" { "22023" } else { "no error" };
                assert_eq!(extended(&mut one, execute), answer);
                assert_eq!(sqlstate(one.rows("SELECT 1")), expected);
                assert_eq!(one.value("SELECT 1").unwrap(), "1");
            }
            one.rows("DEALLOCATE request").unwrap();
        }
        one.close();
    });
}

fn failing_query_of_gateway_leaves_transaction_open(major: u32) {
    in_each_isolation(major, |gateway, isolation| {
        // In rollback isolation, the settings below would prevent queries that pgfresh itself needs.
        if isolation == "rollback" {
            return;
        }
        let mut working = session(gateway);
        for number in 0..10_000 {
            let parse = format!("s{number}\0SELECT {number}\0\0\0");
            working.send(b'P', parse.as_bytes()).unwrap();
        }
        assert_eq!(extended(&mut working, &[(b'S', b"")]), "no error");
        let request = || {
            let fault = r#"{"error": "40001", "statement": "SELECT 9999"}"#;
            assert_eq!(gateway.http("POST", "/v1/databases/orders/faults", fault).0, 201);
        };
        // The server can't give the gateway so many rows without a temporary file.
        working.rows("SET temp_file_limit = 0; SET work_mem = '64kB'; SET statement_timeout = '1h'").unwrap();
        working.rows("BEGIN").unwrap();
        working.rows("CREATE TABLE kept ()").unwrap();
        working.rows("SELECT 1").unwrap();
        request();
        assert_eq!(working.value("SHOW statement_timeout").unwrap(), "1h");
        working.rows("COMMIT").unwrap();
        working.rows("SELECT FROM kept").unwrap();
        working.close();
        // Without an open transaction, the gateway begins a transaction.
        let mut idle = session(gateway);
        idle.rows("SET temp_file_limit = 0; SET work_mem = '64kB'").unwrap();
        idle.rows(
            "DO 'BEGIN FOR i IN 1..10000 LOOP EXECUTE ''PREPARE s'' || i || '' AS SELECT 1''; END LOOP; END'",
        )
        .unwrap();
        request();
        assert_eq!(idle.value("SHOW work_mem").unwrap(), "64kB");
        idle.close();
    });
}

fn large_values_pass_through_sessions_with_faults(major: u32) {
    in_each_isolation(major, |gateway, _| {
        let mut one = session(gateway);
        fault(&mut one, r#"{"error": "40001", "statement": "DELETE"}"#);
        let large = "x".repeat(10_000_000);
        assert_eq!(one.value(&format!("SELECT length('{large}')")).unwrap(), "10000000");
        assert_eq!(one.value("SELECT repeat('x', 10000000)").unwrap(), large);
        let rows = one.rows("SELECT repeat('x', 1000) FROM generate_series(1, 10000)").unwrap();
        assert_eq!(rows.len(), 10_000);
        assert_eq!(sqlstate(one.rows("DELETE FROM accounts")), "40001");
        one.close();
    });
}

/// Leases a database, requests a fault in it, and ends the lease while its client runs a transaction.
fn lease_with_fault(gateway: &Gateway, name: &str, fault: &str) {
    assert_eq!(gateway.http("POST", "/v1/databases", &format!(r#"{{"name": "{name}"}}"#)).0, 201);
    let mut client = gateway.connect(name, "").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| gateway.http("POST", &format!("/v1/databases/{name}/faults"), fault));
        scope.spawn(move || {
            for sql in ["BEGIN", "UPDATE accounts SET balance = 1", "COMMIT", "SELECT 1"] {
                if client.rows(sql).is_err_and(|error| error.sqlstate == "08006") {
                    break;
                }
            }
            client.close();
        });
        assert_eq!(gateway.http("DELETE", &format!("/v1/databases/{name}"), "").0 / 100, 2);
    });
}

fn leases_end_while_faults_begin(major: u32) {
    let faults = [
        r#"{"error": "40001", "at": "commit"}"#,
        r#"{"connection": "reset", "at": "after statement"}"#,
        r#"{"connection": "silent"}"#,
        r#"{"connection": "silent", "at": "during statement"}"#,
        r#"{"delay": "1h"}"#,
        r#"{"bandwidth": "1B"}"#,
        r#"{"error": "failover", "duration": "1h"}"#,
    ];
    for isolation in ISOLATIONS {
        // The clients outlive the gateway, which must end although faults are active.
        let mut left = Vec::new();
        let gateway = Gateway::start(major, TEMPLATE, &["--isolation", isolation, "--linger", "60s"]);
        let rounds = if isolation == "server" { 1 } else { 3 };
        thread::scope(|scope| {
            for (number, fault) in faults.iter().enumerate() {
                let gateway = &gateway;
                scope.spawn(move || {
                    for round in 0..rounds {
                        lease_with_fault(gateway, &format!("race_{number}_{round}"), fault);
                    }
                });
            }
        });
        for (number, fault) in faults.iter().enumerate() {
            let name = format!("left_{number}");
            let mut client = gateway.connect(&name, "").unwrap();
            gateway.http("POST", &format!("/v1/databases/{name}/faults"), fault);
            let _ = client.send(b'Q', b"SELECT repeat('x', 1000000)\0");
            left.push(client);
        }
    }
}
