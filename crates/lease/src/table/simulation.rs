//! Tests the table in a simulation with random clients, a fake clock and a fake server.
//!
//! The fake server crashes, loses connections, is slow and refuses to rename databases, while SQL renames, swaps, drops
//! and creates them. After each event, the simulation checks everything guaranteed by the table. At the end, some kinds
//! of tasks fail until a repair, and each request must still get an answer in time.
//!
//! `PGFRESH_SIMULATION_EVENTS` sets the length of the simulation, and `PGFRESH_SIMULATION_SEED` the first seed. A
//! failing run prints its seed. Since everything follows from the seed, rerunning with it reproduces the failure.

mod endings;
pub(super) mod random;
mod server;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use super::database::{Change, Closes, Database, DatabaseState, Lease, Work};
use super::line::NameState;
use super::*;
use random::Random;
use server::{Checks, Circumstances, Copy, FakeServer, Oid};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const TEMPLATES: [&str; 2] = ["app", "other"];
const LINGERS: [u64; 4] = [0, 0, 5, 300];
const CAPACITY: usize = 8;
const CHECKS: Checks = Checks { sessions: true, statements: true };

#[derive(Debug, Clone, PartialEq, Eq)]
struct Session {
    /// The database whose lease the table counts the session for.
    database: DatabaseId,
    /// The database name in the session's startup message.
    name: String,
    /// Once the session has started, its database.
    inside: Option<Oid>,
    leaving: bool,
}

/// A client waiting for an answer, with the guarantees that the answer must meet.
#[derive(Debug, Clone)]
struct Waiter {
    name: String,
    want: Want,
    /// Whether the client must get a fresh database, because it requested a reset or because the previous lease was
    /// over when it came.
    must_be_fresh: bool,
}

struct Simulation {
    random: Random,
    now: Instant,
    table: LeaseTable,
    server: FakeServer,
    /// The table's databases that have resources.
    held: BTreeSet<DatabaseId>,
    sessions: Vec<Session>,
    tasks: Vec<Task>,
    /// Databases whose sessions a task is about to terminate.
    closes: Vec<DatabaseId>,
    waiters: HashMap<Ticket, Waiter>,
    last_ticket: u64,
    answered: BTreeMap<&'static str, u64>,
    /// Whether faults and new clients have stopped, so that all work must come to an end.
    calm: bool,
    /// Kinds of tasks that always fail.
    broken: Vec<Discriminant<TaskKind>>,
}

impl Simulation {
    fn new(seed: u64, checks: Checks) -> Self {
        let mut table = LeaseTable::new(CAPACITY);
        table.exchanges = !seed.is_multiple_of(3);
        table.add_source(Source::Template("app".to_owned()), true);
        table.add_source(Source::Template("other".to_owned()), false);
        table.stock_up(&Source::Template("app".to_owned()), (seed % 7) as usize, Instant::now());
        table.add_source(Source::Server("app".to_owned()), false);
        Self {
            random: Random(seed | 1),
            now: Instant::now(),
            table,
            server: FakeServer::new(checks),
            held: BTreeSet::new(),
            sessions: Vec::new(),
            tasks: Vec::new(),
            closes: Vec::new(),
            waiters: HashMap::new(),
            last_ticket: 0,
            answered: BTreeMap::new(),
            calm: false,
            broken: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..22 => self.request(),
            22..34 => self.write(),
            34..43 => self.client_goes(),
            43..55 => self.session_ends(),
            55..58 => self.sql(),
            58 => self.raise(Event::Vacate),
            59..68 => self.pass_time(),
            68..76 => self.pull(),
            76..84 => self.enter(),
            _ => self.finish_a_task(),
        }
        self.check();
    }

    fn raise(&mut self, event: Event) {
        for action in self.table.handle(event, self.now) {
            match action {
                Action::Run { task, .. } if task.kind == TaskKind::Close => self.closes.push(task.database),
                Action::Run { task, .. } => self.tasks.push(task),
                Action::Answer { ticket, answer } => self.answered(ticket, &answer),
            }
        }
        let gone = self.table.take_gone();
        self.held.retain(|id| !gone.contains(id));
        for id in gone {
            self.server.forget(id);
        }
    }

    fn terms(&mut self) -> (Terms, Explicit) {
        let isolation = match self.random.below(10) {
            0..6 => Isolation::Clone,
            6..9 => Isolation::Rollback,
            _ => Isolation::Server,
        };
        let linger = Duration::from_millis(self.random.pick(&LINGERS));
        let template = self.random.pick(&TEMPLATES).to_owned();
        let explicit = Explicit { isolation: self.random.one_in(3), template: self.random.one_in(3) };
        (Terms { template, isolation, linger, retained: false }, explicit)
    }

