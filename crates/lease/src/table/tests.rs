//! Tests the table with examples.

mod exchange;
mod line;
mod linger;
mod retries;
mod stock;
mod turns;

use std::time::{Duration, Instant};

use super::work::WORKERS;
use super::*;

const PARAMS: ParamsId = ParamsId(1);

/// A table with fake tasks. Each test determines when and how a task finishes.
struct Example {
    table: LeaseTable,
    now: Instant,
    tickets: u64,
}

impl Example {
    fn new() -> Self {
        let mut table = LeaseTable::new(4);
        table.add_source(Source::Template("app".to_owned()), true);
        Self { table, now: Instant::now(), tickets: 0 }
    }

    fn ask(&mut self, name: &str, want: Want) -> (Ticket, Vec<Action>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        (ticket, self.raise(Event::Request { ticket, name: name.to_owned(), want }))
    }

    fn session(&mut self, name: &str, linger: u64) -> (Ticket, Vec<Action>) {
        self.session_on("app", name, Duration::from_millis(linger))
    }

    fn session_on(&mut self, template: &str, name: &str, linger: Duration) -> (Ticket, Vec<Action>) {
        let terms =
            Terms { template: template.to_owned(), isolation: Isolation::Clone, linger, retained: false };
        self.ask(name, Want::Session { params: PARAMS, terms, explicit: Explicit::default(), reset: false })
    }

    fn raise(&mut self, event: Event) -> Vec<Action> {
        self.table.handle(event, self.now)
    }

    fn finish(&mut self, database: DatabaseId, outcome: Outcome) -> Vec<Action> {
        self.raise(Event::Finished { database, outcome })
    }

    /// Runs the next background task successfully.
    fn work(&mut self) -> (TaskKind, Vec<Action>) {
        let Task { database, kind } = self.table.next_task(self.now).unwrap();
        let outcome = match kind {
            TaskKind::Create(_) | TaskKind::Reset { .. } => Outcome::Fresh(Proof::new()),
            _ => Outcome::Done,
        };
        (kind, self.finish(database, outcome))
    }
}

/// Runs all client tasks and background tasks, successfully, until none is due. Returns the background tasks and the
/// databases received by clients.
fn rest(example: &mut Example, mut actions: Vec<Action>) -> (Vec<TaskKind>, Vec<DatabaseId>) {
    let (mut done, mut granted, begun) = (Vec::new(), Vec::new(), example.now);
    loop {
        while let Some(action) = actions.pop() {
            match action {
                Action::Run { task, .. } => actions.extend(example.finish(task.database, Outcome::Done)),
                Action::Answer { answer: Answer::Session(id), .. } => granted.push(id),
                Action::Answer { answer, .. } => panic!("a session was expected, not {answer:?}"),
            }
        }
        match example.table.next_task(example.now) {
            Ok(Task { database, kind }) => {
                let outcome = match kind {
                    TaskKind::Create(_) | TaskKind::Reset { .. } => Outcome::Fresh(Proof::new()),
                    _ => Outcome::Done,
                };
                done.push(kind);
                actions = example.finish(database, outcome);
            }
            Err(Some(later)) if later < begun + Duration::from_secs(1) => {
                example.now = later;
                actions = example.raise(Event::Tick);
            }
            Err(_) => return (done, granted),
        }
    }
}

/// Returns the task started by the table for a client.
fn task(actions: &[Action]) -> Task {
    match actions {
        [Action::Run { task, .. }] => task.clone(),
        other => panic!("one task was expected, not {other:?}"),
    }
}

/// Returns the database where a client may open its session.
fn granted(actions: &[Action], to: Ticket) -> DatabaseId {
    match actions {
        [Action::Answer { ticket, answer: Answer::Session(id) }] if *ticket == to => *id,
        other => panic!("a session for {to:?} was expected, not {other:?}"),
    }
}

#[test]
fn clients_get_ready_databases_in_order_of_arrival() {
    let mut example = Example::new();
    let (one, waits) = example.session("one", 0);
    let (two, waits_too) = example.session("two", 0);
    assert!(waits.is_empty() && waits_too.is_empty());
    for ticket in [one, two] {
        let naming = task(&example.work().1);
        let granted = granted(&example.finish(naming.database, Outcome::Done), ticket);
        assert_eq!(granted, naming.database);
    }
}

