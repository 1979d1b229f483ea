mod common;

use common::open;
use tickets::Block;

#[tokio::test]
async fn the_list_keeps_its_order() {
    let office = open().await;
    let event = office.announce("Tosca", 1, 1, 1000).await.unwrap();
    assert_eq!(office.wait(event, "ann@example.org", 1).await.unwrap(), 1);
    assert_eq!(office.wait(event, "bob@example.org", 1).await.unwrap(), 2);
    assert_eq!(office.wait(event, "ann@example.org", 2).await.unwrap(), 1);
}

#[tokio::test]
async fn who_waited_longest_gets_what_comes_back() {
    let office = open().await;
    let event = office.announce("Tosca", 1, 2, 1000).await.unwrap();
    let order = office.sell(event, "ann@example.org", 2).await.unwrap();
    for (name, place) in [("bob", 1), ("eve", 2), ("joe", 3)] {
        assert_eq!(office.wait(event, &format!("{name}@example.org"), 1).await.unwrap(), place);
    }
    let served = office.cancel(order.id).await.unwrap();
    let blocks: Vec<Block> = served.iter().map(|order| order.block).collect();
    assert_eq!(blocks, [Block { row: 1, first: 1, seats: 1 }, Block { row: 1, first: 2, seats: 1 }]);
    assert_eq!(office.wait(event, "joe@example.org", 1).await.unwrap(), 1);
}

#[tokio::test]
async fn who_waits_for_more_than_there_is_lets_others_pass() {
    let office = open().await;
    let event = office.announce("Tosca", 1, 2, 1000).await.unwrap();
    let one = office.sell(event, "ann@example.org", 1).await.unwrap();
    let two = office.sell(event, "bob@example.org", 1).await.unwrap();
    office.wait(event, "family@example.org", 2).await.unwrap();
    office.wait(event, "eve@example.org", 1).await.unwrap();
    let served = office.cancel(one.id).await.unwrap();
    assert_eq!(served.len(), 1);
    assert_eq!(served[0].block, one.block);
    assert!(office.cancel(two.id).await.unwrap().is_empty());
    let served = office.cancel(served[0].id).await.unwrap();
    assert_eq!(served[0].block, Block { row: 1, first: 1, seats: 2 });
}

#[tokio::test]
async fn lists_of_events_are_their_own() {
    let office = open().await;
    let tosca = office.announce("Tosca", 1, 1, 1000).await.unwrap();
    let aida = office.announce("Aida", 1, 1, 1000).await.unwrap();
    office.wait(tosca, "ann@example.org", 1).await.unwrap();
    assert_eq!(office.wait(aida, "bob@example.org", 1).await.unwrap(), 1);
    let order = office.sell(aida, "eve@example.org", 1).await.unwrap();
    assert_eq!(office.cancel(order.id).await.unwrap().len(), 1);
}
