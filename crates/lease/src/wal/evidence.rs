//! Collects the evidence that databases equal their templates: the changes found in the write-ahead log.
//!
//! One reader follows the server's log. To check a database, a caller makes the server flush the
//! log up to a mark ([`MARK`]), makes the reader read up to this mark, and takes the changes.
//!
//! If the reader loses track of the log, all existing databases are in doubt. If the log's format is unknown (for
//! example, because the server is a newer `PostgreSQL`), every used database is in doubt, so pgfresh hands out only new
//! copies.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use sys::lock;

use crate::admin::{AdminPool, MARK, mark_of};
use crate::error::{LeaseError, chain};
use crate::lsn::Lsn;
use crate::wal::changes::{Changes, SharedChange};
use crate::wal::error::WalError;
use crate::wal::reader::WalReader;

/// A period in which the reader followed the log without a gap. If two points in time are in the same epoch, pgfresh
/// knows all changes in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Epoch(u64);

/// The evidence for all databases of one server.
#[derive(Debug)]
pub(crate) struct Evidence {
    data: PathBuf,
    /// Whether a standby or a backup may replay the log.
    replayed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The log reader. After a failure, this may be `None` until the next mark.
    reader: Option<WalReader>,
    /// Whether the format of the server's log is unknown. If so, there is never a reader.
    unknown_format: bool,
    epoch: Epoch,
    /// Files of the shared catalogs that a session reads only at its start.
    settings: Vec<u32>,
    /// Log position of the last change to one of the `settings` files.
    settings_changed: Lsn,
    /// Changes to the watched shared catalogs that no caller has taken yet.
    shared: Vec<SharedChange>,
    watched: Vec<u32>,
    /// Whether pgfresh may have missed changes to the watched catalogs.
    missed_shared: bool,
    /// Reasons why the reader couldn't follow the log, as messages for users.
    failures: Vec<String>,
}

/// Selects the files of the watched shared catalogs. The first three are the ones that a session reads at its start:
/// roles, their memberships and their settings. The last one doesn't exist in all major versions. Each file is a column
/// rather than a row, because the server then needs a third of the time to plan the query.
const WATCHED: &str = "SELECT pg_relation_filenode('pg_authid'), pg_relation_filenode('pg_auth_members'), \
    pg_relation_filenode('pg_db_role_setting'), pg_relation_filenode('pg_tablespace'), \
    pg_relation_filenode('pg_subscription'), pg_relation_filenode('pg_replication_origin'), \
    pg_relation_filenode('pg_shdescription'), pg_relation_filenode('pg_shseclabel'), \
    pg_relation_filenode(to_regclass('pg_parameter_acl'))";
/// How many of the watched catalogs a session reads at its start.
const SETTINGS: usize = 3;

impl Evidence {
    /// Starts following the log, beginning with the next record.
    pub(crate) fn open(data: PathBuf, admin: &AdminPool) -> Result<Self, LeaseError> {
        let rows = admin.run("mark the log", &format!("{WATCHED}; {MARK}"))?;
        let mark = mark_of(&rows);
        let files = rows.first().into_iter().flatten();
        let watched: Vec<u32> = files.filter_map(|file| file.as_deref()?.parse().ok()).collect();
        let settings = watched.iter().take(SETTINGS).copied().collect();
        let state = State { settings, settings_changed: mark, watched, ..State::default() };
        let evidence = Self { data, replayed: AtomicBool::new(false), state: Mutex::new(state) };
        evidence.lock().begin(&evidence.data, mark);
        Ok(evidence)
    }

    /// Reads the log up to a mark. Returns the epoch afterwards.
    pub(crate) fn read(&self, mark: Lsn) -> Epoch {
        let mut state = self.lock();
        state.advance(&self.data, mark);
        state.epoch
    }

    /// Makes the server flush the log and reads it. Call this regularly during
    /// long leases; otherwise, the server could recycle unread parts of the log.
    pub(crate) fn catch_up(&self, admin: &AdminPool) -> Result<Lsn, LeaseError> {
        let mark = mark_of(&admin.run("mark the log", MARK)?);
        self.read(mark);
        Ok(mark)
    }

    /// Reads the log up to a mark and takes the changes in a database since the last call for it.
    pub(crate) fn changes_up_to(&self, mark: Lsn, database: u32) -> Changes {
        self.read(mark);
        self.take(database)
    }

    /// Takes the changes that the reader has found in a database so far.
    pub(crate) fn take(&self, database: u32) -> Changes {
        let mut state = self.lock();
        match &mut state.reader {
            Some(reader) => reader.take(database),
            None => Changes { doubt: Some("the write-ahead log could not be read"), ..Changes::default() },
        }
    }

