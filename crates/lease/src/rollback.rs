//! A session in whose one transaction a lease in rollback isolation is played, and a database for it alone.
//!
//! The gateway lends the session to one client after another. At the lease's end all is rolled back, and the log is read:
//! nothing but sequences may have survived, and these are set back.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pgwire::StartupParams;
use server::{AdminConnection, Rows, SessionError};

use crate::Backend;
use crate::admin::{MARK, mark_of};
use crate::backend::CatalogStamp;
use crate::catalog::{Content, FileMap, Sequence, TemplateCatalog};
use crate::evidence::Evidence;
use crate::reset::NotRecyclable;
use crate::wal::Lsn;

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
/// How long a statement of ours may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeouts that would end the lease's transaction while its client does nothing. Those of SET LOCAL last for all of it.
const TIMEOUTS: [&str; 2] = ["idle_in_transaction_session_timeout", "transaction_timeout"];

/// The one transaction of a lease, as one session leaves it to the next.
#[derive(Debug, Clone)]
pub struct LeaseTransaction {
    /// Whether it has begun.
    pub begun: bool,
    /// Whether the server's session could still be taken for a new one once it has discarded all.
    pub leaves_nothing: bool,
    /// What is known of the constraints in it.
    pub constraints: Constraints,
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
    /// Whether the client has used SET CONSTRAINTS: what it said of ALL holds for those that are made later, too.
    pub told: bool,
}

impl Default for LeaseTransaction {
    fn default() -> Self {
        Self { begun: false, leaves_nothing: true, constraints: Constraints::default() }
    }
}

