//! The `fleet` benchmark: many machines with empty caches need the same template simultaneously.
//!
//! This happens in CI, where each job starts on an empty machine. The benchmark compares the ways to get the template
//! onto the machines.
//!
//! The "machines" are processes on one machine, each with its own cache. Such a process is called a shard. All shards
//! share the machine's CPUs.

mod project;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use report::{Progress, Quantity, Report, Sample, Table, Unit};
use server::Guard;
use storage::{Attempt, Cache, FileError, Place, PlaceRequest, SigningKey};
use template::{ProvisionError, Provisioner, ServerOptions};

use crate::goal::{self, Goal, Limit};
use crate::{BenchError, Measured, environment};
use project::Project;

/// Interval between checks for finished shards.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Space per shard in the run directory, in bytes. Suffices for a base image and a template.
const SHARD_SPACE: u64 = 400 << 20;
/// Environment variables that would change a shard's template or cache.
const REMOVED_VARIABLES: [&str; 14] = [
    "PGFRESH_CACHE_KEYS",
    "PGFRESH_CACHE_PUSH",
    "PGFRESH_CACHE_REMOTE",
    "PGFRESH_CACHE_SIZE",
    "PGFRESH_CONFIG",
    "PGFRESH_DUMP",
    "PGFRESH_FROM",
    "PGFRESH_INPUTS",
    "PGFRESH_SETUP",
    "PGFRESH_SETUP_ENV",
    "PGFRESH_SIGNING_KEY",
    "PGFRESH_SQL",
    "PGFRESH_STEPS",
    "PGFRESH_TEMPLATE",
];
/// Goal for how much time all shards may need in addition to a download, in seconds.
const MAX_EXTRA_SECONDS: f64 = 0.1;

/// The benchmark's options.
#[derive(Debug)]
pub struct Fleet {
    /// Options that determine the PostgreSQL installation.
    pub server_options: ServerOptions,
    /// The cache directory, if the user specified one. The shards' caches are on the same file system.
    pub cache: Option<PathBuf>,
    /// A pgfresh executable for the shards to run, which can also act as a guard; see [`server::Guard::over`].
    pub program: PathBuf,
    /// The number of shards.
    pub shards: u32,
    /// How long the template's setup takes on an otherwise idle machine, in seconds.
    pub seconds: u32,
    /// URL of the remote template cache. Defaults to a directory beside the shards' caches.
    pub remote: Option<String>,
}

/// How the shards get the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateOrigin {
    /// Each shard runs the setup itself.
    Migrating,
    /// Each shard restores a dump of the template.
    Restoring,
    /// The shards share a remote cache that is empty at the start.
    Cold,
    /// The shards share a remote cache that contains the template from the start.
    Warm,
}

impl TemplateOrigin {
    fn name(self) -> &'static str {
        match self {
            Self::Migrating => "every shard migrates",
            Self::Restoring => "every shard restores a dump",
            Self::Cold => "remote, empty",
            Self::Warm => "remote, filled",
        }
    }
}

/// The result for one way of getting the template.
#[derive(Debug)]
struct OriginResult {
    origin: TemplateOrigin,
    /// How often shards ran the setup.
    builds: usize,
    /// Time until the template was ready on each shard, in seconds.
    ready: Sample,
    /// Time from the end of the build until the last shard was ready, in seconds.
    after_build: Option<f64>,
    /// Number of bytes the shards pushed to the remote cache.
    sent: Option<u64>,
    /// Messages from shards that couldn't use the remote cache.
    remote_errors: Vec<String>,
}