    fn request(&mut self) {
        let name = self.random.pick(&NAMES).to_owned();
        let (mut terms, explicit) = self.terms();
        let params = ParamsId(self.random.below(2) as u64);
        let want = match self.random.below(20) {
            0..12 => Want::Session { params, terms, explicit, reset: self.random.one_in(5) },
            12 => {
                terms.retained = true;
                Want::Lease { params: Some(params), terms }
            }
            13..16 => Want::Reset { close: self.random.one_in(2) },
            16..18 => Want::Release,
            18 if self.random.one_in(3) => Want::Keep { to: format!("{name}_failed_{}", self.last_ticket) },
            18 => Want::Copy { to: "copy".to_owned(), close: self.random.one_in(2) },
            _ => Want::Server,
        };
        self.ask(name, want);
    }

    fn ask(&mut self, name: String, want: Want) {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let must_be_fresh = match &want {
            // Another client can join the first client's lease.
            Want::Session { reset, .. } => {
                *reset || self.is_over(&name) && self.waiters.values().all(|waiter| waiter.name != name)
            }
            Want::Reset { .. } | Want::Lease { .. } => true,
            _ => false,
        };
        self.waiters.insert(ticket, Waiter { name: name.clone(), want: want.clone(), must_be_fresh });
        self.raise(Event::Request { ticket, name, want });
    }

    /// Returns true if a lease without linger has lost all its clients, or a lease with linger is past its deadline.
    fn is_over(&self, name: &str) -> bool {
        let Some(id) = self.table.database_named(name) else { return true };
        let Some(database) = self.table.databases.get(id) else { return false };
        // These changes may have terminated the lease's sessions. If a client is waiting afterwards, the lease
        // continues for that client.
        if matches!(database.state, DatabaseState::Changing(Change::Server(_) | Change::Copying(_))) {
            return false;
        }
        let Some(lease) = database.lease() else { return false };
        let brief = lease.terms.linger == Duration::ZERO && !lease.terms.retained;
        let was_used = lease.leaving > 0 || lease.deadline.is_some();
        (lease.open == 0 && brief && was_used) || lease.deadline.is_some_and(|deadline| deadline <= self.now)
    }

    fn answered(&mut self, ticket: Ticket, answer: &Answer) {
        let waiter = self.waiters.remove(&ticket).expect("an answer without a waiter, or a second one");
        let kind = match answer {
            Answer::Session(_) => "session",
            Answer::Done(_) => "done",
            Answer::Elsewhere => "elsewhere",
            Answer::Refused(LeaseError::Timeout { .. }) => "timeout",
            Answer::Refused(LeaseError::Blocked { .. }) => "blocked",
            Answer::Refused(_) => "refused",
        };
        *self.answered.entry(kind).or_default() += 1;
        match answer {
            Answer::Session(id) => {
                let database = self.table.databases.get(*id).expect("it is there");
                let lease = database.lease().unwrap_or_else(|| panic!("{waiter:?} got {database:?}"));
                let is_first = lease.sessions() == 1;
                assert_eq!(database.source, lease.terms.source());
                if let Want::Session { terms, explicit: Explicit { template: true, .. }, .. } = &waiter.want {
                    assert_eq!(lease.terms.template, terms.template, "{waiter:?} got {database:?}");
                }
                if let Some(copy) = self.server.copy(*id)
                    && copy.name.as_deref() == Some(&waiter.name)
                {
                    assert!(
                        !(waiter.must_be_fresh && is_first && copy.dirty),
                        "{waiter:?} got a dirty {id:?}"
                    );
                }
                let (database, name) = (*id, waiter.name);
                self.sessions.push(Session { database, name, inside: None, leaving: false });
            }
            Answer::Done(Some(id)) if matches!(waiter.want, Want::Server) => {
                // The client takes a while to change the server. A later event completes the change.
                self.tasks.push(Task { database: *id, kind: TaskKind::Close });
            }
            Answer::Done(Some(id)) if waiter.must_be_fresh => {
                assert!(
                    !self.server.copy(*id).is_some_and(|copy| copy.dirty),
                    "{waiter:?} got a dirty {id:?}"
                );
            }
            Answer::Done(None) if matches!(waiter.want, Want::Release) => {
                let has = |copy: &Copy| copy.name.as_deref() == Some(&waiter.name) && !copy.is_of_sql();
                let named = self.server.databases.values().any(has);
                assert!(
                    !named || self.table.database_named(&waiter.name).is_some(),
                    "{waiter:?} was released and is there"
                );
            }
            Answer::Done(_) | Answer::Elsewhere | Answer::Refused(_) => {}
        }
    }

