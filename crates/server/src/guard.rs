//! The guard is a small process that cleans up after pgfresh, even if pgfresh is killed. It outlives its
//! owner, the pgfresh process that started it, until it has removed the owner's run directory.
//!
//! ```text
//! owner ──── lifeline (the guard's stdin; the kernel closes it when the owner exits or dies) ─────▶ guard
//! owner ◀─── done (the guard's stdout; closes when the guard has removed everything) ────────────── guard
//! ```
//! pgfresh starts the guard before it creates the directory. The guard leads its own session, so that signals
//! from the terminal don't reach it. When the lifeline closes, the guard waits for the owner's lock, removes
//! the run directory, and exits. A sweep uses the same function to remove abandoned directories.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use storage::{Abandoned, Account, Attempt, FileError, PersistentData, Place, RunDirectory};
use sys::{Directory, Pid};

use crate::{Installation, SOCKET};

/// Hidden argument that makes pgfresh run as a guard.
const ARGUMENT: &str = "guard-run-directory";
/// Name of the postmaster's pid file in the data directory.
pub(crate) const PID_FILE: &str = "postmaster.pid";
/// Maximum size of a pid file, in bytes.
pub(crate) const PID_FILE_SIZE: u64 = 64 << 10;
/// Timeout for an immediate shutdown. If it expires, the guard kills the server.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1000 });
/// How long pgfresh waits for the guard to remove a run directory. If the directory is large, the guard
/// continues after pgfresh has exited.
const REMOVAL_TIMEOUT: Duration = Duration::from_millis(50);
/// How long pgfresh waits for the guard if the run directory must be gone before pgfresh continues. This
/// matters in a folder that other programs search.
const COMPLETE_REMOVAL_TIMEOUT: Duration = Duration::from_mins(1);

/// A guarded run directory. It is removed when this value is dropped, and also when a signal terminates
/// pgfresh, even `SIGKILL`.
#[derive(Debug)]
pub struct Guard {
    run: RunDirectory,
    process: GuardProcess,
}

/// The guard process of a run directory.
#[derive(Debug)]
struct GuardProcess {
    /// The guard's process. `None` once a thread has taken over waiting for it to exit.
    child: Option<Child>,
    lifeline: Option<OwnedFd>,
    done: OwnedFd,
    /// How long the owner waits for the guard to exit.
    timeout: Duration,
}

impl Guard {
    /// Creates a run directory in `place` for `account` and guards it from the start. `program` is a pgfresh
    /// executable whose `main` calls [`guard_main`] first.
    ///
    /// # Errors
    /// Returns an error if the directory can't be created or `program` can't be run. The directory doesn't
    /// remain in either case.
    pub fn over(place: &Place, account: &Account, program: &Path) -> Result<Self, FileError> {
        let (run, process) = RunDirectory::create(place, account, |path| GuardProcess::start(program, path))?;
        Ok(Self { run, process })
    }

    /// Makes the server use the persistent `data`, which survives the removal of the run directory.
    ///
    /// # Errors
    /// Returns an error if the links to the data can't be created. The run directory is removed in that
    /// case, and the data stays.
    pub fn with_persistent(mut self, data: PersistentData) -> Result<Self, FileError> {
        self.run.use_persistent(data)?;
        Ok(self)
    }

    /// Returns the run directory.
    #[must_use]
    pub fn run(&self) -> &RunDirectory {
        &self.run
    }

