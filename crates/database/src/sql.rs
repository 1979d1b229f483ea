//! Words of SQL, and the sessions that pgfresh itself has with the server.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use server::{Rows, SUPERUSER, Session};

use crate::DatabaseError;

/// How long a statement of ours may take: the copy of a large template is the longest.
const PATIENCE: Duration = Duration::from_mins(10);
/// Makes a session of ours independent of what a template or `ALTER SYSTEM` has set.
const PLAIN: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
    SET client_min_messages = error; SET default_transaction_read_only = off; SET standard_conforming_strings = on; \
    SET search_path = pg_catalog";

/// A name as SQL wants it.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL wants it.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Sessions with the database `postgres`, opened when needed and used again.
#[derive(Debug)]
pub(crate) struct Clerks {
    directory: PathBuf,
    idle: Mutex<Vec<Session>>,
}

impl Clerks {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, idle: Mutex::new(Vec::new()) }
    }

    /// Runs `sql`; `verb` is what it is for. A session whose connection failed is not used again.
    pub(crate) fn run(&self, verb: &'static str, sql: &str) -> Result<Rows, DatabaseError> {
        let waiting = self.lock().pop();
        let mut session = match waiting {
            Some(session) => session,
            None => open(&self.directory, "postgres")?,
        };
        let result = session.query(sql);
        if !matches!(result, Err(server::SessionError::Io { .. })) {
            self.lock().push(session);
        }
        result.map_err(|source| DatabaseError::Sql { verb, source })
    }

    /// A session of ours with another database.
    pub(crate) fn open(&self, database: &str) -> Result<Session, DatabaseError> {
        open(&self.directory, database)
    }

    /// Closes the idle ones.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Opens a session of ours with `database`.
pub(crate) fn open(directory: &std::path::Path, database: &str) -> Result<Session, DatabaseError> {
    let verb = "open a session";
    let sql = |source| DatabaseError::Sql { verb, source };
    let mut session = Session::open(directory, SUPERUSER, database, PATIENCE).map_err(sql)?;
    session.query(PLAIN).map_err(sql)?;
    Ok(session)
}
