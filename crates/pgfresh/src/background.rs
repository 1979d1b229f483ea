//! Runs background servers, which spare each test run a server start. Each project and template has one background
//! server, which all of its clients share and which exits once it has been idle for a while.
//!
//! A slot is a background server's directory. Its key depends on the project, the template, the options and this
//! binary. When a new server starts, the project's other servers retire: a retired server exits with its last client,
//! unless another client asks for it first.

mod key;
mod slot;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use api::OnFailure;
use storage::{Attempt, Cache};
use sys::Lock;
use template::Provisioner;

use self::slot::{BackgroundSlot, note};
use crate::context::Context;
use crate::context::provisioning;
use crate::exit::ExitRequests;
use crate::failure::Failure;
use crate::foreground::{Event, Events};
use crate::kept_databases;
use crate::lifecycle;
use crate::logging::LogFilter;
use crate::notice::notice;
use crate::service::{ServeOptions, Service, leases_failed};
use crate::settings::ResolvedSettings;
use crate::stops::Stops;

pub(crate) use self::slot::{RunningServer, ServerInfo};

/// Interval between a server's checks for remaining clients.
const TICK: Duration = Duration::from_secs(1);
/// How long a server outlives its last client if it only holds the databases of failed tests.
const DAY: Duration = Duration::from_hours(24);
/// Grace period before a server exits, during which a client that has already read `about` can still connect.
const LAST_CALL: Duration = Duration::from_millis(100);
/// Maximum time for a server to exit after `pgfresh stop`.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time for the previous server in a slot to exit.
const FORMER_TIMEOUT: Duration = Duration::from_mins(1);

fn folder(cache: &Cache) -> Result<PathBuf, Failure> {
    Ok(cache.state()?.join("servers"))
}

/// Lists all slots in `cache`.
fn slots(cache: &Cache) -> Result<impl Iterator<Item = BackgroundSlot>, Failure> {
    let entries = fs::read_dir(folder(cache)?).into_iter().flatten().flatten();
    Ok(entries.map(|entry| BackgroundSlot(entry.path())))
}

/// Returns the server for this project and template, starting it if necessary.
pub(crate) fn join(context: &Context) -> Result<RunningServer, Failure> {
    let settings = context.settings()?;
    let stops = Stops::of(&context.cache()?, &settings.folder)?;
    let before = stops.count();
    let provisioner = context.provisioner()?;
    let slot = BackgroundSlot(folder(&provisioner.cache)?.join(key::of(provisioner, settings)?));
    if let Some(found) = slot.look()? {
        tracing::debug!(pid = found.about.pid, "joins the background server");
        return Ok(found);
    }
    // Building a template can take a long time, so build it before taking the start lock. Otherwise "pgfresh stop"
    // would have to wait for the build.
    provisioning::prepare(context, provisioner)?;
    let starting = slot.begin()?;
    if let Some(found) = slot.look()? {
        return Ok(found);
    }
    // "pgfresh stop" increments the counter first and then waits for this lock. If the counter has changed, the
    // project's servers were stopped in the meantime.
    if stops.count() != before {
        slot.remove_if_dead(&starting);
        let failure = Failure::new("the background server was not started: \"pgfresh stop\" came in between");
        return Err(failure.hint("Run the command again.".to_owned()));
    }
    // A retired server can't exit while this process holds the start lock, so clients can rejoin it.
    let found = if let Some(found) = slot.reinstate(&starting)? {
        tracing::debug!(
            pid = found.about.pid,
            "joins the background server that another template had retired"
        );
        found
    } else {
        let found = slot.start(None, &starting)?;
        tracing::debug!(pid = found.about.pid, "has started a background server");
        found
    };
    drop(starting);
    for other in slots(&provisioner.cache)?.filter(|other| other.0 != slot.0 && other.is_of(&settings.folder))
    {
        if other.look()?.is_some_and(|theirs| theirs.about.is_usual()) {
            note("rename", &other.about(), fs::rename(other.about(), other.retired()));
        }
    }
    Ok(found)
}

