//! Measures the cost of a commit.
//!
//! Suites on a disk are often slow because each commit waits for a flush. This module measures these waits with
//! single-row inserts on pgfresh's own servers, with different settings and numbers of clients.
//!
//! A gain is the median of the ratios from all rounds.

use std::thread;
use std::time::{Duration, Instant};

use report::{
    Basis, Cell, Contender, Factor, Finding, Gain, Layer, Progress, Quantity, Rounds, Sample, Table, Tile,
    Unit, as_f64,
};
use server::{AdminConnection, Server, SessionError};
use sys::{ProcessorWatch, Roots, Shortage};
use template::ProvisionError;

use crate::fixture::{Fixture, Setup};
use crate::latencies::Latencies;
use crate::proof::{MIN_WORTHWHILE_GAIN, Proof};

/// One warm-up round, followed by 12 rounds that count. With 12 rounds, a median's interval excludes the two smallest
/// and the two largest values.
const ROUNDS: Rounds = Rounds::new(1, 12);
/// Minimum gain of RAM over a disk with the same settings. Anything smaller isn't worth mentioning.
const MIN_RAM_GAIN: f64 = 1.1;

/// A kind of commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitKind {
    Durable,
    Asynchronous,
    Fast,
    FastInRam,
    /// Durable commits by this many concurrent clients.
    Clients(usize),
}

impl CommitKind {
    fn setup(self) -> Setup {
        match self {
            Self::Durable | Self::Asynchronous | Self::Clients(_) => Setup::Durable,
            Self::Fast => Setup::Fast,
            Self::FastInRam => Setup::FastInRam,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Durable => "durable".to_owned(),
            Self::Asynchronous => "synchronous_commit=off".to_owned(),
            Self::Fast => "fast".to_owned(),
            Self::FastInRam => "fast, in RAM".to_owned(),
            Self::Clients(count) => format!("durable, {count} clients"),
        }
    }
}

/// The measurements for one kind of commit.
#[derive(Debug, Clone)]
struct Measured {
    kind: CommitKind,
    /// Commits per second in each round.
    rates: Sample,
    /// Median duration of a commit in each round, in seconds. Unlike the rate, it isn't affected if something disturbs
    /// only a few commits.
    typical: Sample,
    /// Duration of every single commit, in seconds.
    latencies: Latencies,
}

/// The measurements for all kinds of commits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Commits {
    measured: Vec<Measured>,
    /// Why pgfresh can't measure commits in RAM. `None` if it can.
    why_no_ram: Option<String>,
    /// How severe the CPU shortage was during the measurement.
    shortage: Shortage,
}

impl Measured {
    fn new(kind: CommitKind) -> Self {
        let name = kind.name();
        let rates = Sample::new(format!("commits per second, {name}"), Unit::PerSecond);
        let typical = Sample::new(format!("a commit in each round, {name}"), Unit::Seconds);
        Self { kind, rates, typical, latencies: Latencies::new(format!("a commit, {name}")) }
    }

    /// Adds the durations and the rate of one round.
    fn add(&mut self, times: &[f64], rate: f64) {
        let mut round = Latencies::new("");
        for time in times {
            round.add(*time);
            self.latencies.add(*time);
        }
        if let Some(median) = round.p50() {
            self.typical.push(median.value).expect("a duration is finite");
            self.rates.push(rate).expect("a rate is finite");
        }
    }
}

impl Commits {
    /// Measures for `length`, or until the user cancels. Starting and stopping the servers takes additional time.
    ///
    /// # Errors
    /// Returns an error if a server doesn't start or if it disappears.
    pub(crate) fn measure(
        fixture: &Fixture<'_>,
        length: Duration,
        roots: &Roots,
        progress: &dyn Progress,
    ) -> Result<Self, ProvisionError> {
        let mut kinds = vec![CommitKind::Durable, CommitKind::Asynchronous, CommitKind::Fast];
        let why_no_ram = fixture.why_no_ram();
        if why_no_ram.is_none() && !fixture.is_ram() {
            kinds.push(CommitKind::FastInRam);
        }
        kinds.extend([CommitKind::Clients(2), CommitKind::Clients(4)]);
        let sql = ["CREATE TABLE doctor (value integer)", "CHECKPOINT"];
        let servers = fixture.start_each(kinds.iter().map(|kind| kind.setup()), &sql, progress)?;
        let turn = ROUNDS.turn_within(length, kinds.len());
        let (mut measured, mut contenders) = (Vec::new(), Vec::new());
        for kind in kinds {
            let Some((_, server)) = servers.iter().find(|(setup, _)| *setup == kind.setup()) else {
                continue;
            };
            let mut sessions = connect(kind, server)?;
            let name = kind.name();
            measured.push(Measured::new(kind));
            contenders.push(Contender::new(name, move || commit(&mut sessions, turn)));
        }
        let watch = ProcessorWatch::start(roots);
        ROUNDS.run(&mut contenders, progress, |round| {
            for (measured, (times, rate)) in measured.iter_mut().zip(round) {
                measured.add(&times, rate);
            }
        })?;
        Ok(Self { measured, why_no_ram, shortage: watch.shortage() })
    }

