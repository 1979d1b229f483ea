//! Manages a background server's slot: a directory in the cache where clients find the server. The slot records
//! whether the server is running, where it listens, and which process may start it.
//!
//! ```text
//! CACHE/servers/KEY/start.lock     held during startup by both the client and the server.
//! CACHE/servers/KEY/owner.lock     held by the server process until it exits.
//! CACHE/servers/KEY/about          the server's address while clients can join it.
//! CACHE/servers/KEY/log            the server process's stderr during startup.
//! CACHE/servers/KEY/background.log the server's log; see [`crate::log_file`]
//! ```

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use contract::ErrorBody;
use serde::{Deserialize, Serialize};
use storage::Attempt;
use sys::{Lock, ProcessHandle, Signal};

use crate::control::Control;
use crate::failure::Failure;
use crate::notice::print_notice;

/// Directory of a background server in the cache.
#[derive(Debug)]
pub(super) struct BackgroundSlot(pub(super) PathBuf);

/// Description of a running server, written by the server's process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerInfo {
    /// URL of the control API, including its secret; see [`Control`].
    pub(crate) control: String,
    /// The project's folder.
    pub(crate) folder: PathBuf,
    /// True if the server exists only to keep the databases a run left behind.
    pub(crate) kept: bool,
    /// Name of a server that persists its data between starts; see [`crate::named`].
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Database created by the template's setup.
    #[serde(default)]
    pub(crate) database: String,
    /// ID of the server's process.
    pub(crate) pid: u32,
    /// PostgreSQL version.
    pub(crate) version: String,
    /// Path of PostgreSQL's log.
    pub(crate) log: PathBuf,
}

impl ServerInfo {
    /// Returns true for the project's own background server, which has no name and no databases of failed tests.
    pub(crate) fn is_usual(&self) -> bool {
        !self.kept && self.name.is_none()
    }
}

/// A running background server.
#[derive(Debug)]
pub(crate) struct RunningServer {
    pub(crate) about: ServerInfo,
    pub(crate) control: Control,
    /// Path of the background process's log, if there is one.
    pub(crate) log_file: Option<PathBuf>,
}

impl BackgroundSlot {
    pub(super) fn about(&self) -> PathBuf {
        self.0.join("about")
    }

    /// Path of a retired server's description. A retired server exits with its last client.
    pub(super) fn retired(&self) -> PathBuf {
        self.0.join("about.retired")
    }

