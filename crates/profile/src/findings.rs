//! Derives findings from an attribution. A finding is a problem that takes up much of the time, with a remedy for it.

mod prediction;

use report::{Factor, Finding, Gain, Interval, as_f64};

use sys::Shortage;

use self::prediction::{MODEL_ERROR, mark_uncertain};
use crate::attribution::Attribution;
use crate::circumstances::{Circumstances, percent, seconds};
use crate::gateway_times::GatewayTimes;
use crate::ranking::rank;
use crate::recording::Recording;
use crate::time::Time;
use crate::wait::Cause;
use pgwire::StatementKind;
use server::Major;

/// Minimum fraction of the whole time for a problem to become a finding.
pub(crate) const MIN_SHARE: f64 = 0.1;
/// Minimum fraction of the whole time that the server must be at work. If the fraction is smaller, the database can't
/// be the problem.
const MIN_DATABASE_SHARE: f64 = 0.25;

/// The data that findings are derived from.
pub(crate) struct Analysis<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) attribution: &'a Attribution,
    pub(crate) circumstances: &'a Circumstances,
}

impl Analysis<'_> {
    /// Returns all findings, largest gain first.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = [
            self.clean_up(),
            self.syncs(),
            self.new_files(),
            self.migrations(),
            self.databases(),
            self.sessions(),
            self.linger(),
            self.locks(),
            self.clients(),
        ]
        .into_iter()
        .flatten()
        .collect();
        if findings.is_empty() {
            findings.push(self.no_problem());
        }
        if let Some(shortage) = self.shortage().filter(Shortage::is_severe) {
            for finding in &mut findings {
                mark_uncertain(finding, &shortage);
            }
        }
        rank(&mut findings);
        findings
    }

    pub(crate) fn is_significant(&self, time: Time) -> bool {
        self.attribution.share(time.saved) >= MIN_SHARE
    }

    pub(crate) fn share(&self, time: Time) -> String {
        percent(self.attribution.share(time.saved))
    }

    pub(crate) fn has_clean_up(&self) -> bool {
        self.is_significant(self.attribution.clean_up.time)
    }

    fn clean_up(&self) -> Option<Finding> {
        if !self.has_clean_up() {
            return None;
        }
        let spent = self.attribution.clean_up;
        let kinds = |kind| self.attribution.kinds.get(&kind).copied().unwrap_or_default().sessions;
        let truncates = kinds(StatementKind::Truncate) >= kinds(StatementKind::Delete);
        let each = spent.each();
        let mut evidence = format!(
            "{} of the time goes into {}{:.0} runs of it, {} each with its commit.",
            self.share(spent.time),
            if self.attribution.exact { "" } else { "about " },
            spent.runs,
            seconds(each)
        );
        let fresh = self.circumstances.fresh_database;
        if let Some(fresh) = fresh {
            evidence = format!("{evidence} A new database takes {} here.", seconds(fresh));
        }
        // Instead, the same number of sessions would get new databases concurrently.
        let instead = Time { sessions: fresh.unwrap_or(0.0) * spent.runs, ..Time::default() };
        let saved = spent.time.saved - instead.with_savings_of(spent.time, self.attribution.width).saved;
        let what = if truncates { "TRUNCATE" } else { "DELETE" };
        let remedy = if saved > 0.0 {
            "Use a fresh database for each test instead of emptying a database: under \"pgfresh run\", connect each test to its \
             own database name, or reset the database."
        } else {
            "Empty only the tables that a test has written, or end the test with a rollback."
        };
        Some(Finding {
            name: format!("Tests clean up by {what}"),
            evidence,
            gain: (saved > 0.0).then(|| self.gain(saved)),
            remedy: remedy.to_owned(),
        })
    }

    fn syncs(&self) -> Option<Finding> {
        let time = self.attribution.syncing;
        if !self.is_significant(time) {
            return None;
        }
        let causes = Attribution::ranked(&self.attribution.causes);
        let parts: Vec<String> = causes
            .into_iter()
            .filter(|(cause, time)| cause.is_sync() && self.attribution.share(time.saved) >= 0.01)
            .map(|(cause, time)| format!("{cause} {}", self.share(time)))
            .collect();
        let remedy = if self.circumstances.is_own_server {
            "Let the server flush nothing: \"--preset fast\", which is the default."
        } else {
            "Run the suite on a server that flushes nothing: \"pgfresh run -- COMMAND\"."
        };
        // Although the checkpointer flushes many files, a session that waits for the checkpoint finds cold
        // caches only once.
        let checkpoints = self.attribution.causes.get(&Cause::Checkpoint).map_or(0.0, |time| time.saved);
        let saved = self.saved_with_waits((time.saved - checkpoints).max(0.0), checkpoints);
        let after = self.duration_without(saved);
        let [longer, shorter] = MODEL_ERROR.map(|error| self.attribution.syncing_error.hypot(error * after));
        let ends = [after + longer, after, (after - shorter).max(after / 2.0)];
        let [low, point, high] = ends.map(|after| self.times_as_fast(after));
        let gain = Gain { factor: Factor::Interval(Interval { low, point, high }), ..self.gain(saved) };
        Some(Finding {
            name: "The server waits for the disk".to_owned(),
            evidence: format!("{} of the time goes into syncs ({}).", self.share(time), parts.join(", ")),
            gain: Some(gain),
            remedy: remedy.to_owned(),
        })
    }

    fn new_files(&self) -> Option<Finding> {
        let time = self.attribution.new_files;
        (self.is_significant(time) && Major(self.recording.major).flushes_new_files()).then(|| Finding {
            name: "TRUNCATE and CREATE INDEX flush each new file at once".to_owned(),
            evidence: format!(
                "{} of the time goes into that; PostgreSQL 17 leaves it to the checkpoint.",
                self.share(time)
            ),
            gain: Some(self.gain(self.saved_with_waits(time.saved, 0.0))),
            remedy: "Clean up by DELETE or rollback, or use a fresh database for each test, as \"pgfresh \
            run\" provides."
                .to_owned(),
        })
    }

    fn migrations(&self) -> Option<Finding> {
        let time = self.attribution.kinds.get(&StatementKind::Ddl).copied()?;
        self.is_significant(time).then(|| Finding {
            name: "Tests create the schema".to_owned(),
            evidence: format!("{} of the time goes into CREATE, ALTER and DROP.", self.share(time)),
            gain: Some(self.gain(time.saved)),
            remedy: "Build the schema once, as a template: \"setup\" and \"inputs\" in pgfresh.toml."
                .to_owned(),
        })
    }

    pub(crate) fn waiting_for_sessions(&self, spent: f64) -> Time {
        let time = Time { wall: spent, sessions: spent, ..Time::default() };
        time.with_savings_of(Time::default(), self.attribution.width)
    }

    /// Returns the number of new sessions, and how many seconds clients waited for them.
    pub(crate) fn connecting(&self) -> Option<(f64, f64)> {
        let connections = self.recording.exact.as_ref().map(|exact| exact.connected);
        connections.map(|(count, spent)| (as_f64(count), spent)).or_else(|| {
            // pgfresh measures the cost of a session with sessions after the recording, so these sessions don't count.
            // Old servers count sessions late, so their count includes the sampling session.
            let ours = if Major(self.recording.major).counts_sessions_at_once() { 0.0 } else { 1.0 };
            let count = (self.recording.counters.sessions? - ours).max(0.0);
            Some((count, count * self.recording.session_cost?))
        })
    }

    fn locks(&self) -> Option<Finding> {
        let time = self.attribution.causes.get(&Cause::Lock).copied()?;
        self.is_significant(time).then(|| Finding {
            name: "Sessions wait for each other's locks".to_owned(),
            evidence: format!("{} of the time goes into waiting for locks.", self.share(time)),
            gain: None,
            remedy: "Give each worker, or each test, a database of its own.".to_owned(),
        })
    }

    fn clients(&self) -> Option<Finding> {
        let time = self.attribution.causes.get(&Cause::Client).copied()?;
        self.is_significant(time).then(|| Finding {
            name: "The server waits for its clients during statements".to_owned(),
            evidence: format!(
                "{} of the time goes into that: COPY, or results that are read slowly.",
                self.share(time)
            ),
            gain: None,
            remedy: "Make the client send and read larger batches.".to_owned(),
        })
    }

    /// Returns the finding for a suite that none of pgfresh's remedies would speed up.
    fn no_problem(&self) -> Finding {
        let Attribution { wall, database, .. } = self.attribution;
        let share = self.attribution.share(database.wall);
        let slight = share < MIN_DATABASE_SHARE;
        let cpu = self.recording.machine.map(|machine| machine.suite_cpu).filter(|cpu| *cpu > 0.0);
        let cpu = cpu.map_or_else(String::new, |cpu| {
            format!(" The suite itself used processors for {}.", seconds(cpu))
        });
        if let Some((name, remedy)) = self.no_client() {
            let evidence = format!("The server had nothing to do.{cpu}");
            return Finding { name: name.to_owned(), evidence, gain: None, remedy: remedy.to_owned() };
        }
        let [now, outside] = [*wall, self.attribution.idle_seconds()].map(seconds);
        let gain = if now == outside {
            String::new()
        } else {
            format!("; even if that took no time at all, {outside} of {now} would remain")
        };
        let unfinished = self.recording.exact.as_ref().and_then(GatewayTimes::unfinished_note);
        let unfinished = unfinished.map_or_else(String::new, |note| format!(" {note}"));
        let evidence =
            format!("The server is at work for {} of the time{gain}.{unfinished}{cpu}", percent(share));
        let (name, remedy) = if slight {
            (
                "The database is not the problem",
                "Look at the suite itself: what it computes, waits for, or could do at the same time.",
            )
        } else {
            (
                "The database is at work, and waits for nothing",
                "Look at the statements that take longest, or run tests at the same time.",
            )
        };
        Finding { name: name.to_owned(), evidence, gain: None, remedy: remedy.to_owned() }
    }

    /// Returns the name and the remedy of the finding for a run where no client seems to have connected. Returns
    /// `None` if a client did. Samples can miss short sessions, but most major versions also count sessions.
    fn no_client(&self) -> Option<(&'static str, &'static str)> {
        let Circumstances { is_own_server: ours, ref command, .. } = *self.circumstances;
        let remedy = match command {
            _ if ours => {
                "If tests should have used it: DATABASE_URL and the PG variables contain its address."
            }
            Some(_) => {
                "Tests with a pgfresh client start a server of their own: use \"pgfresh run --profile\" or \
                \"--compare\". For other tests, check that the command uses this server."
            }
            None => {
                "Check that the tests use this server. Tests with a pgfresh client start their own: use \"pgfresh \
                run --profile\"."
            }
        };
        let begun = self.connecting().map(|(count, _)| count).filter(|count| *count > 0.0);
        match &self.recording.exact {
            Some(exact) => (begun.is_none() && !exact.incomplete)
                .then_some(("No client connected to the database", remedy)),
            None => (begun.is_none() && self.recording.sessions.iter().next().is_none())
                .then_some(("No client connected to this server", remedy)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use report::{Earlier, Report};

    use super::prediction::WARM_CACHE_GAIN;
    use super::*;
    use crate::attribution::tests::recording;
    use crate::interner::Interner;
    use crate::machine::MachineUsage;

    /// Samples with a single session each.
    const WORDS: [&str; 6] = [
        "a:COMMIT:sync",
        "b:TRUNCATE t:cpu",
        "c:SELECT 1:lock",
        "d:CREATE TABLE t ():sync",
        "e:CREATE DATABASE d:checkpoint",
        "f:DELETE FROM t:cpu",
    ];

    pub(crate) fn found(recording: &Recording, circumstances: &Circumstances) -> Vec<Finding> {
        let attribution = Attribution::of(recording);
        Analysis { recording, attribution: &attribution, circumstances }.findings()
    }

    /// Returns `of` samples. The first `count` contain `first`, and the others contain `second`.
    pub(crate) fn samples<'a>(
        first: &'a [&'a str],
        count: usize,
        second: &'a [&'a str],
        of: usize,
    ) -> Vec<&'a [&'a str]> {
        (0..of).map(|sample| if sample < count { first } else { second }).collect()
    }

    pub(crate) fn after(finding: &Finding) -> f64 {
        finding.gain.as_ref().and_then(|gain| gain.change).map_or(f64::NAN, |[_, after]| after.value)
    }

    /// Returns the part of `wall` that remains without waits totaling `waited`. The remaining work becomes shorter by
    /// `cost`, a commit's additional cost.
    fn remaining(wall: f64, waited: f64, cost: f64) -> f64 {
        (wall - waited - cost) * (1.0 - WARM_CACHE_GAIN * waited / wall)
    }

    #[test]
    fn saved_time_is_divided_among_concurrent_sessions() {
        let serial = recording(&samples(&["a:COMMIT:sync"], 50, &[], 100));
        let findings = found(&serial, &Circumstances::default());
        assert_eq!(findings[0].name, "The server waits for the disk");
        assert!((after(&findings[0]) - remaining(1.0, 0.5, 0.0)).abs() < 1e-9, "{findings:?}");
        // Two sessions are at work, and one of them waits half of the time. Without this wait, the suite would finish
        // a quarter of the time sooner.
        let parallel = recording(&samples(
            &["a:COMMIT:sync", "b:SELECT 1:cpu"],
            50,
            &["a:SELECT 1:cpu", "b:SELECT 1:cpu"],
            100,
        ));
        let after = after(&found(&parallel, &Circumstances::default())[0]);
        assert!((after - remaining(1.0, 0.25, 0.0)).abs() < 1e-9, "{after}");
    }

    #[test]
    fn waits_also_slow_the_following_work() {
        let waiting = recording(&samples(&["a:COMMIT:sync"], 50, &["a:SELECT 1:cpu"], 60));
        let after_at = |cost| {
            let circumstances = Circumstances { waiting_cost: cost, ..Circumstances::default() };
            after(&found(&waiting, &circumstances)[0])
        };
        assert!((after_at(None) - remaining(0.6, 0.5, 0.0)).abs() < 1e-9);
        assert!((after_at(Some(1.1)) - remaining(0.6, 0.5, 0.05)).abs() < 1e-9);
        // A disk that seems faster with a flush than without a flush is just noise, so there is no additional gain.
        assert!((after_at(Some(0.7)) - remaining(0.6, 0.5, 0.0)).abs() < 1e-9);
        // A remedy can't save more time than the suite takes.
        assert!(after_at(Some(100.0)).abs() < 1e-9);
        // Waiting for a checkpoint counts as a single wait, even if the server flushes many files meanwhile.
        let checkpoint =
            recording(&samples(&["a:CREATE DATABASE d:checkpoint"], 50, &["a:SELECT 1:cpu"], 60));
        let circumstances = Circumstances { waiting_cost: Some(1.1), ..Circumstances::default() };
        let findings = found(&checkpoint, &circumstances);
        let finding = findings.iter().find(|one| one.name == "The server waits for the disk").unwrap();
        assert!((after(finding) - 0.1).abs() < 1e-9, "{finding:?}");
    }

    #[test]
    fn gain_is_uncertain_under_high_cpu_pressure() {
        let mut waiting = recording(&samples(&["a:COMMIT:sync"], 50, &[], 100));
        for (waited, uncertain) in [(0.1, false), (0.9, true)] {
            let cpu_pressure = Some(waited * waiting.seconds);
            waiting.machine = Some(MachineUsage { processors: 2.0, cpu_pressure, ..MachineUsage::default() });
            let finding = found(&waiting, &Circumstances::default()).remove(0);
            let gain = finding.gain.unwrap();
            assert_eq!(matches!(gain.factor, Factor::Point(_)), uncertain, "{gain}");
            assert_eq!(finding.evidence.contains("uncertain"), uncertain, "{}", finding.evidence);
        }
    }

    #[test]
    fn processors_bound_every_prediction() {
        let mut busy = recording(&samples(&["a:COMMIT:sync", "b:COMMIT:sync"], 50, &[], 100));
        busy.machine = Some(MachineUsage {
            processors: 2.0,
            suite_cpu: 1.2,
            backend_cpu: 0.2,
            ..MachineUsage::default()
        });
        assert!((after(&found(&busy, &Circumstances::default())[0]) - 0.7).abs() < 1e-9);
    }

    #[test]
    fn clean_up_gain_subtracts_fresh_database_cost() {
        let cleaning = recording(&samples(&["a:TRUNCATE t:cpu"], 60, &[], 100));
        let whole = found(&cleaning, &Circumstances::default());
        assert!((after(&whole[0]) - 0.4).abs() < 1e-9, "{whole:?}");
        // The only run takes 0.6 s. A fresh database takes 0.1 s instead.
        let fresh = Circumstances { fresh_database: Some(0.1), ..Circumstances::default() };
        let findings = found(&cleaning, &fresh);
        assert_eq!(findings[0].name, "Tests clean up by TRUNCATE");
        assert!((after(&findings[0]) - 0.5).abs() < 0.05, "{findings:?}");
        // If fresh databases cost more than the work they replace, they aren't a remedy.
        let dear = Circumstances { fresh_database: Some(5.0), ..Circumstances::default() };
        let findings = found(&cleaning, &dear);
        assert!(findings[0].gain.is_none() && findings[0].remedy.contains("rollback"), "{findings:?}");
    }

    #[test]
    fn each_problem_has_its_own_finding() {
        for (word, expected) in [
            ("a:CREATE TABLE t ():cpu", "Tests create the schema"),
            ("a:CREATE DATABASE d:cpu", "Tests create and drop databases with SQL"),
            ("a:DELETE FROM t:cpu", "Tests clean up by DELETE"),
            ("a:SELECT 1:lock", "Sessions wait for each other's locks"),
            ("a:SELECT 1:cpu", "The database is at work, and waits for nothing"),
        ] {
            let names = found(&recording(&samples(&[word], 30, &[], 100)), &Circumstances::default());
            assert_eq!(names.first().map(|finding| finding.name.as_str()), Some(expected), "{word}");
        }
        let (mut exact, mut idle) =
            (GatewayTimes::new(Instant::now()), recording(&samples(&[], 0, &[], 100)));
        let mut statements = Interner::default();
        for _ in 0..100 {
            exact.session_started(7, Duration::from_millis(5), &"app".into(), &"d".into(), 7);
            exact.session_ended(7, Instant::now(), &mut statements);
        }
        idle.exact = Some(exact);
        assert_eq!(found(&idle, &Circumstances::default())[0].name, "Tests open many sessions");
        let mut short = recording(&samples(&[], 0, &[], 1));
        (short.counters.sessions, short.session_cost) = (Some(3.0), Some(1.0));
        assert_eq!(found(&short, &Circumstances::default())[0].name, "The database is not the problem");
    }

    #[test]
    fn small_shares_report_database_is_not_the_problem() {
        for word in ["a:TRUNCATE t:cpu", "a:COMMIT:sync", "a:CREATE TABLE t ():cpu", "a:SELECT 1:lock"] {
            let findings = found(&recording(&samples(&[word], 9, &[], 100)), &Circumstances::default());
            assert_eq!(findings.len(), 1, "{word}");
            assert_eq!(findings[0].name, "The database is not the problem", "{word}");
        }
    }

    /// Sessions that start one after another are at work together only for a while, so a prediction would save less.
    #[test]
    fn remaining_time_is_the_time_outside() {
        let [one, two]: [&[&str]; 2] = [&["a:SELECT 1:cpu"], &["a:SELECT 1:cpu", "b:SELECT 1:cpu"]];
        let samples = [vec![one; 20], vec![two; 70], vec![&[]; 10]].concat();
        let finding = found(&recording(&samples), &Circumstances::default()).remove(0);
        let expected =
            "at work for 90 % of the time; even if that took no time at all, 100 ms of 1.00 s would remain.";
        assert!(finding.evidence.contains(expected), "{finding:?}");
    }

    #[test]
    fn unused_server_yields_no_client_finding() {
        let mut idle = recording(&samples(&[], 0, &[], 100));
        let name = |recording: &Recording| found(recording, &Circumstances::default())[0].name.clone();
        assert_eq!(name(&idle), "No client connected to this server");
        (idle.counters.sessions, idle.session_cost) = (Some(2.0), Some(0.001));
        assert_eq!(name(&idle), "The database is not the problem", "samples do not show everything");
        idle.exact = Some(GatewayTimes::new(Instant::now()));
        assert_eq!(name(&idle), "No client connected to the database");
        let text = format!("{:?}", found(&idle, &Circumstances::default()));
        assert!(!text.contains("would remain"), "{text}");
    }

    proptest! {
        #[test]
        fn report_of_any_findings_can_be_read_back(
            kinds in prop::collection::vec(0_usize..WORDS.len(), 1..4),
            count in 0_usize..=20,
            cost in prop::option::of(0.0..200.0),
            suite_cpu in prop::option::of(0.0..0.3),
        ) {
            let words: Vec<&str> = kinds.iter().map(|kind| WORDS[*kind]).collect();
            let mut recording = recording(&samples(&words, count, &[], 20));
            recording.machine = suite_cpu.map(|suite_cpu| {
                MachineUsage { processors: 2.0, suite_cpu, ..MachineUsage::default() }
            });
            let circumstances = Circumstances { waiting_cost: cost, ..Circumstances::default() };
            let findings = found(&recording, &circumstances);
            let mut report = Report::new("");
            report.add_findings(findings.clone());
            let read = Earlier::read(&report.to_json().to_string());
            prop_assert!(read.is_ok(), "{:?} {:?}", read, findings);
            let text = report.to_string();
            prop_assert!(!text.contains("inf") && !text.contains("NaN"), "{}", text);
        }
    }
}
