//! The presets: what throw-away servers need.

use std::str::FromStr;

/// A set of settings by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// Nothing is flushed: an operating-system crash would hurt, the end of any process cannot.
    #[default]
    Fast,
    /// As durable as `PostgreSQL` is out of the box.
    Durable,
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fast" => Ok(Self::Fast),
            "durable" => Ok(Self::Durable),
            _ => Err("expected fast or durable".to_owned()),
        }
    }
}

/// The locale of all that initdb and the server make, so that no machine's own can leak in or be missing.
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

/// Both presets: what makes the boot and the wake-ups fewer and costs a test nothing. Figures: docs/results.md.
pub(crate) const LEAN: [(&str, &str); 16] = [
    // Less to allocate at boot and to scan in each DROP and TRUNCATE; what is not here is in the page cache.
    ("shared_buffers", "16MB"),
    ("huge_pages", "off"),
    // Parallel tests with pools of their own, and the backends that wait for them, fit into 300, and 20 more are pgfresh's own
    // (`Shares` of the crate `lease`); the boot takes as long as with 100.
    ("max_connections", "320"),
    // In all as many as with 100 connections, and as many of a table before they become one: there is less shared memory to set
    // up, which is 3 ms of the boot.
    ("max_pred_locks_per_transaction", "22"),
    ("max_pred_locks_per_relation", "31"),
    // Segments become files of the data directory: nothing to leak, and no need of a large /dev/shm.
    ("dynamic_shared_memory_type", "mmap"),
    ("io_method", "sync"),
    // The kernel copies the files of a template, and shares their blocks where the file system can.
    ("file_copy_method", "clone"),
    ("jit", "off"),
    ("update_process_title", "off"),
    ("log_checkpoints", "off"),
    ("log_autovacuum_min_duration", "-1"),
    // Not within the life of a lease: what it analyses would no longer equal its template.
    ("autovacuum_naptime", "1h"),
    ("bgwriter_lru_maxpages", "0"),
    ("bgwriter_delay", "10s"),
    ("checkpoint_timeout", "1h"),
];

/// Both presets, in the server's environment. The C library of most systems, glibc, has a process return memory to the kernel as soon
/// as 128 KiB are free, and ask for it again in the next statement; one of ours keeps up to 8 MiB of what it has used. The
/// second setting goes with the first: without it, each piece of 128 KiB or more would be returned by itself.
/// Source: mallopt(3).
pub(crate) const MEMORY: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "8388608"), ("MALLOC_MMAP_THRESHOLD_", "4194304")];

/// What only a server with disposable data may do.
pub(crate) const FAST: [(&str, &str); 5] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("wal_writer_delay", "10s"),
    ("min_wal_size", "32MB"),
];

/// What a server whose data stay does otherwise, as `PostgreSQL` does out of the box: its tables grow, and are worked with
/// for days.
pub(crate) const PERSISTENT: [(&str, &str); 2] =
    [("autovacuum_naptime", "1min"), ("checkpoint_timeout", "5min")];

/// All that a preset may set.
pub(crate) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    LOCALE.iter().chain(&LEAN).chain(&FAST).copied()
}
