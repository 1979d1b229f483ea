//! Selects a minimal set of candidates for all statements together.
//!
//! The planner first sees all candidates and uses the best ones for each statement. pgfresh then removes every index
//! whose absence costs little, until none is left to remove. Narrow indexes that a wider one can replace come first.
//! Indexes that a plan intersects give way to a wider one.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::IndexDefinition;
use crate::workload::{CachedPlanner, Item, Outcome};
use crate::{CandidateId, Limits};

/// Maximum cost increase, as a fraction, that is acceptable if a wider index takes over a narrow index's searches.
const WIDER_LOSS: f64 = 0.5;

/// Minimum cost increase that counts, as a fraction of the cost without any suggestion. An increase of more than
/// [`Limits::cost`] always counts.
const NOTABLE: f64 = 0.02;

/// Maximum factor by which INCLUDE may enlarge an index.
const LARGER: u64 = 3;

/// Maximum number of INCLUDE columns.
const INCLUDED: usize = 3;

/// Maximum ratio of the new cost to the old cost that makes a partial or covering index clearly better.
const CLEARLY: f64 = 0.5;

/// Minimum factor by which a full index must be larger than a partial index that replaces it.
const SMALLER: u64 = 4;

/// A candidate that PostgreSQL has created.
#[derive(Debug, Clone)]
pub(crate) struct Created {
    pub(crate) definition: IndexDefinition,
    /// Place of the table in the catalog.
    pub(crate) table: usize,
    pub(crate) bytes: u64,
}

/// Selects indexes among the candidates.
pub(crate) struct Chooser<'o, 'p, 'i> {
    pub(crate) cached: &'o mut CachedPlanner<'p>,
    pub(crate) items: &'i [Item],
    pub(crate) limits: &'i Limits,
    /// All created candidates.
    pub(crate) created: BTreeMap<CandidateId, Created>,
}

