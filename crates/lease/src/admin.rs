//! Manages pgfresh's own connections to its server, and builds SQL for them.
//!
//! Through these connections, pgfresh creates, renames, resets and drops databases. They are pooled, because opening a
//! connection takes longer than most statements.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use server::{AdminConnection, Rows, SessionError, Setting, admin_params, literal, set_admin_settings};
use sys::{lock, sound};

use crate::address::{DatabaseAddress, list_of, oid_in};
use crate::error::LeaseError;
use crate::lsn::Lsn;

/// Timeout for one of pgfresh's own statements. Copying a large template takes the longest.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(10);
/// How long a statement waits for a pooled connection. Usually, another statement soon finishes and
/// returns its connection. But in a stopped server, no statement finishes before its own timeout.
const POOL_TIMEOUT: Duration = Duration::from_mins(10);
/// How long the server may take to recover from a crash caused by a test.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between attempts to connect during a recovery, because the server doesn't signal when it is ready.
const RECOVERY_POLL: Duration = Duration::from_millis(10);
/// How long a client's session waits until the server has room for it. In the meantime, pgfresh terminates idle
/// sessions, and sessions of disconnected clients finish.
pub(crate) const ROOM_TIMEOUT: Duration = Duration::from_millis(500);
/// Like [`ROOM_TIMEOUT`], but for pgfresh's own sessions. Clients leave room for these, but on a busy machine, other
/// sessions take a while to exit.
const OWN_ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// Initial interval between attempts to start a session in a full server, doubled each time up to
/// [`LONGEST_ROOM_POLL`]. Sessions usually exit within a few milliseconds, but the server doesn't signal this.
const ROOM_POLL: Duration = Duration::from_millis(2);
const LONGEST_ROOM_POLL: Duration = Duration::from_millis(50);
/// Lowest limit on the number of connections. Three maintenance workers may copy or drop databases simultaneously,
/// which leaves one connection for clients.
const LEAST_CONNECTIONS: usize = 4;
/// How many connections pgfresh needs while clients arrive one at a time.
const SERIAL: usize = 2;
/// SQLSTATE of the error when the server has no room for another session (`too_many_connections`).
const TOO_MANY_CONNECTIONS: &str = "53300";

/// Settings that make statements on pooled connections use indexes. The server plans each statement once, while
/// `pg_database` has only a page or two and a sequential scan seems cheap. But every lease leaves behind two dead rows,
/// which a sequential scan would read and an index scan doesn't.
const FOR_EVERY_LEASE: [Setting; 2] = [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off")];

/// Writes a record to the log and returns its position. Once the transaction has committed, everything up to that
/// position is in the log's files.
pub(crate) const MARK: &str = "SELECT pg_catalog.pg_logical_emit_message(true, 'pgfresh', '')";

/// Selects the oid of a server process's ($1) database.
pub(crate) const DATABASE_OF: Prepared =
    Prepared { name: "database_of", types: &["int4"], sql: "SELECT datid FROM pg_stat_get_activity($1)" };

const PREPARED_MARK: Prepared = Prepared { name: "mark", types: &[], sql: MARK };

/// A statement that runs in every lease. Since planning takes several times as long as running, each connection
/// prepares the statement once.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Name of the prepared statement.
    pub(crate) name: &'static str,
    /// Types of the parameters. Empty if there are none.
    pub(crate) types: &'static [&'static str],
    pub(crate) sql: &'static str,
}

/// Something that can terminate sessions to make room in the server.
pub(crate) trait MakeRoom: Debug + Send + Sync {
    /// Terminates idle sessions, which are just waiting for clients.
    fn make_room(&self);
}

/// A pool of connections to the database `postgres`, opened as needed up to a limit. At the limit, callers wait.
#[derive(Debug)]
pub(crate) struct AdminPool {
    directory: PathBuf,
    major: u32,
    room: Arc<dyn MakeRoom>,
    connections: Mutex<Connections>,
    put_back: Condvar,
    /// A thread that acquires several connections takes this lock first, so that two such threads can't deadlock.
    practising: Mutex<()>,
}

