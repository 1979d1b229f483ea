//! Finds out why a server exited, from the last lines of its log.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use storage::{Attempt, RunDirectory};
use sys::ProcessHandle;

use crate::error::InitdbError;

/// Number of bytes to search, counted from the end of the log.
const SEARCHED_BYTES: i64 = 16 * 1024;

/// Returns the log line that explains why the server exited. This is the last line with the most severe level
/// (PANIC, FATAL, ERROR or LOG), or else the last line of the log. Lines that only report consequences are
/// ignored, as are the first `before` bytes, which earlier servers wrote.
pub(crate) fn reason_line(log: &Path, before: u64) -> Option<String> {
    let new = i64::try_from(length(log).saturating_sub(before)).ok()?;
    most_severe_line(&end_of_log(log, SEARCHED_BYTES.min(new)).ok()?)
}

/// Returns the size of a log in bytes, or 0 if the log doesn't exist.
pub(crate) fn length(log: &Path) -> u64 {
    fs::metadata(log).map_or(0, |file| file.len())
}

/// Returns the log line about a crash: the last message of the crashed process itself, or else the line about
/// the signal that killed it.
pub(crate) fn last_crash(log: &Path) -> Option<String> {
    let log = end_of_log(log, SEARCHED_BYTES).ok()?;
    let last = |words: &str| log.lines().rfind(|line| line.contains(words)).map(without_prefix);
    last("PANIC:  ").or_else(|| last("was terminated by signal"))
}

/// Returns the last `most` bytes of a log, or the whole log if it is shorter.
///
/// # Errors
/// Returns an error if the log doesn't exist or can't be read.
pub fn end_of_log(log: &Path, most: i64) -> io::Result<String> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::End(-most)).or_else(|_| file.rewind().map(|()| 0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Substrings of lines that only report a consequence. After a crash, each process reports that it is
/// shutting down. After a bad setting, the server reports the name of the configuration file. In both cases,
/// the reason itself is on an earlier line.
const CONSEQUENCE_TEXTS: [&str; 4] =
    ["terminating connection", "the database system is", "contains errors", "database system is shut down"];

/// Timeout for initdb and the programs that run after it, which take half a minute on a slow disk.
const INITDB_TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_mins(10) };

/// Waits for a program to exit, then removes the log of `run`, which contains the program's output.
/// Terminating the program's children is left to the guard.
pub(crate) fn wait(program: &'static str, mut child: Child, run: &RunDirectory) -> Result<(), InitdbError> {
    let path = Path::new(program);
    let handle = ProcessHandle::of(&child).attempt("wait for", path)?;
    let in_time = sys::wait_readable(&handle, INITDB_TIMEOUT).attempt("wait for", path)?;
    if !in_time {
        handle.kill();
    }
    let status = child.wait().attempt("wait for", path)?;
    let last_line = reason_line(&run.log(), 0).unwrap_or_else(|| "(nothing)".to_owned());
    fs::remove_file(run.log()).attempt("remove", &run.log())?;
    match in_time {
        false => Err(InitdbError::TooLate { program, after: INITDB_TIMEOUT, last_line }),
        true if status.success() => Ok(()),
        true => Err(InitdbError::Failed { program, status, last_line }),
    }
}

fn most_severe_line(log: &str) -> Option<String> {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let consequence = |line: &str| CONSEQUENCE_TEXTS.iter().any(|words| line.contains(words));
    let says = |word: &'static str| lines().rfind(move |line| line.contains(word) && !consequence(line));
    let line = says("PANIC:  ")
        .or_else(|| says("FATAL:  "))
        .or_else(|| says("ERROR:  "))
        .or_else(|| says("LOG:  "))
        .or_else(|| lines().next_back())?;
    Some(without_prefix(line))
}

/// Returns a line without its timestamp and process id.
fn without_prefix(line: &str) -> String {
    let start =
        ["PANIC:  ", "FATAL:  ", "ERROR:  ", "LOG:  "].iter().find_map(|word| line.find(word)).unwrap_or(0);
    line[start..].chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_reason_is_preferred_to_consequences() {
        let log = "2026-01-01 00:00:00.000 UTC [7] LOG:  starting\n\
                   2026-01-01 00:00:00.000 UTC [7] FATAL:  could not create shared memory segment: No space left on device\n\
                   2026-01-01 00:00:00.000 UTC [8] FATAL:  the database system is starting up\n\
                   2026-01-01 00:00:00.000 UTC [7] LOG:  database system is shut down\n";
        assert_eq!(
            most_severe_line(log).unwrap(),
            "FATAL:  could not create shared memory segment: No space left on device"
        );
        let log = "2026-01-01 00:00:00.000 UTC [7] LOG:  invalid value for parameter \"work_mem\": \"1XB\"\n\
                   2026-01-01 00:00:00.000 UTC [7] HINT:  Valid units for this parameter are \"B\" and \"kB\".\n\
                   2026-01-01 00:00:00.000 UTC [7] FATAL:  configuration file \"x\" contains errors\n";
        assert_eq!(most_severe_line(log).unwrap(), "LOG:  invalid value for parameter \"work_mem\": \"1XB\"");
        let log = "2026-01-01 00:00:00.000 UTC [7] LOG:  could not create file \"postmaster.opts\": No space left on device\n\
                   2026-01-01 00:00:00.000 UTC [7] LOG:  database system is shut down\n";
        assert!(most_severe_line(log).unwrap().ends_with("No space left on device"));
        assert_eq!(most_severe_line("only this\n\n").unwrap(), "only this");
        assert_eq!(most_severe_line(""), None);
    }

    #[test]
    fn log_lines_of_earlier_servers_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!((length(&log), reason_line(&log, 0)), (0, None));
        fs::write(&log, "x PANIC:  of the first\n").unwrap();
        let before = length(&log);
        assert_eq!(reason_line(&log, 0).unwrap(), "PANIC:  of the first");
        assert_eq!(reason_line(&log, before), None);
        fs::write(&log, "x PANIC:  of the first\npostgres: of the second\n").unwrap();
        assert_eq!(reason_line(&log, before).unwrap(), "postgres: of the second");
        fs::write(&log, "cut\n").unwrap();
        assert_eq!(reason_line(&log, before), None);
    }
}
