//! Profiles pgfresh's own service, combining the server's statistics with the exact statements of each session.

use std::ffi::OsString;
use std::time::Duration;

use gateway::{EventLog, SessionEvent, SessionEventKind};
use profile::{Circumstances, CompletedStatement, Feed, LingerWait, Pace, Profile, Recorder, Target};

use crate::failure::Failure;
use crate::service::Service;
use crate::user_command;

/// Number of new databases to create when measuring the cost of a new database: after a short suite, and after a long
/// one. The measurement may take a hundredth of the suite's time.
const TRIALS: [u32; 2] = [4, 8];
/// Minimum duration of a suite that counts as long.
const LONG: Duration = Duration::from_secs(15);

/// A profile that is being recorded.
pub(crate) struct Watch {
    recorder: Recorder,
}

impl Watch {
    pub(crate) fn begin(service: &Service) -> Result<Self, Failure> {
        Ok(Self {
            recorder: Recorder::start(
                &Target::of(&service.server),
                Pace::Calm,
                Some(feed(service.gateway.follow())),
            )?,
        })
    }

    /// Ends the profile. `command` is the command that ran while the profile was recorded, and `linger` is the time
    /// that it would have saved without lingering.
    pub(crate) fn end(
        self,
        service: &Service,
        command: &[OsString],
        linger: Option<LingerWait>,
    ) -> Result<Profile, Failure> {
        let recording = self.recorder.stop()?;
        let [few, many] = TRIALS;
        let trials = if recording.seconds < LONG.as_secs_f64() { few } else { many };
        let circumstances = Circumstances {
            is_own_server: true,
            command: Some(user_command::to_line(command)),
            boot: Some(service.times.boot.as_secs_f64()),
            template: Some(service.times.template.as_secs_f64()),
            linger,
            ..Circumstances::default()
        };
        let profile = Profile::new(recording, circumstances);
        // The cost of a new database only matters for suites with replaceable databases.
        let cost = profile.has_replaceable_databases().then(|| fresh_database(service, trials)).flatten();
        Ok(match cost {
            Some(cost) => profile.with_fresh_database(cost),
            None => profile,
        })
    }
}

/// Forwards the gateway's events to the profile.
fn feed(log: EventLog) -> Feed {
    Box::new(move |exact, statements| {
        let (entries, lost) = log.take();
        for SessionEvent { session, database, at, kind } in &entries {
            match kind {
                SessionEventKind::Began { waited, user, resets, backend } => {
                    if *resets {
                        exact.database_reset(database);
                    }
                    exact.session_started(*session, *waited, user, database, *backend);
                }
                SessionEventKind::Requested => exact.request_sent(*session, *at),
                SessionEventKind::Ended => exact.session_ended(*session, *at, statements),
                SessionEventKind::TestEnded { name } => exact.test_ended(database, name.as_deref()),
                SessionEventKind::Completed { statement, runs, values, rows, idle_in_transaction: rests } => {
                    let (runs, values, rows, rests) = (*runs, *values, *rows, *rests);
                    let done = CompletedStatement {
                        session: *session,
                        database,
                        statement,
                        runs,
                        values,
                        rows,
                        idle_in_transaction: rests,
                        at: *at,
                    };
                    exact.statement_completed(done, statements);
                }
            }
        }
        if lost > 0 {
            exact.mark_incomplete();
        }
    })
}

/// Measures how long the first session in a new database takes to start, in seconds. The first half of the trials
/// doesn't count, because these trials use databases that are already prepared. In the second half, pgfresh creates
/// the databases while the sessions start.
fn fresh_database(service: &Service, trials: u32) -> Option<f64> {
    let times = (0..trials).map(|trial| {
        let name = format!("profile_{}_{trial}", std::process::id());
        Target::from_url(&service.address(&name).url()).ok()?.measure_session_start()
    });
    let times = times.collect::<Option<Vec<_>>>()?;
    let later = trials / 2;
    Some(times.iter().rev().take(later as usize).sum::<f64>() / f64::from(later))
}
