//! Profiling a service of ours: what the server shows, and exactly what each session ran.

use std::ffi::OsString;

use gateway::{EventLog, SessionEvent, SessionEventKind};
use profile::{Circumstances, CompletedStatement, Feed, Pace, Profile, Recorder, Target};

use crate::failure::Failure;
use crate::service::Service;
use crate::user_command;

/// How many new databases are asked for, to see what one costs.
const TRIALS: u32 = 8;

/// A service that is watched.
pub(crate) struct Watch {
    recorder: Recorder,
}

impl Watch {
    pub(crate) fn begin(service: &Service) -> Result<Self, Failure> {
        Ok(Self {
            recorder: Recorder::start(
                &Target::of(&service.server),
                Pace::Calm,
                Some(feed(service.follow())),
            )?,
        })
    }

    /// Stops watching. `command` is what was run meanwhile.
    pub(crate) fn end(self, service: &Service, command: &[OsString]) -> Profile {
        let recording = self.recorder.stop();
        let circumstances = Circumstances {
            ours: true,
            command: Some(user_command::words(command)),
            boot: Some(service.times.boot.as_secs_f64()),
            template: Some(service.times.template.as_secs_f64()),
            fresh_database: fresh_database(service),
            waiting_cost: None,
        };
        Profile::new(recording, circumstances)
    }
}

/// Tells of what the gateway takes down.
fn feed(log: EventLog) -> Feed {
    Box::new(move |exact, statements| {
        let (entries, lost) = log.take();
        for SessionEvent { session, database, at, kind } in &entries {
            match kind {
                SessionEventKind::Began { waited, backend } => exact.began(*waited, database, *backend),
                SessionEventKind::Requested => exact.asked(*session, *at),
                SessionEventKind::Ended => exact.left(*session, *at, statements),
                SessionEventKind::TestEnded { name } => exact.ended(database, name.as_deref()),
                SessionEventKind::Completed { statement, runs, values, rows, rests } => {
                    let (runs, values, rows, rests) = (*runs, *values, *rows, *rests);
                    let done = CompletedStatement {
                        session: *session,
                        database,
                        statement,
                        runs,
                        values,
                        rows,
                        rests,
                        at: *at,
                    };
                    exact.done(done, statements);
                }
            }
        }
        if lost > 0 {
            exact.miss();
        }
    })
}

/// What the first session in a new database costs a client, in seconds: the mean of some in a row, so that it counts what
/// making one takes where none is ready any more.
fn fresh_database(service: &Service) -> Option<f64> {
    let times = (0..TRIALS).map(|trial| {
        let name = format!("profile_{}_{trial}", std::process::id());
        Target::at(&service.address(&name).url()).ok()?.time_of_a_session()
    });
    Some(times.sum::<Option<f64>>()? / f64::from(TRIALS))
}
