mod common;

use std::sync::Arc;

use common::open;
use tickets::{Block, Line, Refusal};
use tokio::task::JoinSet;

#[tokio::test]
async fn events_are_numbered_from_one() {
    assert_eq!(open().await.announce("Tosca", 1, 1, 1000).await.unwrap(), 1);
}

#[tokio::test]
async fn the_best_seats_go_first_and_cost_more() {
    let office = open().await;
    let event = office.announce("Tosca", 3, 4, 1000).await.unwrap();
    let order = office.sell(event, "ann@example.org", 2).await.unwrap();
    assert_eq!((order.block, order.cents), (Block { row: 1, first: 1, seats: 2 }, 2400));
}

#[tokio::test]
async fn seats_are_side_by_side() {
    let office = open().await;
    let event = office.announce("Tosca", 2, 3, 1000).await.unwrap();
    office.sell(event, "ann@example.org", 2).await.unwrap();
    let order = office.sell(event, "bob@example.org", 2).await.unwrap();
    assert_eq!(order.block, Block { row: 2, first: 1, seats: 2 });
    let order = office.sell(event, "eve@example.org", 1).await.unwrap();
    assert_eq!(order.block, Block { row: 1, first: 3, seats: 1 });
    let refusal = office.sell(event, "joe@example.org", 2).await.unwrap_err();
    assert!(matches!(refusal, Refusal::SoldOut), "{refusal}");
}

#[tokio::test]
async fn a_gap_is_filled_again() {
    let office = open().await;
    let event = office.announce("Tosca", 1, 5, 1000).await.unwrap();
    office.sell(event, "ann@example.org", 1).await.unwrap();
    let middle = office.sell(event, "bob@example.org", 2).await.unwrap();
    office.sell(event, "eve@example.org", 2).await.unwrap();
    assert!(office.cancel(middle.id).await.unwrap().is_empty());
    assert_eq!(office.sell(event, "joe@example.org", 2).await.unwrap().block, middle.block);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_seat_is_sold_twice_to_a_crowd() {
    let office = Arc::new(open().await);
    let event = office.announce("Tosca", 2, 6, 1000).await.unwrap();
    let mut crowd = JoinSet::new();
    for n in 0..16 {
        let office = Arc::clone(&office);
        crowd.spawn(async move { office.sell(event, &format!("{n}@example.org"), 2).await });
    }
    let results = crowd.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 6);
    assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(Refusal::SoldOut))), "{results:?}");
    let sold = office.report().await.unwrap();
    assert_eq!(sold, [Line { title: "Tosca".to_owned(), seats: 12, sold: 12, cents: 12_600 }]);
}

#[tokio::test]
async fn the_report_has_what_did_not_sell_too() {
    let office = open().await;
    let tosca = office.announce("Tosca", 1, 2, 500).await.unwrap();
    office.announce("Aida", 1, 3, 500).await.unwrap();
    office.sell(tosca, "ann@example.org", 1).await.unwrap();
    let line = |title: &str, seats, sold, cents| Line { title: title.to_owned(), seats, sold, cents };
    assert_eq!(office.report().await.unwrap(), [line("Aida", 3, 0, 0), line("Tosca", 2, 1, 500)]);
}

#[tokio::test]
async fn what_is_not_there_cannot_be_had() {
    let office = open().await;
    assert!(matches!(office.sell(7, "ann@example.org", 1).await, Err(Refusal::Unknown)));
    assert!(matches!(office.cancel(7).await, Err(Refusal::Unknown)));
}

#[tokio::test]
async fn a_bad_address_buys_nothing() {
    let office = open().await;
    let event = office.announce("Tosca", 1, 1, 1000).await.unwrap();
    let refusal = office.sell(event, "nobody", 1).await.unwrap_err();
    assert!(refusal.to_string().contains("orders_email_check"), "{refusal}");
    office.sell(event, "ann@example.org", 1).await.unwrap();
}
