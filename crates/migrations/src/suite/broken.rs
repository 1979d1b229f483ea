//! Finds the suite's statements that fail after a migration.
//!
//! pgfresh explains each statement on the databases from before and after the migration. EXPLAIN fails for missing
//! tables, columns, functions and constraints, and for values that no longer have the right type. An INSERT that leaves
//! a NOT NULL column empty is found too, because its plan contains all values of the new row. Other constraints fail
//! only for some rows, so pgfresh doesn't detect them.

use std::collections::BTreeSet;

use plans::{RelationName, SuiteStatement};
use serde_json::Value;
use server::AdminConnection;

use super::attribution::{StatementFailure, attribute};
use super::catalog::{Catalog, NotNullColumns, not_null_columns};
use super::changes::changed_relation;
use super::copy::fills_all_columns;
use super::explain::{Explained, Explainer, SuiteError, visit_nodes};
use super::needs::{by_text, tests};
use crate::{BrokenStatement, ObservedStatement};

/// Returns the statements that fail on the migrated database but not on the one before, sorted by text. Each comes with
/// the index of the statement in `observed` that breaks it, or with `None` if no statement fits.
///
/// Both sessions must have the settings that a client's session would have. No statement is executed.
///
/// # Errors
///
/// Returns an error if a session fails.
pub fn broken(
    before: &mut AdminConnection,
    after: &mut AdminConnection,
    statements: &[SuiteStatement],
    observed: &[ObservedStatement],
) -> Result<Vec<(Option<usize>, BrokenStatement)>, SuiteError> {
    let (mut before, mut after) = (Side::open(before)?, Side::open(after)?);
    let mut all = Vec::new();
    for (text, group) in by_text(statements) {
        for suite in &group {
            // Most statements succeed after the migration. Check this first, because it then doesn't matter whether
            // they did before.
            let Some(failures) = after.failures(suite)? else { continue };
            let Ok(explained) = before.explainer.explain(&suite.statement)? else { continue };
            let was_null = before.null_columns(&explained);
            let (error, is_null) = match failures {
                Failures::Refused(message) => (message, false),
                Failures::Null(columns) => match columns.difference(&was_null).next() {
                    Some(column) => (column.message(), true),
                    None => continue,
                },
            };
            let locks = explained.locks.iter();
            let relations = locks.filter_map(|(relation, _)| before.catalog.name(*relation)).collect();
            let place = attribute(&StatementFailure { message: &error, is_null, relations }, observed);
            let broken = BrokenStatement { statement: text.to_owned(), tests: tests(&group), error };
            all.push((place, broken));
            break;
        }
    }
    Ok(all)
}

/// A database before or after the migration.
struct Side<'a> {
    explainer: Explainer<'a>,
    catalog: Catalog,
    not_null: NotNullColumns,
}

/// The ways in which a statement fails.
enum Failures {
    /// EXPLAIN fails with this message.
    Refused(String),
    Null(BTreeSet<NullColumn>),
}

/// A column that an INSERT leaves NULL although it is NOT NULL.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NullColumn {
    relation: RelationName,
    column: String,
}

impl NullColumn {
    fn message(&self) -> String {
        let Self { relation, column } = self;
        format!(
            "null value in column \"{column}\" of relation \"{}\" violates not-null constraint",
            relation.name
        )
    }
}

impl<'a> Side<'a> {
    fn open(connection: &'a mut AdminConnection) -> Result<Self, SuiteError> {
        let catalog = Catalog::read(connection)?;
        let not_null = not_null_columns(connection)?;
        Ok(Self { explainer: Explainer::new(connection), catalog, not_null })
    }

    /// Returns how a statement fails. `None` if it succeeds.
    fn failures(&mut self, suite: &SuiteStatement) -> Result<Option<Failures>, SuiteError> {
        let explained = match self.explainer.explain(&suite.statement)? {
            Ok(_) if fills_all_columns(&suite.statement.text) => return Ok(None),
            Ok(explained) => explained,
            Err(refusal) => return Ok(Some(Failures::Refused(refusal.0))),
        };
        let columns = self.null_columns(&explained);
        Ok((!columns.is_empty()).then_some(Failures::Null(columns)))
    }

    /// Returns the NOT NULL columns that an INSERT leaves NULL.
    fn null_columns(&self, explained: &Explained) -> BTreeSet<NullColumn> {
        let mut found = BTreeSet::new();
        for plan in &explained.plans {
            visit_nodes(plan, &mut |node| {
                for (relation, position) in null_positions(node) {
                    let table = self.catalog.number(&relation);
                    let column = table.and_then(|table| self.not_null.get(&(table, position))).cloned();
                    found.extend(column.map(|column| NullColumn { relation, column }));
                }
            });
        }
        found
    }
}

/// Returns the columns that a node leaves NULL if it inserts rows. Each column comes as its table and its position,
/// starting at 1.
fn null_positions(node: &Value) -> Vec<(RelationName, usize)> {
    let Some(relation) =
        changed_relation(node).filter(|_| node.get("Operation").is_some_and(|name| name == "Insert"))
    else {
        return Vec::new();
    };
    let children = node.get("Plans").and_then(Value::as_array).into_iter().flatten();
    // Subqueries in values are child nodes too, but don't provide rows.
    let mut rows = children.filter(|child| {
        child.get("Parent Relationship").is_some_and(|part| part == "Outer" || part == "Member")
    });
    let output = rows.next().and_then(|rows| rows.get("Output")).and_then(Value::as_array);
    let is_null =
        |value: &Value| value.as_str().is_some_and(|text| text == "NULL" || text.starts_with("NULL::"));
    let positions = output.into_iter().flatten().enumerate().filter(|(_, value)| is_null(value));
    positions.map(|(index, _)| (relation.clone(), index + 1)).collect()
}
