//! Folders and programs for all scenes, made once. They disappear when the process ends, however it ends.

use std::fs;
use std::io::{self, Write as _};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use super::{Scene, User, wait_until};

/// Folders that disappear with this process.
struct Ground {
    disk: PathBuf,
    memory: PathBuf,
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
        let (disk, memory) = (folder_in(Path::new("/var/tmp")), folder_in(&memory));
        let program = disk.join("pgfresh");
        // A child process copies it: see `Scene::write_program`.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_pgfresh")).arg(&program).status().unwrap();
        assert!(copied.success(), "could not copy the binary to \"{}\"", program.display());
        let mut janitor = Command::new("sh");
        janitor.args(["-c", "cat; rm -rf -- \"$@\"", "sh"]).args([&disk, &memory]).current_dir("/");
        janitor.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::new_session(&mut janitor);
        Ground { disk, memory, program, _janitor: janitor.spawn().unwrap() }
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

/// Makes a working directory and a place with the same name, for one scene of `user`.
pub(crate) fn folders(user: User) -> (PathBuf, PathBuf) {
    let make = |parent: &Path| {
        let folder =
            tempfile::Builder::new().prefix("scene-").rand_bytes(8).tempdir_in(parent).unwrap().keep();
        user.give(&folder);
        folder
    };
    (make(&ground().disk), make(&ground().memory))
}

/// Returns the cache that all scenes of `user` share, with the default installation's base image.
pub(crate) fn cache(user: User) -> PathBuf {
    static COPIED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let shared = ground().disk.join(format!("cache-{}", user.uid()));
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
    let cache = ground().disk.join(format!("base-{}", user.uid()));
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
