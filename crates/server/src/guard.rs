//! The guard: a small process that outlives its owner for as long as it takes to leave nothing behind.
//!
//! ```text
//! owner ──── lifeline (the guard's stdin; closed by the kernel when the owner ends, however) ───▶ guard
//! owner ◀─── done (the guard's stdout; closed when it has removed everything) ─────────────────── guard
//! ```
//! It is started before there is anything to guard, and lives in a session of its own. When the lifeline ends, it waits
//! for the owner's lock, clears the run directory away, and ends: there is one way out, the same that a sweep goes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use storage::{Abandoned, Account, Attempt, FileError, PersistentData, Place, RunDirectory};
use sys::{Directory, Pid};

use crate::Installation;

/// The hidden argument that makes a guard of a pgfresh.
const ARGUMENT: &str = "guard-run-directory";
/// The postmaster's file, in the data directory.
pub(crate) const PID_FILE: &str = "postmaster.pid";
/// More than it ever has, in bytes.
pub(crate) const PID_FILE_SIZE: u64 = 64 << 10;
/// How long a server may take for an immediate shutdown before it is killed.
const GRACE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1000 });
/// How long the owner waits for the guard to remove a run directory; a large one goes on after we have ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_millis(50);
/// The same where nothing of it may be left, as in a folder that other programs walk through.
const COMPLETE_REMOVAL_TIMEOUT: Duration = Duration::from_mins(1);

/// A run directory that is cleared away when this is dropped, or when our process ends by any signal.
#[derive(Debug)]
pub struct Guard {
    run: RunDirectory,
    process: Process,
}

/// The process that does it.
#[derive(Debug)]
struct Process {
    /// None once it was waited for.
    child: Option<Child>,
    lifeline: Option<OwnedFd>,
    done: OwnedFd,
    /// How long its owner waits for it at the end.
    patience: Duration,
}

impl Guard {
    /// Makes a run directory in `place` for `account`, guarded from the first moment on. `program` is a pgfresh whose
    /// `main` calls [`guard_main`] first of all.
    pub fn over(place: &Place, account: &Account, program: &Path) -> Result<Self, FileError> {
        let (run, process) = RunDirectory::create(place, account, |path| Process::start(program, path))?;
        Ok(Self { run, process })
    }

    /// The same for a server on data that stay when the run directory goes.
    pub fn with_persistent(mut self, data: PersistentData) -> Result<Self, FileError> {
        self.run.use_persistent(data)?;
        Ok(self)
    }

    /// What it guards.
    #[must_use]
    pub fn run(&self) -> &RunDirectory {
        &self.run
    }

    /// The right to run programs that are ended with what it guards.
    pub fn guarded_command(&self) -> Result<GuardedCommand<'_>, FileError> {
        Ok(GuardedCommand { run: &self.run, lock: self.run.server_lock()? })
    }

    /// Clears the run directory away, and waits until nothing of it is left.
    pub fn remove(mut self) {
        self.process.patience = COMPLETE_REMOVAL_TIMEOUT;
    }

    /// Leaves the run directory where people can look at it; see [`RunDirectory::keep`].
    pub fn keep(self) -> Result<PathBuf, FileError> {
        self.run.keep()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.run.let_go();
        if self.process.end() {
            // It may have been killed before it was done.
            if let Ok(Some(abandoned)) = Abandoned::at(self.run.path())
                && let Err(error) = clear_away(abandoned)
            {
                let path = self.run.path().display();
                tracing::warn!(%error, %path, "could not remove a run directory");
            }
        }
    }
}

impl Process {
    fn start(program: &Path, path: &Path) -> Result<Self, FileError> {
        let mut command = Command::new(program);
        command.arg0("pgfresh").arg(ARGUMENT).arg(path).current_dir("/").env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        sys::new_session(&mut command);
        let mut child = command.spawn().attempt("run", program)?;
        let (lifeline, done) =
            (child.stdin.take().map(OwnedFd::from), child.stdout.take().map(OwnedFd::from));
        let done = done.ok_or_else(|| io::Error::other("no pipe")).attempt("guard", path)?;
        Ok(Self { child: Some(child), lifeline, done, patience: REMOVAL_TIMEOUT })
    }

