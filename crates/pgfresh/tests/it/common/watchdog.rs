//! Makes a hanging test fail: prints where the test hangs, and kills its processes.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::WAIT_TIMEOUT;
use super::depth;
use super::leftovers::{Process, processes_about};

/// Longer than any test takes on a machine ten times slower than a desktop. A hanging wait fails earlier,
/// and reports the reason.
const TEST_TIMEOUT: Duration = WAIT_TIMEOUT.saturating_mul(2);
/// Time within which a test must fail after its processes were killed.
const FAIL_TIMEOUT: Duration = Duration::from_mins(1);

static WATCHED: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

struct Entry {
    id: u64,
    test: String,
    /// Path that identifies the test's processes.
    place: PathBuf,
    until: Instant,
    killed: bool,
}

/// Watches a test until this value is dropped.
pub(crate) struct Watchdog(u64);

impl Watchdog {
    /// Watches the test that this thread runs, whose processes all mention `place`.
    pub(crate) fn new(place: &Path) -> Self {
        static THREAD: Once = Once::new();
        THREAD.call_once(|| drop(thread::spawn(watch)));
        let mut watched = watched();
        let id = watched.last().map_or(0, |last| last.id + 1);
        let test = thread::current().name().unwrap_or("a thread of a test").to_owned();
        let until = Instant::now() + TEST_TIMEOUT * depth::rounds(1);
        watched.push(Entry { id, test, place: place.to_owned(), until, killed: false });
        Self(id)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        watched().retain(|entry| entry.id != self.0);
    }
}

fn watched() -> MutexGuard<'static, Vec<Entry>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() {
    loop {
        thread::sleep(Duration::from_secs(1));
        for entry in watched().iter_mut().filter(|entry| entry.until < Instant::now()) {
            let processes = processes_about(&entry.place);
            print(&format!("test {} does not end; its processes are:\n{}", entry.test, describe(&processes)));
            if entry.killed {
                print(&format!(
                    "it did not end without those that were killed; we are:\n{}",
                    threads(std::process::id())
                ));
                std::process::exit(101);
            }
            for process in &processes {
                process.kill();
            }
            (entry.until, entry.killed) = (Instant::now() + FAIL_TIMEOUT, true);
        }
    }
}

/// Prints directly, because the runner holds back what macros print until the test ends, even in a test's threads.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Returns a line for each process with its command, and the kernel function where each thread waits.
fn describe(processes: &[Process]) -> String {
    processes.iter().fold(String::new(), |mut text, process| {
        let Process { pid, parent, command } = process;
        let _ = writeln!(text, "{pid} of {parent}: {command}");
        text + &threads(pid.unsigned_abs())
    })
}

/// Returns a line for each thread: its state, its kernel function, and its name.
fn threads(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.fold(String::new(), |mut text, task| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (status, place, call) = (read("status"), read("wchan"), read("syscall"));
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
        let (name, state) = (field("Name:").trim(), field("State:").trim());
        let _ = writeln!(text, "    {state} in {place}, system call {}: {name}", call.trim());
        text
    })
}
