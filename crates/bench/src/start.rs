//! `start`: from nothing to the first answer and back, beside its floor and the same thing by hand.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use report::{Contender, PhaseTimes, Progress, Rounds, Timed};
use storage::{Attempt, Cache, Place, PlaceRequest};
use template::{ProvisionError, Provisioner, ServerOptions, TemplateSpec};

use crate::by_hand::{self, Programs};
use crate::floor::Tree;
use crate::memory::Peak;
use crate::start_report::{
    self, FLOOR, Facts, OURS, PGFRESH, REPLAY, SET_UP, STOCK, STOCK_ON_DISK, TEMPLATE, UNSYNCED, WHOLE,
};
use crate::{BenchError, Measured, environment, memory};

/// Servers are started for nothing before it counts: page cache and CPU clock settle.
const WARM_UP: u32 = 2;
/// Rounds in which the memory is looked at; it hardly differs.
const MEMORY_ROUNDS: u32 = 3;

/// The bench and what it needs of its caller.
#[allow(missing_debug_implementations)]
pub struct Start<'a> {
    /// The options of the servers. With a template, its start is compared with that of a bare server, and with its
    /// setup replayed each time.
    pub server_options: ServerOptions,
    /// The cache that was chosen, if one was.
    pub cache: Option<PathBuf>,
    /// A pgfresh that can be a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    /// A whole pgfresh that runs `true` on a bare server of its own.
    pub run: &'a dyn Fn() -> Command,
    /// A pgfresh that serves a bare server: writes a line when it is ready, and ends when its standard input does.
    pub serve: &'a dyn Fn() -> Command,
}

impl Start<'_> {
    /// Measures, and reports what was measured, raw samples and all; with it comes the failure that ended it early.
    ///
    /// # Errors
    /// Nothing was measured at all.
    pub fn measure(&self, rounds: u32, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let load = environment::load();
        let provisioner = self.find(None)?;
        // Builds the base image if need be: no contender's time.
        let entry = provisioner.base_image(&|_| ())?.entry;
        let place = provisioner.place(entry.bytes())?;
        let disk =
            Place::choose(&PlaceRequest::Disk, entry.bytes(), provisioner.cache.root(), &provisioner.account)
                .map_err(ProvisionError::from)?;
        let settings = provisioner.settings(place.budget())?;
        let tree = Tree::list(&entry.data())?;

        let replayed = self.server_options.template.as_ref().map(replayed);
        let stock = Programs { initdb: &[], postgres: "" };
        let unsynced = Programs { initdb: &["--no-sync"], postgres: "-F" };
        let mut contenders = vec![
            Contender::new(PGFRESH, || self.ours(None, "look-up")),
            Contender::new(WHOLE, || self.whole()),
            Contender::new(FLOOR, || by_hand::floor(&provisioner, &place, &settings, &tree)),
            Contender::new(STOCK, || by_hand::by_programs(&provisioner, &place, stock)),
            Contender::new(UNSYNCED, || by_hand::by_programs(&provisioner, &place, unsynced)),
        ];
        if let (Some(spec), Some(replayed)) = (&self.server_options.template, &replayed) {
            contenders.push(Contender::new(TEMPLATE, || self.ours(Some(spec), "look-up")));
            contenders.push(Contender::new(REPLAY, || self.ours(Some(replayed), SET_UP)));
        }
        if disk.root() != place.root() {
            contenders
                .push(Contender::new(STOCK_ON_DISK, || by_hand::by_programs(&provisioner, &disk, stock)));
        }
        let report = |timed: &[Timed], peaks: &[Peak]| {
            let mut report = start_report::of(&Facts { timed, peaks });
            environment::describe(&mut report, &provisioner, &place.why(), &load);
            report
        };
        let so_far = |timed: &[Timed]| report(timed, &[]);
        let (timed, end) = Rounds::new(WARM_UP, rounds).time(&mut contenders, progress, Some(&so_far));
        let peaks = (0..MEMORY_ROUNDS)
            .take_while(|_| !progress.is_cancelled())
            .map(|_| memory::of_serving((self.serve)()))
            .collect::<Result<Vec<_>, _>>();
        let (peaks, end) = match (peaks, end) {
            (Ok(peaks), end) => (peaks, end.err()),
            (Err(error), end) => (Vec::new(), Some(end.err().unwrap_or(error))),
        };
        Ok((report(&timed, &peaks), end))
    }

    /// Finds binaries and cache, as every start does.
    fn find(&self, template: Option<&TemplateSpec>) -> Result<Provisioner, ProvisionError> {
        let server_options = ServerOptions { template: template.cloned(), ..self.server_options.clone() };
        Provisioner::find(server_options, Cache::locate(self.cache.as_deref())?, self.program.clone())
    }

    /// What `pgfresh run -- true` does, phase by phase; whatever is not the server's own is counted as `look_up`.
    #[expect(clippy::let_underscore_must_use, reason = "what cannot be swept stays, as at every start")]
    fn ours(&self, template: Option<&TemplateSpec>, look_up: &'static str) -> Result<PhaseTimes, BenchError> {
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
        BenchError::unless_success("true", status, Path::new(""))?;
        let (stop, remove) = server.stop()?;
        let times = [first, phases.copy, phases.boot, phases.rest, phases.ready, command, stop, remove];
        let names = std::iter::once(look_up).chain(OURS.into_iter().skip(1));
        Ok(names.zip(times).collect())
    }

    fn whole(&self) -> Result<PhaseTimes, BenchError> {
        let mut command = (self.run)();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Instant::now();
        let status = command.status().attempt("run", Path::new(command.get_program()))?;
        let whole = begun.elapsed();
        BenchError::unless_success("pgfresh run -- true", status, Path::new(""))?;
        Ok(vec![("spawn to exit", whole)])
    }
}

/// The same specification, with nothing in it that could be kept: it is run in each new server.
fn replayed(spec: &TemplateSpec) -> TemplateSpec {
    let [beside, from] = [&spec.beside, &spec.from].map(|spec| spec.as_deref().map(replayed).map(Box::new));
    // A command whose inputs are unknown runs each time, and all that comes before and after it.
    let setup = spec.setup.clone().or_else(|| Some(":".to_owned()));
    TemplateSpec { beside, from, setup, inputs: Vec::new(), ..spec.clone() }
}