    /// Lets it do its work; false if it is still at it when our patience ends.
    fn end(&mut self) -> bool {
        drop(self.lifeline.take());
        let Some(child) = self.child.take() else { return true };
        let ended = sys::wait_readable(self.done.as_fd(), self.patience).unwrap_or(true);
        if ended {
            reap(child);
        } else if let Err(error) = thread::Builder::new().name("guard".to_owned()).spawn(|| reap(child)) {
            tracing::debug!(%error, "could not start a thread that waits for a guard");
        }
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for the end of a guard, so that no zombie of it stays.
fn reap(mut guard: Child) {
    if let Err(error) = guard.wait() {
        tracing::warn!(%error, "could not wait for the guard");
    }
}

/// Programs of an installation that work in a guarded run directory, one after another or at once.
///
/// They hold the server's lock: the guard finds them by it, and whatever they have started, and ends them before it
/// removes the directory. Drop this before the guard, which would take us for one of them.
#[derive(Debug)]
pub struct GuardedCommand<'a> {
    run: &'a RunDirectory,
    lock: sys::Lock,
}

impl GuardedCommand<'_> {
    /// Where they work.
    #[must_use]
    pub fn run(&self) -> &RunDirectory {
        self.run
    }

    /// One of `installation`'s programs, to be run as `account` in a session of its own, with nothing of our
    /// environment that would change what it does.
    pub fn command(
        &self,
        installation: &Installation,
        program: &str,
        account: &Account,
    ) -> Result<Command, FileError> {
        let mut command = installation.command(program, account);
        sys::new_session(&mut command);
        sys::inherit(&mut command, vec![self.lock.descriptor().attempt("duplicate", self.run.path())?]);
        Ok(command)
    }
}

/// Does a guard's work and returns true, if this process was started as one.
///
/// Call it first in `main`: a guard must not do anything else.
#[must_use]
pub fn guard_main() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|argument| argument != ARGUMENT) {
        return false;
    }
    if let Some(path) = arguments.next().map(PathBuf::from) {
        outlive_owner(&path);
    }
    true
}

/// Waits for the end of the owner of run directory `path`, and clears it away.
#[expect(
    clippy::let_underscore_must_use,
    reason = "no process is left to tell; the next sweep removes what stays"
)]
fn outlive_owner(path: &Path) {
    // The end of the lifeline, or an error on it, is the end of the owner.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    if let Ok(Some(abandoned)) = Abandoned::after_its_owner(path) {
        let _ = clear_away(abandoned);
    }
}

/// Stops what is still alive in a run directory, and removes it with all that its server has elsewhere. What cannot be
/// stopped keeps its directory: without that it would not be known what to remove once it has ended.
fn clear_away(abandoned: Abandoned) -> Result<(), FileError> {
    let Ok(path) = abandoned.path().canonicalize() else { return abandoned.remove() };
    let account = account_of(&path);
    for lock in abandoned.locks() {
        if sys::Lock::is_held(&lock).unwrap_or(false) {
            let lock = lock.canonicalize().attempt("resolve", &lock)?;
            let ended = sys::end_holders(&lock, account, GRACE).and_then(|free| {
                if free { Ok(()) } else { Err(io::Error::new(io::ErrorKind::TimedOut, "it does not end")) }
            });
            ended.attempt("stop what is alive in", &path)?;
        }
    }
    if let Some(postmaster) = postmaster(&RunDirectory::data_at(&path)) {
        sys::remove_segments(postmaster, account).attempt("remove the shared memory of", &path)?;
    }
    abandoned.remove()
}

/// The account that the server of run directory `path` runs as: the owner of the server's files.
pub(crate) fn account_of(path: &Path) -> u32 {
    let owner = Directory::open(&path.join("socket")).and_then(|socket| socket.owner());
    owner.unwrap_or_else(|_| sys::user())
}

/// The process that wrote the data directory's pid file, which a clean end would have removed. It may be any, if SQL has
/// written that file.
fn postmaster(data: &Path) -> Option<Pid> {
    let text = Directory::open(data).and_then(|data| data.read(PID_FILE, PID_FILE_SIZE)).ok()?;
    let line = text.split(|&byte| byte == b'\n').next()?;
    // A minus in front marks a process without children, as initdb runs them.
    Pid::from_raw(std::str::from_utf8(line).ok()?.trim().trim_start_matches('-').parse().ok()?)
}

/// Removes leftovers of crashed runs in the directories `roots`; returns what it removed, and what it could not.
#[must_use]
pub fn sweep(roots: &[PathBuf]) -> (Vec<PathBuf>, Vec<FileError>) {
    let (mut removed, mut failures) = (Vec::new(), Vec::new());
    for root in roots {
        match Abandoned::find(root) {
            Ok(found) => {
                for abandoned in found {
                    let path = abandoned.path().to_owned();
                    match clear_away(abandoned) {
                        Ok(()) => removed.push(path),
                        Err(error) => failures.push(error),
                    }
                }
            }
            Err(error) => failures.push(error),
        }
    }
    (removed, failures)
}

#[cfg(test)]
mod tests;
