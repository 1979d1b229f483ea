//! Tests that a client that doesn't read its results doesn't delay a reset, release or snapshot of its database.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::gateway::Gateway;
use crate::common::{ground, on_every_major, wait_until};

on_every_major! {
    sessions_of_slow_readers_close_at_once
    reading_clients_get_the_closing_reason
}

const TEMPLATE: &str = "CREATE TABLE t (n int)";

/// psql process that doesn't read its query's large result.
struct Deaf(Child);

impl Deaf {
    /// Starts psql with `sql` in the database `name`, which has the URL `url`.
    fn start(gateway: &Gateway, name: &str, url: &str, mode: &str, sql: &str) -> Self {
        let mut psql = Command::new(ground::psql());
        psql.args(["-XAtqc", sql, url]).env_clear().env("PGSSLMODE", mode);
        // psql stops reading when its own output blocks.
        let psql = psql.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let deaf = Self(psql.spawn().unwrap());
        if !sql.starts_with("COPY") {
            // Otherwise, psql would read the complete result before it writes anything.
            wait_until("psql to be answered", || is_there(gateway, name, "state = 'active'"));
            kill_process(deaf.pid(), Signal::STOP).unwrap();
        }
        let is_held_up = "wait_event = 'ClientWrite'";
        wait_until("a backend that cannot write", || is_there(gateway, name, is_held_up));
        deaf
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().unwrap()).unwrap()
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a client's backend in the database `name` satisfies `condition`.
fn is_there(gateway: &Gateway, name: &str, condition: &str) -> bool {
    let of_psql = format!("datname = '{name}' AND application_name = 'psql' AND query LIKE '%generate%'");
    let sql = format!("SELECT pid FROM pg_stat_activity WHERE {of_psql} AND {condition}");
    !gateway.direct("postgres", &sql).unwrap().is_empty()
}

fn sessions_of_slow_readers_close_at_once(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &["--tls", "--linger", "60s"]);
    let rows = "SELECT repeat('x', 1000) FROM generate_series(1, 10000000)";
    let copy = format!("COPY ({rows}) TO STDOUT");
    let close = r#"{"close_sessions": true}"#;
    let mut number = 0;
    for (url, mode) in [("url", "disable"), ("url", "require"), ("socket_url", "disable")] {
        for (isolation, action) in [
            ("clone", "reset"),
            ("clone", "release"),
            ("clone", "snapshot"),
            ("rollback", "reset"),
            ("rollback", "release"),
        ] {
            number += 1;
            let name = format!("deaf_{number}");
            let body = format!(r#"{{"name": "{name}", "isolation": "{isolation}"}}"#);
            let (code, lease) = gateway.http("POST", "/v1/databases", &body);
            assert_eq!(code, 201, "{lease}");
            let sql = if number % 2 == 0 { rows } else { &copy };
            let deaf = Deaf::start(&gateway, &name, lease[url].as_str().unwrap(), mode, sql);
            // pgfresh rejects an action if the session doesn't end.
            let path = format!("/v1/databases/{name}");
            let (code, answer) = match action {
                "release" => gateway.http("DELETE", &path, ""),
                "snapshot" => {
                    let body = format!(r#"{{"template": "of_{name}", "close_sessions": true}}"#);
                    gateway.http("POST", &format!("{path}/snapshot"), &body)
                }
                _ => gateway.http("POST", &format!("{path}/reset"), close),
            };
            let case = format!("{action} in {isolation} by {url}, TLS {mode}, PostgreSQL {major}");
            assert!((200..300).contains(&code), "{case}: {code} {answer}");
            drop(deaf);
            if action != "release" {
                gateway.http("DELETE", &path, "");
            }
        }
    }
    assert_eq!(gateway.status()["errors"], serde_json::json!({}));
}

fn reading_clients_get_the_closing_reason(major: u32) {
    let gateway = Gateway::start(major, TEMPLATE, &["--linger", "60s"]);
    let mut idle = gateway.connect("heard", "").unwrap();
    idle.value("SELECT 1").unwrap();
    let mut busy = gateway.connect("heard", "").unwrap();
    busy.send(b'Q', b"SELECT pg_sleep(60)\0").unwrap();
    assert_eq!(gateway.reset("heard").0, 204);
    for session in [&mut idle, &mut busy] {
        let mut messages = std::iter::from_fn(|| Some(session.read().unwrap()));
        let (_, error) = messages.find(|(tag, _)| *tag == b'E').unwrap();
        let error = String::from_utf8_lossy(&error).into_owned();
        assert!(error.contains("57P01"), "{error}");
    }
}
