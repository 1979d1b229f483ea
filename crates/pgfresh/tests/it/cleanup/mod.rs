//! Tests that pgfresh leaves nothing behind, whichever process ends, at any moment and by any signal.
//!
//! Each loop kills [`kills`] times as each available user. The moments cover a whole run: before the guard, during
//! the copy, the boot, the command and the stop, and after the end.

mod kills;

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::depth::rounds;
use crate::common::leftovers::{guard_of, is_owned, postmaster_of};
use crate::common::random::Random;
use crate::common::terminal::Terminal;
use crate::common::{Scene, User, end_of, ground, wait_until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Number of kills in each loop for each user.
fn kills() -> u32 {
    rounds(7)
}

/// Running pgfresh in its own process group.
struct Life<'a> {
    scene: &'a Scene,
    child: Child,
    /// Whether pgfresh's command runs until its standard input ends.
    endless: bool,
    context: String,
}

impl Life<'_> {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Sends `signal` to pgfresh. Returns false if pgfresh has already ended.
    fn signal(&mut self, signal: Signal) -> bool {
        !self.is_over() && kill_process(self.pid(), signal).is_ok()
    }

    /// Lets the command end, and waits for its end.
    fn finish(&mut self) {
        drop(self.child.stdin.take());
        end_of(&mut self.child, &self.context);
    }
}

/// Starts pgfresh until `kill` has succeeded [`kills`] times for each user. `kill` waits for pgfresh's end, and
/// returns whether it found its victim.
fn kill_at_random(kill: impl Fn(&mut Life<'_>) -> bool) {
    for &user in User::all() {
        let scene = Scene::new(user);
        let span = life_span(&scene);
        let mut random = Random::new();
        let (mut hits, mut round) = (0, 0);
        while hits < kills() {
            assert!(round < kills() * 10, "only {hits} of {round} attempts have found something to kill");
            let endless = round % 2 == 0;
            let moment = random.moment(span);
            let command: &[&str] = if endless { &["cat"] } else { &["true"] };
            let context = format!("killed {moment:?} of {span:?} after its start, command {command:?}");
            let mut pgfresh = scene.pgfresh([&["run", "--"], command].concat());
            pgfresh.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut life = Life { scene: &scene, child: pgfresh.spawn().unwrap(), endless, context };
            scene.watch(life.child.id(), moment);
            hits += u32::from(kill(&mut life));
            scene.assert_nothing_left(&life.context);
            round += 1;
        }
    }
}

/// Returns slightly more than the time that an undisturbed run takes.
fn life_span(scene: &Scene) -> Duration {
    let live = || {
        let begun = Instant::now();
        assert_eq!(scene.run(["run", "--", "true"]).code, Some(0));
        begun.elapsed()
    };
    (0..3).map(|_| live()).max().unwrap().mul_f64(1.2)
}

#[test]
fn after_sigkill_of_pgfresh() {
    kill_at_random(|life| {
        let hit = life.signal(Signal::KILL);
        end_of(&mut life.child, &life.context);
        hit
    });
}

#[test]
fn after_sigkill_of_the_process_group() {
    kill_at_random(|life| {
        let hit = !life.is_over() && kill_process_group(life.pid(), Signal::KILL).is_ok();
        end_of(&mut life.child, &life.context);
        hit
    });
}

#[test]
fn after_sigkill_of_the_guard() {
    kill_at_random(|life| {
        let hit = guard_of(life.child.id()).is_some_and(|guard| guard.kill());
        life.finish();
        hit
    });
}

#[test]
fn after_sigkill_of_the_postmaster() {
    kill_at_random(|life| {
        let found = postmaster_of(life.child.id());
        let hit = found.is_some_and(|postmaster| postmaster.kill());
        life.finish();
        hit
    });
}

#[test]
fn after_sigkill_of_the_postmaster_and_of_pgfresh() {
    kill_at_random(|life| {
        let found = postmaster_of(life.child.id());
        let hit = found.is_some_and(|postmaster| postmaster.kill());
        life.signal(Signal::KILL);
        end_of(&mut life.child, &life.context);
        hit
    });
}

/// No process is left that could clean up immediately. The next start or a sweep cleans up after the
/// killed processes have ended.
#[test]
fn after_sigkill_of_guard_and_pgfresh() {
    kill_at_random(|life| {
        let hit = guard_of(life.child.id()).is_some_and(|guard| guard.kill());
        life.signal(Signal::KILL);
        end_of(&mut life.child, &life.context);
        wait_until("the last one that holds the owner's lock", || !is_owned(&life.scene.place));
        let next: &[&str] = if life.endless { &["run", "--", "true"] } else { &["sweep"] };
        let outcome = life.scene.run(next);
        assert_eq!(outcome.code, Some(0), "{}: {outcome}", life.context);
        life.context = format!("{}, then {next:?}: {outcome}", life.context);
        hit
    });
}

/// Sends `signal` at random moments. Before its command runs, pgfresh ends by the signal. Later, pgfresh ends in the
/// same way as its command.
fn signal_at_random(signal: Signal) {
    kill_at_random(|life| {
        let hit = life.signal(signal);
        let status = end_of(&mut life.child, &life.context);
        let number = signal.as_raw();
        let by_signal = status.signal() == Some(number) || status.code() == Some(128 + number);
        let unharmed = !life.endless && status.code() == Some(0);
        assert!(by_signal || unharmed, "{}: pgfresh ended with {status}", life.context);
        hit
    });
}

#[test]
fn after_sigint() {
    signal_at_random(Signal::INT);
}

#[test]
fn after_sigterm() {
    signal_at_random(Signal::TERM);
}

#[test]
fn after_sighup() {
    signal_at_random(Signal::HUP);
}

/// Runs pgfresh on a terminal with an endless command, [`kills`] times for each user, either as the terminal's first
/// process or under a shell, until `disturb` acts on the terminal.
fn on_a_terminal(disturb: impl Fn(Terminal) -> Option<Terminal>) {
    for &user in User::all() {
        let scene = Scene::new(user);
        let span = life_span(&scene);
        let mut random = Random::new();
        for round in 0..kills() {
            let moment = random.moment(span);
            let below_a_shell = round % 2 == 0;
            let context = format!("disturbed {moment:?} after its start, below a shell: {below_a_shell}");
            let mut command = Command::new("setsid");
            command.arg("--ctty");
            if below_a_shell {
                // The last command prevents the shell from replacing itself with pgfresh.
                command.args(["sh", "-c", "\"$@\"; exit", "sh"]);
            }
            command.arg(ground::program()).args(["run", "--", "sleep", "600"]);
            scene.set(&mut command);
            let terminal = Terminal::new();
            let mut child = terminal.start(command);
            wait_until("pgfresh to have a terminal", || runs_pgfresh(child.id(), below_a_shell));
            thread::sleep(moment);
            let kept = disturb(terminal);
            end_of(&mut child, &context);
            scene.assert_nothing_left(&context);
            drop(kept);
        }
    }
}

/// Whether the process, or its first child if `child` is set, runs pgfresh.
fn runs_pgfresh(pid: u32, child: bool) -> bool {
    let pid = if child {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().next().map(str::to_owned)
    } else {
        Some(pid.to_string())
    };
    pid.and_then(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok())
        .is_some_and(|exe| exe == ground::program())
}

#[test]
fn after_ctrl_c_on_a_terminal() {
    on_a_terminal(|mut terminal| {
        terminal.interrupt();
        Some(terminal)
    });
}

#[test]
fn after_the_terminal_was_closed() {
    on_a_terminal(|terminal| {
        drop(terminal);
        None
    });
}

/// A client of `serve` can end at any moment, and then the kernel closes the client's end of the pipe.
#[test]
fn after_the_lifeline_of_serve_was_closed() {
    for &user in User::all() {
        let scene = Scene::new(user);
        let span = life_span(&scene);
        let mut random = Random::new();
        for _ in 0..kills() {
            let moment = random.moment(span);
            let context = format!("lifeline closed after {moment:?}");
            let mut serve = scene.pgfresh(["serve", "--json"]);
            serve.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = serve.spawn().unwrap();
            thread::sleep(moment);
            drop(child.stdin.take());
            let status = end_of(&mut child, &context);
            assert!(status.success(), "{context}: {status}");
            let mut line = String::new();
            child.stdout.take().unwrap().read_to_string(&mut line).unwrap();
            assert_eq!(line.lines().count(), 1, "{context}: {line:?}");
            scene.assert_nothing_left(&context);
        }
    }
}

#[test]
fn a_sweep_creates_no_directories() {
    let scene = Scene::new(User::Ourselves);
    let outcome = scene.run(["sweep", "--place", "./nope"]);
    assert!(outcome.code == Some(1) && outcome.stdout.is_empty(), "{outcome}");
    assert!(outcome.stderr.starts_with("pgfresh: could not sweep \"./nope\": No such file"), "{outcome}");
    let outcome = scene.run(["sweep", "--cache", "nope"]);
    let said = "nothing to remove, and no cache in \"nope\"\n";
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), said), "{outcome}");
    assert!(!scene.directory.join("nope").exists());
}