#[derive(Debug)]
struct Connections {
    idle: Vec<PreparedConnection>,
    /// Number of connections in use.
    lent: usize,
    most: usize,
    /// Number of callers waiting for a connection. While this is 0, returning a connection doesn't need a system call
    /// to wake a caller.
    waiting: usize,
}

/// The right to use one of the pool's connections.
#[derive(Debug)]
struct Slot<'a>(&'a AdminPool);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut connections = lock(&self.0.connections);
        connections.lent -= 1;
        if connections.waiting > 0 {
            self.0.put_back.notify_one();
        }
    }
}

/// One of pgfresh's own connections, with superuser rights.
#[derive(Debug)]
pub(crate) struct PreparedConnection {
    session: AdminConnection,
    /// Names of the statements already prepared on this connection.
    prepared: Vec<&'static str>,
}

impl PreparedConnection {
    /// Returns the connection, or `None` if a test has terminated it.
    fn if_alive(mut self) -> Option<Self> {
        self.session.is_alive().then_some(self)
    }

    /// Runs a prepared statement. `arguments` are in SQL syntax.
    fn execute(&mut self, statement: &Prepared, arguments: &[&str]) -> Result<Rows, SessionError> {
        let sql = self.call(statement, arguments)?;
        self.session.query(&sql)
    }

    /// Runs a prepared statement and then writes a mark, in one message and one transaction.
    fn execute_and_mark(&mut self, statement: &Prepared, arguments: &[&str]) -> Result<Rows, SessionError> {
        let sql = format!("{}; {}", self.call(statement, arguments)?, self.call(&PREPARED_MARK, &[])?);
        self.session.query(&sql)
    }

    /// Returns SQL that runs a statement, preparing it first if necessary.
    fn call(&mut self, statement: &Prepared, arguments: &[&str]) -> Result<String, SessionError> {
        let Prepared { name, types, sql } = statement;
        if !self.prepared.contains(name) {
            self.session.query(&format!("PREPARE {name}{} AS {sql}", list(types)))?;
            self.prepared.push(name);
        }
        Ok(format!("EXECUTE {name}{}", list(arguments)))
    }
}

impl AdminPool {
    pub(crate) fn new(directory: PathBuf, major: u32, room: Arc<dyn MakeRoom>) -> Self {
        let connections =
            Mutex::new(Connections { idle: Vec::new(), lent: 0, most: LEAST_CONNECTIONS, waiting: 0 });
        Self { directory, major, room, connections, put_back: Condvar::new(), practising: Mutex::default() }
    }

    /// Limits the number of connections in use to `most`, but at least [`LEAST_CONNECTIONS`]. Returns the limit.
    pub(crate) fn bound(&self, most: usize) -> usize {
        let most = most.max(LEAST_CONNECTIONS);
        lock(&self.connections).most = most;
        most
    }

    /// Runs `sql`, retrying once if the connection is lost. In errors, `verb` describes the purpose of the statement.
    pub(crate) fn run(&self, verb: &'static str, sql: &str) -> Result<Rows, LeaseError> {
        self.lend(verb, |connection| connection.session.query(sql))
    }

    /// Runs `sql` without a retry. If the connection is lost, the server may or may not have run it.
    pub(crate) fn run_once(&self, verb: &'static str, sql: &str) -> Result<Rows, LeaseError> {
        let (_slot, mut connection) = self.take(verb)?;
        let result = connection.session.query(sql);
        self.keep(connection, &result);
        result.map_err(|source| LeaseError::Sql { verb, source })
    }

    /// Prepares `statements` ahead of time, so that no client has to wait for this. While clients arrive one at a time,
    /// pgfresh needs two connections, because the end of one lease overlaps with the beginning of the next, so this
    /// prepares that many. Since the server plans a statement when it first runs, this runs each one with arguments
    /// that match no database.
    pub(crate) fn practise(&self, statements: &[&Prepared]) {
        let Ok(_practising) = self.practising.try_lock() else { return };
        let lent: Vec<_> = (0..SERIAL).map_while(|_| self.take("prepare a statement").ok()).collect();
        for (_slot, mut connection) in lent {
            let unknown =
                statements.iter().filter(|statement| !connection.prepared.contains(&statement.name));
            let mut result = Ok(Rows::new());
            for statement in unknown.copied().collect::<Vec<_>>() {
                let argument = |of: &&str| match *of {
                    "oid" | "int4" => "0",
                    "name[]" => "'{}'",
                    _ => "''",
                };
                let nothing: Vec<_> = statement.types.iter().map(argument).collect();
                result = result.and_then(|_| connection.execute_and_mark(statement, &nothing));
            }
            if let Err(error) = &result {
                tracing::debug!(%error, "a statement was not prepared");
            }
            self.keep(connection, &result);
        }
    }

