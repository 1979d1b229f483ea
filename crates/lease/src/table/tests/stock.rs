//! Tests how many copies the table makes ahead of clients and how many it learns to make.

use super::*;

const COPY: Duration = Duration::from_millis(8);
const LINGER: Duration = Duration::from_secs(5);

fn app() -> Source {
    Source::Template("app".to_owned())
}

/// Returns a table that has made its `copies` planned copies before the first client arrives.
fn stocked(copies: usize) -> Example {
    let mut example = Example::new();
    example.table.capacity = 1000;
    example.table.stock_up(&app(), copies, example.now);
    loop {
        match example.table.next_task(example.now) {
            Ok(Task { database, .. }) => {
                example.now += COPY;
                example.finish(database, Outcome::Fresh(Proof::new()));
            }
            Err(Some(later)) => example.now = later,
            Err(None) => return example,
        }
    }
}

/// Plays clients in sequence, each arriving 1 ms after the previous one got its database, while a single task makes
/// copies. Returns how many clients had to wait.
fn serve(example: &mut Example, clients: usize) -> usize {
    let (mut waited, mut making) = (0, None);
    for client in 0..clients {
        let mut left = Duration::from_millis(1);
        let mut actions = Vec::new();
        let mut has_come = false;
        loop {
            if making.is_none() {
                making = example.table.next_task(example.now).ok().map(|task| (task.database, COPY));
            }
            match &mut making {
                Some((database, rest)) if has_come || *rest <= left => {
                    example.now += *rest;
                    left = left.saturating_sub(*rest);
                    let database = *database;
                    making = None;
                    actions = example.finish(database, Outcome::Fresh(Proof::new()));
                }
                Some((_, rest)) => {
                    example.now += left;
                    *rest -= left;
                    left = Duration::ZERO;
                }
                None => example.now += std::mem::take(&mut left),
            }
            if !has_come && left.is_zero() {
                actions = example.session_on("app", &format!("name{client}"), LINGER).1;
                waited += usize::from(actions.is_empty());
                has_come = true;
            }
            if has_come && !actions.is_empty() {
                break;
            }
        }
        let database = task(&actions).database;
        example.finish(database, Outcome::Done);
        example.raise(Event::Disconnected { database, leaving: false });
    }
    waited
}

#[test]
fn planned_copies_are_made_before_first_client() {
    for (planned, made) in [(0, 2), (1, 2), (40, 40), (1000, 128)] {
        let example = stocked(planned);
        assert_eq!(example.table.ready(&app()), made, "{planned} planned");
        assert!(example.table.is_supplied());
    }
}

#[test]
fn planned_copies_leave_half_of_the_room() {
    let mut example = Example::new();
    example.table.capacity = 10;
    example.table.stock_up(&app(), 40, example.now);
    example.now += COPY * 100;
    while example.table.next_task(example.now).is_ok_and(|task| {
        example.finish(task.database, Outcome::Fresh(Proof::new()));
        true
    }) {}
    assert_eq!(example.table.ready(&app()), 5);
}

/// The second run makes in advance the copies that the first run's clients had to wait for and needs as many again.
#[test]
fn second_run_serves_fast_clients_without_delay() {
    let mut first = stocked(0);
    assert!(serve(&mut first, 100) > 50);
    let needed = first.table.needed_copies(&app());
    assert_eq!(needed, 100);
    let mut second = stocked(needed);
    assert_eq!(serve(&mut second, 100), 0);
    assert_eq!(second.table.needed_copies(&app()), needed);
}

#[test]
fn slow_clients_need_no_copies_ahead() {
    let mut example = stocked(0);
    for client in 0..50 {
        example.now += Duration::from_millis(50);
        let naming = task(&example.session_on("app", &format!("name{client}"), LINGER).1);
        example.finish(naming.database, Outcome::Done);
        while let Ok(Task { database, .. }) = example.table.next_task(example.now + COPY) {
            example.finish(database, Outcome::Fresh(Proof::new()));
        }
    }
    assert!(example.table.needed_copies(&app()) <= 2);
}

#[test]
fn recycled_databases_are_not_needed_ahead() {
    let mut example = stocked(0);
    for client in 0..50 {
        let actions = example.session_on("app", &format!("name{client}"), Duration::ZERO).1;
        let database = task(&actions).database;
        example.finish(database, Outcome::Done);
        let over = example.raise(Event::Disconnected { database, leaving: false });
        rest(&mut example, over);
    }
    assert!(example.table.needed_copies(&app()) <= 4, "{}", example.table.needed_copies(&app()));
}

/// A command that finishes soon leaves no unused copies to remove.
#[test]
fn planned_copies_wait_for_a_moment() {
    let mut example = Example::new();
    example.table.capacity = 100;
    example.table.stock_up(&app(), 40, example.now);
    for _ in 0..2 {
        example.work();
    }
    let begins_at = example.table.next_task(example.now).unwrap_err().expect("a time");
    assert_eq!(begins_at - example.now, Duration::from_millis(100));
    assert!(!example.table.is_supplied());
    example.now = begins_at;
    let making: Vec<_> = std::iter::from_fn(|| example.table.next_task(example.now).ok()).collect();
    assert_eq!(making.len(), 1, "the other processors are for the test runner");
}