    /// Allows the caller to run programs in the run directory. The guard terminates these programs before it
    /// removes the directory.
    ///
    /// # Errors
    /// Returns an error if another process keeps the lock of the run directory for too long.
    pub fn guarded_command(&self) -> Result<GuardedCommand<'_>, FileError> {
        Ok(GuardedCommand { run: &self.run, lock: self.run.server_lock()? })
    }

    /// Removes the run directory and waits until it is completely gone.
    pub fn remove(mut self) {
        self.process.timeout = COMPLETE_REMOVAL_TIMEOUT;
    }

    /// Retains the run directory for the user to inspect. See [`RunDirectory::keep`].
    ///
    /// # Errors
    /// Returns an error if the directory can't be renamed. It is removed in that case.
    pub fn keep(self) -> Result<PathBuf, FileError> {
        self.run.keep()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.run.release();
        if self.process.end() {
            // A signal may have killed the guard before it finished, so finish its work here. Wait as the guard would:
            // if another thread has just forked a child, the child shares this process's lock until it runs its
            // program.
            if let Ok(Some(abandoned)) = Abandoned::wait_for_owner(self.run.path())
                && let Err(error) = clean_up(abandoned)
            {
                let path = self.run.path().display();
                tracing::warn!(%error, %path, "could not remove a run directory");
            }
        }
    }
}

impl GuardProcess {
    fn start(program: &Path, path: &Path) -> Result<Self, FileError> {
        let mut command = Command::new(program);
        command.arg0("pgfresh").arg(ARGUMENT).arg(path).current_dir("/").env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        sys::new_session(&mut command);
        let mut child = command.spawn().attempt("run", program)?;
        let (lifeline, done) =
            (child.stdin.take().map(OwnedFd::from), child.stdout.take().map(OwnedFd::from));
        let done = done.ok_or_else(|| io::Error::other("no pipe")).attempt("guard", path)?;
        Ok(Self { child: Some(child), lifeline, done, timeout: REMOVAL_TIMEOUT })
    }

    /// Closes the lifeline and waits for the guard. Returns false if the guard doesn't finish within
    /// [`Self::timeout`].
    fn end(&mut self) -> bool {
        drop(self.lifeline.take());
        let Some(child) = self.child.take() else { return true };
        let ended = sys::wait_readable(self.done.as_fd(), self.timeout).unwrap_or(true);
        if ended {
            reap(child);
        } else if let Err(error) = thread::Builder::new().name("guard".to_owned()).spawn(|| reap(child)) {
            tracing::debug!(%error, "could not start a thread that waits for a guard");
        }
        ended
    }
}

impl Drop for GuardProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for a guard to exit, so that it doesn't become a zombie.
fn reap(mut guard: Child) {
    if let Err(error) = guard.wait() {
        tracing::warn!(%error, "could not wait for the guard");
    }
}

/// Permission to run an installation's programs in a guarded run directory, either sequentially or in
/// parallel.
///
/// The programs and their children hold the server's lock, by which the guard finds and terminates them
/// before it removes the directory. Drop this value before the guard, otherwise the guard would treat pgfresh
/// itself as one of the programs.
#[derive(Debug)]
pub struct GuardedCommand<'a> {
    run: &'a RunDirectory,
    lock: sys::Lock,
}

impl GuardedCommand<'_> {
    /// Returns the run directory.
    #[must_use]
    pub fn run(&self) -> &RunDirectory {
        self.run
    }

    /// Returns a command for one of `installation`'s programs. It runs under `account`, leads its own
    /// session, and has no environment variables that would change its behavior.
    ///
    /// # Errors
    /// Returns an error if this process can't open another file descriptor.
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

/// If pgfresh started this process as a guard, does the guard's work and returns true.
///
/// Call this first in `main`, because a guard must not do anything else.
#[must_use]
pub fn guard_main() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|argument| argument != ARGUMENT) {
        return false;
    }
    if let Some(path) = arguments.next().map(PathBuf::from) {
        run_guard(&path);
    }
    true
}

/// Waits for the owner of the run directory `path` to exit, then removes the directory.
#[expect(
    clippy::let_underscore_must_use,
    reason = "no process is left to tell; the next sweep removes what stays"
)]
fn run_guard(path: &Path) {
    // Wait here until the lifeline closes or can't be read. Both mean that the owner has exited.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    if let Ok(Some(abandoned)) = Abandoned::wait_for_owner(path) {
        let _ = clean_up(abandoned);
    }
}