/// Returns the server for database `name`. A failed test's database may still be on the server that kept it after the
/// run. If so, returns that server. Otherwise returns the server for this project and template. If the user has not
/// chosen one of several templates, the name of a lease also decides.
pub(crate) fn join_for(context: &Context, name: Option<&str>) -> Result<RunningServer, Failure> {
    let is_open = context.settings()?.has_open_choice();
    let found = name.map(|name| server_with(context, name, |about| about.kept || is_open));
    found.transpose()?.flatten().map_or_else(|| join(context), Ok)
}

/// Returns the server that kept the failed test's database `name` after the test's run.
pub(crate) fn keeper_of(context: &Context, name: &str) -> Result<Option<RunningServer>, Failure> {
    server_with(context, name, |about| about.kept)
}

/// Returns the first of these running servers that has the database `name`.
fn server_with(
    context: &Context,
    name: &str,
    of: impl Fn(&ServerInfo) -> bool,
) -> Result<Option<RunningServer>, Failure> {
    let mut servers = running(context)?.into_iter().filter(|found| of(&found.about));
    Ok(servers.find(|server| server.control.has(name)))
}

/// Builds the error for a project that has no running server.
pub(crate) fn none_runs() -> Failure {
    Failure::new("no server of this project runs")
        .hint("\"pgfresh url\" starts one; within \"pgfresh run -- COMMAND\" there is one.".to_owned())
}

/// Starts a background server on the data an earlier server left in the run directory `kept`.
fn take_over(context: &Context, kept: &Path) -> Result<RunningServer, Failure> {
    let cache = context.cache()?;
    let slot = BackgroundSlot(folder(&cache)?.join(kept.file_name().unwrap_or_default()));
    let starting = slot.begin()?;
    slot.start(Some(kept), &starting)
}

/// Stops a service. If it has databases of failed tests, a background server takes them over, and their URLs are
/// printed.
pub(crate) fn stop_or_keep(context: &Context, service: Service) -> Result<(), Failure> {
    let failed = service.failed();
    if failed.is_empty() {
        return lifecycle::stop(context, service);
    }
    lifecycle::warn(&service);
    let kept = service.close().keep()?;
    kept_databases::write(&kept, &failed)?;
    let control = take_over(context, &kept)?.control;
    kept_databases::print(&failed, |name| control.address(name).url());
    let them = if failed.len() == 1 { "it" } else { "them" };
    notice!("       \"pgfresh stop\" removes {them}, or pgfresh does a day after the last connection.");
    Ok(())
}

/// Returns this project's running servers: its background server, its named servers, and those that hold databases of
/// failed tests.
pub(crate) fn running(context: &Context) -> Result<Vec<RunningServer>, Failure> {
    let project = &context.settings()?.folder;
    let cache = context.cache()?;
    let ours = slots(&cache)?.filter(|slot| slot.is_of(project));
    let mut found = ours.filter_map(|slot| slot.look().transpose()).collect::<Result<Vec<_>, _>>()?;
    found.sort_by_key(|found| (found.about.kept, found.about.name.clone()));
    Ok(found)
}

/// Result of stopping servers.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    pub(crate) count: usize,
    /// Names of this project's servers that are still running.
    pub(crate) staying: Vec<String>,
}

/// Stops this project's servers, except for named ones. With `all`, stops every server in this cache. Either way,
/// servers that are still starting up stop, too.
pub(crate) fn stop(context: &Context, all: bool) -> Result<Stopped, Failure> {
    let (cache, project) = (context.cache()?, &context.settings()?.folder);
    Stops::of(&cache, project)?.add(all)?;
    let waiting = || {
        if !context.verbosity.is_quiet() {
            notice!("pgfresh: waiting for a background server that starts or stops");
        }
    };
    let (mut stopped, mut ending) = (Stopped::default(), Vec::new());
    for slot in slots(&cache)? {
        // No server can be starting while this process holds the start lock, so the slot's server is ready for clients,
        // shutting down, or gone.
        let Some(alone) = slot.after_start(waiting)? else { continue };
        if slot.remove_if_dead(&alone) {
            continue;
        }
        let about = slot.describe();
        let ours = about.as_ref().filter(|about| about.folder == *project);
        if !all && ours.is_none_or(|about| about.name.is_some()) {
            stopped.staying.extend(ours.and_then(|about| about.name.clone()));
            continue;
        }
        let process = about.as_ref().and_then(|about| slot.end(about));
        stopped.count += usize::from(process.is_some());
        ending.push((slot, alone, about, process));
    }
    for (slot, _alone, about, process) in ending {
        // The process releases the template only when it ends.
        let ended = |process| sys::wait_readable(&process, STOP_TIMEOUT).unwrap_or(true);
        if slot.after_server(STOP_TIMEOUT).is_none() || !process.is_none_or(ended) {
            let process = about.map_or_else(String::new, |about| format!(" {}", about.pid));
            let failure = Failure::new(format!("the background server{process} does not stop"));
            return Err(failure.detail(format!("Waited {} s.", STOP_TIMEOUT.as_secs())));
        }
        // The server leaves its directory to whichever process holds the start lock.
        slot.remove();
    }
    Ok(stopped)
}