    /// Runs a prepared statement, retrying once if the connection is lost. `arguments` are in SQL syntax.
    pub(crate) fn execute(
        &self,
        verb: &'static str,
        statement: &Prepared,
        arguments: &[&str],
    ) -> Result<Rows, LeaseError> {
        self.lend(verb, |connection| connection.execute(statement, arguments))
    }

    /// Returns the oid of a server process's database, or `None` if the process has exited or has no database.
    pub(crate) fn database_of(&self, process: u32) -> Result<Option<u32>, LeaseError> {
        let rows = self.execute("look at a session", &DATABASE_OF, &[&process.to_string()])?;
        Ok(oid_in(&rows))
    }

    /// Runs a prepared statement like [`Self::execute`] and then writes a mark in the same transaction. Returns
    /// the statement's rows and the mark's position. The server has flushed the log up to this position.
    pub(crate) fn execute_and_mark(
        &self,
        verb: &'static str,
        statement: &Prepared,
        arguments: &[&str],
    ) -> Result<(Rows, Lsn), LeaseError> {
        Ok(split_mark(self.lend(verb, |connection| connection.execute_and_mark(statement, arguments))?))
    }

    /// Runs a prepared statement that renames a database, like [`Self::execute_and_mark`]. Its parameters are the oid,
    /// the new name and `names`. The statement changes nothing unless the database has one of `names`.
    ///
    /// If the connection is lost, adds the new name to `names`, because the server may have renamed the database
    /// before. Until then only SQL can have given the database this name.
    pub(crate) fn rename_and_mark(
        &self,
        verb: &'static str,
        statement: &Prepared,
        to: &DatabaseAddress,
        names: &mut BTreeSet<String>,
    ) -> Result<(Rows, Lsn), LeaseError> {
        let renamed = self.lend(verb, |connection| {
            let arguments = [&*to.oid.to_string(), &literal(&to.name), &list_of(&*names)];
            let renamed = connection.execute_and_mark(statement, &arguments);
            if renamed.as_ref().is_err_and(SessionError::is_fatal) {
                names.insert(to.name.clone());
            }
            renamed
        })?;
        Ok(split_mark(renamed))
    }

    /// Runs `work` on a pooled connection. Some tests terminate connections, including pgfresh's own, so if the
    /// connection is lost, this runs `work` again on a new one.
    fn lend(
        &self,
        verb: &'static str,
        mut work: impl FnMut(&mut PreparedConnection) -> Result<Rows, SessionError>,
    ) -> Result<Rows, LeaseError> {
        let (_slot, mut connection) = self.take(verb)?;
        let mut result = work(&mut connection);
        if result.as_ref().is_err_and(SessionError::is_fatal) {
            self.close();
            connection = self.open_admin(verb)?;
            result = work(&mut connection);
        }
        self.keep(connection, &result);
        result.map_err(|source| LeaseError::Sql { verb, source })
    }

    fn take(&self, verb: &'static str) -> Result<(Slot<'_>, PreparedConnection), LeaseError> {
        self.take_within(POOL_TIMEOUT, verb)
    }

    fn take_within(
        &self,
        timeout: Duration,
        verb: &'static str,
    ) -> Result<(Slot<'_>, PreparedConnection), LeaseError> {
        let is_at_bound = |connections: &mut Connections| connections.lent >= connections.most;
        let mut connections = lock(&self.connections);
        connections.waiting += 1;
        let waited = self.put_back.wait_timeout_while(connections, timeout, is_at_bound);
        let (mut connections, waited) = sound(waited);
        connections.waiting -= 1;
        if waited.timed_out() {
            return Err(LeaseError::NoConnection { verb, waited: timeout });
        }
        connections.lent += 1;
        let idle = std::iter::from_fn(|| connections.idle.pop()).find_map(PreparedConnection::if_alive);
        drop(connections);
        let slot = Slot(self);
        Ok((slot, idle.map_or_else(|| self.open_admin(verb), Ok)?))
    }

