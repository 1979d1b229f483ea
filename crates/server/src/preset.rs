//! Defines presets: groups of settings for short-lived servers.

use std::str::FromStr;

/// A group of settings for one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// Nothing is flushed to disk. Data can be lost if the operating system crashes, but not if only a
    /// process does.
    #[default]
    Fast,
    /// As durable as `PostgreSQL` with its default settings.
    Durable,
}

/// Error for a text that isn't the name of a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected fast or durable")]
pub struct ParsePresetError;

impl FromStr for Preset {
    type Err = ParsePresetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "fast" => Ok(Self::Fast),
            "durable" => Ok(Self::Durable),
            _ => Err(ParsePresetError),
        }
    }
}

/// The locale of every cluster and server, fixed so that the machine's own locale has no influence.
pub(crate) const LOCALE: [(&str, &str); 8] = [
    ("lc_messages", "C"),
    ("lc_monetary", "C"),
    ("lc_numeric", "C"),
    ("lc_time", "C"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("datestyle", "ISO, MDY"),
    ("default_text_search_config", "pg_catalog.english"),
];

/// Settings in both presets that shorten the boot or avoid wake-ups, with no drawback for tests. Figures:
/// docs/results.md.
pub(crate) const COMMON: [(&str, &str); 16] = [
    // A small buffer pool is faster to allocate at boot and to scan for each DROP and TRUNCATE. The kernel's page cache
    // holds all other pages.
    ("shared_buffers", "16MB"),
    ("huge_pages", "off"),
    // 300 connections for parallel tests with connection pools and for waiting backends, plus 20 for pgfresh
    // itself (see `Shares` in the `lease` crate). The boot takes no longer than with 100.
    ("max_connections", "320"),
    // These limits preserve what the defaults allow with 100 connections: the total number of locks, and the
    // locks per table before they are escalated to a single one. Since there is less shared memory to set up,
    // the boot is 3 ms faster than with the defaults.
    ("max_pred_locks_per_transaction", "22"),
    ("max_pred_locks_per_relation", "31"),
    // Make shared memory segments files in the data directory. This way no segment is left behind, and a
    // small /dev/shm isn't a problem.
    ("dynamic_shared_memory_type", "mmap"),
    ("io_method", "sync"),
    // Let the kernel copy a template database's files. The copies share blocks if the file system supports
    // that.
    ("file_copy_method", "clone"),
    ("jit", "off"),
    ("update_process_title", "off"),
    ("log_checkpoints", "off"),
    ("log_autovacuum_min_duration", "-1"),
    // Set longer than any lease, because a table that autovacuum analyzes would no longer be identical to its
    // template.
    ("autovacuum_naptime", "1h"),
    ("bgwriter_lru_maxpages", "0"),
    ("bgwriter_delay", "10s"),
    ("checkpoint_timeout", "1h"),
];

/// Environment variables for a server, in both presets. They are for glibc, the C library of most systems. By
/// default, glibc returns memory to the kernel as soon as 128 KiB are free and requests it again for the next
/// statement. The first variable lets a process retain up to 8 MiB of free memory. The second does the same
/// for single large blocks, from 128 KiB up to 4 MiB. Source: mallopt(3).
pub(crate) const ENVIRONMENT: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "8388608"), ("MALLOC_MMAP_THRESHOLD_", "4194304")];

/// Settings only for servers with disposable data.
pub(crate) const FAST: [(&str, &str); 5] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("wal_writer_delay", "10s"),
    ("min_wal_size", "32MB"),
];

/// Settings for a server with persistent data. They are `PostgreSQL`'s defaults, because persistent tables
/// grow and users work with them for days.
pub(crate) const PERSISTENT: [(&str, &str); 2] =
    [("autovacuum_naptime", "1min"), ("checkpoint_timeout", "5min")];

/// Returns all settings that any preset can set.
pub(crate) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    LOCALE.iter().chain(&COMMON).chain(&FAST).copied()
}
