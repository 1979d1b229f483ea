//! Starts a server: copies its data, runs the postmaster, waits until it is ready, and checks that its settings are in effect.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use storage::{Account, Attempt, Copied, Copying, Deferred, Entry, FileError, Place, RunDirectory};
use sys::{Directory, ProcessHandle};

use crate::address::{Address, PORT, SOCKET};
use crate::error::StartError;
use crate::guard::{PID_FILE, PID_FILE_SIZE};
use crate::installation::UNKNOWN;
use crate::{AdminConnection, Guard, Installation, Settings, inward, log, orphans, own};

/// Timeout for a new server's first answer.
const ANSWER: Duration = Duration::from_secs(30);
/// Timeout for a postmaster's exit status, after its handle has become readable.
const STATUS: Duration = Duration::from_secs(1);
/// Relation cache: catalog rows that the first session in a database has saved. The next sessions start in half the time with it,
/// also in copies of the database. A server removes these files when it starts, since they may be out of date after a crash.
/// Those of a cluster that was shut down cleanly are valid. Source: `RELCACHE_INIT_FILENAME` in `relcache.h`.
const RELATION_CACHE: &str = "pg_internal.init";
/// Files that pgfresh copies while the server boots: it opens none below `base/` before it is ready, and removes relation caches.
const DEFERRED: Deferred<'_> = Deferred { below: "base/", last: Some(RELATION_CACHE) };

/// Parameters of a server's start.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The binaries.
    pub installation: &'a Installation,
    /// Account that the server runs as.
    pub account: &'a Account,
    /// Place of the run directory.
    pub place: &'a Place,
    /// Settings of the server.
    pub settings: &'a Settings,
    /// Path of a pgfresh that can be a guard; see [`Guard::over`].
    pub program: &'a Path,
}

/// Source of the data directory.
#[derive(Debug)]
pub enum Data<'a> {
    /// pgfresh copies this entry of the cache.
    Copy(&'a Entry),
    /// The run directory of this guard has one already.
    Made(Guard),
}

/// Duration of each step of a start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Phases {
    /// Until the postmaster starts: run directory, guard, and the files that the server needs first.
    pub copy: Duration,
    /// Boot of the postmaster, until it is ready; pgfresh copies the other files meanwhile.
    pub boot: Duration,
    /// Rest of the copy, after the server was ready.
    pub rest: Duration,
    /// First session and first answer.
    pub ready: Duration,
}

impl Phases {
    /// Returns the duration of all steps.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.copy + self.boot + self.rest + self.ready
    }
}

/// Timeouts of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Until it is ready; crash recovery of a large snapshot may need most of it.
    pub(crate) boot: Duration,
    /// Immediate shutdown, before pgfresh kills it.
    pub(crate) immediate_stop: Duration,
    /// Clean shutdown: the server writes all dirty pages.
    pub(crate) clean_stop: Duration,
    /// Clean shutdown of a server that a crash would not harm.
    pub(crate) halt: Duration,
    /// End of the processes that outlive the postmaster.
    pub(crate) stragglers: Duration,
}

const TIMEOUTS: Timeouts = Timeouts {
    boot: Duration::from_mins(2),
    immediate_stop: Duration::from_secs(2),
    clean_stop: Duration::from_mins(10),
    halt: Duration::from_mins(1),
    stragglers: Duration::from_millis(500),
};

/// Running server. Dropping it stops the server and removes its files.
#[derive(Debug)]
pub struct Server {
    pub(crate) postmaster: Child,
    /// Handle that is readable once the postmaster has ended.
    pub(crate) handle: ProcessHandle,
    /// Read end of a pipe whose write end all processes of the server hold: readable once they have ended.
    pub(crate) alive: OwnedFd,
    pub(crate) guard: Option<Guard>,
    /// Thread that ends the processes that outlive the postmaster; see [`orphans::end_with`].
    pub(crate) orphans: Option<JoinHandle<()>>,
    pub(crate) timeouts: Timeouts,
    major: u32,
    phases: Phases,
    copied: Option<Copied>,
    /// Bytes of the log that earlier servers on the same data have written.
    pub(crate) log_before: u64,
}

/// Failure of a server to start again on its data.
#[derive(Debug)]
pub struct NotStarted {
    /// Reason of the failure.
    pub error: StartError,
    /// Guard of the data, for another attempt. `None` if pgfresh could not end the processes, and therefore removed everything.
    pub guard: Option<Guard>,
}

