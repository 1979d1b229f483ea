//! Collects the differences between major versions of `PostgreSQL`. No other file compares a major version with a
//! number.
//!
//! When a new major version comes out, check each method here, and these tables that have a column for the version:
//! - `server::own`: settings of our sessions
//! - `server::package`: downloads
//! - `profile::counters`: queries for counters
//! - `lease::wal::page`: magic numbers of WAL pages

use std::ops::RangeInclusive;

/// Major versions that are tested. Newer ones can also be used.
pub const MAJORS: RangeInclusive<u32> = 13..=18;

/// A major version, which says what its server can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Major(pub u32);

/// Protocol.
impl Major {
    /// Returns the newest protocol version that the server speaks, as the number in a startup message.
    #[must_use]
    pub const fn newest_protocol(self) -> u32 {
        if self.0 >= 18 { 3 << 16 | 2 } else { 3 << 16 }
    }

    /// Whether the server still speaks protocol 2.0. The gateway never does.
    #[must_use]
    pub const fn has_old_protocol(self) -> bool {
        self.0 < 14
    }

    /// True if the server reports changed settings just before it is ready for the next query. Other versions report a
    /// change immediately.
    #[must_use]
    pub const fn reports_settings_when_ready(self) -> bool {
        self.0 >= 14
    }

    /// True if the server restores settings in the reverse order of their changes. Other versions restore them in the
    /// order of their names.
    #[must_use]
    pub const fn restores_latest_setting_first(self) -> bool {
        self.0 >= 16
    }

    /// Whether the server treats the statements of a pipeline as a group, like several statements in one query string.
    /// This applies from the second statement on.
    #[must_use]
    pub const fn groups_pipelines(self) -> bool {
        self.0 >= 18
    }
}

/// initdb.
impl Major {
    /// Whether initdb enables data checksums by default.
    #[must_use]
    pub const fn has_checksums_by_default(self) -> bool {
        self.0 >= 18
    }

    /// Whether the server implements the locale C.UTF-8 itself, without the C library.
    #[must_use]
    pub const fn has_builtin_locale(self) -> bool {
        self.0 >= 17
    }

    /// Whether initdb accepts settings (`-c`).
    #[must_use]
    pub const fn has_initdb_settings(self) -> bool {
        self.0 >= 16
    }
}

/// SQL.
impl Major {
    /// Whether CREATE DATABASE has the option STRATEGY. Its default writes each page to the WAL.
    #[must_use]
    pub const fn has_create_strategy(self) -> bool {
        self.0 >= 15
    }

    /// Whether the setting `transaction_timeout` exists.
    #[must_use]
    pub const fn has_transaction_timeout(self) -> bool {
        self.0 >= 17
    }

    /// Whether VACUUM has the option `PROCESS_TOAST`.
    #[must_use]
    pub const fn has_vacuum_toast(self) -> bool {
        self.0 >= 14
    }

    /// Whether VACUUM has the option `SKIP_DATABASE_STATS`.
    #[must_use]
    pub const fn has_vacuum_skip_stats(self) -> bool {
        self.0 >= 16
    }
}

/// System catalogs.
impl Major {
    /// Whether columns have a compression method (`pg_attribute.attcompression`).
    #[must_use]
    pub const fn has_column_compression(self) -> bool {
        self.0 >= 14
    }

    /// Whether settings have privileges (`pg_parameter_acl`).
    #[must_use]
    pub const fn has_parameter_privileges(self) -> bool {
        self.0 >= 15
    }

    /// Whether `pg_class` has the column `relallfrozen`.
    #[must_use]
    pub const fn has_relallfrozen(self) -> bool {
        self.0 >= 18
    }
}

/// Write-ahead log.
impl Major {
    /// Whether page images can be compressed with LZ4 and Zstandard. These versions use other bits for the flags of
    /// page images.
    #[must_use]
    pub const fn has_wal_compression_methods(self) -> bool {
        self.0 >= 15
    }

    /// Whether there are two kinds of records for a new database. In these versions, the record of DROP DATABASE has
    /// another number.
    #[must_use]
    pub const fn has_wal_database_copies(self) -> bool {
        self.0 >= 15
    }

    /// Number of bytes for each dropped statistics entry in the record at the end of a transaction. `None` if these
    /// records don't list such entries.
    #[must_use]
    pub const fn wal_statistics_entry(self) -> Option<usize> {
        match self.0 {
            ..15 => None,
            15..18 => Some(12),
            _ => Some(16),
        }
    }
}

/// Execution.
impl Major {
    /// True if TRUNCATE and CREATE INDEX flush each new file immediately. In other versions, the next checkpoint
    /// flushes it.
    #[must_use]
    pub const fn flushes_new_files(self) -> bool {
        self.0 < 17
    }

    /// True if the server has counted a session as soon as the session is ready. In older versions, a separate process
    /// collects the counts later.
    #[must_use]
    pub const fn counts_sessions_at_once(self) -> bool {
        self.0 >= 15
    }
}