    fn write(&mut self) {
        if self.sessions.is_empty() {
            return;
        }
        let session = self.random.pick(&self.sessions);
        let Some(inside) = session.inside else { return };
        let isolation = self.table.databases.get(session.database).map(|database| database.isolation);
        // The client has disconnected, but the server may still be running its last statement.
        if let Some(copy) = self.server.databases.get_mut(&inside) {
            copy.uncommitted = isolation == Some(Isolation::Rollback) && (copy.uncommitted || !copy.dirty);
            copy.dirty = true;
        }
    }

    /// Starts a session promised by the table. In the meantime, SQL may have given the database's name to another
    /// database.
    fn enter(&mut self) {
        let promised: Vec<_> =
            (0..self.sessions.len()).filter(|at| self.sessions[*at].inside.is_none()).collect();
        if promised.is_empty() {
            return;
        }
        let at = self.random.pick(&promised);
        let Session { database, name, leaving, .. } = self.sessions[at].clone();
        let Some(isolation) = self.table.databases.get(database).map(|database| database.isolation) else {
            self.sessions.swap_remove(at);
            return;
        };
        let inside = self.server.enter(database, &name, isolation);
        self.sessions[at].inside = inside;
        if let Some(copy) = inside.and_then(|oid| self.server.databases.get(&oid)) {
            assert_eq!(inside, Some(Oid::Made(database)), "a session with {name}");
            // In rollback isolation, the session started earlier, so SQL can't rename its database.
            let has_name = isolation != Isolation::Clone || copy.name.as_deref() == Some(&*name);
            return assert!(has_name, "a session of {database:?} with {name} is in {copy:?}");
        }
        self.sessions.swap_remove(at);
        self.raise(Event::Lost { database, leaving });
    }

    fn client_goes(&mut self) {
        let open: Vec<_> = (0..self.sessions.len()).filter(|at| !self.sessions[*at].leaving).collect();
        if open.is_empty() {
            return;
        }
        let at = self.random.pick(&open);
        self.sessions[at].leaving = true;
        self.raise(Event::Leaving { database: self.sessions[at].database });
    }

    fn session_ends(&mut self) {
        if self.sessions.is_empty() {
            return;
        }
        let at = self.random.below(self.sessions.len());
        let Session { database, inside, leaving, .. } = self.sessions.swap_remove(at);
        let is_gone = self.server.copy(database).is_none();
        let isolation = self.table.databases.get(database).map(|database| database.isolation);
        if let Some(inside) = inside.filter(|_| isolation == Some(Isolation::Clone) && self.random.one_in(2))
        {
            self.server.waiting.push((database, inside));
        }
        let event = if is_gone || self.random.one_in(15) {
            Event::Lost { database, leaving }
        } else {
            Event::Disconnected { database, leaving }
        };
        self.raise(event);
    }

    /// Terminates a database's sessions and checks that all of them belong to the lease that is ending.
    fn close_sessions(&mut self, id: DatabaseId) {
        match self.table.databases.get(id).map(|database| &database.state) {
            None
            | Some(DatabaseState::Retiring | DatabaseState::Changing(Change::Unnaming { retire: true })) => {}
            Some(DatabaseState::Leased(lease) | DatabaseState::Changing(Change::Server(lease)))
                if lease.closing == Closes::Running => {}
            other => panic!("the sessions of {id:?} must end, but it is {other:?}"),
        }
        let (ended, stay): (Vec<_>, _) =
            self.sessions.drain(..).partition(|session| session.database == id && !self.random.one_in(20));
        self.sessions = stay;
        for Session { database, leaving, .. } in ended {
            self.raise(Event::Disconnected { database, leaving });
        }
        self.raise(Event::Closed { database: id });
    }

    /// Simulates SQL run by users. Databases in rollback isolation are safe, because their session is always open.
    fn sql(&mut self) {
        let (table, sessions) = (&self.table, &self.sessions);
        let is_in_use = |oid: Oid| {
            let is_rolled_back = |id| {
                table.databases.get(id).is_some_and(|database| database.isolation == Isolation::Rollback)
            };
            sessions.iter().any(|session| session.inside == Some(oid))
                || matches!(oid, Oid::Made(id) if is_rolled_back(id))
        };
        self.server.sql(&mut self.random, is_in_use);
    }

