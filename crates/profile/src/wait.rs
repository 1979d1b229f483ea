//! Derives the cause of a wait from the server's wait event.
//!
//! The events' names differ between versions 13 and 18. Their spelling has changed (`WALSync`, since 17 `WalSync`), and
//! so has their type (`BufferIO` is an `LWLock` in 13, and `IPC` since 14). Newer versions have additional events.
//! Source: the manual's tables of wait events, versions 13 to 18.

use std::fmt;

/// Reason why a statement has not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// There is no wait event, so the backend is running or ready to run.
    Cpu,
    /// Flush of the WAL by the session itself, or by a different session on its behalf.
    WalSync,
    /// Flush of data files.
    DataSync,
    /// Wait for a checkpoint.
    Checkpoint,
    /// Wait inside a system call that itself flushes nothing, e.g. a write or the removal of a file. On a server with
    /// `fsync=on`, the call waits for the file system's journal, because a flush by a different process keeps the
    /// journal busy.
    FileSystem,
    /// Read or write of WAL in the operating system's cache.
    WalIo,
    /// Read, write, extension or removal of data files.
    DataIo,
    /// Wait for a lock that a different transaction holds.
    Lock,
    /// Short-lived lock in shared memory.
    Internal,
    /// Wait for the client to send or to read more.
    Client,
    /// Any other wait, e.g. a sleep, a parallel worker, replication, or an extension.
    Other,
}

impl Cause {
    /// Returns the cause's name for reports.
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

    /// Whether this wait would not occur if the server flushed nothing.
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(self, Self::WalSync | Self::DataSync | Self::Checkpoint | Self::FileSystem)
    }

    /// Whether a backend with this cause that sleeps in the kernel is waiting for another process's flush. This is the
    /// case if it changes files rather than reads them.
    pub(crate) fn may_wait_for_others(self, event: Option<&str>) -> bool {
        let reads = || event.is_some_and(|event| event.to_ascii_lowercase().contains("read"));
        matches!(self, Self::Cpu) || matches!(self, Self::WalIo | Self::DataIo) && !reads()
    }

    /// Returns the cause for the wait event `event` of the type `kind`. Both are `None` for a backend without a wait
    /// event.
    #[must_use]
    pub fn of(kind: Option<&str>, event: Option<&str>) -> Self {
        let Some(kind) = kind else { return Self::Cpu };
        let event = event.unwrap_or_default().to_ascii_lowercase();
        match kind {
            "IO" => of_io(&event),
            // The session is waiting while a different one flushes the WAL on its behalf.
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
    // "…syncmethodassign" also flushes, like every event that has "sync" in its name.
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
