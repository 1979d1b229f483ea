//! Starts a server: copies its data, runs the postmaster, waits for it to become ready, and checks that its
//! settings are in effect.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use storage::{Account, Attempt, BackgroundCopy, Copied, Deferred, Entry, FileError, Place, RunDirectory};
use sys::{Directory, ProcessHandle};

use crate::address::{Address, PORT, SOCKET};
use crate::error::StartError;
use crate::guard::{PID_FILE, PID_FILE_SIZE};
use crate::installation::UNKNOWN_SETTING;
use crate::{
    AdminConnection, Guard, Installation, Setting, Settings, internal_connections, log, orphans,
    session_settings,
};

/// Timeout for the first response of a new server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for the postmaster's exit status, which becomes available slightly after the process handle reports the
/// exit.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for processes that have begun to exit.
const ENDING_TIMEOUT: Duration = Duration::from_secs(10);
/// File name of the relation cache. The first session in a database saves catalog rows in this file. Later sessions
/// then start in half the time, even in a copy of the database. A starting server removes these files because they
/// could be outdated after a crash, although they are valid after a clean shutdown. Source: `RELCACHE_INIT_FILENAME` in
/// `relcache.h`.
const RELATION_CACHE: &str = "pg_internal.init";
/// Files that pgfresh copies while the server boots. This works because the server opens no files below
/// `base/` before it is ready. Relation caches are copied last, because the booting server would remove them.
const DEFERRED: Deferred<'_> = Deferred { below: "base/", last: Some(RELATION_CACHE) };

/// Parameters for starting a server.
#[derive(Debug, Clone, Copy)]
pub struct StartOptions<'a> {
    /// The binaries to run.
    pub installation: &'a Installation,
    /// The account that the server runs under.
    pub account: &'a Account,
    /// Location in which the run directory is created.
    pub place: &'a Place,
    /// The server's settings.
    pub settings: &'a Settings,
    /// Path of a pgfresh executable that can act as a guard. See [`Guard::over`].
    pub program: &'a Path,
}

/// The source of the data directory.
#[derive(Debug)]
pub enum Data<'a> {
    /// A copy of this cache entry.
    Copy(&'a Entry),
    /// The run directory of this guard, which already contains the data.
    Prepared(Guard),
}

/// How long each step of a server start took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Phases {
    /// Time until the postmaster was started, including the creation of the run directory, the guard, and the
    /// files that the server needs first.
    pub copy: Duration,
    /// Time from the start of the postmaster until it was ready. Meanwhile, pgfresh copies the remaining
    /// files.
    pub boot: Duration,
    /// Time for the rest of the copy after the server was ready.
    pub rest: Duration,
    /// Time for the first session and its first response.
    pub ready: Duration,
}

impl Phases {
    /// Returns the total duration of all steps.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.copy + self.boot + self.rest + self.ready
    }
}

/// Timeouts for a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Maximum time until the server is ready. It is long because the crash recovery of a large snapshot can
    /// take almost as long.
    pub(crate) boot: Duration,
    /// Timeout for an immediate shutdown. If it expires, the server is killed.
    pub(crate) immediate_stop: Duration,
    /// Timeout for a clean shutdown, during which the server writes all dirty pages.
    pub(crate) clean_stop: Duration,
    /// Timeout for a clean shutdown that is preferable but not necessary. If it expires, the server is
    /// killed, which does no harm.
    pub(crate) halt: Duration,
    /// How long processes that outlive the postmaster may take to exit on their own.
    pub(crate) stragglers: Duration,
}

const TIMEOUTS: Timeouts = Timeouts {
    boot: Duration::from_mins(2),
    immediate_stop: Duration::from_secs(2),
    clean_stop: Duration::from_mins(10),
    halt: Duration::from_mins(1),
    stragglers: Duration::from_millis(500),
};

