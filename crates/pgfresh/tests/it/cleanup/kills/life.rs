//! Runs one pgfresh command from start to end, and kills one of its processes.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::leftovers::{Process, children_of, guard_of, postmaster_of, processes_about};
use crate::common::random::Random;
use crate::common::{Scene, User, end_of, ground};

/// Command whose processes a test kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Run,
    Serve,
    Psql,
    Url,
    Template,
    Base,
    Snapshot,
    Reset,
    Servers,
    Replicas,
    Install,
    Faults,
}

/// Process that a test kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Pgfresh,
    Guard,
    Postmaster,
    PgfreshAndGuard,
    PgfreshAndPostmaster,
}

/// Plan for one kill: which command, which process, and when.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) moment: Duration,
    /// Number that makes each built template or database unique.
    pub(crate) serial: u64,
    victim: Victim,
    signal: Signal,
    /// Time between two kills, during which the second victim might clean up for the first.
    pause: Duration,
    /// Whether to kill the background server, if there is one, instead of the command.
    background: bool,
}

/// Command that is running.
pub(crate) struct Life<'a> {
    scene: &'a Scene,
    child: Child,
}

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::Run,
        Self::Serve,
        Self::Psql,
        Self::Url,
        Self::Template,
        Self::Base,
        Self::Snapshot,
        Self::Reset,
        Self::Servers,
        Self::Replicas,
        Self::Install,
        Self::Faults,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Serve => "serve",
            Self::Psql => "psql",
            Self::Url => "url",
            Self::Template => "template build",
            Self::Base => "run, with the base image to be made",
            Self::Snapshot => "snapshot",
            Self::Reset => "reset",
            Self::Servers => "run, with leased servers",
            Self::Replicas => "run, with the replica of a leased server",
            Self::Install => "postgres install",
            Self::Faults => "faults",
        }
    }

    /// Returns a scene with an empty cache, if the command needs a scene.
    pub(crate) fn scene(self, user: User) -> Option<Scene> {
        matches!(self, Self::Base | Self::Install).then(|| Scene::with_empty_cache(user))
    }

    fn is_in_background(self) -> bool {
        matches!(self, Self::Psql | Self::Url)
    }

    fn command(self, scene: &Scene, serial: u64) -> Command {
        let shell = |script: &str| {
            let mut command = scene.pgfresh(["run", "--", "sh", "-c", script]);
            command.arg(ground::program());
            command
        };
        match self {
            // All other commands run until their standard input ends.
            Self::Run => scene.pgfresh(["run", "--", if serial.is_multiple_of(2) { "cat" } else { "true" }]),
            Self::Serve => scene.pgfresh(["serve", "--json"]),
            Self::Psql => scene.pgfresh(["psql", "--", "-XAtqc", "SELECT pg_sleep(0.1)"]),
            Self::Url => scene.pgfresh(["url"]),
            Self::Template => {
                scene.write(
                    "schema.sql",
                    &format!("CREATE TABLE t AS SELECT {serial} AS n, generate_series(1, 9999);"),
                );
                scene.pgfresh(["template", "build", "--sql", "schema.sql"])
            }
            Self::Base => scene.pgfresh(["run", "--", "true"]),
            Self::Snapshot => shell("\"$0\" url a >&2 && \"$0\" snapshot a as t && \"$0\" url --of t >&2"),
            Self::Reset => shell("\"$0\" url a >&2; for i in 1 2 3 4; do \"$0\" reset a; done"),
            Self::Servers => {
                scene.pgfresh(["run", "--isolation", "server", "--", ground::psql(), "-XAtqc", "SELECT 1"])
            }
            Self::Replicas => {
                scene.write("schema.sql", "CREATE TABLE t (n int);");
                let config = scene.write("replica.toml", "[template]\nsql = \"schema.sql\"\nreplicas = 1\n");
                let script = "exec \"$0\" \"$DATABASE_REPLICA_URL\" -XAtqc 'SELECT 1'";
                let mut command = scene.pgfresh(["run", "--isolation", "server", "--config"]);
                command.arg(config).args(["--", "sh", "-c", script, ground::psql()]);
                command
            }
            Self::Install => scene.pgfresh(["postgres", "install", "14"]),
            Self::Faults => {
                let sql = ["-c", "CREATE TABLE t (n int)", "-c", "INSERT INTO t VALUES (1)"];
                scene.pgfresh([&["faults", "--", ground::psql(), "-XAtqd", "db"][..], &sql].concat())
            }
        }
    }
}

