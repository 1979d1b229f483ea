//! Runs the replica of a leased server: a standby that follows the
//! server by streaming replication, with the lag that a client requests.
//!
//! Without a lag, a commit on the primary returns only once the replica has replayed the commit, so a test sees
//! its own writes on the replica. PostgreSQL's synchronous replication does this. With a lag, commits don't wait.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ::template::Provisioner;
use pgwire::{SqlLexer, split_statements};
use server::{AdminConnection, Rows, Server, SessionError, admin_params, literal};
use storage::{Entry, Place};
use sys::lock;

use crate::error::LeaseError;

/// Setting that makes the primary's commits wait for the replica.
const SYNCHRONOUS: &str = "synchronous_standby_names";
/// Name of the primary's replication slot.
const SLOT: &str = "pgfresh_replica";
/// Timeout for each of pgfresh's own statements, and for the replica to catch up.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);
/// Poll interval for the state of the replication.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Maximum number of statements that [`ReplicaWatch`] records.
const MOST_READS: usize = 20;
/// First words of statements that don't read tables.
const NO_READS: [&[u8]; 16] = [
    b"abort",
    b"begin",
    b"close",
    b"commit",
    b"deallocate",
    b"discard",
    b"end",
    b"listen",
    b"release",
    b"reset",
    b"rollback",
    b"savepoint",
    b"set",
    b"show",
    b"start",
    b"unlisten",
];

/// The lag of a replica behind its primary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplicaLag {
    /// No lag: a commit returns only once the replica has replayed it.
    #[default]
    None,
    /// The replica replays each commit after this delay.
    Delay(Duration),
    /// Replay is paused, so the replica shows no new commits.
    Paused,
}

impl fmt::Display for ReplicaLag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Delay(time) => write!(f, "{}ms", time.as_millis()),
            Self::Paused => f.write_str("paused"),
        }
    }
}

/// A statement that ran on a lagging replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaggingRead {
    /// The statement's text.
    pub statement: String,
    /// The lag when the statement completed.
    pub lag: ReplicaLag,
}

/// The lag of one replica, and the statements that ran there while it lagged.
#[derive(Debug, Default)]
pub struct ReplicaWatch(Mutex<(ReplicaLag, Vec<LaggingRead>)>);

impl ReplicaWatch {
    /// Records the statements in `sql`, which ran on the replica. Skips statements
    /// that don't read tables. Does nothing if the replica doesn't lag.
    pub fn ran(&self, sql: &str) {
        let mut state = lock(&self.0);
        let (lag, reads) = &mut *state;
        if *lag == ReplicaLag::None {
            return;
        }
        for statement in split_statements(sql).into_iter().filter(|statement| may_read(statement)) {
            if reads.len() < MOST_READS {
                reads.push(LaggingRead { statement: statement.to_owned(), lag: *lag });
            }
        }
    }

    /// Returns the first statements that ran on the replica while it lagged.
    #[must_use]
    pub fn reads(&self) -> Vec<LaggingRead> {
        lock(&self.0).1.clone()
    }

    fn lag(&self) -> ReplicaLag {
        lock(&self.0).0
    }

    fn set(&self, lag: ReplicaLag) {
        lock(&self.0).0 = lag;
    }
}

/// Returns true if a statement may read a table.
fn may_read(statement: &str) -> bool {
    let first = SqlLexer::new(statement.as_bytes(), true).token();
    first.is_some_and(|first| !NO_READS.iter().any(|word| first.is_word(word)))
}

/// A server where pgfresh can run its own statements, identified by its socket.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Directory of the server's socket.
    pub(crate) directory: PathBuf,
    pub(crate) major: u32,
}

impl Node {
    /// Runs statements in a new session, each in its own transaction. Returns the rows of
    /// the last statement. A commit returns once a synchronous standby has replayed it.
    pub(crate) fn run(
        &self,
        verb: &'static str,
        timeout: Duration,
        statements: impl IntoIterator<Item = String>,
    ) -> Result<Rows, LeaseError> {
        let run = || -> Result<Rows, SessionError> {
            let params = admin_params(self.major, &[("synchronous_commit", "remote_apply")]);
            let mut session = AdminConnection::open_with(&self.directory, &params, "postgres", timeout)?;
            let mut rows = Rows::new();
            for sql in statements {
                rows = session.query(&sql)?;
            }
            Ok(rows)
        };
        run().map_err(|source| LeaseError::Sql { verb, source })
    }

