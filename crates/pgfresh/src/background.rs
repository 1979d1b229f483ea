//! The background server: one for each project and template, shared by all clients that ask for it, until it
//! has been idle for a while.
//!
//! ```text
//! CACHE/servers/KEY/start.lock   held by the client that found none, and by the process it starts, until it may be joined
//! CACHE/servers/KEY/owner.lock   held by the server's process: the proof that it is there
//! CACHE/servers/KEY/about        where it is, as long as it may be joined
//! CACHE/servers/KEY/log          what its process says
//! ```
//! The key stands for all that shapes it: project, template, options and this binary. Whoever starts one takes `about`
//! away from the others of the project: they are not joined any more, and go as soon as nobody is there.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use api::OnFailure;
use gateway::KeptDatabase;
use serde::{Deserialize, Serialize};
use storage::{Attempt, Cache};
use sys::{Lock, ProcessHandle, Signal};
use template::Provisioner;

use crate::control::Control;
use crate::evidence;
use crate::failure::Failure;
use crate::foreground::{Event, Events};
use crate::service::{ServeOptions, Service};
use crate::settings::ResolvedSettings;
use crate::startup;
use crate::stops::Stops;

/// How often a server looks whether it is still wanted.
const TICK: Duration = Duration::from_secs(1);
/// How long a server with nothing but databases of failed tests outlives its last client.
const DAY: Duration = Duration::from_hours(24);
/// How long a server that is to stop may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// For those who have read `about` and are on their way.
const LAST_CALL: Duration = Duration::from_millis(100);

/// A background server's place in the cache.
#[derive(Debug)]
struct BackgroundSlot(PathBuf);

/// Where a server is, as it says itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct About {
    /// Its address and secret; see [`Control`].
    pub(crate) control: String,
    /// The project.
    pub(crate) folder: PathBuf,
    /// Whether it only has what a run left behind.
    pub(crate) kept: bool,
    /// Of the process that owns it.
    pub(crate) pid: u32,
    /// Of PostgreSQL.
    pub(crate) version: String,
    /// What PostgreSQL writes.
    pub(crate) log: PathBuf,
}

/// A background server that runs.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) about: About,
    pub(crate) control: Control,
}

impl BackgroundSlot {
    fn about(&self) -> PathBuf {
        self.0.join("about")
    }

    /// What `about` is called once it may not be joined any more, and goes when its last client has.
    fn retired(&self) -> PathBuf {
        self.0.join("about.retired")
    }

