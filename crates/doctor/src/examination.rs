//! Examines a path.
//!
//! An examination measures one layer after another, from the device up to the test suite. This shows in which layer a
//! suite loses time. The result is a [`Diagnosis`].

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use report::{Distribution, Earlier, Finding, Layer, Progress, Report, Sample, Unit};
use server::Guard;
use storage::{Account, Attempt, Place, PlaceRequest};
use sys::{Mount, ProcessorWatch, Roots, Sensors, Stack};
use template::{ProvisionError, Provisioner};

use crate::commit::Commits;
use crate::device::Device;
use crate::filesystem::FilesystemInfo;
use crate::fixture::Fixture;
use crate::remedies::Remedies;
use crate::soak::Soak;
use crate::suite::Suite;
use crate::sync::{Syncs, TestFile};
use crate::{DoctorError, findings, machine};

/// Size of the test files including a reserve, in bytes.
pub(crate) const REQUIRED_SPACE: u64 = 64 << 20;

/// Fraction of the time spent measuring syncs. The rest is spent on commits.
const SYNC_SHARE: f64 = 0.4;

/// The HTML page's pictures, each with a title and the name prefixes of its samples. Each picture shows an operation
/// that makes PostgreSQL wait for the disk.
const PICTURES: [(&str, &[&str]); 2] = [
    ("Time of a synced write of 8 kB", &["one 8 kB write: ", "fdatasync, soak"]),
    ("Time of a commit", &["a commit"]),
];

/// The options of an examination.
#[derive(Debug)]
pub struct Examination {
    /// A directory on the disk to examine.
    pub path: PathBuf,
    /// The directories of the kernel's files, usually `/sys` and `/proc`.
    pub roots: Roots,
    /// Total time for all measurements, usually a few seconds. Starting and stopping servers takes additional time.
    pub length: Duration,
    /// Length of the soak (a long series of syncs), which precedes all other measurements. `None` means no soak.
    pub soak: Option<Duration>,
    /// The user's test suite. `None` means no suite.
    pub suite: Option<Tests>,
    /// Whether to try remedies: on the suite, or without one, on a typical test.
    pub try_remedies: bool,
    /// Whether tables contain all rows, as opposed to only the rows that most users need.
    pub all_rows: bool,
    /// A pgfresh executable that can act as a guard, a process that cleans up after pgfresh; see
    /// [`server::Guard::over`].
    pub program: PathBuf,
    /// The provisioner for the servers. If it is an error, commits aren't measured, and the diagnosis contains the
    /// error.
    pub provisioner: Result<Provisioner, ProvisionError>,
}

/// Source of the facts about the test suite.
#[derive(Debug, Clone)]
pub enum Tests {
    /// A shell command that runs the tests. It finds the server's URL in `DATABASE_URL`.
    Command(String),
    /// A profile of an earlier run, possibly from another machine.
    Profile(Earlier),
}

/// Everything that an examination found: the report, and the durations behind it.
#[derive(Debug, Clone)]
pub struct Diagnosis {
    /// The report with its layers, findings and tables.
    pub report: Report,
    /// Durations of single operations, for the machine-readable formats.
    pub samples: Vec<Sample>,
    /// Why measurements of commits, the suite or the remedies are incomplete. `None` if they are complete.
    pub without_servers: Option<String>,
}

impl Diagnosis {
    /// Formats the report as an HTML page, with pictures of how long syncs and commits take.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut page = self.report.clone();
        for (title, names) in PICTURES {
            let is_of_it = |sample: &&Sample| {
                sample.unit() == Unit::Seconds && names.iter().any(|name| sample.name().starts_with(name))
            };
            let samples: Vec<_> = self.samples.iter().filter(is_of_it).cloned().collect();
            if !samples.is_empty() {
                page.add_distribution(Distribution::new(title, samples));
            }
        }
        page.to_html("")
    }
}

