//! Measures how fast the disk syncs.
//!
//! The duration of a commit depends on the duration of a sync. The probe covers every method and size of
//! `pg_test_fsync`, and works in the same way:
//!
//! ```text
//! one and two 8 kB writes   open_datasync  fdatasync  fsync  open_sync     at the offsets 0 and 8 kB of a 16 MiB file
//! 16 kB in parts            open_sync with 1 × 16, 2 × 8, 4 × 4, 8 × 2, 16 × 1 kB
//! another descriptor        write, fsync, close; write, close, open, fsync
//! not synced                write
//! ```
//!
//! Each method runs several times, in turn, so that a short disturbance doesn't skew only one method. As in
//! `pg_test_fsync`, `open_datasync` and `open_sync` bypass the page cache. Source: PostgreSQL 18,
//! `src/bin/pg_test_fsync/pg_test_fsync.c`.

use std::cell;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use report::{Cell, Column, Contender, Layer, Progress, Quantity, Rounds, Table, Tile, as_f64};
use storage::{Attempt, FileError};
use sys::{Roots, Waiting, open_for_writes, page_aligned};

use crate::device::{Device, FlushDurability};
use crate::latencies::Latencies;

/// Size of the test file, in bytes.
const FILE_SIZE: usize = 16 << 20;
/// Size of a WAL page, in bytes.
const PAGE_SIZE: usize = 8192;
/// The rounds of turns, one turn per method.
const ROUNDS: Rounds = Rounds::new(0, 3);
/// Number of unsynced writes between two clock readings.
const BATCH: u32 = 16;
/// If a drive without power-loss protection flushes faster than this, in seconds, its flushes aren't plausible. See
/// [`assess_flushes`].
const MIN_UNPROTECTED_FLUSH: f64 = 100e-6;
/// A drive with power-loss protection should flush at least this fast, in seconds, because the drive doesn't have to
/// empty its cache.
const MAX_PROTECTED_FLUSH: f64 = 1e-3;
/// Minimum duration of a flush by a rotating disk, in seconds. The disk has to wait until the right position
/// passes its head.
const MIN_ROTATING_FLUSH: f64 = 2e-3;

/// The operation repeated by a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Direct writes, each of which waits for the disk. The fields are the number of writes and the size of each.
    Waiting(Waiting, usize, usize),
    /// Writes of this many pages, followed by one `fdatasync`.
    Data(usize),
    /// Writes of this many pages, followed by one `fsync`.
    All(usize),
    /// A method that doesn't exist on this system.
    Absent,
    /// A write of a page and a sync, both through the same new descriptor.
    SameDescriptor,
    /// A write of a page through one new descriptor, and a sync through another.
    OtherDescriptor,
    /// A write of a page that only goes to the page cache.
    Unsynced,
}

const ONE: &str = "one 8 kB write";
const TWO: &str = "two 8 kB writes";
const SIZES: &str = "16 kB with open_sync";
const DESCRIPTORS: &str = "another descriptor";
const UNSYNCED: &str = "not synced";

/// The number of methods.
pub(crate) const METHODS: usize = 18;

/// All methods in the order of `pg_test_fsync`.
const ACTIONS: [(&str, &str, Action); METHODS] = [
    (ONE, "open_datasync", Action::Waiting(Waiting::ForData, 1, PAGE_SIZE)),
    (ONE, "fdatasync", Action::Data(1)),
    (ONE, "fsync", Action::All(1)),
    (ONE, "fsync_writethrough", Action::Absent),
    (ONE, "open_sync", Action::Waiting(Waiting::ForAll, 1, PAGE_SIZE)),
    (TWO, "open_datasync", Action::Waiting(Waiting::ForData, 2, PAGE_SIZE)),
    (TWO, "fdatasync", Action::Data(2)),
    (TWO, "fsync", Action::All(2)),
    (TWO, "fsync_writethrough", Action::Absent),
    (TWO, "open_sync", Action::Waiting(Waiting::ForAll, 2, PAGE_SIZE)),
    (SIZES, "1 × 16 kB", Action::Waiting(Waiting::ForAll, 1, 16384)),
    (SIZES, "2 × 8 kB", Action::Waiting(Waiting::ForAll, 2, 8192)),
    (SIZES, "4 × 4 kB", Action::Waiting(Waiting::ForAll, 4, 4096)),
    (SIZES, "8 × 2 kB", Action::Waiting(Waiting::ForAll, 8, 2048)),
    (SIZES, "16 × 1 kB", Action::Waiting(Waiting::ForAll, 16, 1024)),
    (DESCRIPTORS, "write, fsync, close", Action::SameDescriptor),
    (DESCRIPTORS, "write, close, fsync", Action::OtherDescriptor),
    (UNSYNCED, "write", Action::Unsynced),
];

