use plans::{RelationKind, RelationName};

use super::*;
use crate::{BrokenStatement, ObservedStatement, Rewrite};

fn name(name: &str) -> RelationName {
    RelationName { schema: "public".to_owned(), name: name.to_owned() }
}

/// Returns a statement that holds a lock on orders for `held_seconds`.
fn statement(transaction: usize, mode: LockMode, held_seconds: f64) -> ReportedStatement {
    let lock = RelationLock { relation: name("orders"), kind: RelationKind::Table, mode };
    ReportedStatement {
        observed: ObservedStatement {
            transaction,
            held_seconds,
            locks: vec![lock],
            ..ObservedStatement::default()
        },
        ..ReportedStatement::default()
    }
}

fn messages(budget: MigrationBudget, statements: &[ReportedStatement]) -> Vec<String> {
    budget.exceeded(statements).into_iter().map(|over| over.message).collect()
}

const SECOND: Option<Duration> = Some(Duration::from_secs(1));

#[test]
fn locks_that_block_readers_have_a_limit() {
    let budget = MigrationBudget { access_exclusive: SECOND, ..MigrationBudget::default() };
    let mut statements = vec![
        statement(0, LockMode::AccessExclusive, 1.0),
        statement(1, LockMode::Exclusive, 100.0),
        statement(2, LockMode::AccessExclusive, 0.1),
    ];
    assert_eq!(messages(budget, &statements), [""; 0]);
    statements[2].predicted_held = Some(Prediction { low: 70.0, high: 110.0 });
    let over = budget.exceeded(&statements);
    assert_eq!(over.len(), 1);
    assert_eq!((over[0].key.as_str(), over[0].statement), ("access_exclusive", 2));
    assert_eq!(over[0].message, "access_exclusive is 70 to 110 s on orders, the budget is 1 s");
}

#[test]
fn locks_that_block_writers_have_a_limit() {
    let budget = MigrationBudget { share: SECOND, ..MigrationBudget::default() };
    let statements = [
        statement(0, LockMode::ShareUpdateExclusive, 5.0),
        statement(1, LockMode::Share, 5.0),
        statement(2, LockMode::AccessExclusive, 5.0),
    ];
    let message = "share is about 5 s on orders, the budget is 1 s";
    assert_eq!(messages(budget, &statements), [message; 2]);
    let both = MigrationBudget { access_exclusive: SECOND, ..budget };
    let exclusive = "access_exclusive is about 5 s on orders, the budget is 1 s";
    assert_eq!(messages(both, &statements), [message, exclusive]);
}

#[test]
fn each_transaction_reports_its_longest_lock() {
    let budget = MigrationBudget { access_exclusive: SECOND, ..MigrationBudget::default() };
    let statements = [2.0, 9.0, 3.0].map(|held| statement(0, LockMode::AccessExclusive, held));
    let over = budget.exceeded(&statements);
    assert_eq!(over.iter().map(|over| over.statement).collect::<Vec<_>>(), [1]);
}

#[test]
fn lock_timeout_must_be_set_and_short() {
    let budget = MigrationBudget { lock_timeout: SECOND, ..MigrationBudget::default() };
    let with = |transaction, mode, timeout: Option<u64>| {
        let mut statement = statement(transaction, mode, 0.0);
        statement.observed.lock_timeout = timeout.map(Duration::from_secs);
        statement
    };
    let statements = [
        with(0, LockMode::AccessExclusive, Some(1)),
        with(1, LockMode::RowExclusive, None),
        with(2, LockMode::Share, None),
        with(2, LockMode::AccessExclusive, None),
        with(3, LockMode::AccessExclusive, Some(60)),
    ];
    let expected = [
        "lock_timeout is not set for SHARE on orders, the budget is 1 s",
        "lock_timeout is 60 s for ACCESS EXCLUSIVE on orders, the budget is 1 s",
    ];
    assert_eq!(messages(budget, &statements), expected);
}