/// Removes the slots of servers that didn't shut down cleanly, for example because they were killed.
pub(crate) fn sweep(cache: &Cache) -> Result<Vec<PathBuf>, Failure> {
    let mut removed = Vec::new();
    for slot in slots(cache)? {
        let start = slot.try_begin();
        let free = Lock::is_held(&slot.owner()).is_ok_and(|held| !held);
        if free && start.is_some() && slot.remove() {
            removed.push(slot.0);
        }
    }
    Ok(removed)
}

/// Runs the background server in `directory` until no client needs it.
pub(crate) fn serve(
    context: &Context,
    filter: LogFilter,
    directory: PathBuf,
    kept: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let slot = BackgroundSlot(directory);
    let starting = inherit_start()?;
    let slot = OwnedSlot { owner: after_former(&slot)?, slot };
    filter.write_to_file(&slot.slot.log_file())?;
    // Databases that a run left behind must survive even if the starting process exits.
    let starter = Starter::watch(starting, kept.is_none(), context.exit.clone())?;
    let served = serve_at(&slot, context, kept, starter);
    if let Err(failure) = &served {
        tracing::error!("{}", failure.on_one_line());
    }
    served
}

/// Acquires the owner lock, waiting for the previous server to exit if necessary.
fn after_former(slot: &BackgroundSlot) -> Result<Lock, Failure> {
    let Some(owner) = slot.after_server(FORMER_TIMEOUT) else {
        let process = slot.describe().map_or_else(String::new, |about| format!(" (process {})", about.pid));
        let waited = FORMER_TIMEOUT.as_secs();
        let failure =
            Failure::new(format!("the background server before{process} has not ended in {waited} s"));
        return Err(failure.hint("\"pgfresh stop --all\" ends it.".to_owned()));
    };
    Ok(owner.attempt("lock", &slot.owner())?)
}

