//! Tests SQL that renames, swaps, drops and creates databases at any moment. A session still is in the
//! database with the requested name. No lease contains another lease's rows. Databases that SQL has created or
//! renamed keep their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease::{Backend, ConnectRequest, Connected, Entered, Isolation, LeaseError, Seat};
use server::{AdminConnection, VersionRequest};
use template::ServerOptions;

use crate::common::leases::{LeaseFixture, params};
use crate::common::random::Random;
use crate::common::{WAIT_TIMEOUT, depth, on_every_major, postgres, wait_until};

on_every_major! {
    sessions_and_resets_follow_no_renamed_database
    a_renamed_lease_is_left_to_sql
    ready_database_renamed_by_sql_is_not_leased
}

/// Names of the leases that SQL changes.
const NAMES: [&str; 4] = ["A", "B", "c d", "e\"'\\"];
/// Reads the database's name and rows.
const LOOK: &str = "SELECT current_database(), v FROM (VALUES (1)) one LEFT JOIN e ON true";

/// Expected state of a database on the server.
#[derive(Debug, Clone)]
struct Database {
    id: u32,
    rows: BTreeSet<String>,
}

/// Server, and the databases and leases that it must have.
struct Played {
    server: LeaseFixture,
    major: u32,
    random: Random,
    /// Databases by name, except for the system's own databases and those that pgfresh has ready.
    databases: BTreeMap<String, Database>,
    /// Leases that pgfresh hasn't ended yet, with the database for each.
    leases: BTreeMap<String, u32>,
    serial: u32,
}

fn open(major: u32) -> Played {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    // `replace` reuses OIDs. From version 15 on, a server can panic when SQL drops the second database with the same
    // OID. It does so if a process still refers to the first database's statistics and the second database hasn't had
    // a session. Here, only the autovacuum launcher keeps these references, while it sleeps. So the test turns
    // autovacuum off. Source: `src/backend/utils/activity/pgstat_shmem.c`.
    let since_15 = [("allow_in_place_tablespaces", "on"), ("autovacuum", "off")];
    let since_15 = since_15.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let settings = if major < 15 { Vec::new() } else { since_15.into() };
    let options = ServerOptions { installation, settings, ..ServerOptions::default() };
    let server = LeaseFixture::new(options, "CREATE TABLE e (v text)", Duration::from_mins(10), false);
    wait_until("two ready databases", || server.leases.status().ready[0].1 > 1);
    if major >= 15 {
        server.admin("CREATE TABLESPACE elsewhere LOCATION ''");
    }
    let random = Random::new();
    Played { server, major, random, databases: BTreeMap::new(), leases: BTreeMap::new(), serial: 0 }
}

fn quoted(name: &str) -> String {
    server::identifier(name)
}

impl Played {
    fn next(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }

    /// Returns a random name that a database has, or doesn't have, as `is_there` requires.
    fn name(&mut self, is_there: bool) -> Option<String> {
        let names: Vec<_> =
            NAMES.into_iter().filter(|name| self.databases.contains_key(*name) == is_there).collect();
        (!names.is_empty()).then(|| (*self.random.choose(&names)).to_owned())
    }

    /// Ends waiting backends, then runs SQL that fails if a database still has a session.
    fn sql(&self, sql: &str) {
        self.server.leases.vacate();
        self.server.admin(sql);
    }

    fn connect(&self, name: &str, linger: Duration) -> (AdminConnection, Vec<u8>, lease::SessionGuard) {
        let params = params("postgres");
        let request = ConnectRequest { linger: Some(linger), ..ConnectRequest::new(name, &params) };
        let Entered::Plain(Connected { backend, guard }) = self.server.leases.connect(&request).unwrap()
        else {
            panic!("a clone was asked for")
        };
        (AdminConnection::adopt(backend.stream, WAIT_TIMEOUT).unwrap(), backend.startup_response, guard)
    }

    fn expect_rows(session: &mut AdminConnection, name: &str, rows: &BTreeSet<String>) {
        let found = session.query(LOOK).unwrap();
        let names: BTreeSet<_> = found.iter().map(|row| row[0].clone().unwrap()).collect();
        let found: BTreeSet<_> = found.into_iter().filter_map(|mut row| row.remove(1)).collect();
        assert_eq!((names, &found), (BTreeSet::from([name.to_owned()]), rows), "in {name:?}");
    }

