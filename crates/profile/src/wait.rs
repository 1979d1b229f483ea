//! Causes of waits, derived from the server's wait events.
//!
//! The names of events differ between versions 13 and 18. Their case has changed (`WALSync`, since 17 `WalSync`), as
//! has their type (`BufferIO` is an `LWLock` in 13, and `IPC` since 14), and newer versions have more. Source: the
//! manual's tables of wait events, versions 13 to 18.

use std::fmt;

/// Reason why a statement is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// No wait event: the backend runs, or is ready to run.
    Cpu,
    /// Flush of the WAL, by the session itself or by another one on its behalf.
    WalSync,
    /// Flush of data files.
    DataSync,
    /// A checkpoint.
    Checkpoint,
    /// Wait inside a system call that itself flushes nothing, such as a write or the removal of a file. On a server
    /// with `fsync=on`, the call waits for the file system's journal, which another flush keeps busy.
    FileSystem,
    /// Read or write of WAL in the operating system's cache.
    WalIo,
    /// Read, write, extension or removal of data files.
    DataIo,
    /// Lock of another transaction.
    Lock,
    /// Short lock in shared memory.
    Internal,
    /// Wait for the client to send or read more.
    Client,
    /// Sleep, parallel worker, replication or extension.
    Other,
}

impl Cause {
    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::WalSync => "WAL sync",
            Self::DataSync => "data file sync",
            Self::Checkpoint => "checkpoint",
            Self::FileSystem => "file system",
            Self::WalIo => "WAL I/O",
            Self::DataIo => "data file I/O",
            Self::Lock => "lock",
            Self::Internal => "internal lock",
            Self::Client => "client",
            Self::Other => "other",
        }
    }

    /// Whether the wait would not exist if nothing were flushed.
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(self, Self::WalSync | Self::DataSync | Self::Checkpoint | Self::FileSystem)
    }

    /// Whether a backend with this cause that sleeps in the kernel waits for a flush by another one. True if it changes
    /// files rather than reads them.
    pub(crate) fn may_wait_for_others(self, event: Option<&str>) -> bool {
        let reads = || event.is_some_and(|event| event.to_ascii_lowercase().contains("read"));
        matches!(self, Self::Cpu) || matches!(self, Self::WalIo | Self::DataIo) && !reads()
    }

    /// Returns the cause of a wait event; `None` stands for no event.
    #[must_use]
    pub fn of(kind: Option<&str>, event: Option<&str>) -> Self {
        let Some(kind) = kind else { return Self::Cpu };
        let event = event.unwrap_or_default().to_ascii_lowercase();
        match kind {
            "IO" => of_io(&event),
            // The session waits while another one flushes the WAL for it.
            "LWLock" if event == "walwrite" => Self::WalSync,
            "LWLock" | "IPC" if event == "bufferio" => Self::DataIo,
            "LWLock" => Self::Internal,
            "IPC" if event.starts_with("checkpoint") => Self::Checkpoint,
            "IPC" if event.ends_with("groupupdate") => Self::Internal,
            "IPC" if event == "safesnapshot" => Self::Lock,
            "Lock" | "BufferPin" | "Buffer" => Self::Lock,
            "Timeout" if event == "spindelay" => Self::Internal,
            "Client" => Self::Client,
            _ => Self::Other,
        }
    }
}

fn of_io(event: &str) -> Cause {
    let wal = event.starts_with("wal") || event.starts_with("timelinehistory");
    // "…syncmethodassign" flushes as well. Every event with "sync" in its name does.
    match (wal, event.contains("sync")) {
        (true, true) => Cause::WalSync,
        (true, false) => Cause::WalIo,
        (false, true) => Cause::DataSync,
        (false, false) => Cause::DataIo,
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_every_major_have_a_cause() {
        for (kind, event, expected) in [
            ("IO", "WALSync", Cause::WalSync),
            ("IO", "WalSync", Cause::WalSync),
            ("IO", "WALSyncMethodAssign", Cause::WalSync),
            ("IO", "WALInitSync", Cause::WalSync),
            ("IO", "WalInitWrite", Cause::WalIo),
            ("IO", "DataFileImmediateSync", Cause::DataSync),
            ("IO", "DataFileSync", Cause::DataSync),
            ("IO", "SLRUSync", Cause::DataSync),
            ("IO", "SlruRead", Cause::DataIo),
            ("IO", "VersionFileSync", Cause::DataSync),
            ("IO", "DataFileExtend", Cause::DataIo),
            ("IO", "AioIoCompletion", Cause::DataIo),
            ("IO", "CopyFileCopy", Cause::DataIo),
            ("LWLock", "WALWrite", Cause::WalSync),
            ("LWLock", "BufferIO", Cause::DataIo),
            ("IPC", "BufferIo", Cause::DataIo),
            ("LWLock", "BufferContent", Cause::Internal),
            ("IPC", "CheckpointDone", Cause::Checkpoint),
            ("IPC", "ProcarrayGroupUpdate", Cause::Internal),
            ("IPC", "SyncRep", Cause::Other),
            ("Lock", "relation", Cause::Lock),
            ("BufferPin", "BufferPin", Cause::Lock),
            ("Client", "ClientRead", Cause::Client),
            ("Timeout", "PgSleep", Cause::Other),
            ("Extension", "Extension", Cause::Other),
        ] {
            assert_eq!(Cause::of(Some(kind), Some(event)), expected, "{kind} {event}");
        }
        assert_eq!(Cause::of(None, None), Cause::Cpu);
    }

    #[test]
    fn write_waits_may_await_other_flushes_unlike_reads() {
        let may = |kind, event| Cause::of(kind, event).may_wait_for_others(event);
        assert!(may(None, None));
        for event in
            ["WALWrite", "WalInitWrite", "DataFileExtend", "DataFileWrite", "SLRUWrite", "CopyFileCopy"]
        {
            assert!(may(Some("IO"), Some(event)), "{event}");
        }
        for event in ["DataFileRead", "WalRead", "SlruRead", "WALSync", "DataFileImmediateSync"] {
            assert!(!may(Some("IO"), Some(event)), "{event}");
        }
        assert!(!may(Some("Lock"), Some("relation")) && !may(Some("Client"), Some("ClientRead")));
    }
}
