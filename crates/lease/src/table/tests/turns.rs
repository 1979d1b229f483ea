//! Tests that clients and copies of several templates are served in turn.

use super::*;

/// Copies of two busy templates occupy all workers and pause until their clients have disconnected.
#[test]
fn paused_copy_yields_to_copy_of_another_template() {
    let mut example = Example::new();
    example.table.capacity = 100;
    for template in ["other", "third"] {
        example.table.add_source(Source::Template(template.to_owned()), false);
    }
    let create = |template: &str| TaskKind::Create(Source::Template(template.to_owned()));
    for template in ["app", "other"] {
        (0..30).for_each(|serial| {
            drop(example.session_on(template, &format!("{template}{serial}"), Duration::ZERO));
        });
        example.table.note_return(&Source::Template(template.to_owned()), example.now);
    }
    let making: Vec<_> = std::iter::from_fn(|| example.table.next_task(example.now).ok()).collect();
    let is_of_the_busy = |task: &Task| [create("app"), create("other")].contains(&task.kind);
    assert!(making.len() == 3 && making.iter().all(is_of_the_busy), "{making:?}");
    let gives_way = |example: &mut Example| {
        let gives_way = |task: &Task| example.table.gives_way(task.database, example.now);
        making.iter().map(gives_way).collect::<Vec<_>>()
    };
    assert_eq!(gives_way(&mut example), [false; 3], "all would wait");
    example.session_on("third", "third", Duration::ZERO);
    assert_eq!(gives_way(&mut example), [true, false, false]);
    assert_eq!(example.table.next_task(example.now).unwrap().kind, create("third"));
    example.finish(making[0].database, Outcome::PutOff);
    assert!(example.table.databases.get(making[0].database).is_none());
}

/// The leases of several databases end simultaneously. Before the second database is done, the first is already due
/// again.
#[test]
fn each_database_that_is_due_has_its_turn() {
    let mut example = Example::new();
    let leased = ["a", "b"].map(|name| leased(&mut example, name, terms("app", Isolation::Clone, 0)));
    for database in leased {
        example.raise(Event::Disconnected { database, leaving: false });
    }
    let failed = || Outcome::Failed(LeaseError::NoServers);
    for database in [leased[0], leased[1], leased[0], leased[1]] {
        assert_eq!(example.table.next_task(example.now), Ok(Task { database, kind: TaskKind::Unname }));
        example.finish(database, failed());
        example.now += LONGEST_RETRY;
    }
}

/// If a client has waited for its copy for a while, that copy comes first, however many leases end in the meantime.
#[test]
fn overdue_copy_precedes_resets_of_ended_leases() {
    let mut example = Example::new();
    example.table.add_source(Source::Template("other".to_owned()), false);
    let database = leased(&mut example, "a", terms("app", Isolation::Clone, 0));
    example.raise(Event::Disconnected { database, leaving: false });
    example.session_on("other", "b", Duration::ZERO);
    let unname = Task { database, kind: TaskKind::Unname };
    assert_eq!(example.table.next_task(example.now), Ok(unname));
    example.finish(database, Outcome::Done);
    example.now += Duration::from_millis(100);
    let create = TaskKind::Create(Source::Template("other".to_owned()));
    assert_eq!(example.table.next_task(example.now).unwrap().kind, create);
    assert_eq!(example.table.next_task(example.now).unwrap().kind, TaskKind::Reset { in_place: false });
}