/// A running server. Dropping it stops the server and removes its files.
#[derive(Debug)]
pub struct Server {
    pub(crate) postmaster: Child,
    /// Readable once the postmaster has exited.
    pub(crate) handle: ProcessHandle,
    /// The read end of a pipe whose write end all of the server's processes hold. It becomes readable when all of them
    /// have exited.
    pub(crate) alive: OwnedFd,
    pub(crate) guard: Option<Guard>,
    /// The thread that terminates processes that outlive the postmaster. See
    /// [`orphans::end_after_postmaster`].
    pub(crate) orphans: Option<JoinHandle<()>>,
    pub(crate) timeouts: Timeouts,
    major: u32,
    phases: Phases,
    copied: Option<Copied>,
    /// Size of the log before this server started, in bytes. Earlier servers on the same data wrote this
    /// part.
    pub(crate) log_before: u64,
}

/// A failed attempt to restart a server on its data.
#[derive(Debug)]
pub struct RestartFailure {
    /// The reason for the failure.
    pub error: StartError,
    /// The guard of the data, for another attempt. `None` if pgfresh couldn't terminate the processes and therefore
    /// removed the data.
    pub guard: Option<Guard>,
}

impl Server {
    /// Starts a server on `data` and waits for its first response. During a long copy, calls `watch` with the
    /// number of bytes copied so far and the total.
    ///
    /// # Errors
    /// Returns an error if the server can't be started, in which case none of its files or processes remain.
    pub fn start(
        order: &StartOptions<'_>,
        data: Data<'_>,
        watch: &dyn Fn(u64, u64),
    ) -> Result<Self, StartError> {
        Self::start_and_connect(order, data, watch).map(|(server, _)| server)
    }

    /// Like [`Self::start`], but also returns the session in the database `postgres` that received the first
    /// response. A caller that reuses this session saves about 3 ms.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`]. They include [`StartError::Setting`] and
    /// [`StartError::UnknownSetting`] for settings that the server doesn't accept as requested.
    pub fn start_and_connect(
        order: &StartOptions<'_>,
        data: Data<'_>,
        watch: &dyn Fn(u64, u64),
    ) -> Result<(Self, AdminConnection), StartError> {
        Self::start_within(&TIMEOUTS, order, data, watch)
    }

    pub(crate) fn start_within(
        timeouts: &Timeouts,
        order: &StartOptions<'_>,
        data: Data<'_>,
        watch: &dyn Fn(u64, u64),
    ) -> Result<(Self, AdminConnection), StartError> {
        let begun = Instant::now();
        let (guard, copying) = match data {
            Data::Prepared(guard) => (guard, None),
            Data::Copy(entry) => {
                let guard = Guard::over(order.place, order.account, order.program)?;
                let copying = BackgroundCopy::begin(entry, &guard.run().data(), order.account, DEFERRED)?;
                (guard, Some(copying))
            }
        };
        let copy = begun.elapsed();
        let launched = Self::launch(timeouts, order, guard);
        let spawned = Instant::now();
        let mut server = match launched {
            Ok(server) => server,
            Err(failed) => {
                // Finish the copy before the run directory is removed.
                drop(copying);
                return Err(failed.error);
            }
        };
        // `copying` is declared after the server, so that it finishes before the server's run directory is removed.
        let copying = copying;
        server.wait_until_ready(spawned).map_err(|error| name_unknown_setting(error, order))?;
        let boot = spawned.elapsed();
        server.copied = copying.map(|copying| copying.finish(watch)).transpose()?;
        let rest = spawned.elapsed().saturating_sub(boot);
        let session = server.check_settings(order)?;
        let ready = spawned.elapsed().saturating_sub(boot + rest);
        server.phases = Phases { copy, boot, rest, ready };
        Ok((server, session))
    }

    /// Restarts a server on the data of a stopped server. The server recovers from a crash if necessary. Unlike
    /// [`Self::start`], this doesn't check the settings in a session, because a user may have disabled
    /// connections and may enable them again later.
    ///
    /// # Errors
    /// Returns the reason together with the guard of the data, for another attempt.
    pub fn start_again(order: &StartOptions<'_>, guard: Guard) -> Result<Self, Box<RestartFailure>> {
        Self::start_again_within(&TIMEOUTS, order, guard)
    }

    pub(crate) fn start_again_within(
        timeouts: &Timeouts,
        order: &StartOptions<'_>,
        guard: Guard,
    ) -> Result<Self, Box<RestartFailure>> {
        let mut server = Self::launch(timeouts, order, guard)?;
        match server.wait_until_ready(Instant::now()) {
            Ok(()) => Ok(server),
            Err(error) => Err(server.into_restart_failure(error)),
        }
    }

