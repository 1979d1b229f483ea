//! Collects the changes that the log shows in each database, until a caller takes them.

use std::collections::{HashMap, HashSet};

use super::record::RelationFile;
use super::transactions::Transactions;

/// Changes of one file's contents. They include changes that were not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of change, and they combine freely")]
pub struct FileChanges {
    /// Number of rows inserted.
    pub inserted: u64,
    /// Number of rows updated.
    pub updated: u64,
    /// Number of rows deleted, including speculative insertions that the server took back.
    pub deleted: u64,
    /// Whether there have been rows (dead or alive) in the file since it was created or last truncated to zero pages.
    pub filled: bool,
    /// Whether the file was shortened. VACUUM removes empty pages at the end of a file, and TRUNCATE shortens a file that is new
    /// in the same transaction.
    pub truncated: bool,
    /// Whether a row was changed in place, outside transactions. VACUUM, ANALYZE and CREATE INDEX do this in catalogs.
    pub in_place: bool,
    /// Whether a sequence has a new value.
    pub sequence: bool,
    /// Whether the file is new.
    pub created: bool,
    /// Whether contents may have changed in another way: through whole pages, generic records, or records of an unknown kind.
    pub other: bool,
}

impl FileChanges {
    /// Whether rows or values may be different now. Dead rows that VACUUM removed and rows that it wrote in place don't count.
    #[must_use]
    pub fn is_of_contents(&self) -> bool {
        let Self { inserted, updated, deleted, sequence, created, other, .. } = *self;
        inserted + updated + deleted > 0 || sequence || created || other
    }
}

/// Changes in one database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Files whose contents changed. Files in which bytes only moved are not included.
    pub files: HashMap<RelationFile, FileChanges>,
    /// Whether any of the changes is certain to last: a transaction with a change here committed, or something other than a
    /// sequence changed outside transactions.
    pub committed: bool,
    /// The reason why `files` may be incomplete. `None` if it is complete.
    pub doubt: Option<&'static str>,
    /// Number of changes since `files` became too large and was cleared. While it stays the same, there are no new changes.
    pub uncounted: u64,
}

/// Maximum number of files that the reader keeps for one database. If sessions truncate tables again and again and the database
/// is never reset, the number would grow forever.
pub(super) const MOST_FILES: usize = 10_000;
/// Reason to doubt a database with more changed files than that.
pub(super) const TOO_MANY_FILES: &str = "too many of its files were changed";

impl Changes {
    /// Records a change of a file.
    fn note(&mut self, file: RelationFile, note: impl FnOnce(&mut FileChanges)) {
        if self.uncounted == 0 && (self.files.len() < MOST_FILES || self.files.contains_key(&file)) {
            return note(self.files.entry(file).or_default());
        }
        self.uncounted += 1;
        self.doubt = Some(TOO_MANY_FILES);
        self.files = HashMap::new();
    }
}

/// A change of a catalog that all databases share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedChange {
    /// The catalog's file. The progress of replication origins is in no catalog. A change of it counts as one of
    /// `pg_replication_origin`.
    pub file: RelationFile,
    /// The database in which the transaction ran, if the log shows it.
    pub from: Option<u32>,
    /// Whether a row was changed in place, outside transactions. For example, VACUUM does this in `pg_database`.
    pub in_place: bool,
}

/// Reason to doubt every new database, because it may have the oid of one that was dropped. pgfresh removes the doubt for the
/// databases that it creates itself.
const MADE: &str = "it was made by SQL";

/// All changes that the reader has found and no caller has taken yet.
#[derive(Debug, Default)]
pub(super) struct UntakenChanges {
    databases: HashMap<u32, Changes>,
    shared: Vec<SharedChange>,
    seen_shared: HashSet<SharedChange>,
    transactions: Transactions,
    /// If this is set, every database is in doubt, except those in `exempt`. A database becomes exempt when a caller takes its
    /// changes, or when its creation ends.
    doubtful: Option<Changes>,
    exempt: HashSet<u32>,
    /// Maps each database that is a copy to the database from which its files were copied.
    sources: HashMap<u32, u32>,
    /// Databases that are moving to another tablespace. The server drops their old files, but not the databases.
    moved: HashSet<u32>,
}

impl UntakenChanges {
    /// Returns the entry of a database, after creating it if necessary.
    fn entry(&mut self, database: u32) -> &mut Changes {
        let doubt = self.doubtful.as_ref().filter(|_| !self.exempt.contains(&database));
        self.databases.entry(database).or_insert_with(|| doubt.cloned().unwrap_or_default())
    }

    /// Records a change by `transaction`, or outside transactions if that is 0.
    pub(super) fn change(
        &mut self,
        transaction: u32,
        file: RelationFile,
        note: impl FnOnce(&mut FileChanges),
    ) {
        if file.database == 0 {
            match transaction {
                0 => self.share(SharedChange { file, from: None, in_place: false }),
                _ => self.transactions.share(transaction, file),
            }
            return;
        }
        let entry = self.entry(file.database);
        entry.note(file, note);
        entry.committed |= transaction == 0;
        self.transactions.touch(transaction, file.database);
    }

    /// Records a new file. A new file alone does not set `committed`, because no session can see the file before its row in
    /// `pg_class` is committed.
    pub(super) fn create(&mut self, transaction: u32, file: RelationFile) {
        if file.database == 0 {
            self.change(transaction, file, |_| ());
            return;
        }
        self.entry(file.database).note(file, |changes| changes.created = true);
        self.transactions.touch(transaction, file.database);
    }

