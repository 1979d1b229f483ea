//! Derives the cause of a wait from the server's wait event.
//!
//! Event names changed between versions 13 and 18: for example, `WALSync` became `WalSync` in 17. Event types changed,
//! too: `BufferIO` is an `LWLock` in 13 and an `IPC` since 14. Newer versions also have additional events. Source: the
//! tables of wait events in the manuals of versions 13 to 18.

use std::fmt;

/// Why a statement hasn't finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// No wait event: the backend is running or ready to run.
    Cpu,
    /// The session flushes the WAL or waits for another session to do so on its behalf.
    WalSync,
    /// Flush of data files.
    DataSync,
    /// Wait for a checkpoint.
    Checkpoint,
    /// Wait inside a system call that doesn't flush anything itself, such as a write or a file's removal. On a server
    /// with `fsync=on`, such a call waits for the file system's journal, which is busy with another process's flush.
    FileSystem,
    /// Read or write of WAL in the operating system's cache.
    WalIo,
    /// Read, write, extension or removal of data files.
    DataIo,
    /// Wait for another transaction's lock.
    Lock,
    /// Short-lived lock in shared memory.
    Internal,
    /// Wait for the client to send or read more data.
    Client,
    /// Any other wait, for example a sleep or a wait for a parallel worker, replication, or an extension.
    Other,
}

impl Cause {
    /// Returns the cause's name in reports.
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

    /// Returns true if this wait wouldn't exist on a server without flushes.
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(self, Self::WalSync | Self::DataSync | Self::Checkpoint | Self::FileSystem)
    }

    /// Returns true if a backend with this cause may be waiting for another process's flush while it sleeps in the
    /// kernel. This only applies to backends that change files, because reading doesn't wait for a flush.
    pub(crate) fn may_wait_for_others(self, event: Option<&str>) -> bool {
        let reads = || event.is_some_and(|event| event.to_ascii_lowercase().contains("read"));
        matches!(self, Self::Cpu) || matches!(self, Self::WalIo | Self::DataIo) && !reads()
    }

    /// Returns the cause for the wait event `event` of type `kind`. Both are `None` if there is no wait event.
    #[must_use]
    pub fn of(kind: Option<&str>, event: Option<&str>) -> Self {
        let Some(kind) = kind else { return Self::Cpu };
        let event = event.unwrap_or_default().to_ascii_lowercase();
        match kind {
            "IO" => of_io(&event),
            // The session is waiting for another session to flush the WAL on its behalf.
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
    // Any event with "sync" in its name is a flush, including "…syncmethodassign".
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
