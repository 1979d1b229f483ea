//! What a backend waits for, out of the names that the server has for it.
//!
//! Names differ between majors 13 and 18 in upper and lower case (`WALSync`, from 17 on `WalSync`), in their type
//! (`BufferIO` is an `LWLock` in 13, and `IPC` from 14 on), and in what was added. Source: the manual's tables of wait
//! events, versions 13 to 18.

use std::fmt;

/// Why a statement is not done yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It waits for nothing: it runs, or would if there were a processor for it.
    Cpu,
    /// The log is to reach the disk: by itself, or by a session that flushes for it.
    WalSync,
    /// Files of tables are to reach the disk.
    DataSync,
    /// A checkpoint.
    Checkpoint,
    /// The file system, within a call that flushes nothing itself, such as the removal of a file, or writing: on a server that
    /// flushes, for the journal that is being flushed.
    FileSystem,
    /// The log is read or written, which goes no further than the system's cache.
    WalIo,
    /// Files of tables are read, written, extended, removed.
    DataIo,
    /// Another transaction has locked what it wants.
    Lock,
    /// A part of shared memory, for moments.
    Internal,
    /// The client is to say or to read more.
    Client,
    /// A sleep, a parallel worker, a replica, an extension.
    Other,
}

impl Cause {
    /// What people call it.
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

    /// Whether it would not be there if nothing were flushed.
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(self, Self::WalSync | Self::DataSync | Self::Checkpoint | Self::FileSystem)
    }

    /// Whether a session of this cause, if it sleeps in the kernel, waits for what others flush: it changes files, and does not
    /// read them.
    pub(crate) fn may_wait_for_others(self, event: Option<&str>) -> bool {
        let reads = || event.is_some_and(|event| event.to_ascii_lowercase().contains("read"));
        matches!(self, Self::Cpu) || matches!(self, Self::WalIo | Self::DataIo) && !reads()
    }

    /// The cause behind a wait event; `None` is no event.
    #[must_use]
    pub fn of(kind: Option<&str>, event: Option<&str>) -> Self {
        let Some(kind) = kind else { return Self::Cpu };
        let event = event.unwrap_or_default().to_ascii_lowercase();
        match kind {
            "IO" => of_io(&event),
            // A session that comes while another flushes waits for that.
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
    // "…syncmethodassign" flushes as well; no name has "sync" in it that does not.
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
    fn who_writes_may_wait_for_what_others_flush_and_who_reads_does_not() {
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