    /// Changes settings and makes the server reload them. `None`
    /// resets a setting to its value in the configuration file.
    fn set(&self, verb: &'static str, changes: &[(&str, Option<&str>)]) -> Result<(), LeaseError> {
        let change = |(name, value): &(&str, Option<&str>)| match value {
            Some(value) => format!("ALTER SYSTEM SET {name} = {}", literal(value)),
            None => format!("ALTER SYSTEM RESET {name}"),
        };
        let statements = changes.iter().map(change).chain(["SELECT pg_reload_conf()".to_owned()]);
        self.run(verb, STATEMENT_TIMEOUT, statements).map(drop)
    }
}

/// A standby of a leased server.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) server: Server,
    pub(crate) node: Node,
    /// The directory that contains the replica's data.
    pub(crate) place: Place,
    pub(crate) watch: Arc<ReplicaWatch>,
}

impl Replica {
    /// Starts a replica of the server `primary`, whose data began as a
    /// copy of `entry`, and waits until the replica follows the primary.
    pub(crate) fn start(
        provisioner: &Provisioner,
        entry: &Entry,
        primary: &Node,
    ) -> Result<Self, LeaseError> {
        let verb = "prepare a replica";
        // The slot makes the primary retain its log for the replica, from the position where the replica's copy ends.
        let slot = format!("SELECT pg_create_physical_replication_slot('{SLOT}', true)");
        primary.run(verb, STATEMENT_TIMEOUT, [slot])?;
        let (server, place) = provisioner
            .start_standby(entry, &primary.directory, SLOT)
            .map_err(|source| LeaseError::Server { verb: "start a replica", source: Box::new(source) })?;
        let node = Node { directory: server.run().socket_directory(), major: primary.major };
        let replica = Self { server, node, place, watch: Arc::default() };
        let streams = "EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')";
        replica.wait_until(primary, verb, streams)?;
        replica.set_synchronous(primary, true)?;
        replica.free_commits_at_end(primary)?;
        Ok(replica)
    }

