//! Tests requests for a single name.

use super::super::line::SPARE_TIMEOUT;
use super::*;

/// Requests a session and gives all of these terms explicitly.
fn session_with(example: &mut Example, name: &str, terms: Terms, reset: bool) -> (Ticket, Vec<Action>) {
    let explicit = Explicit { isolation: true, template: true };
    example.ask(name, Want::Session { params: PARAMS, terms, explicit, reset })
}

fn refusal(actions: &[Action], of: Ticket) -> &LeaseError {
    match actions {
        [Action::Answer { ticket, answer: Answer::Refused(error) }] if *ticket == of => error,
        other => panic!("{of:?} was expected to be refused, not {other:?}"),
    }
}

fn with_two_templates() -> Example {
    let mut example = Example::new();
    example.table.add_source(Source::Template("other".to_owned()), false);
    example
}

/// A program hands out such names for its leases. A client that comes too late must not get a copy of the wrong template under
/// such a name.
#[test]
fn session_joins_issued_name_but_starts_no_lease() {
    let mut example = Example::new();
    example.table.is_issued = Some(|name| name == "issued");
    let (ticket, actions) = example.session("issued", 0);
    assert!(matches!(refusal(&actions, ticket), LeaseError::NoDatabase(name) if name == "issued"));
    let retained = Terms { retained: true, ..terms("app", Isolation::Clone, 0) };
    let (_, actions) = example.ask("issued", Want::Lease { params: None, terms: retained });
    assert!(actions.is_empty());
    let (_, actions) = example.session("issued", 0);
    assert!(actions.is_empty(), "it waits behind the lease: {actions:?}");
}

#[test]
fn session_cannot_join_lease_of_another_template() {
    for isolation in [Isolation::Clone, Isolation::Rollback] {
        let mut example = with_two_templates();
        let database = leased(&mut example, "name", terms("app", isolation, 5000));
        let other = terms("other", isolation, 5000);
        for has_session in [true, false] {
            if !has_session {
                example.raise(Event::Disconnected { database, leaving: false });
            }
            let (ticket, actions) = session_with(&mut example, "name", other.clone(), false);
            let error = refusal(&actions, ticket);
            assert!(
                matches!(error, LeaseError::OtherTemplate { template, asked, .. } if template == "app" && asked == "other"),
                "{error:?}"
            );
        }
        // A client without explicit terms joins the existing lease.
        let want =
            Want::Session { params: PARAMS, terms: other, explicit: Explicit::default(), reset: false };
        let (ticket, actions) = example.ask("name", want);
        assert_eq!(granted(&actions, ticket), database);
    }
}

#[test]
fn resetting_session_gets_its_requested_template() {
    for isolation in [Isolation::Clone, Isolation::Rollback] {
        let mut example = with_two_templates();
        let database = leased(&mut example, "name", terms("app", isolation, 5000));
        example.raise(Event::Disconnected { database, leaving: false });
        let (_, actions) = session_with(&mut example, "name", terms("other", isolation, 5000), true);
        assert_eq!(task(&actions), Task { database, kind: TaskKind::Unname });
        let (_, given) = rest(&mut example, actions);
        let lease = example.table.lease("name").unwrap();
        assert_eq!((lease.database, &*lease.terms.template), (Some(given[0]), "other"));
    }
}

/// The lease began over HTTP, and has no database yet.
#[test]
fn lease_without_database_already_holds_its_template() {
    let mut example = with_two_templates();
    let kept = Terms { retained: true, ..terms("app", Isolation::Rollback, 0) };
    example.ask("name", Want::Lease { params: None, terms: kept });
    let other = terms("other", Isolation::Rollback, 0);
    let (ticket, actions) = session_with(&mut example, "name", other.clone(), false);
    assert!(matches!(refusal(&actions, ticket), LeaseError::OtherTemplate { .. }));
    let (_, actions) = session_with(&mut example, "name", other, true);
    assert_eq!(rest(&mut example, actions).1.len(), 1);
    assert_eq!(example.table.lease("name").unwrap().terms.template, "other");
}

/// Returns the tickets of the refused requests, in the order in which they were refused.
fn refused_of(actions: &[Action]) -> Vec<Ticket> {
    let refused = |action: &Action| match action {
        Action::Answer {
            ticket,
            answer: Answer::Refused(LeaseError::InUse { .. } | LeaseError::Busy(_)),
        } => *ticket,
        other => panic!("a refusal was expected, not {other:?}"),
    };
    actions.iter().map(refused).collect()
}

#[test]
fn simultaneous_resets_are_refused_at_the_same_time() {
    let mut example = Example::new();
    let database = leased(&mut example, "name", terms("app", Isolation::Clone, 5000));
    example.now += Duration::from_secs(5);
    let resets: Vec<_> = (0..20).map(|_| example.ask("name", Want::Reset { close: false }).0).collect();
    let (joins, waits) = example.session("name", 5000);
    assert!(waits.is_empty());
    example.now += Duration::from_millis(500);
    let mut actions = example.raise(Event::Tick);
    let joined = actions.split_off(actions.len() - 1);
    assert_eq!(granted(&joined, joins), database);
    assert_eq!(refused_of(&actions), resets);
}

