//! Detects a shortage of processor time, which makes measured times misleading.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::mount::Roots;

/// Measured times are questionable if at least one task was waiting for a processor during this share of the
/// time.
const SEVERE_WAITING_SHARE: f64 = 0.5;
/// Measured times don't describe this machine if its host gave this share of the processor time to other
/// guests.
const SEVERE_STOLEN_SHARE: f64 = 0.1;

/// Returns the number of seconds since boot during which at least one task was waiting for `resource` (`cpu`
/// or `io`). Returns `None` if the kernel doesn't provide pressure information. Source: Linux,
/// Documentation/accounting/psi.rst, 4.20.
#[must_use]
pub fn pressure(procfs: &Path, resource: &str) -> Option<f64> {
    let text = fs::read_to_string(procfs.join("pressure").join(resource)).ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    Some(some.split_once("total=")?.1.trim().parse::<f64>().ok()? / 1e6)
}

/// Measures the shortage of processor time since the watch was created.
#[derive(Debug)]
pub struct ProcessorWatch {
    roots: Roots,
    begun: Instant,
    waited: Option<f64>,
    ticks: Option<Ticks>,
}

/// Clock ticks of all processors since boot.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    all: f64,
    stolen: f64,
}

/// The shortage of processor time during an interval. Fields are `None` if the kernel doesn't report the
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shortage {
    /// Share of the time during which at least one task was waiting for a processor, from 0 to 1.
    pub waited: Option<f64>,
    /// Share of the processor time that the host gave to other guests instead, from 0 to 1.
    pub stolen: Option<f64>,
}

impl ProcessorWatch {
    /// Starts a measurement.
    #[must_use]
    pub fn start(roots: &Roots) -> Self {
        let (waited, ticks) = (pressure(&roots.procfs, "cpu"), Ticks::read(&roots.procfs));
        Self { roots: roots.clone(), begun: Instant::now(), waited, ticks }
    }

    /// Returns the shortage since the start of the measurement.
    #[must_use]
    pub fn shortage(&self) -> Shortage {
        let waited = pressure(&self.roots.procfs, "cpu").zip(self.waited).map(|(now, then)| now - then);
        let elapsed = self.begun.elapsed().as_secs_f64();
        let ticks = Ticks::read(&self.roots.procfs).zip(self.ticks);
        let stolen = ticks.map(|(now, then)| (now.stolen - then.stolen) / (now.all - then.all).max(1.0));
        let share = |share: f64| share.clamp(0.0, 1.0);
        Shortage { waited: waited.map(|seconds| share(seconds / elapsed)), stolen: stolen.map(share) }
    }
}

impl Ticks {
    /// Reads the clock ticks. Source: proc(5), `/proc/stat`: user, nice, system, idle, iowait, irq, softirq,
    /// steal.
    fn read(procfs: &Path) -> Option<Self> {
        let text = fs::read_to_string(procfs.join("stat")).ok()?;
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<f64> = fields.take(8).map_while(|ticks| ticks.parse().ok()).collect();
        Some(Self { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }
}

impl Shortage {
    /// Returns true if the shortage is severe enough to make times measured in this interval misleading.
    #[must_use]
    pub fn is_severe(&self) -> bool {
        self.waited.is_some_and(|share| share >= SEVERE_WAITING_SHARE)
            || self.stolen.is_some_and(|share| share >= SEVERE_STOLEN_SHARE)
    }

    /// Returns a warning to print next to times measured in this interval, if one is needed.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.is_severe().then(|| {
            format!("CPU time was short during the measurement: {self}. These times are uncertain; measure again when the machine is quiet.")
        })
    }
}

impl fmt::Display for Shortage {
    /// Formats the shortage, e.g. as `some task waited for a processor 97 % of the time, and the host gave 12
    /// % of their time to others`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let waited = self
            .waited
            .map(|share| format!("some task waited for a processor {} of the time", percent(share)));
        let stolen = self.stolen.filter(|share| *share >= 0.01);
        let stolen =
            stolen.map(|share| format!("the host gave {} of the processors' time to others", percent(share)));
        let parts: Vec<_> = waited.into_iter().chain(stolen).collect();
        f.write_str(if parts.is_empty() { "the kernel does not report the cause" } else { "" })?;
        f.write_str(&parts.join(", and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the roots of a fake machine with the given counters.
    fn machine(folder: &Path, waited: u64, ticks: &str) -> Roots {
        fs::create_dir_all(folder.join("pressure")).unwrap();
        let text =
            format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={waited}\nfull avg10=0.00 total=7\n");
        fs::write(folder.join("pressure/cpu"), text).unwrap();
        fs::write(folder.join("stat"), format!("cpu  {ticks} 0 0\ncpu0 {ticks} 0 0\nintr 5\n")).unwrap();
        Roots { procfs: folder.to_owned(), ..Roots::default() }
    }

    #[test]
    fn shortage_counts_waited_and_stolen_time_since_start() {
        let folder = tempfile::tempdir().unwrap();
        let roots = machine(folder.path(), 5_000_000, "100 0 100 800 0 0 0 0");
        let watch = ProcessorWatch::start(&roots);
        machine(folder.path(), 5_000_000, "150 0 150 870 0 0 0 30");
        let shortage = watch.shortage();
        assert_eq!((shortage.waited, shortage.stolen), (Some(0.0), Some(0.15)));
        assert!(shortage.is_severe());
        // The waiting time exceeds the elapsed time, because the two clocks differ slightly.
        machine(folder.path(), 900_000_000, "150 0 150 870 0 0 0 0");
        let shortage = watch.shortage();
        assert_eq!((shortage.waited, shortage.is_severe()), (Some(1.0), true));
        assert_eq!(shortage.to_string(), "some task waited for a processor 100 % of the time");
    }

    #[test]
    fn missing_kernel_data_is_no_shortage() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots { procfs: folder.path().to_owned(), ..Roots::default() };
        let shortage = ProcessorWatch::start(&roots).shortage();
        assert_eq!((shortage, shortage.is_severe()), (Shortage::default(), false));
        assert_eq!(shortage.to_string(), "the kernel does not report the cause");
    }
}