impl LeaseTransaction {
    /// What of it holds for the next lease, when it was rolled back: what is known of the constraints, if there were no
    /// changes.
    fn of_next_lease(self) -> Self {
        let constraints = match self.constraints {
            Constraints { seen: Some(seen), deferrable, deferred, .. } if seen == "0" => {
                Constraints { seen: Some(seen), deferrable, deferred, told: false }
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
    pub(crate) transaction: LeaseTransaction,
    /// Whether the last client has left anything in the session that is not undone yet (settings, temporary tables and so on),
    /// and, if so, whether a transaction of its own is among that.
    leftovers: Option<bool>,
    /// Switches off what would end an idle transaction; empty if nothing would.
    timeouts_sql: String,
    is_superuser: bool,
}

impl TransactionSession {
    /// Takes over an unused session.
    pub(crate) fn new(
        params: StartupParams,
        backend: Backend,
        stamp: CatalogStamp,
        since: Option<Lsn>,
    ) -> Result<Self, SessionError> {
        let is_superuser = backend.is_superuser();
        let Backend { stream, greeting } = backend;
        let mut session = AdminConnection::adopt(stream, STATEMENT_TIMEOUT)?;
        let timeouts_sql = timeouts_sql(&mut session)?;
        let (stream, transaction) = (Some(session.release()?), LeaseTransaction::default());
        let leftovers = None;
        Ok(Self {
            params,
            greeting,
            stamp,
            since,
            stream,
            transaction,
            leftovers,
            timeouts_sql,
            is_superuser,
        })
    }

    /// Whether its session still is, with nothing to say: no test has ended it.
    pub(crate) fn is_alive(&self) -> bool {
        self.stream.as_ref().is_some_and(sys::is_silent)
    }

    /// The session, for a client; the transaction is begun if the next statement should not have to.
    pub(crate) fn lend(&mut self) -> Result<UnixStream, SessionError> {
        self.discard()?;
        if !self.transaction.begun && !self.timeouts_sql.is_empty() {
            let begin = format!("{}; {}; {}", BEGIN_LEASE[0], self.timeouts_sql, BEGIN_LEASE[1]);
            self.query(&begin)?;
            self.transaction.begun = true;
        }
        self.stream.take().ok_or_else(gone)
    }

    /// Takes the session back, which is idle, and its transaction. `saved`: one of the client's is still open in it.
    pub(crate) fn take_back(&mut self, stream: UnixStream, transaction: LeaseTransaction, saved: bool) {
        // Where it has not begun, the client has asked for nothing.
        self.leftovers = transaction.begun.then_some(saved);
        (self.stream, self.transaction) = (Some(stream), transaction);
    }

    /// Undoes what the last client has left in the session. Only the data live on.
    ///
    /// # Errors
    /// The session is not to be used any more.
    pub(crate) fn discard(&mut self) -> Result<(), SessionError> {
        let Some(saved) = self.leftovers.take() else { return Ok(()) };
        let undo = if saved { format!("{UNDO_TRANSACTION}; {RELEASE_TRANSACTION}; ") } else { String::new() };
        let again =
            if self.timeouts_sql.is_empty() { String::new() } else { format!("; {}", self.timeouts_sql) };
        self.query(&format!("{undo}{}{again}", DISCARD_ALL.join("; "))).map(drop)
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
        let discard = DISCARD_ALL.join("; ");
        let undo = if self.transaction.begun {
            format!("ROLLBACK TO {}; ROLLBACK; ", BEGIN_LEASE[1])
        } else {
            String::new()
        };
        // Counters tell at once which to set back, and may be wrong: the log tells whether these were all.
        let restore = if self.is_superuser { restore_touched(catalog) } else { String::new() };
        let sql = format!(
            "{undo}{discard}; BEGIN READ WRITE; SET LOCAL synchronous_commit = on; {restore}{MARK}; COMMIT; DISCARD SEQUENCES"
        );
        let rows = self.query(&sql)?;
        self.leftovers = None;
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
        let touched: BTreeSet<u32> =
            touched.filter_map(|(file, _)| sequence(file.number)).chain(unlogged).collect();
        Ok((touched.difference(&restored).copied().collect(), rows))
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

/// The oid in a row of [`restore_touched`].
fn restored(row: &[Option<String>]) -> Option<u32> {
    match row {
        [Some(oid), Some(_)] => oid.parse().ok(),
        _ => None,
    }
}

/// Sets back those sequences that the session has touched of late: its own backend counts them, and tells others later.
fn restore_touched(catalog: &TemplateCatalog) -> String {
    let rows = as_rows(catalog.sequences.iter());
    let touched = "pg_catalog.pg_stat_get_xact_blocks_fetched(oid) > 0";
    rows.map_or_else(String::new, |rows| format!("SELECT oid, {SETVAL} {rows} WHERE {touched}; "))
}

/// Sets these back.
pub(crate) fn restore_sequences(catalog: &TemplateCatalog, oids: &BTreeSet<u32>) -> Option<String> {
    let rows = as_rows(catalog.sequences.iter().filter(|(oid, _)| oids.contains(oid)))?;
    Some(format!("SELECT {SETVAL} {rows}"))
}

const SETVAL: &str = "pg_catalog.setval(oid::pg_catalog.regclass, value, called)";

/// Where sequences stand, as SQL's FROM wants it; `None` if there are none.
fn as_rows<'a>(sequences: impl Iterator<Item = (&'a u32, &'a Sequence)>) -> Option<String> {
    let (mut oids, mut values, mut called) = (Vec::new(), Vec::new(), Vec::new());
    for (oid, sequence) in sequences {
        oids.push(oid.to_string());
        values.push(sequence.last_value.to_string());
        called.push(sequence.is_called.to_string());
    }
    let column = |values: &[String], of: &str| {
        format!("pg_catalog.unnest('{{{}}}'::pg_catalog.{of}[])", values.join(","))
    };
    let rows = format!(
        "FROM ROWS FROM ({}, {}, {}) s(oid, value, called)",
        column(&oids, "oid"),
        column(&values, "int8"),
        column(&called, "bool"),
    );
    (!oids.is_empty()).then_some(rows)
}

/// Switches off, for a transaction, what would end it while it is idle; empty if nothing would.
fn timeouts_sql(session: &mut AdminConnection) -> Result<String, SessionError> {
    let currents: Vec<_> =
        TIMEOUTS.iter().map(|name| format!("pg_catalog.current_setting('{name}', true)")).collect();
    let rows = session.query(&format!("SELECT {}", currents.join(", ")))?;
    let values = rows.into_iter().next().unwrap_or_default();
    let set =
        TIMEOUTS.iter().zip(values).filter(|(_, value)| value.as_deref().is_some_and(|value| value != "0"));
    let set: Vec<_> = set.map(|(name, _)| format!("SET LOCAL {name} = 0")).collect();
    Ok(set.join("; "))
}

#[cfg(test)]
mod tests;
