//! Measures leases for tests that open connection pools, with one or more sessions per lease and one or more workers.
//! Compares them with databases created by hand and with a server that does nothing.

use std::sync::Mutex;
use std::time::Instant;

use report::{Contender, Quantity, Report, Sample, Table, Timed, Unit};
use server::AdminConnection;
use sys::lock;

use super::echo::EchoServer;
use super::sustained::run_workers;
use super::{QUERY, Strategy, add_goals};
use crate::BenchError;
use crate::client::Address;
use crate::fixture::{Fixture, NO_LINGER, ROLLBACK_ISOLATION};
use crate::goal::{Goal, Limit};
use crate::summary::{add_samples, rate, ratio};

const SESSIONS: [usize; 3] = [1, 3, 10];
const WORKERS: [usize; 3] = [1, 4, 16];
/// Maximum duration of a later session relative to its lease's first session.
const MOST_LATER: f64 = 1.5;

/// A way to get a database and open sessions there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Clone,
    Rollback,
    ByHand,
    Floor,
}

impl Way {
    /// Returns the ways to get a database with `sessions` sessions. Leases in rollback isolation only allow a
    /// single session.
    fn all(sessions: usize) -> impl Iterator<Item = Self> {
        let all = [Self::Clone, Self::Rollback, Self::ByHand, Self::Floor];
        all.into_iter().filter(move |way| *way != Self::Rollback || sessions == 1)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Clone => "pgfresh, clone",
            Self::Rollback => "pgfresh, rollback",
            Self::ByHand => "by hand: CREATE DATABASE",
            Self::Floor => "the floor: an echo",
        }
    }
}

/// A contender, with the time to start each session and run its first query.
pub(super) struct Line {
    way: Way,
    sessions: usize,
    workers: usize,
    first: Mutex<Sample>,
    later: Mutex<Sample>,
}

impl Line {
    pub(super) fn all() -> Vec<Self> {
        let pools = SESSIONS.into_iter().flat_map(|sessions| WORKERS.map(|workers| (sessions, workers)));
        pools
            .flat_map(|(sessions, workers)| {
                Way::all(sessions).map(move |way| Self::new(way, sessions, workers))
            })
            .collect()
    }

    fn new(way: Way, sessions: usize, workers: usize) -> Self {
        let sample = |name: &str| Mutex::new(Sample::new(name, Unit::Seconds));
        Self { way, sessions, workers, first: sample("first"), later: sample("later") }
    }

    fn name(&self) -> String {
        self.name_with(self.way)
    }

    /// Returns the name of the contender with the same numbers of sessions and workers that gets its
    /// databases this `way`.
    fn name_with(&self, way: Way) -> String {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let Self { sessions, workers, .. } = *self;
        format!("{sessions} session{}, {workers} worker{}, {}", plural(sessions), plural(workers), way.name())
    }

    /// Discards the warm-up's values.
    pub(super) fn discard_warm_up(&self) {
        for sample in [&self.first, &self.later] {
            let mut sample = lock(sample);
            *sample = Sample::new(sample.name(), Unit::Seconds);
        }
    }

    /// Runs `create` and opens all of a lease's sessions in sequence. The first session's duration includes `create`.
    fn open_pool(
        &self,
        address: &Address,
        name: &str,
        parameters: &[(&str, &str)],
        create: impl FnOnce() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let mut begun = Instant::now();
        create()?;
        let mut clients = Vec::with_capacity(self.sessions);
        for number in 0..self.sessions {
            let mut client = address.connect(name, parameters)?;
            client.query(QUERY)?;
            let sample = if number == 0 { &self.first } else { &self.later };
            lock(sample).push(begun.elapsed().as_secs_f64()).expect("a duration is finite");
            clients.push(client);
            begun = Instant::now();
        }
        clients.into_iter().try_for_each(|client| Ok(client.close()?))
    }

    fn open_by_hand(&self, fixture: &Fixture, admin: &mut AdminConnection) -> Result<(), BenchError> {
        let name = fixture.new_name();
        let strategy = Strategy::best(fixture.major());
        self.open_pool(&fixture.socket(), &name, &[], || strategy.create(admin, &name))?;
        admin.query(&format!("DROP DATABASE {name}"))?;
        Ok(())
    }
}