impl Fleet {
    /// Measures all ways to get the template and reports the results.
    ///
    /// # Errors
    /// Returns an error if nothing could be measured.
    pub fn measure(&self, progress: &dyn Progress) -> Result<Measured, BenchError> {
        let load = environment::load_averages();
        let cache = Cache::locate(self.cache.as_deref())?;
        let server_options = ServerOptions { template: None, ..self.server_options.clone() };
        let provisioner = Provisioner::find(server_options, cache, self.program.clone())?;
        let (account, need) = (storage::Account::ours(), SHARD_SPACE * u64::from(self.shards));
        let place = Place::choose(&PlaceRequest::Disk, need, provisioner.cache.root(), &account)
            .map_err(ProvisionError::from)?;
        let guard = Guard::over(&place, &account, &self.program)?;
        let key = SigningKey::generate().attempt("make", Path::new("a key"))?;
        let project = Project::create(guard.run().path(), self.seconds)?;

        let mut report = Report::new(format!("bench fleet: {} shards", self.shards));
        let mut outcomes = Vec::new();
        let mut failure = None;
        let origins = [
            TemplateOrigin::Migrating,
            TemplateOrigin::Restoring,
            TemplateOrigin::Cold,
            TemplateOrigin::Warm,
        ];
        let all = u32::try_from(origins.len()).unwrap_or(u32::MAX);
        for (done, origin) in (1..=all).zip(origins) {
            progress.measuring(origin.name());
            let dumped = if origin == TemplateOrigin::Restoring {
                self.write_dump(&provisioner, &project)
            } else {
                Ok(true)
            };
            let outcome = match dumped {
                Ok(false) => {
                    report.add_notes(["No dump was restored: pg_dump is missing."]);
                    continue;
                }
                Ok(true) => self.run(origin, provisioner.installation.bin(), &project, &key, progress),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(Some(outcome)) => {
                    outcomes.push(outcome);
                    progress.finished_round(done, all);
                }
                Ok(None) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        environment::describe(&mut report, &provisioner, &place.why(), &load);
        self.describe(&mut report, &outcomes);
        Ok((report, failure))
    }

    /// Writes the dump for [`TemplateOrigin::Restoring`]. Returns false if `pg_dump` is missing.
    fn write_dump(&self, provisioner: &Provisioner, project: &Project) -> Result<bool, BenchError> {
        let Some(program) = provisioner.installation.client("pg_dump") else { return Ok(false) };
        let log = project.folder.join("pg_dump.log");
        let output = File::create(&log).attempt("create", &log)?;
        let mut command =
            self.shard_command(provisioner.installation.bin(), project, 0, TemplateOrigin::Migrating);
        command.args(["run", "--quiet", "--"]).arg(program).args(["--format=custom", "--file"]);
        command.arg(project.dump_path()).stderr(output);
        let status = command.status().attempt("run", Path::new(command.get_program()))?;
        BenchError::check_status("pg_dump", status, &log)?;
        Ok(true)
    }

    /// Returns the pgfresh command for shard `number`, which has its own cache.
    fn shard_command(&self, bin: &Path, project: &Project, number: u32, origin: TemplateOrigin) -> Command {
        let mut command = Command::new(&self.program);
        for name in REMOVED_VARIABLES {
            command.env_remove(name);
        }
        command.env("PGFRESH_POSTGRES", bin);
        command
            .env("PGFRESH_CACHE", project.cache_path(number))
            .env(project::SHARD_VARIABLE, number.to_string());
        command
            .current_dir(project.checkout(origin == TemplateOrigin::Restoring))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        sys::die_with_parent(&mut command);
        command
    }

    /// Runs all shards with the same way of getting the template. Returns `None` if the user canceled the measurement.
    fn run(
        &self,
        origin: TemplateOrigin,
        bin: &Path,
        project: &Project,
        key: &SigningKey,
        progress: &dyn Progress,
    ) -> Result<Option<OriginResult>, BenchError> {
        project.empty_caches(self.shards)?;
        project.remove_builds()?;
        let store = project.remote_path();
        let remote = self.remote.clone().unwrap_or_else(|| format!("file://{}", store.display()));
        let begun = Instant::now();
        let mut shards = Vec::new();
        for number in 0..self.shards {
            let log = project.log_path(number);
            let output = File::create(&log).attempt("create", &log)?;
            let mut command = self.shard_command(bin, project, number, origin);
            if matches!(origin, TemplateOrigin::Cold | TemplateOrigin::Warm) {
                command
                    .env("PGFRESH_CACHE_REMOTE", &remote)
                    .env("PGFRESH_CACHE_KEYS", key.public().to_string())
                    .env("PGFRESH_CACHE_PUSH", "always")
                    .env("PGFRESH_SIGNING_KEY", key.to_text());
            }
            command.args(["template", "build"]).stderr(output);
            let child = command.spawn().attempt("run", Path::new(command.get_program()))?;
            shards.push(Shard { number, child: Some(child), ready: None });
        }
        while shards.iter().any(|shard| shard.ready.is_none()) {
            if progress.is_cancelled() {
                return Ok(None);
            }
            for shard in &mut shards {
                shard.check_progress(begun, project)?;
            }
            thread::sleep(POLL_INTERVAL);
        }
        let builders = project.builders();
        let mut ready = Sample::new(format!("a shard, {}", origin.name()), Unit::Seconds);
        for shard in &shards {
            ready.push(shard.ready.unwrap_or_default()).expect("a duration is finite");
        }
        let of = |number: u32| shards.iter().find(|shard| shard.number == number)?.ready;
        let built = builders.iter().filter_map(|number| of(*number)).reduce(f64::max);
        let last = shards.iter().filter_map(|shard| shard.ready).reduce(f64::max);
        let after_build = (origin == TemplateOrigin::Cold)
            .then_some(())
            .and(last.zip(built))
            .map(|(last, built)| last - built);
        let sent = (origin == TemplateOrigin::Cold && self.remote.is_none()).then(|| bytes_below(&store));
        Ok(Some(OriginResult {
            origin,
            builds: builders.len(),
            ready,
            after_build,
            sent,
            remote_errors: (0..self.shards).flat_map(|number| project.remote_errors(number)).collect(),
        }))
    }

    fn describe(&self, report: &mut Report, outcomes: &[OriginResult]) {
        let title = format!("{} shards with empty caches, a set-up of {} s", self.shards, self.seconds);
        let columns = ["set-ups", "all ready after", "half of them", "downloads"];
        let mut table = Table::numbers(title, "way", columns);
        let find = |origin| outcomes.iter().find(|outcome| outcome.origin == origin);
        let sent = find(TemplateOrigin::Cold).and_then(|outcome| outcome.sent);
        for OriginResult { origin, builds, ready, .. } in outcomes {
            let downloads = match origin {
                TemplateOrigin::Migrating | TemplateOrigin::Restoring => 0,
                TemplateOrigin::Cold | TemplateOrigin::Warm => ready.len() - builds,
            };
            let downloads = match (downloads, sent) {
                (0, _) => "none".to_owned(),
                (count, Some(bytes)) => format!("{count} × {}", storage::human_bytes(bytes)),
                (count, None) => count.to_string(),
            };
            table.add_row([
                origin.name().into(),
                builds.to_string().into(),
                ready.max().into(),
                ready.median().into(),
                downloads.into(),
            ]);
        }
        report.add_table(table);
        if let Some(cold) = find(TemplateOrigin::Cold) {
            let count = |value: usize| {
                Quantity::new(f64::from(u32::try_from(value).unwrap_or(u32::MAX)), Unit::Count)
            };
            let download = find(TemplateOrigin::Warm).and_then(|warm| warm.ready.max());
            let mut goals = vec![Goal {
                what: "set-ups with an empty remote".into(),
                limit: Limit::AtMost(count(1)),
                measured: Some(count(cold.builds)),
            }];
            if let Some(download) = download {
                let most = Quantity::new(download.value + MAX_EXTRA_SECONDS, Unit::Seconds);
                let measured = cold.after_build.map(|seconds| Quantity::new(seconds, Unit::Seconds));
                let what = "all ready, after the shard that built: a download by all and 100 ms".into();
                goals.push(Goal { what, limit: Limit::AtMost(most), measured });
            }
            report.add_table(goal::table(goals));
        }
        report.add_notes([
            "All shards share the processors and the disk of this machine: on machines of their own, each is faster. The set-up \
             sleeps for most of its time.",
        ]);
        for outcome in outcomes {
            report.add_notes(&outcome.remote_errors);
            report.add_samples(outcome.origin.name(), [outcome.ready.clone()]);
        }
    }
}

/// A running shard. Dropping this value kills the shard's process.
struct Shard {
    number: u32,
    child: Option<Child>,
    /// Time until the template was ready, in seconds.
    ready: Option<f64>,
}

impl Shard {
    fn check_progress(&mut self, begun: Instant, project: &Project) -> Result<(), BenchError> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let Some(status) = child.try_wait().attempt("wait for", Path::new("pgfresh"))? else { return Ok(()) };
        self.ready = Some(begun.elapsed().as_secs_f64());
        self.child = None;
        BenchError::check_status("pgfresh template build", status, &project.log_path(self.number))
    }
}

impl Drop for Shard {
    #[expect(clippy::let_underscore_must_use, reason = "it has ended already if it cannot be ended")]
    fn drop(&mut self) {
        // Only kill the shard. Its guard kills the processes that the shard started.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the total size of the files below `folder`, in bytes.
fn bytes_below(folder: &Path) -> u64 {
    let sizes = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Removes a directory if it exists.
fn remove(folder: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.attempt("remove", folder),
    }
}
