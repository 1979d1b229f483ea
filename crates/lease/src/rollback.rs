//! A session in whose one transaction a lease in rollback isolation is played, and a database for it alone.
//!
//! The gateway lends the session to one client after another. At the lease's end all is rolled back, and the log is read:
//! nothing but sequences may have survived, and these are set back.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pgwire::StartupParams;
use server::{AdminConnection, Rows, SessionError};

use crate::Backend;
use crate::admin::{MARK, mark_of};
use crate::backend::{CatalogStamp, will_serve};
use crate::catalog::{Content, FileMap, Sequence, TemplateCatalog};
use crate::evidence::Evidence;
use crate::reset::NotRecyclable;
use crate::seats::Seat;
use crate::wal::{Changes, Lsn};

/// The transaction of a lease, and the proof that it is still the same at its end.
pub const BEGIN_LEASE: [&str; 2] =
    ["BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", "SAVEPOINT pgfresh_lease"];
/// Undoes the client's own transaction, which is a savepoint.
pub const UNDO_TRANSACTION: &str = "ROLLBACK TO SAVEPOINT pgfresh_t";
/// Ends the savepoint that is the client's own transaction.
pub const RELEASE_TRANSACTION: &str = "RELEASE SAVEPOINT pgfresh_t";
/// DISCARD ALL, which no transaction allows, in its parts, which all do. Source: `DiscardAll`.
pub const DISCARD_ALL: [&str; 9] = [
    "CLOSE ALL",
    "SET SESSION AUTHORIZATION DEFAULT",
    "RESET ALL",
    "DEALLOCATE ALL",
    "UNLISTEN *",
    "SELECT pg_catalog.pg_advisory_unlock_all()",
    "DISCARD PLANS",
    "DISCARD TEMP",
    "DISCARD SEQUENCES",
];
/// Sequences that are looked at one by one: beyond, they are set back together, in a message of their own.
const MOST_GUESSED: usize = 32;
/// How long a statement of ours may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// A message to a server that is idle in a transaction, which it does not answer: it stops counting for how long it has been idle,
/// until the next ReadyForQuery, whatever `idle_in_transaction_session_timeout` is. Source: `PostgresMain`.
pub const STAY_IDLE: &[u8] = b"H\0\0\0\x04";
/// Switches off, for the lease's transaction, the timeout that would end it. From `PostgreSQL` 17 on.
pub const UNBOUNDED: &str = "SET LOCAL transaction_timeout = 0";

/// The one transaction of a lease, as one session leaves it to the next.
#[derive(Debug, Clone)]
pub struct LeaseTransaction {
    /// Whether it has begun.
    pub begun: bool,
    /// What has become of the client's own transaction in it.
    pub savepoint: Savepoint,
    /// Whether the server's session could still be taken for a new one once it has discarded all.
    pub leaves_nothing: bool,
    /// What is known of the constraints in it.
    pub constraints: Constraints,
    /// The `transaction_timeout` of the client's own transactions, empty for none: that of the lease's is 0 between them.
    pub timeout: String,
}

/// The savepoint that is the client's own transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Savepoint {
    /// There is none.
    #[default]
    Gone,
    /// The client's transaction goes on.
    Open,
    /// It has ended well. The savepoint is released together with what is sent next: a message of its own would wake the server
    /// for nothing.
    Done,
}

/// What is known of the constraints in a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Constraints {
    /// The count of changes at which it was read.
    pub seen: Option<String>,
    /// Names of those that are deferrable, as SQL wants them; empty if there are none.
    pub deferrable: String,
    /// Names of those that are deferred at first.
    pub deferred: String,
    /// Texts of functions and other objects that may change settings.
    pub sources: Vec<String>,
    /// Whether the client has used SET CONSTRAINTS: what it said of ALL holds for those that are made later, too.
    pub told: bool,
}

impl Default for LeaseTransaction {
    fn default() -> Self {
        Self {
            begun: false,
            savepoint: Savepoint::Gone,
            leaves_nothing: true,
            constraints: Constraints::default(),
            timeout: String::new(),
        }
    }
}

impl LeaseTransaction {
    /// What of it holds for the next lease, when it was rolled back: what is known of the constraints, if there were no
    /// changes.
    fn of_next_lease(self) -> Self {
        let constraints = match self.constraints {
            Constraints { seen: Some(seen), deferrable, deferred, sources, .. } if seen == "0" => {
                Constraints { seen: Some(seen), deferrable, deferred, sources, told: false }
            }
            _ => Constraints::default(),
        };
        Self { constraints, ..Self::default() }
    }
}