/// A database usually comes back soon after its client has disconnected. But since a statement may still be running in
/// it, the table counts on such a database only for a short time.
#[test]
fn copy_is_briefly_delayed_for_returning_databases() {
    let mut example = Example::new();
    for _ in 0..2 {
        example.work();
    }
    for name in ["one", "two"] {
        let (ticket, naming) = example.session(name, 0);
        let naming = task(&naming);
        let database = granted(&example.finish(naming.database, Outcome::Done), ticket);
        example.raise(Event::Leaving { database });
    }
    let (_, waits) = example.session("three", 0);
    assert!(waits.is_empty());
    let later = example.table.next_task(example.now).unwrap_err().expect("a time");
    assert!(later < example.now + Duration::from_millis(10), "{:?}", later - example.now);
    example.now = later;
    assert!(matches!(example.table.next_task(example.now), Ok(Task { kind: TaskKind::Create(_), .. })));
}

/// While clients use the only database one after another, the task creating the second one pauses. It continues when
/// clients pause, return the database late, or wait for the second one.
#[test]
fn copy_pauses_for_clients_not_waiting_for_it() {
    let served = |linger| {
        let mut example = Example::new();
        example.work();
        let copy = example.table.next_task(example.now).unwrap().database;
        assert_eq!(example.table.pause(copy, example.now), None, "no client has come");
        let (ticket, naming) = example.session("one", linger);
        let database = granted(&example.finish(task(&naming).database, Outcome::Done), ticket);
        (example, copy, database)
    };
    let (example, copy, _) = served(60_000);
    assert_eq!(example.table.pause(copy, example.now), None, "the database will not be back soon");

    let (mut example, copy, database) = served(0);
    let pause = example.table.pause(copy, example.now).expect("the client is quicker alone");
    assert_eq!(example.table.pause(copy, example.now + pause), None, "it is slow");
    example.raise(Event::Leaving { database });
    assert!(example.session("two", 0).1.is_empty() && example.table.take_shortage());
    assert!(example.table.pause(copy, example.now).is_some(), "the next waits for what comes back");
    example.session("three", 0);
    assert_eq!(example.table.pause(copy, example.now), None, "this one waits for the copy");
}

/// As long as databases pass from client to client, each client that finds no room gets its turn. When databases stop
/// moving, the table refuses the waiting clients.
#[test]
fn client_without_room_waits_while_databases_return() {
    let mut example = Example::new();
    let (_, first) = rest(&mut example, Vec::new());
    assert!(first.is_empty());
    let ask = |example: &mut Example, name: &str| example.session(name, 0).1;
    let actions = ["a", "b", "c", "d"].into_iter().flat_map(|name| ask(&mut example, name)).collect();
    let (_, mut held) = rest(&mut example, actions);
    assert_eq!(held.len(), 4, "as many as there is room for");
    for waiting in ["e", "f"] {
        assert!(ask(&mut example, waiting).is_empty(), "it waits");
    }
    example.now += Duration::from_millis(900);
    let given_at = example.now;
    let (_, given) = {
        let database = held.pop().unwrap();
        let actions = example.raise(Event::Disconnected { database, leaving: false });
        rest(&mut example, actions)
    };
    assert_eq!(given.len(), 1, "first come, first served");
    // The other client's wait restarts at that time.
    let later = loop {
        assert!(example.raise(Event::Tick).is_empty());
        let later = example.table.next_task(example.now).unwrap_err().unwrap();
        if later >= given_at + Duration::from_secs(1) {
            break later;
        }
        example.now = later;
    };
    assert_eq!(later, given_at + Duration::from_secs(1));
    example.now = later;
    let raised = example.raise(Event::Tick);
    assert!(
        matches!(
            &raised[..],
            [Action::Answer {
                answer: Answer::Refused(LeaseError::Full { leased: 4, kept: 0, most: 4 }),
                ..
            }]
        ),
        "{raised:?}"
    );
    // If no database is returned, a client waits for a second.
    assert!(ask(&mut example, "g").is_empty());
}

