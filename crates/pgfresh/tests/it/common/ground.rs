//! Folders and programs for all scenes, made once. They disappear when the process ends, however it ends.

use std::fs;
use std::io::{self, Write as _};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use sys::Filesystem;

use super::depth::is_deep;
use super::{Scene, User, wait_until};

/// Space that the tests' files need in RAM, in bytes.
const NEEDED: u64 = 8 << 30;

/// Folders that disappear with this process.
struct Ground {
    disk: PathBuf,
    memory: PathBuf,
    /// Contains caches and working directories. A disk for deep tests, otherwise RAM, which halves the tests' time.
    work: PathBuf,
    program: PathBuf,
    /// Process that removes the folders when its standard input closes. The kernel closes it when this process ends.
    _janitor: Child,
}

fn ground() -> &'static Ground {
    static GROUND: OnceLock<Ground> = OnceLock::new();
    GROUND.get_or_init(|| {
        print_panics_at_once();
        let shared = Path::new("/dev/shm");
        let memory = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let has_room = Filesystem::of(&memory).is_ok_and(|memory| memory.free >= NEEDED);
        let (disk, memory) = (folder_in(Path::new("/var/tmp")), folder_in(&memory));
        let work = if is_deep() || !has_room { &disk } else { &memory }.clone();
        let program = disk.join("pgfresh");
        // A child process copies it: see `Scene::write_program`.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_pgfresh")).arg(&program).status().unwrap();
        assert!(copied.success(), "could not copy the binary to \"{}\"", program.display());
        let mut janitor = Command::new("sh");
        janitor.args(["-c", "cat; rm -rf -- \"$@\"", "sh"]).args([&disk, &memory]).current_dir("/");
        janitor.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::new_session(&mut janitor);
        Ground { disk, memory, work, program, _janitor: janitor.spawn().unwrap() }
    })
}

/// Prints each panic's message immediately. The test runner prints it only after all tests, where a log
/// might have been cut off.
fn print_panics_at_once() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |why| {
        // The test runner captures the output of `eprintln!`, but not this.
        let _ = writeln!(io::stderr(), "{why}");
        usual(why);
    }));
}

/// Makes a new folder that every user can pass through.
fn folder_in(parent: &Path) -> PathBuf {
    let folder = tempfile::Builder::new().prefix("pgfresh-test-").tempdir_in(parent).unwrap().keep();
    User::Ourselves.give(&folder);
    folder
}

/// Returns the binary under test.
pub(crate) fn program() -> &'static Path {
    &ground().program
}

/// Makes a place for one scene of `user`.
pub(crate) fn place(user: User) -> PathBuf {
    scene_folder(user, &ground().memory)
}

/// Makes a working directory for one scene of `user`.
pub(crate) fn directory(user: User) -> PathBuf {
    scene_folder(user, &ground().work)
}

/// Makes a working directory on a disk for one scene of `user`.
pub(crate) fn directory_on_disk(user: User) -> PathBuf {
    scene_folder(user, &ground().disk)
}

fn scene_folder(user: User, parent: &Path) -> PathBuf {
    let folder = tempfile::Builder::new().prefix("scene-").rand_bytes(8).tempdir_in(parent).unwrap().keep();
    user.give(&folder);
    folder
}

/// Returns the cache that all scenes of `user` share, with the default installation's base image.
pub(crate) fn cache(user: User) -> PathBuf {
    static COPIED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let shared = ground().work.join(format!("cache-{}", user.uid()));
    let mut copied = COPIED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !copied.contains(&user.uid()) {
        copy_base_cache(user, &shared);
        copied.push(user.uid());
    }
    shared
}

/// Turns `target` into a cache for `user` that contains only the same base image.
pub(crate) fn copy_base_cache(user: User, target: &Path) {
    let copied = Command::new("cp").arg("-a").arg(base_cache(user)).arg(target).status().unwrap();
    assert!(copied.success(), "could not copy the cache to \"{}\"", target.display());
}

/// Makes a cache that contains only the base image. Afterwards, tests only copy it.
fn base_cache(user: User) -> PathBuf {
    static READY: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let cache = ground().work.join(format!("base-{}", user.uid()));
    let mut ready = READY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !ready.contains(&user.uid()) {
        if !cache.exists() {
            fs::create_dir(&cache).unwrap();
            user.give(&cache);
        }
        let scene = Scene::with_cache(user, cache.clone());
        let outcome = scene.run(["run", "--", "true"]);
        assert!(outcome.code == Some(0), "no test can run: {outcome}");
        // The guard might still be removing initdb's directory, which must not be copied.
        let runs = cache.join(format!("pgfresh-{}", user.uid()));
        wait_until("the guard to finish", || {
            fs::read_dir(&runs).map_or(true, |mut left| left.next().is_none())
        });
        ready.push(user.uid());
    }
    cache
}

/// Returns the default installation's psql.
pub(crate) fn psql() -> &'static str {
    static PSQL: OnceLock<String> = OnceLock::new();
    PSQL.get_or_init(|| {
        let bin = Scene::new(User::Ourselves).run(["postgres", "path", "--postgres", "15"]);
        assert!(bin.code == Some(0), "no test can run without Debian's PostgreSQL 15: {bin}");
        let psql = Path::new(bin.stdout.trim()).join("psql");
        assert!(psql.is_file(), "\"{}\" is missing: install postgresql-client-15", psql.display());
        psql.to_str().unwrap().to_owned()
    })
}