impl Server {
    /// Starts a server on `data` and waits for its first answer. During a long copy, it calls `watch` with the bytes copied so far
    /// and the bytes in all.
    ///
    /// # Errors
    /// After an error, no files and processes of the server remain.
    pub fn start(order: &Order<'_>, data: Data<'_>, watch: &dyn Fn(u64, u64)) -> Result<Self, StartError> {
        Self::start_and_connect(order, data, watch).map(|(server, _)| server)
    }

    /// Starts a server like [`Self::start`], and returns also the session with the database `postgres` that had the first answer.
    /// A caller that goes on with this session saves about 3 ms.
    pub fn start_and_connect(
        order: &Order<'_>,
        data: Data<'_>,
        watch: &dyn Fn(u64, u64),
    ) -> Result<(Self, AdminConnection), StartError> {
        Self::start_within(&TIMEOUTS, order, data, watch)
    }

    pub(crate) fn start_within(
        timeouts: &Timeouts,
        order: &Order<'_>,
        data: Data<'_>,
        watch: &dyn Fn(u64, u64),
    ) -> Result<(Self, AdminConnection), StartError> {
        let begun = Instant::now();
        let (guard, copying) = match data {
            Data::Made(guard) => (guard, None),
            Data::Copy(entry) => {
                let guard = Guard::over(order.place, order.account, order.program)?;
                let copying = Copying::begin(entry, &guard.run().data(), order.account, DEFERRED)?;
                (guard, Some(copying))
            }
        };
        let copy = begun.elapsed();
        let launched = Self::launch(timeouts, order, guard);
        let spawned = Instant::now();
        let mut server = match launched {
            Ok(server) => server,
            Err(failed) => {
                // The copy is over before its directory is removed.
                drop(copying);
                return Err(failed.error);
            }
        };
        // Declared after the server, so that the copy is over before its directory is removed.
        let copying = copying;
        server.wait_until_ready(spawned).map_err(|error| explain(error, order))?;
        let boot = spawned.elapsed();
        server.copied = copying.map(|copying| copying.finish(watch)).transpose()?;
        let rest = spawned.elapsed().saturating_sub(boot);
        let session = server.prove(order)?;
        let ready = spawned.elapsed().saturating_sub(boot + rest);
        server.phases = Phases { copy, boot, rest, ready };
        Ok((server, session))
    }

    /// Starts a server on the data of one that has ended in any way, with crash recovery if necessary. It opens no session: SQL may
    /// have forbidden them, and may allow them again.
    pub fn start_again(order: &Order<'_>, guard: Guard) -> Result<Self, Box<NotStarted>> {
        Self::start_again_within(&TIMEOUTS, order, guard)
    }

    pub(crate) fn start_again_within(
        timeouts: &Timeouts,
        order: &Order<'_>,
        guard: Guard,
    ) -> Result<Self, Box<NotStarted>> {
        let mut server = Self::launch(timeouts, order, guard)?;
        match server.wait_until_ready(Instant::now()) {
            Ok(()) => Ok(server),
            Err(error) => Err(server.not_started(error)),
        }
    }

