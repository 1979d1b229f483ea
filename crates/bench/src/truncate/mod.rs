//! The `truncate` benchmark: runs a test that commits a few rows, followed by one of several ways to clean up.
//!
//! Many suites clean up with TRUNCATE, which is slow on a disk even with `synchronous_commit=off`. The benchmark shows
//! how slow TRUNCATE is and how much the alternatives gain.

mod report;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use ::report::{Contender, PhaseTimes, Progress, Report, Rounds, Timed, mean_cycle};
use server::{AdminConnection, Server, SessionError};
use template::ServerOptions;

use crate::fixture::{DEFAULT_TABLES, Fixture, MANUAL_DATABASE, NO_LINGER, ROLLBACK_ISOLATION, statements};
use crate::setup::{Setup, Setups};
use crate::{BenchError, Measured, time_and_report};

/// Number of rounds before the measurement, to fill the pool and the page cache.
const WARM_UP: u32 = 1;
/// How long each turn repeats the test, which runs at least once.
const SPAN: Duration = Duration::from_millis(400);
/// A test's statements, each of which commits by itself. Source: a medium-sized suite whose tests create a handful of
/// fixtures.
const TEST: [&str; 5] = [
    "INSERT INTO t3 (name) SELECT 'x' || n FROM generate_series(1, 10) n",
    "INSERT INTO t7 (name) SELECT 'x' || n FROM generate_series(1, 10) n",
    "INSERT INTO t11 (name) SELECT 'x' || n FROM generate_series(1, 10) n",
    "INSERT INTO t19 (name) SELECT 'x' || n FROM generate_series(1, 10) n",
    "INSERT INTO t27 (name) SELECT 'x' || n FROM generate_series(1, 10) n",
];

/// The benchmark's options. The template in the server options is ignored, because all servers have the same 30 tables.
#[derive(Debug)]
pub struct Truncate {
    /// Options for pgfresh's own server. The other servers use the same installation.
    pub server_options: ServerOptions,
    /// The cache directory, if the user specified one.
    pub cache: Option<PathBuf>,
    /// A pgfresh executable that can act as a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    /// A directory on the disk to test. Defaults to where pgfresh would put a server's data on disk.
    pub disk: Option<PathBuf>,
}

/// How a test cleans up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CleanUp {
    Truncate,
    Delete,
    Rollback,
}

impl CleanUp {
    fn name(self) -> &'static str {
        match self {
            Self::Truncate => "TRUNCATE",
            Self::Delete => "DELETE",
            Self::Rollback => "rolled back by hand",
        }
    }

    /// Runs a test and cleans up after it.
    fn test(self, session: &mut AdminConnection) -> Result<(), SessionError> {
        let ends = self == Self::Rollback;
        let begin = ends.then_some("BEGIN");
        for statement in begin.into_iter().chain(TEST) {
            session.query(statement)?;
        }
        session.query(&self.statement()).map(drop)
    }

    fn statement(self) -> String {
        let names = (1..=DEFAULT_TABLES).map(|table| format!("t{table}"));
        match self {
            Self::Truncate => {
                format!("TRUNCATE {} RESTART IDENTITY CASCADE", names.collect::<Vec<_>>().join(", "))
            }
            // Empty each table before the table it refers to.
            Self::Delete => format!("DELETE FROM {}", names.rev().collect::<Vec<_>>().join("; DELETE FROM ")),
            Self::Rollback => "ROLLBACK".to_owned(),
        }
    }
}

