//! The `start` benchmark: starts a server, waits for its first response, and removes it again. Compares pgfresh with
//! the floor and with PostgreSQL's own programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use report::{Contender, PhaseTimes, Progress, Rounds, Timed};
use storage::{Attempt, Cache, Place, PlaceRequest};
use template::{ProvisionError, Provisioner, ServerOptions, TemplateSpec};

use crate::by_hand::{self, ProgramOptions};
use crate::floor::Tree;
use crate::memory::Peak;
use crate::start_report::{
    self, FLOOR, MANUAL, MANUAL_ON_DISK, MANUAL_UNSYNCED, PGFRESH, PHASES, REPLAY, SET_UP, StartMeasurements,
    TEMPLATE, WHOLE_COMMAND,
};
use crate::{BenchError, Measured, environment, memory};

/// Number of rounds before the measurement, to warm up the page cache and stabilize the CPU's clock rate.
const WARM_UP: u32 = 2;
/// Number of rounds for measuring memory. A few rounds suffice, because memory hardly varies.
const MEMORY_ROUNDS: u32 = 3;

/// The benchmark's options.
#[allow(missing_debug_implementations)]
pub struct Start<'a> {
    /// Options for the servers. If they include a template, the benchmark also measures servers from this template and
    /// servers that run the template's setup each time.
    pub server_options: ServerOptions,
    /// The cache directory, if the user specified one.
    pub cache: Option<PathBuf>,
    /// A pgfresh executable that can act as a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    /// Returns a pgfresh command that runs `true` with a server without a template.
    pub run: &'a dyn Fn() -> Command,
    /// Returns a pgfresh command that serves without a template. The command must write a line as soon as it is ready
    /// and exit when its standard input closes.
    pub serve: &'a dyn Fn() -> Command,
}

impl Start<'_> {
    /// Measures in `rounds` rounds. Returns the report with all measured values, along with the error that ended the
    /// measurement early, if any.
    ///
    /// # Errors
    /// Returns an error if there are no results at all.
    pub fn measure(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let load = environment::load_averages();
        let provisioner = self.find(None)?;
        // Build the base image if it's missing. Otherwise, the first contender would spend time on it.
        let entry = provisioner.base_image(&|_| ())?.entry;
        let place = provisioner.place(entry.bytes())?;
        let disk =
            Place::choose(&PlaceRequest::Disk, entry.bytes(), provisioner.cache.root(), &provisioner.account)
                .map_err(ProvisionError::from)?;
        let settings = provisioner.settings(place.budget())?;
        let tree = Tree::list(&entry.data())?;

        let replayed = self.server_options.template.as_ref().map(without_cache);
        let stock = ProgramOptions { initdb: &[], postgres: "" };
        let unsynced = ProgramOptions { initdb: &["--no-sync"], postgres: "-F" };
        let mut contenders = vec![
            Contender::new(PGFRESH, || self.run_in_process(None, "look-up")),
            Contender::new(WHOLE_COMMAND, || self.run_command()),
            Contender::new(FLOOR, || by_hand::run_floor(&provisioner, &place, &settings, &tree)),
            Contender::new(MANUAL, || by_hand::start_and_stop(&provisioner, &place, stock)),
            Contender::new(MANUAL_UNSYNCED, || by_hand::start_and_stop(&provisioner, &place, unsynced)),
        ];
        if let (Some(spec), Some(replayed)) = (&self.server_options.template, &replayed) {
            contenders.push(Contender::new(TEMPLATE, || self.run_in_process(Some(spec), "look-up")));
            contenders.push(Contender::new(REPLAY, || self.run_in_process(Some(replayed), SET_UP)));
        }
        if disk.root() != place.root() {
            contenders
                .push(Contender::new(MANUAL_ON_DISK, || by_hand::start_and_stop(&provisioner, &disk, stock)));
        }
        let report = |timed: &[Timed], peaks: &[Peak]| {
            let mut report = start_report::of(&StartMeasurements { timed, peaks });
            environment::describe(&mut report, &provisioner, &place.why(), &load);
            report
        };
        let so_far = |timed: &[Timed]| report(timed, &[]);
        let (timed, end) = Rounds::new(WARM_UP, rounds).time(&mut contenders, progress, Some(&so_far));
        let peaks = (0..MEMORY_ROUNDS)
            .take_while(|_| !progress.is_cancelled())
            .map(|_| memory::measure_service((self.serve)()))
            .collect::<Result<Vec<_>, _>>();
        let (peaks, end) = match (peaks, end) {
            (Ok(peaks), end) => (peaks, end.err()),
            (Err(error), end) => (Vec::new(), Some(end.err().unwrap_or(error))),
        };
        Ok((report(&timed, &peaks), end))
    }

    /// Finds PostgreSQL's programs and the cache, as every start does.
    fn find(&self, template: Option<&TemplateSpec>) -> Result<Provisioner, ProvisionError> {
        let server_options = ServerOptions { template: template.cloned(), ..self.server_options.clone() };
        Provisioner::find(server_options, Cache::locate(self.cache.as_deref())?, self.program.clone())
    }

    /// Runs the phases of `pgfresh run -- true` within this process. Time outside of the server's own phases counts
    /// as `look_up`.
    #[expect(clippy::let_underscore_must_use, reason = "what cannot be swept stays, as at every start")]
    fn run_in_process(
        &self,
        template: Option<&TemplateSpec>,
        look_up: &'static str,
    ) -> Result<PhaseTimes, BenchError> {
        let begun = Instant::now();
        let provisioner = self.find(template)?;
        let _ = provisioner.sweep();
        let server = provisioner.start(&|_| ())?.server;
        let ready = begun.elapsed();
        let phases = server.phases();
        let first = ready.saturating_sub(phases.copy + phases.boot + phases.rest + phases.ready);
        let before = Instant::now();
        let status = Command::new("true").stdin(Stdio::null()).status().attempt("run", Path::new("true"))?;
        let command = before.elapsed();
        BenchError::check_status("true", status, Path::new(""))?;
        let (stop, remove) = server.stop()?;
        let times = [first, phases.copy, phases.boot, phases.rest, phases.ready, command, stop, remove];
        let names = std::iter::once(look_up).chain(PHASES.into_iter().skip(1));
        Ok(names.zip(times).collect())
    }

    fn run_command(&self) -> Result<PhaseTimes, BenchError> {
        let mut command = (self.run)();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Instant::now();
        let status = command.status().attempt("run", Path::new(command.get_program()))?;
        let whole = begun.elapsed();
        BenchError::check_status("pgfresh run -- true", status, Path::new(""))?;
        Ok(vec![("spawn to exit", whole)])
    }
}

/// Returns a specification that can't be cached, so its setup runs on each new server.
fn without_cache(spec: &TemplateSpec) -> TemplateSpec {
    let [beside, from] =
        [&spec.beside, &spec.from].map(|spec| spec.as_deref().map(without_cache).map(Box::new));
    // A command with unknown inputs runs each time, as do all steps before and after it.
    let setup = spec.setup.clone().or_else(|| Some(":".to_owned()));
    TemplateSpec { beside, from, setup, inputs: Vec::new(), ..spec.clone() }
}
