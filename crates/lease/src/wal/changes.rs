//! What the log says about each database since it was last taken.

use std::collections::{HashMap, HashSet};

use super::file::RelationFile;
use super::transactions::Transactions;

/// What happened to the contents of one file, in transactions that have committed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of change, and they combine freely")]
pub struct FileChanges {
    /// Rows inserted.
    pub inserted: u64,
    /// Rows updated.
    pub updated: u64,
    /// Rows deleted, and speculative insertions taken back.
    pub deleted: u64,
    /// Cut: by VACUUM, which removes empty pages at the end, or by a TRUNCATE of a file new in its transaction.
    pub truncated: bool,
    /// A row was changed in place, outside transactions: VACUUM, ANALYZE and CREATE INDEX do that to catalogs.
    pub in_place: bool,
    /// A sequence's value was written.
    pub sequence: bool,
    /// The file was made.
    pub created: bool,
    /// Anything else that may change contents: whole pages, generic records, records of an unknown kind.
    pub other: bool,
}

impl FileChanges {
    /// Whether rows or values may be others now. Those that VACUUM cuts off and the ones that it writes in place are none.
    #[must_use]
    pub fn is_of_contents(&self) -> bool {
        let Self { inserted, updated, deleted, sequence, created, other, .. } = *self;
        inserted + updated + deleted > 0 || sequence || created || other
    }
}

/// What happened to one database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Files whose contents changed; not those in which bytes merely moved.
    pub files: HashMap<RelationFile, FileChanges>,
    /// A transaction that changed something here has committed, or something other than a sequence was changed outside
    /// transactions.
    pub committed: bool,
    /// Why `files` cannot be trusted to be all.
    pub doubt: Option<&'static str>,
    /// Changes after so many files were changed that none is kept any more. What is compared with an earlier time differs by it.
    pub uncounted: u64,
}

/// Files of one database that are kept: one that is not reset, and whose tables are truncated again and again, has ever more.
pub(super) const MOST_FILES: usize = 10_000;
/// Why a database is in doubt of which none are kept.
pub(super) const TOO_MANY_FILES: &str = "too many of its files were changed";

impl Changes {
    /// Notes a change of a file.
    fn note(&mut self, file: RelationFile, note: impl FnOnce(&mut FileChanges)) {
        if self.uncounted == 0 && (self.files.len() < MOST_FILES || self.files.contains_key(&file)) {
            return note(self.files.entry(file).or_default());
        }
        self.uncounted += 1;
        self.doubt = Some(TOO_MANY_FILES);
        self.files = HashMap::new();
    }
}

/// A change of what all databases share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedChange {
    /// The catalog's file. A replication origin's progress, which is in no catalog, counts as `pg_replication_origin`.
    pub file: RelationFile,
    /// The database in which the transaction ran, if the log tells.
    pub from: Option<u32>,
    /// A row was changed in place, outside transactions: VACUUM does that to `pg_database`.
    pub in_place: bool,
}

/// Reason to doubt each new database: SQL may have given it the oid of one that it has dropped. pgfresh takes the doubt from its own.
const MADE: &str = "it was made by SQL";

/// All that was read and not yet taken.
#[derive(Debug, Default)]
pub(super) struct UntakenChanges {
    databases: HashMap<u32, Changes>,
    shared: Vec<SharedChange>,
    seen_shared: HashSet<SharedChange>,
    transactions: Transactions,
    /// A reason to doubt every database but the exempt, which were taken or made since.
    doubtful: Option<Changes>,
    exempt: HashSet<u32>,
    /// Databases that were copied from others, by files.
    sources: HashMap<u32, u32>,
    /// Databases moved to another tablespace: their old files are dropped, they are not.
    moved: HashSet<u32>,
}

impl UntakenChanges {
    /// The entry of a database, made if there is none.
    fn entry(&mut self, database: u32) -> &mut Changes {
        let doubt = self.doubtful.as_ref().filter(|_| !self.exempt.contains(&database));
        self.databases.entry(database).or_insert_with(|| doubt.cloned().unwrap_or_default())
    }

    /// Notes a change by `transaction`, or outside transactions if that is 0.
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

    /// Notes a file that was made. Nothing sees it before its row in `pg_class`, so it commits nothing.
    pub(super) fn create(&mut self, transaction: u32, file: RelationFile) {
        if file.database == 0 {
            self.change(transaction, file, |_| ());
            return;
        }
        self.entry(file.database).note(file, |changes| changes.created = true);
        self.transactions.touch(transaction, file.database);
    }

    /// Notes a sequence's value, which no transaction takes back.
    pub(super) fn sequence(&mut self, file: RelationFile) {
        if file.database == 0 {
            self.share(SharedChange { file, from: None, in_place: false });
            return;
        }
        self.entry(file.database).note(file, |changes| changes.sequence = true);
    }

    /// Notes a row changed in place, which no transaction takes back.
    pub(super) fn in_place(&mut self, file: RelationFile) {
        if file.database == 0 {
            self.share(SharedChange { file, from: None, in_place: true });
            return;
        }
        let entry = self.entry(file.database);
        entry.note(file, |changes| changes.in_place = true);
        entry.committed = true;
    }

    /// Notes a change of what all databases share.
    pub(super) fn share(&mut self, change: SharedChange) {
        if self.seen_shared.insert(change) {
            self.shared.push(change);
        }
    }

    /// Doubts a database, or all if that is 0.
    pub(super) fn doubt(&mut self, database: u32, why: &'static str) {
        if database != 0 {
            self.entry(database).doubt = Some(why);
            return;
        }
        self.databases.values_mut().for_each(|changes| changes.doubt = Some(why));
        self.exempt.clear();
        self.doubtful = Some(Changes { doubt: Some(why), ..Changes::default() });
    }

    /// Transactions have committed as one; `database` is where, if the record tells.
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

    /// Transactions were rolled back as one. What they have written stays reported; of what is shared, nothing is.
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

    /// A database is made by `transaction`, of the files of another one, if the log tells of which: until that ends, all records
    /// that name it are of its making.
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

    /// A database is moved to another tablespace: its old files will be dropped.
    pub(super) fn move_database(&mut self, database: u32) {
        self.moved.insert(database);
        self.doubt(database, "the database was moved to another tablespace");
    }

    /// The files of a database were removed in some tablespaces.
    pub(super) fn drop_database(&mut self, database: u32) {
        if !self.moved.contains(&database) {
            self.databases.remove(&database);
            self.exempt.remove(&database);
            self.sources.remove(&database);
        }
    }

    /// Of which database the files of one were copied, if that was in the log.
    pub(super) fn source(&self, database: u32) -> Option<u32> {
        self.sources.get(&database).copied()
    }

    /// What changed in a database; leaves nothing.
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

    /// What changed in a database.
    pub(super) fn peek(&self, database: u32) -> Option<&Changes> {
        let doubtful = || self.doubtful.as_ref().filter(|_| !self.exempt.contains(&database));
        self.databases.get(&database).or_else(doubtful)
    }

    /// What changed of all that databases share.
    pub(super) fn take_shared(&mut self) -> Vec<SharedChange> {
        self.seen_shared.clear();
        std::mem::take(&mut self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_files_none_is_kept_and_the_database_is_in_doubt() {
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