    /// Returns true if the log's format is supported, so that pgfresh can find changes.
    pub(crate) fn has_known_format(&self) -> bool {
        !self.lock().unknown_format
    }

    /// Returns true if a ready database has no changes. If the log's format is unknown, every ready database is a new
    /// copy that no client has used, so this also returns true.
    pub(crate) fn is_untouched(&self, database: u32) -> bool {
        self.lock().is_untouched(database)
    }

    /// Returns true if a database hasn't changed since the server started. Call this only for databases whose changes
    /// are never taken.
    pub(crate) fn is_as_at_start(&self, database: u32) -> bool {
        let state = self.lock();
        state.epoch == Epoch::default() && state.reader.is_some() && state.is_untouched(database)
    }

    /// Records that another server or a backup may replay the log from now on, so that all data must go through the
    /// log.
    pub(crate) fn log_is_replayed(&self) {
        self.replayed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_log_replayed(&self) -> bool {
        self.replayed.load(Ordering::Relaxed)
    }

    /// Returns all changes that the reader has found in a database so far. Call this only for databases whose changes
    /// are never taken.
    pub(crate) fn changes(&self, database: u32) -> Changes {
        let state = self.lock();
        state.reader.as_ref().and_then(|reader| reader.peek(database)).cloned().unwrap_or_default()
    }

    /// Returns the oid of the source that this database was copied from, or `None` if the log doesn't show it.
    pub(crate) fn source(&self, database: u32) -> Option<u32> {
        self.lock().reader.as_ref()?.source(database)
    }

    /// Returns true if any of the database's files selected by `is_such`
    /// may have changed, according to the part of the log read so far.
    pub(crate) fn may_have_changed(&self, database: u32, is_such: impl Fn(u32) -> bool) -> bool {
        let state = self.lock();
        let Some(reader) = &state.reader else { return true };
        reader.peek(database).is_some_and(|changes| {
            changes.doubt.is_some() || changes.files.keys().any(|file| is_such(file.number))
        })
    }

    /// Returns the log position of the last change to the catalogs that a session reads at its start, or `None` if
    /// unknown.
    pub(crate) fn settings_changed(&self) -> Option<Lsn> {
        let state = self.lock();
        state.reader.as_ref().map(|_| state.settings_changed)
    }

    /// Returns true if the catalogs that a session reads at its start haven't changed since the log position `since`.
    pub(crate) fn are_settings_unchanged(&self, since: Lsn) -> bool {
        self.settings_changed().is_some_and(|changed| since > changed)
    }

    /// Returns the log position that the reader has reached, or 0 if there is no reader.
    pub(crate) fn position(&self) -> Lsn {
        self.lock().reader.as_ref().map_or(Lsn(0), WalReader::position)
    }

    /// Takes the changes to shared catalogs that the reader has found since
    /// the last call. Returns `None` if pgfresh may have missed some.
    pub(crate) fn take_shared(&self) -> Option<Vec<SharedChange>> {
        let mut state = self.lock();
        let (changes, missed) = (std::mem::take(&mut state.shared), std::mem::take(&mut state.missed_shared));
        (!missed).then_some(changes)
    }

    /// Returns true if a thread panicked while reading the log. If so, all other calls panic too.
    pub(crate) fn is_half_read(&self) -> bool {
        self.state.is_poisoned()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.lock().epoch
    }

    /// Takes the reasons why the reader couldn't follow the log.
    pub(crate) fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().failures)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Opens the log of a server that has just started.
    fn begin(&mut self, data: &std::path::Path, mark: Lsn) {
        match WalReader::open(data, mark) {
            Ok(reader) => self.reader = Some(reader),
            Err(error) => {
                self.unknown_format = matches!(error, WalError::Magic(_));
                self.fail(&error);
            }
        }
    }

    fn open(&mut self, data: &std::path::Path, mark: Lsn) {
        match WalReader::open(data, mark) {
            Ok(reader) => self.reader = Some(reader),
            Err(error) => self.fail(&error),
        }
    }

    fn is_untouched(&self, database: u32) -> bool {
        let Some(reader) = &self.reader else { return self.unknown_format };
        reader.peek(database).is_none_or(|changes| changes.doubt.is_none() && changes.files.is_empty())
    }