    /// Starts the postmaster. From then on, dropping the returned server stops it, even if a later step
    /// fails.
    fn launch(
        timeouts: &Timeouts,
        order: &StartOptions<'_>,
        guard: Guard,
    ) -> Result<Self, Box<RestartFailure>> {
        let log_before = log::length(&guard.run().log());
        let (postmaster, handle, alive) = match spawn(order, guard.run()) {
            Ok(spawned) => spawned,
            Err(error) => return Err(Box::new(RestartFailure { error, guard: Some(guard) })),
        };
        let mut server = Self {
            postmaster,
            handle,
            alive,
            guard: Some(guard),
            orphans: None,
            timeouts: *timeouts,
            major: order.installation.version().major,
            phases: Phases::default(),
            copied: None,
            log_before,
        };
        let lock = server.run().server_lock_path();
        let orphans = orphans::end_after_postmaster(&server.handle, &server.alive, &lock, order.account.uid);
        match orphans.attempt("watch", Path::new("postmaster")) {
            Ok(orphans) => server.orphans = Some(orphans),
            Err(error) => return Err(server.into_restart_failure(error.into())),
        }
        Ok(server)
    }

    fn into_restart_failure(self, error: StartError) -> Box<RestartFailure> {
        let ended = self.crash().inspect_err(|error| tracing::warn!(%error, "could not end a server"));
        Box::new(RestartFailure { error, guard: ended.ok() })
    }

    /// Waits until the pid file contains the word "ready" or the server exits. The kernel notifies pgfresh when the
    /// file is written.
    fn wait_until_ready(&mut self, since: Instant) -> Result<(), StartError> {
        let data = self.run().data();
        let files = Directory::open(&data).attempt("open", &data)?;
        let watch = sys::DirectoryWatch::new(&files);
        loop {
            watch.clear().attempt("watch", &data)?;
            if is_marked_ready(&files) {
                watch.end();
                return Ok(());
            }
            let left = self.timeouts.boot.saturating_sub(since.elapsed());
            let has_ended = watch.wait(&self.alive, left).attempt("wait for a change in", &data)?;
            let log = self.guard.as_ref().expect("held until dropped").run().log();
            let log_line = || log::reason_line(&log, self.log_before);
            if has_ended {
                let log_line = log_line();
                let status = self.postmaster.wait().attempt("wait for", Path::new("postgres"))?;
                return Err(StartError::Exited { status, after: since.elapsed(), log_line });
            }
            if since.elapsed() >= self.timeouts.boot {
                return Err(StartError::TooLate { after: since.elapsed(), log_line: log_line() });
            }
        }
    }

    /// Opens a session, checks that each setting has the requested value, and returns the session.
    fn check_settings(&self, order: &StartOptions<'_>) -> Result<AdminConnection, StartError> {
        let mut session = self.session("postgres")?;
        let wanted: Vec<_> =
            order.settings.iter().filter(|(name, _)| !session_settings::is_hidden(name)).collect();
        let mut sql = String::from("SELECT 1;");
        for (name, _) in &wanted {
            sql.push_str(&format!("SHOW {};", quoted(name)));
        }
        let rows = session.query(&sql)?.split_off(1);
        for ((name, asked), row) in wanted.into_iter().zip(rows) {
            let effective = row.into_iter().next().flatten().unwrap_or_default();
            if effective != asked && !is_intended_difference(&mut session, name)? {
                return Err(StartError::Setting {
                    name: name.to_owned(),
                    asked: asked.to_owned(),
                    effective,
                });
            }
        }
        Ok(session)
    }

    /// Returns the superuser's address for `database` on the server's own socket.
    #[must_use]
    pub fn address(&self, database: &str) -> Address {
        Address::at_socket(&self.run().socket_directory(), PORT, database)
    }

    /// Redirects connections from the server's own processes (those of `dblink`, for example) to the
    /// gateway's `socket`. The server's `account` must not be able to write to the socket's directory.
    ///
    /// # Errors
    /// Returns an error if the link to `socket` can't be created.
    pub fn redirect_internal_connections(&self, socket: &Path, account: &Account) -> Result<(), FileError> {
        internal_connections::link_to(self.run(), socket, account)
    }

