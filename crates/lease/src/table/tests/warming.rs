//! Tests when the table lets ready databases get more backends.

use super::*;

fn app() -> Source {
    Source::Template("app".to_owned())
}

/// Returns a table with two ready databases.
fn ready() -> Example {
    let mut example = Example::new();
    example.table.capacity = 100;
    example.table.stock_up(&app(), 0, example.now);
    for _ in 0..2 {
        example.work();
    }
    example
}

fn warms_now(example: &Example) -> bool {
    example.table.warms_at(example.now).is_some_and(|time| time <= example.now)
}

#[test]
fn backends_wait_for_the_runners_head_start() {
    let mut example = ready();
    let begins_at = example.table.warms_at(example.now).expect("a time");
    assert_eq!(begins_at - example.now, Duration::from_millis(100));
    example.now = begins_at;
    assert!(warms_now(&example));
}

#[test]
fn planned_copies_come_before_backends() {
    let mut example = ready();
    example.table.stock_up(&app(), 10, example.now);
    example.now += Duration::from_secs(1);
    for _ in 2..10 {
        assert!(example.table.warms_at(example.now).is_none());
        example.work();
    }
    assert!(warms_now(&example));
}

#[test]
fn backends_start_while_no_client_comes() {
    let mut example = ready();
    example.now += Duration::from_secs(1);
    let (ticket, actions) = example.session("a", 5000);
    let naming = task(&actions).database;
    assert!(example.table.warms_at(example.now).is_none(), "a client waits for its database");
    granted(&example.finish(naming, Outcome::Done), ticket);
    let until = example.table.warms_at(example.now).expect("a time");
    assert!(until > example.now && until < example.now + Duration::from_millis(50));
    example.now = until;
    while example.table.next_task(example.now).is_ok_and(|task| {
        assert!(example.table.warms_at(example.now).is_none(), "a copy is being made");
        example.finish(task.database, Outcome::Fresh(Proof::new()));
        true
    }) {}
    assert!(warms_now(&example));
}

#[test]
fn one_database_warms_at_a_time() {
    let mut example = ready();
    example.now += Duration::from_secs(1);
    let first = example.table.may_be_warmed().next().unwrap();
    let task = example.table.begin_warming(first).unwrap();
    assert_eq!((task.database, task.kind), (first, TaskKind::WarmUp));
    assert!(example.table.warms_at(example.now).is_none());
    assert!(example.table.next_task(example.now).is_err(), "no copy replaces it");
    assert_eq!(example.table.ready(&app()), 1);
    example.finish(first, Outcome::Failed(LeaseError::NoServers));
    assert_eq!(example.table.ready(&app()), 2, "it is as fresh as before");
    example.table.begin_warming(first).unwrap();
    example.finish(first, Outcome::DroppedOrRenamed);
    assert_eq!(example.table.take_gone(), [first]);
}

#[test]
fn client_gets_warmed_database_once_ready() {
    let mut example = ready();
    example.now += Duration::from_secs(1);
    let ids: Vec<_> = example.table.may_be_warmed().collect();
    let (_, actions) = example.session("other", 5000);
    assert_eq!(task(&actions).database, ids[0]);
    example.finish(ids[0], Outcome::Done);
    example.table.begin_warming(ids[1]).unwrap();
    let (ticket, waits) = example.session("a", 5000);
    assert!(waits.is_empty() && example.table.is_awaited(ids[1]), "the task stops for it");
    let naming = task(&example.finish(ids[1], Outcome::Done));
    assert_eq!(granted(&example.finish(naming.database, Outcome::Done), ticket), ids[1]);
}

#[test]
fn warmed_database_of_removed_template_is_dropped() {
    let mut example = ready();
    let id = example.table.may_be_warmed().next().unwrap();
    example.table.begin_warming(id).unwrap();
    example.table.remove_source(&app(), example.now);
    example.finish(id, Outcome::Done);
    assert_eq!(example.table.ready(&app()), 0);
    let kinds: Vec<_> =
        std::iter::from_fn(|| Some(example.table.next_task(example.now).ok()?.kind)).collect();
    assert!(kinds.iter().all(|kind| *kind == TaskKind::Unname) && kinds.len() == 2, "{kinds:?}");
}
