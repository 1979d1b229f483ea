//! `pgfresh profile`: profiles a server that pgfresh didn't start.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use profile::{Circumstances, Pace, Profile, Recorder, Target};

use crate::cli;
use crate::context::Context;
use crate::failure::Failure;
use crate::foreground::{self, Event, Events};
use crate::notice::notice;
use crate::report_file;
use crate::user_command;

/// Interval between checks that the server is still running.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) fn execute(context: &Context, arguments: &cli::Profile) -> Result<ExitCode, Failure> {
    report_file::expect_writable(&arguments.report)?;
    let target = Target::from_url(&arguments.url)?;
    let recorder = Recorder::start(&target, Pace::Calm, None)?;
    let (code, command) = if let Some((program, rest)) = arguments.command.split_first() {
        let mut command = Command::new(program);
        command.args(rest);
        (foreground::run(None, command)?.code, Some(user_command::to_line(&arguments.command)))
    } else {
        if !context.verbosity.is_quiet() && arguments.r#for.is_none() {
            notice!("pgfresh: watching {}; Ctrl-C ends it", target.location());
        }
        wait(&recorder, arguments.r#for)?;
        (0, None)
    };
    let is_gone = recorder.has_ended();
    let profile = Profile::new(recorder.stop()?, Circumstances { command, ..Circumstances::default() });
    let report = profile.report();
    let written = report_file::publish(
        context.verbosity.is_quiet() || arguments.json,
        &|columns| profile.summary(columns),
        &report,
        &|| profile.to_html(),
        &arguments.report,
    );
    let text = if arguments.json { format!("{}\n", report.to_json()) } else { String::new() };
    report_file::print_after_files(written, text).map_err(|failure| failure.after_command(code))?;
    if is_gone && code == 0 {
        return Err(Failure::new("the server went away while it was watched")
            .detail("What was seen until then is shown.".to_owned()));
    }
    Ok(ExitCode::from(code))
}

/// Waits until a signal arrives, `length` has elapsed, or the server shuts down.
fn wait(recorder: &Recorder, length: Option<Duration>) -> Result<(), Failure> {
    let mut events = Events::listen()?;
    let early = events.deliver_signals()?;
    let begun = Instant::now();
    let mut over = !early.is_empty();
    while !over && !recorder.has_ended() {
        let left = length.map(|length| length.saturating_sub(begun.elapsed()));
        let event = events.next_within(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL)));
        over = matches!(event, Some(Event::Signal(_))) || left.is_some_and(|left| left.is_zero());
    }
    Ok(())
}