    fn pass_time(&mut self) {
        let milliseconds = self.random.pick(&[0, 1, 3, 4, 50, 199, 200, 201, 600, 20_000]);
        // While a task fails, a long time passes only in the simulation's last part. Otherwise, most requests would be
        // refused before the next attempt, and few would get a session.
        let is_failing = self.table.databases.iter().any(|(_, database)| database.failures.is_some());
        self.now += Duration::from_millis(if is_failing { milliseconds.min(600) } else { milliseconds });
        self.raise(Event::Tick);
    }

    fn pull(&mut self) {
        if self.tasks.len() < 6
            && let Ok(task) = self.table.next_task(self.now)
        {
            self.tasks.push(task);
        }
    }

    fn finish_a_task(&mut self) {
        if !self.closes.is_empty() && (self.tasks.is_empty() || self.random.one_in(2)) {
            let at = self.random.below(self.closes.len());
            let id = self.closes.swap_remove(at);
            return self.close_sessions(id);
        }
        if self.tasks.is_empty() {
            return;
        }
        let at = self.random.below(self.tasks.len());
        let Task { database, kind } = self.tasks.swap_remove(at);
        if self.broken.contains(&discriminant(&kind)) {
            let outcome = self.broken_outcome(&kind);
            return self.raise(Event::Finished { database, outcome });
        }
        // If the connection is lost, the server may or may not have run the statement.
        let (run, answered) = match self.random.below(if self.calm { 1 } else { 12 }) {
            1 => (false, false),
            2 => (true, false),
            _ => (true, true),
        };
        let outcome = if run { self.run(database, &kind) } else { Outcome::Done };
        let outcome = if answered { outcome } else { Outcome::Failed(LeaseError::NoServers) };
        self.raise(Event::Finished { database, outcome });
        if !self.calm && self.random.one_in(8) {
            self.raise(Event::Warmed { database, params: vec![ParamsId(0)] });
        }
    }

    fn run(&mut self, id: DatabaseId, kind: &TaskKind) -> Outcome {
        match kind {
            TaskKind::Create(_) if !self.calm && self.random.one_in(9) => return Outcome::PutOff,
            TaskKind::Create(_) => _ = self.held.insert(id),
            TaskKind::Close => return Outcome::Done,
            _ => {}
        }
        let is_in = |session: &Session| session.database == id || session.inside == Some(Oid::Made(id));
        let database = self.table.databases.get(id);
        let in_use = self.sessions.iter().any(is_in);
        let found = Circumstances {
            is_lucky: self.calm || !self.random.one_in(6),
            is_rolled_back: database.is_some_and(|database| database.isolation == Isolation::Rollback),
            keeps_session: self.calm || !self.random.one_in(4),
        };
        if in_use && matches!(kind, TaskKind::Reset { .. }) {
            return Outcome::Doubt("in use");
        }
        self.server.run(id, kind, found)
    }

    /// Checks everything guaranteed by the table.
    fn check(&self) {
        let table = &self.table;
        let mut busy = BTreeSet::new();
        for task in self.tasks.iter().filter(|task| task.kind != TaskKind::Close) {
            assert!(busy.insert(task.database), "two tasks at once for {:?}", task.database);
        }
        for (id, database) in table.databases.iter() {
            assert_eq!(
                database.work == Work::Running,
                busy.contains(&id),
                "{id:?} is said to be worked on, or is and is not said to be: {database:?}"
            );
            if let Some(copy) = self.server.copy(id) {
                self.check_copy(id, database, copy);
            }
            if let Some(name) = &database.name {
                assert_eq!(
                    table.names.get(name).map(|line| &line.state),
                    Some(&NameState::Held(id)),
                    "{name}"
                );
            }
            if let DatabaseState::Leased(Lease { open, leaving, .. }) = database.state {
                let count = |leaving| {
                    let of = |session: &&Session| session.database == id && session.leaving == leaving;
                    self.sessions.iter().filter(of).count()
                };
                assert_eq!((open, leaving), (count(false), count(true)), "sessions of {id:?}");
            }
        }
        self.check_order();
        assert!(self.held.iter().all(|id| table.databases.get(*id).is_some()), "what belongs to one stays");
        for (name, line) in &table.names {
            assert!(
                line.requests.is_empty() || table.asked.contains(name),
                "a request for {name} is left alone"
            );
            if let NameState::Held(id) = &line.state {
                let database =
                    table.databases.get(*id).unwrap_or_else(|| panic!("{name} is held by nothing"));
                let naming = DatabaseState::Changing(Change::Naming(name.clone()));
                assert!(
                    database.name.as_ref() == Some(name) || database.state == naming,
                    "{name}: {database:?}"
                );
            }
            if let NameState::Wanted(terms) = &line.state {
                assert!(table.supplies[&terms.source()].line.contains(name), "{name} waits in no line");
            }
            assert!(line.state != NameState::Free || !line.requests.is_empty(), "{name} is free and there");
        }
        let waiting = table.names.values().map(|line| line.requests.len()).sum::<usize>();
        assert_eq!(waiting, self.waiters.len(), "a waiter was forgotten");
        assert!(table.databases.len() <= CAPACITY, "more databases than there is room for");
    }