pub(super) fn contenders<'a>(
    fixture: &'a Fixture,
    echo: &'a EchoServer,
    lines: &'a [Line],
) -> Result<Vec<Contender<'a, BenchError>>, BenchError> {
    let contender = |line: &'a Line| {
        let through = move |address: &Address, parameters| {
            line.open_pool(address, &fixture.new_name(), parameters, || Ok(()))
        };
        let workers = line.workers;
        Ok(match line.way {
            Way::Clone => Contender::new(line.name(), move || {
                run_workers(&mut vec![(); workers], &|()| through(&fixture.gateway(), &[NO_LINGER]))
            }),
            Way::Rollback => Contender::new(line.name(), move || {
                run_workers(&mut vec![(); workers], &|()| through(&fixture.gateway(), &[ROLLBACK_ISOLATION]))
            }),
            Way::Floor => Contender::new(line.name(), move || {
                run_workers(&mut vec![(); workers], &|()| through(&echo.address(), &[]))
            }),
            Way::ByHand => {
                let mut admins = (0..workers).map(|_| fixture.admin()).collect::<Result<Vec<_>, _>>()?;
                Contender::new(line.name(), move || {
                    run_workers(&mut admins, &|admin| line.open_by_hand(fixture, admin))
                })
            }
        })
    };
    lines.iter().map(contender).collect()
}

pub(super) fn report(timed: &[Timed], lines: &[Line]) -> Report {
    let mut report = Report::new("Databases whose tests open pools");
    let columns =
        ["in a second", "first session", "first p99", "later sessions", "later p99", "clone's × these"];
    let title = "A database, its sessions and a query in each, disposed of";
    let mut table = Table::numbers(title, "what", columns);
    for line in lines {
        let (name, first, later) = (line.name(), lock(&line.first), lock(&line.later));
        table.add_row([
            name.clone().into(),
            rate(timed, &name).into(),
            first.median().into(),
            first.percentile(99.0).into(),
            later.median().into(),
            later.percentile(99.0).into(),
            ratio(timed, &name, &line.name_with(Way::Clone)).into(),
        ]);
    }
    report.add_table(table);
    add_samples(&mut report, timed);
    add_goals(&mut report, lines.iter().filter(|line| line.has_goal()).map(Line::goal));
    report.add_notes([
        "The sessions of a database open one after the other, and close together. By hand, the first one includes \
         CREATE DATABASE.",
        "Through the gateway and for the floor: over TCP, with a password. By hand: over the server's own unix socket, \
         with a session that is open already for the statements.",
        "Leases end with their last session. A lease in rollback isolation has one session. A lease with a server of its \
         own is not measured.",
    ]);
    report
}

impl Line {
    /// Returns true if the goal for later sessions applies. With several workers, it doesn't, because their sessions
    /// compete for CPUs.
    fn has_goal(&self) -> bool {
        self.way == Way::Clone && self.sessions > 1 && self.workers == 1
    }

    fn goal(&self) -> Goal {
        let (first, later) = (lock(&self.first).median(), lock(&self.later).median());
        Goal {
            what: format!("later sessions of {}, × the first", self.sessions).into(),
            limit: Limit::AtMost(Quantity::new(MOST_LATER, Unit::Ratio)),
            measured: first
                .zip(later)
                .map(|(first, later)| Quantity::new(later.value / first.value, Unit::Ratio)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_have_distinct_names_and_one_rollback_session() {
        let lines = Line::all();
        let names: std::collections::BTreeSet<_> = lines.iter().map(Line::name).collect();
        assert_eq!((names.len(), lines.len()), (30, 30));
        assert!(names.contains("10 sessions, 1 worker, by hand: CREATE DATABASE"));
        assert!(lines.iter().all(|line| line.way != Way::Rollback || line.sessions == 1));
        assert_eq!(lines.iter().filter(|line| line.has_goal()).count(), 2);
    }
}
