//! Tests that pgfresh predicts the same waits for a suite's statements as two real sessions show.
//!
//! One session runs a statement from `migration.sql` in a transaction that stays open. The other session runs each
//! statement from `suite.sql`. A statement waits if it fails because of `lock_timeout`, which never ends a statement
//! that doesn't wait. The prediction only uses the plans, the catalogs, and the first session's locks.

use std::collections::BTreeMap;

use migrations::suite::{LockReason, StatementNeeds, blocked, needs};
use migrations::{LockMode, ObservedStatement, RelationLock};
use plans::{BoundStatement, RelationKind, RelationName, SuiteStatement};
use server::{AdminConnection, SessionError};
use template::{Provisioner, ServerOptions, Started};

use crate::common::depth::rounds;
use crate::common::random::Random;
use crate::common::watchdog::Watchdog;
use crate::common::{User, WAIT_TIMEOUT, ground, on_every_major, postgres};

on_every_major! {
    predicted_waits_are_those_of_sessions
}

pub(super) const SCHEMA: &str = include_str!("shop.sql");
const MIGRATION: &str = include_str!("migration.sql");
const SUITE: &str = include_str!("suite.sql");
/// Number of migration statements that a run selects at a depth of 1.
const USUAL: u32 = 25;
/// Minimum number of waiting pairs in a run that tries all pairs.
const LEAST_WAITS: usize = 500;

/// Server with a database.
pub(super) struct Database {
    started: Started,
    _watchdog: Watchdog,
}

impl Database {
    /// Starts a PostgreSQL `major` server and runs `sql` in a new database.
    pub(super) fn new(major: u32, sql: &str) -> Self {
        let place = ground::place(User::Ourselves);
        let options = ServerOptions {
            installation: postgres(major).parse().unwrap(),
            place: storage::PlaceRequest::At(place.clone()),
            settings: vec![("autovacuum".to_owned(), "off".to_owned())],
            ..ServerOptions::default()
        };
        let cache = storage::Cache::locate(Some(&ground::cache(User::Ourselves))).unwrap();
        let program = std::path::PathBuf::from(env!("CARGO_BIN_EXE_pgfresh"));
        let started = Provisioner::find(options, cache, program).unwrap().start(&|_| ()).unwrap();
        let database = Self { started, _watchdog: Watchdog::new(&place) };
        database.open("postgres").query("CREATE DATABASE shop").unwrap();
        let mut session = database.session();
        for statement in pgwire::split_statements(sql) {
            session.query(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        database
    }

    /// Opens a session as a client would.
    pub(super) fn session(&self) -> AdminConnection {
        self.open("shop")
    }

    pub(super) fn open(&self, database: &str) -> AdminConnection {
        let socket = self.started.server.run().socket_directory();
        AdminConnection::open(&socket, "postgres", database, WAIT_TIMEOUT).unwrap()
    }
}

/// Returns the statements in `sql` as a suite's statements.
pub(super) fn suite(sql: &str) -> Vec<SuiteStatement> {
    let statements = pgwire::split_statements(sql).into_iter().map(|text| SuiteStatement {
        statement: BoundStatement { text: text.to_owned(), ..BoundStatement::default() },
        normalized: text.to_owned(),
        ..SuiteStatement::default()
    });
    statements.collect()
}

/// Names of relations by OID.
pub(super) type Names = BTreeMap<String, RelationName>;

pub(super) fn names(session: &mut AdminConnection) -> Names {
    let sql =
        "SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace";
    let rows = session.query(sql).unwrap();
    let name = |row: Vec<Option<String>>| {
        let [oid, schema, name] = <[_; 3]>::try_from(row).unwrap().map(Option::unwrap);
        (oid, RelationName { schema, name })
    };
    rows.into_iter().map(name).collect()
}

/// Begins a transaction with a statement, and returns its locks.
pub(super) fn begin(session: &mut AdminConnection, sql: &str, names: &Names) -> ObservedStatement {
    session.query(&format!("BEGIN; {sql}")).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let locks = "SELECT relation, mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation >= 16384";
    let lock = |row: Vec<Option<String>>| {
        let [oid, mode] = <[_; 2]>::try_from(row).unwrap().map(Option::unwrap);
        let (relation, mode) = (names.get(&oid)?.clone(), LockMode::from_catalog(&mode)?);
        Some(RelationLock { relation, kind: RelationKind::Unknown, mode })
    };
    let locks = session.query(locks).unwrap().into_iter().filter_map(lock).collect();
    ObservedStatement { sql: sql.to_owned(), locks, ..ObservedStatement::default() }
}

/// Returns whether the statement makes a new session wait for a lock.
fn waits(database: &Database, sql: &str) -> bool {
    let mut session = database.session();
    match session.query(&format!("BEGIN; SET LOCAL lock_timeout = '15ms'; {sql}; ROLLBACK")) {
        Ok(_) => false,
        Err(SessionError::Server { sqlstate, .. }) if sqlstate == "55P03" => true,
        Err(error) => panic!("{sql}: {error}"),
    }
}

fn predicted_waits_are_those_of_sessions(major: u32) {
    let database = Database::new(major, SCHEMA);
    let mut session = database.session();
    let suite = suite(SUITE);
    let needs = needs(&mut session, &suite).unwrap();
    for need in &needs {
        assert_eq!(need.error, None, "{}", need.statement);
    }
    let names = names(&mut session);
    let (mut wrong, mut waiting, mut free) = (Vec::new(), 0, 0);
    let migration = pgwire::split_statements(MIGRATION);
    let drawn = draw(&migration);
    for migration in &drawn {
        let observed = begin(&mut session, migration, &names);
        for need in &needs {
            let is_waiting = waits(&database, &need.statement);
            if is_waiting {
                waiting += 1;
            } else {
                free += 1;
            }
            wrong.extend(difference(need, &observed, is_waiting));
        }
        session.query("ROLLBACK").unwrap();
    }
    println!("{waiting} pairs wait, {free} do not");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), waiting + free, wrong.join("\n"));
    assert!(drawn.len() < migration.len() || waiting >= LEAST_WAITS, "{waiting} of {} wait", waiting + free);
}

/// Selects random statements, and keeps their order.
fn draw<'a>(all: &[&'a str]) -> Vec<&'a str> {
    let mut random = Random::new();
    let mut drawn = all.to_vec();
    while drawn.len() > rounds(USUAL) as usize {
        drawn.remove(random.below(drawn.len()));
    }
    drawn
}

/// Describes how a prediction differs from what a session did.
fn difference(need: &StatementNeeds, observed: &ObservedStatement, waits: bool) -> Option<String> {
    let predicted = blocked(std::slice::from_ref(need), observed);
    let may_wait = LockReason::Partition.to_string();
    let is_right = match predicted.first() {
        None => !waits || !need.unseen.is_empty(),
        // With its actual values, the suite's statement might visit a different partition.
        Some(blocked) => waits || blocked.because == Some(may_wait),
    };
    let verb = if waits { "waits" } else { "does not wait" };
    (!is_right).then(|| {
        format!(
            "{} {verb} for {}\n  predicted {predicted:?}\n  needs {:?}",
            need.statement, observed.sql, need.locks
        )
    })
}