    pub(super) fn owner(&self) -> PathBuf {
        self.0.join("owner.lock")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Path of the server's log; see [`crate::log_file`].
    pub(super) fn log_file(&self) -> PathBuf {
        self.0.join("background.log")
    }

    /// Returns the server described by the file at `path`, or `None` if the server isn't running or doesn't respond.
    pub(super) fn reach(&self, path: &Path) -> Result<Option<RunningServer>, Failure> {
        if !Lock::is_held(&self.owner()).attempt("lock", &self.owner())? {
            return Ok(None);
        }
        let Some(about) = read_about(path) else { return Ok(None) };
        let control = match Control::at(&about.control)?.visit() {
            Ok(control) => control,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "a background server cannot be reached");
                return Ok(None);
            }
        };
        let log_file = Some(self.log_file()).filter(|path| path.is_file());
        Ok(Some(RunningServer { about, control, log_file }))
    }

    /// Returns the server if it is running and clients can join it.
    pub(super) fn look(&self) -> Result<Option<RunningServer>, Failure> {
        let found = self.reach(&self.about())?;
        // The file still exists although this process is already connected, so the server will notice this client
        // before exiting.
        Ok(found.filter(|_| self.about().exists()))
    }

    /// Returns true if clients of the project `folder` can join the server. Only reads the file, since a connection
    /// would count as a client and keep the server alive.
    pub(super) fn is_of(&self, folder: &Path) -> bool {
        let about = self.about();
        about.exists() && read_about(&about).is_some_and(|about| about.folder == folder)
    }

    /// Makes a retired server joinable again if it is still running.
    pub(super) fn reinstate(&self, _starting: &Lock) -> Result<Option<RunningServer>, Failure> {
        if self.reach(&self.retired())?.is_none() {
            return Ok(None);
        }
        note("rename", &self.retired(), fs::rename(self.retired(), self.about()));
        self.look()
    }

    /// Acquires the start lock, waiting while another process holds it.
    pub(super) fn begin(&self) -> Result<Lock, Failure> {
        let path = self.0.join("start.lock");
        loop {
            fs::create_dir_all(&self.0).attempt("create", &self.0)?;
            match Lock::take(&path) {
                // The previous server removed the directory when it exited.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                lock => return Ok(lock.attempt("lock", &path)?),
            }
        }
    }

    /// Acquires the start lock if no other process holds it.
    pub(super) fn try_begin(&self) -> Option<Lock> {
        let path = self.0.join("start.lock");
        Lock::try_take(&path).unwrap_or_else(|error| {
            note("lock", &path, Err(error));
            None
        })
    }

    /// Waits for the start lock, calling `waiting` first if another process holds it. Returns `None` if the slot has no
    /// lock file.
    pub(super) fn after_start(&self, waiting: impl FnOnce()) -> Result<Option<Lock>, Failure> {
        if let Some(lock) = self.try_begin() {
            return Ok(Some(lock));
        }
        let path = self.0.join("start.lock");
        if path.exists() {
            waiting();
        }
        match Lock::take(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            lock => Ok(Some(lock.attempt("lock", &path)?)),
        }
    }

    /// Removes the slot and returns true if no server runs in it. The caller must hold the start lock.
    pub(super) fn remove_if_dead(&self, _starting: &Lock) -> bool {
        let is_dead = Lock::is_held(&self.owner()).is_ok_and(|held| !held);
        if is_dead {
            self.remove();
        }
        is_dead
    }

    /// Writes `about` atomically.
    pub(super) fn announce(&self, about: &ServerInfo) -> Result<(), Failure> {
        let (path, staging) = (self.about(), self.0.join("about.new"));
        let text = serde_json::to_string(about).map_err(|error| {
            let failure = Failure::new(format!("could not describe the server: {error}"));
            failure.hint("Rename the project's folder, so that its path is UTF-8.".to_owned())
        })?;
        fs::write(&staging, text).attempt("write", &staging)?;
        Ok(fs::rename(&staging, &path).attempt("write", &path)?)
    }

    /// Removes the slot. If that fails, the next sweep tries again.
    pub(super) fn remove(&self) -> bool {
        note("remove", &self.0, fs::remove_dir_all(&self.0))
    }

    /// Reads the server's description, even if clients can no longer join the server.
    pub(super) fn describe(&self) -> Option<ServerInfo> {
        let files = [self.about(), self.retired()];
        files.iter().find_map(|path| read_about(path))
    }

    /// Sends SIGTERM to the server described by `about` and returns its process, or `None` if the server has already
    /// exited.
    pub(super) fn end(&self, about: &ServerInfo) -> Option<ProcessHandle> {
        let handle = ProcessHandle::of_number(about.pid);
        // A live owner still holds its lock, so its process ID can't have been reused yet.
        let is_owner = Lock::is_held(&self.owner()).unwrap_or(false);
        handle.filter(|handle| is_owner && handle.signal(Signal::TERM).is_ok())
    }

    /// Waits for the server to exit and returns the owner lock, or `None` after `timeout`.
    pub(super) fn after_server(&self, timeout: Duration) -> Option<io::Result<Lock>> {
        Lock::take_within(&self.owner(), timeout).transpose()
    }

    /// Starts the server in a new session, by running this program with the same arguments except for the command's.
    /// The server inherits `starting` as standard input, so it holds the start lock until clients can join it, even if
    /// this process dies.
    pub(super) fn start(&self, kept: Option<&Path>, starting: &Lock) -> Result<RunningServer, Failure> {
        let log = self.log();
        let output = File::create(&log).attempt("write", &log)?;
        let mut command = Command::new(sys::this_program());
        command.arg0("pgfresh").arg("--background").arg(&self.0);
        if let Some(kept) = kept {
            command.arg("--kept").arg(kept);
        }
        // A process's arguments are visible to all users, and a psql statement may contain a password.
        let mut words = std::env::args_os().skip(1);
        command.args(words.by_ref().take_while(|word| word != "--"));
        if words.next().is_some() {
            command.args(["--", "pgfresh"]);
        }
        let starting = starting.descriptor().attempt("duplicate", &self.0)?;
        command.stdin(Stdio::from(starting)).stdout(Stdio::piped()).stderr(output);
        sys::new_session(&mut command);
        // Restore the usual limits and umask for the programs the server runs on the user's behalf.
        sys::restore_open_file_limit(&mut command);
        sys::restore_mask(&mut command);
        let failed =
            |error: io::Error| Failure::new(format!("could not start the background server: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        let read = child.stdout.take().map(|pipe| BufReader::new(pipe).read_line(&mut line));
        let failure =
            serde_json::from_str(&line).ok().map(|response: ErrorBody| Failure::from(response.error));
        if failure.is_none() && read.is_some_and(|read| read.is_ok_and(|bytes| bytes > 0)) {
            // The server is ready and outlives this process.
            if let Some(found) = self.look()? {
                return Ok(found);
            }
        }
        let status = child.wait();
        match fs::read_to_string(&log) {
            Ok(text) => print_notice(text),
            Err(error) => drop(note("read", &log, Err(error))),
        }
        self.remove();
        Err(failure.unwrap_or_else(|| {
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            Failure::new("the background server did not start")
                .detail(format!("The server's process ended: {how}."))
        }))
    }
}

/// Logs a failed cleanup step, unless the file was already gone. Returns true if the step succeeded.
pub(super) fn note(verb: &str, path: &Path, done: io::Result<()>) -> bool {
    let Err(error) = done else { return true };
    if error.kind() != io::ErrorKind::NotFound {
        tracing::warn!(%error, "could not {verb} \"{}\"", path.display());
    }
    false
}

/// Reads a slot's description. Returns `None` if the file is missing or if another pgfresh version wrote it in a
/// different format.
fn read_about(path: &Path) -> Option<ServerInfo> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            note("read", path, Err(error));
            return None;
        }
    };
    let about = serde_json::from_str(&text);
    about.inspect_err(|error| tracing::warn!(%error, "cannot read \"{}\"", path.display())).ok()
}