    /// Opens a superuser session with the settings that a client's session would have. Login triggers don't fire.
    ///
    /// # Errors
    /// Returns [`StartError::Session`] if the server refuses the session or doesn't respond in time.
    pub fn session(&self, database: &str) -> Result<AdminConnection, StartError> {
        self.session_with(database, &[])
    }

    /// Like [`Self::session`], but the settings in `more` override those of the database and its roles.
    ///
    /// # Errors
    /// Returns [`StartError::Session`] if the server refuses the session or doesn't respond in time.
    pub fn session_with(&self, database: &str, more: &[Setting]) -> Result<AdminConnection, StartError> {
        let params = session_settings::client_like_params(self.major, more);
        Ok(AdminConnection::open_with(&self.run().socket_directory(), &params, database, RESPONSE_TIMEOUT)?)
    }

    /// Opens a session in `database`, which makes the server write a relation cache if the database has none.
    ///
    /// # Errors
    /// Returns the errors of [`Self::session`].
    pub fn write_relation_cache(&self, database: &str) -> Result<(), StartError> {
        self.session(database).map(drop)
    }

    /// Returns the run directory, which contains the data, the socket and the log.
    #[must_use]
    #[allow(clippy::missing_panics_doc)]
    pub fn run(&self) -> &RunDirectory {
        self.guard.as_ref().expect("held until dropped").run()
    }

    /// Returns the pid of the postmaster.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.postmaster.id()
    }

    /// Returns true if the postmaster is still running.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !sys::wait_readable(&self.handle, Duration::ZERO).unwrap_or(true)
    }

    /// Returns true if the postmaster is still listening. This becomes false slightly before
    /// [`Self::is_alive`] does: when a process exits, the kernel first closes its sockets, which clients
    /// notice, and then reports the exit.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        UnixStream::connect(self.run().socket_directory().join(SOCKET)).is_ok()
    }

    /// Calls `then` in a new thread after all of the server's processes have exited. This happens soon after
    /// the postmaster exits.
    ///
    /// # Errors
    /// Returns an error if the system can't provide a thread or a file descriptor. `then` isn't called in that
    /// case.
    pub fn on_end(&self, then: impl FnOnce() + Send + 'static) -> Result<(), FileError> {
        orphans::notify_at_end(&self.alive, then).attempt("watch", Path::new("postmaster"))
    }

    /// Returns how long each step of the start took.
    #[must_use]
    pub fn phases(&self) -> Phases {
        self.phases
    }

    /// Returns how the data was copied, or `None` if the server was started on existing data.
    #[must_use]
    pub fn copied(&self) -> Option<Copied> {
        self.copied
    }

    /// Returns why the server exited: a line of its log, or the signal that killed the postmaster.
    #[must_use]
    pub fn end_reason(&self) -> String {
        // The handle becomes readable slightly before the exit status is available.
        let ended =
            sys::wait_readable(&self.handle, EXIT_STATUS_TIMEOUT).and_then(|_| self.handle.exit_status());
        match ended {
            Ok(Some(status)) if status.signal().is_some() => format!("postmaster ended with {status}"),
            _ => log::reason_line(&self.run().log(), self.log_before)
                .unwrap_or_else(|| "the log is empty".to_owned()),
        }
    }

    /// Returns the log line about the last crash, even if the server survived that crash. Returns `None` if
    /// there was no crash.
    ///
    /// A client can notice a crash before the postmaster does. This therefore waits until the postmaster has
    /// handled the exit of every process that has begun to exit.
    #[must_use]
    pub fn last_crash(&self) -> Option<String> {
        let begun = Instant::now();
        while begun.elapsed() < ENDING_TIMEOUT && sys::children_of(self.pid()).into_iter().any(sys::is_ending)
        {
            thread::sleep(Duration::from_millis(1));
        }
        // The postmaster handles its processes' exits before it accepts another connection. Any response, even an
        // error, therefore proves that it has written the log.
        let answer = self.session("postgres");
        tracing::debug!(?answer, "postmaster has handled the end of its processes");
        log::last_crash(&self.run().log())
    }
}