impl Plan {
    pub(crate) fn draw(kind: Kind, span: Duration, random: &mut Random) -> Self {
        use Victim::{Guard, Pgfresh, PgfreshAndGuard, PgfreshAndPostmaster, Postmaster};
        let victims =
            [Pgfresh, Pgfresh, Guard, Postmaster, PgfreshAndGuard, PgfreshAndGuard, PgfreshAndPostmaster];
        let signals = [Signal::KILL, Signal::KILL, Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP];
        Self {
            kind,
            moment: random.moment(span),
            serial: random.number() % 1_000_000_000,
            victim: *random.choose(&victims),
            signal: *random.choose(&signals),
            pause: if random.chance(50) { Duration::ZERO } else { random.moment(Duration::from_millis(40)) },
            background: random.chance(50),
        }
    }

    /// Whether the kill leaves the cleanup to the next start.
    pub(crate) fn kills_guard(&self) -> bool {
        self.victim == Victim::PgfreshAndGuard
    }
}

impl<'a> Life<'a> {
    /// `npm` is the folder where npm keeps its downloads, so that only the first installation downloads.
    pub(crate) fn begin(scene: &'a Scene, npm: &Path, kind: Kind, serial: u64) -> Self {
        let mut command = kind.command(scene, serial);
        command.env("PGFRESH_CACHE_SIZE", "300MB");
        command.env("npm_config_cache", npm).env("npm_config_prefer_offline", "true");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { scene, child: command.spawn().unwrap() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process that owns the server: either the test's child process or the background server.
    fn owner(&self, plan: &Plan) -> Option<u32> {
        if plan.kind.is_in_background() && plan.background {
            let all = processes_about(&self.scene.place);
            let found = all.iter().find(|process| process.command.contains(" --background "));
            return found.map(|process| process.pid.cast_unsigned());
        }
        Some(self.child.id())
    }

    /// Carries out the kill. Returns false if the victim didn't exist.
    pub(crate) fn kill(&mut self, plan: &Plan) -> bool {
        let Some(owner) = self.owner(plan) else { return false };
        let (guard, postmaster) = (guard_of(owner), postmaster_of(owner).or_else(|| initdb_of(owner)));
        let is_ours = owner == self.child.id();
        let pgfresh = Pid::from_raw(owner.cast_signed())
            .filter(|_| !is_ours || self.child.try_wait().unwrap().is_none());
        let pids: Vec<Pid> = match plan.victim {
            Victim::Pgfresh => pgfresh.into_iter().collect(),
            Victim::Guard => guard.iter().filter_map(pid).collect(),
            Victim::Postmaster => postmaster.iter().filter_map(pid).collect(),
            Victim::PgfreshAndGuard => pgfresh.into_iter().chain(guard.iter().filter_map(pid)).collect(),
            Victim::PgfreshAndPostmaster => {
                pgfresh.into_iter().chain(postmaster.iter().filter_map(pid)).collect()
            }
        };
        // A postmaster takes other signals as requests, and a guard ignores them, so kill both with SIGKILL.
        let mild = matches!(plan.victim, Victim::Pgfresh);
        let signal = if mild { plan.signal } else { Signal::KILL };
        let mut hit = false;
        for (number, pid) in pids.into_iter().enumerate() {
            if number > 0 {
                sleep(plan.pause);
            }
            hit |= kill_process(pid, signal).is_ok();
        }
        hit
    }

    /// Lets the command end, waits for its end, and returns its exit status.
    pub(crate) fn finish(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        end_of(&mut self.child, "kills")
    }

    /// Stops the background server that a command has started.
    pub(crate) fn stop(scene: &Scene, kind: Kind) {
        if kind.is_in_background() {
            let outcome = scene.run(["stop", "--all"]);
            assert_eq!(outcome.code, Some(0), "{outcome}");
        }
    }
}

fn pid(process: &Process) -> Option<Pid> {
    Pid::from_raw(process.pid)
}

fn initdb_of(owner: u32) -> Option<Process> {
    children_of(owner).into_iter().find(|child| child.command.contains("/initdb "))
}
