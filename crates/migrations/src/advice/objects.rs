//! Contains the rules for indexes, partitions, triggers, extensions, enums, domains and materialized views.

use plans::RelationKind;

use super::advice;
use super::change::SchemaChange;
use super::facts::{Facts, enumerated};
use super::table_action::TableAction;
use crate::{AdviceTopic, LockMode, RelationLock, StatementAdvice};

pub(super) const PARTITION: &str =
    "before it, ADD CHECK (the bounds) NOT VALID and VALIDATE it, and the opposite on the default partition";
const CHECKS: &str = "checks all rows";
const CONCURRENTLY: &str = "CREATE INDEX CONCURRENTLY, outside a transaction";
const ON_PARTITIONS: &str =
    "CREATE INDEX ON ONLY the parent, CONCURRENTLY on each partition, then ALTER INDEX … ATTACH PARTITION";
const DROP_CONCURRENTLY: &str = "DROP INDEX CONCURRENTLY, outside a transaction";
const REINDEX: &str = "REINDEX … CONCURRENTLY, outside a transaction";
const INVALID: &str = "DROP INDEX CONCURRENTLY, change those rows, and create it again";
const DOMAIN: &str = "ADD CONSTRAINT … NOT VALID, which checks new values only";
const REFRESH: &str = "a unique index on the view once, then REFRESH MATERIALIZED VIEW CONCURRENTLY";
const NEW_VIEW: &str =
    "create the view and its indexes under another name, then swap the names in a short transaction";
const ADD_VALUE: &str = "ALTER TYPE … ADD VALUE in a migration of its own, before this one";
const RENAME_VALUE: &str = "add the new value, deploy code that handles both, change the rows in batches";
const EXTENSION: &str = "an administrator creates it beforehand, and the migration uses IF NOT EXISTS";
const DROP_EXTENSION: &str = "drop the columns and indexes that use it first, one table in a transaction";
const DISABLE: &str = "SET session_replication_role = replica, for this session only, or a WHEN condition";
const REPLACE_TRIGGER: &str = "CREATE OR REPLACE FUNCTION, or from 14 on CREATE OR REPLACE TRIGGER";
const TRIGGER: &str = "SET lock_timeout before it, in a transaction with nothing else";

/// Returns true if the advice already warns that the statement waits without `lock_timeout`.
pub(super) fn mentions_lock_timeout(advice: &StatementAdvice) -> bool {
    [DROP_CONCURRENTLY, TRIGGER].contains(&advice.instead.as_str())
}

/// Returns the advice for all changes except those of columns and constraints.
pub(super) fn advise_object(facts: &Facts<'_>) -> Vec<StatementAdvice> {
    let found = match facts.change() {
        SchemaChange::CreateIndex { table, is_concurrent } if facts.is_old(table) => {
            created_index(facts, *is_concurrent)
        }
        SchemaChange::DropIndex { is_concurrent: false } => dropped_index(facts),
        SchemaChange::Reindex { is_concurrent: false } => facts
            .is_long()
            .then(|| advice(AdviceTopic::Index, facts.danger_of("builds its indexes again"), REINDEX)),
        SchemaChange::AlterDomain => {
            facts.is_long().then(|| advice(AdviceTopic::CheckConstraint, facts.danger_of(CHECKS), DOMAIN))
        }
        SchemaChange::CreateTable { is_partition: true, .. } => {
            facts.is_long().then(|| advice(AdviceTopic::Partition, facts.danger_of(CHECKS), PARTITION))
        }
        SchemaChange::Refresh { view, is_concurrent: false } if facts.is_old(view) => {
            let danger = format!("blocks reads of {} until it has all rows", view.name);
            (!is_small(facts)).then(|| advice(AdviceTopic::MaterializedView, danger, REFRESH))
        }
        SchemaChange::CreateMaterializedView { .. } => created_view(facts),
        SchemaChange::RenameEnumValue if facts.may_break() => {
            Some(advice(AdviceTopic::Enum, facts.broken("the old value"), RENAME_VALUE))
        }
        SchemaChange::CreateExtension { name, if_not_exists: false } => {
            let danger = format!(
                "fails if {name} exists, if the server lacks its files, or if the role is not allowed to create it"
            );
            Some(advice(AdviceTopic::Extension, danger, EXTENSION))
        }
        SchemaChange::DropExtension => dropped_extension(facts),
        SchemaChange::CreateTrigger { table, .. } | SchemaChange::DropTrigger { table, .. }
            if facts.is_old(table) =>
        {
            changed_trigger(facts, &table.name)
        }
        SchemaChange::AlterTable { table, actions } if facts.is_old(table) => disabled_trigger(actions),
        _ => None,
    };
    found.into_iter().chain(unsafe_enum_value(facts)).collect()
}

