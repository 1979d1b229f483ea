//! Contains the rules that protect old code: code that still runs between the migration and the deployment of its new
//! version.

use super::advice;
use super::change::SchemaChange;
use super::cursor::SqlName;
use super::facts::{Facts, enumerated};
use super::table_action::TableAction;
use crate::{AdviceTopic, LockMode, StatementAdvice};

const DROP_COLUMN: &str = "deploy code without the column first, then drop it";
const RENAME_COLUMN: &str =
    "add a column, write both, copy in batches, deploy code that reads it, then drop the old one";
const KEEP_DEFAULT: &str = "keep the default until the code that writes the column is deployed";
const RENAME_TABLE: &str =
    "in the same transaction, CREATE VIEW with the old name; drop it after the deployment";
const RENAME_SCHEMA: &str = "in the same transaction, CREATE SCHEMA with the old name and views of the tables; drop it after the deployment";
const DROP_CASCADE: &str = "deploy code without these tables or columns first, then drop them one by one";
const DROP_TABLE: &str = "deploy code without the table first, then drop it";
const OLD_CODE: &str =
    "keep the old one until code without it is deployed, or deploy code that works with both first";

/// Returns the advice for changes that make old code fail.
pub(super) fn advise_code(facts: &Facts<'_>) -> Vec<StatementAdvice> {
    if !facts.may_break() || facts.observed().tag.is_none() {
        return Vec::new();
    }
    let block = facts.block();
    let mut found: Vec<_> =
        [facts.change()].into_iter().chain(&block).flat_map(|change| change_breaks(facts, change)).collect();
    let is_known = *facts.change() == SchemaChange::RenameEnumValue;
    if found.is_empty() && !is_known && !facts.reported().breaks.is_empty() {
        found.push(advice(AdviceTopic::OldCode, facts.broken("it"), OLD_CODE));
    }
    found
}

fn change_breaks(facts: &Facts<'_>, change: &SchemaChange) -> Vec<StatementAdvice> {
    match change {
        SchemaChange::AlterTable { table, actions } if facts.is_old(table) => {
            actions.iter().filter_map(|action| action_breaks(facts, table, action)).collect()
        }
        SchemaChange::DropTables { names }
            if names.iter().any(|name| facts.is_old(name) && !is_new_name(facts, name)) =>
        {
            let is_back = names.iter().all(|name| is_named_again(facts, &name.name));
            let dropped = || advice(AdviceTopic::TableDrop, facts.broken("the table"), DROP_TABLE);
            (!is_back).then(dropped).into_iter().collect()
        }
        SchemaChange::RenameSchema { schema } if facts.is_old_schema(schema) => {
            vec![advice(AdviceTopic::TableRename, facts.broken(schema), RENAME_SCHEMA)]
        }
        SchemaChange::DropCascade => {
            let tables = facts.locks().into_iter().filter(|lock| lock.mode == LockMode::AccessExclusive);
            let tables: Vec<_> = tables.map(|lock| lock.relation.to_string()).collect();
            let danger = || facts.broken(&format!("what it drops of {}", enumerated(&tables)));
            (!tables.is_empty())
                .then(|| advice(AdviceTopic::TableDrop, danger(), DROP_CASCADE))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

fn action_breaks(facts: &Facts<'_>, table: &SqlName, action: &TableAction) -> Option<StatementAdvice> {
    match action {
        TableAction::DropColumn { column } | TableAction::RenameColumn { column, .. }
            if is_new_column(facts, table, column) =>
        {
            None
        }
        TableAction::DropColumn { column } => {
            Some(advice(AdviceTopic::ColumnDrop, facts.broken(column), DROP_COLUMN))
        }
        TableAction::RenameColumn { column, .. } => {
            let is_back = is_column_named_again(facts, table, column);
            (!is_back).then(|| advice(AdviceTopic::ColumnRename, facts.broken(column), RENAME_COLUMN))
        }
        TableAction::DropDefault { column } if is_required(facts, table, column) => {
            let danger = if facts.reported().breaks.is_empty() {
                format!("code that inserts rows without {column} fails until its new version is deployed")
            } else {
                facts.broken(column)
            };
            Some(advice(AdviceTopic::NotNull, danger, KEEP_DEFAULT))
        }
        TableAction::RenameTable { .. } | TableAction::SetSchema { .. } => {
            let is_back = is_named_again(facts, &table.name);
            (!is_back).then(|| advice(AdviceTopic::TableRename, facts.broken(&table.name), RENAME_TABLE))
        }
        _ => None,
    }
}

/// Returns true if a later statement of the transaction gives this name to another table or view, so that old code
/// still finds one.
fn is_named_again(facts: &Facts<'_>, name: &str) -> bool {
    let (_, after) = facts.in_transaction();
    after.into_iter().chain(&facts.block()).any(|change| match change {
        SchemaChange::CreateView { name: new } | SchemaChange::CreateTable { name: new, .. } => {
            new.name == name
        }
        SchemaChange::AlterTable { actions, .. } => {
            actions.iter().any(|action| matches!(action, TableAction::RenameTable { to } if to == name))
        }
        _ => false,
    })
}

/// Returns true if the migration itself gave the table its name, so that old code can't use it.
fn is_new_name(facts: &Facts<'_>, table: &SqlName) -> bool {
    let is_renamed =
        |action: &TableAction| matches!(action, TableAction::RenameTable { to } if *to == table.name);
    facts.changes[..facts.index].iter().any(
        |change| matches!(change, SchemaChange::AlterTable { actions, .. } if actions.iter().any(is_renamed)),
    )
}

/// Returns true if the migration itself gave the column its name, so that old code can't use it.
fn is_new_column(facts: &Facts<'_>, table: &SqlName, column: &str) -> bool {
    earlier_actions(facts, table).any(|action| match action {
        TableAction::AddColumn(added) => added.name == column,
        TableAction::RenameColumn { to, .. } => to == column,
        _ => false,
    })
}

/// Returns true if the migration itself added the column with NOT NULL.
fn is_required(facts: &Facts<'_>, table: &SqlName, column: &str) -> bool {
    earlier_actions(facts, table).any(|action| match action {
        TableAction::AddColumn(added) => added.name == column && added.is_not_null,
        _ => false,
    })
}

/// Yields the actions that earlier statements perform on a table.
fn earlier_actions<'a>(facts: &Facts<'a>, table: &SqlName) -> impl Iterator<Item = &'a TableAction> {
    let earlier = facts.changes[..facts.index].iter();
    let actions = earlier.filter_map(move |change| match change {
        SchemaChange::AlterTable { table: other, actions } if other == table => Some(actions),
        _ => None,
    });
    actions.flatten()
}

/// Returns true if a later statement of the transaction gives the name to another column of the table, as a swap of two
/// columns does.
fn is_column_named_again(facts: &Facts<'_>, table: &SqlName, column: &str) -> bool {
    let (_, after) = facts.in_transaction();
    after.into_iter().any(|change| match change {
        SchemaChange::AlterTable { table: other, actions } if other == table => actions
            .iter()
            .any(|action| matches!(action, TableAction::RenameColumn { to, .. } if to == column)),
        _ => false,
    })
}
