//! The user's own suite: run once on a durable server at the path, watched, and its time without waiting predicted.
//!
//! The prediction: of the time of its clients, the share that waits for syncs goes away, and what is left takes at least
//! as long as the processors need for it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use report::{Basis, Factor, Finding, Gain, Interval, Layer, Quantity, Unit};
use server::{Address, Server};
use storage::{Account, Attempt};
use sys::Roots;
use template::MakerError;

use crate::delays::Delays;
use crate::stage::{Setup, Stage};
use crate::waits::Waits;

/// Between two looks at what the server waits for.
const PERIOD: Duration = Duration::from_millis(10);
/// Of so many looks, one is at who waits for a processor.
const SELDOM: usize = 10;
/// Parts into which a run is cut for the interval of its shares.
const PARTS: usize = 10;
/// What the 97.5 % quantile of Student's t is for 9 degrees of freedom. Source: any table of it.
const STUDENT: f64 = 2.262;
/// A share of the time that is worth a finding.
const WORTH: f64 = 0.1;

/// What was seen of one run.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Seconds from start to end.
    pub(crate) wall: f64,
    /// How it ended.
    status: ExitStatus,
    last_words: Option<String>,
    /// Seconds of processors that suite and server took.
    busy: f64,
    /// Seconds that they waited for processors.
    delayed: f64,
    waits: Waits,
    major: u32,
}

/// A command of the user's, and where it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suite<'a> {
    pub(crate) command: &'a str,
    pub(crate) stage: &'a Stage<'a>,
    pub(crate) roots: &'a Roots,
}

impl Suite<'_> {
    /// Runs it once on a new durable server, and looks at what that waits for.
    pub(crate) fn watch(&self) -> Result<Watched, MakerError> {
        let server = self.stage.start(Setup::Durable)?;
        let mut session = server.session("postgres")?;
        let mut waits = Waits::default();
        let before = self.busy(server.pid());
        let mut delays = Delays::begin(self.roots, server.pid());
        let mut look = |shell| {
            if waits.looks().is_multiple_of(SELDOM) {
                delays.look(self.roots, [server.pid(), shell]);
            }
            waits.look(&mut session).map_err(|error| server::StartError::from(error).into())
        };
        let (wall, status) = self.run(&server, &mut look)?;
        let busy = self.busy(server.pid()) - before;
        let last_words = last_line(&server.run().path().join("output"));
        let delayed = delays.seconds();
        Ok(Watched { wall, status, last_words, busy, delayed, waits, major: self.stage.major() })
    }

    /// Runs it once on a new server with this setup; returns the seconds that it took.
    pub(crate) fn time(&self, setup: Setup) -> Result<f64, MakerError> {
        let server = self.stage.start(setup)?;
        Ok(self.run(&server, &mut |_| Ok(()))?.0)
    }

    /// Runs it on `server`, and calls `look` meanwhile.
    fn run(
        &self,
        server: &Server,
        look: &mut dyn FnMut(u32) -> Result<(), MakerError>,
    ) -> Result<(f64, ExitStatus), MakerError> {
        let output = server.run().create_file("output", &Account::ours())?;
        let second = output.try_clone().attempt("duplicate", server.run().path())?;
        let mut command = Command::new("sh");
        command.args(["-c", self.command]);
        command.stdin(Stdio::null()).stdout(Stdio::from(output)).stderr(Stdio::from(second));
        Address::of(server, self.stage.database()).describe_to(&mut command);
        sys::die_with_parent(&mut command);
        let begun = Instant::now();
        let shell = Path::new("sh");
        let mut child = command.spawn().attempt("run", shell)?;
        let mut next = begun;
        // Unequal steps, so that no rhythm of the disk is met always at the same point: multiples of the golden ratio.
        let mut rhythm = (0..).map(|step| PERIOD.mul_f64(0.5 + (f64::from(step) * 0.618_034).fract()));
        loop {
            if let Some(status) = child.try_wait().attempt("wait for", shell)? {
                return Ok((begun.elapsed().as_secs_f64(), status));
            }
            look(child.id())?;
            // Not a moment of rest that tells something: the rhythm of the looks.
            next += rhythm.next().unwrap_or(PERIOD);
            let now = Instant::now();
            thread::sleep(next.saturating_duration_since(now));
            // What was missed is not made up for.
            next = next.max(now);
        }
    }

    /// Seconds of processors that the server, ended backends included, and our ended children took.
    fn busy(&self, postmaster: u32) -> f64 {
        let mut ticks = own_ticks(self.roots, &postmaster.to_string(), 0..4);
        let children = format!("{postmaster}/task/{postmaster}/children");
        let children = fs::read_to_string(self.roots.procfs.join(children)).unwrap_or_default();
        ticks += children.split_whitespace().map(|pid| own_ticks(self.roots, pid, 0..2)).sum::<f64>();
        ticks += own_ticks(self.roots, "self", 2..4);
        ticks / crate::device::as_f64(rustix::param::clock_ticks_per_second())
    }
}

/// The sum of some of utime, stime, cutime and cstime. Source: proc(5), `/proc/PID/stat`, fields 14 to 17.
fn own_ticks(roots: &Roots, pid: &str, which: std::ops::Range<usize>) -> f64 {
    let text = fs::read_to_string(roots.procfs.join(pid).join("stat")).unwrap_or_default();
    let Some((_, fields)) = text.rsplit_once(')') else { return 0.0 };
    let times = fields.split_whitespace().skip(11);
    times.skip(which.start).take(which.len()).filter_map(|time| time.parse::<f64>().ok()).sum()
}

