//! What can be seen of a process by its number. Source: proc(5).

use std::fs;
use std::io;
use std::time::Duration;

use super::memory::bytes_of;

/// The words that it was started with, each ended by a zero; nothing of one that is not there.
#[must_use]
pub fn command_line(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// The numbers of its first thread's children.
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The most bytes of memory that it has taken at any time.
pub fn peak_memory(pid: u32) -> io::Result<u64> {
    memory(pid, "VmHWM")
}

/// Bytes of memory that it takes now.
pub fn resident_memory(pid: u32) -> io::Result<u64> {
    memory(pid, "VmRSS")
}

/// Processor time that its threads of that name have taken, or all of them. Source: Linux, Documentation/scheduler/sched-stats.rst
/// (`schedstat`, nanoseconds).
pub fn processor_time(pid: u32, threads: Option<&str>) -> io::Result<Duration> {
    let mut sum = Duration::ZERO;
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        // One that has ended meanwhile has no files any more.
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