    /// Starts the postmaster. From then on, dropping the server stops it, also after an error.
    fn launch(timeouts: &Timeouts, order: &Order<'_>, guard: Guard) -> Result<Self, Box<NotStarted>> {
        let log_before = log::length(&guard.run().log());
        let (postmaster, handle, alive) = match spawn(order, guard.run()) {
            Ok(spawned) => spawned,
            Err(error) => return Err(Box::new(NotStarted { error, guard: Some(guard) })),
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
        let orphans = orphans::end_with(&server.handle, &server.alive, &lock, order.account.uid);
        match orphans.attempt("watch", Path::new("postmaster")) {
            Ok(orphans) => server.orphans = Some(orphans),
            Err(error) => return Err(server.not_started(error.into())),
        }
        Ok(server)
    }

    fn not_started(self, error: StartError) -> Box<NotStarted> {
        let ended = self.crash().inspect_err(|error| tracing::warn!(%error, "could not end a server"));
        Box::new(NotStarted { error, guard: ended.ok() })
    }

    /// Waits for the word "ready" in the pid file, by notifications of the kernel, or for the end of the server.
    fn wait_until_ready(&mut self, since: Instant) -> Result<(), StartError> {
        let data = self.run().data();
        let files = Directory::open(&data).attempt("open", &data)?;
        let watch = sys::Watch::new(&files).attempt("watch", &data)?;
        loop {
            watch.clear().attempt("watch", &data)?;
            if says_ready(&files) {
                watch.end();
                return Ok(());
            }
            let left = self.timeouts.boot.saturating_sub(since.elapsed());
            let has_ended = watch.wait(&self.alive, left).attempt("wait for a change in", &data)?;
            let log = self.guard.as_ref().expect("held until dropped").run().log();
            let last_words = || log::last_words(&log, self.log_before);
            if has_ended {
                let last_words = last_words();
                let status = self.postmaster.wait().attempt("wait for", Path::new("postgres"))?;
                return Err(StartError::Exited { status, after: since.elapsed(), last_words });
            }
            if since.elapsed() >= self.timeouts.boot {
                return Err(StartError::TooLate { after: since.elapsed(), last_words: last_words() });
            }
        }
    }

    /// Checks that each setting has the requested value, in a session that it returns.
    fn prove(&self, order: &Order<'_>) -> Result<AdminConnection, StartError> {
        let mut session = self.session("postgres")?;
        let wanted: Vec<_> = order.settings.iter().filter(|(name, _)| !own::is_hidden(name)).collect();
        let mut sql = String::from("SELECT 1;");
        for (name, _) in &wanted {
            sql.push_str(&format!("SHOW {};", quoted(name)));
        }
        let rows = session.query(&sql)?.split_off(1);
        for ((name, asked), row) in wanted.into_iter().zip(rows) {
            let effective = row.into_iter().next().flatten().unwrap_or_default();
            if effective != asked && !is_on_purpose(&mut session, name)? {
                return Err(StartError::Setting {
                    name: name.to_owned(),
                    asked: asked.to_owned(),
                    effective,
                });
            }
        }
        Ok(session)
    }

    /// Returns the address of `database` on the server's own socket, as the superuser.
    #[must_use]
    pub fn address(&self, database: &str) -> Address {
        Address::at_socket(&self.run().socket_directory(), PORT, database)
    }

    /// Leads connections of the server's own processes, such as those of `dblink`, to the gateway's `socket`. The server's `account`
    /// must have no access to the directory of `socket`.
    pub fn lead_inward_to(&self, socket: &Path, account: &Account) -> Result<(), FileError> {
        inward::lead_to(self.run(), socket, account)
    }

    /// Opens a superuser's session with the settings of any client. No login trigger fires.
    pub fn session(&self, database: &str) -> Result<AdminConnection, StartError> {
        let params = own::plain_params(self.major);
        Ok(AdminConnection::open_with(&self.run().socket_directory(), &params, database, ANSWER)?)
    }

    /// Opens a session in `database`, so that the server writes the relation cache if the database has none.
    pub fn write_relation_cache(&self, database: &str) -> Result<(), StartError> {
        self.session(database).map(drop)
    }

    /// Returns the run directory: data, socket and log.
    #[must_use]
    #[allow(clippy::missing_panics_doc)]
    pub fn run(&self) -> &RunDirectory {
        self.guard.as_ref().expect("held until dropped").run()
    }

    /// Returns the process id of the postmaster.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.postmaster.id()
    }

    /// Whether the postmaster still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !sys::wait_readable(&self.handle, Duration::ZERO).unwrap_or(true)
    }

    /// Whether the postmaster still listens. The kernel closes a process's sockets, which its sessions notice, shortly before it
    /// reports the end of the process.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        UnixStream::connect(self.run().socket_directory().join(SOCKET)).is_ok()
    }

    /// Calls `then` in a new thread when all processes of the server have ended, soon after the postmaster.
    pub fn when_gone(&self, then: impl FnOnce() + Send + 'static) -> Result<(), FileError> {
        orphans::tell_of_end(&self.alive, then).attempt("watch", Path::new("postmaster"))
    }

    /// Returns the duration of each step of the start.
    #[must_use]
    pub fn phases(&self) -> Phases {
        self.phases
    }

    /// Returns how pgfresh copied the data; `None` if it started the server on existing data.
    #[must_use]
    pub fn copied(&self) -> Option<Copied> {
        self.copied
    }

    /// Returns the reason of the server's end: a line of the log, or the postmaster's signal.
    #[must_use]
    pub fn why_gone(&self) -> String {
        // The handle becomes readable shortly before the exit status is available.
        let ended = sys::wait_readable(&self.handle, STATUS).and_then(|_| self.handle.exit_status());
        match ended {
            Ok(Some(status)) if status.signal().is_some() => format!("postmaster ended with {status}"),
            _ => log::last_words(&self.run().log(), self.log_before)
                .unwrap_or_else(|| "the log is empty".to_owned()),
        }
    }

    /// Returns the log line of a crash, which the server may have survived. `None` without a crash.
    #[must_use]
    pub fn last_crash(&self) -> Option<String> {
        log::last_crash(&self.run().log())
    }
}

