//! Collects the differences between major versions of `PostgreSQL`. No other file compares a major version
//! with a number.
//!
//! When a new major version is released, check each method here, and these tables that have a column for the
//! version:
//! - `server::session_settings`: settings of pgfresh's own sessions
//! - `server::package`: downloads
//! - `profile::counters`: queries for counters
//! - `lease::wal::page`: magic numbers of WAL pages
//! - `gateway::faults::errors`: error texts, and their positions in the server's source
//!
//! `plans::import` compares the versions of production servers, which can be older.

use std::ops::RangeInclusive;

/// Major versions that pgfresh is tested with. Newer ones also work.
pub const MAJORS: RangeInclusive<u32> = 13..=19;

/// Newest major version with packages. pgfresh downloads this version if the user doesn't name one.
pub const NEWEST_PACKAGED: u32 = 18;

/// A major version, which determines what its server can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Major(pub u32);

/// Protocol.
impl Major {
    /// Returns the newest protocol version the server speaks, as the number in a startup message.
    #[must_use]
    pub const fn newest_protocol(self) -> u32 {
        if self.0 >= 18 { 3 << 16 | 2 } else { 3 << 16 }
    }

    /// Returns true if the server still speaks protocol 2.0. The gateway never does.
    #[must_use]
    pub const fn has_old_protocol(self) -> bool {
        self.0 < 14
    }

    /// Returns true if the server reports changed settings just before it is ready for the next query. Other
    /// versions report a change immediately.
    #[must_use]
    pub const fn reports_settings_when_ready(self) -> bool {
        self.0 >= 14
    }

    /// Returns true if the server restores settings in the reverse order of their changes. Other versions
    /// restore them in name order.
    #[must_use]
    pub const fn restores_latest_setting_first(self) -> bool {
        self.0 >= 16
    }

    /// Returns true if the server treats a pipeline's statements as a group, like several statements in one
    /// query string. This applies from the second statement on.
    #[must_use]
    pub const fn groups_pipelines(self) -> bool {
        self.0 >= 18
    }
}

/// Errors.
impl Major {
    /// Returns the value that the server's errors have: up to 13, from 14 to 17, or from 18 on.
    #[must_use]
    pub const fn of_errors<T: Copy>(self, [old, middle, new]: [T; 3]) -> T {
        match self.0 {
            ..=13 => old,
            14..=17 => middle,
            18.. => new,
        }
    }
}

/// initdb.
impl Major {
    /// Returns true if initdb enables data checksums by default.
    #[must_use]
    pub const fn has_checksums_by_default(self) -> bool {
        self.0 >= 18
    }

    /// Returns true if the server implements the locale C.UTF-8 itself, without the C library.
    #[must_use]
    pub const fn has_builtin_locale(self) -> bool {
        self.0 >= 17
    }

    /// Returns true if initdb accepts settings (`-c`).
    #[must_use]
    pub const fn has_initdb_settings(self) -> bool {
        self.0 >= 16
    }
}

/// SQL.
impl Major {
    /// Returns true if CREATE DATABASE has the option STRATEGY. Its default writes each page to the WAL.
    #[must_use]
    pub const fn has_create_strategy(self) -> bool {
        self.0 >= 15
    }

    /// Returns true if event triggers can fire at login. `pg_database` then shows whether a database may have such
    /// triggers.
    #[must_use]
    pub const fn has_login_triggers(self) -> bool {
        self.0 >= 17
    }

    /// Returns true if the setting `transaction_timeout` exists.
    #[must_use]
    pub const fn has_transaction_timeout(self) -> bool {
        self.0 >= 17
    }

    /// Returns true if VACUUM has the option `PROCESS_TOAST`.
    #[must_use]
    pub const fn has_vacuum_toast(self) -> bool {
        self.0 >= 14
    }

    /// Returns true if VACUUM has the option `SKIP_DATABASE_STATS`.
    #[must_use]
    pub const fn has_vacuum_skip_stats(self) -> bool {
        self.0 >= 16
    }
}