    /// Opens a session that checks its database, and writes a row. It might leave its backend for the next session.
    fn session(&mut self, name: &str) {
        let gives_back = self.random.chance(70);
        self.session_that(gives_back, name);
    }

    fn session_that(&mut self, gives_back: bool, name: &str) {
        let is_valid = self.databases.get(name).map(|database| database.id) == self.leases.get(name).copied();
        if !self.databases.contains_key(name) {
            let id = self.next();
            self.databases.insert(name.to_owned(), Database { id, rows: BTreeSet::new() });
            self.leases.insert(name.to_owned(), id);
        } else if !is_valid {
            self.leases.remove(name);
        }
        let row = format!("row {}", self.next());
        let (mut session, startup_response, guard) = self.connect(name, Duration::from_mins(10));
        Self::expect_rows(&mut session, name, &self.databases[name].rows);
        session.query(&format!("INSERT INTO e VALUES ('{row}')")).unwrap();
        self.databases.get_mut(name).unwrap().rows.insert(row);
        if gives_back {
            session.query("DISCARD ALL").unwrap();
            let stream = session.release().unwrap();
            guard.give_back(Backend { stream, startup_response, seat: Seat::default() });
        }
    }

    /// Writes a row without pgfresh.
    fn write(&mut self, name: &str, row: &str) {
        let mut session = self.server.started.server.session(name).unwrap();
        session.query(&format!("INSERT INTO e VALUES ('{row}')")).unwrap();
        self.databases.get_mut(name).unwrap().rows.insert(row.to_owned());
    }

    /// Waits until the server has each database that pgfresh has ready, and pgfresh isn't preparing others.
    fn settle(&self) {
        let prepared = "SELECT datname FROM pg_database WHERE datname LIKE 'pgfresh_preparing_%'";
        wait_until("no database in preparation", || {
            let ready = self.server.leases.status().ready[0].1;
            ready > 1 && ready == self.ready().len() && self.server.admin(prepared).is_empty()
        });
    }

    /// Returns the names of the ready databases.
    fn ready(&self) -> Vec<String> {
        let ready = "SELECT datname FROM pg_database WHERE datname LIKE 'pgfresh_ready_%' ORDER BY oid";
        self.server.admin(ready).concat().into_iter().flatten().collect()
    }

    /// Leases short-lived databases under new names. They must be empty.
    fn fresh_leases(&mut self) {
        let none = BTreeSet::new();
        let name = format!("n{}", self.next());
        let mut sessions: Vec<_> = (0..2).map(|_| self.connect(&name, Duration::ZERO)).collect();
        for (session, ..) in &mut sessions {
            Self::expect_rows(session, &name, &none);
        }
        for (mut session, startup_response, guard) in sessions {
            session.query("INSERT INTO e VALUES ('of another lease')").unwrap();
            session.query("DISCARD ALL").unwrap();
            let stream = session.release().unwrap();
            guard.give_back(Backend { stream, startup_response, seat: Seat::default() });
        }
        if self.random.chance(30) {
            let (name, params) = (format!("r{}", self.next()), params("postgres"));
            let (isolation, linger) = (Some(Isolation::Rollback), Some(Duration::ZERO));
            let request = ConnectRequest { isolation, linger, ..ConnectRequest::new(&name, &params) };
            let Entered::Transaction(mut guard) = self.server.leases.connect(&request).unwrap() else {
                panic!("rollback was asked for")
            };
            let (stream, ..) = guard.lend().unwrap();
            Self::expect_rows(&mut AdminConnection::adopt(stream, WAIT_TIMEOUT).unwrap(), &name, &none);
        }
    }

    /// Leases more databases concurrently than are ready. They must be empty.
    fn many_leases(&mut self) {
        let mut sessions = Vec::new();
        for _ in 0..6 {
            let name = format!("n{}", self.next());
            let mut session = self.connect(&name, Duration::ZERO);
            Self::expect_rows(&mut session.0, &name, &BTreeSet::new());
            sessions.push(session);
        }
    }