/// Between two leases it is as a new one.
#[derive(Debug)]
pub(crate) struct TransactionSession {
    pub(crate) params: StartupParams,
    pub(crate) greeting: Vec<u8>,
    pub(crate) stamp: CatalogStamp,
    /// How far the log was read before it started, where that has not been proven to be of no consequence.
    pub(crate) since: Option<Lsn>,
    /// Ours between two sessions of clients.
    stream: Option<UnixStream>,
    _seat: Seat,
    pub(crate) transaction: LeaseTransaction,
    /// Whether the last client may have left anything in the session that is not undone yet: settings, temporary tables, a
    /// transaction of its own and so on.
    has_leftovers: bool,
    /// The `transaction_timeout` that the session has begun with; empty for none.
    timeout: String,
    is_superuser: bool,
    /// Whether the client of a lease with another name would be greeted alike.
    pub(crate) may_greet_another: bool,
    /// Sequences that the last lease has touched: so will the next one, most likely.
    touched: BTreeSet<u32>,
}

impl TransactionSession {
    /// Takes over an unused session.
    pub(crate) fn new(
        params: StartupParams,
        backend: Backend,
        stamp: CatalogStamp,
        since: Option<Lsn>,
    ) -> Result<Self, SessionError> {
        let (is_superuser, may_greet_another) = (backend.is_superuser(), backend.may_greet_another());
        let Backend { stream, greeting, seat } = backend;
        let mut session = AdminConnection::adopt(stream, STATEMENT_TIMEOUT)?;
        let timeout = read_timeout(&mut session)?;
        Ok(Self {
            params,
            greeting,
            stamp,
            since,
            stream: Some(session.release()?),
            _seat: seat,
            transaction: LeaseTransaction::default(),
            has_leftovers: false,
            timeout,
            is_superuser,
            may_greet_another,
            touched: BTreeSet::new(),
        })
    }

    /// Whether the next client can have it. May wait for its answer.
    pub(crate) fn will_serve(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| will_serve(stream, &self.greeting))
    }

    /// The session, for a client; the transaction is begun if the next statement should not have to.
    pub(crate) fn lend(&mut self) -> Result<UnixStream, SessionError> {
        self.discard()?;
        self.transaction.timeout.clone_from(&self.timeout);
        if !self.transaction.begun && !self.timeout.is_empty() {
            let begin = format!("{}; {UNBOUNDED}; {}", BEGIN_LEASE[0], BEGIN_LEASE[1]);
            self.query_in_transaction(&begin)?;
            self.transaction.begun = true;
        }
        self.stream.take().ok_or_else(gone)
    }

    /// Takes the session back, which is idle, and its transaction.
    pub(crate) fn take_back(&mut self, stream: UnixStream, transaction: LeaseTransaction) {
        // Where it has not begun, the client has asked for nothing.
        self.has_leftovers = transaction.begun;
        (self.stream, self.transaction) = (Some(stream), transaction);
    }

    /// Undoes what the last client has left in the session. Only the data live on.
    ///
    /// # Errors
    /// The session is not to be used any more.
    pub(crate) fn discard(&mut self) -> Result<(), SessionError> {
        if !std::mem::take(&mut self.has_leftovers) {
            return Ok(());
        }
        let undo = match std::mem::take(&mut self.transaction.savepoint) {
            Savepoint::Gone => String::new(),
            Savepoint::Open => format!("{UNDO_TRANSACTION}; {RELEASE_TRANSACTION}; "),
            Savepoint::Done => format!("{RELEASE_TRANSACTION}; "),
        };
        let counts = !self.timeout.is_empty() || !self.transaction.timeout.is_empty();
        let again = if counts { format!("; {UNBOUNDED}") } else { String::new() };
        self.query_in_transaction(&format!("{undo}{}{again}", DISCARD_ALL.join("; ")))
    }

    /// Ends the lease: rolls back, sets back what that does not, and resets the session. `files` are the database's, if others
    /// than the template's. Returns the oids of the sequences that are to be set back by the caller, and how many rows were
    /// rolled back.
    pub(crate) fn roll_back(
        &mut self,
        evidence: &Evidence,
        oid: u32,
        catalog: &TemplateCatalog,
        files: Option<&FileMap>,
    ) -> Result<(BTreeSet<u32>, u64), NotRecyclable> {
        let undo = if self.transaction.begun {
            format!("ROLLBACK TO {}; ROLLBACK; ", BEGIN_LEASE[1])
        } else {
            String::new()
        };
        let undo = format!("{undo}{}; ", DISCARD_ALL.join("; "));
        // A guess saves a second message where it is right: the log tells whether these were all.
        let may_guess = self.is_superuser && self.touched.len() <= MOST_GUESSED;
        let guess = if may_guess { restore_touched(catalog, &self.touched) } else { String::new() };
        let rows = self.query(&marked(&undo, &guess))?;
        self.has_leftovers = false;
        self.transaction = std::mem::take(&mut self.transaction).of_next_lease();
        let restored: BTreeSet<u32> = rows.iter().filter_map(|row| restored(row)).collect();
        let changes = evidence.changes_up_to(mark_of(&rows), oid);
        if let Some(doubt) = changes.doubt {
            return Err(NotRecyclable::because(doubt));
        }
        if changes.committed {
            return Err(NotRecyclable::because("its transaction was not rolled back"));
        }
        let rows = changes.files.values().map(|change| change.inserted + change.updated).sum();
        let sequence = |number: u32| match files.unwrap_or(&catalog.files).get(number) {
            Some(Content::Sequence(oid)) => Some(oid),
            _ => None,
        };
        let touched = changes.files.iter().filter(|(_, change)| change.sequence);
        // What is not in the log may have been touched.
        let unlogged = catalog.unlogged.1.iter().copied();
        self.touched = touched.filter_map(|(file, _)| sequence(file.number)).chain(unlogged).collect();
        let mut left: BTreeSet<u32> = self.touched.difference(&restored).copied().collect();
        if self.is_superuser && !left.is_empty() {
            let rows = self.query(&marked("", &restore_sequences(catalog, &left)))?;
            are_only_sequences(&evidence.changes_up_to(mark_of(&rows), oid))?;
            left.clear();
        }
        Ok((left, rows))
    }

    /// Runs what leaves the lease's transaction open, for however long.
    fn query_in_transaction(&mut self, sql: &str) -> Result<(), SessionError> {
        self.query(sql)?;
        let stream = self.stream.as_mut().ok_or_else(gone)?;
        stream.write_all(STAY_IDLE).map_err(|source| SessionError::Io { verb: "use a session", source })
    }

    fn query(&mut self, sql: &str) -> Result<Rows, SessionError> {
        let mut session = AdminConnection::adopt(self.stream.take().ok_or_else(gone)?, STATEMENT_TIMEOUT)?;
        let rows = session.query(sql)?;
        self.stream = Some(session.release()?);
        Ok(rows)
    }
}

