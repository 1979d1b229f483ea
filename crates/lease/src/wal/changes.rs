//! Collects the changes found in the log for each database, until a caller takes them.

use std::collections::{HashMap, HashSet};

use super::record::RelationFile;
use super::transactions::Transactions;

/// Changes to one file's contents, including uncommitted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of change, and they combine freely")]
pub struct FileChanges {
    /// Number of rows inserted.
    pub inserted: u64,
    /// Number of rows updated.
    pub updated: u64,
    /// Number of rows deleted, including speculative insertions that the server withdrew.
    pub deleted: u64,
    /// Whether the file has contained rows (dead or alive) since it was created or last truncated to zero pages.
    pub filled: bool,
    /// Whether the file was shortened, by VACUUM (which removes empty pages at the end) or by a TRUNCATE in the
    /// transaction that created the file.
    pub truncated: bool,
    /// Whether a row was changed in place, outside transactions. VACUUM, ANALYZE and CREATE INDEX do this in catalogs.
    pub in_place: bool,
    /// Whether a sequence has a new value.
    pub sequence: bool,
    /// Whether the file is new.
    pub created: bool,
    /// Whether contents may have changed in any other way: through whole pages, generic records, or records of an
    /// unknown kind.
    pub other: bool,
}

impl FileChanges {
    /// Returns true if rows or values may be different now. Rows that VACUUM removed or changed in place don't count.
    #[must_use]
    pub fn is_of_contents(&self) -> bool {
        let Self { inserted, updated, deleted, sequence, created, other, .. } = *self;
        inserted + updated + deleted > 0 || sequence || created || other
    }
}

/// Changes in one database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Files whose contents changed, excluding files where bytes only moved.
    pub files: HashMap<RelationFile, FileChanges>,
    /// Whether any of the changes is permanent, either because its transaction committed or because something other
    /// than a sequence changed outside transactions.
    pub committed: bool,
    /// The reason why `files` may be incomplete. `None` if it is complete.
    pub doubt: Option<&'static str>,
    /// Number of changes since `files` was cleared for becoming too large. Increases with every new change.
    pub uncounted: u64,
}

/// Maximum number of files recorded for one database. Without a limit, this number could grow forever, because sessions
/// may keep truncating tables in a database that is never reset.
pub(super) const MOST_FILES: usize = 10_000;
/// Reason to doubt a database with more than [`MOST_FILES`] changed files.
pub(super) const TOO_MANY_FILES: &str = "too many of its files were changed";

impl Changes {
    /// Records a change to a file.
    fn note(&mut self, file: RelationFile, note: impl FnOnce(&mut FileChanges)) {
        if self.uncounted == 0 && (self.files.len() < MOST_FILES || self.files.contains_key(&file)) {
            return note(self.files.entry(file).or_default());
        }
        self.uncounted += 1;
        self.doubt = Some(TOO_MANY_FILES);
        self.files = HashMap::new();
    }
}

/// A change to a catalog shared by all databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedChange {
    /// The catalog's file. Progress of replication origins, which no catalog contains, counts as a change to
    /// `pg_replication_origin`.
    pub file: RelationFile,
    /// The transaction's database, if the log shows it.
    pub from: Option<u32>,
    /// Whether a row was changed in place, outside transactions. For example, VACUUM does this in `pg_database`.
    pub in_place: bool,
}

/// Reason to doubt every new database, because it may have the oid of a dropped one. pgfresh removes the doubt for
/// databases it creates itself.
const MADE: &str = "it was made by SQL";

/// All changes found by the reader but not yet taken by a caller.
#[derive(Debug, Default)]
pub(super) struct UntakenChanges {
    databases: HashMap<u32, Changes>,
    shared: Vec<SharedChange>,
    seen_shared: HashSet<SharedChange>,
    transactions: Transactions,
    /// If this is set, every database is in doubt, except those in `exempt`. A database becomes exempt when a caller
    /// takes its changes or when its creation completes.
    doubtful: Option<Changes>,
    exempt: HashSet<u32>,
    /// Maps each database that is a copy to the database whose files were copied.
    sources: HashMap<u32, u32>,
    /// Databases moving to another tablespace. The server drops only their old files.
    moved: HashSet<u32>,
}

impl UntakenChanges {
    /// Returns a database's entry, creating it if necessary.
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

    /// Records a new file. This alone doesn't set `committed`, because no session can see the file before its row in
    /// `pg_class` is committed.
    pub(super) fn create(&mut self, transaction: u32, file: RelationFile) {
        if file.database == 0 {
            self.change(transaction, file, |_| ());
            return;
        }
        self.entry(file.database).note(file, |changes| changes.created = true);
        self.transactions.touch(transaction, file.database);
    }

    /// Records a new sequence value, which no rollback undoes.
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

    /// Records a change to a shared catalog.
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

    /// Records that transactions committed together. `database` is where they ran, if the log shows it.
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

    /// Records that transactions were rolled back together. Their changes in databases remain recorded, but those to
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

    /// Records that `transaction` creates a database as a copy of `source`, if the log shows the source. Until the
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

    /// Records that a database is moving to another tablespace, so that the server will drop its old files.
    pub(super) fn move_database(&mut self, database: u32) {
        self.moved.insert(database);
        self.doubt(database, "the database was moved to another tablespace");
    }

    /// Records that the server dropped a database's files. Unless the database is just moving, it is gone.
    pub(super) fn drop_database(&mut self, database: u32) {
        if !self.moved.contains(&database) {
            self.databases.remove(&database);
            self.exempt.remove(&database);
            self.sources.remove(&database);
        }
    }

    /// Returns the source that this database was copied from, if the log shows it.
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

    /// Returns the changes in a database without taking them, or `None` if there are none.
    pub(super) fn peek(&self, database: u32) -> Option<&Changes> {
        let doubtful = || self.doubtful.as_ref().filter(|_| !self.exempt.contains(&database));
        self.databases.get(&database).or_else(doubtful)
    }

    /// Takes the changes to shared catalogs.
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
