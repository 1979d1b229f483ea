//! Replaces the indexes that a plan intersects with one wider index.
//!
//! A search of the wider index finds the same rows at once, so it is cheaper in truth. The planner can disagree: it
//! multiplies the selectivities of intersected indexes, even if it knows from extended statistics that their columns
//! depend on each other.

use std::collections::BTreeSet;

use super::choose::Chooser;
use crate::CandidateId;

type Set = BTreeSet<CandidateId>;

impl Chooser<'_, '_, '_> {
    /// Replaces the candidates that plans intersect, wherever a wider candidate can search for all of them.
    pub(super) fn merged(&mut self, mut set: Set) -> Set {
        let mut groups: BTreeSet<Set> = BTreeSet::new();
        for (place, item) in self.items.iter().enumerate() {
            if let Some(outcome) = self.cached.outcome((place, item), &set, &[])
                && self.pays(item, outcome.cost)
            {
                groups.extend(outcome.intersected);
            }
        }
        for group in groups {
            if group.is_subset(&set) {
                set = self.merge(&set, &group).unwrap_or(set);
            }
        }
        set
    }

    /// Returns a set with a wider candidate instead of a group that plans intersect. `None` if no wider candidate saves
    /// enough.
    fn merge(&mut self, set: &Set, group: &Set) -> Option<Set> {
        let items = self.items;
        let mut intersects = |place: &usize| {
            let outcome = self.cached.outcome((*place, &items[*place]), set, &[]);
            outcome.is_some_and(|outcome| outcome.intersected.contains(group))
        };
        let (users, others): (Vec<usize>, Vec<usize>) = (0..items.len()).partition(&mut intersects);
        let mut best: Option<(f64, Set)> = None;
        for wide in self.unions(group) {
            let merged = self.without_group(set, group, wide, &others);
            let each_pays = users.iter().all(|place| {
                let outcome = self.cached.outcome((*place, &items[*place]), &merged, &[]);
                outcome.is_some_and(|outcome| {
                    !outcome.intersected.contains(group) && self.pays(&items[*place], outcome.cost)
                })
            });
            let cost = self.costs(&users, &merged).filter(|_| each_pays);
            let is_better = |cost: &f64| best.as_ref().is_none_or(|(least, _)| cost < least);
            if let Some(cost) = cost.filter(is_better) {
                best = Some((cost, merged));
            }
        }
        best.map(|(_, merged)| merged)
    }

    /// Returns the full candidates that have the first key of each candidate in `group`.
    fn unions(&self, group: &Set) -> Vec<CandidateId> {
        let has_all = |id: &&CandidateId| {
            let wide = &self.created[id];
            wide.definition.method == "btree"
                && wide.definition.predicate.is_none()
                && group.iter().map(|id| &self.created[id]).all(|member| {
                    let key = member.definition.keys.first();
                    member.table == wide.table && key.is_some_and(|key| wide.definition.keys.contains(key))
                })
        };
        self.created.keys().filter(has_all).copied().collect()
    }

    /// Adds `wide` to `set`, and removes each candidate of the group that none of the items at `others` needs.
    fn without_group(&mut self, set: &Set, group: &Set, wide: CandidateId, others: &[usize]) -> Set {
        let mut merged = set.clone();
        merged.insert(wide);
        for id in group {
            let mut without = merged.clone();
            without.remove(id);
            let tolerance = self.tolerance(*id, &without);
            if *id != wide && !self.is_worse_for(others, &merged, &without, Some(*id), tolerance) {
                merged = without;
            }
        }
        merged
    }
}
