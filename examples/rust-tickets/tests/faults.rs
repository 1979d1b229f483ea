//! The database misbehaves while a customer joins the waiting list, but the customer doesn't notice.

mod common;

use common::open;
use pgfresh_test::{Moment, TestFault};
use tickets::Refusal;

async fn survives(fault: TestFault) {
    let office = open().await;
    let event = office.announce("Tosca", 1, 1, 1000).await.unwrap();
    office.database.fault(fault).unwrap();
    assert_eq!(office.wait(event, "ann@example.org", 1).await.unwrap(), 1);
    assert_eq!(office.wait(event, "bob@example.org", 1).await.unwrap(), 2);
}

#[tokio::test]
async fn serialization_failures_are_repeated() {
    survives(TestFault::error("40001").at(Moment::Commit).times(2)).await;
}

#[tokio::test]
async fn a_lost_connection_is_replaced() {
    survives(TestFault::connection_lost().statement("WITH mine AS ( INSERT INTO waiting")).await;
}

#[tokio::test]
async fn a_lost_commit_puts_nobody_on_the_list_twice() {
    survives(TestFault::connection_lost().at(Moment::AfterCommit)).await;
}

#[tokio::test]
async fn three_deadlocks_are_too_many() {
    let office = open().await;
    let event = office.announce("Tosca", 1, 1, 1000).await.unwrap();
    office.database.fault(TestFault::error("40P01").statement("WITH mine").times(10)).unwrap();
    let refusal = office.wait(event, "ann@example.org", 1).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Database(_)), "{refusal}");
    assert_eq!(office.database.faults().unwrap()[0].fired, 3);
}
