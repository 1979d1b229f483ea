//! Presets, which are groups of settings for throw-away servers.

use std::str::FromStr;

/// A group of settings for one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// Nothing is flushed to disk. A crash of the operating system can lose data, but the end of a process
    /// can't.
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

/// The locale of every cluster and server. It is fixed, so that the machine's own locale has no influence.
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

/// Settings in both presets that shorten the boot or avoid wake-ups, and that have no drawback for tests.
/// Figures: docs/results.md.
pub(crate) const COMMON: [(&str, &str); 16] = [
    // Less memory to allocate at boot and to scan in each DROP and TRUNCATE. The page cache keeps the other
    // pages.
    ("shared_buffers", "16MB"),
    ("huge_pages", "off"),
    // 300 for parallel tests with connection pools and for waiting backends, plus 20 for pgfresh itself
    // (`Shares` in the crate `lease`). The boot takes no longer than with 100.
    ("max_connections", "320"),
    // These limits are multiplied by the number of connections. The products, i.e. all locks and the number
    // of a table's locks before they become one, are the same as with 100 connections. The boot is 3 ms
    // faster because there is less shared memory to set up.
    ("max_pred_locks_per_transaction", "22"),
    ("max_pred_locks_per_relation", "31"),
    // Segments become files in the data directory. This way none is left behind, and it works if /dev/shm is
    // small.
    ("dynamic_shared_memory_type", "mmap"),
    ("io_method", "sync"),
    // Let the kernel copy the files of a template. It shares their blocks if the file system supports that.
    ("file_copy_method", "clone"),
    ("jit", "off"),
    ("update_process_title", "off"),
    ("log_checkpoints", "off"),
    ("log_autovacuum_min_duration", "-1"),
    // Longer than any lease lasts. Once autovacuum has analysed a table, the table would no longer be
    // identical to its template.
    ("autovacuum_naptime", "1h"),
    ("bgwriter_lru_maxpages", "0"),
    ("bgwriter_delay", "10s"),
    ("checkpoint_timeout", "1h"),
];

/// Environment variables for a server, in both presets. The C library is glibc on most systems. It returns
/// memory to the kernel as soon as 128 KiB are free, and requests it again in the next statement. With the
/// first variable, a process keeps up to 8 MiB of free memory. Without the second variable, glibc would
/// return each piece of 128 KiB or more separately. Source: mallopt(3).
pub(crate) const ENVIRONMENT: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "8388608"), ("MALLOC_MMAP_THRESHOLD_", "4194304")];

/// Settings that are only for servers with disposable data.
pub(crate) const FAST: [(&str, &str); 5] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("wal_writer_delay", "10s"),
    ("min_wal_size", "32MB"),
];

/// Settings for a server with persistent data. They have the same values as `PostgreSQL`'s defaults, because
/// the tables grow and users work with them for days.
pub(crate) const PERSISTENT: [(&str, &str); 2] =
    [("autovacuum_naptime", "1min"), ("checkpoint_timeout", "5min")];

/// Returns all settings that any preset can set.
pub(crate) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    LOCALE.iter().chain(&COMMON).chain(&FAST).copied()
}
