//! Measures a server's resource usage on this machine: CPU time, waits for CPUs, and bytes written.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use report::as_f64;

/// Usage of this machine's resources between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MachineUsage {
    /// Number of CPUs in this machine.
    pub processors: f64,
    /// The suite's CPU time, in seconds. Only covers pgfresh's child processes that have exited.
    pub suite_cpu: f64,
    /// CPU time of the observed backends, in seconds.
    pub backend_cpu: f64,
    /// Seconds during which these backends were ready to run but didn't have a CPU.
    pub backend_delay: f64,
    /// Number of bytes these backends wrote to disks.
    pub backend_written: f64,
    /// Seconds during which at least one process on this machine waited for a CPU.
    pub cpu_pressure: Option<f64>,
    /// Seconds during which at least one process on this machine waited for a disk.
    pub io_pressure: Option<f64>,
}

impl MachineUsage {
    /// Adds the resources of two recordings from the same machine.
    pub(crate) fn plus(self, other: Self) -> Self {
        let both = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
        Self {
            processors: self.processors,
            suite_cpu: self.suite_cpu + other.suite_cpu,
            backend_cpu: self.backend_cpu + other.backend_cpu,
            backend_delay: self.backend_delay + other.backend_delay,
            backend_written: self.backend_written + other.backend_written,
            cpu_pressure: both(self.cpu_pressure, other.cpu_pressure),
            io_pressure: both(self.io_pressure, other.io_pressure),
        }
    }

    /// Multiplies all values by `part`.
    pub(crate) fn times(self, part: f64) -> Self {
        Self {
            processors: self.processors,
            suite_cpu: self.suite_cpu * part,
            backend_cpu: self.backend_cpu * part,
            backend_delay: self.backend_delay * part,
            backend_written: self.backend_written * part,
            cpu_pressure: self.cpu_pressure.map(|seconds| seconds * part),
            io_pressure: self.io_pressure.map(|seconds| seconds * part),
        }
    }
}

/// A process's resource usage since its start: CPU time in seconds, waits for a CPU in seconds, and bytes written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Usage {
    cpu: f64,
    delay: f64,
    written: f64,
}

/// Reads resource usage from `/proc`.
#[derive(Debug)]
pub(crate) struct ProcfsSampler {
    procfs: PathBuf,
    suite_cpu: f64,
    pressure: [Option<f64>; 2],
    /// First and last usage read for each backend, by process ID and start.
    usage: HashMap<(i32, i64), (Usage, Usage)>,
}

impl ProcfsSampler {
    pub(crate) fn new(procfs: PathBuf) -> Self {
        let mut observer = Self { procfs, suite_cpu: 0.0, pressure: [None; 2], usage: HashMap::new() };
        observer.suite_cpu = observer.children_cpu();
        observer.pressure = [observer.pressure_of("cpu"), observer.pressure_of("io")];
        observer
    }

    /// Returns true if the process is waiting for a disk although the server reports no wait event. Such waits happen
    /// inside system calls without a wait event, for example when the server removes a file. Source: proc(5),
    /// `/proc/PID/stat`, state `D`.
    pub(crate) fn waits_for_disk(&self, pid: i32) -> bool {
        self.read(pid, "stat").is_some_and(|stat| {
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('D'))
        })
    }

    /// Records a process's current usage. `new` is true if the process started after the recording.
    pub(crate) fn record(&mut self, pid: i32, began: i64, new: bool) {
        let Some(now) = self.usage_of(pid) else { return };
        let first = if new { Usage::default() } else { now };
        self.usage.entry((pid, began)).or_insert((first, now)).1 = now;
    }

    /// Reads a process's resource usage so far. Source: Linux, Documentation/scheduler/sched-stats.rst
    /// (`/proc/PID/schedstat`, nanoseconds); proc(5), `io`.
    fn usage_of(&self, pid: i32) -> Option<Usage> {
        let schedule = self.read(pid, "schedstat")?;
        let mut times = schedule.split_whitespace().map(|time| time.parse::<f64>().unwrap_or(0.0) / 1e9);
        let (cpu, delay) = (times.next()?, times.next()?);
        // Only root and the process's owner can read this file.
        let io = self.read(pid, "io").unwrap_or_default();
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
        Some(Usage { cpu, delay, written: written.unwrap_or(0.0) })
    }

    fn read(&self, pid: i32, file: &str) -> Option<String> {
        fs::read_to_string(self.procfs.join(pid.to_string()).join(file)).ok()
    }

    fn pressure_of(&self, resource: &str) -> Option<f64> {
        sys::pressure(&self.procfs, resource)
    }

    /// Returns the CPU time of pgfresh's child processes that have exited, in seconds. Source: proc(5),
    /// `/proc/PID/stat`, fields 16 and 17.
    fn children_cpu(&self) -> f64 {
        let stat = fs::read_to_string(self.procfs.join("self/stat")).unwrap_or_default();
        let Some((_, fields)) = stat.rsplit_once(')') else { return 0.0 };
        let ticks: f64 =
            fields.split_whitespace().skip(13).take(2).filter_map(|time| time.parse::<f64>().ok()).sum();
        ticks / as_f64(sys::clock_ticks())
    }

    pub(crate) fn finish(self) -> MachineUsage {
        let less = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        let sum = |part: fn(&Usage) -> f64| {
            self.usage.values().map(|(first, last)| part(last) - part(first)).sum::<f64>()
        };
        MachineUsage {
            processors: as_f64(std::thread::available_parallelism().map_or(1, usize::from)),
            suite_cpu: self.children_cpu() - self.suite_cpu,
            backend_cpu: sum(|usage| usage.cpu),
            backend_delay: sum(|usage| usage.delay),
            backend_written: sum(|usage| usage.written),
            cpu_pressure: less(self.pressure_of("cpu"), self.pressure[0]),
            io_pressure: less(self.pressure_of("io"), self.pressure[1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_file(root: &std::path::Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn usage_covers_only_the_recording() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write_file(root, "self/stat", "1 (a) b) S 1 1 1 0 -1 0 0 0 0 0 7 7 100 50 20 0");
        write_file(root, "pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
        write_file(root, "7/schedstat", "1000000000 500000000 9\n");
        write_file(root, "7/io", "rchar: 1\nwrite_bytes: 4096\n");
        write_file(root, "8/schedstat", "2000000000 0 9\n");
        write_file(root, "8/stat", "8 (postgres) D 1");
        let mut observer = ProcfsSampler::new(root.to_owned());
        observer.record(7, 1, false);
        observer.record(8, 1, true);
        observer.record(9, 1, true);
        write_file(root, "7/schedstat", "1500000000 700000000 9\n");
        write_file(root, "7/io", "rchar: 1\nwrite_bytes: 8192\n");
        observer.record(7, 1, false);
        write_file(root, "self/stat", "1 (a) b) S 1 1 1 0 -1 0 0 0 0 0 7 7 200 150 20 0");
        write_file(root, "pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3500000\n");
        assert!(observer.waits_for_disk(8) && !observer.waits_for_disk(7));
        let machine = observer.finish();
        let ticks = as_f64(sys::clock_ticks());
        assert!((machine.suite_cpu - 200.0 / ticks).abs() < 1e-9);
        assert!((machine.backend_cpu - 2.5).abs() < 1e-9 && (machine.backend_delay - 0.2).abs() < 1e-9);
        assert!((machine.backend_written - 4096.0).abs() < 1e-9);
        assert_eq!((machine.cpu_pressure, machine.io_pressure), (Some(2.5), None));
    }
}
