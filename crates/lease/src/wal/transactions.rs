//! Tracks the changes made by each open transaction, so that the reader knows which databases have committed changes
//! when the transaction commits.

use std::collections::HashMap;

use super::record::RelationFile;

/// Changes made by one transaction, or by several that end together.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Databases with changes. The flag is true if a caller has taken the database's changes since then.
    pub(super) databases: Vec<(u32, bool)>,
    /// Changed files of shared catalogs.
    pub(super) shared: Vec<RelationFile>,
    /// Databases being created by the transaction.
    pub(super) created: Vec<u32>,
}

impl Touched {
    fn add_database(&mut self, database: u32, taken: bool) {
        match self.databases.iter_mut().find(|(known, _)| *known == database) {
            Some((_, known)) => *known |= taken,
            None => self.databases.push((database, taken)),
        }
    }

    fn add_shared(&mut self, file: RelationFile) {
        if !self.shared.contains(&file) {
            self.shared.push(file);
        }
    }
}

/// Open transactions and subtransactions that have changes, including prepared ones.
///
/// A transaction open when the server crashes remains in the map forever, because its end is never logged.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: HashMap<u32, Touched>,
    /// Transaction and database of the last call to [`Self::touch`]. Since most records repeat them, this saves a
    /// lookup.
    last: Option<(u32, u32)>,
}

impl Transactions {
    /// Records that `transaction` has changed `database`. Ignores transaction 0.
    pub(super) fn touch(&mut self, transaction: u32, database: u32) {
        if transaction != 0 && self.last != Some((transaction, database)) {
            self.open.entry(transaction).or_default().add_database(database, false);
            self.last = Some((transaction, database));
        }
    }

    /// Records that `transaction` has changed a shared catalog.
    pub(super) fn share(&mut self, transaction: u32, file: RelationFile) {
        self.open.entry(transaction).or_default().add_shared(file);
    }

    /// Records that `transaction` is creating `database`.
    pub(super) fn create(&mut self, transaction: u32, database: u32) {
        self.open.entry(transaction).or_default().created.push(database);
    }

    /// Records that a caller has taken all changes in `database` so far.
    pub(super) fn mark_taken(&mut self, database: u32) {
        for touched in self.open.values_mut() {
            touched.databases.iter_mut().filter(|(known, _)| *known == database).for_each(|(_, taken)| {
                *taken = true;
            });
        }
        self.last = None;
    }

    /// Ends transactions that end together. Returns their changes, excluding databases they created themselves.
    pub(super) fn end(&mut self, transactions: impl Iterator<Item = u32>) -> Touched {
        let mut all = Touched::default();
        for transaction in transactions {
            let Some(touched) = self.open.remove(&transaction) else { continue };
            touched.databases.into_iter().for_each(|(database, taken)| all.add_database(database, taken));
            touched.shared.into_iter().for_each(|file| all.add_shared(file));
            all.created.extend(touched.created);
        }
        all.databases.retain(|(database, _)| !all.created.contains(database));
        self.last = None;
        all
    }
}
