//! Checks that the table treats clients fairly when there are only a few databases. In a simulation, clients of
//! several templates come and go at random. The clock is simulated, too, and a seed determines all random choices.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::simulation::random::Random;
use super::*;

/// A future event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Comes { template: usize },
    Leaves { database: DatabaseId, template: usize },
    Ends(DatabaseId, TaskEnd),
    Wakes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TaskEnd {
    Fresh,
    Done,
}

/// A client waiting for a database.
#[derive(Debug)]
struct Waiting {
    template: usize,
    since: Instant,
    /// How many later clients were served first.
    passed: usize,
}

struct Room {
    random: Random,
    now: Instant,
    table: LeaseTable,
    templates: usize,
    next: BinaryHeap<Reverse<(Instant, u64, Next)>>,
    serial: u64,
    wakes: Option<Instant>,
    waiting: BTreeMap<Ticket, Waiting>,
    /// Range of lease durations, in microseconds.
    leases: Range<usize>,
    most_passed: usize,
    longest_wait: Duration,
}

impl Room {
    fn new(seed: u64, leases: Range<usize>) -> Self {
        let mut random = Random(seed | 1);
        let (capacity, templates) = (1 + random.below(12), 1 + random.below(4));
        let mut table = LeaseTable::new(capacity);
        for template in 0..templates {
            table.add_source(Source::Template(template.to_string()), template == 0);
        }
        Self {
            random,
            templates,
            now: Instant::now(),
            table,
            next: BinaryHeap::new(),
            serial: 0,
            wakes: None,
            waiting: BTreeMap::new(),
            leases,
            most_passed: 0,
            longest_wait: Duration::ZERO,
        }
    }

    fn after(&mut self, microseconds: usize, next: Next) {
        self.serial += 1;
        self.next.push(Reverse((self.now + Duration::from_micros(microseconds as u64), self.serial, next)));
    }

    fn raise(&mut self, event: Event) {
        for action in self.table.handle(event, self.now) {
            match action {
                Action::Run { task, .. } => self.begin(task),
                Action::Answer { ticket, answer: Answer::Session(database) } => self.serve(ticket, database),
                Action::Answer { answer, .. } => panic!("a session was expected, not {answer:?}"),
            }
        }
    }

    /// Starts a task, which takes about as long as on a real server.
    fn begin(&mut self, Task { database, kind }: Task) {
        let (least, more, end) = match kind {
            TaskKind::Create(_) => (8_000, 30_000, TaskEnd::Fresh),
            TaskKind::Drop => (4_000, 10_000, TaskEnd::Done),
            TaskKind::Reset { .. } => (300, 700, TaskEnd::Fresh),
            _ => (100, 200, TaskEnd::Done),
        };
        let takes = least + self.random.below(more);
        self.after(takes, Next::Ends(database, end));
    }

    fn serve(&mut self, ticket: Ticket, database: DatabaseId) {
        let served = self.waiting.remove(&ticket).expect("it waits");
        self.longest_wait = self.longest_wait.max(self.now - served.since);
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.since < served.since) {
            waiting.passed += 1;
            self.most_passed = self.most_passed.max(waiting.passed);
        }
        let stays = self.leases.start + self.random.below(self.leases.len());
        self.after(stays, Next::Leaves { database, template: served.template });
    }

    /// Plays all events within the given simulated time.
    fn play(&mut self, microseconds: usize) {
        let ends = self.now + Duration::from_micros(microseconds as u64);
        while let Some(Reverse((time, _, next))) = self.next.pop().filter(|Reverse((time, ..))| *time < ends)
        {
            self.now = time;
            match next {
                Next::Comes { template } => self.come(template),
                Next::Leaves { database, template } => {
                    self.raise(Event::Disconnected { database, leaving: false });
                    let pause = self.random.below(200);
                    self.after(pause, Next::Comes { template });
                }
                Next::Ends(database, end) => {
                    let outcome = match end {
                        TaskEnd::Fresh => Outcome::Fresh(Proof::new()),
                        TaskEnd::Done => Outcome::Done,
                    };
                    self.raise(Event::Finished { database, outcome });
                }
                Next::Wakes => {
                    self.wakes = None;
                    self.raise(Event::Tick);
                }
            }
            self.work();
        }
    }

    fn come(&mut self, template: usize) {
        self.serial += 1;
        let (ticket, name) = (Ticket(self.serial), format!("name {}", self.serial));
        self.waiting.insert(ticket, Waiting { template, since: self.now, passed: 0 });
        let terms = Terms {
            template: template.to_string(),
            isolation: Isolation::Clone,
            linger: Duration::ZERO,
            retained: false,
        };
        let want = Want::Session { params: ParamsId(0), terms, explicit: Explicit::default(), reset: false };
        self.raise(Event::Request { ticket, name, want });
    }

    /// Starts all due tasks, as the maintenance workers would.
    fn work(&mut self) {
        loop {
            match self.table.next_task(self.now) {
                Ok(task) => self.begin(task),
                Err(Some(time)) => {
                    if self.wakes.is_none_or(|wakes| wakes > time) {
                        let time = time.max(self.now + Duration::from_micros(50));
                        self.serial += 1;
                        self.wakes = Some(time);
                        self.next.push(Reverse((time, self.serial, Next::Wakes)));
                    }
                    return;
                }
                Err(None) => return,
            }
        }
    }
}

/// Runs simulations with up to twelve databases and four templates, each with a random number of clients. `leases` is
/// the range of lease durations, in microseconds.
fn play_rooms(leases: &Range<usize>, check: impl Fn(&Room, usize)) {
    // Allow time for a hundred leases of each database.
    let microseconds = 100 * (leases.start + leases.end) / 2;
    for seed in 1..=40_u64 {
        let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut room = Room::new(seed, leases.clone());
        for template in 0..room.templates {
            for _ in 0..=room.random.below(16) {
                let comes = room.random.below(1_000_000);
                room.after(comes, Next::Comes { template });
            }
        }
        room.play(1_000_000 + microseconds);
        check(&room, room.table.capacity);
    }
}

/// While one database makes room for another, the others still pass from client to client. In this test, making room
/// takes no longer than a lease.
#[test]
fn client_is_overtaken_at_most_twice_capacity() {
    play_rooms(&(50_000..250_000), |room, capacity| {
        assert!(room.most_passed <= 2 * capacity, "{} in a room for {capacity}", room.most_passed);
    });
}

/// In this test, creating a copy takes much longer than a lease.
#[test]
fn clients_with_brief_leases_keep_no_other_waiting() {
    play_rooms(&(0..5_000), |room, capacity| {
        let waits = room.waiting.values().map(|waiting| room.now - waiting.since).max();
        let longest = waits.max(Some(room.longest_wait)).unwrap_or_default();
        assert!(longest < Duration::from_secs(1), "{longest:?} in a room for {capacity}");
    });
}
