//! From a path to a diagnosis: the order in which the layers are looked at.

use std::path::PathBuf;
use std::time::Duration;

use report::{Report, Sample};
use server::Guard;
use storage::{Account, Attempt, Place, Wish};
use sys::{Mount, Roots, Stack};

use crate::device::Device;
use crate::filesystem::Files;
use crate::sync::{Syncs, Target};
use crate::{DoctorError, findings, machine};

/// What the test files take, and a little more, in bytes.
const NEED: u64 = 64 << 20;

/// What is to be examined, and how long that may take.
#[derive(Debug, Clone)]
pub struct Examination {
    /// A directory on the disk in question.
    pub path: PathBuf,
    /// Where the kernel shows itself.
    pub roots: Roots,
    /// For all that is measured; some seconds. Start and end of servers come on top.
    pub length: Duration,
    /// A pgfresh that can be a guard; see [`server::Guard::over`].
    pub program: PathBuf,
}

/// Who looks on while it is measured.
pub trait Onlooker {
    /// Something else is measured from now on.
    fn begins(&self, what: &str);

    /// Whether to leave it at what was measured so far.
    fn wants_to_stop(&self) -> bool;
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Diagnosis {
    /// Layers, findings and tables.
    pub report: Report,
    /// What was measured of single operations, for programs.
    pub samples: Vec<Sample>,
}

impl Examination {
    /// Looks at all layers.
    ///
    /// # Errors
    /// Nothing can be written at the path. What else fails is said in the diagnosis.
    pub fn diagnose(&self, onlooker: &dyn Onlooker) -> Result<Diagnosis, DoctorError> {
        let account = Account::ours();
        let place = Place::choose(&Wish::At(self.path.clone()), NEED, &self.path, &account)?;
        let mut report = Report::new(format!("pgfresh doctor {}", place.root().display()));
        machine::describe(&mut report, &self.roots);
        let guard = Guard::over(&place, &account, &self.program)?;
        let folder = guard.run().path();
        let mount = Mount::of(&self.roots, folder).attempt("find the mount of", folder)?;
        let device = Device::new(Stack::below(&self.roots, &mount), &self.roots);
        let files = Files::examine(folder, mount)?;
        report.add_layer(device.layer());
        report.add_layer(files.layer());

        onlooker.begins("syncs");
        let target = Target::create(folder)?;
        let goes_on = || !onlooker.wants_to_stop();
        let syncs = Syncs::measure(&target, &device, &self.roots, self.length, &goes_on);
        report.add_layer(syncs.layer(&device));
        report.add_table(syncs.table());
        report.add_findings(findings::of_place(&device, &files));
        let samples = syncs.samples().map(|latencies| latencies.sample().clone()).collect();
        Ok(Diagnosis { report, samples })
    }
}
