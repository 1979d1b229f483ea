//! Finds what a dead pgfresh has left: processes, run directories, locks, incomplete cache entries and shared memory.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::{Scene, User};

/// Process as described by `/proc`.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// Command line, with spaces between the words.
    pub(crate) command: String,
}

impl Process {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses can contain any character.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let command = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).ok()?).into_owned();
        let command = command.trim_end_matches('\0').replace('\0', " ");
        (!matches!(state, "Z" | "X")).then_some(Self { pid, parent, command })
    }

    /// Kills the process, which must have been started by this test or its pgfresh.
    pub(crate) fn kill(&self) -> bool {
        Pid::from_raw(self.pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }
}

/// Returns all process IDs.
fn pids() -> impl Iterator<Item = i32> {
    let ours = i32::try_from(std::process::id()).unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |&pid| pid != ours)
}

/// Returns the processes whose command line, environment, working directory or open files mention `path`,
/// except for this process.
pub(crate) fn processes_about(path: &Path) -> Vec<Process> {
    let word = path.to_str().unwrap();
    let file = |pid: i32, name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    let text = |pid, name| fs::read(file(pid, name)).unwrap_or_default();
    let mentions = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(word);
    let leads = |link: PathBuf| fs::read_link(link).is_ok_and(|to| mentions(to.as_os_str().as_bytes()));
    let about = |&pid: &i32| {
        let command = text(pid, "cmdline");
        // Kernel threads and zombies don't have a command line.
        if command.is_empty() {
            return false;
        }
        let mut files = fs::read_dir(file(pid, "fd")).into_iter().flatten().flatten();
        mentions(&command)
            || mentions(&text(pid, "environ"))
            || leads(file(pid, "cwd"))
            || files.any(|file| leads(file.path()))
    };
    pids().filter(about).filter_map(Process::read).collect()
}

/// Returns the child processes of `parent`.
pub(crate) fn children_of(parent: u32) -> Vec<Process> {
    let children = sys::children_of(parent).into_iter().filter_map(|pid| Process::read(pid.try_into().ok()?));
    children.filter(|child| i64::from(child.parent) == i64::from(parent)).collect()
}

/// Returns the guard of the pgfresh process `owner`, once the guard exists.
pub(crate) fn guard_of(owner: u32) -> Option<Process> {
    children_of(owner).into_iter().find(|child| child.command.contains("guard-run-directory"))
}

/// Returns the postmaster of the pgfresh process `owner`, once the postmaster exists.
pub(crate) fn postmaster_of(owner: u32) -> Option<Process> {
    children_of(owner).into_iter().find(|child| child.command.contains("/postgres -D "))
}

/// Whether any process holds an owner's lock. This includes processes that are ending, or that haven't
/// executed another program yet.
pub(crate) fn is_owned(place: &Path) -> bool {
    pids().any(|pid| {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.any(|file| {
            fs::read_link(file.path())
                .is_ok_and(|target| target.starts_with(place) && target.ends_with("owner.lock"))
        })
    })
}

/// Whether the file is a POSIX shared memory segment that a killed initdb can leave behind. Only on Linux does a
/// system call filter keep initdb from making these segments.
pub(crate) fn may_stay(path: &Path) -> bool {
    cfg!(pgfresh_portable) && path.to_string_lossy().starts_with("/dev/shm/PostgreSQL.")
}

/// Kills the processes that a failed test has left, so that they don't disturb the next test.
pub(crate) fn end_processes(place: &Path) {
    for process in processes_about(place) {
        process.kill();
    }
}

/// Processes and memory of one scene, which distinguish the scene's leftovers from those of other
/// programs on the machine.
#[derive(Default)]
pub(crate) struct History {
    /// Other scenes' run directories in the usual places.
    foreign: BTreeSet<PathBuf>,
    /// System V segments that existed before the scene.
    old: BTreeSet<i64>,
    /// All processes that the scene has had so far.
    processes: BTreeSet<i32>,
    /// POSIX segments that the processes have mapped.
    posix: BTreeSet<PathBuf>,
}

impl History {
    pub(crate) fn begin(user: User) -> Self {
        let old = segments().into_iter().map(|(id, _)| id).collect();
        Self { foreign: run_directories(&usual_roots(user)), old, ..Self::default() }
    }

    /// Adds `processes` and their shared memory.
    pub(crate) fn note(&mut self, processes: &[Process]) {
        for process in processes {
            self.processes.insert(process.pid);
            let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid)).unwrap_or_default();
            let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
            self.posix
                .extend(files.filter(|file| file.starts_with("/dev/shm/PostgreSQL.")).map(PathBuf::from));
        }
    }

    /// Returns a line for each leftover in the scene.
    pub(crate) fn leftovers(&mut self, scene: &Scene) -> Vec<String> {
        let mut left = Vec::new();
        let alive = processes_about(&scene.place);
        self.note(&alive);
        for process in alive {
            left.push(format!("process {} (child of {}): {}", process.pid, process.parent, process.command));
        }
        for entry in fs::read_dir(&scene.place).into_iter().flatten().flatten() {
            let inside = names_in(&entry.path());
            left.push(format!("directory {} with {inside:?}", entry.path().display()));
        }
        let images = fs::read_dir(scene.cache.join("images")).into_iter().flatten().flatten();
        for path in images.map(|entry| entry.path()) {
            // An entry isn't a leftover if another test is building it, or has completed it since this
            // function read the directory.
            if path.extension().is_some()
                && processes_about(&path.with_extension("lock")).is_empty()
                && path.symlink_metadata().is_ok()
            {
                left.push(format!("in the cache {}", path.display()));
            }
        }
        let mut roots = usual_roots(scene.user);
        roots.push(scene.cache.join(format!("pgfresh-{}", scene.user.uid())));
        for path in run_directories(&roots).difference(&self.foreign) {
            // Servers of other scenes also start and end in this folder.
            if processes_about(path).is_empty() && path.symlink_metadata().is_ok() {
                left.push(format!("directory {} with {:?}", path.display(), names_in(path)));
            }
        }
        // The kernel reuses process IDs.
        let ours = |(id, maker): &(i64, i32)| self.processes.contains(maker) && !self.old.contains(id);
        left.extend(
            segments()
                .into_iter()
                .filter(ours)
                .map(|(id, maker)| format!("System V segment {id} of process {maker}")),
        );
        let posix = self.posix.iter().filter(|path| path.exists() && !may_stay(path));
        left.extend(posix.map(|path| format!("POSIX segment {}", path.display())));
        left
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the folders for the run directories of scenes that don't have their own place.
fn usual_roots(user: User) -> Vec<PathBuf> {
    ["/dev/shm", "/tmp", "/var/tmp"].map(|place| format!("{place}/pgfresh-{}", user.uid()).into()).to_vec()
}

/// Returns run directories and links to them, except for those that pgfresh keeps for people.
fn run_directories(roots: &[PathBuf]) -> BTreeSet<PathBuf> {
    let entries = roots.iter().flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten());
    let name = |path: &PathBuf| path.file_stem().and_then(|stem| stem.to_str().map(str::len)) == Some(8);
    entries.map(|entry| entry.path()).filter(name).collect()
}

/// Returns all System V segments and their creators (see proc(5)).
fn segments() -> Vec<(i64, i32)> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let segment = |line: &str| {
        let fields: Vec<i64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[_key, id, _mode, _size, maker, ..] = fields.as_slice() else { return None };
        Some((id, i32::try_from(maker).ok()?))
    };
    table.lines().skip(1).filter_map(segment).collect()
}