    fn advance(&mut self, data: &std::path::Path, mark: Lsn) {
        if self.unknown_format {
            self.missed_shared = true;
            return;
        }
        // Without a position, the reader can't know where to stop, so don't trust anything from before.
        if mark == Lsn(0) {
            self.reader = None;
            self.begin_anew(mark);
            self.failures.push("the server returned no position of the write-ahead log".to_owned());
            return;
        }
        let Some(reader) = &mut self.reader else {
            // A new reader begins here, so don't trust anything from before.
            self.begin_anew(mark);
            return self.open(data, mark);
        };
        // Another thread may have read further.
        if mark <= reader.position() {
            return;
        }
        if let Err(error) = reader.advance(mark) {
            self.reader = None;
            self.begin_anew(mark);
            self.fail(&error);
            return self.open(data, mark);
        }
        let changes = reader.take_shared();
        if changes.iter().any(|change| self.settings.contains(&change.file.number)) {
            self.settings_changed = mark;
        }
        let watched = &self.watched;
        self.shared.extend(changes.into_iter().filter(|change| watched.contains(&change.file.number)));
    }

    /// Begins a new epoch at the mark, so that callers don't trust anything from before.
    fn begin_anew(&mut self, mark: Lsn) {
        self.epoch.0 += 1;
        self.settings_changed = mark;
        self.missed_shared = true;
    }

    fn fail(&mut self, error: &WalError) {
        self.failures.push(chain(error));
    }
}

/// Writes a log that consists of one page header.
#[cfg(test)]
pub(crate) fn log_with(magic: u16) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut page = vec![0; 8192];
    page[..2].copy_from_slice(&magic.to_ne_bytes());
    page[2..4].copy_from_slice(&2_u16.to_ne_bytes());
    page[4..8].copy_from_slice(&1_u32.to_ne_bytes());
    page[8..16].copy_from_slice(&0x0100_0000_u64.to_ne_bytes());
    page[32..36].copy_from_slice(&0x0100_0000_u32.to_ne_bytes());
    page[36..40].copy_from_slice(&8192_u32.to_ne_bytes());
    std::fs::create_dir(folder.path().join("pg_wal")).unwrap();
    let mut segment = std::fs::File::create(folder.path().join("pg_wal/000000010000000000000001")).unwrap();
    std::io::Write::write_all(&mut segment, &page).unwrap();
    // A segment has 16 MiB, as stated in the page header.
    segment.set_len(0x0100_0000).unwrap();
    folder
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    impl Evidence {
        /// Sets the position of the last change to settings.
        pub(crate) fn change_settings(&self, at: Lsn) {
            self.lock().settings_changed = at;
        }

        /// Drops the log reader, as after a failure.
        pub(crate) fn lose(&self) {
            self.lock().reader = None;
        }
    }

    fn evidence_of(folder: &tempfile::TempDir) -> Evidence {
        let evidence = Evidence {
            data: folder.path().to_owned(),
            replayed: AtomicBool::default(),
            state: Mutex::default(),
        };
        evidence.lock().begin(&evidence.data, Lsn(0x0100_0028));
        evidence
    }

    /// pgfresh can still hand out new copies, but no used database counts as fresh.
    #[test]
    fn unknown_log_format_leaves_only_copies_fresh() {
        let folder = log_with(0xD123);
        let evidence = evidence_of(&folder);
        assert!(!evidence.has_known_format());
        let epoch = evidence.epoch();
        assert_eq!(evidence.read(Lsn(0x0100_0100)), epoch, "a copy made before is still one");
        assert!(evidence.is_untouched(5));
        assert!(evidence.take(5).doubt.is_some(), "a used database is in doubt");
        assert!(evidence.may_have_changed(5, |_| false));
        assert!(!evidence.are_settings_unchanged(Lsn(0x0100_0100)));
        assert_eq!(evidence.take_shared(), None, "what all databases share may have changed");
        assert_eq!(evidence.take_failures(), ["unknown magic number 0xD123 in the write-ahead log"]);
    }

    #[test]
    fn changes_read_without_log_mark_are_in_doubt() {
        let folder = log_with(0xD118);
        let evidence = evidence_of(&folder);
        assert_eq!(evidence.changes_up_to(Lsn(0x0100_0028), 5).doubt, None);
        let (epoch, mark) = (evidence.epoch(), mark_of(&vec![vec![None]]));
        assert!(evidence.changes_up_to(mark, 5).doubt.is_some());
        assert_ne!(evidence.epoch(), epoch);
        assert_eq!((evidence.take_failures().len(), evidence.take_shared()), (1, None));
        // A new reader begins at the next mark.
        assert_eq!(evidence.changes_up_to(Lsn(0x0100_0028), 5).doubt, None);
    }

    #[test]
    fn failed_log_read_makes_all_databases_stale() {
        let folder = log_with(0xD118);
        let evidence = evidence_of(&folder);
        assert!(evidence.has_known_format());
        let epoch = evidence.epoch();
        fs::remove_dir_all(folder.path().join("pg_wal")).unwrap();
        assert_ne!(evidence.read(Lsn(0x0100_0100)), epoch);
        assert!(!evidence.is_untouched(5) && evidence.has_known_format());
    }
}