fn last_line(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().rfind(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
}

impl Watched {
    /// The share of the clients' time that goes into syncs: low, mean and high end of its 95 % interval.
    fn share(&self) -> [f64; 3] {
        let shares: Vec<f64> = self.waits.shares(PARTS).into_iter().map(|(_, syncing)| syncing).collect();
        let count = crate::device::as_f64(PARTS as u64);
        let mean = shares.iter().sum::<f64>() / count;
        let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let margin = STUDENT * (variance / count).sqrt();
        [mean - margin, mean, mean + margin].map(|share| share.clamp(0.0, 0.999))
    }

    /// Seconds that it would take if `share` of the clients' time went away: no fewer than the processors need.
    fn without(&self, share: f64) -> f64 {
        let needed = self.busy / crate::device::as_f64(crate::machine::cores() as u64);
        // Whoever wakes up after a sync waits for a processor once more where others are busy.
        let waking = self.delayed / self.waits.width();
        (self.wall * (1.0 - share) - waking).max(needed).min(self.wall)
    }

    fn gain(&self, [low, mean, high]: [f64; 3]) -> Gain {
        let seconds = |value| Quantity::new(value, Unit::Seconds);
        let ratio = |share| Quantity::new(self.wall / self.without(share), Unit::Ratio);
        let factor = Factor::Interval(Interval { low: ratio(low), point: ratio(mean), high: ratio(high) });
        let change = Some([seconds(self.wall), seconds(self.without(mean))]);
        Gain { of: "the suite".to_owned(), factor, basis: Basis::Predicted, change }
    }

    pub(crate) fn layer(&self) -> Layer {
        let [_, share, _] = self.share();
        let wall = Quantity::new(self.wall, Unit::Seconds);
        let failed = match (self.status.success(), self.status.code(), self.status.signal()) {
            (true, ..) => String::new(),
            (_, Some(code), _) => format!("; it failed with exit code {code}"),
            (_, _, signal) => format!("; it was ended by signal {}", signal.unwrap_or(0)),
        };
        let verdict = format!("{wall}, {:.0} % of it waiting for syncs{failed}.", share * 100.0);
        let mut layer = Layer::new("Suite", verdict);
        layer.add_fact("clients at once", Quantity::new(self.waits.width(), Unit::Count));
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let active: f64 = self.waits.shares(1).first().map_or(0.0, |(active, _)| *active);
        layer.add_fact("server at work", percent(active));
        layer.add_fact("processor time", Quantity::new(self.busy, Unit::Seconds));
        layer.add_fact("waited for processors", Quantity::new(self.delayed, Unit::Seconds));
        let events = self.waits.events();
        let events: Vec<_> =
            events.iter().take(3).map(|(event, share)| format!("{event} {}", percent(*share))).collect();
        layer.add_fact("waits", Some(events.join(", ")).filter(|events| !events.is_empty()));
        layer.add_fact("looks", Quantity::new(crate::device::as_f64(self.waits.looks() as u64), Unit::Count));
        layer.add_fact("last line", self.last_words.clone().filter(|_| !self.status.success()));
        layer
    }

    /// What would help this suite; `ram` says whether RAM is quicker than the disk with nothing flushed.
    pub(crate) fn findings(&self, ram: bool) -> Vec<Finding> {
        let share = self.share();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut findings = Vec::new();
        let mut add = |name: &str, evidence: String, gain, remedy: &str| {
            findings.push(Finding { name: name.to_owned(), evidence, gain, remedy: remedy.to_owned() });
        };
        if share[1] < WORTH {
            let active: f64 = self.waits.shares(1).first().map_or(0.0, |(active, _)| *active);
            let evidence = format!(
                "{} of the time of its clients goes into syncs; the server is at work for {}, and {:.1} of its {:.1} s \
                 processors were needed.",
                percent(share[1]),
                percent(active),
                self.busy.min(self.wall),
                self.wall
            );
            add(
                "The suite does not wait for the disk",
                evidence,
                None,
                "Neither settings nor RAM will help; \"pgfresh run --profile -- COMMAND\" tells where its time goes.",
            );
            return findings;
        }
        let bound =
            self.busy / crate::device::as_f64(crate::machine::cores() as u64) >= self.without(share[1]);
        let limit = if bound { " Then the processors are the limit." } else { "" };
        let little = if ram { "" } else { " RAM would add little to that." };
        add(
            "The suite waits for the disk",
            format!("{} of the time of its clients goes into syncs.{limit}", percent(share[1])),
            Some(self.gain(share)),
            &format!("Run it on a server that flushes nothing: \"pgfresh run -- COMMAND\".{little}"),
        );
        let immediate = self.event("datafileimmediatesync");
        if immediate >= WORTH && self.major <= 16 {
            add(
                "TRUNCATE syncs every new file at once",
                format!("{} of the time; PostgreSQL 17 leaves it to the checkpoint.", percent(immediate)),
                Some(self.gain([immediate; 3])),
                "Clean up by DELETE or rollback, or take a fresh database for each test as \"pgfresh run\" gives it.",
            );
        }
        let checkpoints = self.event("checkpoint");
        if checkpoints >= WORTH {
            add(
                "CREATE and DROP DATABASE wait for checkpoints",
                format!("{} of the time.", percent(checkpoints)),
                Some(self.gain([checkpoints; 3])),
                "Lease databases from \"pgfresh run\" by any name, or STRATEGY wal_log (15 and newer).",
            );
        }
        findings
    }

    /// The share of the clients' time in events whose names begin like that.
    fn event(&self, prefix: &str) -> f64 {
        let events = self.waits.events();
        events
            .iter()
            .filter(|(event, _)| event.to_ascii_lowercase().starts_with(prefix))
            .map(|(_, share)| share)
            .sum()
    }
}