/// A method with its measurements.
#[derive(Debug, Clone)]
pub(crate) struct MethodResult {
    group: &'static str,
    name: &'static str,
    action: Action,
    latencies: Latencies,
    /// Why the system refused the method. `None` if the method worked.
    refusal: Option<String>,
}

/// The file that the probe writes to. It disappears along with its directory.
#[derive(Debug)]
pub(crate) struct TestFile {
    path: PathBuf,
    buffer: Vec<u8>,
}

impl TestFile {
    /// Creates the file in `folder` and syncs it. Its contents are incompressible.
    pub(crate) fn create(folder: &Path) -> Result<Self, FileError> {
        let path = folder.join("sync");
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut buffer = Vec::with_capacity(FILE_SIZE + 4096);
        while buffer.len() < FILE_SIZE + 4096 {
            // Xorshift64. Source: Marsaglia, 2003.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            buffer.extend_from_slice(&state.to_le_bytes());
        }
        let target = Self { path, buffer };
        fs::write(&target.path, target.bytes()).attempt("write", &target.path)?;
        File::open(&target.path).and_then(|file| file.sync_all()).attempt("sync", &target.path)?;
        Ok(target)
    }

    fn bytes(&self) -> &[u8] {
        &page_aligned(&self.buffer)[..FILE_SIZE]
    }

    /// Opens the file for writes to the page cache.
    pub(crate) fn open(&self) -> io::Result<File> {
        open_for_writes(&self.path, Waiting::Not, false)
    }

    /// Overwrites the first page through `file` and waits for the disk.
    pub(crate) fn commit(&self, file: &File) -> io::Result<()> {
        self.write(file, 1, PAGE_SIZE)?;
        file.sync_data()
    }

    fn write(&self, file: &File, count: usize, size: usize) -> io::Result<()> {
        (0..count).try_for_each(|index| {
            let offset = index * size;
            file.write_all_at(&self.bytes()[offset..offset + size], offset as u64)
        })
    }

    /// Repeats `action` until `length` has passed.
    fn repeat(&self, action: Action, length: Duration, latencies: &mut Latencies) -> io::Result<()> {
        match action {
            Action::Waiting(waiting, count, size) => {
                let file = open_for_writes(&self.path, waiting, true)?;
                latencies.measure(length, || self.write(&file, count, size))
            }
            Action::Data(count) => {
                let file = self.open()?;
                latencies
                    .measure(length, || self.write(&file, count, PAGE_SIZE).and_then(|()| file.sync_data()))
            }
            Action::All(count) => {
                let file = self.open()?;
                latencies
                    .measure(length, || self.write(&file, count, PAGE_SIZE).and_then(|()| file.sync_all()))
            }
            Action::Absent => Err(io::Error::other("not on this system")),
            Action::SameDescriptor => latencies.measure(length, || {
                let file = self.open()?;
                self.write(&file, 1, PAGE_SIZE)?;
                file.sync_all()?;
                drop(file);
                // For a fair comparison with the other method, open and close the file just as often.
                self.open().map(drop)
            }),
            Action::OtherDescriptor => latencies.measure(length, || {
                let file = self.open()?;
                self.write(&file, 1, PAGE_SIZE)?;
                drop(file);
                self.open()?.sync_all()
            }),
            Action::Unsynced => {
                let file = self.open()?;
                // An unsynced write takes about a microsecond. Reading the clock for each write would add a tenth
                // to that time.
                latencies.measure_by(BATCH, length, || self.write(&file, 1, PAGE_SIZE))
            }
        }
    }
}

