//! Words of SQL, and the sessions that pgfresh itself has with the server.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use server::{Rows, SUPERUSER, Session, SessionError};

use crate::LeaseError;

/// How long a statement of ours may take: the copy of a large template is the longest.
const PATIENCE: Duration = Duration::from_mins(10);
/// Makes a session of ours independent of what a template or `ALTER SYSTEM` has set.
const PLAIN: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
    SET client_min_messages = error; SET default_transaction_read_only = off; SET standard_conforming_strings = on; \
    SET search_path = pg_catalog; SET plan_cache_mode = force_generic_plan";

/// A name as SQL wants it.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL wants it.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A statement that is run for every lease. To plan one of these takes several times as long as to run it, so each clerk
/// does that once.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Names it in a session.
    pub(crate) name: &'static str,
    /// The types of its parameters, if it has any.
    pub(crate) types: &'static [&'static str],
    pub(crate) sql: &'static str,
}

/// Sessions with the database `postgres`, opened when needed and used again.
#[derive(Debug)]
pub(crate) struct Clerks {
    directory: PathBuf,
    idle: Mutex<Vec<Clerk>>,
}

#[derive(Debug)]
struct Clerk {
    session: Session,
    /// Names of the statements that it has prepared.
    prepared: Vec<&'static str>,
}

impl Clerks {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, idle: Mutex::new(Vec::new()) }
    }

    /// Runs `sql`; `verb` is what it is for.
    pub(crate) fn run(&self, verb: &'static str, sql: &str) -> Result<Rows, LeaseError> {
        self.lend(verb, |clerk| clerk.session.query(sql))
    }

    /// Runs a prepared statement with `arguments`, each as SQL wants it.
    pub(crate) fn execute(
        &self,
        verb: &'static str,
        statement: &Prepared,
        arguments: &[&str],
    ) -> Result<Rows, LeaseError> {
        let Prepared { name, types, sql } = statement;
        self.lend(verb, |clerk| {
            if !clerk.prepared.contains(name) {
                clerk.session.query(&format!("PREPARE {name}{} AS {sql}", list(types)))?;
                clerk.prepared.push(name);
            }
            clerk.session.query(&format!("EXECUTE {name}{}", list(arguments)))
        })
    }

    /// Has a clerk do something. One whose connection failed is not asked again.
    fn lend(
        &self,
        verb: &'static str,
        work: impl FnOnce(&mut Clerk) -> Result<Rows, SessionError>,
    ) -> Result<Rows, LeaseError> {
        let waiting = self.lock().pop();
        let mut clerk = match waiting {
            Some(clerk) => clerk,
            None => Clerk { session: self.open("postgres")?, prepared: Vec::new() },
        };
        let result = work(&mut clerk);
        if !matches!(result, Err(SessionError::Io { .. })) {
            self.lock().push(clerk);
        }
        result.map_err(|source| LeaseError::Sql { verb, source })
    }

    /// A session of ours with another database.
    pub(crate) fn open(&self, database: &str) -> Result<Session, LeaseError> {
        open(&self.directory, database)
    }

    /// Closes the idle ones.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Clerk>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In parentheses, which there may be only around something.
fn list(items: &[&str]) -> String {
    if items.is_empty() { String::new() } else { format!("({})", items.join(", ")) }
}

/// Opens a session of ours with `database`.
fn open(directory: &Path, database: &str) -> Result<Session, LeaseError> {
    let verb = "open a session";
    let sql = |source| LeaseError::Sql { verb, source };
    let mut session = Session::open(directory, SUPERUSER, database, PATIENCE).map_err(sql)?;
    session.query(PLAIN).map_err(sql)?;
    Ok(session)
}
