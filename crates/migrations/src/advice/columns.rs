//! Contains the rules for changes of columns and constraints.

use plans::RelationKind;

use super::advice;
use super::facts::{Facts, sql_name};
use super::table_action::{AddedColumn, AddedConstraint, ConstraintKind, TableAction};
use crate::{AdviceTopic, StatementAdvice};

const TYPE_CHANGE: &str = "add a column of the new type, copy in batches, then swap the names";
const NOT_NULL_COLUMN: &str = "add it with a DEFAULT, or add it without NOT NULL and fill it in batches";
const DEFAULT: &str = "ADD COLUMN without the default, SET DEFAULT, then fill the old rows in batches";
const GENERATED: &str =
    "an ordinary column that a trigger fills, and batches for the old rows; from 18 on, VIRTUAL";
const CHECK: &str = "ADD CONSTRAINT … NOT VALID, then VALIDATE CONSTRAINT in a transaction of its own";
const CHECK_COLUMN: &str =
    "ADD COLUMN first, then ADD CONSTRAINT … NOT VALID, then VALIDATE CONSTRAINT in a transaction of its own";
const UNIQUE: &str = "CREATE UNIQUE INDEX CONCURRENTLY, then ADD CONSTRAINT … UNIQUE USING INDEX";
const PRIMARY_KEY: &str =
    "CREATE UNIQUE INDEX CONCURRENTLY and a proven NOT NULL, then ADD CONSTRAINT … PRIMARY KEY USING INDEX";
const UNIQUE_PARTITIONS: &str = "ADD CONSTRAINT to ONLY the parent, on each partition CREATE UNIQUE INDEX CONCURRENTLY \
     and ADD CONSTRAINT … USING INDEX, then ALTER INDEX … ATTACH PARTITION";
const PROVEN: &str = "make its columns NOT NULL first, with a validated CHECK as proof";
const EXCLUSION: &str = "no way without blocking: plan a maintenance window, or check in a trigger";
const MEND: &str = "change those rows first";

/// Returns the advice for an action of an ALTER TABLE. The table existed before the migration.
pub(super) fn advise_action(facts: &Facts<'_>, action: &TableAction) -> Vec<StatementAdvice> {
    let long = |topic, instead: &str| {
        let instead =
            if facts.refuses_rows() { format!("{MEND}; and {instead}") } else { instead.to_owned() };
        facts.is_long().then(|| advice(topic, facts.danger_of(work(topic)), instead)).into_iter().collect()
    };
    match action {
        TableAction::AddColumn(column) => added_column(facts, column, &long),
        TableAction::AddConstraint(constraint) => added_constraint(facts, constraint, &long),
        TableAction::ChangeType if facts.rewrites() => long(AdviceTopic::TypeChange, TYPE_CHANGE),
        TableAction::SetNotNull { column } => long(AdviceTopic::NotNull, &set_not_null(column)),
        TableAction::SetExpression if !facts.rewritten().is_empty() => {
            long(AdviceTopic::GeneratedColumn, GENERATED)
        }
        TableAction::AttachPartition => long(AdviceTopic::Partition, super::objects::PARTITION),
        _ => Vec::new(),
    }
}

fn set_not_null(column: &str) -> String {
    let column = sql_name(column);
    format!(
        "ADD CHECK ({column} IS NOT NULL) NOT VALID, VALIDATE it in a transaction of its own, then SET NOT NULL"
    )
}

/// Names the work that makes such a statement take long, such as "builds its index from all rows".
fn work(topic: AdviceTopic) -> &'static str {
    match topic {
        AdviceTopic::TypeChange => "converts the column in all rows or indexes",
        AdviceTopic::Default => "writes the default into all rows",
        AdviceTopic::GeneratedColumn => "computes the column in all rows",
        AdviceTopic::NotNull => "reads all rows to find nulls",
        AdviceTopic::UniqueConstraint | AdviceTopic::PrimaryKey => "builds its index from all rows",
        _ => "checks all rows",
    }
}

/// Returns the way to a unique constraint. PostgreSQL refuses `usual` for partitioned tables.
fn unique(facts: &Facts<'_>, usual: &'static str) -> &'static str {
    let is_partitioned = facts.locks().iter().any(|lock| lock.kind == RelationKind::PartitionedTable);
    if is_partitioned { UNIQUE_PARTITIONS } else { usual }
}

type Long<'a> = &'a dyn Fn(AdviceTopic, &str) -> Vec<StatementAdvice>;

fn added_column(facts: &Facts<'_>, column: &AddedColumn, long: Long<'_>) -> Vec<StatementAdvice> {
    let is_rewritten = !facts.rewritten().is_empty();
    let has_values = column.has_default || column.is_serial || column.is_generated;
    if column.is_not_null && !has_values && (facts.refuses_rows() || !is_rewritten) {
        let danger = "fails if the table has rows, because they have no value for it";
        return vec![advice(AdviceTopic::NotNull, danger, NOT_NULL_COLUMN)];
    }
    if is_rewritten {
        return if column.is_generated {
            long(AdviceTopic::GeneratedColumn, GENERATED)
        } else if column.is_serial || column.may_be_volatile {
            long(AdviceTopic::Default, DEFAULT)
        } else {
            Vec::new()
        };
    }
    if column.is_primary_key {
        long(AdviceTopic::PrimaryKey, unique(facts, PRIMARY_KEY))
    } else if column.is_unique {
        long(AdviceTopic::UniqueConstraint, unique(facts, UNIQUE))
    } else if column.has_check {
        long(AdviceTopic::CheckConstraint, CHECK_COLUMN)
    } else if column.has_reference {
        long(AdviceTopic::ForeignKey, CHECK_COLUMN)
    } else {
        Vec::new()
    }
}

fn added_constraint(facts: &Facts<'_>, constraint: &AddedConstraint, long: Long<'_>) -> Vec<StatementAdvice> {
    if constraint.is_not_valid {
        let topic = match constraint.kind {
            ConstraintKind::ForeignKey => AdviceTopic::ForeignKey,
            ConstraintKind::NotNull => AdviceTopic::NotNull,
            _ => AdviceTopic::CheckConstraint,
        };
        return if facts.validates() { long(topic, CHECK) } else { Vec::new() };
    }
    if constraint.uses_index {
        let danger = facts.danger_of("reads all rows to find nulls");
        let found = facts.is_long().then(|| advice(AdviceTopic::PrimaryKey, danger, PROVEN));
        return found.into_iter().collect();
    }
    match constraint.kind {
        ConstraintKind::Check => long(AdviceTopic::CheckConstraint, CHECK),
        ConstraintKind::NotNull => long(AdviceTopic::NotNull, CHECK),
        ConstraintKind::Unique => long(AdviceTopic::UniqueConstraint, unique(facts, UNIQUE)),
        ConstraintKind::PrimaryKey => long(AdviceTopic::PrimaryKey, unique(facts, PRIMARY_KEY)),
        ConstraintKind::Exclusion => long(AdviceTopic::UniqueConstraint, EXCLUSION),
        ConstraintKind::ForeignKey => {
            // PostgreSQL may check an indexed table by reading only the index, which the scan counters don't show.
            let found = long(AdviceTopic::ForeignKey, CHECK);
            if found.is_empty() && facts.scanned().is_empty() && facts.observed().tag.is_some() {
                vec![advice(AdviceTopic::ForeignKey, facts.danger_of("checks all rows"), CHECK)]
            } else {
                found
            }
        }
    }
}
