//! Runs the command once on a new server, with a single fault or without faults.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gateway::{EventLog, Fault, PlannedFault, SessionEventKind};
use lease::{LeaseError, LeaseObserver, Leases};
use pgwire::SessionTranscript;
use server::AdminConnection;
use template::Provisioner;
use trials::{Contents, LeaseEnd, LeaseRecord, RunTime, TestEnd, TimeSpent};

use super::child::{self, CommandEnd};
use crate::failure::Failure;
use crate::output_copy::OutputCopy;
use crate::service::{ServeOptions, Service, leases_failed};
use crate::user_command;
use crate::variable::Variable;

/// Maximum time for the command's sessions to end after the command has ended.
const REST_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between checks for open sessions.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs the command. All of the trials' threads share the runner.
#[derive(Debug)]
pub(super) struct Runner<'a> {
    pub(super) provisioner: &'a Provisioner,
    pub(super) options: ServeOptions,
    pub(super) env: &'a [Variable],
    /// True once pgfresh has received a signal.
    pub(super) interrupted: &'a AtomicBool,
    /// Times of all runs so far.
    pub(super) time: Mutex<TimeSpent>,
}

/// Purpose of a run. For a run with a fault, the number selects one of the run's leases (counting from 1), which has
/// the fault from its start.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Records the statements and rows without faults.
    Record,
    /// Tries a fault.
    Try(u64, Fault),
    /// Repeats a run whose fault led to a finding.
    Confirm(u64, Fault),
}

/// A run of the command.
#[derive(Debug)]
pub(super) struct CommandRun {
    pub(super) end: CommandEnd,
    pub(super) time: Duration,
    pub(super) output: String,
    pub(super) leases: Vec<LeaseRecord>,
    /// The planned fault. `None` if its lease never began.
    pub(super) fault: Option<PlannedFault>,
    /// Databases that don't belong to a lease.
    pub(super) unleased: UnleasedDatabases,
    /// True if the transcript of a session was cut off at its maximum length.
    pub(super) is_cut: bool,
}

/// Databases that a run used although they don't belong to a lease.
#[derive(Debug, Default)]
pub(super) struct UnleasedDatabases {
    /// Databases created with SQL.
    pub(super) created: BTreeSet<String>,
    /// Databases that every server has, such as `postgres`.
    pub(super) always_there: BTreeSet<String>,
}

impl Runner<'_> {
    /// Runs the command on a new server.
    pub(super) fn run(
        &self,
        words: &[OsString],
        purpose: &Purpose,
        limit: Option<Duration>,
    ) -> Result<CommandRun, Failure> {
        let begun = Instant::now();
        let run = self.run_once(words, purpose, limit);
        let mut time = sys::lock(&self.time);
        let of_purpose: &mut RunTime = match purpose {
            Purpose::Record => &mut time.recording,
            Purpose::Try(..) => &mut time.trying,
            Purpose::Confirm(..) => &mut time.confirming,
        };
        of_purpose.runs += 1;
        of_purpose.seconds += begun.elapsed().as_secs_f64();
        run
    }

    fn run_once(
        &self,
        words: &[OsString],
        purpose: &Purpose,
        limit: Option<Duration>,
    ) -> Result<CommandRun, Failure> {
        let ends = Arc::<Mutex<Vec<LeaseEnd>>>::default();
        let options = ServeOptions { observer: Some(observer(&ends)), ..self.options.clone() };
        let started = self.provisioner.start(&|_| ())?;
        let service = Service::open(self.provisioner, started, options)?;
        let (transcription, log) = (service.gateway.transcribe(), service.gateway.follow());
        if let Purpose::Try(lease, fault) | Purpose::Confirm(lease, fault) = purpose {
            service.gateway.faults().plan(*lease, fault.clone());
        }
        let mut command = user_command::command(words, self.env, &service, &self.provisioner.installation);
        let output = OutputCopy::of(&mut command, false)?;
        let (begun, mut tests) = (Instant::now(), Vec::new());
        let end = child::run(command, limit, self.interrupted, || tests.extend(test_ends(&log)))?;
        let time = begun.elapsed();
        wait_for_sessions(&service);
        tests.extend(test_ends(&log));
        let transcripts = transcription.finish();
        let unread = end_leases(&service.leases, &transcripts);
        let fault = service.gateway.faults().planned().pop();
        let has_failed = service.leases.have_failed();
        service.close().stop()?;
        if has_failed {
            return Err(leases_failed());
        }
        let mut ends = std::mem::take(&mut *sys::lock(&ends));
        ends.extend(unread);
        let (leased, unleased) = split(transcripts, &ends);
        Ok(CommandRun {
            end,
            time,
            output: output.end(),
            is_cut: leased.iter().any(|transcript| transcript.is_cut),
            leases: trials::leases(&leased, ends, &tests),
            fault,
            unleased,
        })
    }
}

