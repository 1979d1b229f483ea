//! Limits how many statements the box office runs. pgfresh counts the statements.

mod common;

use common::{open, open_with};
use pgfresh_test::Options;

#[tokio::test]
async fn the_report_is_one_query() {
    let office = open_with(&Options::default().record()).await;
    for title in ["Tosca", "Aida", "Carmen"] {
        office.announce(title, 2, 2, 1000).await.unwrap();
    }
    let counter = office.database.count_statements().unwrap();
    office.report().await.unwrap();
    let ran = counter.finish().unwrap();
    assert_eq!(ran.count, 1, "{ran}");
}

#[tokio::test]
async fn a_sale_has_a_budget() {
    let office = open_with(&Options::default().statements(12).n_plus_one(0)).await;
    let event = office.announce("Tosca", 10, 10, 1000).await.unwrap();
    // The box office sells all seats with one statement, not one after the other.
    assert_eq!(office.sell(event, "ann@example.org", 10).await.unwrap().block.seats, 10);
}

/// This test is slow on purpose: it runs a query for each row of another query. `pgfresh run --profile` finds it.
#[tokio::test]
async fn titles_one_after_the_other() {
    let office = open().await;
    for number in 0..12 {
        office.announce(&format!("Evening {number}"), 1, 1, 1000).await.unwrap();
    }
    let pool = sqlx::PgPool::connect(office.database.url()).await.unwrap();
    let events: Vec<i64> = sqlx::query_scalar("SELECT id FROM events").fetch_all(&pool).await.unwrap();
    for event in events {
        let title: String = sqlx::query_scalar("SELECT title FROM events WHERE id = $1")
            .bind(event)
            .fetch_one(&pool)
            .await
            .unwrap();
        assert!(title.starts_with("Evening"));
    }
}