/// When a lease starts to linger, for however long, a client waiting for room receives its database.
#[test]
fn lingering_lease_makes_room_for_waiting_client() {
    let mut example = Example::new();
    let ask = |example: &mut Example, name: &str| example.session(name, 60_000).1;
    let actions = ["a", "b", "c", "d"].into_iter().flat_map(|name| ask(&mut example, name)).collect();
    let (_, mut held) = rest(&mut example, actions);
    assert!(held.len() == 4 && ask(&mut example, "e").is_empty());
    let actions = example.raise(Event::Disconnected { database: held.pop().unwrap(), leaving: false });
    let before = example.now;
    let (_, given) = rest(&mut example, actions);
    assert_eq!((given.len(), example.now), (1, before));
}

/// The oldest sessionless database kept for a failed test makes room for a waiting client.
#[test]
fn oldest_kept_database_makes_room_for_waiting_client() {
    let mut example = Example::new();
    let names = ["a", "b", "c", "d"];
    for name in names {
        let (_, actions) = example.session(name, 60_000);
        let (_, held) = rest(&mut example, actions);
        let &[database] = &held[..] else { panic!("{held:?}") };
        example.raise(Event::Disconnected { database, leaving: false });
        example.now += Duration::from_millis(1);
        let (_, actions) = example.ask(name, Want::Keep { to: format!("{name}_failed") });
        example.finish(task(&actions).database, Outcome::Done);
    }
    let kept = |example: &Example| names.map(|name| example.table.is_kept(&format!("{name}_failed")));
    let reading = example.session("a_failed", 60_000);
    rest(&mut example, reading.1);
    assert_eq!((kept(&example), example.table.is_kept("a")), ([true; 4], false));
    let (_, actions) = example.session("e", 60_000);
    let (_, given) = rest(&mut example, actions);
    assert_eq!((given.len(), kept(&example)), (1, [true, false, true, true]));
}

/// If databases have been returned often, the table expects more, until they stop coming.
#[test]
fn databases_are_expected_soon_after_repeated_returns() {
    let mut example = Example::new();
    example.work();
    let copy = example.table.next_task(example.now).unwrap().database;
    assert!(!example.table.come_back_soon(copy, example.now), "none has come back");
    for lease in 0..20 {
        let (ticket, naming) = example.session(&format!("lease {lease}"), 0);
        let database = granted(&example.finish(task(&naming).database, Outcome::Done), ticket);
        example.now += Duration::from_millis(2);
        example.raise(Event::Disconnected { database, leaving: false });
        example.work();
        example.work();
    }
    for (waiting, soon) in [(1, true), (30, true), (100, false)] {
        while example.tickets < 20 + waiting {
            example.session(&format!("waits {}", example.tickets), 0);
        }
        assert_eq!(example.table.come_back_soon(copy, example.now), soon, "{waiting}");
    }
    let mut example = Example::new();
    example.work();
    let copy = example.table.next_task(example.now).unwrap().database;
    example.session("kept", 60_000);
    example.session("waits", 60_000);
    assert!(!example.table.come_back_soon(copy, example.now), "only the copy can serve it");
}

/// In this test, another template's databases pass from client to client in the meantime.
#[test]
fn client_does_not_wait_for_another_templates_databases() {
    let mut example = Example::new();
    example.table.capacity = 8;
    example.table.add_source(Source::Template("other".to_owned()), true);
    for _ in 0..4 {
        example.work();
    }
    for name in ["one", "two"] {
        let (ticket, naming) = example.session_on("other", name, Duration::ZERO);
        let naming = task(&naming);
        let database = granted(&example.finish(naming.database, Outcome::Done), ticket);
        example.raise(Event::Leaving { database });
    }
    assert!(example.session_on("other", "three", Duration::ZERO).1.is_empty());
    for waited in 0..10 {
        let (ticket, naming) = example.session(&format!("app{waited}"), 0);
        let database = granted(&example.finish(task(&naming).database, Outcome::Done), ticket);
        example.raise(Event::Disconnected { database, leaving: false });
        while let Ok(Task { database, kind }) = example.table.next_task(example.now) {
            let outcome = match kind {
                TaskKind::Create(Source::Template(of)) if of == "other" => return,
                TaskKind::Unname => Outcome::Done,
                _ => Outcome::Fresh(Proof::new()),
            };
            example.finish(database, outcome);
        }
        example.now += Duration::from_millis(1);
    }
    panic!("no copy is made for the client that waits");
}

