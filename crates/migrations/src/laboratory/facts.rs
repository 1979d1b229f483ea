//! Derives a statement's locks, rewrites and scans by comparing the state of its transaction before and after.

use std::collections::HashMap;

use super::catalog::{CommittedRelation, Relations};
use super::questions::{Counters, RelationState};
use crate::{ChangedRows, LockMode, ObservedStatement, RelationLock, Rewrite, TableScan};

/// Locks, rewrites, scans and changed rows of a statement.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) locks: Vec<RelationLock>,
    pub(super) rewrites: Vec<Rewrite>,
    pub(super) scans: Vec<TableScan>,
    pub(super) changed: Vec<ChangedRows>,
}

impl ObservedStatement {
    /// Replaces the statement's facts.
    pub(super) fn add_facts(&mut self, facts: Facts) {
        let Facts { locks, rewrites, scans, changed } = facts;
        (self.locks, self.rewrites, self.scans, self.changed) = (locks, rewrites, scans, changed);
    }
}

/// Locks of a statement that other sessions observed.
#[derive(Debug)]
pub(super) struct HiddenLocks {
    pub(super) relations: Relations,
    /// Lock modes, keyed by the relation's object identifier.
    pub(super) locks: HashMap<u32, Vec<LockMode>>,
}

/// A relation before and after a statement.
pub(super) struct Change<'a> {
    /// The relation as other sessions see it.
    pub(super) committed: &'a CommittedRelation,
    /// State before the statement. `None` if the transaction had not locked the relation.
    pub(super) before: Option<&'a RelationState>,
    /// State after the statement.
    pub(super) after: &'a RelationState,
    /// Counters before the statement.
    pub(super) counters: Counters,
}

impl Facts {
    /// Compares the relations of a transaction before and after a statement. `counters` are from before the statement.
    /// Uncommitted relations are new, so they are left out.
    pub(super) fn of_statement(
        before: &HashMap<u32, RelationState>,
        after: &HashMap<u32, RelationState>,
        counters: &HashMap<u32, Counters>,
        committed: &Relations,
    ) -> Self {
        let mut facts = Self::default();
        for (oid, state) in after {
            let Some(relation) = committed.get(oid) else { continue };
            let was_replaced =
                before.get(oid).is_some_and(|state| is_replaced_index(relation, state, before, committed));
            if is_replaced_index(relation, state, after, committed) && !was_replaced {
                facts.rewrites.push(relation.rewrite(false));
            }
            let counters = counters.get(oid).copied().unwrap_or_default();
            facts.add(&Change { committed: relation, before: before.get(oid), after: state, counters });
        }
        facts.finish();
        facts
    }

    /// Compares all relations before and after a statement that ran outside transactions. `locks` are those that
    /// another session observed.
    pub(super) fn of_lone_statement(
        before: &Relations,
        after: &Relations,
        locks: &HashMap<u32, Vec<LockMode>>,
    ) -> Self {
        let mut facts = Self::default();
        for (oid, relation) in before {
            let modes = locks.get(oid).cloned().unwrap_or_default();
            let now = after.get(oid);
            let replaces = |(new, other): (&u32, &CommittedRelation)| {
                !before.contains_key(new) && other.name == relation.name && other.file != relation.file
            };
            if relation.letter == 'i' && now.is_none() && after.iter().any(replaces) {
                facts.rewrites.push(relation.rewrite(false));
            }
            let state = RelationState {
                modes,
                file: now.and_then(|now| now.file),
                counters: now.map_or(relation.counters, |now| now.counters),
                bytes: now.map_or(0, |now| now.bytes),
                name: now.map(|now| now.name.clone()),
            };
            let counters = relation.counters;
            facts.add(&Change { committed: relation, before: None, after: &state, counters });
        }
        facts.finish();
        facts
    }

    /// Returns the locks of a statement that failed. `before` is the state of its transaction, and `locks` are those
    /// that other sessions observed.
    pub(super) fn of_failed_statement(
        before: &HashMap<u32, RelationState>,
        committed: &Relations,
        locks: &HashMap<u32, Vec<LockMode>>,
    ) -> Self {
        let mut facts = Self::default();
        for (oid, modes) in locks {
            let Some(relation) = committed.get(oid) else { continue };
            let state = RelationState { modes: modes.clone(), ..RelationState::default() };
            let counters = Counters::default();
            facts.add(&Change { committed: relation, before: before.get(oid), after: &state, counters });
        }
        facts.finish();
        facts
    }

