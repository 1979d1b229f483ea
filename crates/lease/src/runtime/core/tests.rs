//! Tests how the core wakes maintenance workers, selects tasks and limits idle sessions.

use std::thread;

use super::*;
use crate::backends::backend::{Backend, WaitingBackend};
use crate::backends::seats::Seat;
use crate::isolation::Isolation;
use crate::runtime::resources::PooledCopy;
use crate::table::{Event, Explicit, Outcome, Proof, Source, TaskKind, Terms, Want};

/// Leases `name` with a new session and runs all tasks.
fn lease(core: &mut Core, name: &str, linger: Duration) -> DatabaseId {
    let terms = Terms { template: "app".to_owned(), isolation: Isolation::Clone, linger, retained: false };
    let want = Want::Session { params: ParamsId(0), terms, explicit: Explicit::default(), reset: false };
    let tasks = core.request(name, want, None).2;
    work(core, tasks);
    core.table.database_named(name).expect("it is leased")
}

/// Runs these tasks and then all tasks that are due.
fn work(core: &mut Core, mut tasks: Vec<Task>) {
    while let Some(Task { database, kind }) = tasks.pop().or_else(|| core.next_task().ok()) {
        let outcome = match kind {
            TaskKind::Create(_) => Outcome::Fresh(Proof::new()),
            _ => Outcome::Done,
        };
        core.raise_in_background(Event::Finished { database, outcome });
    }
}

/// Returns a core without tasks, with a lease that has one session.
fn leased(linger: Duration) -> (Core, DatabaseId) {
    let mut core = Core::new(1);
    core.table.add_source(Source::Template("app".to_owned()), true);
    let database = lease(&mut core, "db", linger);
    (core, database)
}

#[test]
fn idle_worker_wakes_for_work_before_its_timer() {
    let hour = Duration::from_hours(1);
    for (linger, needed) in [(hour, false), (Duration::from_millis(1), true)] {
        let (mut core, database) = leased(linger);
        assert!(!core.needs_worker(), "one that works looks by itself");
        // While any database is leased, a worker must wake up to read the log. A worker that sleeps longer doesn't know
        // about the lease.
        core.idle_workers = vec![Instant::now() + hour];
        assert!(core.needs_worker());
        core.idle_workers.push(Instant::now() + CATCH_UP / 2);
        assert!(!core.needs_worker());
        core.raise_in_background(Event::Disconnected { database, leaving: false });
        assert_eq!(core.needs_worker(), needed, "{linger:?}");
    }
}

#[test]
fn log_reads_are_scheduled_only_while_leases_exist() {
    let (mut core, database) = leased(Duration::ZERO);
    let last = Instant::now();
    core.caught_up = Some(last);
    assert_eq!(core.reads_log_at(), Some(last + CATCH_UP));
    core.raise_in_background(Event::Disconnected { database, leaving: false });
    assert_eq!(core.next_task(), Ok(Task { database, kind: TaskKind::Unname }));
    core.raise_in_background(Event::Finished { database, outcome: Outcome::Done });
    assert_eq!(core.reads_log_at(), None);
}

#[test]
fn core_forgets_database_dropped_by_sql() {
    let (mut core, database) = leased(Duration::ZERO);
    core.pool.insert(database, Resources::default());
    core.raise_in_background(Event::Lost { database, leaving: false });
    assert_eq!(core.next_task(), Ok(Task { database, kind: TaskKind::Unname }));
    core.raise_in_background(Event::Finished { database, outcome: Outcome::DroppedOrRenamed });
    assert!(core.pool.remove(database).is_none(), "{:?}", core.pool);
}

