//! Finds the leftovers of pgfresh on a machine that doesn't run other programs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::leftovers::{Process, end_processes, may_stay};
use crate::common::{Scene, is_root};

/// Environment variable that is set within the private namespaces.
const PRIVATE: &str = "PGFRESH_KILLS_PRIVATE";
/// Folders where only this test has files.
const FOLDERS: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

pub(crate) fn is_private() -> bool {
    std::env::var_os(PRIVATE).is_some()
}

/// Runs the test `test` again in new namespaces, without other processes and files.
pub(crate) fn run_privately(test: &str) {
    let script = "for folder in /dev/shm /tmp /var/tmp; do mount -t tmpfs -o mode=1777 none \"$folder\"; done; \"$@\"; exit $?";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-uc", script, "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(PRIVATE, "yes");
    let status = command.status().expect("unshare, of util-linux");
    assert!(status.success(), "{status}");
}

/// Processes and files at the start of a test.
pub(crate) struct Machine {
    processes: BTreeSet<i32>,
    files: BTreeSet<PathBuf>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        Self { processes: pids().collect(), files: files() }
    }

    /// Returns a line for each new process, file and segment. All of these must be pgfresh's.
    pub(crate) fn left(&self, scene: &Scene) -> Vec<String> {
        let mut left = half_made(scene);
        if !is_private() {
            return left;
        }
        let processes = pids().filter(|pid| !self.processes.contains(pid)).filter_map(Process::read);
        left.extend(processes.map(|process| format!("process {}: {}", process.pid, process.command)));
        left.extend(files().difference(&self.files).map(|path| format!("file {}", path.display())));
        left.extend(segments().into_iter().map(|id| format!("System V segment {id}")));
        left
    }
}

/// Returns the IDs of all System V shared memory segments.
fn segments() -> Vec<String> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the top-level files in [`FOLDERS`], except for files that tests need.
fn files() -> BTreeSet<PathBuf> {
    let entries = FOLDERS.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let ours = |path: &PathBuf| {
        !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"pgfresh-test-"))
    };
    entries.map(|entry| entry.path()).filter(|path| ours(path) && !may_stay(path)).collect()
}

/// Returns cache files that are neither an entry nor useful for a later start.
fn half_made(scene: &Scene) -> Vec<String> {
    let names = |folder: &str| -> Vec<OsString> {
        let entries = fs::read_dir(scene.cache.join(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).collect()
    };
    let images = names("images").into_iter().filter(|name| Path::new(name).extension().is_some());
    let servers = names("servers").into_iter();
    let installations = names("installations").into_iter().filter(|name| name == "staging");
    let runs = names("").into_iter().filter(|name| name.as_encoded_bytes().starts_with(b"pgfresh-"));
    images
        .chain(servers)
        .chain(installations)
        .chain(runs)
        .map(|name| format!("in the cache: {}", name.display()))
        .collect()
}

/// Ends and removes leftovers, so that the check after the next kill doesn't find them again.
pub(crate) fn clear(scene: &Scene) {
    end_processes(&scene.place);
    let entries = fs::read_dir(&scene.place).into_iter().flatten().flatten();
    let paths = entries
        .map(|entry| entry.path())
        .chain([scene.cache.join("servers"), scene.cache.join("installations/staging")]);
    for path in paths {
        let _ = fs::remove_dir_all(path);
    }
    if is_private() && is_root() {
        for path in files() {
            let _ = fs::remove_file(path);
        }
        for id in segments() {
            let _ = Command::new("ipcrm").args(["--shmem-id", &id]).status();
        }
    }
}

/// Returns the machine's load average.
pub(crate) fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}