fn is_small(facts: &Facts<'_>) -> bool {
    facts.reported().predicted.is_some() && !facts.is_long()
}

fn created_index(facts: &Facts<'_>, is_concurrent: bool) -> Option<StatementAdvice> {
    let locks = facts.locks();
    let is_partitioned = locks.iter().any(|lock| lock.kind == RelationKind::PartitionedTable);
    if is_concurrent {
        return match facts.error() {
            Some("0A000") => {
                Some(advice(AdviceTopic::Index, "a partitioned table has no CONCURRENTLY", ON_PARTITIONS))
            }
            Some("23505") => Some(advice(AdviceTopic::Index, "failed and left an invalid index", INVALID)),
            _ => None,
        };
    }
    let instead = if is_partitioned { ON_PARTITIONS } else { CONCURRENTLY };
    facts.is_long().then(|| advice(AdviceTopic::Index, facts.danger_of("builds it from all rows"), instead))
}

/// Returns advice for a DROP INDEX, which holds its lock only briefly but may wait for it without a timeout.
fn dropped_index(facts: &Facts<'_>) -> Option<StatementAdvice> {
    let locks = facts.locks();
    let is_partitioned = locks.iter().any(|lock| lock.kind == RelationKind::PartitionedTable);
    if facts.has_lock_timeout() || is_partitioned {
        return None;
    }
    let lock = locks.into_iter().find(|lock| lock.mode == LockMode::AccessExclusive)?;
    let danger =
        format!("without a lock_timeout, reads and writes of {} wait as long as it does", lock.relation);
    Some(advice(AdviceTopic::Index, danger, DROP_CONCURRENTLY))
}

/// Returns advice for a view that replaces a materialized view dropped earlier in the transaction.
fn created_view(facts: &Facts<'_>) -> Option<StatementAdvice> {
    let (before, _) = facts.in_transaction();
    let held = facts.held();
    let has_dropped =
        before.iter().any(|change| matches!(change, SchemaChange::DropMaterializedViews { .. }));
    let view = held.iter().find(|lock| lock.kind == RelationKind::MaterializedView)?;
    let danger = format!("blocks reads of {} until it has all rows", view.relation);
    (has_dropped && !is_small(facts)).then(|| advice(AdviceTopic::MaterializedView, danger, NEW_VIEW))
}

fn dropped_extension(facts: &Facts<'_>) -> Option<StatementAdvice> {
    let locks = facts.locks();
    let tables: Vec<_> = locks.iter().map(|lock| lock.relation.to_string()).collect();
    let danger = format!("also drops columns or indexes of {}", enumerated(&tables));
    (!tables.is_empty()).then(|| advice(AdviceTopic::Extension, danger, DROP_EXTENSION))
}

fn changed_trigger(facts: &Facts<'_>, table: &str) -> Option<StatementAdvice> {
    let (before, _) = facts.in_transaction();
    let is_replaced = before.iter().any(|change| match (change, facts.change()) {
        (SchemaChange::DropTrigger { trigger: old, .. }, SchemaChange::CreateTrigger { trigger, .. }) => {
            old == trigger
        }
        _ => false,
    });
    if is_replaced {
        let danger = format!("its DROP TRIGGER blocks reads and writes of {table}");
        return Some(advice(AdviceTopic::Trigger, danger, REPLACE_TRIGGER));
    }
    if facts.has_lock_timeout() || !facts.locks().into_iter().any(RelationLock::blocks_writes) {
        return None;
    }
    let danger = format!("without a lock_timeout, {} of {table} wait as long as it does", facts.waiting()?);
    Some(advice(AdviceTopic::Trigger, danger, TRIGGER))
}

fn disabled_trigger(actions: &[TableAction]) -> Option<StatementAdvice> {
    let danger = "switches the trigger off for all sessions, and blocks writes";
    actions.contains(&TableAction::DisableTrigger).then(|| advice(AdviceTopic::Trigger, danger, DISABLE))
}

/// Returns advice for a new enum value that is used before the transaction that added it commits, which PostgreSQL
/// refuses.
fn unsafe_enum_value(facts: &Facts<'_>) -> Option<StatementAdvice> {
    let danger = "uses an enum value before the transaction that adds it has committed";
    (facts.error() == Some("55P04")).then(|| advice(AdviceTopic::Enum, danger, ADD_VALUE))
}