    fn of(&self, kind: CommitKind) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.kind == kind && !measured.rates.is_empty())
    }

    /// Returns whether the measurements prove that `kind` gains over `base`. Only gains of at least `least` count.
    fn proof(&self, kind: CommitKind, base: CommitKind, least: f64) -> Option<Proof> {
        Some(Proof::of(self.gain(kind, base)?, least, &self.shortage))
    }

    /// Returns how many times as fast as `base` commits of `kind` are. For several clients, this is the ratio of their
    /// rates.
    pub(crate) fn gain(&self, kind: CommitKind, base: CommitKind) -> Option<Factor> {
        let (kind, base) = (self.of(kind)?, self.of(base)?);
        let ratios = match kind.kind {
            CommitKind::Clients(_) => kind.rates.ratio_to(&base.rates),
            _ => base.typical.ratio_to(&kind.typical),
        };
        Factor::of(&ratios.ok()?)
    }

    /// Returns how much longer a commit takes with a flush than without a flush, in seconds. This is the difference
    /// between two medians. Returns `None` if either is missing.
    pub(crate) fn flush_cost(&self) -> Option<f64> {
        Some(self.time(CommitKind::Durable)?.value - self.time(CommitKind::Fast)?.value)
    }

    /// Returns the median duration of this kind of commit.
    fn time(&self, kind: CommitKind) -> Option<report::Quantity> {
        self.of(kind)?.latencies.p50()
    }

    /// Yields all measured values, for the machine-readable formats.
    pub(crate) fn samples(&self) -> impl Iterator<Item = &Sample> {
        let all = self.measured.iter().flat_map(|measured| [&measured.rates, measured.latencies.sample()]);
        all.filter(|sample| !sample.is_empty())
    }

    /// Returns the key figures for the top of the page, if all of them were measured.
    pub(crate) fn tiles(&self) -> Vec<Tile> {
        let gain = self.gain(CommitKind::Fast, CommitKind::Durable);
        let (Some(durable), Some(fast), Some(gain)) =
            (self.time(CommitKind::Durable), self.time(CommitKind::Fast), gain)
        else {
            return Vec::new();
        };
        let factor = Quantity::new(gain.point(), Unit::Ratio);
        vec![
            Tile::new("Durable commit", durable, "p50, waits for the disk"),
            Tile::new("Commit, nothing flushed", fast, "p50, preset fast"),
            Tile::new("Gain of a commit", factor, gain.to_string()),
        ]
    }

    pub(crate) fn layer(&self) -> Layer {
        let (Some(durable), Some(fast)) = (self.time(CommitKind::Durable), self.time(CommitKind::Fast))
        else {
            return Layer::new("Commit", "not measured.");
        };
        let ram = match self.proof(CommitKind::FastInRam, CommitKind::Fast, MIN_RAM_GAIN) {
            Some(Proof::Gain(_)) => "; RAM is even faster",
            Some(Proof::NoGain(_)) => "; RAM would add little to that",
            Some(Proof::Unknown(..)) => "; whether RAM would add to that is not known",
            None => "",
        };
        let verdict = format!("{durable} durable, {fast} with nothing flushed{ram}.");
        let mut layer = Layer::new("Commit", verdict);
        for Measured { kind, rates, .. } in &self.measured {
            layer.add_fact(kind.name(), rates.median());
        }
        layer.add_fact("no RAM", self.why_no_ram.clone());
        layer
    }

    pub(crate) fn table(&self) -> Table {
        let columns = ["commits", "p50", "p99", "gain"];
        let mut table = Table::numbers("Commits of one row", "settings", columns);
        for Measured { kind, rates, latencies, .. } in &self.measured {
            let gain = self.gain(*kind, CommitKind::Durable).filter(|_| *kind != CommitKind::Durable);
            let name = Cell::from(kind.name());
            table.add_row([
                name,
                rates.median().into(),
                latencies.p50().into(),
                latencies.p99().into(),
                gain.map(|gain| gain.to_string()).into(),
            ]);
        }
        table
    }

    /// Returns the findings for an examination without a suite.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let gain = |factor, before, after| {
            let change = self.time(before).zip(self.time(after)).map(|(before, after)| [before, after]);
            Some(Gain { of: "a commit".to_owned(), factor, basis: Basis::Measured, change })
        };
        let mut findings = Vec::new();
        let mut add = |name: &str, evidence: &str, gain, remedy| {
            findings.push(Finding { name: name.to_owned(), evidence: evidence.to_owned(), gain, remedy });
        };
        match self.proof(CommitKind::Fast, CommitKind::Durable, MIN_WORTHWHILE_GAIN) {
            Some(Proof::Gain(factor)) => {
                let asynchronous =
                    self.proof(CommitKind::Asynchronous, CommitKind::Durable, MIN_WORTHWHILE_GAIN);
                let otherwise = asynchronous.and_then(Proof::gain).map_or(String::new(), |gain| {
                    format!(
                        " If you are not allowed to change these settings: ALTER DATABASE name SET synchronous_commit = off ({gain}; but \
                         TRUNCATE, DROP and CREATE DATABASE wait all the same)."
                    )
                });
                add(
                    "Commits wait for the disk",
                    "A suite gains less, because it also does other work: --suite 'COMMAND' predicts the gain of \
                    yours.",
                    gain(factor, CommitKind::Durable, CommitKind::Fast),
                    format!(
                        "Run the tests on a server that flushes nothing: \"pgfresh run -- COMMAND\", or fsync=off, \
                         synchronous_commit=off and full_page_writes=off on one whose data is disposable.{otherwise}"
                    ),
                );
            }
            Some(Proof::NoGain(factor)) => {
                let remedy = "Look at what the suite does instead: \"pgfresh run --profile -- COMMAND\".";
                let evidence = format!(
                    "With nothing flushed, commits are {factor} as fast: tests hardly wait for this disk."
                );
                add("Other settings would gain nothing here", &evidence, None, remedy.to_owned());
            }
            Some(Proof::Unknown(factor, why)) => {
                let [durable, fast] = [CommitKind::Durable, CommitKind::Fast].map(|kind| self.time(kind));
                let likely = durable.zip(fast).map_or(String::new(), |(durable, fast)| {
                    let likely =
                        if durable.value >= MIN_WORTHWHILE_GAIN * fast.value { "likely" } else { "unlikely" };
                    format!(
                        "The median commit took {durable} when durable and {fast} with nothing flushed, so \
                         a wait for the disk is {likely}. "
                    )
                });
                let evidence = format!(
                    "{likely}It is not proven (with nothing flushed, commits are {factor} as fast): {why}."
                );
                let remedy = "Run \"pgfresh doctor\" again when the machine is quiet.";
                add("Whether commits wait for the disk is not known", &evidence, None, remedy.to_owned());
            }
            None => {}
        }
        findings.extend(self.finding_on_ram());
        findings
    }

    /// Returns the finding about RAM, which examinations with a suite also contain.
    pub(crate) fn finding_on_ram(&self) -> Option<Finding> {
        let factor = self.proof(CommitKind::FastInRam, CommitKind::Fast, MIN_RAM_GAIN)?.gain()?;
        let change = self
            .time(CommitKind::Fast)
            .zip(self.time(CommitKind::FastInRam))
            .map(|(before, after)| [before, after]);
        Some(Finding {
            name: "RAM is faster than this disk, even without flushes".to_owned(),
            evidence: "Writing back data that is never read slows down other work.".to_owned(),
            gain: Some(Gain { of: "a commit".to_owned(), factor, basis: Basis::Measured, change }),
            remedy: "Keep the data in RAM: \"pgfresh run --place ram\", or a tmpfs for your own server."
                .to_owned(),
        })
    }
}