/// Starts the postmaster. The handle is readable once it has ended, the pipe once all its children have ended as well.
fn spawn(order: &Order<'_>, run: &RunDirectory) -> Result<(Child, ProcessHandle, OwnedFd), StartError> {
    let data = run.data();
    // initdb has made the file: pgfresh replaces its text.
    run.rewrite("postgresql.conf", &order.settings.to_conf(), order.account)?;
    // This pid file is from an earlier server that was killed, as the locks prove. Its "ready" would count for this one.
    let files = Directory::open(&data).attempt("open", &data)?;
    files.remove_file(PID_FILE).attempt("remove", &data.join(PID_FILE))?;
    let output = run.create_file("log", order.account)?;
    let (alive, theirs) = std::io::pipe().attempt("open", Path::new("pipe"))?;
    let lock = run.server_lock()?;
    let mut command = order.installation.postmaster(order.account);
    inward::lead_to_server(run)?;
    inward::describe_to(run, &mut command);
    // The server's socket has the port in its name.
    command.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-c", &format!("port={PORT}"), "-c"]);
    let folder = run.socket_directory().display().to_string().replace('"', "\"\"");
    command.arg(format!("unix_socket_directories=\"{folder}\""));
    // The log has the reason of an end, and lies in the run directory.
    command.args(["-c", "logging_collector=off", "-c", "log_destination=stderr"]);
    let second = output.try_clone().attempt("duplicate", &run.log())?;
    command.stdout(Stdio::from(output)).stderr(Stdio::from(second));
    sys::new_session(&mut command);
    let mut inherited = vec![theirs.into(), lock.descriptor().attempt("duplicate", run.path())?];
    inherited.extend(run.data_lock()?);
    sys::inherit(&mut command, inherited);
    let postmaster = command.spawn().attempt("run", &order.installation.bin().join("postgres"))?;
    // pgfresh has not reaped the process yet, so the pid is still its own.
    let handle = ProcessHandle::of(&postmaster).attempt("watch", Path::new("postmaster"))?;
    Ok((postmaster, handle, alive.into()))
}

/// Whether the eighth line of the pid file is "ready". Source: `src/include/utils/pidfile.h`, from version 10.
fn says_ready(data: &Directory) -> bool {
    let text = data.read(PID_FILE, PID_FILE_SIZE).unwrap_or_default();
    text.split(|&byte| byte == b'\n').nth(7).is_some_and(|line| line.trim_ascii_end() == b"ready")
}

/// Quotes a setting's name for `SHOW`, each part between dots by itself.
fn quoted(name: &str) -> String {
    name.split('.').map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(".")
}

/// Whether an effective value that differs in text is intended: pgfresh's file sets it in another spelling (8192kB for 8MB), or
/// the template does by `ALTER SYSTEM`, `ALTER DATABASE` or `ALTER ROLE`.
fn is_on_purpose(session: &mut AdminConnection, name: &str) -> Result<bool, StartError> {
    let sql = format!(
        "SELECT source IN ('configuration file', 'database', 'user', 'database user') \
         FROM pg_settings WHERE lower(name) = lower('{name}')"
    );
    let rows = session.query(&sql)?;
    Ok(rows.first().and_then(|row| row[0].as_deref()) == Some("t"))
}

/// Replaces the error by one that names a requested setting, if the last line of the log says that the server does not know it.
fn explain(error: StartError, order: &Order<'_>) -> StartError {
    let StartError::Exited { last_words: Some(line), .. } = &error else { return error };
    let Some((_, rest)) = line.split_once(&format!("{UNKNOWN} \"")) else { return error };
    let asked =
        rest.split_once('"').filter(|(name, _)| order.settings.iter().any(|(asked, _)| asked == *name));
    let Some((name, _)) = asked else { return error };
    order.installation.unknown_setting(name)
}

#[cfg(test)]
mod tests;