fn waiting_backend() -> WaitingBackend {
    let (stream, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let backend = Backend { stream, startup_response: Vec::new(), seat: Seat::default() };
    let params = StartupParams::new([("user", "postgres")]);
    WaitingBackend { params, backend, stamp: "".into(), since: None, is_used: false }
}

/// Returns the resources of a copy with idle backends.
fn with_waiting(count: usize) -> Resources {
    let waiting = (0..count).map(|_| waiting_backend()).collect();
    Resources::Clone(Box::new(PooledCopy { waiting, ..PooledCopy::fake() }))
}

#[test]
fn limit_on_waiting_backends_evicts_older_exempts_pool() {
    let mut core = Core::new(1000);
    core.table.add_source(Source::Template("app".to_owned()), true);
    let waiting = |core: &Core| core.pool.waiting_among(|_| true);
    for serial in 0..3 * MOST_WAITING {
        let database = lease(&mut core, &format!("db_{serial}"), Duration::from_hours(1));
        core.pool.insert(database, with_waiting(0));
        assert!(core.make_room_for_left(database));
        core.pool.copy_mut(database).unwrap().waiting.push(waiting_backend());
        core.raise_in_background(Event::Disconnected { database, leaving: false });
        assert_eq!(waiting(&core), (serial + 1).min(MOST_WAITING));
    }
    let database = lease(&mut core, "brief", Duration::ZERO);
    assert!(core.make_room_for_left(database));
    assert_eq!(waiting(&core), MOST_WAITING);
}

#[test]
fn trim_idle_closes_sessions_needed_last() {
    let mut core = Core::new(1000);
    core.table.add_source(Source::Template("app".to_owned()), true);
    let soon = lease(&mut core, "soon", Duration::from_mins(1));
    let late = lease(&mut core, "late", Duration::from_hours(1));
    let open = lease(&mut core, "open", Duration::from_hours(1));
    for database in [soon, late] {
        core.raise_in_background(Event::Disconnected { database, leaving: false });
    }
    assert!(core.next_task().is_err());
    // Workers create copies only when no client has arrived for a moment.
    std::thread::sleep(Duration::from_millis(5));
    work(&mut core, Vec::new());
    let ready: Vec<_> = core.table.by_need().filter(|id| ![soon, late, open].contains(id)).collect();
    let [last, first] = ready[..] else { panic!("two are ready, not {ready:?}") };
    let all = [soon, late, open, first, last];
    for id in all {
        core.pool.insert(id, with_waiting(2));
    }
    let waits = |core: &Core| all.map(|id| core.pool.get(id).unwrap().idle() > 0);
    for (most_idle, expected) in [
        (10, [true; 5]),
        (9, [false, true, true, true, true]),
        (6, [false, false, true, true, true]),
        (5, [false, false, true, true, false]),
        // This must not close sessions in a lease that has a client, or in the spared database.
        (0, [false, false, true, true, false]),
    ] {
        core.most_idle = most_idle;
        core.trim_idle(first);
        assert_eq!(waits(&core), expected, "{most_idle}");
    }
}

#[test]
fn waiting_client_keeps_its_params_among_many_others() {
    let mut core = Core::new(1);
    core.table.add_source(Source::Template("app".to_owned()), true);
    let mut ask = |number: u32| {
        let params = StartupParams::new([("application_name", &*number.to_string())]);
        let (template, linger) = ("app".to_owned(), Duration::ZERO);
        let terms = Terms { template, isolation: Isolation::Rollback, linger, retained: false };
        let want =
            Want::Session { params: params_id(&params), terms, explicit: Explicit::default(), reset: false };
        let client = Arc::new(Client::new(None));
        core.request("db", want, Some(Newcomer { client, params: params.clone() }));
        params
    };
    let first = ask(0);
    (1..5000).for_each(|number| drop(ask(number)));
    assert_eq!(core.params_of(params_id(&first)), Some(first));
}

#[test]
fn first_free_worker_takes_work_of_woken_one() {
    let (mut core, database) = leased(Duration::ZERO);
    core.idle_workers = vec![Instant::now()];
    core.raise_in_background(Event::Disconnected { database, leaving: false });
    assert!(core.needs_worker() && core.needs_worker());
    assert_eq!(core.next_task(), Ok(Task { database, kind: TaskKind::Unname }));
    assert!(core.next_task().is_err());
}

#[test]
fn slot_delivers_answer_before_or_after_thread_waits() {
    let slot = Slot::new(None);
    assert!(slot.wait(Duration::ZERO).is_none());
    slot.answer(Answer::Elsewhere);
    assert!(matches!(slot.wait(Duration::ZERO), Some(Ok(Answer::Elsewhere))));
    thread::scope(|scope| {
        let waits = scope.spawn(|| slot.wait(Duration::from_mins(1)).is_some());
        slot.answer(Answer::Elsewhere);
        assert!(waits.join().unwrap());
    });
}

#[test]
fn repeated_task_failure_is_reported_once_per_cause() {
    let mut counters = Counters::default();
    let said = (0..10).filter(|_| counters.is_news("drop a database", "it is in use")).count();
    assert_eq!(said, 1);
    assert!(counters.is_news("drop a database", "the server has ended"));
    assert!(counters.is_news("reset a database", "it is in use"));
}
