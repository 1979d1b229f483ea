//! Reads server-wide counters of WAL, checkpoints, transactions and sessions.

use postgres::Client;
use postgres::SimpleQueryMessage;

use crate::ProfileError;

/// The counters at one moment, or their increase between two moments. A counter is `None` if the server's major
/// version doesn't have it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Amount of WAL written by the server, in bytes.
    pub wal_bytes: Option<f64>,
    /// Number of WAL flushes. Available since version 14.
    pub wal_syncs: Option<f64>,
    /// Number of requested checkpoints. CREATE and DROP DATABASE, the CHECKPOINT command, and large amounts of WAL
    /// request checkpoints.
    pub checkpoints_requested: Option<f64>,
    /// Number of scheduled checkpoints.
    pub checkpoints_timed: Option<f64>,
    /// Seconds spent by checkpoints on syncing files.
    pub checkpoint_sync_seconds: Option<f64>,
    /// Number of files synced by the sessions themselves. Available since version 16.
    pub session_syncs: Option<f64>,
    /// Number of commits in existing databases.
    pub commits: Option<f64>,
    /// Number of sessions started in existing databases. Available since version 14.
    pub sessions: Option<f64>,
}

/// Returns the queries for a major version, each of which returns a single number. Source: the manual's "Cumulative
/// Statistics System", 13 to 19.
fn queries(major: u32) -> [Option<&'static str>; 8] {
    let by = |from: u32, new, old| if major >= from { new } else { old };
    [
        Some("SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_insert_lsn() - '0/0' END"),
        by(
            18,
            Some("SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND context = 'normal'"),
            by(14, Some("SELECT wal_sync FROM pg_stat_wal"), None),
        ),
        by(
            17,
            Some("SELECT num_requested FROM pg_stat_checkpointer"),
            Some("SELECT checkpoints_req FROM pg_stat_bgwriter"),
        ),
        by(
            17,
            Some("SELECT num_timed FROM pg_stat_checkpointer"),
            Some("SELECT checkpoints_timed FROM pg_stat_bgwriter"),
        ),
        by(
            17,
            Some("SELECT sync_time / 1000 FROM pg_stat_checkpointer"),
            Some("SELECT checkpoint_sync_time / 1000 FROM pg_stat_bgwriter"),
        ),
        by(
            16,
            Some(
                "SELECT sum(fsyncs) FROM pg_stat_io WHERE backend_type = 'client backend' AND object = 'relation'",
            ),
            None,
        ),
        Some("SELECT sum(xact_commit) FROM pg_stat_database"),
        by(14, Some("SELECT sum(sessions) FROM pg_stat_database"), None),
    ]
}

impl Counters {
    /// Reads the current values.
    pub(crate) fn read(client: &mut Client, major: u32) -> Result<Self, ProfileError> {
        let mut values = [None; 8];
        for (value, question) in values.iter_mut().zip(queries(major)) {
            let Some(question) = question else { continue };
            let ask = |source| ProfileError::Ask { what: "the server's counters", source };
            let question = format!("/* pgfresh */ {question}");
            *value = client.simple_query(&question).map_err(ask)?.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
                _ => None,
            });
        }
        let [wal_bytes, wal_syncs, requested, timed, sync_seconds, session_syncs, commits, sessions] = values;
        Ok(Self {
            wal_bytes,
            wal_syncs,
            checkpoints_requested: requested,
            checkpoints_timed: timed,
            checkpoint_sync_seconds: sync_seconds,
            session_syncs,
            commits,
            sessions,
        })
    }

    /// Returns the increase since `before`. A counter can only decrease if another session reset the statistics or
    /// dropped a database. That counter becomes `None`.
    pub(crate) fn since(self, before: Self) -> Self {
        self.combine(before, |now, before| Some(now - before).filter(|added| *added >= 0.0))
    }

    /// Adds the counters of `other` to these counters.
    pub(crate) fn plus(self, other: Self) -> Self {
        self.combine(other, |one, other| Some(one + other))
    }

    /// Multiplies each counter by `factor`.
    pub(crate) fn times(self, factor: f64) -> Self {
        self.combine(self, |count, _| Some(count * factor))
    }

    /// Combines each counter with its counterpart in `other`. The result is `None` if either counter is missing.
    fn combine(self, other: Self, make: impl Fn(f64, f64) -> Option<f64>) -> Self {
        let both = |one: Option<f64>, other: Option<f64>| make(one?, other?);
        Self {
            wal_bytes: both(self.wal_bytes, other.wal_bytes),
            wal_syncs: both(self.wal_syncs, other.wal_syncs),
            checkpoints_requested: both(self.checkpoints_requested, other.checkpoints_requested),
            checkpoints_timed: both(self.checkpoints_timed, other.checkpoints_timed),
            checkpoint_sync_seconds: both(self.checkpoint_sync_seconds, other.checkpoint_sync_seconds),
            session_syncs: both(self.session_syncs, other.session_syncs),
            commits: both(self.commits, other.commits),
            sessions: both(self.sessions, other.sessions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decreased_counter_becomes_unknown() {
        let before = Counters { commits: Some(5.0), wal_syncs: Some(1.0), ..Counters::default() };
        let now = Counters { commits: Some(3.0), wal_syncs: Some(4.0), sessions: Some(1.0), ..before };
        let added = now.since(before);
        assert_eq!((added.commits, added.wal_syncs, added.sessions), (None, Some(3.0), None));
    }
}
