//! What can be seen of a process by its number. Source: proc(5).

use std::fs;
use std::io;

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
    memory(pid, "VmHWM:")
}

/// Bytes of memory that it takes now.
pub fn resident_memory(pid: u32) -> io::Result<u64> {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
    Ok(kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024)
}
