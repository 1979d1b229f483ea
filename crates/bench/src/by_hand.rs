//! Servers as people start them without us, each in a guarded run directory of its own.

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

/// How long a server may take to come up and to answer.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How often the floor's pid file is read. The kernel could tell us, but that code is pgfresh's own.
const LOOK: Duration = Duration::from_micros(100);
/// A guard needs a moment to get up, which belongs to no contender.
const SETTLE: Duration = Duration::from_millis(5);

/// Takes the time of one step after the other.
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

/// What pgfresh cannot do without: the copy, and then `postgres` itself with the same settings, until it has answered;
/// an immediate shutdown and a plain removal.
pub(crate) fn floor(
    provisioner: &Provisioner,
    place: &Place,
    settings: &Settings,
    tree: &Tree,
) -> Result<PhaseTimes, BenchError> {
    let guard = guarded(provisioner, place)?;
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
    answer(run)?;
    watch.lap("first answer");
    sys::signal(&postmaster, Signal::QUIT).attempt("stop", Path::new("postgres"))?;
    postmaster.wait().attempt("wait for", Path::new("postgres"))?;
    watch.lap("stop");
    fs::remove_dir_all(&data).attempt("remove", &data)?;
    watch.lap("remove");
    Ok(watch.phases)
}

/// Waits until the server in `run` says that it is ready.
pub(crate) fn wait_until_ready(postmaster: &mut Child, run: &RunDirectory) -> Result<(), BenchError> {
    let begun = Instant::now();
    let pid_file = run.data().join("postmaster.pid");
    while !fs::read_to_string(&pid_file).is_ok_and(|text| text.lines().nth(7) == Some("ready   ")) {
        if let Some(status) = postmaster.try_wait().attempt("wait for", Path::new("postgres"))? {
            BenchError::unless_success("postgres", status, &run.log())?;
        }
        if begun.elapsed() > START_TIMEOUT {
            return Err(BenchError::NotReady { seconds: START_TIMEOUT.as_secs() });
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// How a user makes a server with the programs of the installation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Programs {
    /// For initdb, beside the directory and the superuser.
    pub(crate) initdb: &'static [&'static str],
    /// For postgres, beside the private socket.
    pub(crate) postgres: &'static str,
}

/// `initdb`, `pg_ctl start -w`, `SELECT 1`, `pg_ctl stop -m fast`, and the directory removed.
pub(crate) fn by_programs(
    provisioner: &Provisioner,
    place: &Place,
    with: Programs,
) -> Result<PhaseTimes, BenchError> {
    let guard = guarded(provisioner, place)?;
    let (run, guarded) = (guard.run(), guard.guarded_command()?);
    let data = run.data();
    // The account of the server may make nothing in the run directory itself.
    run.create_data(&provisioner.account)?;
    run.create_file("log", &provisioner.account)?;
    let socket = run.socket_directory().display().to_string().replace('\'', "'\\''");
    let options = format!("-c listen_addresses= -k '{socket}' {}", with.postgres);

    let mut watch = Stopwatch::start();
    let initdb = |command: &mut Command| {
        command.args(["-U", SUPERUSER]).args(with.initdb);
    };
    program(&guarded, provisioner, "initdb", initdb)?;
    watch.lap("initdb");
    program(&guarded, provisioner, "pg_ctl", |command| {
        command.args(["start", "-w", "-o", &options, "-l"]).arg(run.log());
    })?;
    watch.lap("start");
    answer(run)?;
    watch.lap("first answer");
    program(&guarded, provisioner, "pg_ctl", |command| {
        command.args(["stop", "-w", "-m", "fast"]);
    })?;
    watch.lap("stop");
    fs::remove_dir_all(&data).attempt("remove", &data)?;
    watch.lap("remove");
    Ok(watch.phases)
}

/// A run directory of its own, with a guard that removes it.
pub(crate) fn guarded(provisioner: &Provisioner, place: &Place) -> Result<Guard, BenchError> {
    let guard = Guard::over(place, &provisioner.account, &provisioner.program)?;
    std::thread::sleep(SETTLE);
    Ok(guard)
}

/// Runs a program on the data directory to its end, its output in a file of the run directory.
fn program(
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
    BenchError::unless_success(name, status, &run.path().join("output"))
}

/// The first session and its first query. Without psql, whose own start is not the server's.
fn answer(run: &RunDirectory) -> Result<(), BenchError> {
    AdminConnection::open(&run.socket_directory(), SUPERUSER, "postgres", START_TIMEOUT)?
        .query("SELECT 1")?;
    Ok(())
}