/// Stops a run directory's processes and removes the directory, along with the files that its server has in
/// other locations. If a process can't be stopped, the directory is retained, so that a later sweep can find
/// the server's files.
fn clean_up(abandoned: Abandoned) -> Result<(), FileError> {
    let Ok(path) = abandoned.path().canonicalize() else { return abandoned.remove() };
    let account = account_of(&path);
    let [helpers, server] = abandoned.locks();
    end_holders(&helpers, &path, |lock| sys::ask_holders_to_quit(lock, account, None, SHUTDOWN_TIMEOUT))?;
    // Ask only a postmaster. If this process asked initdb or its server, initdb would remove the pid file. If a signal
    // then killed this process, a sweep couldn't find the server's shared memory.
    let recorded = recorded_server(&RunDirectory::data_at(&path));
    let socket = RunDirectory::socket_directory_at(&path).join(SOCKET);
    end_holders(&server, &path, |lock| match recorded {
        Some(RecordedServer { pid, is_postmaster: true }) => {
            // Without a process table, the kernel can still tell which process listens on a socket.
            sys::ask_holders_to_quit(lock, account, Some(pid), SHUTDOWN_TIMEOUT)
                .or_else(|_| sys::end_listener(&socket, account, SHUTDOWN_TIMEOUT))
        }
        _ => Ok(()),
    })?;
    if let Some(RecordedServer { pid, .. }) = recorded {
        sys::remove_segments(pid, account).attempt("remove the shared memory of", &path)?;
    }
    abandoned.remove()
}

/// Calls `ask`, which lets the holders of `lock` in the run directory `path` exit by themselves, and then kills the
/// remaining ones. Does nothing if no process holds `lock`.
fn end_holders(lock: &Path, path: &Path, ask: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), FileError> {
    if !sys::Lock::is_held(lock).unwrap_or(false) {
        return Ok(());
    }
    let lock = lock.canonicalize().attempt("resolve", lock)?;
    let ended = ask(&lock).and_then(|()| sys::end_holders(&lock, account_of(path))).and_then(|free| {
        if free { Ok(()) } else { Err(io::Error::new(io::ErrorKind::TimedOut, "it does not end")) }
    });
    ended.attempt("stop what is alive in", path)
}

/// Returns the account under which the server in the run directory `path` runs. This account owns the socket
/// directory.
pub(crate) fn account_of(path: &Path) -> u32 {
    let owner = Directory::open(&RunDirectory::socket_directory_at(path)).and_then(|socket| socket.owner());
    owner.unwrap_or_else(|_| sys::user())
}

/// The server that a data directory's pid file names.
struct RecordedServer {
    pid: Pid,
    /// False for a server without child processes, such as the single-user server that initdb runs.
    is_postmaster: bool,
}

/// Reads the data directory's pid file, which a clean shutdown removes. Don't trust the result, because SQL can
/// write any pid into the file.
fn recorded_server(data: &Path) -> Option<RecordedServer> {
    let text = Directory::open(data).and_then(|data| data.read(PID_FILE, PID_FILE_SIZE)).ok()?;
    let line = text.split(|&byte| byte == b'\n').next()?;
    let number: i32 = std::str::from_utf8(line).ok()?.trim().parse().ok()?;
    // A server without child processes writes its pid with a minus sign.
    Some(RecordedServer { pid: Pid::from_raw(number.checked_abs()?)?, is_postmaster: number > 0 })
}

/// Removes the run directories in `roots` that crashed runs left behind. Returns the removed directories and any
/// errors.
#[must_use]
pub fn sweep(roots: &[PathBuf]) -> (Vec<PathBuf>, Vec<FileError>) {
    let (mut removed, mut failures) = (Vec::new(), Vec::new());
    for root in roots {
        match Abandoned::find(root) {
            Ok(found) => {
                for abandoned in found {
                    let path = abandoned.path().to_owned();
                    match clean_up(abandoned) {
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