/// Runs the server in a slot and unblocks `starter` once clients can join.
fn serve_at(
    owned: &OwnedSlot,
    context: &Context,
    kept: Option<&Path>,
    starter: Starter,
) -> Result<ExitCode, Failure> {
    let OwnedSlot { slot, owner } = owned;
    let (settings, provisioner) = (context.settings()?, context.provisioner()?);
    let serve_options = ServeOptions { on_failure: OnFailure::KeepAndTell, ..ServeOptions::new(settings)? };
    let service = match kept {
        Some(kept) => {
            let databases = kept_databases::read(kept);
            let service = Service::open(provisioner, provisioner.reopen(kept)?, serve_options)?;
            service.remember(databases);
            service
        }
        None => lifecycle::serve(context, provisioner, serve_options)?,
    };
    // Once the kept databases are gone, use the ordinary idle timeout.
    let idle = || if kept.is_some() && !service.failed().is_empty() { DAY } else { settings.idle };
    let mut events = Events::listen()?;
    let about = ServerInfo { kept: kept.is_some(), ..about(settings, provisioner, &service) };
    starter.detach();
    announce(slot, &about)?;
    drop(starter);
    let (version, project) = (&about.version, about.folder.display());
    tracing::info!(%version, %project, pid = about.pid, log = %about.log.display(), "the server is ready");
    events.watch_server(&service.server)?;
    events.watch_leases(&service.leases);
    let mut event = events.deliver_signals()?.into_iter().next().map(Event::Signal);
    // Leave the user's directory so that its file system can be unmounted.
    note("enter", Path::new("/"), std::env::set_current_dir("/"));
    let mut departure = ServerExit::Not;
    while matches!(departure, ServerExit::Not) && !event.as_ref().is_some_and(ends) {
        event = events.next_within(TICK);
        if !event.as_ref().is_some_and(ends) {
            departure = owned.decide_exit(&service, idle());
        }
    }
    tracing::info!(?event, idle = ?idle(), ?departure, "the server stops");
    let is_ours = || owner.is_at(&slot.owner());
    if is_ours() {
        note("remove", &slot.about(), fs::remove_file(slot.about()));
    }
    lifecycle::stop(context, service)?;
    tracing::info!("the server has stopped");
    let alone = match departure {
        ServerExit::Alone(alone) => Some(alone),
        // The process that starts the next server already holds the start lock.
        ServerExit::Not => slot.try_begin().filter(|_| is_ours()),
        ServerExit::Orphaned => None,
    };
    if alone.is_some() {
        slot.remove();
    }
    if matches!(event, Some(Event::LeasesFailed)) {
        return Err(leases_failed());
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes a service that runs in this process.
pub(crate) fn about(settings: &ResolvedSettings, provisioner: &Provisioner, service: &Service) -> ServerInfo {
    ServerInfo {
        control: service.control(),
        folder: settings.folder.clone(),
        kept: false,
        name: None,
        database: service.database.clone(),
        pid: std::process::id(),
        version: provisioner.installation.version().to_string(),
        log: service.server.run().log().clone(),
    }
}

/// The exclusive right to be the server with a certain name, through which other processes find the server.
#[derive(Debug)]
pub(crate) struct Registration {
    slot: BackgroundSlot,
    _owner: Lock,
    /// Start lock. "pgfresh stop" waits until this process releases it.
    starting: Option<Lock>,
}

impl Registration {
    /// Acquires the right to be the server with this key. If another process already has this right, its process ID is
    /// the inner error.
    pub(crate) fn begin(cache: &Cache, key: &str) -> Result<Result<Self, u32>, Failure> {
        let slot = BackgroundSlot(folder(cache)?.join(key));
        let starting = Some(slot.begin()?);
        let owner = Lock::try_take(&slot.owner()).attempt("lock", &slot.owner())?;
        Ok(match owner {
            Some(owner) => Ok(Self { slot, _owner: owner, starting }),
            None => Err(slot.describe().map_or(0, |about| about.pid)),
        })
    }

    /// Makes the server visible to other processes.
    pub(crate) fn announce(&mut self, about: &ServerInfo) -> Result<(), Failure> {
        self.slot.announce(about)?;
        self.starting = None;
        Ok(())
    }
}

impl Drop for Registration {
    /// Removes the slot, unless another process holds the start lock and will remove or reuse the slot itself.
    fn drop(&mut self) {
        note("remove", &self.slot.about(), fs::remove_file(self.slot.about()));
        // While this lock is held, no other process can start a server in the directory.
        let alone = self.starting.take().or_else(|| self.slot.try_begin());
        if alone.is_some() {
            self.slot.remove();
        }
    }
}

/// Describes the pgfresh server that listens on this port, if there is one.
pub(crate) fn at_port(cache: &Cache, port: u16) -> Result<Option<String>, Failure> {
    for slot in slots(cache)? {
        let Some(RunningServer { about, control, .. }) = slot.reach(&slot.about())? else { continue };
        if control.address("").port == port {
            let what = about
                .name
                .map_or_else(|| "the background server".to_owned(), |name| format!("server \"{name}\""));
            return Ok(Some(format!("{what} of \"{}\" (process {})", about.folder.display(), about.pid)));
        }
    }
    Ok(None)
}

/// Takes over the start lock, which this process inherited as standard input; see [`BackgroundSlot::start`].
fn inherit_start() -> Result<OwnedFd, Failure> {
    let null = Path::new("/dev/null");
    let starting = io::stdin().as_fd().try_clone_to_owned().attempt("duplicate", Path::new("start.lock"))?;
    // Child processes must not inherit the lock.
    sys::replace_stdin(File::open(null).attempt("open", null)?).attempt("open", null)?;
    Ok(starting)
}

/// Watches the starting process until that process can join the server. If the starting process exits before then, so
/// does this one, because no client would use the setup's result. The guard, a process that cleans up after pgfresh,
/// then kills the setup as well.
#[derive(Debug)]
struct Starter {
    /// The slot's start lock. The starting process waits until this process closes the lock, which signals that the
    /// server is ready.
    _lock: OwnedFd,
    /// True once the server runs independently of the process that started it.
    detached: Arc<AtomicBool>,
}

impl Starter {
    /// Interval between checks of the pipe.
    const EVERY: Duration = Duration::from_millis(100);

    fn watch(lock: OwnedFd, needed: bool, exit: ExitRequests) -> Result<Self, Failure> {
        let detached = Arc::new(AtomicBool::new(!needed));
        let known = Arc::clone(&detached);
        let watch = move || {
            while !known.load(Ordering::SeqCst) {
                // The order matters, since the starting process also closes the pipe once it knows that it can join the
                // server.
                if sys::is_closed_by_peer(io::stdout()) && !known.load(Ordering::SeqCst) {
                    tracing::info!("the process that has started this one is gone");
                    return exit.send(ExitCode::FAILURE);
                }
                thread::sleep(Self::EVERY);
            }
        };
        thread::Builder::new().spawn(watch).attempt("start", Path::new("thread"))?;
        Ok(Self { _lock: lock, detached })
    }

    /// Tells the watching thread that the server no longer depends on the starting process.
    fn detach(&self) {
        self.detached.store(true, Ordering::SeqCst);
    }
}

fn ends(event: &Event) -> bool {
    matches!(event, Event::Signal(_) | Event::ServerGone | Event::LeasesFailed)
}

/// Writes `about` and notifies the starting process.
fn announce(slot: &BackgroundSlot, about: &ServerInfo) -> Result<(), Failure> {
    slot.announce(about)?;
    let mut out = io::stdout().lock();
    // If the starting process has exited, the server waits for another client.
    if let Err(error) = writeln!(out, "ready").and_then(|()| out.flush()) {
        tracing::info!(%error, "the process that started the server is gone");
    }
    Ok(())
}

/// Whether a server exits, and how.
#[derive(Debug)]
enum ServerExit {
    /// The server keeps running.
    Not,
    /// The server exits. Until this lock is released, no process can start a new server in the slot.
    Alone(Lock),
    /// The server exits because the user removed the cache. Its slot is gone or belongs to another server.
    Orphaned,
}

/// A slot whose server is this process.
#[derive(Debug)]
struct OwnedSlot {
    slot: BackgroundSlot,
    /// The slot's owner lock, held until this process exits.
    owner: Lock,
}

impl OwnedSlot {
    /// Decides whether to exit. A server exits if it has been without clients for long enough, but clients get a last
    /// chance to connect first.
    fn decide_exit(&self, service: &Service, idle: Duration) -> ServerExit {
        let Self { slot, owner } = self;
        if !owner.is_at(&slot.owner()) {
            let is_unused = service.gateway.idle().is_some_and(|since| since >= idle);
            return if is_unused { ServerExit::Orphaned } else { ServerExit::Not };
        }
        let bound = || if slot.about().exists() { idle } else { Duration::ZERO };
        let is_unused = |bound| service.gateway.idle().is_some_and(|since| since >= bound);
        if !is_unused(bound()) {
            return ServerExit::Not;
        }
        let Some(alone) = slot.try_begin() else { return ServerExit::Not };
        // Another process may have reinstated the server a moment ago. Now that this process holds the lock, no process
        // can do so anymore.
        let bound = bound();
        let unused = || is_unused(bound);
        let away = slot.0.join("about.away");
        let hidden = fs::rename(slot.about(), &away).is_ok();
        let until = Instant::now() + LAST_CALL;
        while Instant::now() < until && unused() {
            thread::sleep(LAST_CALL / 10);
        }
        let go = unused();
        if hidden && !go {
            note("rename", &away, fs::rename(&away, slot.about()));
        }
        if go { ServerExit::Alone(alone) } else { ServerExit::Not }
    }
}
