//! Compares the doctor's sync probe with `pg_test_fsync` and with published figures.
//!
//! The comparison shows that the probe measures the right quantity. Both programs take turns on the same file system.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use report::{Cell, Column, Contender, Factor, Progress, Quantity, Report, Rounds, Sample, Table, Unit};
use server::Guard;
use storage::{Account, Attempt, Place, PlaceRequest};
use sys::{Mount, Roots, Stack};

use crate::device::Device;
use crate::examination::REQUIRED_SPACE;
use crate::sync::{METHODS, Syncs, TestFile};
use crate::{DoctorError, machine};

/// Duration of each method in a round. `pg_test_fsync` doesn't accept a shorter duration.
const METHOD_DURATION: Duration = Duration::from_secs(1);
/// Published rates in operations per second, in the order of all methods. 0 means that the author didn't
/// publish a rate.
///
/// The first rates are for a consumer drive (Samsung 990 Pro, xfs). The second rates are for a drive with power-loss
/// protection (`Micron 7400`, LVM), where the test ended at 2 kB. Source: "Using Postgres `pg_test_fsync` tool for
/// testing low latency writes" (2025-05-27).
#[rustfmt::skip]
const PUBLISHED: [[f64; METHODS]; 2] = [
    [
        249.578, 608.573, 177.431, 0.0, 185.095, 125.091, 765.775, 178.218, 0.0,
        91.849, 180.052, 98.289, 43.374, 21.095, 11.298, 184.788, 180.081, 651_627.688,
    ],
    [
        52_813.315, 42_003.972, 39_751.307, 0.0, 48_070.142, 26_275.705, 32_551.276, 31_099.826, 0.0,
        24_105.752, 40_447.014, 23_854.185, 13_436.020, 0.0, 0.0, 0.0, 0.0, 0.0,
    ],
];

/// Observes the probe's rounds within its turn. Forwards cancellations but not the progress, because these rounds
/// aren't the comparison's rounds.
struct WithinTurn<'a>(&'a dyn Progress);

impl Progress for WithinTurn<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// The options of the comparison.
#[derive(Debug, Clone)]
pub struct SyncComparison {
    /// A directory on the disk to test.
    pub path: PathBuf,
    /// Path of `pg_test_fsync`.
    pub original: PathBuf,
    /// A pgfresh executable that can act as a guard, a process that cleans up after pgfresh; see
    /// [`server::Guard::over`].
    pub program: PathBuf,
    /// Number of rounds. Each round takes 36 s.
    pub rounds: u32,
}

impl SyncComparison {
    /// Measures both programs in turn.
    ///
    /// # Errors
    /// Returns an error if the path isn't writable or if `pg_test_fsync` doesn't run.
    #[allow(clippy::missing_panics_doc)]
    pub fn measure(&self, progress: &dyn Progress) -> Result<Report, DoctorError> {
        let (roots, account) = (Roots::default(), Account::ours());
        let place =
            Place::choose(&PlaceRequest::At(self.path.clone()), REQUIRED_SPACE, &self.path, &account)?;
        let guard = Guard::over(&place, &account, &self.program)?;
        let folder = guard.run().path();
        let mount = Mount::of(&roots, folder).attempt("find the mount of", folder)?;
        let device = Device::new(Stack::below(&roots, &mount), &roots);
        let target = TestFile::create(folder)?;
        let mut rates =
            vec![
                [Sample::new("ours", Unit::PerSecond), Sample::new("pg_test_fsync", Unit::PerSecond)];
                METHODS
            ];
        let mut contenders = [
            Contender::new("ours", || {
                let length = METHOD_DURATION * u32::try_from(METHODS).unwrap_or(1);
                let ours = Syncs::measure(&target, &device, &roots, length, &WithinTurn(progress));
                Ok(ours.rates().collect())
            }),
            Contender::new("pg_test_fsync", || self.run_original(folder)),
        ];
        progress.measuring("our syncs and those of pg_test_fsync");
        Rounds::new(0, self.rounds).run(&mut contenders, progress, |round| {
            for (index, [ours, theirs]) in rates.iter_mut().enumerate() {
                let rate = |of: &Vec<Option<f64>>| of.get(index).copied().flatten();
                if let (Some(our), Some(their)) = (rate(&round[0]), rate(&round[1])) {
                    ours.push(our).expect("it is finite");
                    theirs.push(their).expect("it is finite");
                }
            }
        })?;
        let mut report = Report::new(format!("pgfresh bench fsync {}", place.root().display()));
        machine::describe(&mut report, &roots);
        report.add_layer(device.layer());
        report.add_table(table(&rates));
        for ((group, name), pair) in Syncs::names().iter().zip(rates) {
            if pair.iter().all(|sample| !sample.is_empty()) {
                report.add_samples(format!("{group}: {name}"), pair);
            }
        }
        Ok(report)
    }

    /// Runs `pg_test_fsync` and returns its rates in the order printed. `None` stands for "n/a".
    fn run_original(&self, folder: &Path) -> Result<Vec<Option<f64>>, DoctorError> {
        let mut command = Command::new(&self.original);
        command.args(["-s", "1", "-f"]).arg(folder.join("pg_test_fsync.out")).env("LC_ALL", "C");
        let output =
            command.stdin(Stdio::null()).stderr(Stdio::null()).output().attempt("run", &self.original)?;
        // `pg_test_fsync` exits with an error if the system refuses a write, but its output up to this point is valid.
        Ok(parse_rates(&String::from_utf8_lossy(&output.stdout)))
    }
}

fn parse_rates(text: &str) -> Vec<Option<f64>> {
    let methods = text.lines().filter(|line| line.contains("ops/sec") || line.trim_end().ends_with("n/a"));
    let rate = |line: &str| line.split_once(" ops/sec")?.0.split_whitespace().next_back()?.parse().ok();
    methods.map(rate).collect()
}

fn table(rates: &[[Sample; 2]]) -> Table {
    let numbers = ["ours", "pg_test_fsync", "ratio", "990 Pro", "Micron 7400"].map(Column::right);
    let columns = [Column::left("writes"), Column::left("method")].into_iter().chain(numbers);
    let mut table = Table::new("Operations a second", columns);
    for (index, ((group, name), [ours, theirs])) in Syncs::names().iter().zip(rates).enumerate() {
        let ratio = ours.ratio_to(theirs).ok().and_then(|ratios| Some(Factor::of(&ratios)?.to_string()));
        let published = PUBLISHED.map(|all| Some(all[index]).filter(|rate| *rate > 0.0));
        let published = published.map(|rate| rate.map(|rate| Quantity::new(rate, Unit::PerSecond)).into());
        let measured = [ours.median().into(), theirs.median().into(), Cell::from(ratio)];
        let names = [Cell::from(*group), Cell::from(*name)];
        table.add_row(names.into_iter().chain(measured).chain(published));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg_test_fsync_output_is_read_in_order() {
        let text = "1 second per test\nO_DIRECT supported on this platform for open_datasync and open_sync.\n\n\
            Compare file sync methods using one 8kB write:\n\
            (in wal_sync_method preference order, except fdatasync is Linux's default)\n        \
            open_datasync                     10941.775 ops/sec      91 usecs/op\n        \
            fsync_writethrough                              n/a\n         \
            8 *  2kB open_sync writes    pg_test_fsync: error: write failed: Invalid argument\n";
        assert_eq!(parse_rates(text), [Some(10941.775), None]);
    }
}
