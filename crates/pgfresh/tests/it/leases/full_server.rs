//! Tests servers whose sessions are all in use by clients: the next client gets an error with this reason, and
//! pgfresh can still do its work.

use crate::common::connection::{Connection, SqlError};
use crate::common::gateway::Gateway;
use crate::common::on_every_major;

on_every_major! {
    leases_can_change_on_a_full_server
    clients_in_any_isolation_leave_room_for_pgfresh
}

const TEMPLATE: &str = "CREATE TABLE t (n int)";

/// Opens sessions in the leases `names` until the server refuses a session. Returns the sessions and the error.
fn crowd(gateway: &Gateway, names: &[&str], options: &str) -> (Vec<Connection>, SqlError) {
    let mut sessions = Vec::new();
    for name in names.iter().cycle() {
        match gateway.connect(name, options) {
            Ok(session) => sessions.push(session),
            Err(error) => return (sessions, error),
        }
    }
    unreachable!("there are names")
}

/// Sends an HTTP request, which must succeed. Without a free connection for pgfresh, the request would fail.
fn act(gateway: &Gateway, method: &str, path: &str, body: &str) {
    let (code, answer) = gateway.http(method, &format!("/v1/databases{path}"), body);
    assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
}

fn assert_is_full(error: &SqlError, sessions: usize) {
    assert_eq!(error.sqlstate, "53300", "{error}");
    assert_eq!(error.message, "sorry, too many clients already", "of {sessions}");
}

fn leases_can_change_on_a_full_server(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &["--linger", "60s"]);
    for name in ["empty", "source", "over"] {
        gateway.connect(name, "").unwrap().rows("INSERT INTO t VALUES (1)").unwrap();
    }
    let (mut sessions, error) = crowd(&gateway, &["one", "two", "three"], "");
    assert_is_full(&error, sessions.len());
    assert_eq!(sessions.len(), 300);
    // All sessions are still open, but pgfresh has reserved connections.
    act(&gateway, "POST", "/empty/reset", "");
    act(&gateway, "POST", "/source/snapshot", r#"{"template": "taken"}"#);
    act(&gateway, "DELETE", "/over", "");
    act(&gateway, "POST", "", r#"{"name": "later"}"#);
    for session in &mut sessions {
        session.value("SELECT 1").unwrap();
    }
    let close = r#"{"close_sessions": true}"#;
    act(&gateway, "POST", "/one/reset", close);
    assert_eq!(gateway.connect("one", "").unwrap().value("SELECT count(*) FROM t").unwrap(), "0");
    act(&gateway, "POST", "/two/snapshot", r#"{"template": "two_taken", "close_sessions": true}"#);
    act(&gateway, "DELETE", "/three", "");
    assert_eq!(gateway.status()["errors"], serde_json::json!({}));
}

fn clients_in_any_isolation_leave_room_for_pgfresh(major: u32) {
    // A sixteenth of the connections, but at least six, are pgfresh's own.
    let gateway = Gateway::start(major, TEMPLATE, &["--linger", "60s", "--set", "max_connections=24"]);
    let names: Vec<_> = (0..24).map(|number| format!("name_{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for options in ["", "-cpgfresh.isolation=rollback"] {
        let (sessions, error) = crowd(&gateway, &names, options);
        assert_is_full(&error, sessions.len());
        assert_eq!(sessions.len(), 18, "{options}");
        act(&gateway, "POST", "/name_0/reset", r#"{"close_sessions": true}"#);
        let mut again = gateway.connect("name_0", options).unwrap();
        assert_eq!(again.value("SELECT count(*) FROM t").unwrap(), "0");
        drop((sessions, again));
        for name in &names[..18] {
            act(&gateway, "DELETE", &format!("/{name}"), "");
        }
        if options.is_empty() {
            // pgfresh can also release the clients' leases.
            let (code, _) = gateway.http("DELETE", "/v1/databases/name_18", "");
            assert!([204, 404].contains(&code), "{code}");
        }
    }
    assert_eq!(gateway.status()["errors"], serde_json::json!({}));
}
