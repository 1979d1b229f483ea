//! Tests requests that wait for tasks that keep failing.

use super::*;

/// Ends the lease of `name`. Returns its database and the task that takes the name back.
fn ended(example: &mut Example, name: &str) -> Task {
    let (ticket, actions) = example.session(name, 0);
    assert!(actions.is_empty());
    let naming = task(&example.work().1);
    let database = granted(&example.finish(naming.database, Outcome::Done), ticket);
    example.raise(Event::Disconnected { database, leaving: false });
    let unname = example.table.next_task(example.now).unwrap();
    assert_eq!(unname, Task { database, kind: TaskKind::Unname });
    unname
}

/// Lets attempts of a task fail until the table has answered a request.
fn fail_until_answered(example: &mut Example, id: DatabaseId) -> Vec<Action> {
    loop {
        let mut actions = example.finish(id, Outcome::Failed(LeaseError::NoServers));
        while actions.is_empty() {
            match example.table.next_task(example.now) {
                Ok(task) if task.database == id => break,
                Ok(task) => drop(example.finish(task.database, Outcome::Fresh(Proof::new()))),
                Err(later) => {
                    example.now = later.unwrap();
                    actions = example.raise(Event::Tick);
                }
            }
        }
        if !actions.is_empty() {
            return actions;
        }
    }
}

fn assert_blocked(actions: &[Action], to: Ticket) {
    let is_blocked = matches!(
        actions,
        [Action::Answer { ticket, answer: Answer::Refused(LeaseError::Blocked { name, .. }) }] if *ticket == to && name == "one"
    );
    assert!(is_blocked, "{actions:?}");
}

#[test]
fn clients_get_the_reason_of_a_failing_cleanup() {
    let mut example = Example::new();
    let begun = example.now;
    let unname = ended(&mut example, "one");
    let (waiting, actions) = example.session("one", 0);
    assert!(actions.is_empty());
    assert_blocked(&fail_until_answered(&mut example, unname.database), waiting);
    assert!(example.now <= begun + Duration::from_secs(6), "{:?}", example.now - begun);
    // The next client doesn't wait for the end of the pause.
    let (later, actions) = example.session("one", 0);
    assert!(actions.is_empty());
    assert_eq!(example.table.next_task(example.now).ok(), Some(unname.clone()));
    assert_blocked(&example.finish(unname.database, Outcome::Failed(LeaseError::NoServers)), later);
    // Once the cleanup succeeds, the name works again.
    example.now += Duration::from_millis(1);
    drop(example.session("one", 0));
    assert_eq!(example.table.next_task(example.now).ok(), Some(unname.clone()));
    let actions = example.finish(unname.database, Outcome::Done);
    assert_eq!(rest(&mut example, actions).1.len(), 1);
}

#[test]
fn slow_attempts_of_a_failing_cleanup_are_bounded() {
    let mut example = Example::new();
    let unname = ended(&mut example, "one");
    drop(example.finish(unname.database, Outcome::Failed(LeaseError::NoServers)));
    let (ticket, _) = example.session("one", 0);
    assert_eq!(example.table.next_task(example.now).ok(), Some(unname));
    example.now += Duration::from_secs(29);
    assert!(example.raise(Event::Tick).is_empty());
    example.now += Duration::from_secs(1);
    assert_blocked(&example.raise(Event::Tick), ticket);
}
