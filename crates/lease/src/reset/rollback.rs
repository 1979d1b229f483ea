//! Manages the sessions of leases in rollback isolation, where a whole
//! lease is one transaction and rolling it back undoes almost everything.
//!
//! Each lease has a database to itself, and the gateway lends the lease's session to one client after another. When the
//! lease ends, pgfresh rolls the transaction back, reads the log and resets changed sequences, since only changes to
//! sequences survive a rollback.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pgwire::StartupParams;
use server::{AdminConnection, Rows, SessionError};

use crate::admin::{MARK, mark_of};
use crate::backends::backend::{Backend, CatalogStamp, will_serve};
use crate::backends::seats::Seat;
use crate::lsn::Lsn;
use crate::options::LeaseObserver;
use crate::reset::catalog::{Content, FileMap, Sequence, TemplateCatalog};
use crate::reset::recycle::NotRecyclable;
use crate::wal::changes::Changes;
use crate::wal::evidence::Evidence;

/// Statements that begin a lease's transaction and set a savepoint. When the lease ends, pgfresh
/// rolls back to this savepoint, which fails if a client has ended the original transaction.
pub const BEGIN_LEASE: [&str; 2] =
    ["BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", "SAVEPOINT pgfresh_lease"];
/// Undoes the client's own transaction, which is really a savepoint.
pub const UNDO_TRANSACTION: &str = "ROLLBACK TO SAVEPOINT pgfresh_t";
/// Ends the client's own transaction by releasing its savepoint.
pub const RELEASE_TRANSACTION: &str = "RELEASE SAVEPOINT pgfresh_t";
/// The statements that make up DISCARD ALL. The server allows each of them within a transaction, but not DISCARD ALL
/// itself. Source: `DiscardAll`.
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
/// Maximum number of sequences that pgfresh restores one by one, in the same message as the rollback. If a lease used
/// more, a second message restores all of them together.
const MOST_GUESSED: usize = 32;
/// Timeout for pgfresh's own statements.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// A Flush message, which keeps `idle_in_transaction_session_timeout` from terminating the session. A backend idle in a
/// transaction doesn't answer Flush, but it stops its idle timer until the next ReadyForQuery. Source: `PostgresMain`.
pub const STAY_IDLE: &[u8] = b"H\0\0\0\x04";
/// Disables `transaction_timeout`, which would otherwise terminate the session during a long lease. Requires
/// `PostgreSQL` 17 or later.
pub const UNBOUNDED: &str = "SET LOCAL transaction_timeout = 0";

/// The state of a lease's transaction, which each client passes on to the next.
#[derive(Debug, Clone)]
pub struct LeaseTransaction {
    /// Whether the transaction has begun.
    pub begun: bool,
    /// State of the client's own transaction, which is a savepoint within the lease's transaction.
    pub savepoint: Savepoint,
    /// Whether the session behaves like a new one after [`DISCARD_ALL`].
    pub leaves_nothing: bool,
    /// Constraints visible to the transaction, as known to the gateway.
    pub constraints: Constraints,
    /// The `transaction_timeout` for the client's own transactions, or an empty string. Between these transactions, the
    /// lease's transaction has no timeout.
    pub timeout: String,
}

/// State of the savepoint that serves as the client's own transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Savepoint {
    /// The client has no transaction, so there is no savepoint.
    #[default]
    Gone,
    /// The client's transaction is open.
    Open,
    /// The client has committed its transaction, but the savepoint still exists. Releasing it along with the next
    /// message saves a round trip.
    Done,
}

/// Constraints visible to a transaction, as known to the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Constraints {
    /// The change count at the time the gateway read the constraints. `None` if the gateway hasn't read any.
    pub seen: Option<String>,
    /// Names of the deferrable constraints, quoted for SQL. Empty if there are none.
    pub deferrable: String,
    /// Names of the initially deferred constraints.
    pub deferred: String,
    /// Source texts of functions and other objects that can change settings. Each follows the function's name, which is
    /// empty for other objects.
    pub sources: Vec<(String, String)>,
    /// Whether the client has used SET CONSTRAINTS. This matters even without any constraints, because SET CONSTRAINTS
    /// ALL also applies to later ones.
    pub set_by_client: bool,
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
    /// Returns the state for the next lease, after a rollback. If this transaction changed no constraints, the next one
    /// inherits the known constraints.
    fn of_next_lease(self) -> Self {
        let constraints = match self.constraints {
            Constraints { seen: Some(seen), deferrable, deferred, sources, .. } if seen == "0" => {
                Constraints { seen: Some(seen), deferrable, deferred, sources, set_by_client: false }
            }
            _ => Constraints::default(),
        };
        Self { constraints, ..Self::default() }
    }
}