    fn owner(&self) -> PathBuf {
        self.0.join("owner.lock")
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The server that one of its files is about, if it is there.
    fn reach(&self, path: &Path) -> Result<Option<Found>, Failure> {
        if !Lock::is_held(&self.owner()).attempt("lock", &self.owner())? {
            return Ok(None);
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        let Ok(about) = serde_json::from_str::<About>(&text) else { return Ok(None) };
        let Ok(control) = Control::at(&about.control)?.visit() else { return Ok(None) };
        Ok(Some(Found { about, control }))
    }

    /// The server, if it is there and may be joined.
    fn look(&self) -> Result<Option<Found>, Failure> {
        let found = self.reach(&self.about())?;
        // It was there when we were connected already: then it sees us before it goes.
        Ok(found.filter(|_| self.about().exists()))
    }

    /// The right to start it, for which others have to wait.
    fn begin(&self) -> Result<Lock, Failure> {
        let path = self.0.join("start.lock");
        loop {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
            made.attempt("create", &self.0)?;
            match Lock::take(&path) {
                // A server took the directory with it as it went.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                lock => return Ok(lock.attempt("lock", &path)?),
            }
        }
    }

    /// The same, if nobody else has it.
    fn try_begin(&self) -> Option<Lock> {
        Lock::try_take(&self.0.join("start.lock")).ok().flatten()
    }

    /// The same, if there is a spot at all; `waiting` is called if somebody else has it.
    fn after_start(&self, waiting: impl FnOnce()) -> Result<Option<Lock>, Failure> {
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

    /// Removes it if there is no server, for who has the right to start one. Returns whether there is none.
    fn remove_if_dead(&self, _starting: &Lock) -> bool {
        let is_dead = Lock::is_held(&self.owner()).is_ok_and(|held| !held);
        if is_dead {
            let _ = fs::remove_dir_all(&self.0);
        }
        is_dead
    }

    /// What its files say of the server that is there, joined or not.
    fn describe(&self) -> Option<About> {
        let files = [self.about(), self.retired()];
        files.iter().find_map(|path| serde_json::from_str(&fs::read_to_string(path).ok()?).ok())
    }

    /// Tells its server, which `about` is about, to end; false if it has ended.
    fn end(&self, about: &About) -> bool {
        let handle = ProcessHandle::of_number(about.pid);
        // The number is still that of the holder of the lock.
        let is_owner = Lock::is_held(&self.owner()).unwrap_or(false);
        handle.is_some_and(|handle| is_owner && handle.signal(Signal::TERM).is_ok())
    }

    /// Waits for the end of its server; false if that was not within [`STOP_TIMEOUT`].
    fn wait_for_end(&self) -> bool {
        let (sender, receiver) = channel();
        let owner = self.owner();
        // The kernel wakes us when the lock is free, or the file is gone.
        std::thread::spawn(move || sender.send(Lock::take(&owner).is_ok()));
        receiver.recv_timeout(STOP_TIMEOUT).is_ok()
    }

    /// Starts it: this program once more, with the same words, in a session of its own. It has `starting` as its standard
    /// input, and so the right to start until it may be joined, whatever becomes of us.
    fn start(&self, kept: Option<&Path>, starting: &Lock) -> Result<Found, Failure> {
        let log = self.log();
        let mut open = fs::OpenOptions::new();
        let output =
            open.write(true).create(true).truncate(true).mode(0o600).open(&log).attempt("write", &log)?;
        let mut command = Command::new(sys::this_program());
        command.arg("--background").arg(&self.0);
        if let Some(kept) = kept {
            command.arg("--kept").arg(kept);
        }
        command.args(std::env::args_os().skip(1));
        let starting = starting.descriptor().attempt("duplicate", &self.0)?;
        command.stdin(Stdio::from(starting)).stdout(Stdio::piped()).stderr(output);
        sys::new_session(&mut command);
        // What it runs for the user has them as from us.
        sys::leave_usual_files(&mut command);
        sys::leave_usual_mask(&mut command);
        let failed =
            |error: io::Error| Failure::new(format!("could not start the background server: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        let said = child.stdout.take().map(|pipe| BufReader::new(pipe).read_line(&mut line));
        if said.is_some_and(|said| said.is_ok_and(|bytes| bytes > 0)) {
            // It outlives us; whoever ends first, nobody waits for the other.
            if let Some(found) = self.look()? {
                return Ok(found);
            }
        }
        let _ = child.wait();
        eprint!("{}", fs::read_to_string(&log).unwrap_or_default());
        let _ = fs::remove_dir_all(&self.0);
        Err(Failure::new("the background server did not start"))
    }
}

fn folder(cache: &Cache) -> PathBuf {
    cache.root().join("servers")
}

/// All spots in `cache`.
fn spots(cache: &Cache) -> impl Iterator<Item = BackgroundSlot> {
    fs::read_dir(folder(cache)).into_iter().flatten().flatten().map(|entry| BackgroundSlot(entry.path()))
}

/// The server of this project and template, started if need be.
pub(crate) fn join(settings: &ResolvedSettings) -> Result<Found, Failure> {
    let stops = Stops::of(&startup::cache(settings.cache.as_deref())?, &settings.folder);
    let before = stops.count();
    let provisioner = startup::provisioner(settings, false)?;
    let slot = BackgroundSlot(folder(&provisioner.cache).join(key(&provisioner, settings)?));
    if let Some(found) = slot.look()? {
        return Ok(found);
    }
    // May take long; whoever stops servers does not wait for it.
    startup::prepare(settings, &provisioner)?;
    let starting = slot.begin()?;
    if let Some(found) = slot.look()? {
        return Ok(found);
    }
    // Who stops servers counts first, and waits for the lock then.
    if stops.count() != before {
        slot.remove_if_dead(&starting);
        let failure = Failure::new("the background server was not started: \"pgfresh stop\" came in between");
        return Err(failure.hint("Run the command again.".to_owned()));
    }
    let found = slot.start(None, &starting)?;
    drop(starting);
    for other in spots(&provisioner.cache).filter(|other| other.0 != slot.0) {
        let theirs = other.look()?.map(|found| found.about);
        if theirs.is_some_and(|theirs| theirs.folder == settings.folder && !theirs.kept) {
            let _ = fs::rename(other.about(), other.retired());
        }
    }
    Ok(found)
}

/// Goes on in the background with what another server left in the run directory `kept`.
fn go_on(settings: &ResolvedSettings, kept: &Path) -> Result<Found, Failure> {
    let cache = startup::cache(settings.cache.as_deref())?;
    let slot = BackgroundSlot(folder(&cache).join(kept.file_name().unwrap_or_default()));
    let starting = slot.begin()?;
    slot.start(Some(kept), &starting)
}

/// Stops a service; the databases of failed tests live on in the background, and their URLs are said.
pub(crate) fn stop_or_keep(settings: &ResolvedSettings, service: Service) -> Result<(), Failure> {
    let failed = service.failed();
    if failed.is_empty() {
        return startup::stop(settings, service);
    }
    startup::warn(&service);
    let kept = service.close().keep()?;
    evidence::write(&kept, &failed)?;
    let control = go_on(settings, &kept)?.control;
    for KeptDatabase { name, statements } in &failed {
        evidence::tell(&control.address(name).url(), statements);
    }
    eprintln!("HINT:  \"pgfresh stop\" removes it; a day after the last connection it goes by itself.");
    Ok(())
}

/// What tells one server from another: change any of it, and it is another one.
fn key(provisioner: &Provisioner, settings: &ResolvedSettings) -> Result<String, Failure> {
    let binary = fs::metadata(sys::this_program()).attempt("examine", sys::this_program())?;
    let mut hasher = DefaultHasher::new();
    settings.folder.hash(&mut hasher);
    provisioner.fingerprint()?.as_str().hash(&mut hasher);
    format!("{:?}{:?}", provisioner.server_options(), (settings.isolation, settings.linger))
        .hash(&mut hasher);
    (binary.dev(), binary.ino(), binary.size(), binary.mtime(), binary.mtime_nsec()).hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

/// The servers of this project that run and may be joined.
pub(crate) fn running(settings: &ResolvedSettings) -> Result<Vec<Found>, Failure> {
    let cache = startup::cache(settings.cache.as_deref())?;
    let found = spots(&cache).map(|slot| slot.look()).collect::<Result<Vec<_>, _>>()?;
    let ours = |found: &Found| found.about.folder == settings.folder && !found.about.kept;
    Ok(found.into_iter().flatten().filter(ours).collect())
}

/// Ends the servers of this project, or of all, and returns how many there were. None is there afterwards that was asked
/// for before.
pub(crate) fn stop(settings: &ResolvedSettings, all: bool) -> Result<usize, Failure> {
    let cache = startup::cache(settings.cache.as_deref())?;
    Stops::of(&cache, &settings.folder).add(all)?;
    let waiting = || {
        if !settings.verbosity.is_quiet() {
            eprintln!("pgfresh: waiting for a background server that is just starting");
        }
    };
    let (mut count, mut ending) = (0, Vec::new());
    for slot in spots(&cache) {
        // Now its server may be joined, or is on its way out, or there is none.
        let Some(alone) = slot.after_start(waiting)? else { continue };
        if slot.remove_if_dead(&alone) {
            continue;
        }
        let about = slot.describe();
        if !all && about.as_ref().is_none_or(|about| about.folder != settings.folder) {
            continue;
        }
        count += usize::from(about.as_ref().is_some_and(|about| slot.end(about)));
        ending.push((slot, alone, about));
    }
    for (slot, _alone, about) in ending {
        if !slot.wait_for_end() {
            let process = about.map_or_else(String::new, |about| format!(" {}", about.pid));
            let failure = Failure::new(format!("the background server{process} does not stop"));
            return Err(failure.detail(format!("Waited {} s.", STOP_TIMEOUT.as_secs())));
        }
        // It leaves its directory to who has the right to start it.
        let _ = fs::remove_dir_all(&slot.0);
    }
    Ok(count)
}

/// Removes what servers left whose process was killed.
pub(crate) fn sweep(cache: &Cache) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    for slot in spots(cache) {
        let start = slot.try_begin();
        let free = Lock::is_held(&slot.owner()).is_ok_and(|held| !held);
        if free && start.is_some() && fs::remove_dir_all(&slot.0).is_ok() {
            removed.push(slot.0);
        }
    }
    removed
}

/// Is the background server at `directory`, until nobody wants it.
pub(crate) fn serve(
    settings: &ResolvedSettings,
    directory: PathBuf,
    kept: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let slot = BackgroundSlot(directory);
    let starting = inherit_start()?;
    // Whoever was the server before is on its way out, or would have been joined.
    let _owner = Lock::take(&slot.owner()).attempt("lock", &slot.owner())?;
    let provisioner = startup::provisioner(settings, false)?;
    let wish = ServeOptions { on_failure: OnFailure::KeepAndTell, ..ServeOptions::new(settings) };
    let (service, idle) = match kept {
        Some(kept) => {
            let databases = evidence::read(kept);
            let service = Service::open(&provisioner, provisioner.reopen(kept)?, wish)?;
            service.remember(databases);
            (service, DAY)
        }
        None => (startup::serve(settings, &provisioner, wish)?, settings.idle),
    };
    let mut events = Events::listen()?;
    let about = About {
        control: service.control(),
        folder: settings.folder.clone(),
        kept: kept.is_some(),
        pid: std::process::id(),
        version: provisioner.installation.version().to_string(),
        log: service.server.run().log().clone(),
    };
    announce(&slot, &about)?;
    drop(starting);
    events.watch_server(&service.server)?;
    let early = events.hear();
    // No directory of the user's is kept busy.
    let _ = std::env::set_current_dir("/");
    let mut alone = None;
    while alone.is_none() && early.is_empty() && events.next_within(TICK).is_none_or(|event| !ends(&event)) {
        alone = leave(&slot, &service, idle);
    }
    let _ = fs::remove_file(slot.about());
    startup::stop(settings, service)?;
    // Whoever starts the next one already has the directory now.
    let alone = alone.or_else(|| slot.try_begin());
    if alone.is_some() {
        let _ = fs::remove_dir_all(&slot.0);
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes over what our standard input is: a share in the right to start, see [`BackgroundSlot::start`].
fn inherit_start() -> Result<OwnedFd, Failure> {
    let null = Path::new("/dev/null");
    let starting = io::stdin().as_fd().try_clone_to_owned().attempt("duplicate", Path::new("start.lock"))?;
    // What we start must not have it.
    sys::replace_stdin(File::open(null).attempt("open", null)?).attempt("open", null)?;
    Ok(starting)
}

fn ends(event: &Event) -> bool {
    matches!(event, Event::Signal(_) | Event::ServerGone)
}

/// Writes `about` in one step, and tells whoever started us.
fn announce(slot: &BackgroundSlot, about: &About) -> Result<(), Failure> {
    let (path, staging) = (slot.about(), slot.0.join("about.new"));
    let text = serde_json::to_string(about).map_err(|error| Failure::new(error.to_string()))?;
    let mut file = fs::OpenOptions::new();
    let mut file: File =
        file.write(true).create(true).truncate(true).mode(0o600).open(&staging).attempt("write", &staging)?;
    file.write_all(text.as_bytes()).attempt("write", &staging)?;
    fs::rename(&staging, &path).attempt("write", &path)?;
    let mut out = io::stdout().lock();
    // If it is gone, somebody else will come.
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
    Ok(())
}

/// If nobody has been there for long enough: the right to go, while nobody starts another. Those who come at the last
/// moment are waited for.
fn leave(slot: &BackgroundSlot, service: &Service, idle: Duration) -> Option<Lock> {
    let retired = !slot.about().exists();
    let bound = if retired { Duration::ZERO } else { idle };
    let unused = || service.idle().is_some_and(|since| since >= bound);
    if !unused() {
        return None;
    }
    let alone = slot.try_begin()?;
    let away = slot.0.join("about.away");
    let hidden = fs::rename(slot.about(), &away).is_ok();
    let until = Instant::now() + LAST_CALL;
    while Instant::now() < until && unused() {
        std::thread::sleep(LAST_CALL / 10);
    }
    let go = unused();
    if hidden && !go {
        let _ = fs::rename(&away, slot.about());
    }
    go.then_some(alone)
}