/// The measurements of all methods.
#[derive(Debug, Clone)]
pub(crate) struct Syncs {
    trials: [MethodResult; METHODS],
    /// Number of flushes the disk receives for each fdatasync of a page. `None` if the kernel doesn't count flushes.
    pub(crate) flushes: Option<f64>,
}

impl Syncs {
    /// Measures all methods for `length` or until the user cancels. Methods that haven't had a turn have no values.
    pub(crate) fn measure(
        target: &TestFile,
        device: &Device,
        roots: &Roots,
        length: Duration,
        progress: &dyn Progress,
    ) -> Self {
        let flushes = || device.disks().iter().filter_map(|disk| disk.flushes(roots)).max();
        let new = |(group, name, action)| {
            let latencies = Latencies::new(format!("{group}: {name}"));
            MethodResult { group, name, action, latencies, refusal: None }
        };
        let mut trials = ACTIONS.map(new);
        let turn = ROUNDS.turn_within(length, METHODS);
        let (sent, synced) = (cell::Cell::new(None), cell::Cell::new(0));
        let mut contenders = trials.each_mut().map(|trial| {
            let (flushes, sent, synced) = (&flushes, &sent, &synced);
            Contender::new(trial.name, move || {
                if trial.refusal.is_some() {
                    return Ok::<_, Infallible>(());
                }
                let (before, count) = (flushes(), trial.latencies.sample().len());
                let tried = target.repeat(trial.action, turn, &mut trial.latencies);
                trial.refusal = tried.err().map(|error| message_without_number(&error));
                if trial.action == Action::Data(1) {
                    let more = before.zip(flushes()).map(|(before, after)| after.saturating_sub(before));
                    sent.set(more.map(|more| more + sent.get().unwrap_or(0)));
                    synced.set(synced.get() + trial.latencies.sample().len() - count);
                }
                Ok(())
            })
        });
        let Ok(()) = ROUNDS.run(&mut contenders, progress, drop);
        drop(contenders);
        let (sent, synced) = (sent.get(), synced.get());
        let flushes = sent.filter(|_| synced > 0).map(|sent| as_f64(sent) / as_f64(synced));
        Self { trials, flushes }
    }

    fn of(&self, action: Action) -> &Latencies {
        let trial = self.trials.iter().find(|trial| trial.action == action);
        &trial.expect("all actions are tried").latencies
    }

    /// Returns each method's group and name, in order.
    pub(crate) fn names() -> [(&'static str, &'static str); METHODS] {
        ACTIONS.map(|(group, name, _)| (group, name))
    }

    /// Yields each method's operations per second, or `None` if the system refused the method.
    pub(crate) fn rates(&self) -> impl Iterator<Item = Option<f64>> {
        let rate = |trial: &MethodResult| trial.latencies.rate().filter(|_| trial.refusal.is_none());
        self.trials.iter().map(move |trial| rate(trial).map(|rate| rate.value))
    }

    /// Returns how long an fdatasync of one page takes. With default settings, each commit needs one fdatasync.
    pub(crate) fn fdatasync(&self) -> &Latencies {
        self.of(Action::Data(1))
    }

    /// Yields all measured values, for the machine-readable formats.
    pub(crate) fn samples(&self) -> impl Iterator<Item = &Latencies> {
        self.trials.iter().map(|trial| &trial.latencies).filter(|latencies| !latencies.sample().is_empty())
    }

    /// Returns the key figure for the top of the page.
    pub(crate) fn tile(&self) -> Option<Tile> {
        let (p50, p99) = (self.fdatasync().p50()?, self.fdatasync().p99()?);
        Some(Tile::new("Sync of 8 kB", p50, format!("p50 of fdatasync; p99 {p99}")))
    }

