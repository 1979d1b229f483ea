//! Tests that programs that visit all databases on a server, while leases start and end, can connect to each
//! database that they find.

use std::panic::resume_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::gateway::Gateway;
use crate::common::{Outcome, finish, ground, on_every_major, wait_until};

/// Number of times that each program runs.
const ROUNDS: u32 = 3;
/// Major of the programs. `pg_dumpall` rejects a newer server.
const PROGRAMS: u32 = 15;
/// Query that lists the databases to visit, as the programs do.
const LIST: &str = "SELECT datname FROM pg_database WHERE datallowconn ORDER BY 1";

on_every_major! {
    programs_that_visit_all_databases_succeed
    ready_databases_do_not_look_connectable
    a_database_that_was_listed_lets_clients_in
}

fn start(major: u32) -> Gateway {
    Gateway::start(major, "CREATE TABLE tenant AS SELECT 1 AS id", &["--linger", "0s"])
}

impl Gateway {
    /// Runs one of PostgreSQL's own programs as a client.
    fn program(&self, name: &str, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(ground::psql().replace("/psql", &format!("/{name}")));
        command.env_clear().args(arguments);
        command.env("PGHOST", "127.0.0.1").env("PGPORT", self.serve.ready["port"].to_string());
        command.env("PGUSER", "postgres").env("PGPASSWORD", self.serve.secret());
        finish(command)
    }

    /// Starts and ends leases until `done` is set.
    fn come_and_go(&self, worker: u32, done: &AtomicBool) {
        for lease in 0.. {
            if done.load(Ordering::Relaxed) {
                return;
            }
            let mut session = self.connect_in_time(&format!("w{worker}_{lease}"), "");
            session.rows("INSERT INTO tenant VALUES (2)").unwrap();
            session.close();
        }
    }

    /// Makes each program, and a loop as in applications, visit all databases several times.
    fn visit_all(&self) {
        for _ in 0..ROUNDS {
            let mut programs =
                vec![("vacuumdb", &["--all", "--analyze-only"][..]), ("reindexdb", &["--all"])];
            if self.major <= PROGRAMS {
                programs.push(("pg_dumpall", &["--schema-only"]));
            }
            for (name, arguments) in programs {
                let outcome = self.program(name, arguments);
                assert!(outcome.code == Some(0), "{name}: {outcome}");
            }
            let listed = self.connect("postgres", "").unwrap().rows(LIST).unwrap();
            for database in listed.into_iter().flatten().flatten() {
                self.connect(&database, "").unwrap().close();
            }
        }
    }
}

fn programs_that_visit_all_databases_succeed(major: u32) {
    let gateway = start(major);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..2 {
            let (gateway, done) = (&gateway, &done);
            scope.spawn(move || gateway.come_and_go(worker, done));
        }
        let visited = thread::scope(|inner| inner.spawn(|| gateway.visit_all()).join());
        done.store(true, Ordering::Relaxed);
        if let Err(panic) = visited {
            resume_unwind(panic);
        }
    });
}

fn ready_databases_do_not_look_connectable(major: u32) {
    let gateway = start(major);
    let ready = "SELECT count(*) FROM pg_database WHERE datname LIKE 'pgfresh_ready%'";
    for lease in 0..3 {
        let mut session = gateway.connect_in_time(&format!("lease_{lease}"), "");
        session.rows("INSERT INTO tenant VALUES (2)").unwrap();
        let listed = session.rows(LIST).unwrap();
        assert!(listed.contains(&vec![Some(format!("lease_{lease}"))]), "{listed:?}");
        session.close();
        wait_until("ready databases that are hidden", || {
            let count = |sql: &str| gateway.direct("postgres", sql).unwrap()[0][0].clone().unwrap();
            count(ready) != "0" && count(&format!("{ready} AND datallowconn")) == "0"
        });
    }
}

fn a_database_that_was_listed_lets_clients_in(major: u32) {
    let gateway = start(major);
    for name in ["pgfresh_preparing_1", "pgfresh_preparing_2", "pgfresh_preparing_999"] {
        let mut session = gateway.connect(name, "").unwrap();
        assert_eq!(session.value("SELECT current_database()").unwrap(), name);
        assert_eq!(session.value("SELECT count(*) FROM tenant").unwrap(), "1");
        session.rows("INSERT INTO tenant VALUES (2)").unwrap();
        session.close();
    }
    // The template itself can't be reached.
    assert_eq!(gateway.connect("pgfresh_template_app", "").err().unwrap().sqlstate, "42602");
}