    fn release(&mut self, name: &str) {
        let released = self.server.leases.release(name);
        match self.leases.remove(name) {
            Some(id) => {
                released.unwrap();
                if self.databases.get(name).is_some_and(|database| database.id == id) {
                    self.databases.remove(name);
                }
            }
            None => assert!(matches!(released, Err(LeaseError::NotLeased(_))), "{released:?}"),
        }
    }

    fn reset(&mut self, name: &str) {
        let reset = self.server.leases.reset(name, false);
        let Some(id) = self.leases.get(name).copied() else {
            return assert!(matches!(reset, Err(LeaseError::NotLeased(_))), "{reset:?}");
        };
        match self.databases.get(name).map(|database| database.id) {
            Some(other) if other != id => {
                assert!(matches!(reset, Err(LeaseError::Leased(_))), "{reset:?}");
                self.leases.remove(name);
            }
            _ => {
                reset.unwrap();
                let id = self.next();
                self.databases.insert(name.to_owned(), Database { id, rows: BTreeSet::new() });
                self.leases.insert(name.to_owned(), id);
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.sql(&format!("ALTER DATABASE {} RENAME TO {}", quoted(from), quoted(to)));
        let database = self.databases.remove(from).unwrap();
        self.databases.insert(to.to_owned(), database);
    }

    /// Swaps the names of two databases in one transaction.
    fn swap(&mut self, one: &str, other: &str) {
        let [a, b] = [one, other].map(quoted);
        self.sql(&format!(
            "ALTER DATABASE {a} RENAME TO swapped; ALTER DATABASE {b} RENAME TO {a}; ALTER DATABASE swapped RENAME TO {b}"
        ));
        let [a, b] = [one, other].map(|name| self.databases.remove(name).unwrap());
        self.databases.extend([(one.to_owned(), b), (other.to_owned(), a)]);
    }

    fn create(&mut self, name: &str, template: &str) {
        let strategies = ["", "STRATEGY wal_log", "STRATEGY file_copy"];
        let strategy = if self.major < 15 { "" } else { *self.random.choose(&strategies) };
        self.sql(&format!("CREATE DATABASE {} TEMPLATE {} {strategy}", quoted(name), quoted(template)));
        let (id, rows) = (self.next(), self.databases[template].rows.clone());
        self.databases.insert(name.to_owned(), Database { id, rows });
    }

    fn drop(&mut self, name: &str) {
        let force = *self.random.choose(&["", " WITH (FORCE)"]);
        self.sql(&format!("DROP DATABASE {}{force}", quoted(name)));
        self.databases.remove(name);
    }

    /// Replaces the database `name` with a copy of `template` that has the same name and OID.
    fn replace(&mut self, name: &str, template: &str) {
        let sql = format!("SELECT oid FROM pg_database WHERE datname = {}", server::literal(name));
        let oid = self.server.admin(&sql)[0][0].clone().unwrap();
        self.sql(&format!("DROP DATABASE {}", quoted(name)));
        self.sql(&format!("CREATE DATABASE {} TEMPLATE {} OID {oid}", quoted(name), quoted(template)));
        let rows = self.databases[template].rows.clone();
        self.databases.get_mut(name).unwrap().rows = rows;
    }

    /// Renames a ready database with SQL, or drops it.
    fn take_ready(&mut self, name: &str) {
        let ready =
            "SELECT datname FROM pg_database WHERE datname LIKE 'pgfresh_ready_%' ORDER BY random() LIMIT 1";
        let Some(ready) = self.server.admin(ready).concat().into_iter().flatten().next() else { return };
        let mut session = self.server.started.server.session("postgres").unwrap();
        if self.random.chance(30) {
            // pgfresh might be dropping it.
            drop(session.query(&format!("DROP DATABASE {ready} WITH (FORCE)")));
            return;
        }
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{ready}'; \
             ALTER DATABASE {ready} RENAME TO {}",
            quoted(name)
        );
        // A ready database doesn't accept connections.
        let open = format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", quoted(name));
        if session.query(&sql).is_ok() {
            session.query(&open).unwrap();
            let id = self.next();
            self.databases.insert(name.to_owned(), Database { id, rows: BTreeSet::new() });
        }
    }

    fn step(&mut self) {
        let (there, not_there) = (self.name(true), self.name(false));
        let any = (*self.random.choose(&NAMES)).to_owned();
        let other = self.name(true).filter(|other| Some(other) != there.as_ref());
        let kind = self.random.below(14);
        match (kind, there, other, not_there) {
            (0..4, ..) => self.session(&any),
            (4, ..) => self.release(&any),
            (5, ..) => self.reset(&any),
            (6 | 7, Some(from), _, Some(to)) => self.rename(&from, &to),
            (8, Some(one), Some(other), _) => self.swap(&one, &other),
            (9 | 10, Some(template), _, Some(name)) => self.create(&name, &template),
            (11, Some(name), ..) => self.drop(&name),
            (12, Some(name), Some(template), _) if self.major >= 15 => self.replace(&name, &template),
            (12, _, _, Some(name)) => self.take_ready(&name),
            (13, Some(name), ..) if self.major >= 15 => {
                let to = *self.random.choose(&["elsewhere", "pg_default"]);
                self.sql(&format!("ALTER DATABASE {} SET TABLESPACE {to}", quoted(&name)));
            }
            _ => self.fresh_leases(),
        }
        if self.random.chance(50) {
            self.fresh_leases();
        }
    }

    /// Checks everything that exists, and removes it. Nothing must be left.
    fn end(&mut self) {
        for name in self.databases.keys().cloned().collect::<Vec<_>>() {
            self.session(&name);
        }
        for name in NAMES {
            self.release_if_leased(name);
            if self.databases.contains_key(name) {
                self.drop(name);
            }
        }
        let databases =
            "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres' ORDER BY 1";
        let mut found = Vec::new();
        // pgfresh might not have noticed yet that SQL has dropped some ready databases.
        wait_until("all that is left is ready", || {
            let ready = self.server.leases.status().ready[0].1;
            found = self.server.admin(databases).concat().into_iter().flatten().collect();
            found.len() <= ready && found.iter().all(|name| name.starts_with("pgfresh_ready_"))
        });
    }

    fn release_if_leased(&mut self, name: &str) {
        if self.leases.contains_key(name) {
            self.release(name);
        }
    }
}

/// Selects each step at random.
fn sessions_and_resets_follow_no_renamed_database(major: u32) {
    let mut played = open(major);
    for step in 0..depth::rounds(80) {
        let before = format!("{step}: {:?} {:?}", played.databases, played.leases);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| played.step()));
        if let Err(panic) = run {
            println!("{before}");
            std::panic::resume_unwind(panic);
        }
    }
    played.end();
}