/// Opens as many sessions as this kind of commit needs.
fn connect(kind: CommitKind, server: &Server) -> Result<Vec<AdminConnection>, ProvisionError> {
    let count = if let CommitKind::Clients(count) = kind { count } else { 1 };
    let mut sessions = Vec::new();
    for _ in 0..count {
        let mut session = server.session("postgres")?;
        if kind == CommitKind::Asynchronous {
            session.query("SET synchronous_commit = off")?;
        }
        sessions.push(session);
    }
    Ok(sessions)
}

/// Commits in all sessions concurrently, for `length`. Returns each commit's duration in seconds, and the number of
/// commits per second.
fn commit(sessions: &mut [AdminConnection], length: Duration) -> Result<(Vec<f64>, f64), SessionError> {
    let begun = Instant::now();
    let workers = |session| move || commit_in(session, length);
    let times = thread::scope(|scope| {
        let workers: Vec<_> = sessions.iter_mut().map(|session| scope.spawn(workers(session))).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("it does not panic"));
        ended.collect::<Result<Vec<_>, _>>()
    })?;
    let times = times.concat();
    let rate = as_f64(times.len()) / begun.elapsed().as_secs_f64();
    Ok((times, rate))
}

fn commit_in(session: &mut AdminConnection, length: Duration) -> Result<Vec<f64>, SessionError> {
    let mut latencies = Latencies::new("");
    latencies.measure(length, || session.query("INSERT INTO doctor VALUES (1)").map(drop))?;
    Ok(latencies.sample().values().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns measurements with six rounds. Each round has these numbers of commits per second.
    fn commits(rates: &[(CommitKind, f64)]) -> Commits {
        let measured = rates.iter().map(|(kind, rate)| {
            let mut measured = Measured::new(*kind);
            for round in 0..6 {
                let rate = rate * (1.0 + 0.001 * f64::from(round));
                measured.add(&[1.0 / rate], rate);
            }
            measured
        });
        Commits { measured: measured.collect(), ..Commits::default() }
    }

    fn names(commits: &Commits) -> Vec<String> {
        commits.findings().into_iter().map(|finding| finding.name).collect()
    }

    #[test]
    fn slow_disk_is_reported_and_ram_adds_nothing() {
        let slow = [
            (CommitKind::Durable, 85.0),
            (CommitKind::Asynchronous, 390.0),
            (CommitKind::Fast, 2590.0),
            (CommitKind::FastInRam, 2600.0),
        ];
        let commits = commits(&slow);
        assert_eq!(names(&commits), ["Commits wait for the disk"]);
        let gain = commits.findings()[0].gain.clone().unwrap();
        assert!((gain.factor.point() - 30.5).abs() < 0.1, "{gain}");
        let verdict = "11.7 ms durable, 385 µs with nothing flushed; RAM would add little to that.";
        assert_eq!(commits.layer().verdict(), verdict);
        assert!(commits.findings()[0].remedy.contains("SET synchronous_commit = off (4.59 × ["));
    }

    #[test]
    fn absence_of_commit_gain_is_reported() {
        let quick =
            [(CommitKind::Durable, 9500.0), (CommitKind::Asynchronous, 9900.0), (CommitKind::Fast, 10_000.0)];
        assert_eq!(names(&commits(&quick)), ["Other settings would gain nothing here"]);
        assert_eq!(names(&commits(&[])), [""; 0]);
    }

    #[test]
    fn ram_is_recommended_where_it_helps() {
        let uneven =
            [(CommitKind::Durable, 1000.0), (CommitKind::Fast, 2000.0), (CommitKind::FastInRam, 3000.0)];
        assert_eq!(names(&commits(&uneven))[1], "RAM is faster than this disk, even without flushes");
    }

    #[test]
    fn busy_machine_makes_commit_finding_unknown_but_likely() {
        let equal = [CommitKind::Durable, CommitKind::Fast, CommitKind::FastInRam].map(|kind| (kind, 50.0));
        let mut noisy = commits(&equal);
        // The medians differ over all commits, but not within the rounds.
        for Measured { kind, latencies, .. } in &mut noisy.measured {
            *latencies = Latencies::new("");
            latencies.add(if *kind == CommitKind::Durable { 20.7e-3 } else { 105e-6 });
        }
        assert_eq!(names(&noisy), ["Other settings would gain nothing here"]);
        noisy.shortage = Shortage { waited: Some(0.97), stolen: None };
        assert_eq!(names(&noisy), ["Whether commits wait for the disk is not known"]);
        let evidence = &noisy.findings()[0].evidence;
        let begin = "The median commit took 20.7 ms when durable and 105 µs with nothing flushed, so a wait for the disk is likely.";
        assert!(evidence.starts_with(begin), "{evidence}");
        let end = "CPU time was short, some task waited for a processor 97 % of the time.";
        assert!(evidence.ends_with(end), "{evidence}");
        assert!(noisy.layer().verdict().ends_with("whether RAM would add to that is not known."));
        // A gain that is significant despite the noise still leads to a finding.
        let mut slow = commits(&[(CommitKind::Durable, 50.0), (CommitKind::Fast, 5000.0)]);
        slow.shortage = noisy.shortage;
        assert_eq!(names(&slow), ["Commits wait for the disk"]);
    }
}
