//! Describes the machine and its load, for example for benchmark reports. Functions return `None` if the
//! kernel doesn't report the value. Source: proc(5).

use std::fs;
use std::time::Duration;

use crate::kernel_files::bytes_of;

/// The paths of sysfs and procfs.
pub(crate) const KERNEL_FILES: [&str; 2] = ["/sys", "/proc"];

/// Returns the kernel release.
#[must_use]
pub fn kernel() -> Option<String> {
    first_line("/proc/sys/kernel/osrelease")
}

/// Returns the number of tasks that are running or waiting for a
/// processor. Source: proc(5), the fourth field of `/proc/loadavg`.
#[must_use]
pub fn runnable_tasks() -> Option<usize> {
    first_line("/proc/loadavg")?.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// Returns how long the calling thread has waited for a processor since it began. Source: sched-stats.rst, the
/// second field of `/proc/PID/schedstat`.
#[must_use]
pub fn run_delay() -> Option<Duration> {
    let nanoseconds = first_line("/proc/thread-self/schedstat")?.split(' ').nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Returns the model name of the processors.
#[must_use]
pub fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Some(model?.1.trim().to_owned())
}

/// Returns the total memory in bytes.
#[must_use]
pub fn total_memory() -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(str::to_owned)
}
