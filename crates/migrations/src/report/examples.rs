//! Builds example reports for tests of the formats.

use std::time::Duration;

use plans::{RelationKind, RelationName};

use super::{
    AdviceTopic, BlockedStatement, BrokenStatement, MigrationReport, MigrationRun, OverMigrationBudget,
    Prediction, ReportedStatement, StatementAdvice, SuiteOutcome, TableSize, TableSizes,
};
use crate::{LockMode, ObservedStatement, RelationLock, Rewrite, TableScan};

fn name(name: &str) -> RelationName {
    RelationName { schema: "public".to_owned(), name: name.to_owned() }
}

fn lock(relation: &str, kind: RelationKind, mode: LockMode) -> RelationLock {
    RelationLock { relation: name(relation), kind, mode }
}

fn observed(sql: &str, tag: &str) -> ObservedStatement {
    ObservedStatement {
        database: "app".to_owned(),
        sql: sql.to_owned(),
        tag: Some(tag.to_owned()),
        seconds: 0.002,
        held_seconds: 0.6,
        ..ObservedStatement::default()
    }
}

fn index(name_of_index: &str) -> Rewrite {
    Rewrite {
        relation: name(name_of_index),
        kind: RelationKind::Index,
        table: Some(name("orders")),
        is_emptied: false,
    }
}

fn type_change() -> ReportedStatement {
    let sql = "ALTER TABLE orders ALTER COLUMN id TYPE bigint";
    ReportedStatement {
        observed: ObservedStatement {
            locks: vec![
                lock("orders", RelationKind::Table, LockMode::AccessExclusive),
                lock("orders_pkey", RelationKind::Index, LockMode::AccessExclusive),
            ],
            rewrites: vec![
                Rewrite {
                    relation: name("orders"),
                    kind: RelationKind::Table,
                    table: None,
                    is_emptied: false,
                },
                index("orders_pkey"),
                index("orders_customer"),
            ],
            scans: vec![TableScan { relation: name("orders"), scans: 2, rows: 400_000 }],
            seconds: 0.31,
            ..observed(sql, "ALTER TABLE")
        },
        migration: Some("0042_orders_status.py".to_owned()),
        line: Some(12),
        predicted: Some(Prediction { low: 70.0, high: 110.0 }),
        predicted_held: Some(Prediction { low: 70.0, high: 112.0 }),
        blocks: vec![
            BlockedStatement {
                statement: "SELECT id, total FROM orders WHERE id = $1".to_owned(),
                tests: vec!["tests/test_cart.py::test_a".to_owned(), "tests/test_cart.py::test_b".to_owned()],
                relation: name("orders"),
                wants: LockMode::AccessShare,
                held: LockMode::AccessExclusive,
                because: None,
            };
            37
        ],
        breaks: vec![BrokenStatement {
            statement: "SELECT old FROM orders".to_owned(),
            tests: vec!["test_old".to_owned()],
            error: "column \"old\" does not exist".to_owned(),
        }],
        advice: vec![StatementAdvice {
            topic: AdviceTopic::TypeChange,
            danger: "the new type makes PostgreSQL copy the table".to_owned(),
            instead: "add a bigint column, backfill in batches, swap".to_owned(),
        }],
        ..ReportedStatement::default()
    }
}

fn index_build() -> ReportedStatement {
    ReportedStatement {
        observed: ObservedStatement {
            locks: vec![lock("orders", RelationKind::Table, LockMode::Share)],
            scans: vec![TableScan { relation: name("orders"), scans: 1, rows: 200_000 }],
            seconds: 0.09,
            lock_timeout: Some(Duration::from_secs(2)),
            ..observed("CREATE INDEX orders_status ON orders (status)", "CREATE INDEX")
        },
        migration: Some("0042_orders_status.py".to_owned()),
        predicted: Some(Prediction { low: 12.0, high: 30.0 }),
        predicted_held: Some(Prediction { low: 12.0, high: 30.0 }),
        exception: Some("no writes at night".to_owned()),
        ..ReportedStatement::default()
    }
}

/// Returns a report with two dangerous statements, two harmless ones and a bookkeeping statement.
pub(super) fn dangerous() -> MigrationReport {
    let harmless = |sql: &str, tag: &str| ReportedStatement {
        observed: observed(sql, tag),
        migration: Some("0042_orders_status.py".to_owned()),
        ..ReportedStatement::default()
    };
    let bookkeeping = ReportedStatement {
        is_bookkeeping: true,
        ..harmless("UPDATE alembic_version SET version_num = '0042'", "UPDATE 1")
    };
    MigrationReport {
        settings_file: "app/pgfresh.toml".to_owned(),
        statements: vec![
            harmless("BEGIN", "BEGIN"),
            type_change(),
            index_build(),
            harmless("CREATE TABLE notes (id int)", "CREATE TABLE"),
            bookkeeping,
            harmless("COMMIT", "COMMIT"),
        ],
        over_budget: vec![OverMigrationBudget {
            key: "access_exclusive".to_owned(),
            statement: 1,
            message: "access_exclusive is 70 to 110 s, the budget is 1 s".to_owned(),
        }],
        assumptions: vec!["the disk reads 200 MB/s".to_owned()],
        unseen: vec!["functions that triggers call".to_owned()],
        run: MigrationRun {
            base: "main (1a2b3c4)".to_owned(),
            command: "alembic upgrade head".to_owned(),
            postgres: "15.13".to_owned(),
            production: Some("statistics of 2026-11-20".to_owned()),
            ..MigrationRun::default()
        },
        tables: vec![TableSizes {
            database: "app".to_owned(),
            relation: name("orders"),
            here: TableSize { rows: 200_000.0, bytes: 16e6 },
            production: Some(TableSize { rows: 48e6, bytes: 4.02e9 }),
        }],
        suite: None,
        files: [("0042_orders_status.py".to_owned(), "app/migrations/0042_orders_status.py".to_owned())]
            .into(),
    }
}

/// Returns a report whose suite fails on the migrated database.
pub(super) fn with_failing_suite() -> MigrationReport {
    let failures = vec![BrokenStatement {
        statement: "SELECT old FROM orders".to_owned(),
        tests: Vec::new(),
        error: "column \"old\" does not exist (42703)".to_owned(),
    }];
    let suite = SuiteOutcome {
        command: "pytest".to_owned(),
        exit_code: 1,
        exit_code_before: Some(0),
        failures,
        failed_tests: Vec::new(),
    };
    MigrationReport { over_budget: Vec::new(), suite: Some(suite), ..dangerous() }
}
