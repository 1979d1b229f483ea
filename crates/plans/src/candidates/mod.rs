//! Suggests indexes: drafts candidates for all plans, selects a minimal set, and finds existing indexes that become
//! redundant.

mod access;
mod choose;
mod drafts;
mod existing;
mod merge;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::existing::{covers, unused};

use self::access::{Access, accesses};
use self::choose::{Chooser, Created};
use self::drafts::{Frequencies, drafts};
use crate::definition::IndexDefinition;
use crate::names::short_name;
use crate::tables::Tables;
use crate::workload::{CachedPlanner, Item, Outcome};
use crate::{CandidateId, IndexGain, IndexSuggestion, Limits, RelationKind};

/// The selected indexes.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// Suggestions, in the same order as `ids`.
    pub(crate) suggestions: Vec<IndexSuggestion>,
    pub(crate) ids: Vec<CandidateId>,
    /// Candidates that the planner uses but that save too little, by the place of the item.
    pub(crate) weak: BTreeMap<usize, WeakIndexes>,
    /// Sentences that describe what was left out.
    pub(crate) notes: Vec<String>,
}

/// Candidates that save too little of an item's cost.
#[derive(Debug)]
pub(crate) struct WeakIndexes {
    /// SQL statements that create them.
    pub(crate) sql: String,
    /// Places of their tables.
    pub(crate) tables: BTreeSet<usize>,
    /// Cost of the item with them.
    pub(crate) cost: f64,
}

impl Advice {
    /// Returns the positions of the suggestions for these candidates.
    pub(crate) fn places(&self, candidates: &BTreeSet<CandidateId>) -> Vec<usize> {
        places(&self.ids, candidates)
    }

    /// Returns the selected candidates.
    pub(crate) fn set(&self) -> BTreeSet<CandidateId> {
        self.ids.iter().copied().collect()
    }
}

/// Selects indexes for all items together.
pub(crate) fn advise(
    cached: &mut CachedPlanner<'_>,
    items: &[Item],
    tables: &Tables<'_>,
    limits: &Limits,
) -> Advice {
    let asked: Vec<(usize, Vec<Access>)> = items
        .iter()
        .enumerate()
        .filter(|(_, item)| item.before.root.total_cost >= limits.cost)
        .map(|(place, item)| (place, accesses(&item.before, tables)))
        .collect();
    let mut notes = Vec::new();
    let drafts = all_drafts(items, &asked, tables, limits, &mut notes);
    let (partial, whole): (Vec<_>, Vec<_>) =
        drafts.into_iter().partition(|(_, draft)| draft.predicate.is_some());
    let mut chooser = Chooser { cached, items, limits, created: BTreeMap::new() };
    let all = chooser.create(whole.into_iter().chain(partial).collect());
    let (partial, whole): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|id| chooser.created[id].definition.predicate.is_some());
    let set = chooser.choose(&whole, &partial, &columns(&asked));
    let created = chooser.created;
    let weak = weak(cached, items, &whole, &created, limits);
    if cached.is_exhausted() {
        notes.push(format!(
            "pgfresh stopped after {} EXPLAINs to choose indexes, so that a smaller set of indexes can exist",
            limits.explains
        ));
    }
    let chosen: Vec<(CandidateId, Created)> = set.iter().map(|id| (*id, created[id].clone())).collect();
    Advice { weak, ..suggestions(cached, items, tables, &chosen, notes, limits) }
}

/// Returns the candidates that the planner uses but that save less than [`Limits::index_gain`].
fn weak(
    cached: &mut CachedPlanner<'_>,
    items: &[Item],
    whole: &[CandidateId],
    created: &BTreeMap<CandidateId, Created>,
    limits: &Limits,
) -> BTreeMap<usize, WeakIndexes> {
    let all: BTreeSet<CandidateId> = whole.iter().copied().collect();
    let mut found = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        let before = item.before.root.total_cost;
        let Some(Outcome { cost, used, .. }) = cached.settled((place, item), &all) else { continue };
        let is_weak = before >= limits.cost && cost < before && before - cost < limits.index_gain * before;
        if is_weak && !used.is_empty() {
            let indexes = || used.iter().map(|id| &created[id]);
            let sql: Vec<String> = indexes().map(|index| index.definition.to_string()).collect();
            let tables = indexes().map(|index| index.table).collect();
            found.insert(place, WeakIndexes { sql: sql.join("; "), tables, cost });
        }
    }
    found
}