    /// Returns a connection to the pool, unless `result` shows that it is lost.
    fn keep(&self, connection: PreparedConnection, result: &Result<Rows, SessionError>) {
        if !result.as_ref().is_err_and(SessionError::is_fatal) {
            lock(&self.connections).idle.push(connection);
        }
    }

    /// Adds an existing superuser session in the database `postgres` to the pool. The session must not have changed any
    /// settings.
    pub(crate) fn adopt(&self, session: AdminConnection) -> Result<(), LeaseError> {
        let adopt = || {
            let mut session = AdminConnection::adopt(session.release()?, STATEMENT_TIMEOUT)?;
            session.query(&set_admin_settings(self.major, &FOR_EVERY_LEASE))?;
            Ok(PreparedConnection { session, prepared: Vec::new() })
        };
        let connection = adopt().map_err(|source| LeaseError::Sql { verb: "open a session", source })?;
        lock(&self.connections).idle.push(connection);
        Ok(())
    }

    fn open_admin(&self, verb: &'static str) -> Result<PreparedConnection, LeaseError> {
        let session = self.open_with("postgres", &FOR_EVERY_LEASE).map_err(|error| match error {
            LeaseError::Sql { source, .. } => LeaseError::Sql { verb, source },
            other => other,
        })?;
        Ok(PreparedConnection { session, prepared: Vec::new() })
    }

    /// Opens a session, unaffected by clients' settings, in the database that has this name now. Waits while the server
    /// is recovering.
    pub(crate) fn open_named(&self, name: &str) -> Result<AdminConnection, LeaseError> {
        self.open_with(name, &[])
    }

    /// Opens a session in exactly this database, with additional `settings`.
    ///
    /// # Errors
    /// Returns [`LeaseError::NotLeased`] if SQL has given the name to another database.
    pub(crate) fn open_in(
        &self,
        database: &DatabaseAddress,
        settings: &[Setting],
    ) -> Result<AdminConnection, LeaseError> {
        let mut session = self.open_with(&database.name, settings)?;
        database.expect_session(&mut session)?;
        Ok(session)
    }

    fn open_with(&self, database: &str, settings: &[Setting]) -> Result<AdminConnection, LeaseError> {
        let (begun, params) = (Instant::now(), admin_params(self.major, settings));
        let open = || loop {
            match AdminConnection::open_with(&self.directory, &params, database, STATEMENT_TIMEOUT) {
                Err(error) if error.is_starting() && begun.elapsed() < RECOVERY_TIMEOUT => {
                    thread::sleep(RECOVERY_POLL);
                }
                other => {
                    return other.map_err(|source| LeaseError::Sql { verb: "open a session", source });
                }
            }
        };
        self.with_room(OWN_ROOM_TIMEOUT, open, |error| error.sqlstate() == TOO_MANY_CONNECTIONS)
    }

    /// Starts a session. If the server has no room, this terminates idle sessions and retries until `timeout` is over.
    pub(crate) fn with_room<T>(
        &self,
        timeout: Duration,
        start: impl Fn() -> Result<T, LeaseError>,
        is_full: impl Fn(&LeaseError) -> bool,
    ) -> Result<T, LeaseError> {
        let (begun, mut pause) = (Instant::now(), ROOM_POLL);
        loop {
            let result = start();
            if !result.as_ref().is_err_and(&is_full) || begun.elapsed() > timeout {
                return result;
            }
            self.room.make_room();
            self.close();
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_ROOM_POLL);
        }
    }

    /// Runs `work` in a new session in `database`, retrying once in another session if the first is lost.
    pub(crate) fn ask<T>(
        &self,
        database: &DatabaseAddress,
        verb: &'static str,
        mut work: impl FnMut(&mut AdminConnection) -> Result<T, SessionError>,
    ) -> Result<T, LeaseError> {
        let mut attempt = || {
            let mut session = self.open_in(database, &[])?;
            work(&mut session).map_err(|source| LeaseError::Sql { verb, source })
        };
        attempt().or_else(|error| if error.is_lost() { attempt() } else { Err(error) })
    }

    /// Closes the idle connections.
    pub(crate) fn close(&self) {
        lock(&self.connections).idle.clear();
    }
}