    /// Waits until a condition holds on `node`. Returns an error if the replica exits or after [`STATEMENT_TIMEOUT`].
    /// Each check uses a new session, because an idle session rereads changed settings only at its next statement.
    fn wait_until(&self, node: &Node, verb: &'static str, condition: &str) -> Result<(), LeaseError> {
        let begun = Instant::now();
        loop {
            let rows = node.run(verb, STATEMENT_TIMEOUT, [format!("SELECT 1 WHERE {condition}")])?;
            if !rows.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > STATEMENT_TIMEOUT || !self.server.is_alive() {
                return Err(LeaseError::Replica { verb, waited: begun.elapsed() });
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Makes the primary's commits wait for the replica if `waits` is true, or else stop waiting.
    fn set_synchronous(&self, primary: &Node, waits: bool) -> Result<(), LeaseError> {
        let verb = "change the replication";
        primary.set(verb, &[(SYNCHRONOUS, waits.then_some("*"))])?;
        // After a restart of the primary, a replica whose replay is paused isn't connected.
        let is_set = if waits {
            "EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')"
        } else {
            "NOT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state <> 'async')"
        };
        self.wait_until(primary, verb, is_set)?;
        // Commits start to wait only after the checkpointer has reread the setting, so force a checkpoint.
        primary.run(verb, STATEMENT_TIMEOUT, ["CHECKPOINT".to_owned()]).map(drop)
    }

    /// Checks that the replica is running.
    ///
    /// # Errors
    /// Returns an error that explains why the replica of the lease `name` isn't running.
    pub(crate) fn expect_on(&self, name: &str) -> Result<(), LeaseError> {
        if self.server.is_alive() {
            return Ok(());
        }
        Err(self.ended(name))
    }

    /// Returns the error for a replica that has exited on its own.
    pub(crate) fn ended(&self, name: &str) -> LeaseError {
        LeaseError::ReplicaEnded { name: name.to_owned(), why: self.server.end_reason() }
    }

    /// Makes the primary's commits stop waiting if the replica exits on its own.
    fn free_commits_at_end(&self, primary: &Node) -> Result<(), LeaseError> {
        let primary = primary.clone();
        let free = move || free_commits(&primary);
        let watched = self.server.on_end(free);
        watched
            .map_err(|source| LeaseError::Server { verb: "start a replica", source: Box::new(source.into()) })
    }

    /// Sets the lag of the replica of the lease `name` behind `primary`, and waits until the change is in effect.
    pub(crate) fn set_lag(&self, name: &str, primary: &Node, lag: ReplicaLag) -> Result<(), LeaseError> {
        self.expect_on(name)?;
        self.change_lag(primary, lag).map_err(|error| {
            if self.server.is_listening() {
                return error;
            }
            free_commits(primary);
            self.ended(name)
        })
    }

    fn change_lag(&self, primary: &Node, lag: ReplicaLag) -> Result<(), LeaseError> {
        let verb = "change the lag of a replica";
        let before = self.watch.lag();
        match lag {
            ReplicaLag::None => {
                self.set_delay(verb, None)?;
                self.node.run(verb, STATEMENT_TIMEOUT, ["SELECT pg_wal_replay_resume()".to_owned()])?;
                self.set_synchronous(primary, true)?;
                self.catch_up(verb, primary)?;
                self.watch.set(lag);
            }
            ReplicaLag::Delay(time) => {
                self.set_synchronous(primary, false)?;
                self.watch.set(lag);
                self.set_delay(verb, Some(time))?;
                self.node.run(verb, STATEMENT_TIMEOUT, ["SELECT pg_wal_replay_resume()".to_owned()])?;
            }
            ReplicaLag::Paused => {
                self.set_synchronous(primary, false)?;
                self.watch.set(lag);
                self.node.run(verb, STATEMENT_TIMEOUT, ["SELECT pg_wal_replay_pause()".to_owned()])?;
                // A replica that is delaying a commit notices the pause
                // only after the delay, so wait only if there was no delay.
                if server::Major(self.node.major).reports_replay_pause() && before == ReplicaLag::None {
                    self.wait_until(&self.node, verb, "pg_get_wal_replay_pause_state() = 'paused'")?;
                }
            }
        }
        Ok(())
    }

    fn set_delay(&self, verb: &'static str, delay: Option<Duration>) -> Result<(), LeaseError> {
        let milliseconds = delay.map(|delay| delay.as_millis().to_string());
        self.node.set(verb, &[("recovery_min_apply_delay", milliseconds.as_deref())])?;
        let value = milliseconds.as_deref().unwrap_or("0");
        let setting = "SELECT setting FROM pg_settings WHERE name = 'recovery_min_apply_delay'";
        self.wait_until(&self.node, verb, &format!("({setting}) = '{value}'"))
    }

    /// Waits until the replica has replayed everything that the primary has committed.
    fn catch_up(&self, verb: &'static str, primary: &Node) -> Result<(), LeaseError> {
        let sql = "SELECT pg_current_wal_flush_lsn()".to_owned();
        let rows = primary.run(verb, STATEMENT_TIMEOUT, [sql])?;
        let position = rows.into_iter().next().and_then(|row| row.into_iter().next()?).unwrap_or_default();
        self.wait_until(
            &self.node,
            verb,
            &format!("pg_last_wal_replay_lsn() >= {}::pg_lsn", literal(&position)),
        )
    }

    /// Promotes the replica of the lease `name` to a primary, and
    /// waits for the promotion. The old primary must have exited.
    pub(crate) fn promote(&self, name: &str) -> Result<(), LeaseError> {
        let promoted = self.become_primary();
        promoted.map_err(|error| if self.server.is_listening() { error } else { self.ended(name) })
    }

    fn become_primary(&self) -> Result<(), LeaseError> {
        let verb = "promote a replica";
        self.set_delay(verb, None)?;
        let sql = format!("SELECT 1 WHERE pg_promote(true, {})", STATEMENT_TIMEOUT.as_secs());
        // `pg_promote` gives up after its own timeout, so the session's timeout must be longer.
        let rows = self.node.run(verb, STATEMENT_TIMEOUT * 2, [sql])?;
        if rows.is_empty() {
            return Err(LeaseError::Replica { verb, waited: STATEMENT_TIMEOUT });
        }
        self.watch.set(ReplicaLag::None);
        Ok(())
    }
}

/// Makes the primary's commits stop waiting for a replica that has exited.
fn free_commits(primary: &Node) {
    if let Err(error) = primary.set("free commits", &[(SYNCHRONOUS, None)]) {
        tracing::debug!(%error, "the primary of a replica has ended, too");
    }
}

/// Returns a statement that terminates all sessions of clients in a server.
pub(crate) fn end_all_sessions() -> String {
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datid IS NOT NULL AND pid <> pg_backend_pid()"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lagging_replica_remembers_its_first_reads() {
        let watch = ReplicaWatch::default();
        watch.ran("SELECT 1");
        assert_eq!(watch.reads(), []);
        watch.set(ReplicaLag::Paused);
        for statement in ["BEGIN; -- set\n SELECT 2", "set x = 1", "", "(SELECT 3)", "commit;"] {
            watch.ran(statement);
        }
        watch.set(ReplicaLag::Delay(Duration::from_millis(500)));
        for number in 0..2 * MOST_READS {
            watch.ran(&format!("SELECT {number}"));
        }
        let reads = watch.reads();
        let texts: Vec<_> = reads.iter().map(|read| format!("{} ({})", read.statement, read.lag)).collect();
        assert_eq!(texts[..3], ["-- set\n SELECT 2 (paused)", "(SELECT 3) (paused)", "SELECT 0 (500ms)"]);
        assert_eq!(texts.len(), MOST_READS);
    }
}