#[test]
fn abandoned_lease_is_joined_only_while_it_lingers() {
    for (linger, joined) in [(0, false), (5000, true)] {
        let mut example = Example::new();
        let (first, _) = example.session("name", linger);
        let naming = task(&example.work().1);
        let database = granted(&example.finish(naming.database, Outcome::Done), first);
        example.raise(Event::Leaving { database });
        let (second, answer) = example.session("name", linger);
        if joined {
            assert_eq!(granted(&answer, second), database);
            continue;
        }
        assert!(answer.is_empty(), "it waits: {answer:?}");
        example.raise(Event::Disconnected { database, leaving: true });
        assert_eq!(example.work().0, TaskKind::Unname);
    }
}

#[test]
fn name_stays_taken_until_unnaming_succeeds() {
    let mut example = Example::new();
    let (first, _) = example.session("name", 0);
    let naming = task(&example.work().1);
    let database = granted(&example.finish(naming.database, Outcome::Done), first);
    example.raise(Event::Disconnected { database, leaving: false });
    assert_eq!(example.table.next_task(example.now).unwrap().kind, TaskKind::Unname);
    let failed = Outcome::Failed(LeaseError::NotLeased("name".to_owned()));
    assert!(example.finish(database, failed).is_empty());
    let (_, answer) = example.session("name", 0);
    assert!(answer.is_empty(), "the name is still that database's: {answer:?}");
    example.now += RETRY;
    while example.table.database_named("name") == Some(database) {
        example.work();
    }
    assert_eq!(example.table.failures, 1);
}

#[test]
fn doubtful_reset_replaces_database_before_it_answers() {
    let mut example = Example::new();
    let (first, _) = example.session("name", 5000);
    let naming = task(&example.work().1);
    let database = granted(&example.finish(naming.database, Outcome::Done), first);
    example.work();
    example.raise(Event::Disconnected { database, leaving: false });
    let (reset, actions) = example.ask("name", Want::Reset { close: false });
    assert_eq!(task(&actions).kind, TaskKind::Reset { in_place: true });
    assert!(example.finish(database, Outcome::Doubt("chance")).is_empty());
    let mut actions = example.work().1;
    let naming = task(&actions);
    assert_ne!(naming.database, database);
    actions = example.finish(naming.database, Outcome::Done);
    let is_done = |action: &Action| matches!(action, Action::Answer { ticket, answer: Answer::Done(Some(id)) } if *ticket == reset && *id == naming.database);
    assert!(matches!(&actions[..], [action] if is_done(action)), "{actions:?}");
    assert_eq!(example.table.dropped["chance"], 1);
}

#[test]
fn sessions_close_before_database_gets_another_lease() {
    let mut example = Example::new();
    let (first, _) = example.session("orders", 0);
    let naming = task(&example.work().1);
    let database = granted(&example.finish(naming.database, Outcome::Done), first);

    let (_, actions) = example.ask("orders", Want::Release);
    assert_eq!(task(&actions), Task { database, kind: TaskKind::Close });
    // The client was closing its connection anyway, so its backend exits before pgfresh terminates it.
    assert!(example.raise(Event::Leaving { database }).is_empty());
    assert!(example.raise(Event::Disconnected { database, leaving: true }).is_empty());
    let next = example.table.next_task(example.now);
    assert!(!next.is_ok_and(|task| task.database == database), "the lease has ended");

    assert_eq!(task(&example.raise(Event::Closed { database })).kind, TaskKind::Unname);
}

