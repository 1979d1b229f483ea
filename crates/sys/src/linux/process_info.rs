//! Reads information about other processes by their pids. Source: proc(5).

use std::fs;
use std::io;
use std::time::Duration;

use crate::kernel_files::bytes_of;

/// Returns the command line, with a zero byte after each argument, or an empty list if the process doesn't exist.
#[must_use]
pub fn command_line(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Returns the pids of the process's children, including those that its other threads started.
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children =
        threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children: Vec<_> = children.collect();
    children.iter().flat_map(|pids| pids.split_whitespace()).filter_map(|child| child.parse().ok()).collect()
}

/// Returns the peak resident memory, in bytes.
///
/// # Errors
/// Returns an error if no process has this pid.
pub fn peak_memory(pid: u32) -> io::Result<u64> {
    memory(pid, "VmHWM")
}

/// Returns the current resident memory, in bytes.
///
/// # Errors
/// Returns an error if no process has this pid.
pub fn resident_memory(pid: u32) -> io::Result<u64> {
    memory(pid, "VmRSS")
}

/// Returns the processor time of all threads called `threads`, or of all threads if `threads` is `None`.
/// Source: Linux, Documentation/scheduler/sched-stats.rst (`schedstat`, nanoseconds).
///
/// # Errors
/// Returns an error if no process has this pid. Threads that exit during the call count as 0.
pub fn processor_time(pid: u32, threads: Option<&str>) -> io::Result<Duration> {
    let mut sum = Duration::ZERO;
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        // A missing file isn't an error, because the thread may have just exited.
        let read = |name| fs::read_to_string(path.join(name)).unwrap_or_default();
        if threads.is_none_or(|name| read("comm").trim_end() == name) {
            let nanoseconds = read("schedstat").split(' ').next().and_then(|word| word.parse().ok());
            sum += Duration::from_nanos(nanoseconds.unwrap_or(0));
        }
    }
    Ok(sum)
}

fn memory(pid: u32, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(bytes_of(&text, name).unwrap_or(0))
}