#[test]
fn rewritten_tables_have_a_limit() {
    let budget = MigrationBudget { rewrites: Some(0), ..MigrationBudget::default() };
    let mut statements = vec![statement(0, LockMode::AccessExclusive, 0.0)];
    let rewrite = |relation: &str, table: Option<&str>, is_emptied| Rewrite {
        relation: name(relation),
        kind: RelationKind::Table,
        table: table.map(name),
        is_emptied,
    };
    let harmless = [rewrite("orders_pkey", Some("orders"), false), rewrite("log", None, true)];
    statements[0].observed.rewrites.extend(harmless);
    assert!(budget.exceeded(&statements).is_empty());
    statements[0].observed.rewrites.push(rewrite("orders", None, false));
    assert_eq!(messages(budget, &statements), ["rewrites is 1 (orders), the budget is 0"]);
    let one = MigrationBudget { rewrites: Some(1), ..budget };
    assert!(one.exceeded(&statements).is_empty());
}

#[test]
fn broken_statements_of_the_suite_have_a_limit() {
    let budget = MigrationBudget { broken_statements: Some(0), ..MigrationBudget::default() };
    let mut statements = vec![ReportedStatement::default(), ReportedStatement::default()];
    assert!(budget.exceeded(&statements).is_empty());
    let broken = |statement: &str| BrokenStatement {
        statement: statement.to_owned(),
        tests: Vec::new(),
        error: "column \"a\" does not exist".to_owned(),
    };
    statements[1].breaks = vec![broken("SELECT a"), broken("SELECT a")];
    let over = budget.exceeded(&statements);
    assert_eq!((over[0].statement, over[0].message.as_str()), (1, "broken_statements is 1, the budget is 0"));
}

#[test]
fn exceptions_exempt_from_all_limits() {
    let budget =
        MigrationBudget { access_exclusive: SECOND, lock_timeout: SECOND, ..MigrationBudget::default() };
    let mut statements = vec![statement(0, LockMode::AccessExclusive, 5.0)];
    assert_eq!(budget.exceeded(&statements).len(), 2);
    statements[0].exception = Some("at night".to_owned());
    assert!(budget.exceeded(&statements).is_empty());
}

#[test]
fn unknown_sizes_are_said_where_they_matter() {
    let budget = MigrationBudget { access_exclusive: SECOND, ..MigrationBudget::default() };
    let mut statements = vec![statement(0, LockMode::AccessExclusive, 0.1)];
    assert_eq!(budget.unjudged(&statements, false), None);
    let scan = crate::TableScan { relation: name("orders"), scans: 1, rows: 5 };
    statements[0].observed.scans.push(scan);
    let sentence = budget.unjudged(&statements, false).unwrap();
    assert!(sentence.starts_with("`access_exclusive` cannot judge a statement"), "{sentence}");
    assert_eq!(budget.unjudged(&statements, true), None);
    assert_eq!(MigrationBudget::default().unjudged(&statements, false), None);
}

#[test]
fn refreshed_views_and_bookkeeping_do_not_count() {
    let budget = MigrationBudget { share: SECOND, lock_timeout: SECOND, ..MigrationBudget::default() };
    let mut refreshed = statement(0, LockMode::Exclusive, 5.0);
    refreshed.observed.locks[0].kind = RelationKind::MaterializedView;
    let mut emptied = statement(1, LockMode::AccessExclusive, 5.0);
    emptied.is_bookkeeping = true;
    assert_eq!(messages(budget, &[refreshed.clone(), emptied]), [""; 0]);
    refreshed.observed.locks[0].mode = LockMode::AccessExclusive;
    assert_eq!(messages(budget, &[refreshed]).len(), 2);
}

#[test]
fn unobserved_statements_exceed_limits() {
    let mut statement = ReportedStatement::default();
    statement.observed.sql = "VACUUM FULL orders".to_owned();
    statement.observed.unobserved = Some("permission denied".to_owned());
    let budget = MigrationBudget { share: SECOND, rewrites: Some(0), ..MigrationBudget::default() };
    let message = "share and rewrites cannot judge \"VACUUM FULL orders\", which the laboratory did not observe: \
                   permission denied";
    assert_eq!(messages(budget, std::slice::from_ref(&statement)), [message]);
    let others = MigrationBudget { broken_statements: Some(0), ..MigrationBudget::default() };
    assert_eq!(messages(others, std::slice::from_ref(&statement)), [""; 0]);
    statement.exception = Some("known".to_owned());
    assert_eq!(messages(budget, &[statement]), [""; 0]);
}
