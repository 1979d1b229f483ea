//! Runs background servers, which spare each test run a server start. Each project and template has one background
//! server, which all of its clients share and which exits once it has been idle for a while.
//!
//! A slot is a background server's directory. Its key depends on the project, the template, the options and this
//! binary. When a new server starts, the project's other servers retire: a retired server exits with its last client,
//! unless another client asks for it first.

mod key;
mod registration;
mod server;
mod slot;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use storage::Cache;
use sys::Lock;

use self::slot::{BackgroundSlot, note};
use crate::context::Context;
use crate::context::provisioning;
use crate::failure::Failure;
use crate::kept_databases;
use crate::lifecycle;
use crate::notice::notice;
use crate::service::Service;
use crate::stops::Stops;

pub(crate) use self::registration::Registration;
pub(crate) use self::server::{about, serve};
pub(crate) use self::slot::{RunningServer, ServerInfo};

/// Maximum time for a server to exit after `pgfresh stop`.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

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
    // project's servers were stopped in the meantime, so don't start one.
    if stops.count() != before {
        slot.remove_if_dead(&starting);
        let failure = Failure::new(
            "the background server was not started, because \"pgfresh stop\" ran at the same time",
        );
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
/// run. If so, returns that server. If the user hasn't selected one of several templates, also looks for a running
/// server that leases `name`. Otherwise returns the server for this project and template.
pub(crate) fn join_for(context: &Context, name: Option<&str>) -> Result<RunningServer, Failure> {
    let is_open = context.settings()?.has_open_choice();
    let found = name.map(|name| server_with(context, name, |about| about.kept || is_open));
    found.transpose()?.flatten().map_or_else(|| join(context), Ok)
}

/// Returns the server that kept the failed test's database `name` after the test's run.
pub(crate) fn keeper_of(context: &Context, name: &str) -> Result<Option<RunningServer>, Failure> {
    server_with(context, name, |about| about.kept)
}

/// Returns the first of this project's running servers that `of` accepts and that has the database `name`.
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
    Failure::new("no server of this project is running").hint(
        "Start a server with \"pgfresh url\", or run the command under \"pgfresh run -- COMMAND\"."
            .to_owned(),
    )
}

/// Starts a background server on the data that an earlier server left in the run directory `kept`.
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

/// Returns this project's running servers: its background server, its named servers, and the servers that hold
/// databases of failed tests.
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

/// Stops this project's servers, except for named servers. With `all`, stops every server in this cache. Either way,
/// servers that are still starting also stop.
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
        // A template stays in use until the server's process exits, so wait for that.
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

/// Describes the pgfresh server that listens on this port. Returns `None` if no pgfresh server does.
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
