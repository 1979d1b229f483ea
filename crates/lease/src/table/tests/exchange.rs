//! Tests when a reset exchanges a lease's database for a different one and when it resets the database in place.

use super::*;

impl Example {
    /// Returns an example with two ready databases and a lease called `name` whose database has no sessions.
    fn with_lease_and_two_ready(exchanges: bool) -> (Self, DatabaseId) {
        let mut example = Self::new();
        example.table.exchanges = exchanges;
        let used = leased(&mut example, "name", terms("app", Isolation::Clone, 5000));
        while example.table.ready(&app()) < 2 {
            // The table makes no copies while a client is starting.
            example.now += Duration::from_millis(5);
            example.work();
        }
        example.raise(Event::Disconnected { database: used, leaving: false });
        (example, used)
    }

    /// Requests a reset and returns its first task.
    fn reset(&mut self) -> Task {
        task(&self.ask("name", Want::Reset { close: false }).1)
    }
}

fn app() -> Source {
    Source::Template("app".to_owned())
}

const IN_PLACE: TaskKind = TaskKind::Reset { in_place: true };

#[test]
fn reset_gives_lease_another_ready_database() {
    let (mut example, used) = Example::with_lease_and_two_ready(true);
    assert_eq!(example.reset(), Task { database: used, kind: TaskKind::Unname });
    let naming = task(&example.finish(used, Outcome::Done));
    assert!(matches!(&naming.kind, TaskKind::Name { to, .. } if to == "name") && naming.database != used);
    let answers = example.finish(naming.database, Outcome::Done);
    let is_done = |action: &Action| matches!(action, Action::Answer { answer: Answer::Done(Some(id)), .. } if *id == naming.database);
    assert!(matches!(&answers[..], [action] if is_done(action)), "{answers:?}");
    assert_eq!(example.table.next_task(example.now).unwrap().kind, TaskKind::Reset { in_place: false });
}

#[test]
fn resets_beyond_the_spare_databases_stay_in_place() {
    let (mut example, used) = Example::with_lease_and_two_ready(true);
    example.reset();
    let naming = task(&example.finish(used, Outcome::Done));
    example.finish(naming.database, Outcome::Done);
    // One database is ready, and one has yet to be reset.
    assert_eq!(example.reset(), Task { database: naming.database, kind: IN_PLACE });
    example.finish(naming.database, Outcome::Fresh(Proof::new()));
    assert_eq!(example.work().0, TaskKind::Reset { in_place: false });
    assert_eq!(example.reset().kind, TaskKind::Unname);
}

#[test]
fn resets_stay_in_place_where_transactions_are_prepared() {
    let (mut example, used) = Example::with_lease_and_two_ready(false);
    assert_eq!(example.reset(), Task { database: used, kind: IN_PLACE });
}
