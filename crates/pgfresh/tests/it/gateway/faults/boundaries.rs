//! Tests errors before a statement: the server doesn't run any part of the statement, and the client
//! receives only the error.

use serde_json::json;

use super::{ISOLATIONS, TEMPLATE, session};
use crate::common::connection::Connection;
use crate::common::gateway::Gateway;
use crate::common::random::Random;
use crate::common::{depth, on_every_major};

on_every_major! {
    error_before_statement_runs_no_part_of_it
}

/// Statements that take a number from a sequence, which a rollback doesn't give back, or that read a client's data.
const STATEMENTS: [&str; 14] = [
    "SELECT nextval('numbers')",
    "VALUES (nextval('numbers'))",
    "WITH a AS (SELECT nextval('numbers')) SELECT * FROM a",
    "INSERT INTO accounts VALUES (nextval('numbers') + 50, 1) RETURNING id",
    "CREATE TABLE more AS SELECT nextval('numbers')",
    "COPY (SELECT nextval('numbers')) TO STDOUT",
    "COPY accounts FROM STDIN",
    "COPY accounts (id, balance) FROM STDIN WITH (FORMAT csv)",
    "COPY accounts TO STDOUT",
    "DO $$BEGIN PERFORM nextval('numbers'); END$$",
    "EXPLAIN ANALYZE SELECT nextval('numbers')",
    "EXECUTE number",
    "FETCH number",
    "CALL count_up()",
];
const BEFORE: &str = "
    CREATE SEQUENCE numbers;
    CREATE PROCEDURE count_up() LANGUAGE SQL AS $$SELECT nextval('numbers')$$;";

/// How the client sends the statement.
#[derive(Debug, Clone, Copy)]
enum Sending {
    Simple,
    /// Second statement in a query string.
    String,
    Extended,
    /// Second statement before a single Sync.
    Pipeline,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    statement: &'static str,
    sending: Sending,
    error: &'static str,
    in_block: bool,
}

impl Case {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for statement in STATEMENTS {
            for sending in [Sending::Simple, Sending::String, Sending::Extended, Sending::Pipeline] {
                for error in ["55P03", "40001", "25006", "57P01"] {
                    for in_block in [false, true] {
                        if in_block || !statement.starts_with("FETCH") {
                            all.push(Self { statement, sending, error, in_block });
                        }
                    }
                }
            }
        }
        all
    }

    /// Sends the statement, and returns the response tags and the error's SQLSTATE.
    fn play(self, session: &mut Connection) -> (String, String) {
        let run = |sql: &str| {
            let parse = format!("\0{sql}\0\0\0");
            let parts: [(u8, &[u8]); 3] =
                [(b'P', parse.as_bytes()), (b'B', b"\0\0\0\0\0\0\0\0"), (b'E', b"\0\0\0\0\0")];
            parts.map(|(tag, body)| pgwire::encode(tag, body)).concat()
        };
        let sync = pgwire::encode(b'S', b"");
        let bytes = match self.sending {
            Sending::Simple => pgwire::query(self.statement.as_bytes()),
            Sending::String => pgwire::query(format!("SET work_mem = '1MB'; {}", self.statement).as_bytes()),
            Sending::Extended => [run(self.statement), sync].concat(),
            Sending::Pipeline => [run("SET work_mem = '1MB'"), run(self.statement), sync].concat(),
        };
        session.write(&bytes).unwrap();
        let (mut tags, mut sqlstate) = (String::new(), String::new());
        while let Ok((tag, body)) = session.read() {
            // The server can report a changed setting at any time.
            if tag != b'S' {
                tags.push(char::from(tag));
            }
            match tag {
                b'E' => sqlstate = pgwire::ErrorResponse::read(&body).sqlstate.into_owned(),
                b'Z' => break,
                _ => {}
            }
        }
        (tags, sqlstate)
    }

    /// Returns the response tags that a server sends when it rejects the statement immediately.
    fn expected(self) -> String {
        let before = match self.sending {
            Sending::Simple => "",
            Sending::String => "C",
            Sending::Extended => "12",
            Sending::Pipeline => "12C12",
        };
        format!("{before}E{}", if self.error == "57P01" { "" } else { "Z" })
    }
}

fn error_before_statement_runs_no_part_of_it(major: u32) {
    let template = format!("{TEMPLATE}{BEFORE}");
    let isolation = *Random::new().choose(&ISOLATIONS);
    let gateway = Gateway::start(major, &template, &["--isolation", isolation, "--linger", "60s"]);
    for case in depth::some_of(Case::all()) {
        println!("{case:?} in isolation {isolation} on PostgreSQL {major}");
        let mut one = session(&gateway);
        one.rows("PREPARE number AS SELECT nextval('numbers')").unwrap();
        if case.in_block {
            one.rows("BEGIN; DECLARE number CURSOR FOR SELECT nextval('numbers')").unwrap();
        }
        let fault = json!({"error": case.error, "statement": case.statement});
        let path = "/v1/databases/orders/faults";
        assert_eq!(gateway.http("POST", path, &fault.to_string()).0, 201);
        let (tags, sqlstate) = case.play(&mut one);
        let is_ended = !tags.ends_with('Z');
        // If the session is lost, earlier responses might be lost too, because they aren't flushed.
        if is_ended {
            assert!(case.expected().ends_with(&tags), "{case:?}: {tags}");
        } else {
            assert_eq!(tags, case.expected(), "{case:?}");
            one.rows("ROLLBACK").unwrap();
            one.close();
        }
        assert_eq!(sqlstate, case.error, "{case:?}");
        let mut two = session(&gateway);
        let state = "SELECT is_called::text || ' ' || (SELECT count(*) FROM accounts) FROM numbers";
        assert_eq!(two.value(state).unwrap(), "false 1", "{case:?}");
        two.close();
        assert_eq!(gateway.reset("orders").0, 204);
    }
}