impl Chooser<'_, '_, '_> {
    /// Creates candidates. Omits those that PostgreSQL rejects.
    pub(crate) fn create(&mut self, drafts: Vec<(usize, IndexDefinition)>) -> Vec<CandidateId> {
        self.create_each(drafts).into_iter().flatten().collect()
    }

    /// Creates candidates. Returns `None` for each candidate that PostgreSQL rejects.
    fn create_each(&mut self, drafts: Vec<(usize, IndexDefinition)>) -> Vec<Option<CandidateId>> {
        if drafts.is_empty() {
            return Vec::new();
        }
        let candidates: Vec<_> = drafts.iter().map(|(_, draft)| draft.candidate()).collect();
        let results = self.cached.planner().create(&candidates);
        let created = drafts.into_iter().zip(results).map(|((table, definition), result)| {
            let (id, bytes) = result.ok()?;
            self.cached.home(id, table);
            self.created.insert(id, Created { definition, table, bytes });
            Some(id)
        });
        created.collect()
    }

    /// Returns a minimal set of the full candidates, with partial indexes and INCLUDE where they are clearly better.
    pub(crate) fn choose(
        &mut self,
        whole: &[CandidateId],
        partial: &[CandidateId],
        columns: &BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>,
    ) -> BTreeSet<CandidateId> {
        let all: BTreeSet<CandidateId> = whole.iter().copied().collect();
        let used = self.used(&all);
        let pruned = self.prune(used);
        let merged = self.merged(pruned);
        let mut set = self.narrowed(merged);
        set = self.with_partial(set, partial);
        set = self.with_included(set, columns);
        let set = self.prune(set);
        self.used(&set)
    }

    /// Replaces indexes with shorter ones where that costs little.
    fn narrowed(&mut self, mut set: BTreeSet<CandidateId>) -> BTreeSet<CandidateId> {
        for id in set.clone() {
            let definition = self.created[&id].definition.clone();
            let mut shorter: Vec<(usize, CandidateId)> = self
                .created
                .iter()
                .filter(|(other, created)| **other != id && created.definition.is_part_of(&definition))
                .map(|(other, created)| (created.definition.keys.len(), *other))
                .collect();
            shorter.sort_unstable();
            for (_, other) in shorter {
                let mut changed = set.clone();
                changed.remove(&id);
                changed.insert(other);
                if !self.is_worse(&set, &changed, Some(id), self.limits.index_loss) {
                    set = changed;
                    break;
                }
            }
        }
        set
    }

    /// Returns the candidates in `set` that are used by items with a sufficient gain.
    fn used(&mut self, set: &BTreeSet<CandidateId>) -> BTreeSet<CandidateId> {
        let mut used = BTreeSet::new();
        for (place, item) in self.items.iter().enumerate() {
            if let Some(outcome) = self.cached.outcome((place, item), set, &[])
                && self.pays(item, outcome.cost)
            {
                used.extend(outcome.used);
            }
        }
        used
    }

    /// Returns true if lowering an item's cost to `cost` justifies an index.
    pub(crate) fn pays(&self, item: &Item, cost: f64) -> bool {
        let before = item.before.root.total_cost;
        before >= self.limits.cost && before - cost >= self.limits.index_gain * before
    }

    /// Removes each candidate whose absence costs little, until none is left to remove.
    fn prune(&mut self, mut set: BTreeSet<CandidateId>) -> BTreeSet<CandidateId> {
        loop {
            let size = set.len();
            for id in self.by_worth(&set) {
                let mut without = set.clone();
                without.remove(&id);
                let tolerance = self.tolerance(id, &without);
                if !self.is_worse(&set, &without, Some(id), tolerance) {
                    set = without;
                }
            }
            if set.len() == size || self.cached.is_exhausted() {
                return set;
            }
        }
    }

    /// Sorts candidates: first those that a wider index in `set` can replace, then those with the smallest gain.
    fn by_worth(&mut self, set: &BTreeSet<CandidateId>) -> Vec<CandidateId> {
        let mut gains: BTreeMap<CandidateId, f64> = set.iter().map(|id| (*id, 0.0)).collect();
        for (place, item) in self.items.iter().enumerate() {
            if let Some(outcome) = self.cached.outcome((place, item), set, &[]) {
                for id in &outcome.used {
                    *gains.entry(*id).or_default() += item.before.root.total_cost - outcome.cost;
                }
            }
        }
        let mut ids: Vec<CandidateId> = set.iter().copied().collect();
        ids.sort_by(|left, right| {
            let narrow = |id: &CandidateId| !self.has_wider(*id, set);
            narrow(left).cmp(&narrow(right)).then(gains[left].total_cmp(&gains[right])).then(left.cmp(right))
        });
        ids
    }

    /// Returns the maximum cost increase, as a fraction, for leaving `id` out. `set` contains the other candidates.
    pub(super) fn tolerance(&self, id: CandidateId, set: &BTreeSet<CandidateId>) -> f64 {
        if self.has_wider(id, set) { WIDER_LOSS } else { self.limits.index_loss }
    }

    fn has_wider(&self, id: CandidateId, set: &BTreeSet<CandidateId>) -> bool {
        let definition = &self.created[&id].definition;
        set.iter().any(|other| *other != id && definition.is_part_of(&self.created[other].definition))
    }

    /// Returns true if any item that gains from `set` would be notably slower with `other`. `id` restricts the check to
    /// items whose plans use this candidate.
    fn is_worse(
        &mut self,
        set: &BTreeSet<CandidateId>,
        other: &BTreeSet<CandidateId>,
        id: Option<CandidateId>,
        tolerance: f64,
    ) -> bool {
        let all: Vec<usize> = (0..self.items.len()).collect();
        self.is_worse_for(&all, set, other, id, tolerance)
    }

    /// Like [`Self::is_worse`], but only checks the items at `places`.
    pub(super) fn is_worse_for(
        &mut self,
        places: &[usize],
        set: &BTreeSet<CandidateId>,
        other: &BTreeSet<CandidateId>,
        id: Option<CandidateId>,
        tolerance: f64,
    ) -> bool {
        let items = self.items;
        places.iter().map(|place| (*place, &items[*place])).any(|(place, item)| {
            let Some(with) = self.cached.outcome((place, item), set, &[]) else { return false };
            if id.is_some_and(|id| !with.used.contains(&id)) || !self.pays(item, with.cost) {
                return false;
            }
            let without = self.cached.outcome((place, item), other, &[]);
            // If the cost is unknown, keep the index.
            without.is_none_or(|without| notably_worse(item, &with, &without, tolerance, self.limits))
        })
    }

    /// Adds partial indexes that halve an item's cost. Replaces full indexes with partial indexes that are much
    /// smaller.
    fn with_partial(
        &mut self,
        mut set: BTreeSet<CandidateId>,
        partial: &[CandidateId],
    ) -> BTreeSet<CandidateId> {
        for id in partial {
            let mut more = set.clone();
            more.insert(*id);
            let items = self.items;
            let halves = items.iter().enumerate().any(|(place, item)| {
                let before = self.cached.outcome((place, item), &set, &[]);
                let after = self.cached.outcome((place, item), &more, &[]);
                let (Some(before), Some(after)) = (before, after) else { return false };
                after.used.contains(id)
                    && self.pays(item, after.cost)
                    && after.cost <= CLEARLY * before.cost
                    && notably_worse(item, &after, &before, self.limits.index_loss, self.limits)
            });
            if halves {
                set = more;
            }
        }
        set = self.prune(set);
        for id in partial {
            let part = self.created[id].clone();
            for whole in set.clone() {
                let replaced = &self.created[&whole];
                let is_smaller = part.bytes <= replaced.bytes / SMALLER;
                if part.table == replaced.table && replaced.definition.predicate.is_none() && is_smaller {
                    let mut other = set.clone();
                    other.remove(&whole);
                    other.insert(*id);
                    if !self.is_worse(&set, &other, Some(whole), self.limits.index_loss) {
                        set = other;
                    }
                }
            }
        }
        set
    }

    /// Adds INCLUDE columns to indexes where an index-only scan halves the cost of the statements.
    fn with_included(
        &mut self,
        mut set: BTreeSet<CandidateId>,
        columns: &BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>,
    ) -> BTreeSet<CandidateId> {
        let mut plain = Vec::new();
        let mut drafts = Vec::new();
        for id in &set {
            let users = self.users(*id, &set);
            let Created { definition, table, .. } = &self.created[id];
            let needed = users.iter().filter_map(|place| columns.get(place)?.get(table));
            let mut included: BTreeSet<String> = needed.flatten().cloned().collect();
            included.retain(|column| !definition.keys.contains(column));
            if definition.method == "btree" && (1..=INCLUDED).contains(&included.len()) {
                let included = included.into_iter().collect();
                drafts.push((*table, IndexDefinition { included, ..definition.clone() }));
                plain.push((*id, users));
            }
        }
        // Create all of them in a single call, because each call rewrites the table files.
        for ((id, users), covering) in plain.into_iter().zip(self.create_each(drafts)) {
            let Some(covering) = covering else { continue };
            if self.created[&covering].bytes > LARGER * self.created[&id].bytes {
                continue;
            }
            let mut other = set.clone();
            other.remove(&id);
            other.insert(covering);
            let (Some(before), Some(after)) = (self.costs(&users, &set), self.costs(&users, &other)) else {
                continue;
            };
            if after <= CLEARLY * before && before - after >= self.limits.cost {
                set = other;
            }
        }
        set
    }

    /// Returns the positions of the items whose plans use a candidate.
    fn users(&mut self, id: CandidateId, set: &BTreeSet<CandidateId>) -> Vec<usize> {
        let items = self.items;
        let mut uses = |place: &usize| {
            let outcome = self.cached.outcome((*place, &items[*place]), set, &[]);
            outcome.is_some_and(|outcome| outcome.used.contains(&id))
        };
        (0..items.len()).filter(|place| uses(place)).collect()
    }

    /// Returns the total cost of the items at `places`. `None` if one of the costs is unknown.
    pub(super) fn costs(&mut self, places: &[usize], set: &BTreeSet<CandidateId>) -> Option<f64> {
        let items = self.items;
        let costs = places.iter().map(|place| self.cached.outcome((*place, &items[*place]), set, &[]));
        costs.map(|outcome| outcome.map(|found| found.cost)).sum()
    }
}

/// Returns true if `without` costs notably more than `with`.
pub(super) fn notably_worse(
    item: &Item,
    with: &Outcome,
    without: &Outcome,
    tolerance: f64,
    limits: &Limits,
) -> bool {
    let rise = without.cost - with.cost;
    rise > tolerance * with.cost && (rise > NOTABLE * item.before.root.total_cost || rise > limits.cost)
}
