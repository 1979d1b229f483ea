//! Tests what the table learns about names whose databases linger after the last session.

use super::*;
use crate::table::linger::LingerUse;

const LINGER: Duration = Duration::from_secs(5);

fn example() -> Example {
    let mut example = Example::new();
    example.table.capacity = 100;
    example.table.linger_watch.default = LINGER;
    example
}

/// Plays a session of a name that waits 8 ms for its copy. Returns the database, whose session is still open.
fn begin(example: &mut Example, name: &str, linger: Duration) -> DatabaseId {
    let (ticket, waits) = example.session_on("app", name, linger);
    assert!(waits.is_empty());
    let making = example.table.next_task(example.now).unwrap().database;
    example.now += Duration::from_millis(8);
    let naming = task(&example.finish(making, Outcome::Fresh(Proof::new())));
    granted(&example.finish(naming.database, Outcome::Done), ticket)
}

fn seen(example: &Example) -> (u64, bool, u128) {
    let LingerUse { names, is_used, waited } = example.table.linger_watch.seen;
    (names, is_used, waited.as_millis())
}

#[test]
fn waits_count_while_earlier_databases_linger() {
    let mut example = example();
    for (number, waited) in [(1, 0), (2, 8), (3, 16)] {
        let database = begin(&mut example, &format!("name{number}"), LINGER);
        assert_eq!(seen(&example), (number, false, waited));
        example.raise(Event::Disconnected { database, leaving: false });
    }
}

#[test]
fn waits_count_not_while_earlier_sessions_last() {
    let mut example = example();
    for number in 1..=3 {
        begin(&mut example, &format!("name{number}"), LINGER);
    }
    assert_eq!(seen(&example), (3, false, 0));
}

#[test]
fn leases_with_their_own_terms_count_not() {
    let mut example = example();
    for (name, linger) in [("a", LINGER * 2), ("b", Duration::ZERO)] {
        let database = begin(&mut example, name, linger);
        example.raise(Event::Disconnected { database, leaving: true });
    }
    assert_eq!(seen(&example), (0, false, 0));
}

#[test]
fn requests_after_the_last_session_use_the_linger() {
    for leaves in [false, true] {
        for want in [None, Some(Want::Release), Some(Want::Reset { close: true })] {
            let mut example = example();
            let database = begin(&mut example, "a", LINGER);
            example.session_on("app", "a", LINGER);
            example.raise(Event::Leaving { database });
            assert!(!example.table.linger_watch.seen.is_used, "another session is open");
            example.raise(Event::Leaving { database });
            if !leaves {
                (0..2).for_each(|_| drop(example.raise(Event::Disconnected { database, leaving: true })));
            }
            match want {
                Some(want) => drop(example.ask("a", want)),
                None => drop(example.session_on("app", "a", LINGER)),
            }
            assert!(example.table.linger_watch.seen.is_used);
        }
    }
}
