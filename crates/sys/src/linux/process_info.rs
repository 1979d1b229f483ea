//! Reads information about other processes by their pids. Source: proc(5).

use std::fs::{self, File};
use std::io::{self, PipeReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::fstat;

use super::memory::bytes_of;

/// Returns the command line, with a zero byte after each argument, or an empty list if there is no such
/// process.
#[must_use]
pub fn command_line(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Returns the process's executable, or `None` if the process or the file no longer exists.
#[must_use]
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok().filter(|path| path.exists())
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

/// Returns true if the process's standard output is the pipe that `reader` reads.
#[must_use]
pub fn writes_to(pid: u32, reader: &PipeReader) -> bool {
    let Ok(output) = fs::metadata(format!("/proc/{pid}/fd/1")) else { return false };
    fstat(reader).is_ok_and(|pipe| (pipe.st_dev, pipe.st_ino) == (output.dev(), output.ino()))
}

/// Returns true if the process is in interruptible sleep. A process that receives a signal isn't asleep until
/// it has handled the signal. Returns false if the process is stopped or doesn't exist.
#[must_use]
pub fn is_asleep(pid: u32) -> bool {
    after_name(pid).is_some_and(|fields| fields.starts_with("S "))
}

/// Returns true if the process has begun to exit but its parent hasn't been notified yet. The kernel closes
/// an exiting process's sockets before it reports the exit. Returns false if the process doesn't exist.
#[must_use]
pub fn is_ending(pid: u32) -> bool {
    /// The kernel's flag for an exiting process. Source: `PF_EXITING` in `linux/sched.h`.
    const EXITING: u64 = 4;
    let Some(fields) = after_name(pid) else { return false };
    // The state and the flags are the first and the seventh field after the name.
    let flags = fields.split(' ').nth(6).and_then(|flags| flags.parse::<u64>().ok());
    fields.starts_with(['Z', 'X']) || flags.is_some_and(|flags| flags & EXITING != 0)
}

/// Returns the `/proc/PID/stat` fields after the program's name, or `None` if the process doesn't exist. The
/// last field may be incomplete.
fn after_name(pid: u32) -> Option<String> {
    // A single read of 128 bytes is enough for the pid, the program's name of up to 15 bytes, and the next
    // seven fields.
    let mut stat = [0; 128];
    File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut stat)).ok()?;
    // The name is in parentheses and can contain any character, including a parenthesis.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    Some(String::from_utf8_lossy(stat.get(name_end + 2..)?).into_owned())
}

/// Returns the peak resident memory, in bytes.
///
/// # Errors
/// Returns an error if there is no process with this pid.
pub fn peak_memory(pid: u32) -> io::Result<u64> {
    memory(pid, "VmHWM")
}

/// Returns the current resident memory, in bytes.
///
/// # Errors
/// Returns an error if there is no process with this pid.
pub fn resident_memory(pid: u32) -> io::Result<u64> {
    memory(pid, "VmRSS")
}

/// Returns the processor time of all threads called `threads`, or of all threads if `threads` is `None`.
/// Source: Linux, Documentation/scheduler/sched-stats.rst (`schedstat`, nanoseconds).
///
/// # Errors
/// Returns an error if there is no process with this pid. Threads that end meanwhile count as 0.
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::{Signal, signal};

    #[test]
    fn process_is_ending_until_its_parent_waits() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!is_ending(cat.id()));
        drop(cat.stdin.take());
        while !is_ending(cat.id()) {
            std::thread::yield_now();
        }
        assert!(cat.wait().unwrap().success());
        assert!(!is_ending(cat.id()));
    }

    #[test]
    fn process_is_asleep_until_signalled() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        while !is_asleep(cat.id()) {
            std::thread::yield_now();
        }
        signal(&cat, Signal::STOP).unwrap();
        assert!(!is_asleep(cat.id()));
        signal(&cat, Signal::TERM).unwrap();
        assert!(!is_asleep(cat.id()));
        signal(&cat, Signal::CONT).unwrap();
        cat.wait().unwrap();
        assert!(!is_asleep(cat.id()));
    }
}