impl Examination {
    /// Examines all layers.
    ///
    /// # Errors
    /// Returns an error if the path isn't writable or if the disk can't be tested there. If servers or the suite fail,
    /// that isn't an error but part of the diagnosis.
    pub fn diagnose(&self, progress: &dyn Progress) -> Result<Diagnosis, DoctorError> {
        let account = Account::ours();
        let place =
            Place::choose(&PlaceRequest::At(self.path.clone()), REQUIRED_SPACE, &self.path, &account)?;
        let watch = ProcessorWatch::start(&self.roots);
        let mut report = Report::new(format!("pgfresh doctor {}", place.root().display()));
        machine::describe(&mut report, &self.roots);
        let guard = Guard::over(&place, &account, &self.program)?;
        let folder = guard.run().path();
        let mount = Mount::of(&self.roots, folder).attempt("find the mount of", folder)?;
        let device = Device::new(Stack::below(&self.roots, &mount), &self.roots);
        let files = FilesystemInfo::examine(folder, mount)?;
        report.add_layer(device.layer());
        report.add_layer(files.layer());
        let found = findings::from_properties(&device, &files);
        let mut chart = PartialDiagnosis { report, found, samples: Vec::new(), is_suite_watched: false };

        let target = TestFile::create(folder)?;
        // Start with the soak, because it needs a cool disk.
        let soak = self.soak.map(|length| {
            progress.measuring("a soak");
            Soak::measure(&target, &Sensors::of(&self.roots, device.disks().first()), length, progress)
        });
        let soak = soak.transpose().attempt("sync", folder)?;
        progress.measuring("syncs");
        let length = self.length.mul_f64(SYNC_SHARE);
        let syncs = Syncs::measure(&target, &device, &self.roots, length, progress);
        chart.report.add_tiles(syncs.tile());
        chart.report.add_layer(syncs.layer(&device));
        chart.samples.extend(syncs.samples().map(|latencies| latencies.sample().clone()));
        if let Some(soak) = soak {
            chart.report.add_layer(soak.layer(&device));
            chart.report.add_plot(soak.plot());
            chart.found.extend(soak.finding());
            chart.samples.push(soak.latencies().sample().clone());
        }
        if let Some(Tests::Profile(earlier)) = &self.suite {
            earlier.layer("Suite").into_iter().for_each(|layer| chart.report.add_layer(layer));
            chart.found.extend(earlier.findings.iter().cloned());
            chart.report.add_notes([format!("The suite's figures come from a report: {}.", earlier.title)]);
        }
        let served = match &self.provisioner {
            _ if progress.is_cancelled() => {
                chart.report.add_layer(Commits::default().layer());
                Ok(())
            }
            Ok(provisioner) => self
                .examine_servers(provisioner, place.root(), &syncs, progress, &mut chart)
                .map_err(|error| error_chain(&*error)),
            Err(error) => Err(error_chain(error)),
        };
        if let Err(why) = &served {
            chart.report.add_layer(Layer::new("Server", format!("not examined any further: {why}.")));
        }
        chart.report.add_table(syncs.table(self.all_rows));
        chart.report.add_notes(watch.shortage().warning());
        Finding::rank(&mut chart.found);
        chart.report.add_findings(chart.found);
        Ok(Diagnosis { report: chart.report, samples: chart.samples, without_servers: served.err() })
    }

    /// Measures commits, the suite and the remedies.
    fn examine_servers(
        &self,
        provisioner: &Provisioner,
        path: &Path,
        syncs: &Syncs,
        progress: &dyn Progress,
        chart: &mut PartialDiagnosis,
    ) -> Result<(), Box<dyn Error>> {
        chart.report.add_environment("PostgreSQL", provisioner.installation.version().to_string());
        let bare = Fixture::new(provisioner, provisioner.base_image(&|_| ())?, path)?;
        progress.measuring("commits");
        let commits = Commits::measure(&bare, self.length.mul_f64(1.0 - SYNC_SHARE), &self.roots, progress)?;
        chart.report.add_tiles(commits.tiles());
        chart.report.add_layer(commits.layer());
        chart.samples.extend(commits.samples().cloned());
        let tried = match &self.suite {
            Some(Tests::Command(command)) if !progress.is_cancelled() => {
                let waiting_cost = commits.flush_cost().zip(syncs.fdatasync().p50());
                let waiting_cost = waiting_cost.map(|(flushing, flush)| flushing / flush.value);
                self.examine_suite(command, waiting_cost, provisioner, path, progress, chart)
            }
            _ if self.try_remedies && !progress.is_cancelled() => {
                progress.measuring("tests with each remedy");
                Remedies::try_on_typical_test(&bare, &self.roots, progress).map(Some).map_err(Into::into)
            }
            _ => Ok(None),
        };
        // The findings about commits are valid even if a later step failed.
        if chart.is_suite_watched {
            chart.found.extend(commits.finding_on_ram());
        } else {
            chart.found.extend(commits.findings());
        }
        if let Ok(Some(remedies)) = &tried {
            chart.found.extend(remedies.finding());
            chart.samples.extend(remedies.samples().cloned());
            chart.report.add_table(remedies.table());
        }
        if commits.samples().next().is_some() {
            chart.report.add_table(commits.table());
        }
        tried.map(drop)
    }

    /// Observes the suite and tries remedies on it. For `waiting_cost`, see [`profile::Circumstances`].
    fn examine_suite(
        &self,
        command: &str,
        waiting_cost: Option<f64>,
        provisioner: &Provisioner,
        path: &Path,
        progress: &dyn Progress,
        chart: &mut PartialDiagnosis,
    ) -> Result<Option<Remedies>, Box<dyn Error>> {
        let fixture = Fixture::new(provisioner, provisioner.template(&|_| ())?, path)?;
        let suite = Suite { command, fixture: &fixture };
        progress.measuring("the suite");
        let watched = suite.observe(waiting_cost, || progress.is_cancelled())?;
        if progress.is_cancelled() {
            return Ok(None);
        }
        if let Some(why) = watched.why_not_run() {
            return Err(why.into());
        }
        let [whole, inside, ..] = watched.profile.tiles();
        chart.report.add_tiles([whole, inside]);
        watched.layers().into_iter().for_each(|layer| chart.report.add_layer(layer));
        chart.report.add_table(watched.profile.kinds());
        chart.found.extend(watched.profile.findings().iter().cloned());
        chart.is_suite_watched = true;
        if !self.try_remedies {
            return Ok(None);
        }
        progress.measuring("the suite with each remedy");
        Ok(Some(Remedies::try_on_suite(&suite, &self.roots, progress)?))
    }
}

/// An incomplete diagnosis.
struct PartialDiagnosis {
    report: Report,
    found: Vec<Finding>,
    samples: Vec<Sample>,
    is_suite_watched: bool,
}

/// Formats an error with all its causes.
fn error_chain(error: &dyn Error) -> String {
    let cause = error.source().map(error_chain);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