    /// Adds the locks of `hidden` that are stronger than those of the same relation.
    pub(super) fn add_locks(&mut self, before: &HashMap<u32, RelationState>, hidden: &HiddenLocks) {
        for lock in Self::of_failed_statement(before, &hidden.relations, &hidden.locks).locks {
            let known = self.locks.iter().position(|known| known.relation == lock.relation);
            match known {
                Some(at) if self.locks[at].mode >= lock.mode => {}
                Some(at) => self.locks[at] = lock,
                None => self.locks.push(lock),
            }
        }
        self.locks.sort();
    }

    fn add(&mut self, change: &Change<'_>) {
        let Change { committed, before, after, counters } = change;
        let held = before.map_or(&[][..], |before| &before.modes);
        let is_new = |mode: &&LockMode| !held.iter().any(|held| covers(*held, **mode));
        if let Some(mode) = after.modes.iter().filter(is_new).max()
            && (committed.letter != 'S' || *mode > LockMode::RowExclusive)
        {
            self.locks.push(RelationLock {
                relation: committed.name.clone(),
                kind: committed.kind,
                mode: *mode,
            });
        }
        let (file, bytes) = before
            .and_then(|before| Some((before.file?, before.bytes)))
            .or_else(|| Some((committed.file?, committed.bytes)))
            .unzip();
        if matches!(committed.letter, 'r' | 'm' | 'i')
            && let (Some(file), Some(bytes), Some(new)) = (file, bytes, after.file)
            && file != new
        {
            self.rewrites.push(committed.rewrite(bytes > 0 && after.bytes == 0));
        }
        let scans = after.counters.scans.saturating_sub(counters.scans);
        let rows = after.counters.rows.saturating_sub(counters.rows);
        // A statement that fetches from an open portal may continue an earlier statement's scan: it reads rows without
        // a new scan.
        if matches!(committed.letter, 'r' | 'm') && scans + rows > 0 {
            self.scans.push(TableScan { relation: committed.name.clone(), scans, rows });
        }
        let rows = after.counters.changed.saturating_sub(counters.changed);
        if committed.letter == 'r' && rows > 0 {
            self.changed.push(ChangedRows { relation: committed.name.clone(), rows });
        }
    }

    /// Sorts the facts. Leaves out scans of emptied tables, because TRUNCATE scans an emptied table once for each
    /// index. Marks the indexes of emptied tables as emptied too.
    fn finish(&mut self) {
        self.locks.sort();
        self.scans.sort();
        self.changed.sort();
        let emptied: Vec<_> =
            self.rewrites.iter().filter(|one| one.is_emptied).map(|one| one.relation.clone()).collect();
        for rewrite in &mut self.rewrites {
            rewrite.is_emptied |= rewrite.table.as_ref().is_some_and(|table| emptied.contains(table));
        }
        self.rewrites.sort();
        self.scans.retain(|scan| !emptied.contains(&scan.relation));
    }

    /// Marks all rewrites as made by TRUNCATE. If a table was already empty, its size doesn't reveal this.
    pub(super) fn mark_emptied(&mut self) {
        self.rewrites.iter_mut().for_each(|rewrite| rewrite.is_emptied = true);
        self.finish();
    }
}

impl CommittedRelation {
    fn rewrite(&self, is_emptied: bool) -> Rewrite {
        let (relation, kind, table) = (self.name.clone(), self.kind, self.table.clone());
        Rewrite { relation, kind, table, is_emptied }
    }
}

/// Returns true if a new index has replaced this one under the same name. A changed column type makes PostgreSQL
/// rebuild indexes this way. If the new index keeps the old file, it wasn't built: for example, when varchar(20)
/// becomes varchar(40).
fn is_replaced_index(
    index: &CommittedRelation,
    state: &RelationState,
    after: &HashMap<u32, RelationState>,
    committed: &Relations,
) -> bool {
    let replaces = |(oid, other): (&u32, &RelationState)| {
        !committed.contains_key(oid)
            && other.name.as_ref() == Some(&index.name)
            && (other.file.is_none() || other.file != index.file)
    };
    index.letter == 'i' && state.name.is_none() && after.iter().any(replaces)
}