    pub(crate) fn layer(&self, device: &Device) -> Layer {
        let fdatasync = self.fdatasync();
        let [p50, p99, least] = [fdatasync.p50(), fdatasync.p99(), fdatasync.least()];
        let (Some(rate), Some(p50), Some(p99), Some(least)) = (fdatasync.rate(), p50, p99, least) else {
            let refusal = self.trials.iter().find_map(|trial| trial.refusal.clone());
            return Layer::new(
                "Sync",
                refusal.map_or_else(|| "not measured.".to_owned(), |why| format!("{why}.")),
            );
        };
        let judgement = assess_flushes(device, least, self.flushes);
        let mut layer = Layer::new("Sync", format!("{p50} for 8 kB and fdatasync (p99 {p99}): {judgement}."));
        layer.add_fact("fdatasync", rate);
        let fsync = self.of(Action::All(1));
        layer.add_fact("fsync", fsync.rate());
        layer.add_fact("not synced", self.of(Action::Unsynced).rate());
        let flushes = self.flushes.map(|flushes| format!("{flushes:.2}"));
        layer.add_fact("flushes for each fdatasync", flushes);
        layer
    }

    /// Formats one row per method. Without `all`, the table only contains the methods for a single page and the
    /// methods that the system refused.
    pub(crate) fn table(&self, all: bool) -> Table {
        let columns = [Column::left("writes"), Column::left("method")];
        let numbers = ["rate", "p50", "p99", "longest"].map(Column::right);
        let mut table =
            Table::new("Sync methods", columns.into_iter().chain(numbers).chain([Column::left("refusal")]));
        let shown = |trial: &&MethodResult| {
            all || (trial.action != Action::Absent && (trial.group == ONE || trial.refusal.is_some()))
        };
        for MethodResult { group, name, latencies, refusal, .. } in self.trials.iter().filter(shown) {
            let max = latencies.sample().max();
            let numbers = [latencies.rate(), latencies.p50(), latencies.p99(), max].map(Cell::from);
            let names = [Cell::from(*group), Cell::from(*name)];
            let refusal = refusal.as_deref().map_or(Cell::from(""), Cell::from);
            table.add_row(names.into_iter().chain(numbers).chain([refusal]));
        }
        table
    }
}