#[test]
fn the_manual_check_shows_only_run_directories() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let page = fs::read_to_string(root.join("docs/cleanup.md")).unwrap();
    let command = page.lines().find(|line| line.starts_with("find ")).unwrap();
    let scene = Scene::new(User::Ourselves);
    let ours = format!("pgfresh-{}", User::Ourselves.uid());
    for path in ["cache/images", "state-0123456789abcdef/servers", "run/data", "kept-run/data"] {
        fs::create_dir_all(scene.directory.join(&ours).join(path)).unwrap();
    }
    fs::create_dir_all(scene.directory.join("pgfresh-of-another/run")).unwrap();
    let command = command.replace("/dev/shm /tmp /var/tmp $XDG_RUNTIME_DIR", ".");
    assert!(command.starts_with("find . "), "{command}");
    let output = Command::new("sh").args(["-c", &command]).current_dir(&scene.directory).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let mut shown: Vec<_> = output.lines().collect();
    shown.sort_unstable();
    assert_eq!(shown, [format!("./{ours}/kept-run"), format!("./{ours}/run")]);
}

#[test]
fn psql_leaves_no_lease_whenever_it_is_killed() {
    let scene = Scene::new(User::Ourselves);
    let begun = Instant::now();
    assert_eq!(scene.run(["psql", "--", "-qc", "SELECT 1"]).code, Some(0));
    let (took, mut random) = (begun.elapsed(), Random::new());
    for round in 0..6 {
        let mut command = scene.pgfresh(["psql", "--", "-qc", "SELECT pg_sleep(600)"]);
        let mut psql = command.stderr(Stdio::null()).spawn().unwrap();
        // The first round kills psql while it has a lease.
        let leased = || !scene.run(["status", "--json"]).stdout.contains("\"leases\":[]");
        if round == 0 {
            wait_until("psql to have a lease", leased);
        } else {
            thread::sleep(random.moment(took));
        }
        kill_process(Pid::from_child(&psql), Signal::KILL).unwrap();
        psql.wait().unwrap();
        wait_until("the lease to be over", || !leased());
    }
    assert_eq!(scene.run(["stop"]).code, Some(0));
}