fn gone() -> SessionError {
    SessionError::Io { verb: "use a session", source: io::ErrorKind::NotConnected.into() }
}

/// What undoes something, then restores something in a transaction that marks the log.
fn marked(undo: &str, restore: &str) -> String {
    format!(
        "{undo}BEGIN READ WRITE; SET LOCAL synchronous_commit = on; {restore}{MARK}; COMMIT; DISCARD SEQUENCES"
    )
}

/// Whether nothing but sequences was changed while they were set back.
pub(crate) fn are_only_sequences(changes: &Changes) -> Result<(), NotRecyclable> {
    if changes.doubt.is_some() || changes.files.values().any(|change| !change.sequence) {
        return Err(NotRecyclable::because("it was changed while it was reset"));
    }
    Ok(())
}

/// The oid in a row of [`restore_touched`].
fn restored(row: &[Option<String>]) -> Option<u32> {
    match row {
        [Some(oid), Some(_)] => oid.parse().ok(),
        _ => None,
    }
}

/// Sets back those of these sequences that the session has touched of late: its own backend counts them, and tells others later.
/// Those that are in no log are set back in any case.
fn restore_touched(catalog: &TemplateCatalog, oids: &BTreeSet<u32>) -> String {
    let restore = |oid: &u32| {
        let Sequence { last_value, is_called, unlogged, .. } = catalog.sequences.get(oid)?;
        let touched =
            format!(" WHERE pg_catalog.pg_stat_get_xact_blocks_fetched({oid}) OPERATOR(pg_catalog.>) 0");
        let condition = if *unlogged { "" } else { &touched };
        Some(format!(
            "SELECT {oid}, pg_catalog.setval({oid}::pg_catalog.regclass, {last_value}, {is_called}){condition}; "
        ))
    };
    oids.iter().filter_map(restore).collect()
}

/// Sets these back, of which there may be thousands.
pub(crate) fn restore_sequences(catalog: &TemplateCatalog, oids: &BTreeSet<u32>) -> String {
    let (mut known, mut values, mut called) = (Vec::new(), Vec::new(), Vec::new());
    for oid in oids {
        let Some(Sequence { last_value, is_called, .. }) = catalog.sequences.get(oid) else { continue };
        known.push(oid.to_string());
        values.push(last_value.to_string());
        called.push(is_called.to_string());
    }
    let column = |values: &[String], of: &str| {
        format!("pg_catalog.unnest('{{{}}}'::pg_catalog.{of}[])", values.join(","))
    };
    format!(
        "SELECT pg_catalog.setval(oid::pg_catalog.regclass, value, called) \
         FROM ROWS FROM ({}, {}, {}) s(oid, value, called); ",
        column(&known, "oid"),
        column(&values, "int8"),
        column(&called, "bool"),
    )
}

/// The `transaction_timeout` of a session; empty for none.
fn read_timeout(session: &mut AdminConnection) -> Result<String, SessionError> {
    let rows = session.query("SELECT pg_catalog.current_setting('transaction_timeout', true)")?;
    let value = rows.into_iter().flatten().next().flatten().unwrap_or_default();
    Ok(if value == "0" { String::new() } else { value })
}

#[cfg(test)]
mod tests;