/// Formats an error without the operating system's error number.
fn message_without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Judges whether a disk's flushes are plausible. `time` is their duration, and `flushes` is the number of flushes
/// per fdatasync.
///
/// `time` must be the duration of the fastest flushes, not the median. While the CPUs are overloaded, the median is
/// long even if a flush does nothing.
///
/// A disk lies if it has a volatile cache but receives no flushes. A rotating disk can't plausibly flush within 2 ms.
/// A drive without power-loss protection can't plausibly flush within 100 µs, because no consumer drive is that fast.
/// The text never calls a disk safe.
pub(crate) fn assess_flushes(device: &Device, time: Quantity, flushes: Option<f64>) -> String {
    let (keeping, seconds) = (device.flush_durability(), time.value);
    let unsent = flushes.is_some_and(|flushes| flushes < 0.5);
    match keeping {
        FlushDurability::Memory => "memory, nothing is flushed".to_owned(),
        FlushDurability::FlushesDisabled => {
            "lies about flush, because the kernel sends none to its volatile cache".to_owned()
        }
        FlushDurability::Volatile if unsent => {
            "lies about flush, because the disk has a volatile cache but receives none".to_owned()
        }
        _ if device.reports_rotation() && seconds < MIN_ROTATING_FLUSH => {
            format!("virtual or unproven, because a rotating disk cannot flush within {time}")
        }
        FlushDurability::HostDecides(_) => "virtual or unproven, however long it takes".to_owned(),
        FlushDurability::Unknown(_) if seconds < MIN_UNPROTECTED_FLUSH => {
            format!("virtual or unproven, because nothing explains {time}")
        }
        FlushDurability::Volatile if seconds < MIN_UNPROTECTED_FLUSH => {
            format!(
                "virtual or unproven, because a drive without power-loss protection cannot flush within {time}"
            )
        }
        FlushDurability::Protected if seconds > MAX_PROTECTED_FLUSH => {
            format!("slower than expected with power-loss protection, {time} at best")
        }
        FlushDurability::Protected => "as expected with power-loss protection".to_owned(),
        FlushDurability::WriteThrough if seconds < MIN_UNPROTECTED_FLUSH => {
            "the drive reports that it loses nothing, which is unproven".to_owned()
        }
        FlushDurability::WriteThrough | FlushDurability::Unknown(_) => "waits for the disk".to_owned(),
        FlushDurability::Volatile if device.reports_rotation() => "plausible for a rotating disk".to_owned(),
        FlushDurability::Volatile => "plausible for a drive without power-loss protection".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use report::Unit;
    use sys::{Bottom, Disk, Stack};

    use super::*;

    fn device(name: &str, model: Option<&str>, rotational: bool) -> Device {
        let disk = Disk {
            name: name.to_owned(),
            model: model.map(str::to_owned),
            rotational: Some(rotational),
            write_cache: Some("write back".to_owned()),
            ..Disk::default()
        };
        Device { stack: Stack { layers: Vec::new(), bottom: Bottom::Disks(vec![disk]) }, cap: None }
    }

    struct Cancelled;

    impl Progress for Cancelled {
        fn is_cancelled(&self) -> bool {
            true
        }
    }

    #[test]
    fn implausibly_fast_flushes_are_not_trusted() {
        let (samsung, hdd) = (device("nvme0n1", Some("Samsung"), false), device("sda", Some("ST4000"), true));
        let (virtio, micron) = (device("vda", None, false), device("nvme0n1", Some("Micron_7400_X"), false));
        for (device, seconds, flushes, begin) in [
            (&samsung, 1e-3, Some(1.0), "plausible for a drive without"),
            (&samsung, 1e-3, None, "plausible for a drive without"),
            (&samsung, 20e-6, Some(1.0), "virtual or unproven"),
            (&samsung, 20e-6, Some(0.0), "lies"),
            (&hdd, 8.3e-3, Some(1.0), "plausible for a rotating disk"),
            (&hdd, 0.3e-3, Some(1.0), "virtual or unproven"),
            (&virtio, 5e-3, Some(1.0), "virtual or unproven"),
            (&micron, 24e-6, Some(0.0), "as expected"),
            (&micron, 5e-3, Some(0.0), "slower than expected"),
        ] {
            let text = assess_flushes(device, Quantity::new(seconds, Unit::Seconds), flushes);
            assert!(text.starts_with(begin), "{text}");
            assert!(!text.contains("safe"), "{text}");
        }
    }

    #[test]
    fn every_sync_method_and_refusal_has_a_row() {
        let folder = tempfile::tempdir().unwrap();
        let target = TestFile::create(folder.path()).unwrap();
        let device = device("vda", None, false);
        let measure = |progress: &dyn Progress| {
            Syncs::measure(&target, &device, &Roots::default(), Duration::ZERO, progress)
        };
        let syncs = measure(&());
        let measured = |name: &str| syncs.trials.iter().find(|trial| trial.name == name).unwrap();
        assert_eq!(measured("fdatasync").latencies.sample().len(), 3);
        assert_eq!(measured("fsync_writethrough").refusal.as_deref(), Some("not on this system"));
        let table = syncs.table(true).to_json();
        assert_eq!(table["rows"].as_array().unwrap().len(), 18);
        assert!(table["rows"][3]["rate"].is_null(), "{table}");
        assert!(
            syncs.trials.iter().all(|trial| trial.refusal.is_some() == trial.latencies.sample().is_empty())
        );
        assert_eq!(measure(&Cancelled).samples().count(), 0);
    }
}
