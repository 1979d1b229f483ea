//! Suggests safer ways to make the dangerous changes of a migration.
//!
//! Observed facts come first: a rule reads a statement's text only to find out what caused an observed scan, rewrite or
//! lock. A statement that does nothing dangerous gets no advice. Neither does work on a table that the migration itself
//! created, because no other code uses this table yet.

mod change;
mod columns;
mod cursor;
mod facts;
mod objects;
mod old_code;
mod old_relations;
mod table_action;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::HashSet;

use crate::{AdviceTopic, RelationLock, RelationSize, ReportedStatement, StatementAdvice, sql_text};
use change::SchemaChange;
use facts::Facts;
use old_relations::OldRelations;
use table_action::TableAction;

const REWRITE: &str = "build a new table or column beside it, copy in batches, then swap the names";
const COMPACT: &str = "an ordinary VACUUM, or the extension pg_repack";

/// Returns the advice for each statement of a migration.
///
/// `statements` are in the order in which they ended. Bookkeeping statements of the migration tool get no advice. Rules
/// read the predictions and the broken statements, so fill these in before. `sizes` come from [`crate::Observations`].
/// `knows_suite` means that pgfresh knows the statements of the test suite. An empty list of broken statements then
/// means that the migration breaks none of them.
#[must_use]
pub fn advise(
    statements: &[ReportedStatement],
    sizes: &[RelationSize],
    knows_suite: bool,
) -> Vec<Vec<StatementAdvice>> {
    let changes: Vec<_> =
        statements.iter().map(|statement| SchemaChange::read(&statement.observed.sql)).collect();
    let mut old = OldRelations::new(sizes);
    let mut warned = HashSet::new();
    let mut all = Vec::with_capacity(statements.len());
    for (index, statement) in statements.iter().enumerate() {
        let observed = &statement.observed;
        old.begin(observed);
        let migration = (observed.session, statement.migration.as_deref());
        let facts = Facts { statements, changes: &changes, index, old: &old, knows_suite };
        let is_first = !warned.contains(&migration);
        let found = if statement.is_bookkeeping { Vec::new() } else { advise_statement(&facts, is_first) };
        if found.iter().any(|advice| advice.topic == AdviceTopic::LockTimeout) {
            warned.insert(migration);
        }
        all.push(found);
        if observed.tag.is_some() {
            old.apply(&observed.database, &changes[index]);
        }
    }
    all
}

/// Returns what the facts of a migration assume about production, one sentence each.
///
/// PostgreSQL rewrites a table to convert between `timestamp` and `timestamptz`, unless the session's time zone is UTC.
#[must_use]
pub fn fact_assumptions(statements: &[ReportedStatement]) -> Vec<String> {
    let is_conversion = |statement: &&ReportedStatement| {
        let observed = &statement.observed;
        let SchemaChange::AlterTable { actions, .. } = SchemaChange::read(&observed.sql) else {
            return false;
        };
        let tokens = sql_text::tokens(&observed.sql);
        let is_type =
            |token: &pgwire::Token<'_>| token.is_word(b"timestamp") || token.is_word(b"timestamptz");
        actions.contains(&TableAction::ChangeType)
            && tokens.iter().any(is_type)
            && observed.rewrites.is_empty()
            && !observed.locks.is_empty()
    };
    let ours =
        statements.iter().filter(|statement| !statement.is_bookkeeping && statement.observed.tag.is_some());
    let sentence = |statement: &ReportedStatement| {
        format!(
            "The time zone of \"{}\" is UTC in production, too. In another one, PostgreSQL rewrites the table to convert \
             between timestamp and timestamptz.",
            ::report::cut(&statement.observed.sql, 70)
        )
    };
    ours.filter(is_conversion).map(sentence).collect()
}

fn advise_statement(facts: &Facts<'_>, is_first: bool) -> Vec<StatementAdvice> {
    let mut found = Vec::new();
    if let SchemaChange::AlterTable { table, actions } = facts.change()
        && facts.is_old(table)
    {
        for action in actions {
            found.extend(columns::advise_action(facts, action));
        }
    }
    found.extend(objects::advise_object(facts));
    if found.is_empty() && facts.is_long() && !facts.refuses_rows() {
        found.extend(rewrite(facts));
    }
    found.extend(old_code::advise_code(facts));
    let is_said = found.iter().any(objects::mentions_lock_timeout);
    found.extend(transactions::advise_transaction(facts, is_first && !is_said));
    let mut topics = HashSet::new();
    found.retain(|advice| topics.insert((advice.topic, advice.instead.clone())));
    found
}

/// Returns advice for a scan or rewrite that no other rule explains.
fn rewrite(facts: &Facts<'_>) -> Option<StatementAdvice> {
    let blocks = facts.locks().into_iter().any(RelationLock::blocks_writes);
    let instead = if *facts.change() == SchemaChange::Compact { COMPACT } else { REWRITE };
    blocks.then(|| advice(AdviceTopic::Rewrite, facts.danger_of(&facts.work()), instead))
}

fn advice(topic: AdviceTopic, danger: impl Into<String>, instead: impl Into<String>) -> StatementAdvice {
    StatementAdvice { topic, danger: danger.into(), instead: instead.into() }
}