/// A session for leases in rollback isolation. Between leases, the session behaves like a new one.
#[derive(Debug)]
pub(crate) struct TransactionSession {
    pub(crate) params: StartupParams,
    pub(crate) startup_response: Vec<u8>,
    pub(crate) stamp: CatalogStamp,
    /// The log position that pgfresh had read up to before the session started. `None` if comparing stamps is enough.
    pub(crate) since: Option<Lsn>,
    /// The connection to the server. `None` while a client is using it.
    stream: Option<UnixStream>,
    _seat: Seat,
    pub(crate) transaction: LeaseTransaction,
    /// Whether the last client may have left something in the session, such as settings, temporary tables or an open
    /// transaction.
    has_leftovers: bool,
    /// The session's initial `transaction_timeout`, or an empty string if it has none.
    timeout: String,
    is_superuser: bool,
    /// Whether the startup response would be the same for a lease with another name.
    pub(crate) may_serve_another: bool,
    /// Sequences used by the last lease. The next one will probably use them, too.
    touched: BTreeSet<u32>,
}

impl TransactionSession {
    /// Creates a session from a backend that no client has used.
    pub(crate) fn new(
        params: StartupParams,
        backend: Backend,
        stamp: CatalogStamp,
        since: Option<Lsn>,
    ) -> Result<Self, SessionError> {
        let (is_superuser, may_serve_another) = (backend.is_superuser(), backend.may_serve_another());
        let Backend { stream, startup_response, seat } = backend;
        let mut session = AdminConnection::adopt(stream, STATEMENT_TIMEOUT)?;
        let timeout = read_timeout(&mut session)?;
        Ok(Self {
            params,
            startup_response,
            stamp,
            since,
            stream: Some(session.release()?),
            _seat: seat,
            transaction: LeaseTransaction::default(),
            has_leftovers: false,
            timeout,
            is_superuser,
            may_serve_another,
            touched: BTreeSet::new(),
        })
    }

    /// Returns true if the next client can use the session. May wait for the server's response.
    pub(crate) fn will_serve(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| will_serve(stream, &self.startup_response))
    }

    /// Lends the connection to a client. If the session has a `transaction_timeout`, begins the lease's transaction
    /// early and disables the timeout there.
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

    /// Reclaims the idle session along with its transaction's state.
    pub(crate) fn take_back(&mut self, stream: UnixStream, transaction: LeaseTransaction) {
        // If the transaction hasn't begun, the client has sent no statements.
        self.has_leftovers = transaction.begun;
        (self.stream, self.transaction) = (Some(stream), transaction);
    }

    /// Removes everything that the last client left in the session, except its changes to data.
    ///
    /// # Errors
    /// After an error, the caller must not reuse the session.
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

    /// Lets the observer inspect the lease's transaction before pgfresh rolls it back.
    ///
    /// # Errors
    /// After an error, the caller must not reuse the session.
    pub(crate) fn observe(&mut self, observer: &LeaseObserver, name: &str) -> Result<(), SessionError> {
        let opened = self
            .discard()
            .and_then(|()| AdminConnection::adopt(self.stream.take().ok_or_else(gone)?, STATEMENT_TIMEOUT));
        match opened {
            Ok(mut session) => {
                observer.look(name, Some(&mut session));
                self.stream = Some(session.release()?);
                Ok(())
            }
            Err(error) => {
                observer.look(name, None);
                Err(error)
            }
        }
    }

    /// Ends the lease: rolls its transaction back, restores sequences and resets the session. `files` are the
    /// database's files if they differ from the template's. Returns the oids of sequences that the caller must still
    /// restore and the number of rows rolled back.
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
        // Guess which sequences the lease used, because a correct guess saves
        // a second message. The log shows whether the guess missed any.
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
        // Changes to unlogged sequences don't appear in the log.
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

    /// Runs statements and then stops the idle timer, so that the lease's transaction can remain open indefinitely.
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

/// Returns SQL that runs `undo`, followed by `restore` in a transaction that also writes a mark.
fn marked(undo: &str, restore: &str) -> String {
    format!(
        "{undo}BEGIN READ WRITE; SET LOCAL synchronous_commit = on; {restore}{MARK}; COMMIT; DISCARD SEQUENCES"
    )
}

/// Checks that nothing but sequences changed while pgfresh restored them.
pub(crate) fn are_only_sequences(changes: &Changes) -> Result<(), NotRecyclable> {
    if changes.doubt.is_some() || changes.files.values().any(|change| !change.sequence) {
        return Err(NotRecyclable::because("it was changed while it was reset"));
    }
    Ok(())
}

/// Returns the sequence's oid if this is a result row of [`restore_touched`].
fn restored(row: &[Option<String>]) -> Option<u32> {
    match row {
        [Some(oid), Some(_)] => oid.parse().ok(),
        _ => None,
    }
}

/// Returns SQL that restores the sequences in `oids`, except logged ones that the session hasn't used recently.
/// A sequence counts as used if the backend has fetched blocks that it hasn't yet reported to the statistics.
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

/// Returns SQL that restores all sequences in `oids`. There may be thousands.
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

/// Returns the `transaction_timeout` of a session, or an empty string if it has none.
fn read_timeout(session: &mut AdminConnection) -> Result<String, SessionError> {
    let rows = session.query("SELECT pg_catalog.current_setting('transaction_timeout', true)")?;
    let value = rows.into_iter().flatten().next().flatten().unwrap_or_default();
    Ok(if value == "0" { String::new() } else { value })
}

#[cfg(test)]
mod tests;