    /// Records a new value of a sequence, which no rollback undoes.
    pub(super) fn sequence(&mut self, file: RelationFile) {
        if file.database == 0 {
            self.share(SharedChange { file, from: None, in_place: false });
            return;
        }
        self.entry(file.database).note(file, |changes| changes.sequence = true);
    }

    /// Records that a row was changed in place, which no rollback undoes.
    pub(super) fn in_place(&mut self, file: RelationFile) {
        if file.database == 0 {
            self.share(SharedChange { file, from: None, in_place: true });
            return;
        }
        let entry = self.entry(file.database);
        entry.note(file, |changes| changes.in_place = true);
        entry.committed = true;
    }

    /// Records a change of a shared catalog.
    pub(super) fn share(&mut self, change: SharedChange) {
        if self.seen_shared.insert(change) {
            self.shared.push(change);
        }
    }

    /// Puts a database in doubt, or all databases if `database` is 0.
    pub(super) fn doubt(&mut self, database: u32, why: &'static str) {
        if database != 0 {
            self.entry(database).doubt = Some(why);
            return;
        }
        self.databases.values_mut().for_each(|changes| changes.doubt = Some(why));
        self.exempt.clear();
        self.doubtful = Some(Changes { doubt: Some(why), ..Changes::default() });
    }

    /// Records that transactions committed together. `database` is the database in which they ran, if the log shows it.
    pub(super) fn commit(&mut self, transactions: impl Iterator<Item = u32>, database: Option<u32>) {
        let ended = self.transactions.end(transactions);
        let only = match ended.databases[..] {
            [(only, _)] => Some(only),
            _ => None,
        };
        for (touched, taken) in ended.databases {
            let entry = self.entry(touched);
            entry.committed = true;
            if taken {
                entry.doubt = Some("a change from before the last look was committed after it");
            }
        }
        for file in ended.shared {
            self.share(SharedChange { file, from: database.or(only), in_place: false });
        }
        self.forget(&ended.created);
        for database in ended.created {
            self.entry(database).doubt = Some(MADE);
        }
    }

    /// Records that transactions were rolled back together. Their changes in databases remain recorded, but their changes of
    /// shared catalogs don't count.
    pub(super) fn abort(&mut self, transactions: impl Iterator<Item = u32>) {
        let ended = self.transactions.end(transactions);
        self.forget(&ended.created);
    }

    fn forget(&mut self, databases: &[u32]) {
        for database in databases {
            self.databases.remove(database);
            self.exempt.insert(*database);
        }
    }

    /// Records that `transaction` creates a database. `source` is the database that it copies, if the log shows it. Until the
    /// transaction ends, all records about the new database are part of its creation.
    pub(super) fn create_database(&mut self, transaction: u32, database: u32, source: Option<u32>) {
        if transaction == 0 {
            self.doubt(database, "the database was made outside of transactions");
            return;
        }
        self.databases.remove(&database);
        match source {
            Some(source) => self.sources.insert(database, source),
            None => self.sources.remove(&database),
        };
        self.transactions.create(transaction, database);
    }

    /// Records that a database is moving to another tablespace. The server will drop its old files.
    pub(super) fn move_database(&mut self, database: u32) {
        self.moved.insert(database);
        self.doubt(database, "the database was moved to another tablespace");
    }

    /// Records that the server dropped files of a database. Unless the database is only moving, it is gone.
    pub(super) fn drop_database(&mut self, database: u32) {
        if !self.moved.contains(&database) {
            self.databases.remove(&database);
            self.exempt.remove(&database);
            self.sources.remove(&database);
        }
    }

    /// Returns the database from which this one was copied, if the log shows it.
    pub(super) fn source(&self, database: u32) -> Option<u32> {
        self.sources.get(&database).copied()
    }

    /// Takes the changes in a database.
    pub(super) fn take(&mut self, database: u32) -> Changes {
        self.transactions.mark_taken(database);
        self.moved.remove(&database);
        let changes = self.peek(database).is_some().then(|| std::mem::take(self.entry(database)));
        self.databases.remove(&database);
        if self.doubtful.is_some() {
            self.exempt.insert(database);
        }
        changes.unwrap_or_default()
    }

    /// Returns the changes in a database without taking them. Returns `None` if there are none.
    pub(super) fn peek(&self, database: u32) -> Option<&Changes> {
        let doubtful = || self.doubtful.as_ref().filter(|_| !self.exempt.contains(&database));
        self.databases.get(&database).or_else(doubtful)
    }

    /// Takes the changes of shared catalogs.
    pub(super) fn take_shared(&mut self) -> Vec<SharedChange> {
        self.seen_shared.clear();
        std::mem::take(&mut self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_changed_files_leave_database_in_doubt() {
        let mut untaken = UntakenChanges::default();
        let file = |number| RelationFile { tablespace: 1663, database: 5, number };
        let mut change = |number| {
            untaken.create(7, file(number));
            untaken.peek(5).cloned().unwrap()
        };
        let most = u32::try_from(MOST_FILES).unwrap();
        let before = (1..=most).map(&mut change).last().unwrap();
        assert_eq!((before.files.len(), before.doubt, change(1).doubt), (MOST_FILES, None, None));
        let after = change(most + 1);
        assert_eq!((after.files.len(), after.doubt), (0, Some(TOO_MANY_FILES)));
        let later = change(1);
        assert_eq!(later.files.capacity(), 0);
        assert_ne!(later, after, "a later change is seen");
        untaken.take(5);
        untaken.create(7, file(1));
        assert_eq!(untaken.peek(5).unwrap().files.len(), 1);
    }
}