/// Returns the candidates for all plans without duplicates, starting with the most expensive plan.
fn all_drafts(
    items: &[Item],
    asked: &[(usize, Vec<Access>)],
    tables: &Tables<'_>,
    limits: &Limits,
    notes: &mut Vec<String>,
) -> Vec<(usize, IndexDefinition)> {
    let mut frequencies = Frequencies::new();
    for access in asked.iter().flat_map(|(_, accesses)| accesses) {
        for key in access.equal.iter().chain(access.joins.values().flatten()) {
            *frequencies.entry((access.table, key.clone())).or_default() += 1;
        }
    }
    let mut by_cost: Vec<&(usize, Vec<Access>)> = asked.iter().collect();
    let cost = |place: usize| items[place].before.root.total_cost;
    by_cost.sort_by(|left, right| cost(right.0).total_cmp(&cost(left.0)));
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for access in by_cost.iter().flat_map(|(_, accesses)| accesses) {
        let is_indexable = tables.table(access.table).kind != RelationKind::ForeignTable;
        if is_indexable && tables.pages(access.table) >= limits.index_pages {
            let new = drafts(access, tables, &frequencies, limits);
            let new = new.into_iter().filter(|draft| known.insert(draft.clone()));
            found.extend(new.map(|draft| (access.table, draft)));
        }
    }
    if found.len() > limits.candidates {
        notes.push(format!(
            "pgfresh tried the first {} of {} candidate indexes, those of the most expensive statements",
            limits.candidates,
            found.len()
        ));
        found.truncate(limits.candidates);
    }
    found
}

/// Returns the columns that each item needs from each table.
fn columns(asked: &[(usize, Vec<Access>)]) -> BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>> {
    let mut columns: BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>> = BTreeMap::new();
    for (place, accesses) in asked {
        for access in accesses {
            let needed = columns.entry(*place).or_default().entry(access.table).or_default();
            needed.extend(access.columns.iter().map(|column| crate::names::sql_name(column)));
        }
    }
    columns
}

/// Describes the selected indexes, largest gain first.
fn suggestions(
    cached: &mut CachedPlanner<'_>,
    items: &[Item],
    tables: &Tables<'_>,
    chosen: &[(CandidateId, Created)],
    notes: Vec<String>,
    limits: &Limits,
) -> Advice {
    let set: BTreeSet<CandidateId> = chosen.iter().map(|(id, _)| *id).collect();
    let mut found: Vec<(CandidateId, &Created, Vec<Gain>)> =
        chosen.iter().map(|(id, created)| (*id, created, gains(cached, items, *id, &set))).collect();
    let total = |gains: &[Gain]| -> f64 { gains.iter().map(|(gain, _)| gain.before - gain.after).sum() };
    found.sort_by(|left, right| total(&right.2).total_cmp(&total(&left.2)));
    let ids: Vec<CandidateId> = found.iter().map(|(id, ..)| *id).collect();
    let mut suggestions = Vec::new();
    for (_, created, gains) in found {
        let table = tables.table(created.table);
        let with = |others: &BTreeSet<CandidateId>| places(&ids, others);
        let gains = gains.into_iter().map(|(gain, others)| IndexGain { with: with(&others), ..gain });
        suggestions.push(IndexSuggestion {
            sql: created.definition.to_string(),
            table: short_name(&table.schema, &table.name),
            bytes: created.bytes,
            gains: gains.collect(),
            replaces: existing::superfluous(cached, items, created, tables, &set, limits),
            writers: writers(items, created.table),
        });
    }
    Advice { suggestions, ids, notes, ..Advice::default() }
}

/// Returns the positions in `ids` of the candidates in `some`.
fn places(ids: &[CandidateId], some: &BTreeSet<CandidateId>) -> Vec<usize> {
    (0..ids.len()).filter(|place| some.contains(&ids[*place])).collect()
}

/// A gain without [`IndexGain::with`], and the other candidates that the plan uses.
type Gain = (IndexGain, BTreeSet<CandidateId>);

/// Returns the gain of each statement that uses a candidate, largest first. If several plans of a statement use it, the
/// largest gain counts. The cost of a plan is the one with exactly the candidates that the plan uses.
fn gains(
    cached: &mut CachedPlanner<'_>,
    items: &[Item],
    id: CandidateId,
    set: &BTreeSet<CandidateId>,
) -> Vec<Gain> {
    let mut gains: BTreeMap<(usize, bool), Gain> = BTreeMap::new();
    let saved = |(gain, _): &Gain| gain.before - gain.after;
    for (place, item) in items.iter().enumerate() {
        let Some(outcome) = cached.settled((place, item), set) else { continue };
        let before = item.before.root.total_cost;
        if !outcome.used.contains(&id) || outcome.cost >= before {
            continue;
        }
        let (statement, foreign_key) = (item.statement, item.foreign_key);
        let gain = IndexGain { statement, before, after: outcome.cost, with: Vec::new(), foreign_key };
        let others = outcome.used.into_iter().filter(|other| *other != id).collect();
        let gain = (gain, others);
        let known = gains.entry((statement, foreign_key)).or_insert_with(|| gain.clone());
        if saved(&gain) > saved(known) {
            *known = gain;
        }
    }
    let mut gains: Vec<Gain> = gains.into_values().collect();
    gains.sort_by(|left, right| saved(right).total_cmp(&saved(left)));
    gains
}

/// Returns the number of statements that insert or change rows of a table.
fn writers(items: &[Item], table: usize) -> usize {
    let writes = |item: &&Item| item.writes.contains(&table);
    items.iter().filter(writes).map(|item| item.statement).collect::<BTreeSet<_>>().len()
}