impl CommandRun {
    /// Takes the lease that the fault hit.
    pub(super) fn take_hit_lease(&mut self) -> Option<LeaseRecord> {
        let PlannedFault { database, since, .. } = self.fault.as_ref()?;
        let since = (*since)?;
        let has_begun = |lease: &LeaseRecord| lease.sessions.first().is_some_and(|began| *began <= since);
        let at = self.leases.iter().rposition(|lease| lease.database == *database && has_begun(lease))?;
        Some(self.leases.swap_remove(at))
    }
}

/// Returns an observer that reads each database at the end of its lease and appends the result to `ends`.
fn observer(ends: &Arc<Mutex<Vec<LeaseEnd>>>) -> LeaseObserver {
    let ends = Arc::clone(ends);
    LeaseObserver::new(move |database, session| {
        let at = Instant::now();
        let contents = session.and_then(read);
        sys::lock(&ends).push(LeaseEnd { database: database.to_owned(), at, contents });
    })
}

fn read(session: &mut AdminConnection) -> Option<Contents> {
    match Contents::read(session) {
        Ok(contents) => Some(contents),
        Err(error) => {
            tracing::debug!(%error, "could not read the rows of a database");
            None
        }
    }
}

/// Takes the ends of tests from the event log.
fn test_ends(log: &EventLog) -> impl Iterator<Item = TestEnd> {
    let (events, _) = log.take();
    events.into_iter().filter_map(|event| match event.kind {
        SessionEventKind::TestEnded { name } => Some(TestEnd {
            database: event.database.to_string(),
            at: event.at,
            test: name.map(|name| name.to_string()),
        }),
        _ => None,
    })
}

/// Waits until the gateway has noticed that the command's sessions have ended.
fn wait_for_sessions(service: &Service) {
    let begun = Instant::now();
    while service.gateway.idle().is_none() && begun.elapsed() < REST_TIMEOUT {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Ends all leases, so that the observer reads their rows. For each lease that can't be released, returns a lease end
/// without rows.
fn end_leases(leases: &Leases, transcripts: &[SessionTranscript]) -> Vec<LeaseEnd> {
    let names: BTreeSet<_> = transcripts.iter().map(|transcript| &transcript.database).collect();
    let mut unread = Vec::new();
    for name in names.into_iter().filter(|name| leases.leased(name).is_some()) {
        match leases.release(name) {
            // If the lease has just ended on its own, the observer has already seen it.
            Ok(()) | Err(LeaseError::NotLeased(_)) => {}
            Err(_) => unread.push(LeaseEnd { database: name.clone(), at: Instant::now(), contents: None }),
        }
    }
    unread
}

/// Returns the transcripts of leases, and the names of the databases in all other transcripts.
fn split(
    transcripts: Vec<SessionTranscript>,
    ends: &[LeaseEnd],
) -> (Vec<SessionTranscript>, UnleasedDatabases) {
    let is_leased = |transcript: &SessionTranscript| {
        ends.iter().any(|end| end.database == transcript.database && end.at >= transcript.began)
    };
    let (leased, others): (Vec<_>, Vec<_>) = transcripts.into_iter().partition(is_leased);
    let others = others.into_iter().map(|transcript| transcript.database);
    let (always_there, created) = others.partition(|database| Leases::is_always_there(database));
    (leased, UnleasedDatabases { created, always_there })
}
