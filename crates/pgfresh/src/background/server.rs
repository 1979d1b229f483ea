//! Runs the process of a background server: starts the server, notifies the starting process that clients can join,
//! and decides when the server exits.

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
use storage::Attempt;
use sys::Lock;
use template::Provisioner;

use super::slot::{BackgroundSlot, ServerInfo, note};
use crate::context::Context;
use crate::exit::ExitRequests;
use crate::failure::Failure;
use crate::foreground::{Event, Events};
use crate::kept_databases;
use crate::lifecycle;
use crate::logging::LogFilter;
use crate::service::{ServeOptions, Service, leases_failed};
use crate::settings::ResolvedSettings;

/// Interval between a server's checks for remaining clients.
const TICK: Duration = Duration::from_secs(1);
/// How long a server outlives its last client if it only holds the databases of failed tests.
const DAY: Duration = Duration::from_hours(24);
/// Grace period before a server exits, during which a client that has already read `about` can still connect.
const LAST_CALL: Duration = Duration::from_millis(100);
/// Maximum time for the previous server in a slot to exit.
const FORMER_TIMEOUT: Duration = Duration::from_mins(1);

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
            Failure::new(format!("the previous background server{process} did not stop within {waited} s"));
        return Err(failure.hint("\"pgfresh stop --all\" stops that server.".to_owned()));
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
    // Leave the user's directory so that the directory's file system can be unmounted.
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

/// Takes over the start lock, which this process inherited as standard input; see [`BackgroundSlot::start`].
fn inherit_start() -> Result<OwnedFd, Failure> {
    let null = Path::new("/dev/null");
    let starting = io::stdin().as_fd().try_clone_to_owned().attempt("duplicate", Path::new("start.lock"))?;
    // Child processes must not inherit the lock.
    sys::replace_stdin(File::open(null).attempt("open", null)?).attempt("open", null)?;
    Ok(starting)
}

/// Watches the starting process until that process can join the server. If the starting process exits before then, so
/// does this one, because no client would use the setup's result. The guard (a process that cleans up after pgfresh)
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

/// Whether and how a server exits.
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
    /// Decides whether to exit. A server exits if it has had no clients for long enough, but clients get a last chance
    /// to connect first.
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