/// Combinations of setup and cleanup to run on servers without pgfresh.
const FOREIGN_COMBINATIONS: [(Setup, CleanUp); 6] = [
    (Setup::Normal, CleanUp::Truncate),
    (Setup::Normal, CleanUp::Delete),
    (Setup::Normal, CleanUp::Rollback),
    (Setup::Tuned, CleanUp::Truncate),
    (Setup::Tuned, CleanUp::Rollback),
    (Setup::Tmpfs, CleanUp::Truncate),
];
/// Ways to clean up by hand on pgfresh's server.
const MANUAL_CLEAN_UPS: [CleanUp; 2] = [CleanUp::Truncate, CleanUp::Rollback];
/// Names of the contenders that use a fresh database for each test and rollback isolation.
const FRESH: &str = "pgfresh: a fresh database for each test";
const ISOLATED: &str = "pgfresh: rollback isolation";

fn contender_name(who: &str, clean_up: CleanUp) -> String {
    format!("{who}: {}", clean_up.name())
}

impl Truncate {
    /// Measures in `rounds` rounds how long a test and its cleanup take.
    ///
    /// # Errors
    /// Returns an error if there are no results at all, for example because the disk is full.
    pub fn measure(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let Self { server_options, cache, program, disk } = self;
        let setups = Setups { server_options, cache: cache.as_deref(), program, disk: disk.as_deref() };
        let needed = [Setup::Normal, Setup::Tuned, Setup::Tmpfs];
        let (servers, notes) = setups.start_all(&needed, |server| {
            let mut session = server.session("postgres")?;
            statements(DEFAULT_TABLES).iter().try_for_each(|sql| Ok(session.query(sql).map(drop)?))
        })?;
        let fixture = Fixture::open(server_options, cache.as_deref(), program.clone(), DEFAULT_TABLES)?;
        let mut contenders = foreign_contenders(&servers)?;
        contenders.extend(own_contenders(&fixture)?);
        let report = |timed: &[Timed]| -> Report {
            let mut report = report::of(timed);
            report.add_notes(&notes);
            fixture.describe(&mut report);
            report
        };
        let measured = time_and_report(Rounds::new(WARM_UP, rounds), contenders, progress, &report);
        fixture.close();
        Ok(measured)
    }
}

fn foreign_contenders(servers: &[(Setup, Server)]) -> Result<Vec<Contender<'_, BenchError>>, BenchError> {
    let mut contenders = Vec::new();
    for (setup, clean_up) in FOREIGN_COMBINATIONS {
        let Some((_, server)) = servers.iter().find(|(other, _)| *other == setup) else { continue };
        contenders.push(by_hand(setup.name(), server, "postgres", clean_up)?);
    }
    Ok(contenders)
}

fn own_contenders(fixture: &Fixture) -> Result<Vec<Contender<'_, BenchError>>, BenchError> {
    let mut contenders = Vec::new();
    for clean_up in MANUAL_CLEAN_UPS {
        contenders.push(by_hand("pgfresh run", &fixture.server, MANUAL_DATABASE, clean_up)?);
    }
    let each = |name: &str, option| -> Result<(), BenchError> {
        let mut client = fixture.gateway().connect(name, &[option])?;
        for statement in TEST {
            client.query(statement)?;
        }
        Ok(client.close()?)
    };
    contenders.push(Contender::new(FRESH, move || {
        mean_cycle("a test", SPAN, || each(&fixture.new_name(), NO_LINGER))
    }));
    contenders.push(Contender::new(ISOLATED, move || {
        mean_cycle("a test", SPAN, || each("isolated", ROLLBACK_ISOLATION))
    }));
    Ok(contenders)
}

/// Runs tests on one open connection. Before each turn is measured, a CHECKPOINT writes the pages dirtied by earlier
/// turns.
fn by_hand<'a>(
    who: &str,
    server: &'a Server,
    database: &str,
    clean_up: CleanUp,
) -> Result<Contender<'a, BenchError>, BenchError> {
    let session = RefCell::new(server.session(database)?);
    Ok(Contender::new(contender_name(who, clean_up), move || -> Result<PhaseTimes, BenchError> {
        let mut session = session.borrow_mut();
        session.query("CHECKPOINT")?;
        mean_cycle("a test", SPAN, || Ok(clean_up.test(&mut session)?))
    }))
}