#[test]
fn lease_can_end_during_maximum_copies_and_drops() {
    let mut example = Example::new();
    let (first, _) = example.session("first", 0);
    let naming = task(&example.work().1);
    let database = granted(&example.finish(naming.database, Outcome::Done), first);
    let mut long = 0;
    for serial in 0..9 {
        example.session(&format!("other {serial}"), 0);
        long += usize::from(example.table.next_task(example.now).is_ok());
    }
    assert!((1..WORKERS).contains(&long), "{long} tasks that take long, for {WORKERS} workers");
    example.raise(Event::Disconnected { database, leaving: false });
    assert_eq!(example.table.next_task(example.now).unwrap().kind, TaskKind::Unname);
}

fn leased(example: &mut Example, name: &str, terms: Terms) -> DatabaseId {
    let (ticket, mut actions) = example
        .ask(name, Want::Session { params: PARAMS, terms, explicit: Explicit::default(), reset: false });
    while actions.is_empty() {
        actions = example.work().1;
    }
    let naming = task(&actions);
    granted(&example.finish(naming.database, Outcome::Done), ticket)
}

fn terms(template: &str, isolation: Isolation, linger: u64) -> Terms {
    let linger = Duration::from_millis(linger);
    Terms { template: template.to_owned(), isolation, linger, retained: false }
}

#[test]
fn rolled_back_database_survives_its_spent_session() {
    let mut example = Example::new();
    let database = leased(&mut example, "name", terms("app", Isolation::Rollback, 0));
    example.raise(Event::Disconnected { database, leaving: false });
    let reset = TaskKind::Reset { in_place: false };
    assert_eq!(example.table.next_task(example.now), Ok(Task { database, kind: reset.clone() }));
    assert!(example.finish(database, Outcome::SessionSpent).is_empty());
    assert_eq!(example.table.next_task(example.now), Ok(Task { database, kind: TaskKind::Unname }));
    example.finish(database, Outcome::Done);
    assert_eq!(example.table.next_task(example.now), Ok(Task { database, kind: reset }));
    example.finish(database, Outcome::Fresh(Proof::new()));
    assert!(example.table.dropped.is_empty(), "{:?}", example.table.dropped);
    assert!(example.table.ready(&Source::Template("app".to_owned())) > 0);
}

#[test]
fn copy_after_doubtful_copy_is_delayed() {
    let mut example = Example::new();
    example.session("name", 0);
    let Task { database, .. } = example.table.next_task(example.now).unwrap();
    example.finish(database, Outcome::Doubt("chance"));
    assert_eq!(example.work().0, TaskKind::Drop);
    assert_eq!(example.table.next_task(example.now), Err(Some(example.now + RETRY)));
    example.now += RETRY;
    assert!(matches!(example.work().0, TaskKind::Create(_)));
}

#[test]
fn removing_template_keeps_names_moved_to_another_template() {
    let mut example = Example::new();
    let app = Source::Template("app".to_owned());
    example.table.add_source(Source::Template("other".to_owned()), false);
    example.session("first", 0);
    example.session("name", 0);
    example.now += Duration::from_mins(10);
    example.raise(Event::Tick);
    // Both names have waited in vain. Now one gets a new request, and the other one for a different template.
    example.session("first", 0);
    let terms = terms("other", Isolation::Clone, 5000);
    let (ticket, _) = example
        .ask("name", Want::Session { params: PARAMS, terms, explicit: Explicit::default(), reset: false });
    let other = TaskKind::Create(Source::Template("other".to_owned()));
    let is_other = |task: &Task| task.kind == other;
    let making = std::iter::repeat_with(|| example.table.next_task(example.now).unwrap()).find(is_other);
    let naming = task(&example.finish(making.unwrap().database, Outcome::Fresh(Proof::new())));
    let database = granted(&example.finish(naming.database, Outcome::Done), ticket);
    example.table.remove_source(&app, example.now);
    assert_eq!(example.table.database_named("name"), Some(database));
}