    /// Checks that each group contains exactly the databases belonging to it.
    fn check_order(&self) {
        let databases = &self.table.databases;
        let ids = |state: fn(&Database) -> bool| {
            databases
                .iter()
                .filter(move |(_, database)| state(database))
                .map(|(id, _)| id)
                .collect::<Vec<_>>()
        };
        let ready = ids(|database| database.state == DatabaseState::Ready);
        assert_eq!(databases.ready().map(|(id, _)| id).collect::<Vec<_>>(), ready);
        let busy = ids(|database| {
            let rests = match &database.state {
                DatabaseState::Ready => true,
                DatabaseState::Leased(lease) => {
                    lease.leaving == 0 || lease.open > 0 || !lease.ends_with_its_sessions()
                }
                _ => false,
            };
            database.work != Work::None || !rests
        });
        assert_eq!(databases.busy().map(|(id, _)| id).collect::<Vec<_>>(), busy);
    }

    fn check_copy(&self, id: DatabaseId, database: &Database, copy: &Copy) {
        match &database.state {
            DatabaseState::Ready => {
                assert!(!copy.dirty, "a dirty {id:?} is ready");
                assert!(
                    !self.sessions.iter().any(|session| session.database == id),
                    "a ready {id:?} has sessions"
                );
                assert!(
                    copy.given.is_none() || database.isolation == Isolation::Rollback,
                    "{id:?} is ready and named"
                );
            }
            DatabaseState::Leased(_) => assert_eq!(copy.given, database.name, "{id:?}"),
            // If pgfresh gave a database its name, the table must know the name.
            _ if copy.given != database.name => {
                let changes =
                    matches!(database.state, DatabaseState::Changing(_)) || database.work == Work::Running;
                assert!(changes, "{id:?} is called {:?}, and {:?} in the table", copy.given, database.name);
            }
            _ => {}
        }
    }
}

/// Prints directly to stderr, so that the message appears even if the test succeeds.
#[expect(clippy::let_underscore_must_use, reason = "a test may have nowhere to write")]
fn print(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn play(seed: u64, length: u64, checks: Checks) -> BTreeMap<&'static str, u64> {
    let mut simulation = Simulation::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), checks);
    for _ in 0..length {
        simulation.step();
    }
    // This takes as long as the rest, so not each simulation does it.
    if simulation.random.one_in(3) {
        simulation.fail_until_repaired();
    }
    simulation.settle();
    simulation.answered
}

/// Checks the simulation itself, which must find a bug planted by the test.
#[test]
fn a_missing_check_of_names_is_found() {
    for checks in [Checks { sessions: false, ..CHECKS }, Checks { statements: false, ..CHECKS }] {
        let fails = |seed| std::panic::catch_unwind(|| play(seed, 2_000, checks)).is_err();
        assert!((1..=20).any(fails), "nothing came of {checks:?}");
    }
}

/// Runs hundreds of simulations, each with thousands of events. In a short simulation, a failure shows soon after its
/// cause.
#[test]
fn simulation_leaves_no_dirty_database_or_forgotten_client() {
    let (events, length) = (number("PGFRESH_SIMULATION_EVENTS").unwrap_or(1_000_000), 2_000);
    let first = number("PGFRESH_SIMULATION_SEED").unwrap_or(1);
    let mut answered = BTreeMap::<&str, u64>::new();
    for seed in first..first + events.div_ceil(length) {
        let run = std::panic::catch_unwind(|| play(seed, length, CHECKS));
        match run {
            Ok(counts) => {
                for (kind, count) in counts {
                    *answered.entry(kind).or_default() += count;
                }
            }
            Err(panic) => {
                print(&format!(
                    "PGFRESH_SIMULATION_SEED={seed} PGFRESH_SIMULATION_EVENTS={length} repeats this"
                ));
                std::panic::resume_unwind(panic);
            }
        }
    }
    print(&format!("simulated {events} events from seed {first}: {answered:?}"));
    assert!(answered["session"] > events / 22, "hardly any client got a session: {answered:?}");
}
