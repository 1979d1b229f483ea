//! Presets: settings for throw-away servers.

use std::str::FromStr;

/// Set of settings for one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// Flushes nothing: a crash of the operating system may lose data, the end of any process cannot.
    #[default]
    Fast,
    /// As durable as `PostgreSQL` with its default settings.
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

/// Locale of each cluster and server, so that the machine's own locale has no influence.
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

/// Settings of both presets that shorten the boot, avoid wake-ups and cost a test nothing. Figures: docs/results.md.
pub(crate) const LEAN: [(&str, &str); 16] = [
    // Less to allocate at boot and to scan in each DROP and TRUNCATE. The page cache has the other pages.
    ("shared_buffers", "16MB"),
    ("huge_pages", "off"),
    // 300 for parallel tests with connection pools and for waiting backends, and 20 for pgfresh itself (`Shares` of the crate `lease`).
    // The boot takes as long as with 100.
    ("max_connections", "320"),
    // The products are as with 100 connections: all locks, and a table's locks before they become one. Less shared memory to set up
    // saves 3 ms of the boot.
    ("max_pred_locks_per_transaction", "22"),
    ("max_pred_locks_per_relation", "31"),
    // Segments become files of the data directory: none can stay behind, and /dev/shm may be small.
    ("dynamic_shared_memory_type", "mmap"),
    ("io_method", "sync"),
    // The kernel copies the files of a template, and shares their blocks where the file system can.
    ("file_copy_method", "clone"),
    ("jit", "off"),
    ("update_process_title", "off"),
    ("log_checkpoints", "off"),
    ("log_autovacuum_min_duration", "-1"),
    // Longer than the life of a lease, because a table that autovacuum has analysed would no longer equal its template.
    ("autovacuum_naptime", "1h"),
    ("bgwriter_lru_maxpages", "0"),
    ("bgwriter_delay", "10s"),
    ("checkpoint_timeout", "1h"),
];

/// Environment of a server in both presets. The C library of most systems, glibc, returns memory to the kernel as soon as 128 KiB are
/// free, and requests it again in the next statement. With the first variable, a process keeps up to 8 MiB of used memory. Without
/// the second, glibc would return each piece of 128 KiB or more by itself. Source: mallopt(3).
pub(crate) const MEMORY: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "8388608"), ("MALLOC_MMAP_THRESHOLD_", "4194304")];

/// Settings for servers with disposable data only.
pub(crate) const FAST: [(&str, &str); 5] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("wal_writer_delay", "10s"),
    ("min_wal_size", "32MB"),
];

/// Settings of a server with persistent data, as `PostgreSQL` has them by default: its tables grow, and people work with them for
/// days.
pub(crate) const PERSISTENT: [(&str, &str); 2] =
    [("autovacuum_naptime", "1min"), ("checkpoint_timeout", "5min")];

/// Returns all settings that a preset may set.
pub(crate) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    LOCALE.iter().chain(&LEAN).chain(&FAST).copied()
}
