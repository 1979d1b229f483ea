//! `pgfresh profile` and `pgfresh run --profile`: watching a server, and telling what was seen.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use gateway::{EventLog, SessionEvent, SessionEventKind};
use profile::{Circumstances, CompletedStatement, Feed, Profile, Recorder, Target};
use report::Report;

use crate::cli::{self, Options};
use crate::failure::Failure;
use crate::foreground::{self, Event, Events};
use crate::output::say;
use crate::report_file::{ReportFile, could_not_write};
use crate::service::Service;

/// Where GitHub wants Markdown that it shows beside a job. Source: its manual, "Workflow commands".
const STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";
/// How many new databases are asked for, to see what one costs.
const TRIALS: u32 = 8;

/// Between two questions whether the server is still there.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Watches somebody else's server.
pub(super) fn execute(options: &Options, arguments: &cli::Profile) -> Result<ExitCode, Failure> {
    let target = Target::at(&arguments.url)?;
    let recorder = Recorder::start(&target, None)?;
    let (code, command) = if let Some((program, rest)) = arguments.command.split_first() {
        let mut command = Command::new(program);
        command.args(rest);
        (foreground::run(None, command)?, Some(words(&arguments.command)))
    } else {
        if !options.quiet && arguments.r#for.is_none() {
            eprintln!("pgfresh: watching {}; Ctrl-C ends it", target.place());
        }
        wait(&recorder, arguments.r#for)?;
        (0, None)
    };
    let profile = Profile::new(recorder.stop(), Circumstances { command, ..Circumstances::default() });
    let report = profile.report();
    if arguments.json {
        say!("{}", report.to_json());
    }
    tell(options.quiet || arguments.json, &profile, &report, &|| profile.to_html(), &arguments.report)?;
    Ok(ExitCode::from(code))
}

/// Until a signal comes, the time is over, or the server is gone.
fn wait(recorder: &Recorder, length: Option<Duration>) -> Result<(), Failure> {
    let mut events = Events::listen()?;
    let early = events.hear();
    let begun = Instant::now();
    let mut over = !early.is_empty();
    while !over && !recorder.has_ended() {
        let left = length.map(|length| length.saturating_sub(begun.elapsed()));
        let heard = events.next_within(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL)));
        over = matches!(heard, Some(Event::Signal(_))) || left.is_some_and(|left| left.is_zero());
    }
    Ok(())
}

/// The command on one line, for people who paste it elsewhere: without the passwords of URLs.
pub(super) fn words(command: &[OsString]) -> String {
    command.iter().map(|word| without_password(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn without_password(word: &str) -> String {
    let known = word.split_once("://").and_then(|(scheme, rest)| {
        let (user, host) = rest.split_once('@')?;
        let (name, _) = user.split_once(':')?;
        Some(format!("{scheme}://{name}:…@{host}"))
    });
    known.unwrap_or_else(|| word.to_owned())
}

/// A service that is watched.
pub(super) struct Watch {
    recorder: Recorder,
}

impl Watch {
    pub(super) fn begin(service: &Service) -> Result<Self, Failure> {
        Ok(Self { recorder: Recorder::start(&Target::of(&service.server), Some(feed(service.follow())))? })
    }

    /// Stops watching. `command` is what was run meanwhile.
    pub(super) fn end(self, service: &Service, command: &[OsString]) -> Profile {
        let recording = self.recorder.stop();
        let circumstances = Circumstances {
            ours: true,
            command: Some(words(command)),
            boot: Some(service.times.boot.as_secs_f64()),
            template: Some(service.times.template.as_secs_f64()),
            fresh_database: fresh_database(service),
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
                SessionEventKind::Began { waited, backend } => exact.began(*waited, *backend),
                SessionEventKind::Requested => exact.asked(*session, *at),
                SessionEventKind::Ended => exact.left(*session, *at, statements),
                SessionEventKind::Completed { statement, runs, rests } => {
                    let (runs, rests) = (*runs, *rests);
                    let done =
                        CompletedStatement { session: *session, database, statement, runs, rests, at: *at };
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

/// Says the most important on standard error, and all of it where it is wanted. `page` is the report in HTML.
pub(super) fn tell(
    quiet: bool,
    summary: &dyn Display,
    report: &Report,
    page: &dyn Fn() -> String,
    files: &[ReportFile],
) -> Result<(), Failure> {
    if !quiet {
        eprint!("\n{summary}");
    }
    for file in files {
        file.write(report, page)?;
    }
    if let Some(path) = env::var_os(STEP_SUMMARY).filter(|path| !path.is_empty()) {
        let path = Path::new(&path);
        let file = OpenOptions::new().append(true).create(true).open(path);
        let written = file.and_then(|mut file| file.write_all(report.to_markdown().as_bytes()));
        written.map_err(|error| could_not_write(path, &error))?;
    }
    Ok(())
}