/// As long as the queue moves, each client gets its turn.
#[test]
fn sessions_taking_turns_are_never_refused() {
    let mut example = Example::new();
    let database = leased(&mut example, "name", terms("app", Isolation::Rollback, 5000));
    let lease = || terms("app", Isolation::Rollback, 5000);
    let waiting: Vec<_> = (0..5).map(|_| session_with(&mut example, "name", lease(), false).0).collect();
    for ticket in waiting {
        example.now += Duration::from_millis(700);
        assert!(example.raise(Event::Tick).is_empty());
        let actions = example.raise(Event::Disconnected { database, leaving: false });
        assert_eq!(granted(&actions, ticket), database);
    }
}

/// The sessions may end before or after the table receives [`Event::Closed`].
#[test]
fn ending_lease_lasts_until_closing_request_is_served() {
    let wants = [
        (Want::Release, TaskKind::Unname),
        (Want::Reset { close: true }, TaskKind::Reset { in_place: true }),
        (Want::Keep { to: "kept".to_owned() }, TaskKind::Keep { to: "kept".to_owned() }),
        (Want::Copy { to: "copy".to_owned(), close: true }, TaskKind::Copy { to: "copy".to_owned() }),
    ];
    for (want, kind) in wants {
        for is_first in [true, false] {
            let mut example = Example::new();
            let database = leased(&mut example, "name", terms("app", Isolation::Clone, 0));
            let (ticket, actions) = example.ask("name", want.clone());
            assert_eq!(task(&actions).kind, TaskKind::Close);
            let ended = Event::Disconnected { database, leaving: false };
            let (one, other) = if is_first {
                (ended, Event::Closed { database })
            } else {
                (Event::Closed { database }, ended)
            };
            assert!(example.raise(one).is_empty());
            let actions = example.raise(other);
            assert_eq!(task(&actions), Task { database, kind: kind.clone() });
            let outcome = match kind {
                TaskKind::Reset { .. } => Outcome::Fresh(Proof::new()),
                _ => Outcome::Done,
            };
            let actions = example.finish(database, outcome);
            let is_done = |action: &Action| matches!(action, Action::Answer { ticket: to, answer: Answer::Done(_) } if *to == ticket);
            assert!(actions.iter().any(is_done), "{want:?}: {actions:?}");
        }
    }
}

/// If a task ended the session of a client that has left, the next lease would have to start another backend.
#[test]
fn closing_request_first_spares_sessions_without_client() {
    for stays in [false, true] {
        for want in [Want::Release, Want::Reset { close: true }] {
            let mut example = Example::new();
            let database = leased(&mut example, "name", terms("app", Isolation::Clone, 0));
            rest(&mut example, Vec::new());
            example.raise(Event::Leaving { database });
            let (_, waits) = example.ask("name", want.clone());
            assert!(waits.is_empty(), "{want:?}: {waits:?}");
            if stays {
                example.now += SPARE_TIMEOUT;
                let looks_at = example.table.next_task(example.now).unwrap_err();
                assert_eq!(looks_at, Some(example.now));
                assert_eq!(task(&example.raise(Event::Tick)).kind, TaskKind::Close);
            } else {
                let actions = example.raise(Event::Disconnected { database, leaving: true });
                assert_ne!(task(&actions).kind, TaskKind::Close);
            }
        }
    }
}

/// The lease's only session belongs to the server, and ends with the lease.
#[test]
fn closed_rollback_lease_completes_release_or_reset() {
    for want in [Want::Release, Want::Reset { close: true }] {
        let mut example = Example::new();
        let database = leased(&mut example, "name", terms("app", Isolation::Rollback, 0));
        let (ticket, _) = example.ask("name", want.clone());
        example.raise(Event::Lost { database, leaving: false });
        example.raise(Event::Closed { database });
        let actions = example.work().1;
        let is_done = |action: &Action| matches!(action, Action::Answer { ticket: to, answer: Answer::Done(_) } if *to == ticket);
        assert!(matches!(&actions[..], [action] if is_done(action)), "{want:?}: {actions:?}");
    }
}

