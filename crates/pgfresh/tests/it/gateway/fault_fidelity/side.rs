//! The two sides of a comparison: the server itself with a real error, and the gateway with a fault.

use std::thread;

use serde_json::Value;

use super::answer::{shown, without_heads};
use super::script::{Block, Exchange, Script};
use super::{ROWS, SCHEMA};
use crate::common::connection::{Address, Connection, Rows};
use crate::common::gateway::Gateway;
use crate::common::wait_until;

/// Responses that a client has received, and the rows in the database afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Responses before, to, and after the failing statement.
    pub(super) answers: Vec<String>,
    pub(super) rows: Rows,
}

/// Sessions that provoke errors in the client's session.
pub(super) struct Others {
    session: Connection,
    watcher: Connection,
    is_waiting: bool,
}

impl Others {
    fn open(address: &Address, database: &str) -> Self {
        let open = || Connection::open(address, database, &[]).unwrap();
        Self { session: open(), watcher: open(), is_waiting: false }
    }

    /// Runs `sql` in the other session.
    pub(super) fn run(&mut self, sql: &str) {
        self.session.rows(sql).unwrap();
    }

    /// Starts `sql` in the other session, and returns once it waits for a lock.
    pub(super) fn wait_for_lock(&mut self, sql: &str) {
        self.session.send(b'Q', format!("{sql}\0").as_bytes()).unwrap();
        self.is_waiting = true;
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        wait_until("the other session to wait", || self.watcher.value(waits).unwrap() != "0");
    }

    /// Waits until the client's statement sleeps, and interrupts it with a function.
    pub(super) fn interrupt(&mut self, function: &str) {
        let sql = format!(
            "SELECT {function}(pid) FROM pg_stat_activity \
             WHERE wait_event = 'PgSleep' AND datname = current_database()"
        );
        wait_until("the statement to sleep", || self.watcher.value(&sql).unwrap() == "t");
    }

    pub(super) fn close(mut self) {
        while self.is_waiting {
            self.is_waiting = self.session.read().unwrap().0 != b'Z';
        }
        self.session.close();
        self.watcher.close();
    }
}

/// Server where other sessions provoke errors.
pub(super) struct Real<'a> {
    pub(super) gateway: &'a Gateway,
}

impl<'a> Real<'a> {
    pub(super) const DATABASE: &'static str = "real";

    /// Creates the database on the server behind `gateway`.
    pub(super) fn new(gateway: &'a Gateway) -> Self {
        gateway.direct("postgres", &format!("CREATE DATABASE {}", Self::DATABASE)).unwrap();
        gateway.direct(Self::DATABASE, SCHEMA).unwrap();
        Self { gateway }
    }

    /// Restores the schema's rows.
    pub(super) fn refresh(&self) {
        let fresh =
            "TRUNCATE account, entry; INSERT INTO account SELECT n, 100, 0 FROM generate_series(1, 5) n";
        self.gateway.direct(Self::DATABASE, fresh).unwrap();
    }

    pub(super) fn connect(&self) -> Connection {
        Connection::open(&self.gateway.server(), Self::DATABASE, &[]).unwrap()
    }

    /// Waits until the server accepts connections.
    pub(super) fn wait(&self) {
        self.gateway.wait_for_server();
    }

    pub(super) fn others(&self) -> Others {
        Others::open(&self.gateway.server(), Self::DATABASE)
    }

    /// Runs `script` with the real error.
    pub(super) fn play(&self, script: &Script) -> Outcome {
        self.refresh();
        let provocation = script.provocation;
        let mut others = self.others();
        let mut client = self.connect();
        let mut answers = ask_all(&mut client, &script.before(provocation.begin(), script.statement));
        provocation.arrange(&mut others);
        if let Some(sql) = provocation.preparation(script.block) {
            client.rows(sql).unwrap();
        }
        let failing = script.failing(script.statement);
        let interrupts = provocation.interruption();
        answers.extend(thread::scope(|scope| {
            interrupts.map(|function| scope.spawn(|| others.interrupt(function)));
            ask_all(&mut client, &failing)
        }));
        if provocation.preparation(Block::None).is_some() && script.block == Block::None {
            client.rows("SET default_transaction_read_only = off").unwrap();
        }
        if provocation.is_fatal() {
            client = self.connect();
        }
        answers.extend(ask_all(&mut client, &script.after()));
        client.close();
        others.close();
        Outcome { answers: without_heads(answers), rows: self.gateway.direct(Self::DATABASE, ROWS).unwrap() }
    }
}

