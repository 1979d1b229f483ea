//! Starts servers with PostgreSQL's own programs, so that benchmarks can compare them with pgfresh.
//!
//! Each server has its own run directory with a guard, a process that removes the directory even if the benchmark is
//! killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use report::PhaseTimes;
use server::{AdminConnection, Guard, GuardedCommand, SUPERUSER, Settings};
use storage::{Attempt, Place, RunDirectory};
use sys::Signal;
use template::Provisioner;

use crate::BenchError;
use crate::floor::Tree;

/// Timeout for a server to become ready and to respond.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval at which the floor contender reads the server's PID file. inotify would notice changes faster, but waiting
/// with inotify is part of what pgfresh gains.
const PID_FILE_POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Pause after starting a guard, so that its startup doesn't disturb the contender.
const PAUSE_AFTER_GUARD: Duration = Duration::from_millis(5);

/// Measures consecutive phases.
struct Stopwatch {
    since: Instant,
    phases: PhaseTimes,
}

impl Stopwatch {
    fn start() -> Self {
        Self { since: Instant::now(), phases: PhaseTimes::new() }
    }

    fn lap(&mut self, name: &'static str) {
        let now = Instant::now();
        self.phases.push((name, now.saturating_duration_since(self.since)));
        self.since = now;
    }
}

/// Runs the floor contender, which only performs the steps that no program can skip.
///
/// It copies the tree, runs `postgres` with pgfresh's settings until the server responds, stops the server immediately
/// and removes the directory.
pub(crate) fn run_floor(
    provisioner: &Provisioner,
    place: &Place,
    settings: &Settings,
    tree: &Tree,
) -> Result<PhaseTimes, BenchError> {
    let guard = guarded_directory(provisioner, place)?;
    let (run, guarded) = (guard.run(), guard.guarded_command()?);
    let data = run.data();
    let log = run.create_file("log", &provisioner.account)?;
    let mut postgres = guarded.command(&provisioner.installation, "postgres", &provisioner.account)?;
    postgres.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-k"]).arg(run.socket_directory());
    postgres.stdout(Stdio::null()).stderr(Stdio::from(log));

    let mut watch = Stopwatch::start();
    tree.copy(&data, &provisioner.account)?;
    let conf = data.join("postgresql.conf");
    fs::write(&conf, settings.to_conf()).attempt("write", &conf)?;
    watch.lap("copy");
    let mut postmaster = postgres.spawn().attempt("run", Path::new("postgres"))?;
    wait_until_ready(&mut postmaster, run)?;
    watch.lap("boot");
    run_first_query(run)?;
    watch.lap("first answer");
    sys::signal(&postmaster, Signal::QUIT).attempt("stop", Path::new("postgres"))?;
    postmaster.wait().attempt("wait for", Path::new("postgres"))?;
    watch.lap("stop");
    fs::remove_dir_all(&data).attempt("remove", &data)?;
    watch.lap("remove");
    Ok(watch.phases)
}

/// Waits until the server in `run` reports that it is ready.
pub(crate) fn wait_until_ready(postmaster: &mut Child, run: &RunDirectory) -> Result<(), BenchError> {
    let begun = Instant::now();
    let pid_file = run.data().join("postmaster.pid");
    while !fs::read_to_string(&pid_file).is_ok_and(|text| text.lines().nth(7) == Some("ready   ")) {
        if let Some(status) = postmaster.try_wait().attempt("wait for", Path::new("postgres"))? {
            BenchError::check_status("postgres", status, &run.log())?;
        }
        if begun.elapsed() > START_TIMEOUT {
            return Err(BenchError::NotReady { seconds: START_TIMEOUT.as_secs() });
        }
        std::thread::sleep(PID_FILE_POLL_INTERVAL);
    }
    Ok(())
}

/// Options for PostgreSQL's programs that a user would typically set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramOptions {
    /// Options for initdb, in addition to those for the directory and the superuser.
    pub(crate) initdb: &'static [&'static str],
    /// Options for postgres, in addition to the option for the private socket.
    pub(crate) postgres: &'static str,
}

/// Runs `initdb`, `pg_ctl start -w`, `SELECT 1` and `pg_ctl stop -m fast`, then removes the directory.
pub(crate) fn start_and_stop(
    provisioner: &Provisioner,
    place: &Place,
    with: ProgramOptions,
) -> Result<PhaseTimes, BenchError> {
    let guard = guarded_directory(provisioner, place)?;
    let (run, guarded) = (guard.run(), guard.guarded_command()?);
    let data = run.data();
    // Create these for the server's account, which can't create files in the run directory itself.
    run.create_data(&provisioner.account)?;
    run.create_file("log", &provisioner.account)?;
    let socket = run.socket_directory().display().to_string().replace('\'', "'\\''");
    let options = format!("-c listen_addresses= -k '{socket}' {}", with.postgres);

    let mut watch = Stopwatch::start();
    let initdb = |command: &mut Command| {
        command.args(["-U", SUPERUSER]).args(with.initdb);
    };
    run_program(&guarded, provisioner, "initdb", initdb)?;
    watch.lap("initdb");
    run_program(&guarded, provisioner, "pg_ctl", |command| {
        command.args(["start", "-w", "-o", &options, "-l"]).arg(run.log());
    })?;
    watch.lap("start");
    run_first_query(run)?;
    watch.lap("first answer");
    run_program(&guarded, provisioner, "pg_ctl", |command| {
        command.args(["stop", "-w", "-m", "fast"]);
    })?;
    watch.lap("stop");
    fs::remove_dir_all(&data).attempt("remove", &data)?;
    watch.lap("remove");
    Ok(watch.phases)
}

/// Creates a run directory and a guard that will remove it.
pub(crate) fn guarded_directory(provisioner: &Provisioner, place: &Place) -> Result<Guard, BenchError> {
    let guard = Guard::over(place, &provisioner.account, &provisioner.program)?;
    std::thread::sleep(PAUSE_AFTER_GUARD);
    Ok(guard)
}

/// Runs a program on the data directory and waits for it to exit. Its output goes to a file in the run directory.
fn run_program(
    guarded: &GuardedCommand<'_>,
    provisioner: &Provisioner,
    name: &str,
    arguments: impl Fn(&mut Command),
) -> Result<(), BenchError> {
    let run = guarded.run();
    let output = run.create_file("output", &provisioner.account)?;
    let second = output.try_clone().attempt("duplicate", run.path())?;
    let mut command = guarded.command(&provisioner.installation, name, &provisioner.account)?;
    command.arg("-D").arg(run.data());
    arguments(&mut command);
    command.stdout(Stdio::from(output)).stderr(Stdio::from(second));
    let status = command.status().attempt("run", Path::new(name))?;
    BenchError::check_status(name, status, &run.path().join("output"))
}

/// Opens a session and runs its first query, but without psql, whose own startup would be part of the time.
fn run_first_query(run: &RunDirectory) -> Result<(), BenchError> {
    AdminConnection::open(&run.socket_directory(), SUPERUSER, "postgres", START_TIMEOUT)?
        .query("SELECT 1")?;
    Ok(())
}
