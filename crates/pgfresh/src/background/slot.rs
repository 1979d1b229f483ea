//! Manages the slot of a background server. A slot is a directory in the cache, through which clients find the server.
//! It shows whether the server runs, where it listens, and which process is allowed to start it.
//!
//! ```text
//! CACHE/servers/KEY/start.lock     held while a server starts, by its client and by the server itself.
//! CACHE/servers/KEY/owner.lock     held by the server's process while it lives.
//! CACHE/servers/KEY/about          address of the server while clients can join it.
//! CACHE/servers/KEY/log            stderr of the server's process while it starts.
//! CACHE/servers/KEY/background.log log of the server; see [`crate::log_file`]
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
    /// True if the server exists only to keep databases that a run left behind.
    pub(crate) kept: bool,
    /// Name of a server that keeps its data between starts; see [`crate::named`].
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Database that the template's setup created.
    #[serde(default)]
    pub(crate) database: String,
    /// Number of the process that owns the server.
    pub(crate) pid: u32,
    /// PostgreSQL version.
    pub(crate) version: String,
    /// Path of PostgreSQL's log.
    pub(crate) log: PathBuf,
}

impl ServerInfo {
    /// Returns true for the project's own background server, which has neither a name nor databases of failed tests.
    pub(crate) fn is_usual(&self) -> bool {
        !self.kept && self.name.is_none()
    }
}

/// A running background server.
#[derive(Debug)]
pub(crate) struct RunningServer {
    pub(crate) about: ServerInfo,
    pub(crate) control: Control,
    /// Path of the background process's log, if it writes one.
    pub(crate) log_file: Option<PathBuf>,
}

impl BackgroundSlot {
    pub(super) fn about(&self) -> PathBuf {
        self.0.join("about")
    }

    /// Path of the description of a retired server, which ends with its last client.
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

    /// Returns the server that the file at `path` describes, if it is running and responds.
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
        // If the file still exists now that this process is connected, the server notices this client before it ends.
        Ok(found.filter(|_| self.about().exists()))
    }

    /// Returns true if clients of the project `folder` can join the server. Only reads the file: a connection would
    /// count as a client, and would thus keep the server alive.
    pub(super) fn is_of(&self, folder: &Path) -> bool {
        let about = self.about();
        about.exists() && read_about(&about).is_some_and(|about| about.folder == folder)
    }

    /// Lets clients join a retired server again if it is still running.
    pub(super) fn reinstate(&self, _starting: &Lock) -> Result<Option<RunningServer>, Failure> {
        if self.reach(&self.retired())?.is_none() {
            return Ok(None);
        }
        note("rename", &self.retired(), fs::rename(self.retired(), self.about()));
        self.look()
    }

    /// Acquires the start lock. Waits while another process holds it.
    pub(super) fn begin(&self) -> Result<Lock, Failure> {
        let path = self.0.join("start.lock");
        loop {
            fs::create_dir_all(&self.0).attempt("create", &self.0)?;
            match Lock::take(&path) {
                // The previous server removed the directory when it ended.
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

    /// Waits for the start lock. Calls `waiting` first if another process holds the lock. Returns `None` if the slot
    /// has no lock file.
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

    /// Removes the slot if no server runs in it. The caller must hold the start lock. Returns true if no server runs.
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
        let text = serde_json::to_string(about).map_err(|error| Failure::new(error.to_string()))?;
        fs::write(&staging, text).attempt("write", &staging)?;
        Ok(fs::rename(&staging, &path).attempt("write", &path)?)
    }

    /// Removes the slot. If this fails, the next sweep retries it.
    pub(super) fn remove(&self) -> bool {
        note("remove", &self.0, fs::remove_dir_all(&self.0))
    }

    /// Reads the server's description, even after clients can no longer join the server.
    pub(super) fn describe(&self) -> Option<ServerInfo> {
        let files = [self.about(), self.retired()];
        files.iter().find_map(|path| read_about(path))
    }

    /// Sends SIGTERM to the server that `about` describes. Returns false if the server has already ended.
    pub(super) fn end(&self, about: &ServerInfo) -> bool {
        let handle = ProcessHandle::of_number(about.pid);
        // A living owner still holds its lock, so no other process can have its process number yet.
        let is_owner = Lock::is_held(&self.owner()).unwrap_or(false);
        handle.is_some_and(|handle| is_owner && handle.signal(Signal::TERM).is_ok())
    }

    /// Waits until the server ends, and returns the owner's lock. Returns `None` after `timeout`.
    pub(super) fn after_server(&self, timeout: Duration) -> Option<io::Result<Lock>> {
        Lock::take_within(&self.owner(), timeout).transpose()
    }

    /// Starts the server in a new session. The server runs this program with the same arguments, except for those of
    /// the command. It inherits `starting` as standard input and thus holds the start lock until clients can join it,
    /// even if this process dies.
    pub(super) fn start(&self, kept: Option<&Path>, starting: &Lock) -> Result<RunningServer, Failure> {
        let log = self.log();
        let output = File::create(&log).attempt("write", &log)?;
        let mut command = Command::new(sys::this_program());
        command.arg0("pgfresh").arg("--background").arg(&self.0);
        if let Some(kept) = kept {
            command.arg("--kept").arg(kept);
        }
        // All users can read a process's arguments, and a statement for psql may contain a password.
        let mut words = std::env::args_os().skip(1);
        command.args(words.by_ref().take_while(|word| word != "--"));
        if words.next().is_some() {
            command.args(["--", "pgfresh"]);
        }
        let starting = starting.descriptor().attempt("duplicate", &self.0)?;
        command.stdin(Stdio::from(starting)).stdout(Stdio::piped()).stderr(output);
        sys::new_session(&mut command);
        // Give the programs that the server runs for the user the usual limits and file mode mask.
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
            // The server is ready. It keeps running after this process ends.
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
            Failure::new("the background server did not start").detail(format!("Its process ended: {how}."))
        }))
    }
}

/// Logs a clean-up step that failed, unless the file was already gone. Returns true if the step succeeded.
pub(super) fn note(verb: &str, path: &Path, done: io::Result<()>) -> bool {
    let Err(error) = done else { return true };
    if error.kind() != io::ErrorKind::NotFound {
        tracing::warn!(%error, "could not {verb} \"{}\"", path.display());
    }
    false
}

/// Reads a slot's description. Returns `None` if the file is missing, or if another version of pgfresh wrote it in its
/// own format.
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