/// Starts the postmaster. The returned handle becomes readable when the postmaster has exited. The returned
/// pipe becomes readable when all its children have exited as well.
fn spawn(
    order: &StartOptions<'_>,
    run: &RunDirectory,
) -> Result<(Child, ProcessHandle, OwnedFd), StartError> {
    let data = run.data();
    // Replace the file that initdb created.
    run.rewrite("postgresql.conf", &order.settings.to_conf(), order.account)?;
    // An existing pid file was left behind by a killed server. The locks prove that this server is gone, but its
    // "ready" could be mistaken for the new server's.
    let files = Directory::open(&data).attempt("open", &data)?;
    files.remove_file(PID_FILE).attempt("remove", &data.join(PID_FILE))?;
    let output = run.create_file("log", order.account)?;
    let (alive, theirs) = std::io::pipe().attempt("open", Path::new("pipe"))?;
    let lock = run.server_lock()?;
    let mut command = order.installation.postmaster(order.account);
    internal_connections::link_to_server(run)?;
    internal_connections::describe_to(run, &mut command);
    // The port is part of the socket's name.
    command.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-c", &format!("port={PORT}"), "-c"]);
    let folder = run.socket_directory().display().to_string().replace('"', "\"\"");
    command.arg(format!("unix_socket_directories=\"{folder}\""));
    // Keep the log in the run directory, because pgfresh looks there for the reason if the server exits.
    command.args(["-c", "logging_collector=off", "-c", "log_destination=stderr"]);
    let second = output.try_clone().attempt("duplicate", &run.log())?;
    command.stdout(Stdio::from(output)).stderr(Stdio::from(second));
    sys::new_session(&mut command);
    let mut inherited = vec![theirs.into(), lock.descriptor().attempt("duplicate", run.path())?];
    inherited.extend(run.data_lock()?);
    sys::inherit(&mut command, inherited);
    let postmaster = command.spawn().attempt("run", &order.installation.bin().join("postgres"))?;
    // The child hasn't been reaped yet, so the pid still belongs to it.
    let handle = ProcessHandle::of(&postmaster).attempt("watch", Path::new("postmaster"))?;
    Ok((postmaster, handle, alive.into()))
}

/// Returns true if the eighth line of the pid file is "ready". Source: `src/include/utils/pidfile.h`, since
/// version 10.
fn is_marked_ready(data: &Directory) -> bool {
    let text = data.read(PID_FILE, PID_FILE_SIZE).unwrap_or_default();
    text.split(|&byte| byte == b'\n').nth(7).is_some_and(|line| line.trim_ascii_end() == b"ready")
}

/// Quotes a setting's name for `SHOW`. Each part between dots is quoted separately.
fn quoted(name: &str) -> String {
    name.split('.').map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(".")
}

/// Returns true if the effective value may look different from the requested one. For example, the server
/// shows 8192kB as 8MB. Also true if the template may set a different value with `ALTER SYSTEM`, `ALTER
/// DATABASE` or `ALTER ROLE`.
fn is_intended_difference(session: &mut AdminConnection, name: &str) -> Result<bool, StartError> {
    let sql = format!(
        "SELECT source IN ('configuration file', 'database', 'user', 'database user') \
         FROM pg_settings WHERE lower(name) = lower('{name}')"
    );
    let rows = session.query(&sql)?;
    Ok(rows.first().and_then(|row| row[0].as_deref()) == Some("t"))
}

/// If the last log line reports an unknown setting, returns an error that names the requested setting.
/// Otherwise returns `error`.
fn name_unknown_setting(error: StartError, order: &StartOptions<'_>) -> StartError {
    let StartError::Exited { log_line: Some(line), .. } = &error else { return error };
    let Some((_, rest)) = line.split_once(&format!("{UNKNOWN_SETTING} \"")) else { return error };
    let asked =
        rest.split_once('"').filter(|(name, _)| order.settings.iter().any(|(asked, _)| asked == *name));
    let Some((name, _)) = asked else { return error };
    order.installation.unknown_setting(name)
}

#[cfg(test)]
mod tests;