/// The request of the lease's client succeeds. Later ones fail, because the lease no longer exists.
#[test]
fn release_of_ending_lease_succeeds_once_it_ends() {
    for isolation in [Isolation::Clone, Isolation::Rollback] {
        let mut example = Example::new();
        let database = leased(&mut example, "name", terms("app", isolation, 0));
        example.raise(Event::Disconnected { database, leaving: false });
        let ending = example.table.next_task(example.now).unwrap();
        assert_eq!(ending.database, database);
        let tickets = [0; 2].map(|_| {
            let (ticket, waits) = example.ask("name", Want::Release);
            assert!(waits.is_empty(), "{waits:?}");
            ticket
        });
        let outcome = match ending.kind {
            TaskKind::Reset { .. } => Outcome::Fresh(Proof::new()),
            _ => Outcome::Done,
        };
        let told = |action: &Action| match action {
            Action::Answer { ticket, answer: Answer::Done(None) } => *ticket,
            other => panic!("it has ended, not {other:?}"),
        };
        assert_eq!(example.finish(database, outcome).iter().map(told).collect::<Vec<_>>(), tickets);
        let (ticket, actions) = example.ask("name", Want::Release);
        assert!(matches!(refusal(&actions, ticket), LeaseError::NotLeased(_)));
    }
}

#[test]
fn session_of_any_terms_awaits_ending_lease() {
    for (first, next) in [(Isolation::Clone, Isolation::Rollback), (Isolation::Rollback, Isolation::Clone)] {
        let mut example = with_two_templates();
        let database = leased(&mut example, "name", terms("app", first, 0));
        example.raise(Event::Leaving { database });
        let (_, waits) = session_with(&mut example, "name", terms("other", next, 0), false);
        assert!(waits.is_empty(), "{waits:?}");
        let actions = example.raise(Event::Disconnected { database, leaving: true });
        assert_eq!(rest(&mut example, actions).1.len(), 1);
        assert_eq!(example.table.isolation("name"), Some(next));
    }
}

/// After a client has disconnected, its statement may run for hours.
#[test]
fn abandoned_session_of_ended_lease_blocks_name_briefly() {
    for isolation in [Isolation::Clone, Isolation::Rollback] {
        let mut example = Example::new();
        let database = leased(&mut example, "name", terms("app", isolation, 0));
        example.raise(Event::Leaving { database });
        let (_, waits) = session_with(&mut example, "name", terms("app", Isolation::Clone, 0), false);
        assert!(waits.is_empty());
        example.now += Duration::from_millis(500);
        let actions = example.raise(Event::Tick);
        assert_eq!(task(&actions), Task { database, kind: TaskKind::Unname });
        let (done, given) = rest(&mut example, actions);
        assert!(done.contains(&TaskKind::Drop), "{done:?}");
        assert!(given.len() == 1 && given[0] != database, "{given:?}");
    }
}

#[test]
fn client_gets_full_error_when_drop_keeps_failing() {
    let mut example = Example::new();
    example.table.capacity = 1;
    let database = leased(&mut example, "name", terms("app", Isolation::Clone, 0));
    example.raise(Event::Disconnected { database, leaving: false });
    example.work();
    let reset = example.table.next_task(example.now).unwrap();
    example.finish(reset.database, Outcome::Doubt("chance"));
    let (ticket, waits) = example.session("next", 0);
    assert!(waits.is_empty());
    let begun = example.now;
    loop {
        let mut actions = example.raise(Event::Tick);
        match example.table.next_task(example.now) {
            Ok(Task { database, kind }) => {
                let failed = Outcome::Failed(LeaseError::NoServers);
                actions.extend(
                    example.finish(database, if kind == TaskKind::Drop { failed } else { Outcome::Done }),
                );
            }
            Err(_) if !actions.is_empty() => {}
            Err(later) => example.now = later.expect("the client has its answer in time"),
        }
        if !actions.is_empty() {
            assert!(matches!(refusal(&actions, ticket), LeaseError::Full { .. }));
            break;
        }
    }
    assert_eq!(example.now, begun + Duration::from_secs(1));
}

/// SQL has dropped the database of a lease, and the ready one that the lease would have received instead.
#[test]
fn reset_lease_receives_second_ready_database() {
    let mut example = Example::new();
    let database = leased(&mut example, "name", terms("app", Isolation::Clone, 60_000));
    example.raise(Event::Disconnected { database, leaving: false });
    let (reset, mut actions) = example.ask("name", Want::Reset { close: false });
    let mut names = 0;
    let answer = loop {
        let Task { database, kind } = match actions.pop() {
            Some(Action::Run { task, .. }) => task,
            Some(Action::Answer { ticket, answer }) if ticket == reset => break answer,
            Some(other) => panic!("an answer to the reset was expected, not {other:?}"),
            None => example.table.next_task(example.now).unwrap(),
        };
        names += usize::from(matches!(kind, TaskKind::Name { .. }));
        let outcome = match kind {
            TaskKind::Create(_) => Outcome::Fresh(Proof::new()),
            TaskKind::Name { .. } if names == 2 => Outcome::Done,
            _ => Outcome::DroppedOrRenamed,
        };
        actions.extend(example.finish(database, outcome));
    };
    assert!(matches!(answer, Answer::Done(Some(_))), "{answer:?}");
}