/// A backend waits in the database that SQL has created under a lease's name. The end of the lease
/// must not use that backend.
fn a_renamed_lease_is_left_to_sql(major: u32) {
    let mut played = open(major);
    // This leaves a database where a backend might be waiting.
    played.many_leases();
    for [lease, renamed] in [[NAMES[0], NAMES[1]], [NAMES[2], NAMES[3]]] {
        played.session_that(true, lease);
        played.rename(lease, renamed);
        played.create(lease, renamed);
        played.session_that(true, lease);
        // It isn't a lease any more.
        drop(played.server.leases.release(lease));
        played.many_leases();
    }
    played.end();
}

/// SQL gives a ready database the name that a client requests next. pgfresh might select that database for the lease,
/// and must not mistake the name for its own.
fn ready_database_renamed_by_sql_is_not_leased(major: u32) {
    let mut played = open(major);
    for name in NAMES {
        played.settle();
        let ready = played.ready();
        let (renamed, others) = ready.split_first().unwrap();
        played.sql(&format!("ALTER DATABASE {renamed} RENAME TO {}", quoted(name)));
        played.sql(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", quoted(name)));
        let id = played.next();
        played.databases.insert(name.to_owned(), Database { id, rows: BTreeSet::new() });
        played.write(name, "of SQL");
        // SQL drops the other ready databases, so pgfresh selects the renamed database.
        for other in others {
            played.sql(&format!("DROP DATABASE {other} WITH (FORCE)"));
        }
        played.session_that(false, name);
        played.release(name);
        played.session_that(false, name);
    }
    played.end();
}
