//! Shared parts of the integration tests: scenes, users, and the check that nothing is left behind.
//!
//! | path | content |
//! |---|---|
//! | `/var/tmp/pgfresh-test-X/pgfresh` | the binary, where all users can run it |
//! | `/dev/shm/pgfresh-test-X/base-UID` | a cache with a base image, built once for each user |
//! | `/dev/shm/pgfresh-test-X/cache-UID` | a copy of `base-UID` that all tests of that user share |
//! | `/dev/shm/pgfresh-test-X/scene-Y` | working directory of one test |
//! | `/dev/shm/pgfresh-test-X/scene-Z` | place of one test |
//!
//! If RAM is short, and in deep tests, all but the places are in `/var/tmp`, which is usually on a disk.
//!
//! A scene ends with its test. The folders above end with the process, even if it is killed.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod depth;
pub(crate) mod digests;
pub(crate) mod gateway;
pub(crate) mod ground;
pub(crate) mod leases;
pub(crate) mod leftovers;
pub(crate) mod machine;
pub(crate) mod mounts;
pub(crate) mod provisioner;
pub(crate) mod random;
pub(crate) mod scram;
pub(crate) mod serve;
pub(crate) mod terminal;
pub(crate) mod watchdog;

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use leftovers::{History, children_of};
use watchdog::Watchdog;

/// Timeout for waits that hang. Slow waits don't reach it: whatever ends at all ends sooner, even on a machine
/// with ten times the load.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(10);

/// `PATH` of scenes: Debian's PostgreSQL before the wrapper scripts with the same names, which take longer to start.
static PROGRAMS: LazyLock<String> =
    LazyLock::new(|| format!("/usr/lib/postgresql/15/bin:{}", std::env::var("PATH").unwrap_or_default()));

/// Environment variable for debug builds: a folder for the transcripts of all sessions. If it is set for the tests,
/// it is also set for each pgfresh.
pub(crate) const TRANSCRIBE: &str = "PGFRESH_TEST_TRANSCRIBE";

/// Majors that tests run on: the oldest, Debian's, and the newest.
pub(crate) const MAJORS: [u32; 3] = [13, 15, 18];

/// Directory of the only PostgreSQL to test, from `PGFRESH_TEST_ONLY`. `make test` doesn't set this variable.
static ONLY: LazyLock<Option<(u32, String)>> = LazyLock::new(|| {
    let bin = std::env::var("PGFRESH_TEST_ONLY").ok()?;
    let output = Command::new(format!("{bin}/postgres")).arg("--version").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    let number = version.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let end = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
    Some((number[..end].parse().unwrap(), bin))
});

/// Returns all majors to test from `since` on: those in [`MAJORS`], or the major in `PGFRESH_TEST_ONLY`.
pub(crate) fn all_majors_since(since: u32) -> Vec<u32> {
    let all = ONLY.as_ref().map_or(MAJORS.to_vec(), |(major, _)| vec![*major]);
    all.into_iter().filter(|major| *major >= since).collect()
}

/// Returns the majors to test in this run. How many depends on [`depth`]. Prints them for a failing test.
pub(crate) fn majors() -> Vec<u32> {
    majors_since(0)
}

/// Like [`majors`], but only returns majors from `since` on. There is at least one.
pub(crate) fn majors_since(since: u32) -> Vec<u32> {
    let majors = depth::some_of(all_majors_since(since));
    println!("on PostgreSQL {majors:?}");
    majors
}

/// Makes a test `majors::NAME` for each named function, on some or all [`MAJORS`].
macro_rules! on_every_major {
    ($($promise:ident)*) => {
        mod majors {
            $(#[test]
            fn $promise() {
                $crate::common::majors().into_iter().for_each(super::$promise);
            })*
        }
    };
}
pub(crate) use on_every_major;

