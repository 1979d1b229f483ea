//! Runs the migration command on a lease of the older template, and transcribes its sessions.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gateway::{Transcription, WaitingSession};
use lease::Isolation;
use pgwire::SessionTranscript;
use server::{AdminConnection, Server, printable};

use super::base::Base;
use super::command_runner::CommandRunner;
use super::migration_command::MigrationCommand;
use crate::context::Context;
use crate::failure::Failure;
use crate::foreground::Ended;
use crate::lifecycle;
use crate::notice::notice;
use crate::service::{ServeOptions, Service, leases_failed};
use crate::user_command::NO_SESSION;
use crate::variable::Variable;

/// Interval between checks for statements that wait for a lock.
const INTERVAL: Duration = Duration::from_secs(1);
/// Minimum wait before a waiting statement is reported.
const LONG: Duration = Duration::from_secs(3);
/// How long a lease outlives its last session: longer than any run takes.
const WHOLE_RUN: Duration = Duration::from_hours(24);
/// Maximum wait for running statements after the command has ended.
const REST_TIMEOUT: Duration = Duration::from_mins(1);
/// The wait ends after this time without a statement.
const QUIET: Duration = Duration::from_secs(1);
/// Interval between checks for running statements.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A completed run of a migration command.
#[derive(Debug)]
pub(super) struct ObservedRun {
    pub(super) transcripts: Vec<SessionTranscript>,
    pub(super) ended: Ended,
    /// Sentences about statements that waited for another of the migration's sessions.
    pub(super) waits: Vec<String>,
}

impl ObservedRun {
    /// Starts a server with the older template, runs the command, and stops the server.
    pub(super) fn perform(
        context: &Context,
        base: &Base,
        runner: &CommandRunner,
        command: &MigrationCommand,
        env: &[Variable],
    ) -> Result<Self, Failure> {
        let mut options = ServeOptions::new(base.context.settings()?)?;
        // A rollback, or the end of a lease, would undo the migration between two sessions.
        options.isolation = Isolation::Clone;
        options.linger = WHOLE_RUN;
        let provisioner = &base.provisioner;
        let service = lifecycle::serve(context, provisioner, options)?;
        // A migration tool may drop the database before connecting to it, so lease the database now.
        service.leases.lease(Isolation::Clone, Some(&service.database), None)?;
        let transcription = service.gateway.transcribe();
        let address = service.address(&service.database);
        let mut command = command.at(&address, env, &provisioner.installation);
        service.describe_to(&mut command);
        let (ended, waits) = watched(&service, &transcription, || runner.run(&service.server, command));
        let ended = ended?;
        if !ended.interrupted {
            wait_for_statements(context, &service, &transcription);
        }
        let transcripts = transcription.finish();
        let (has_session, has_failed) = (service.leases.has_had_clients(), service.leases.have_failed());
        lifecycle::stop(context, service)?;
        if has_failed {
            return Err(leases_failed());
        }
        if !has_session && !context.verbosity.is_quiet() {
            notice!("pgfresh: {NO_SESSION}");
        }
        Ok(Self { transcripts, ended, waits })
    }
}

/// Waits for statements from processes that the command left running in the background.
fn wait_for_statements(context: &Context, service: &Service, transcription: &Transcription) {
    let begun = Instant::now();
    let (mut busy, mut is_announced) = (begun, false);
    while service.gateway.idle().is_none() && begun.elapsed() < REST_TIMEOUT {
        if !transcription.waiting().is_empty() {
            busy = Instant::now();
        } else if busy.elapsed() > QUIET {
            break;
        }
        if begun.elapsed() > QUIET && !is_announced && !context.verbosity.is_quiet() {
            notice!("pgfresh: the command has ended; waiting for its statements in the background");
            is_announced = true;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Calls `run`. In the meantime, reports statements that wait for another session. Returns the result and the reports.
fn watched<T>(
    service: &Service,
    transcription: &Arc<Transcription>,
    run: impl FnOnce() -> T,
) -> (T, Vec<String>) {
    let waits = Mutex::new(Vec::new());
    let (ended, end) = channel::<()>();
    let (server, seen) = (&service.server, &waits);
    let result = thread::scope(|scope| {
        scope.spawn(move || {
            let mut session = None;
            while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for waiting in transcription.waiting() {
                    report_wait(server, &mut session, &waiting, seen);
                }
            }
        });
        let result = run();
        drop(ended);
        result
    });
    (result, waits.into_inner().unwrap_or_default())
}

/// Reports a session's statement, once, if it has waited for a lock longer than [`LONG`].
fn report_wait(
    server: &Server,
    session: &mut Option<AdminConnection>,
    waiting: &WaitingSession,
    waits: &Mutex<Vec<String>>,
) {
    if waiting.running.since.elapsed() < LONG {
        return;
    }
    let Some(holder) = holder_of(server, session, waiting.backend) else { return };
    let text = report::cut(&waiting.running.statement, 80);
    let sentence = format!("{} waits for a lock of another session: {holder}", printable(&text));
    let mut waits = sys::lock(waits);
    if !waits.contains(&sentence) {
        notice!("pgfresh: {sentence}");
        waits.push(sentence);
    }
}

/// Describes the session that `backend` waits for. Returns `None` if `backend` doesn't wait or the server
/// doesn't respond.
fn holder_of(server: &Server, session: &mut Option<AdminConnection>, backend: i32) -> Option<String> {
    let sql = format!(
        "SELECT a.state, a.query FROM unnest(pg_catalog.pg_blocking_pids({backend})) AS b(pid) \
         JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid LIMIT 1"
    );
    if session.is_none() {
        *session = server.session("postgres").ok();
    }
    let Ok(rows) = session.as_mut()?.query(&sql) else {
        *session = None;
        return None;
    };
    let row = rows.into_iter().next()?;
    let [state, query] = &row[..] else { return None };
    let query = report::cut(query.as_deref().unwrap_or_default(), 80);
    Some(format!("{} ({})", printable(&query), state.as_deref().unwrap_or("unknown")))
}
