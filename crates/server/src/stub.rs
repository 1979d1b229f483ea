//! A fake PostgreSQL for tests. A shell script replaces `postgres` and runs lines from the test. A thread
//! responds to SQL on the server's socket.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pgwire::{encode, frames};
use storage::{Account, Cache, Place, PlaceRequest, RunDirectory};
use sys::ProcessHandle;

use crate::boot::Timeouts;
use crate::{Data, Guard, Installation, RestartFailure, SOCKET, Server, Settings, StartError, StartOptions};

/// Environment variable that tells a guard process which run directory it guards. The guard runs as another
/// process of this test program, see [`crate::guard`].
pub(crate) const GUARDED: &str = "PGFRESH_TEST_GUARDED_DIRECTORY";
/// Name of the test that runs in a guard process.
const GUARD_TEST: &str = "guard::tests::this_process_is_a_guard";
/// Longer than any step takes on a busy machine. A wait that takes this long would never end.
const HANG: Duration = Duration::from_secs(30);

/// Timeouts for tests. A timeout is short if a test waits for it to expire. All other timeouts are so long that they
/// never expire.
pub(crate) const TIMEOUTS: Timeouts = Timeouts {
    boot: HANG,
    immediate_stop: HANG,
    clean_stop: HANG,
    halt: HANG,
    stragglers: Duration::from_millis(500),
};
pub(crate) const SHORT: Duration = Duration::from_millis(100);

/// Shell functions for the scripts. `data` is the data directory, and `stub` is the test's own directory.
const PRELUDE: &str = r#"
case $1 in
--version) echo 'postgres (PostgreSQL) 18.4'; exit;;
--describe-config) printf 'fsync\tx\nwork_mem\tx\n'; exit;;
esac
data=$2
stub=${0%/bin/postgres}
echo $$ >>"$stub/pids"
# A line in the log, as a server writes it.
log() { echo "2026-01-01 00:00:00.000 UTC [$$] $1:  $2"; }
# The first lines of the pid file, so many; the last of all says how far the server is. Or the same in another file.
pid_file() {
    printf '%s\n' $$ "$data" 1767225600 5432 "$data" '' '  5432001         7' "$2" | head -n "$1" >"$data/${3-postmaster.pid}"
}
# A process of the server's that does not end by itself, and says so to the test.
backend() {
    sleep 600 &
    echo $! >>"$stub/pids"
}
# The same as a child of nobody's.
grandchild() { (backend); }
# Waits for signals, as a server that is up. A shell runs its traps where it waits; one that comes just before is seen at
# the next turn.
serve() {
    while :; do
        sleep 0.02 &
        wait $!
    done
}
# An orderly end, with that exit code.
finish() {
    rm -f "$data/postmaster.pid"
    exit "$1"
}
"#;

/// A directory that contains a fake PostgreSQL, a place and a cache. Each test has its own.
pub(crate) struct Stub {
    folder: tempfile::TempDir,
    pub(crate) account: Account,
    pub(crate) place: Place,
    installation: Installation,
    program: PathBuf,
    settings: Settings,
}

impl Stub {
    /// Creates a stub whose postmaster runs the lines in `script`.
    pub(crate) fn new(script: &str) -> Self {
        Self::with_initdb(script, "")
    }

    /// Creates a stub whose postmaster runs the lines in `script`, and whose initdb runs the lines in `initdb`.
    pub(crate) fn with_initdb(script: &str, initdb: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let account = Account::for_server().unwrap();
        fs::set_permissions(root, fs::Permissions::from_mode(0o711)).unwrap();
        for name in ["bin", "place", "cache"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(root.join("pids"), "").unwrap();
        fs::set_permissions(root.join("pids"), fs::Permissions::from_mode(0o666)).unwrap();
        write_program(&root.join("bin/postgres"), &format!("#!/bin/sh\n{PRELUDE}\n{script}\n"));
        write_program(&root.join("bin/initdb"), &format!("#!/bin/sh\n{initdb}\n"));
        // The test program lacks a guard's `main` function, so the guard runs as one of the tests. The script
        // must print nothing, because the owner watches the guard's stdout to see when the guard is done.
        let tests = std::env::current_exe().unwrap();
        let program = root.join("guard");
        let words = format!(
            "#!/bin/sh\nexec 3>&1 >/dev/null\n{GUARDED}=\"$2\" exec '{}' --exact --ignored {GUARD_TEST}\n",
            tests.display()
        );
        write_program(&program, &words);
        let cache = Cache::locate(Some(&root.join("cache"))).unwrap();
        let installation = Installation::probe(&root.join("bin"), &cache).unwrap();
        let request = PlaceRequest::At(root.join("place"));
        let place = Place::choose(&request, 0, Path::new("/nowhere"), &account).unwrap();
        Self { folder, account, place, installation, program, settings: Settings::default() }
    }

    /// Sets a setting of the server.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.settings.set(name, value).unwrap();
    }

    /// Returns a guarded run directory with an empty data directory.
    pub(crate) fn guard(&self) -> Guard {
        let guard = Guard::over(&self.place, &self.account, &self.program).unwrap();
        guard.run().create_data(&self.account).unwrap();
        guard
    }

    /// Returns a run directory with an empty data directory and without a guard.
    pub(crate) fn unguarded(&self) -> RunDirectory {
        let (run, ()) = RunDirectory::create(&self.place, &self.account, |_| Ok(())).unwrap();
        run.create_data(&self.account).unwrap();
        run
    }

