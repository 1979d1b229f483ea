//! SQL renames, swaps, drops and creates databases at any moment. A session is in the database of its name all the same. No lease sees
//! the rows of another one. Databases that SQL has made or renamed keep their rows.

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

/// Names of leases that SQL changes.
const NAMES: [&str; 4] = ["A", "B", "c d", "e\"'\\"];
/// Reads the name of the database and its rows.
const LOOK: &str = "SELECT current_database(), v FROM (VALUES (1)) one LEFT JOIN e ON true";

/// A database in the server, as it has to be.
#[derive(Debug, Clone)]
struct Database {
    id: u32,
    rows: BTreeSet<String>,
}

/// A server, and what has to be in it.
struct Played {
    server: LeaseFixture,
    major: u32,
    random: Random,
    /// Databases by name, without the system's own and those that pgfresh has ready.
    databases: BTreeMap<String, Database>,
    /// Leases that pgfresh has not ended yet, with the database of each.
    leases: BTreeMap<String, u32>,
    serial: u32,
}

fn open(major: u32) -> Played {
    let installation: VersionRequest = postgres(major).parse().unwrap();
    // `replace` uses oids again. A server since 15 may panic when SQL drops the second database with an oid. It does so while a
    // process still refers to the statistics of the first one, unless the second one has had a session. Here only autovacuum's
    // launcher keeps such references, for as long as it sleeps. Source: `src/backend/utils/activity/pgstat_shmem.c`.
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

    /// One of the names that a database has, or has not.
    fn name(&mut self, is_there: bool) -> Option<String> {
        let names: Vec<_> =
            NAMES.into_iter().filter(|name| self.databases.contains_key(*name) == is_there).collect();
        (!names.is_empty()).then(|| (*self.random.choose(&names)).to_owned())
    }

    /// Runs SQL that no session of a database may be in the way of.
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

    /// Has a session look at its database, and write a row. It may leave its backend for the next one.
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

    /// Writes a row past pgfresh.
    fn write(&mut self, name: &str, row: &str) {
        let mut session = self.server.started.server.session(name).unwrap();
        session.query(&format!("INSERT INTO e VALUES ('{row}')")).unwrap();
        self.databases.get_mut(name).unwrap().rows.insert(row.to_owned());
    }

    /// Waits until the server has each database that pgfresh has ready, and pgfresh prepares no other.
    fn settle(&self) {
        let prepared = "SELECT datname FROM pg_database WHERE datname LIKE 'pgfresh_preparing_%'";
        wait_until("no database in preparation", || {
            let ready = self.server.leases.status().ready[0].1;
            ready > 1 && ready == self.ready().len() && self.server.admin(prepared).is_empty()
        });
    }

    /// Names of the ready databases.
    fn ready(&self) -> Vec<String> {
        let ready = "SELECT datname FROM pg_database WHERE datname LIKE 'pgfresh_ready_%' ORDER BY oid";
        self.server.admin(ready).concat().into_iter().flatten().collect()
    }

    /// Leases that nobody has had before are empty, and brief.
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

    /// More leases at once than databases are ready are empty.
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

    /// Two databases change their names, in one transaction.
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

    /// Another database gets a name and the oid that went with it.
    fn replace(&mut self, name: &str, template: &str) {
        let sql = format!("SELECT oid FROM pg_database WHERE datname = {}", server::literal(name));
        let oid = self.server.admin(&sql)[0][0].clone().unwrap();
        self.sql(&format!("DROP DATABASE {}", quoted(name)));
        self.sql(&format!("CREATE DATABASE {} TEMPLATE {} OID {oid}", quoted(name), quoted(template)));
        let rows = self.databases[template].rows.clone();
        self.databases.get_mut(name).unwrap().rows = rows;
    }

    /// A database that is ready for a lease gets a name by SQL, or goes.
    fn take_ready(&mut self, name: &str) {
        let ready =
            "SELECT datname FROM pg_database WHERE datname LIKE 'pgfresh_ready_%' ORDER BY random() LIMIT 1";
        let Some(ready) = self.server.admin(ready).concat().into_iter().flatten().next() else { return };
        let mut session = self.server.started.server.session("postgres").unwrap();
        if self.random.chance(30) {
            // pgfresh may be dropping it.
            drop(session.query(&format!("DROP DATABASE {ready} WITH (FORCE)")));
            return;
        }
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{ready}'; \
             ALTER DATABASE {ready} RENAME TO {}",
            quoted(name)
        );
        // A ready database accepts no connections.
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

    /// Looks at all that is there, and removes it: nothing may be left.
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
        // pgfresh does not know yet that SQL has dropped some of those that were ready.
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

/// Draws each step at random.
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

/// A backend waits in the database that SQL has made under the name of a lease. The end of the lease must not use it.
fn a_renamed_lease_is_left_to_sql(major: u32) {
    let mut played = open(major);
    // A database in which a backend may wait.
    played.many_leases();
    for [lease, renamed] in [[NAMES[0], NAMES[1]], [NAMES[2], NAMES[3]]] {
        played.session_that(true, lease);
        played.rename(lease, renamed);
        played.create(lease, renamed);
        played.session_that(true, lease);
        // It is no lease any more.
        drop(played.server.leases.release(lease));
        played.many_leases();
    }
    played.end();
}

/// SQL gives a ready database the name that a client requests next. pgfresh may choose that very database for the lease. It must not
/// mistake the name for its own.
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
        // pgfresh finds none of these. So it comes to the renamed one.
        for other in others {
            played.sql(&format!("DROP DATABASE {other} WITH (FORCE)"));
        }
        played.session_that(false, name);
        played.release(name);
        played.session_that(false, name);
    }
    played.end();
}
