//! Tests faults on a real server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use pgfresh_test::{Database, Moment, TestFault};
use sqlx::{Connection as _, Executor as _, PgConnection};

async fn connect(database: &Database) -> PgConnection {
    PgConnection::connect(database.url()).await.unwrap()
}

/// Commits a transaction on a new connection. An error is its SQLSTATE, or its text if it has no SQLSTATE.
async fn commit(database: &Database) -> Result<(), String> {
    let mut connection = connect(database).await;
    let run = async {
        let mut transaction = connection.begin().await?;
        transaction.execute("SELECT 1").await?;
        transaction.commit().await
    };
    let error: Result<(), sqlx::Error> = run.await;
    error.map_err(|error| match error.as_database_error().and_then(sqlx::error::DatabaseError::code) {
        Some(code) => code.into_owned(),
        None => error.to_string(),
    })
}

/// Runs a test and returns the message of its panic, or None if it passes.
fn failure(test: impl Future<Output = ()>) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test))).err()?;
    let constant = panic.downcast_ref::<&str>().copied();
    Some(constant.map_or_else(|| panic.downcast_ref::<String>().unwrap().clone(), str::to_owned))
}

#[tokio::test]
async fn each_fault_fires_and_is_listed() {
    let database = Database::fresh();
    database.fault(TestFault::error("40001").at(Moment::Commit)).unwrap();
    database.fault(TestFault::connection_lost().at(Moment::AfterCommit)).unwrap();
    database.fault(TestFault::error("57014").statement("SELECT … 1").nth(3).times(2)).unwrap();
    assert_eq!(commit(&database).await.unwrap_err(), "40001");
    let lost = commit(&database).await.unwrap_err();
    assert!(lost.len() > 5, "{lost}");
    assert_eq!(commit(&database).await.unwrap_err(), "57014");
    let faults = database.faults().unwrap();
    let seen: Vec<_> = faults
        .iter()
        .map(|fault| (fault.text.as_str(), fault.times, fault.fired, fault.candidates))
        .collect();
    let expected = [
        ("40001 at commit", 1, 1, 2),
        ("connection lost after commit", 1, 1, 1),
        ("57014 before statement \"SELECT … 1\", number 3, 2 times", 2, 1, 3),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        (&faults[0].statements, &faults[2].statements),
        (&vec!["COMMIT".into()], &vec!["SELECT 1".into()])
    );
}

#[test]
fn drop_panics_for_unfired_fault() {
    let failed = failure(async {
        let database = Database::fresh();
        database.fault(TestFault::delay(Duration::from_secs(2)).statement("UPDATE")).unwrap();
    });
    let expected = "fault did not fire: delay of 2000 ms before statement \"UPDATE\" (no matching statement)";
    assert_eq!(failed.as_deref(), Some(expected));
    let failed = failure(async {
        let database = Database::fresh();
        database.fault(TestFault::bandwidth("10kB")).unwrap();
        panic!("its own reason");
    });
    assert_eq!(failed.as_deref(), Some("its own reason"));
}

#[test]
fn drop_panics_for_unfired_fault_of_sql() {
    let failed = failure(async {
        let database = Database::fresh();
        let request = r#"SET pgfresh.fault = '{"error": "57014", "statement": "never"}'"#;
        connect(&database).await.execute(request).await.unwrap();
    });
    let expected = "fault did not fire: 57014 before statement \"never\" (no matching statement)";
    assert_eq!(failed.as_deref(), Some(expected));
}

#[test]
fn reset_returns_error_for_unfired_fault() {
    let failed = failure(async {
        let database = Database::fresh();
        database
            .fault(TestFault::error("57P03").at(Moment::Connect).duration(Duration::from_millis(1)))
            .unwrap();
        let error = database.reset().unwrap_err();
        assert_eq!(error.message, "fault did not fire: 57P03 at connect (no matching connection)");
        database.reset().unwrap();
        assert_eq!(database.faults().unwrap(), []);
    });
    assert_eq!(failed, None);
}

#[test]
fn wrong_fault_is_error() {
    let database = Database::fresh();
    let error = database.fault(TestFault::error("4001")).unwrap_err();
    assert_eq!(error.remedy.as_deref(), Some("correct_value"), "{error}");
}
