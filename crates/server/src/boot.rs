//! Starting a server: copy, boot, ready, and the proof that it does what it was told.

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

/// How long a new server may take for its first answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How much later than the pipe that tells of its end a postmaster may have a status.
const STATUS: Duration = Duration::from_secs(1);
/// Relation caches: what the first session in a database has read from its catalogs, with which the next ones start in half
/// the time, also in copies of the database. A server removes them when it starts, since after a crash they may be out of date;
/// those of a cluster that was shut down cleanly are not. Source: `RELCACHE_INIT_FILENAME` in `relcache.h`.
const RELATION_CACHE: &str = "pg_internal.init";
/// What a server does not look into before it is ready, and what it would remove until then.
const DEFERRED: Deferred<'_> = Deferred { below: "base/", last: Some(RELATION_CACHE) };

/// Everything that a server is made of.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The binaries.
    pub installation: &'a Installation,
    /// Whom it runs as.
    pub account: &'a Account,
    /// Where its data live.
    pub place: &'a Place,
    /// What it is told.
    pub settings: &'a Settings,
    /// A pgfresh that can be a guard; see [`Guard::over`].
    pub program: &'a Path,
}

/// Where the data directory comes from.
#[derive(Debug)]
pub enum Data<'a> {
    /// A copy of this.
    Copy(&'a Entry),
    /// It is already there, in what this guards.
    Made(Guard),
}

/// How long each step of a start took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Phases {
    /// Run directory and guard, and the files that the server needs first.
    pub copy: Duration,
    /// From the start of the postmaster until it says that it is ready; the other files are copied meanwhile.
    pub boot: Duration,
    /// What the rest of the copy took beyond that.
    pub rest: Duration,
    /// First session and answer.
    pub ready: Duration,
}

impl Phases {
    /// Of all steps.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.copy + self.boot + self.rest + self.ready
    }
}

/// How long a server may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// To be ready; crash recovery of a large snapshot may need it.
    pub(crate) boot: Duration,
    /// To shut down immediately, before it is killed.
    pub(crate) immediate_stop: Duration,
    /// To shut down cleanly: it writes all that is dirty.
    pub(crate) clean_stop: Duration,
    /// The same where a crash does no harm.
    pub(crate) halt: Duration,
    /// To end the processes that outlive its postmaster.
    pub(crate) stragglers: Duration,
}

const TIMEOUTS: Timeouts = Timeouts {
    boot: Duration::from_mins(2),
    immediate_stop: Duration::from_secs(2),
    clean_stop: Duration::from_mins(10),
    halt: Duration::from_mins(1),
    stragglers: Duration::from_millis(500),
};

/// A running server. Dropping it stops it and leaves nothing.
#[derive(Debug)]
pub struct Server {
    pub(crate) postmaster: Child,
    /// Readable once the postmaster has ended.
    pub(crate) handle: ProcessHandle,
    /// Its other end is held by all processes of the server: readable once they are gone.
    pub(crate) alive: OwnedFd,
    pub(crate) guard: Option<Guard>,
    /// Ends what outlives the postmaster; see [`orphans::end_with`].
    pub(crate) orphans: Option<JoinHandle<()>>,
    pub(crate) timeouts: Timeouts,
    major: u32,
    phases: Phases,
    copied: Option<Copied>,
    /// Bytes of its log that servers before it on the same data have written.
    pub(crate) log_before: u64,
}

/// A server did not start again on its data.
#[derive(Debug)]
pub struct NotStarted {
    /// Why not.
    pub error: StartError,
    /// The data, for another attempt; none if its processes could not be ended, and so everything is removed.
    pub guard: Option<Guard>,
}

impl Server {
    /// Starts a server on `data` and waits for its first answer; `watch` hears now and then how many bytes of how many are
    /// copied, if that takes long.
    ///
    /// # Errors
    /// Nothing is left of the server then, whatever the error.
    pub fn start(order: &Order<'_>, data: Data<'_>, watch: &dyn Fn(u64, u64)) -> Result<Self, StartError> {
        Self::start_and_connect(order, data, watch).map(|(server, _)| server)
    }

    /// The same, and returns the session with the database `postgres` that had the answer: who goes on with it saves about
    /// 3 ms for one more.
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

    /// Starts a server on the data of one that has ended, whichever way: it recovers them if need be. Whether it lets anyone
    /// have a session is for clients to see: SQL may have changed that, and may change it back.
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

    /// Starts the postmaster. From then on, dropping the server stops it, on every way out.
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

    /// Waits for the word "ready" in the pid file, which the kernel tells us of, or for the end of the server.
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

    /// Compares what is in effect with what was asked, in a session that it returns.
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

    /// How to reach `database`, as the superuser, with nothing in the way.
    #[must_use]
    pub fn address(&self, database: &str) -> Address {
        Address::at_socket(&self.run().socket_directory(), PORT, database)
    }

    /// Leads connections of the server's own processes, such as those of `dblink`, to `socket`, the gateway's. Its directory must be
    /// closed to `account`, the server's.
    pub fn lead_inward_to(&self, socket: &Path, account: &Account) -> Result<(), FileError> {
        inward::lead_to(self.run(), socket, account)
    }

    /// A session as the superuser, with the settings of any client. No trigger fires at its start.
    pub fn session(&self, database: &str) -> Result<AdminConnection, StartError> {
        let params = own::plain_params(self.major);
        Ok(AdminConnection::open_with(&self.run().socket_directory(), &params, database, ANSWER)?)
    }

