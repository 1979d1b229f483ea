//! What a dead pgfresh may have left: processes, run directories, locks, half entries, shared memory.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Scene, User};

/// Within this everything is gone, whatever died and however busy the machine is. `kills` tells how soon that is on a quiet one.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// A process, as `/proc` shows it.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// With spaces between the words.
    pub(crate) command: String,
}

impl Process {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let command = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).ok()?).into_owned();
        let command = command.trim_end_matches('\0').replace('\0', " ");
        (!matches!(state, "Z" | "X")).then_some(Self { pid, parent, command })
    }

    /// Ends it at once. It must be one that we, or a pgfresh of ours, have started.
    pub(crate) fn kill(&self) -> bool {
        Pid::from_raw(self.pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }
}

/// All process numbers.
fn pids() -> impl Iterator<Item = i32> {
    let ours = i32::try_from(std::process::id()).unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |&pid| pid != ours)
}

/// The processes, but for ourselves, whose command line, environment, working directory or open files mention `path`.
pub(crate) fn processes_about(path: &Path) -> Vec<Process> {
    let word = path.to_str().unwrap();
    let file = |pid: i32, name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    let text = |pid, name| fs::read(file(pid, name)).unwrap_or_default();
    let mentions = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(word);
    let leads = |link: PathBuf| fs::read_link(link).is_ok_and(|to| mentions(to.as_os_str().as_bytes()));
    let about = |&pid: &i32| {
        let command = text(pid, "cmdline");
        // The kernel's own, and the dead, have none.
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

/// The children of process `parent`.
pub(crate) fn children_of(parent: u32) -> Vec<Process> {
    let parent = i32::try_from(parent).unwrap();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| Process::read(pid.parse().ok()?));
    children.filter(|child| child.parent == parent).collect()
}

/// The guard of pgfresh process `owner`, once there is one.
pub(crate) fn guard_of(owner: u32) -> Option<Process> {
    children_of(owner).into_iter().find(|child| child.command.contains("guard-run-directory"))
}

/// The postmaster of pgfresh process `owner`, once there is one.
pub(crate) fn postmaster_of(owner: u32) -> Option<Process> {
    children_of(owner).into_iter().find(|child| child.command.contains("/postgres -D "))
}

/// Whether a process, be it one that dies or one that has not yet become another program, holds an owner's lock.
pub(crate) fn is_owned(place: &Path) -> bool {
    pids().any(|pid| {
        let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.any(|file| {
            fs::read_link(file.path())
                .is_ok_and(|target| target.starts_with(place) && target.ends_with("owner.lock"))
        })
    })
}

/// Kills what a failed test has left running: the next one shall not suffer from it.
pub(crate) fn end_processes(place: &Path) {
    for process in processes_about(place) {
        process.kill();
    }
}

/// What one scene had: that its remains can be told from those of others, who use the same machine.
#[derive(Default)]
pub(crate) struct History {
    /// Run directories of others, where servers live that have no place of their own.
    foreign: BTreeSet<PathBuf>,
    /// System V segments of others.
    old: BTreeSet<i64>,
    /// All processes that were seen so far.
    processes: BTreeSet<i32>,
    /// POSIX segments that they had mapped.
    posix: BTreeSet<PathBuf>,
}

impl History {
    pub(crate) fn begin(user: User) -> Self {
        let old = segments().into_iter().map(|(id, _)| id).collect();
        Self { foreign: run_directories(&usual_roots(user)), old, ..Self::default() }
    }

    /// Remembers `processes`, and what shared memory they have.
    pub(crate) fn note(&mut self, processes: &[Process]) {
        for process in processes {
            self.processes.insert(process.pid);
            let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid)).unwrap_or_default();
            let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
            self.posix
                .extend(files.filter(|file| file.starts_with("/dev/shm/PostgreSQL.")).map(PathBuf::from));
        }
    }

    /// A line for everything of the scene that is still there.
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
            // What another test builds is no leftover, nor what it has built since the directory was read.
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
            // Others' servers live there too, and come and go.
            if processes_about(path).is_empty() && path.symlink_metadata().is_ok() {
                left.push(format!("directory {} with {:?}", path.display(), names_in(path)));
            }
        }
        // Process numbers come around again.
        let ours = |(id, maker): &(i64, i32)| self.processes.contains(maker) && !self.old.contains(id);
        left.extend(
            segments()
                .into_iter()
                .filter(ours)
                .map(|(id, maker)| format!("System V segment {id} of process {maker}")),
        );
        let posix = self.posix.iter().filter(|path| path.exists());
        left.extend(posix.map(|path| format!("POSIX segment {}", path.display())));
        left
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Where a server lives, or a cluster is made, that has no place of its own.
fn usual_roots(user: User) -> Vec<PathBuf> {
    ["/dev/shm", "/tmp", "/var/tmp"].map(|place| format!("{place}/pgfresh-{}", user.uid()).into()).to_vec()
}

/// Run directories and short names of such, but those that were kept on purpose.
fn run_directories(roots: &[PathBuf]) -> BTreeSet<PathBuf> {
    let entries = roots.iter().flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten());
    let name = |path: &PathBuf| path.file_stem().and_then(|stem| stem.to_str().map(str::len)) == Some(8);
    entries.map(|entry| entry.path()).filter(name).collect()
}

/// All System V segments and who made them. Source: proc(5).
fn segments() -> Vec<(i64, i32)> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let segment = |line: &str| {
        let fields: Vec<i64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[_key, id, _mode, _size, maker, ..] = fields.as_slice() else { return None };
        Some((id, i32::try_from(maker).ok()?))
    };
    table.lines().skip(1).filter_map(segment).collect()
}