#[test]
fn request_for_name_being_kept_is_answered() {
    let mut example = Example::new();
    let database = leased(&mut example, "name", terms("app", Isolation::Clone, 5000));
    example.raise(Event::Disconnected { database, leaving: false });
    let (_, actions) = example.ask("name", Want::Keep { to: "kept".to_owned() });
    assert_eq!(task(&actions).kind, TaskKind::Keep { to: "kept".to_owned() });
    let (ticket, _) = example.session("kept", 0);
    let actions = example.finish(database, Outcome::Done);
    assert_eq!(granted(&actions[1..], ticket), database);
    assert_eq!(example.table.database_named("kept"), Some(database));
}

#[test]
fn repeatedly_failing_task_is_retried_less_often() {
    let mut example = Example::new();
    let database = leased(&mut example, "name", terms("app", Isolation::Clone, 0));
    let mut pauses = Vec::new();
    example.raise(Event::Disconnected { database, leaving: false });
    for _ in 0..7 {
        let begun = example.now;
        while example.table.next_task(example.now).ok().is_none_or(|task| task.database != database) {
            example.now += Duration::from_millis(100);
        }
        pauses.push((example.now - begun).as_millis());
        example.finish(database, Outcome::Failed(LeaseError::NotLeased("name".to_owned())));
    }
    assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 5000]);
}

/// pgfresh can't copy a database in either of these isolations, so each client must get the right error.
#[test]
fn copy_error_names_lease_isolation() {
    for isolation in [Isolation::Rollback, Isolation::Server] {
        let mut example = Example::new();
        example.table.add_source(Source::Server("app".to_owned()), false);
        leased(&mut example, "name", terms("app", isolation, 5000));
        let (_, actions) = example.ask("name", Want::Copy { to: "copy".to_owned(), close: true });
        let [Action::Answer { answer: Answer::Refused(error), .. }] = &actions[..] else {
            panic!("an error was expected, not {actions:?}")
        };
        let expected = format!("cannot copy database \"name\": it is leased in isolation \"{isolation}\"");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn late_copy_does_not_answer_later_request() {
    let mut example = Example::new();
    let database = leased(&mut example, "name", terms("app", Isolation::Clone, 5000));
    let copy = Want::Copy { to: "copy".to_owned(), close: true };
    example.raise(Event::Disconnected { database, leaving: false });
    let (_, actions) = example.ask("name", copy);
    assert_eq!(task(&actions).kind, TaskKind::Copy { to: "copy".to_owned() });
    example.now += Duration::from_mins(10);
    example.raise(Event::Tick);
    let (reset, _) = example.ask("name", Want::Reset { close: false });
    let actions = example.finish(database, Outcome::Done);
    let answers = |action: &Action| matches!(action, Action::Answer { ticket, .. } if *ticket == reset);
    assert!(!actions.iter().any(answers), "{actions:?}");
    assert_eq!(task(&actions).kind, TaskKind::Reset { in_place: true });
}

/// After any burst, there are enough returned databases for the remaining clients.
#[test]
fn returned_databases_are_neither_recreated_nor_dropped() {
    for burst in [1, 2, 5, 16, 33, 64, 200] {
        for workers in [1, 2, 7, 16] {
            let mut example = Example::new();
            example.table.capacity = 1000;
            let mut round = |count: usize| {
                let ask = |serial| example.session(&format!("name {serial}"), 0).1;
                let actions = (0..count).flat_map(ask).collect();
                let (mut done, databases) = rest(&mut example, actions);
                assert_eq!(databases.len(), count);
                for database in databases {
                    example.raise(Event::Disconnected { database, leaving: false });
                    // Let some leases end simultaneously and others one after another.
                    if database.0 % 3 > 0 {
                        done.extend(rest(&mut example, Vec::new()).0);
                    }
                }
                done.extend(rest(&mut example, Vec::new()).0);
                done
            };
            round(burst);
            // After these rounds, the table must keep enough databases ready for all workers.
            (0..5).for_each(|_| drop(round(workers)));
            let done: Vec<_> = (0..10).flat_map(|_| round(workers)).collect();
            let is_long = |kind: &&TaskKind| matches!(kind, TaskKind::Create(_) | TaskKind::Drop);
            assert_eq!(done.iter().find(is_long), None, "{workers} workers after a burst of {burst}");
        }
    }
}