/// When the test requests the fault.
#[derive(Debug, Clone, Copy)]
pub(super) enum Requested {
    /// Before the client connects.
    First,
    /// After the client has connected.
    Connected,
    /// Directly before the failing statement.
    Late,
    /// With SQL in the client's session, directly before the failing statement.
    BySql,
}

impl Requested {
    pub(super) const ALL: [Self; 4] = [Self::First, Self::Connected, Self::Late, Self::BySql];
}

/// Gateway that injects faults.
pub(super) struct Faulty<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) isolation: &'static str,
}

impl Faulty<'_> {
    /// Starts the lease `name`.
    pub(super) fn lease(&self, name: &str) {
        let lease = serde_json::json!({"name": name, "isolation": self.isolation});
        let (status, answer) = self.gateway.http("POST", "/v1/databases", &lease.to_string());
        assert_eq!(status, 201, "{answer}");
    }

    /// Ends the lease `name`. Its faults must have fired.
    pub(super) fn end(&self, name: &str) {
        let (status, answer) = self.gateway.http("DELETE", &format!("/v1/databases/{name}"), "");
        assert_eq!(status, 204, "unfired faults: {answer}");
    }

    /// Requests a fault for a lease over HTTP.
    pub(super) fn request(&self, name: &str, fault: &Value) {
        let path = format!("/v1/databases/{name}/faults");
        let (status, answer) = self.gateway.http("POST", &path, &fault.to_string());
        assert!((200..300).contains(&status), "{fault}: {status} {answer}");
    }

    /// Runs `script` with a fault in a new lease `name`.
    pub(super) fn play(&self, script: &Script, requested: Requested, name: &str) -> Outcome {
        self.lease(name);
        let provocation = script.provocation;
        // The gateway lets a COPY run and hides its rows, so the statement must end without an interruption.
        let statement = script.statement.replace("pg_sleep(60)", "pg_sleep(0)");
        let fault = provocation.fault(script.struck(&statement));
        if matches!(requested, Requested::First) {
            self.request(name, &fault);
        }
        let mut client = self.gateway.connect_in_time(name, "");
        if matches!(requested, Requested::Connected) {
            self.request(name, &fault);
        }
        let begin = if self.isolation == "rollback" { "BEGIN" } else { provocation.begin() };
        let mut answers = ask_all(&mut client, &script.before(begin, &statement));
        match requested {
            Requested::Late => self.request(name, &fault),
            Requested::BySql => {
                let text = fault.to_string().replace('\'', "''");
                client.rows(&format!("SET pgfresh.fault = '{text}'")).unwrap();
            }
            Requested::First | Requested::Connected => {}
        }
        answers.extend(ask_all(&mut client, &script.failing(&statement)));
        if provocation.is_fatal() {
            client = self.gateway.connect_in_time(name, "");
        }
        answers.extend(ask_all(&mut client, &script.after()));
        client.close();
        let mut reader = self.gateway.connect_in_time(name, "");
        let rows = reader.rows(ROWS).unwrap();
        reader.close();
        self.end(name);
        Outcome { answers: without_heads(answers), rows }
    }
}

/// Sends all exchanges, and returns the responses. If the session is over, the last response ends with `end`.
pub(super) fn ask_all(client: &mut Connection, exchanges: &[Exchange]) -> Vec<String> {
    let mut answers = Vec::new();
    for Exchange { bytes, ends, parts } in exchanges {
        // Responses to earlier messages can still be read from a session that has ended.
        let _ = client.write(bytes);
        let mut left = *parts;
        while left > 0 {
            let Ok((tag, body)) = client.read() else {
                answers.push("end".to_owned());
                return answers;
            };
            left -= usize::from(ends.contains(&tag));
            answers.push(shown(tag, &body));
        }
    }
    answers
}