/// Separates a statement's rows from the mark following them.
fn split_mark(mut rows: Rows) -> (Rows, Lsn) {
    let mark = mark_of(&rows);
    rows.pop();
    (rows, mark)
}

/// Maximum number of SELECTs in a UNION. The server parses a UNION recursively, and its stack is limited.
const TOGETHER: usize = 100;

/// Runs any number of SELECTs with identical columns and returns all their rows.
pub(crate) fn union(session: &mut AdminConnection, selects: &[String]) -> Result<Rows, SessionError> {
    let mut rows = Rows::new();
    for some in selects.chunks(TOGETHER) {
        rows.extend(session.query(&some.join(" UNION ALL "))?);
    }
    Ok(rows)
}

/// Converts a quoted name to ASCII by escaping all other characters, so that its meaning doesn't depend on the
/// session's encoding. Nor does it depend on `standard_conforming_strings`, which affects only string literals.
pub(crate) fn ascii(name: &str) -> String {
    if name.is_ascii() {
        return name.to_owned();
    }
    let (mut sql, mut is_quoted) = (String::new(), false);
    let mut chars = name.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if is_quoted && chars.next_if_eq(&'"').is_some() => sql.push_str("\"\""),
            '"' => {
                sql.push_str(if is_quoted { "\"" } else { "U&\"" });
                is_quoted = !is_quoted;
            }
            '\\' => sql.push_str("\\\\"),
            _ if char.is_ascii() => sql.push(char),
            _ => sql.push_str(&format!("\\+{:06x}", u32::from(char))),
        }
    }
    sql
}

/// Returns the items in parentheses. For no items, the result is empty, because SQL doesn't allow an empty list here.
fn list(items: &[&str]) -> String {
    if items.is_empty() { String::new() } else { format!("({})", items.join(", ")) }
}

/// Returns the position returned by [`MARK`] in the first column of the last row, or zero if missing.
pub(crate) fn mark_of(rows: &Rows) -> Lsn {
    let last = rows.last().and_then(|row| row.first()?.as_deref()?.parse().ok());
    last.unwrap_or(Lsn(0))
}

/// Returns the first column of the first row, or an empty string if missing.
pub(crate) fn text(rows: &Rows) -> String {
    rows.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default()
}

/// Parses an oid. Returns 0 if the text isn't a number.
pub(crate) fn number(text: &str) -> u32 {
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `MakeRoom` without any sessions to terminate.
    #[derive(Debug)]
    struct Full;

    impl MakeRoom for Full {
        fn make_room(&self) {}
    }

    #[test]
    fn admin_statement_times_out_without_free_connection() {
        let directory = tempfile::tempdir().unwrap();
        let pool = AdminPool::new(directory.path().to_owned(), 18, Arc::new(Full));
        let lent: Vec<_> = (0..LEAST_CONNECTIONS)
            .map(|_| {
                lock(&pool.connections).lent += 1;
                Slot(&pool)
            })
            .collect();
        let take = || pool.take_within(Duration::from_millis(10), "look").map(drop).unwrap_err();
        assert!(matches!(take(), LeaseError::NoConnection { verb: "look", .. }));
        drop(lent);
        // There is no server.
        assert!(matches!(take(), LeaseError::Sql { verb: "look", .. }));
    }

    #[test]
    fn a_name_is_ascii_whatever_is_in_it() {
        for (name, sql) in [
            ("public.t", "public.t"),
            (r#""a\b".t"#, r#""a\b".t"#),
            ("public.\"größe\"", r#"public.U&"gr\+0000f6\+0000dfe""#),
            ("\"a\\\"\"\u{f6}\".\"\u{1f600}\"", r#"U&"a\\""\+0000f6".U&"\+01f600""#),
        ] {
            assert_eq!(ascii(name), sql);
        }
    }
}