    pub(crate) fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Starts a server in the run directory of `guard`.
    pub(crate) fn start_in(&self, guard: Guard, timeouts: &Timeouts) -> Result<Server, StartError> {
        let Self { account, place, installation, program, settings, .. } = self;
        let order = StartOptions { installation, account, place, settings, program };
        Server::start_within(timeouts, &order, Data::Prepared(guard), &|_, _| ()).map(|(server, _)| server)
    }

    /// Restarts a server on the data of one that has stopped.
    pub(crate) fn start_again_in(
        &self,
        guard: Guard,
        timeouts: &Timeouts,
    ) -> Result<Server, Box<RestartFailure>> {
        let Self { account, place, installation, program, settings, .. } = self;
        let order = StartOptions { installation, account, place, settings, program };
        Server::start_again_within(timeouts, &order, guard)
    }

    /// Starts a server that doesn't respond to SQL.
    pub(crate) fn start(&self, timeouts: &Timeouts) -> Result<Server, StartError> {
        self.start_in(self.guard(), timeouts)
    }

    /// Starts a server that responds to SQL. `answers` contains setting names and values.
    pub(crate) fn start_up(
        &self,
        timeouts: &Timeouts,
        answers: &[(&str, &str)],
    ) -> Result<Server, StartError> {
        self.start_up_in(self.guard(), timeouts, answers)
    }

    /// Starts a server that responds to SQL in the run directory of `guard`. `answers` contains setting names and
    /// values.
    pub(crate) fn start_up_in(
        &self,
        guard: Guard,
        timeouts: &Timeouts,
        answers: &[(&str, &str)],
    ) -> Result<Server, StartError> {
        let backend = serve_one_session(guard.run(), answers);
        let server = self.start_in(guard, timeouts);
        // If the start failed, no client may have connected to the backend, so don't wait for it.
        if server.is_ok() {
            backend.join().unwrap();
        }
        server
    }

    /// Returns the stub's processes that are still running.
    pub(crate) fn processes(&self) -> Vec<ProcessHandle> {
        let pids = fs::read_to_string(self.folder.path().join("pids")).unwrap();
        assert!(!pids.is_empty(), "the stub has not run");
        pids.lines().filter_map(|pid| ProcessHandle::of_number(pid.parse().unwrap())).collect()
    }

    /// Returns the number of processes the stub has started so far.
    pub(crate) fn count(&self) -> usize {
        fs::read_to_string(self.folder.path().join("pids")).unwrap().lines().count()
    }

    /// Waits for all of the stub's processes to exit.
    pub(crate) fn expect_ended(&self, context: &str) {
        for process in self.processes() {
            assert!(sys::wait_readable(&process, HANG).unwrap(), "{context}: a process is left");
        }
    }

    /// Waits until there are no processes and no files left.
    pub(crate) fn expect_nothing_left(&self, context: &str) {
        self.expect_ended(context);
        // The guard might still be removing files.
        wait_until(context, || left_in(self.place.root()).is_empty());
    }
}

/// Returns the paths in a folder.
pub(crate) fn left_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(context: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + HANG;
    while !condition() {
        assert!(Instant::now() < end, "{context}: it never comes");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Writes an executable file from a separate process. If this process wrote the file, a child of a parallel
/// test could inherit the open file, and the kernel doesn't run a program that is open for writing.
fn write_program(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new("cp").arg("-p").args([&draft, path]).status().unwrap().success());
}

/// Acts as the backend for the only session of a start.
fn serve_one_session(run: &RunDirectory, answers: &[(&str, &str)]) -> JoinHandle<()> {
    let socket = run.socket_directory().join(SOCKET);
    if socket.exists() {
        // Remove an earlier server's socket.
        fs::remove_file(&socket).unwrap();
    }
    let listener = UnixListener::bind(socket).unwrap();
    let answers: BTreeMap<String, String> =
        answers.iter().map(|(name, value)| (format!("SHOW \"{name}\""), (*value).to_owned())).collect();
    thread::spawn(move || answer(&listener.accept().unwrap().0, &answers))
}

fn answer(mut stream: &UnixStream, answers: &BTreeMap<String, String>) {
    let mut startup = [0; 4];
    stream.read_exact(&mut startup).unwrap();
    let mut rest = vec![0; u32::from_be_bytes(startup) as usize - 4];
    stream.read_exact(&mut rest).unwrap();
    stream.write_all(&[encode(b'R', &[0; 4]), encode(b'Z', b"I")].concat()).unwrap();
    let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
    while let count @ 1.. = stream.read(&mut chunk).unwrap() {
        said.extend_from_slice(&chunk[..count]);
        let Some(query) = frames(&said).next() else { continue };
        let sql = String::from_utf8(query.body[..query.body.len() - 1].to_vec()).unwrap();
        let mut reply = Vec::new();
        for statement in sql.split(';').filter(|statement| !statement.is_empty()) {
            let value = match answers.get(statement) {
                Some(value) => value.as_str(),
                None if statement == "SELECT 1" => "1",
                // The response to the query that asks whether a different value is intended.
                None => "f",
            };
            let length = u32::try_from(value.len()).unwrap().to_be_bytes();
            reply.extend(encode(b'D', &[&[0, 1], &length[..], value.as_bytes()].concat()));
        }
        reply.extend(encode(b'Z', b"I"));
        stream.write_all(&reply).unwrap();
        said.clear();
    }
}