/// Returns the value of `--postgres` for `major`: a number for Debian's major, or a path for those
/// that `make test` installs.
///
/// Fails without the installation, so that no test is skipped.
pub(crate) fn postgres(major: u32) -> String {
    if let Some((_, bin)) = ONLY.as_ref().filter(|(only, _)| *only == major) {
        return bin.clone();
    }
    if major == 15 {
        return "15".to_owned();
    }
    let folder = std::env::var("PGFRESH_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "PGFRESH_TEST_POSTGRES must name the folder with postgres-13 and postgres-18: run \"make test\""
        )
    });
    let bin = format!("{folder}/postgres-{major}/native/bin");
    assert!(
        Path::new(&bin).join("postgres").is_file(),
        "no PostgreSQL {major} in \"{bin}\": run \"make test\""
    );
    bin
}

/// User who runs pgfresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// User who runs the tests.
    Ourselves,
    /// Ordinary user that root can switch to.
    Nobody,
}

/// User and group ID of `nobody`.
const NOBODY: u32 = 65_534;

impl User {
    /// Returns the available users: both for root, otherwise only the user who runs the tests.
    pub(crate) fn all() -> &'static [Self] {
        if is_root() { &[Self::Ourselves, Self::Nobody] } else { &[Self::Ourselves] }
    }

    /// Returns the user id.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Ourselves => rustix::process::geteuid().as_raw(),
            Self::Nobody => NOBODY,
        }
    }

    /// Makes this user the owner of `path`, and lets all users pass through it.
    pub(crate) fn give(self, path: &Path) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o711)).unwrap();
        if self == Self::Nobody {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Makes the child process of `command` run as this user.
    pub(crate) fn put_on(self, command: &mut Command) {
        if self == Self::Nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
    }
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the tests run as root, which `action` requires. If not, prints that the test is skipped. Bypasses the test
/// runner, because the runner hides what successful tests print.
pub(crate) fn as_root(action: &str) -> bool {
    if !is_root() {
        let test = thread::current().name().unwrap_or("a thread of a test").to_owned();
        let _ = writeln!(io::stderr(), "test {test} ... skipped, because only root can {action}");
    }
    is_root()
}

/// User, working directory, place and cache for pgfresh in a test, with a check for leftovers.
pub(crate) struct Scene {
    pub(crate) user: User,
    /// Working directory, which belongs to the user.
    pub(crate) directory: PathBuf,
    /// Place. Each process has this path in an environment variable that pgfresh ignores, so that the
    /// test can find the process.
    pub(crate) place: PathBuf,
    pub(crate) cache: PathBuf,
    history: Mutex<History>,
    _watchdog: Watchdog,
}

impl Scene {
    /// Makes a scene with the cache that all scenes of this user share. It contains the base image.
    pub(crate) fn new(user: User) -> Self {
        let cache = ground::cache(user);
        Self::with_cache(user, cache)
    }

    /// Makes a scene with an empty cache.
    pub(crate) fn with_empty_cache(user: User) -> Self {
        let directory = ground::directory(user);
        let cache = directory.join("cache");
        Self::in_directory(user, directory, cache)
    }

    /// Makes a scene with its working directory and an empty cache on a disk.
    pub(crate) fn on_disk(user: User) -> Self {
        let directory = ground::directory_on_disk(user);
        let cache = directory.join("cache");
        Self::in_directory(user, directory, cache)
    }

    fn with_cache(user: User, cache: PathBuf) -> Self {
        Self::in_directory(user, ground::directory(user), cache)
    }

    fn in_directory(user: User, directory: PathBuf, cache: PathBuf) -> Self {
        let place = ground::place(user);
        let watchdog = Watchdog::new(&place);
        Self { user, directory, place, cache, history: Mutex::new(History::begin(user)), _watchdog: watchdog }
    }

    /// Returns a command for pgfresh with `arguments` in this scene. Its standard input and environment are empty.
    pub(crate) fn pgfresh<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(ground::program());
        command.args(arguments);
        self.set(&mut command);
        command
    }

    /// Sets user, directory and environment for `command`, which runs pgfresh.
    pub(crate) fn set(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text == TRANSCRIBE {
                continue;
            }
            if text.starts_with("PG") || text.starts_with("XDG_") || text == "DATABASE_URL" {
                command.env_remove(name);
            }
        }
        command.env("PGFRESH_CACHE", &self.cache).env("PGFRESH_PLACE", &self.place);
        command
            .env("SCENE", &self.place)
            .env("HOME", &self.directory)
            .env("PATH", &*PROGRAMS)
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        self.user.put_on(command);
    }

    /// Runs pgfresh with `arguments` until it ends.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Outcome {
        finish(self.pgfresh(arguments))
    }

    /// Runs `pgfresh run` with `options` for a shell with `script`. The run must succeed. Returns its output.
    pub(crate) fn shell(&self, options: &[&str], script: &str) -> String {
        let outcome = self.run([&["run"], options, &["--", "sh", "-euc", script]].concat());
        assert!(outcome.code == Some(0), "{script}\n{outcome}");
        outcome.stdout
    }

    /// Runs `sql` with psql under `pgfresh run` with `options`. Returns the rows as unaligned text.
    pub(crate) fn query(&self, options: &[&str], sql: &str) -> String {
        let psql = ground::psql();
        let outcome = self.run([&["run"], options, &["--", psql, "-XAtqc", sql]].concat());
        assert!(outcome.code == Some(0), "{sql}\n{outcome}");
        outcome.stdout.trim_end().to_owned()
    }

    /// Writes a file that belongs to the user in the working directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes a shell script that can be executed, in a child process. Otherwise, a child of another thread could
    /// inherit the file while it is open for writing, and then the kernel wouldn't run the program.
    pub(crate) fn write_program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let writer = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
        let status = Command::new("sh").args(["-c", writer, "sh"]).arg(&path).arg(script).status().unwrap();
        assert!(status.success());
        path
    }

    /// Waits for `moment`, and meanwhile records the processes that the pgfresh process `owner` starts.
    pub(crate) fn watch(&self, owner: u32, moment: Duration) {
        let begun = Instant::now();
        while let Some(left) = moment.checked_sub(begun.elapsed()) {
            self.history.lock().unwrap().note(&children_of(owner));
            thread::sleep(left.min(Duration::from_millis(2)));
        }
    }

    /// Returns a line for each leftover in this scene.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.history.lock().unwrap().leftovers(self)
    }

    /// Fails unless all processes, directories, locks and segments of this scene disappear within [`WAIT_TIMEOUT`].
    pub(crate) fn assert_nothing_left(&self, context: impl fmt::Display) {
        let begun = Instant::now();
        loop {
            let left = self.leftovers();
            if left.is_empty() {
                return;
            }
            assert!(
                begun.elapsed() < WAIT_TIMEOUT,
                "{context}: left behind by {:?}:\n{}",
                self.user,
                left.join("\n")
            );
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.assert_nothing_left("at the end of the test");
        }
        leftovers::end_processes(&self.place);
        for folder in [&self.directory, &self.place] {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// A process's exit status and output.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, signal, stdout, stderr } = self;
        write!(f, "code {code:?}, signal {signal:?}\nstdout: {stdout}\nstderr: {stderr}")
    }
}

/// Runs `command` until it ends, within [`WAIT_TIMEOUT`].
pub(crate) fn finish(mut command: Command) -> Outcome {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    collect(command.spawn().unwrap())
}

/// Waits until `child` ends, and reads the rest of its output.
pub(crate) fn collect(child: Child) -> Outcome {
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(WAIT_TIMEOUT) else {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        panic!("process {pid:?} has not ended after {WAIT_TIMEOUT:?}");
    };
    let output = output.unwrap();
    Outcome {
        code: output.status.code(),
        signal: output.status.signal(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Reads one line of a child's output, and not a byte more.
pub(crate) fn line_of(mut pipe: impl Read) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        pipe.read_exact(&mut byte).expect("a whole line");
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Waits until `child` ends, within [`WAIT_TIMEOUT`].
pub(crate) fn end_of(child: &mut Child, context: impl fmt::Display) -> ExitStatus {
    let mut status = None;
    wait_until(&format!("the end of pgfresh ({context})"), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Waits until `condition` is true, within [`WAIT_TIMEOUT`].
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "waited {WAIT_TIMEOUT:?} in vain for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