    /// Has a session in `database` write its relation cache, unless it has one.
    pub fn write_relation_cache(&self, database: &str) -> Result<(), StartError> {
        self.session(database).map(drop)
    }

    /// The directory of its data, its socket and its log.
    #[must_use]
    #[allow(clippy::missing_panics_doc)]
    pub fn run(&self) -> &RunDirectory {
        self.guard.as_ref().expect("held until dropped").run()
    }

    /// The process id of the postmaster.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.postmaster.id()
    }

    /// Whether its postmaster is still there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !sys::wait_readable(&self.handle, Duration::ZERO).unwrap_or(true)
    }

    /// Whether its postmaster listens. The kernel ends that together with all that is open to a process, and its sessions notice;
    /// that the process has ended it says shortly after.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        UnixStream::connect(self.run().socket_directory().join(SOCKET)).is_ok()
    }

    /// Calls `then`, in a thread of its own, when all processes of the server are gone, which is soon after the end of its
    /// postmaster.
    pub fn when_gone(&self, then: impl FnOnce() + Send + 'static) -> Result<(), FileError> {
        orphans::tell_of_end(&self.alive, then).attempt("watch", Path::new("postmaster"))
    }

    /// How long the steps of its start took.
    #[must_use]
    pub fn phases(&self) -> Phases {
        self.phases
    }

    /// How its data came to it, if they were copied.
    #[must_use]
    pub fn copied(&self) -> Option<Copied> {
        self.copied
    }

    /// Why it went away: the line of its log that says so, or the signal by which its postmaster ended.
    #[must_use]
    pub fn why_gone(&self) -> String {
        // The pipe that tells of the end closes shortly before there is a status.
        let ended = sys::wait_readable(&self.handle, STATUS).and_then(|_| self.handle.exit_status());
        match ended {
            Ok(Some(status)) if status.signal().is_some() => format!("postmaster ended with {status}"),
            _ => log::last_words(&self.run().log(), self.log_before)
                .unwrap_or_else(|| "the log is empty".to_owned()),
        }
    }

    /// The line of its log that tells of a crash, which it may have survived.
    #[must_use]
    pub fn last_crash(&self) -> Option<String> {
        log::last_crash(&self.run().log())
    }
}

/// Starts the postmaster. The handle is readable once it has ended, the pipe once all its children are gone as well.
fn spawn(order: &Order<'_>, run: &RunDirectory) -> Result<(Child, ProcessHandle, OwnedFd), StartError> {
    let data = run.data();
    // initdb has made one: only its text is new.
    run.rewrite("postgresql.conf", &order.settings.to_conf(), order.account)?;
    // The locks tell that it is of a server that was killed; it would say of this one that it is ready.
    let files = Directory::open(&data).attempt("open", &data)?;
    files.remove_file(PID_FILE).attempt("remove", &data.join(PID_FILE))?;
    let output = run.create_file("log", order.account)?;
    let (alive, theirs) = std::io::pipe().attempt("open", Path::new("pipe"))?;
    let lock = run.server_lock()?;
    let mut command = order.installation.postmaster(order.account);
    inward::lead_to_server(run)?;
    inward::describe_to(run, &mut command);
    // The port is in the name of the socket.
    command.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-c", &format!("port={PORT}"), "-c"]);
    let folder = run.socket_directory().display().to_string().replace('"', "\"\"");
    command.arg(format!("unix_socket_directories=\"{folder}\""));
    // The log says why a server ended, and goes with the run directory.
    command.args(["-c", "logging_collector=off", "-c", "log_destination=stderr"]);
    let second = output.try_clone().attempt("duplicate", &run.log())?;
    command.stdout(Stdio::from(output)).stderr(Stdio::from(second));
    sys::new_session(&mut command);
    let mut inherited = vec![theirs.into(), lock.descriptor().attempt("duplicate", run.path())?];
    inherited.extend(run.data_lock()?);
    sys::inherit(&mut command, inherited);
    let postmaster = command.spawn().attempt("run", &order.installation.bin().join("postgres"))?;
    // Not reaped yet, so the number is still its own.
    let handle = ProcessHandle::of(&postmaster).attempt("watch", Path::new("postmaster"))?;
    Ok((postmaster, handle, alive.into()))
}

/// Whether the pid file's eighth line is "ready". Source: `src/include/utils/pidfile.h`, from version 10.
fn says_ready(data: &Directory) -> bool {
    let text = data.read(PID_FILE, PID_FILE_SIZE).unwrap_or_default();
    text.split(|&byte| byte == b'\n').nth(7).is_some_and(|line| line.trim_ascii_end() == b"ready")
}

/// A setting's name as `SHOW` wants it: each part between dots quoted.
fn quoted(name: &str) -> String {
    name.split('.').map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(".")
}

/// Whether the value was asked for that a setting has: our file, in another spelling (8192kB and 8MB), or the
/// template by `ALTER SYSTEM`, `ALTER DATABASE` or `ALTER ROLE`.
fn is_on_purpose(session: &mut AdminConnection, name: &str) -> Result<bool, StartError> {
    let sql = format!(
        "SELECT source IN ('configuration file', 'database', 'user', 'database user') \
         FROM pg_settings WHERE lower(name) = lower('{name}')"
    );
    let rows = session.query(&sql)?;
    Ok(rows.first().and_then(|row| row[0].as_deref()) == Some("t"))
}

/// Names the setting, where the last line of the log says that the server does not know one that was asked for.
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