/// Returns true if a session that holds `held` gains nothing from `other`, because `held` already conflicts with every
/// mode that `other` conflicts with.
pub(super) fn covers(held: LockMode, other: LockMode) -> bool {
    LockMode::ALL.into_iter().all(|mode| !other.conflicts_with(mode) || held.conflicts_with(mode))
}

#[cfg(test)]
mod tests {
    use plans::{RelationKind, RelationName};

    use super::*;

    fn table(file: u32, bytes: u64) -> CommittedRelation {
        CommittedRelation {
            name: RelationName { schema: "public".to_owned(), name: "t".to_owned() },
            kind: RelationKind::Table,
            letter: 'r',
            table: None,
            file: Some(file),
            bytes,
            counters: Counters::default(),
        }
    }

    fn state(modes: &[LockMode], file: u32, scans: u64, bytes: u64) -> RelationState {
        RelationState {
            modes: modes.to_vec(),
            file: Some(file),
            counters: Counters { scans, rows: 10 * scans, changed: 3 * scans },
            bytes,
            name: None,
        }
    }

    #[test]
    fn only_stronger_locks_are_new() {
        use LockMode::{AccessExclusive, AccessShare, RowExclusive, Share, ShareUpdateExclusive};
        for (before, after, new) in [
            (&[][..], &[AccessShare, AccessExclusive][..], Some(AccessExclusive)),
            (&[AccessExclusive], &[AccessExclusive, Share], None),
            (&[Share], &[Share, AccessShare, RowExclusive], Some(RowExclusive)),
            (&[Share], &[Share, ShareUpdateExclusive], Some(ShareUpdateExclusive)),
            (&[AccessShare], &[AccessShare], None),
        ] {
            let [before, after] = [before, after].map(|modes| HashMap::from([(1, state(modes, 5, 0, 8192))]));
            let committed = Relations::from([(1, table(5, 8192))]);
            let facts = Facts::of_statement(&before, &after, &HashMap::new(), &committed);
            assert_eq!(facts.locks.first().map(|lock| lock.mode), new);
            assert_eq!((facts.rewrites, facts.scans), (vec![], vec![]));
        }
    }

    #[test]
    fn indexes_are_replaced_by_one_statement() {
        let name = RelationName { schema: "public".to_owned(), name: "i".to_owned() };
        let index = CommittedRelation { name: name.clone(), letter: 'i', ..table(5, 8192) };
        let committed = Relations::from([(1, index)]);
        let gone = RelationState { file: None, ..state(&[LockMode::AccessExclusive], 5, 0, 0) };
        let new = RelationState { name: Some(name), ..state(&[LockMode::AccessExclusive], 6, 0, 8192) };
        let after = HashMap::from([(1, gone), (2, new)]);
        for (before, rewrites) in [(HashMap::new(), 1), (after.clone(), 0)] {
            let facts = Facts::of_statement(&before, &after, &HashMap::new(), &committed);
            assert_eq!(facts.rewrites.len(), rewrites);
        }
    }

    #[test]
    fn files_and_counters_are_compared() {
        let committed = Relations::from([(1, table(5, 8192))]);
        let counters = HashMap::from([(1, Counters { scans: 1, rows: 10, changed: 3 })]);
        // The facts don't include scans of an emptied table.
        for (bytes, is_emptied, scans) in [(0, true, &[][..]), (8192, false, &[(2, 20)])] {
            let after = HashMap::from([(1, state(&[], 6, 3, bytes)), (2, state(&[], 9, 1, 0))]);
            let facts = Facts::of_statement(&HashMap::new(), &after, &counters, &committed);
            assert_eq!(facts.rewrites[0].is_emptied, is_emptied);
            let found: Vec<_> = facts.scans.iter().map(|scan| (scan.scans, scan.rows)).collect();
            assert_eq!(found, scans);
            assert_eq!(facts.changed[0].rows, 6);
        }
    }
}
