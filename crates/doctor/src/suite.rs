//! Runs the user's test suite.
//!
//! The suite runs on a durable server at the examined path. The examination either observes the suite, as
//! `pgfresh run --profile` does, or only measures how long the suite takes.

use std::error::Error;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use profile::{Circumstances, Pace, Profile, Recorder, Recording, Target};
use report::{Layer, PhaseTimes};
use server::Server;
use storage::{Account, Attempt};
use template::ProvisionError;

use crate::fixture::{Fixture, Setup};

/// Exit codes that shells use if they can't find or can't run a program. Source: POSIX, 2.8.2.
const COMMAND_FAILED_CODES: [i32; 2] = [126, 127];
/// Maximum number of observed suite runs.
const MAX_RUNS: usize = 5;
/// Total duration after which the suite isn't run again.
const MIN_TOTAL_DURATION: Duration = Duration::from_secs(8);

/// The user's test command and the servers for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suite<'a> {
    pub(crate) command: &'a str,
    pub(crate) fixture: &'a Fixture<'a>,
}

/// The result of observing the suite.
#[derive(Debug)]
pub(crate) struct ObservedSuite {
    pub(crate) profile: Profile,
    status: ExitStatus,
    /// The last line of the suite's output.
    last_line: Option<String>,
}

impl Suite<'_> {
    /// Runs the suite on new durable servers, sampling what it waits for.
    ///
    /// A few samples don't reveal much, so a short suite runs several times, until a run fails or `cancelled` returns
    /// true. For `waiting_cost`, see [`Circumstances`].
    pub(crate) fn observe(
        &self,
        waiting_cost: Option<f64>,
        cancelled: impl Fn() -> bool,
    ) -> Result<ObservedSuite, Box<dyn Error>> {
        let begun = Instant::now();
        let mut runs = Vec::new();
        let (status, last_line) = loop {
            let server = self.fixture.start(Setup::Durable)?;
            let recorder = Recorder::start(&Target::of(&server), Pace::Dense, None)?;
            let (_, status) = self.run(&server)?;
            runs.push(recorder.stop()?);
            let done = runs.len() == MAX_RUNS || begun.elapsed() >= MIN_TOTAL_DURATION;
            if done || !status.success() || cancelled() {
                break (status, last_line(&server.run().path().join("output")));
            }
        };
        let command = Some(self.command.to_owned());
        let circumstances = Circumstances { command, waiting_cost, ..Circumstances::default() };
        let recording = Recording::mean(runs).unwrap_or_default();
        Ok(ObservedSuite { profile: Profile::new(recording, circumstances), status, last_line })
    }

    /// Runs the suite once on a new server with this setup. Returns how long the run took.
    pub(crate) fn time(&self, setup: Setup) -> Result<PhaseTimes, ProvisionError> {
        Ok(vec![("the suite", self.run(&self.fixture.start(setup)?)?.0)])
    }

    fn run(&self, server: &Server) -> Result<(Duration, ExitStatus), ProvisionError> {
        let output = server.run().create_file("output", &Account::ours())?;
        let second = output.try_clone().attempt("duplicate", server.run().path())?;
        let mut command = Command::new("sh");
        command.args(["-c", self.command]);
        command.stdin(Stdio::null()).stdout(Stdio::from(output)).stderr(Stdio::from(second));
        server.address(self.fixture.database()).describe_to(&mut command);
        sys::die_with_parent(&mut command);
        sys::restore_open_file_limit(&mut command);
        sys::restore_mask(&mut command);
        let begun = Instant::now();
        let status = command.status().attempt("run", Path::new("sh"))?;
        Ok((begun.elapsed(), status))
    }
}

fn last_line(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().rfind(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
}

impl ObservedSuite {
    /// Returns why the shell couldn't run the suite, or `None` if the suite ran.
    pub(crate) fn why_not_run(&self) -> Option<String> {
        let is_missing = self.status.code().is_some_and(|code| COMMAND_FAILED_CODES.contains(&code));
        is_missing.then(|| self.last_line.clone().unwrap_or_else(|| "its program does not exist".to_owned()))
    }

    /// Returns layers about the suite's time. If the suite failed, adds a layer that describes the failure.
    pub(crate) fn layers(&self) -> Vec<Layer> {
        let mut layers = self.profile.layers();
        let ended = match (self.status.success(), self.status.code(), self.status.signal()) {
            (true, ..) => return layers,
            (_, Some(code), _) => format!("The suite failed with exit code {code}."),
            (_, _, signal) => format!("The suite was ended by signal {}.", signal.unwrap_or(0)),
        };
        let mut failure = Layer::new("Failure", ended);
        failure.add_fact("last line", self.last_line.clone());
        layers.insert(1, failure);
        layers
    }
}
