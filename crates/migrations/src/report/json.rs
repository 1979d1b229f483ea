//! Formats the report as JSON, for programs.
//!
//! The object contains a format version under `format`. A later version of pgfresh may add keys without changing the
//! format version. If a key's meaning changes, the format version changes too.

use serde_json::{Value, json};

use super::{
    BlockedStatement, BrokenStatement, MigrationReport, Prediction, ReportedStatement, SuiteOutcome,
    TableSize, words,
};

const FORMAT: u32 = 1;

impl MigrationReport {
    /// Returns the key-value pairs of the JSON object.
    #[must_use]
    pub fn to_json(&self) -> Vec<(&'static str, Value)> {
        let Self { statements, over_budget, assumptions, unseen, run, tables, suite, files, .. } = self;
        let over_budget = over_budget
            .iter()
            .map(|over| json!({ "key": over.key, "statement": over.statement, "message": over.message }));
        let tables = tables.iter().map(|table| {
            json!({
                "database": table.database, "relation": table.relation.full_name(), "here": size(table.here),
                "production": table.production.map(size),
            })
        });
        vec![
            ("format", json!(FORMAT)),
            ("passes", json!(self.passes())),
            ("base", json!(run.base)),
            ("command", json!(run.command)),
            ("exit_code", json!(run.exit_code)),
            ("interrupted", json!(run.is_interrupted)),
            ("waits", json!(run.waits)),
            ("statements", statements.iter().map(|one| statement_to_json(one, self.file_of(one))).collect()),
            ("over_budget", over_budget.collect()),
            ("suite", suite.as_ref().map_or(Value::Null, suite_to_json)),
            ("assumptions", json!(assumptions)),
            ("unseen", json!(unseen)),
            ("table_sizes", tables.collect()),
            ("files", json!(files)),
        ]
    }
}

fn statement_to_json(statement: &ReportedStatement, file: Option<&str>) -> Value {
    let observed = &statement.observed;
    let locks = observed
        .locks
        .iter()
        .map(|lock| json!({ "relation": lock.relation.full_name(), "kind": lock.kind, "mode": lock.mode }));
    let rewrites = observed.rewrites.iter().map(|rewrite| {
        json!({
            "relation": rewrite.relation.full_name(), "kind": rewrite.kind,
            "table": rewrite.table.as_ref().map(plans::RelationName::full_name), "emptied": rewrite.is_emptied,
        })
    });
    let scans = observed
        .scans
        .iter()
        .map(|scan| json!({ "relation": scan.relation.full_name(), "scans": scan.scans, "rows": scan.rows }));
    let changed = observed.changed.iter();
    let changed = changed.map(|one| json!({ "relation": one.relation.full_name(), "rows": one.rows }));
    let advice = statement.advice.iter().map(|advice| {
        json!({
            "topic": advice.topic.anchor(), "danger": advice.danger, "instead": advice.instead,
            "page": words::page(advice.topic),
        })
    });
    json!({
        "sql": observed.sql, "migration": statement.migration, "file": file, "line": statement.line,
        "bookkeeping": statement.is_bookkeeping,
        "database": observed.database, "session": observed.session, "transaction": observed.transaction,
        "outside_transactions": observed.is_outside_transactions, "tag": observed.tag,
        "error": observed.error.as_ref().map(|error| json!({ "code": error.sqlstate, "message": error.message })),
        "unfinished": observed.is_unfinished, "locks": locks.collect::<Vec<_>>(),
        "rewrites": rewrites.collect::<Vec<_>>(), "scans": scans.collect::<Vec<_>>(), "seconds": observed.seconds,
        "held_seconds": observed.held_seconds,
        "lock_timeout": observed.lock_timeout.map(|timeout| timeout.as_secs_f64()),
        "changed": changed.collect::<Vec<_>>(), "unobserved": observed.unobserved,
        "predicted": statement.predicted.map(range), "predicted_held": statement.predicted_held.map(range),
        "blocks": statement.blocks.iter().map(blocked).collect::<Vec<_>>(),
        "breaks": statement.breaks.iter().map(broken).collect::<Vec<_>>(),
        "advice": advice.collect::<Vec<_>>(), "exception": statement.exception,
    })
}

fn blocked(blocked: &BlockedStatement) -> Value {
    let BlockedStatement { statement, tests, relation, wants, held, because } = blocked;
    json!({
        "statement": statement, "tests": tests, "relation": relation.full_name(), "wants": wants, "held": held,
        "because": because,
    })
}

fn broken(broken: &BrokenStatement) -> Value {
    let BrokenStatement { statement, tests, error } = broken;
    json!({ "statement": statement, "tests": tests, "error": error })
}

fn range(Prediction { low, high }: Prediction) -> Value {
    json!({ "low": low, "high": high })
}

fn size(TableSize { rows, bytes }: TableSize) -> Value {
    json!({ "rows": rows, "bytes": bytes })
}

fn suite_to_json(suite: &SuiteOutcome) -> Value {
    let SuiteOutcome { command, exit_code, exit_code_before, failures, failed_tests } = suite;
    json!({
        "command": command, "exit_code": exit_code, "exit_code_before": exit_code_before,
        "failures": failures.iter().map(broken).collect::<Vec<_>>(), "failed_tests": failed_tests,
        "passes": suite.passes(),
    })
}