/// Planner statistics and EXPLAIN.
impl Major {
    /// Returns true if `pg_statistic_ext` can have expressions.
    #[must_use]
    pub const fn has_expression_statistics(self) -> bool {
        self.0 >= 14
    }

    /// Returns true if `pg_statistic_ext_data` has a separate row for inherited statistics.
    #[must_use]
    pub const fn has_inherited_extended_statistics(self) -> bool {
        self.0 >= 15
    }

    /// Returns true if EXPLAIN has the option `GENERIC_PLAN`.
    #[must_use]
    pub const fn has_explain_generic_plan(self) -> bool {
        self.0 >= 16
    }

    /// Returns true if a session can report its counters immediately (`pg_stat_force_next_flush`).
    #[must_use]
    pub const fn has_forced_counters(self) -> bool {
        self.0 >= 15
    }
}

/// System catalogs.
impl Major {
    /// Returns true if there are multirange types.
    #[must_use]
    pub const fn has_multiranges(self) -> bool {
        self.0 >= 14
    }

    /// Returns true if columns have a compression method (`pg_attribute.attcompression`).
    #[must_use]
    pub const fn has_column_compression(self) -> bool {
        self.0 >= 14
    }

    /// Returns true if settings have privileges (`pg_parameter_acl`).
    #[must_use]
    pub const fn has_parameter_privileges(self) -> bool {
        self.0 >= 15
    }

    /// Returns true if `pg_class` has the column `relallfrozen`.
    #[must_use]
    pub const fn has_relallfrozen(self) -> bool {
        self.0 >= 18
    }
}

/// Write-ahead log.
impl Major {
    /// Returns true if page images can be compressed with LZ4 and Zstandard. These versions use different
    /// flag bits for page images.
    #[must_use]
    pub const fn has_wal_compression_methods(self) -> bool {
        self.0 >= 15
    }

    /// Returns true if there are two kinds of records for a new database. In these versions, the DROP
    /// DATABASE record has a different number.
    #[must_use]
    pub const fn has_wal_database_copies(self) -> bool {
        self.0 >= 15
    }

    /// Returns the flag of a log page that replaces the rest of a record which a crash cut off
    /// (`XLP_FIRST_IS_OVERWRITE_CONTRECORD`). This is the highest flag of a page. Before version 19, the bit below it
    /// was `XLP_BKP_REMOVABLE`.
    #[must_use]
    pub const fn wal_overwritten_page(self) -> u16 {
        if self.0 >= 19 { 0x04 } else { 0x08 }
    }

    /// Returns true if the log can contain records that only take up a log position (`XLOG_ASSIGN_LSN`), and records
    /// about the state of logical decoding (`XLOG_LOGICAL_DECODING_STATUS_CHANGE`).
    #[must_use]
    pub const fn has_wal_assigned_positions(self) -> bool {
        self.0 >= 19
    }

    /// Returns the size in bytes of each dropped statistics entry in a transaction's final record, or `None`
    /// if these records don't list such entries.
    #[must_use]
    pub const fn wal_statistics_entry(self) -> Option<usize> {
        match self.0 {
            ..15 => None,
            15..18 => Some(12),
            _ => Some(16),
        }
    }
}

/// Replication.
impl Major {
    /// Returns true if a standby reports when a requested pause of its replay has begun
    /// (`pg_get_wal_replay_pause_state`).
    #[must_use]
    pub const fn reports_replay_pause(self) -> bool {
        self.0 >= 14
    }
}

/// Execution.
impl Major {
    /// Returns true if TRUNCATE and CREATE INDEX flush each new file immediately. Other versions leave this
    /// to the next checkpoint.
    #[must_use]
    pub const fn flushes_new_files(self) -> bool {
        self.0 < 17
    }

    /// Returns true if the server has counted a session by the time the session is ready. In older versions,
    /// a separate process collects the counts later.
    #[must_use]
    pub const fn counts_sessions_at_once(self) -> bool {
        self.0 >= 15
    }
}
