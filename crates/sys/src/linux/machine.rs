//! What the machine is, and how busy. What it does not say is `None`. Source: proc(5).

use std::fs;

use super::memory::bytes_of;

/// The kernel's release.
#[must_use]
pub fn kernel() -> Option<String> {
    first_line("/proc/sys/kernel/osrelease")
}

/// What the machine calls itself.
#[must_use]
pub fn host_name() -> Option<String> {
    first_line("/proc/sys/kernel/hostname")
}

/// The mean numbers of running processes over the last 1, 5 and 15 minutes.
#[must_use]
pub fn load_average() -> Option<String> {
    Some(first_line("/proc/loadavg")?.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// How many tasks run or wait for a processor now. Source: proc(5), the fourth field of `/proc/loadavg`.
#[must_use]
pub fn runnable_tasks() -> Option<usize> {
    first_line("/proc/loadavg")?.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// The model of its processors.
#[must_use]
pub fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Some(model?.1.trim().to_owned())
}

/// Bytes of memory that it has.
#[must_use]
pub fn total_memory() -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

/// Ticks of a second in which processor time is counted.
#[must_use]
pub fn clock_ticks() -> u64 {
    rustix::param::clock_ticks_per_second()
}

fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(str::to_owned)
}
