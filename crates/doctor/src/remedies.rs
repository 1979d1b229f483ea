//! Tries remedies and measures how much each of them gains.
//!
//! Instead of guessing which remedy helps, this module runs the user's suite with each remedy in turn. Without a
//! suite, it runs a typical test. A gain is the median of the ratios from all rounds.

use std::time::Duration;

use report::{
    Basis, Cell, Contender, Factor, Finding, Gain, PhaseTimes, Progress, Rounds, Sample, Table, Timed,
    mean_cycle,
};
use server::{AdminConnection, SessionError};
use sys::{ProcessorWatch, Roots, Shortage};
use template::ProvisionError;

use crate::fixture::{Fixture, Setup};
use crate::proof::{MIN_WORTHWHILE_GAIN, Proof};
use crate::suite::Suite;

/// The rounds of a trial. With fewer than six, a median has no 95 % interval.
const ROUNDS: Rounds = Rounds::new(0, 6);
/// Number of tables in the typical test, taken from a medium-sized service.
const TABLE_COUNT: usize = 30;
/// Remedies count as equally good if their gain reaches this fraction of the best gain. For example, if the best gain
/// is 10 ×, a gain of 9 × is equally good.
const EQUALLY_GOOD: f64 = 0.9;
/// How long each turn repeats the test, which runs at least once.
const TURN_DURATION: Duration = Duration::from_millis(150);

/// The durations with each remedy. The first entry is without any remedy.
#[derive(Debug)]
pub(crate) struct Remedies {
    what: &'static str,
    tried: Vec<(&'static str, Sample)>,
    /// How severe the CPU shortage was during the measurement.
    shortage: Shortage,
}

/// A remedy's name, and a function that runs one turn with the remedy.
type RemedyTrial<'a> = (&'static str, Box<dyn FnMut() -> Result<PhaseTimes, ProvisionError> + 'a>);

/// How a test cleans up.
#[derive(Debug, Clone, Copy)]
enum CleanUp {
    Truncate,
    Delete,
    Rollback,
}

impl Remedies {
    /// Runs the suite without a remedy and with each one. Each run has a new server.
    pub(crate) fn try_on_suite(
        suite: &Suite<'_>,
        roots: &Roots,
        progress: &dyn Progress,
    ) -> Result<Self, ProvisionError> {
        let mut setups = vec![
            ("as it is", Setup::Durable),
            ("synchronous_commit=off", Setup::Asynchronous),
            ("nothing flushed", Setup::Fast),
        ];
        if !suite.fixture.is_ram() && suite.fixture.why_no_ram().is_none() {
            setups.push(("nothing flushed, in RAM", Setup::FastInRam));
        }
        let mut tries: Vec<RemedyTrial<'_>> = Vec::new();
        for (name, setup) in setups {
            tries.push((name, Box::new(move || suite.time(setup))));
        }
        Self::take_turns("the suite", tries, roots, progress)
    }

    /// Runs a test with five inserts and a cleanup of 30 tables, cleaning up in several ways. The servers keep running
    /// between turns.
    pub(crate) fn try_on_typical_test(
        fixture: &Fixture<'_>,
        roots: &Roots,
        progress: &dyn Progress,
    ) -> Result<Self, ProvisionError> {
        let mut ways = vec![
            ("TRUNCATE", Setup::Durable, CleanUp::Truncate),
            ("DELETE", Setup::Durable, CleanUp::Delete),
            ("rollback", Setup::Durable, CleanUp::Rollback),
            ("TRUNCATE, synchronous_commit=off", Setup::Asynchronous, CleanUp::Truncate),
            ("TRUNCATE, nothing flushed", Setup::Fast, CleanUp::Truncate),
            ("DELETE, nothing flushed", Setup::Fast, CleanUp::Delete),
        ];
        if !fixture.is_ram() && fixture.why_no_ram().is_none() {
            ways.push(("TRUNCATE, nothing flushed, in RAM", Setup::FastInRam, CleanUp::Truncate));
        }
        let servers =
            fixture.start_each(ways.iter().map(|(_, setup, _)| *setup), &[&create_tables()], progress)?;
        let mut tries: Vec<RemedyTrial<'_>> = Vec::new();
        for (name, setup, clean_up) in ways {
            let Some((_, server)) = servers.iter().find(|(other, _)| *other == setup) else { continue };
            let mut session = server.session("postgres")?;
            tries.push((name, Box::new(move || Ok(run_test(&mut session, clean_up)?))));
        }
        Self::take_turns("a test", tries, roots, progress)
    }

    fn take_turns(
        what: &'static str,
        tries: Vec<RemedyTrial<'_>>,
        roots: &Roots,
        progress: &dyn Progress,
    ) -> Result<Self, ProvisionError> {
        let names: Vec<_> = tries.iter().map(|(name, _)| *name).collect();
        let contenders = tries.into_iter().map(|(name, run)| Contender::new(format!("{what}, {name}"), run));
        let watch = ProcessorWatch::start(roots);
        let (timed, end) = ROUNDS.time(&mut contenders.collect::<Vec<_>>(), progress, None);
        end?;
        let totals = timed.iter().map(Timed::total);
        Ok(Self { what, tried: names.into_iter().zip(totals).collect(), shortage: watch.shortage() })
    }

    /// Returns a remedy's gain, or `None` before the first round.
    fn gain(&self, remedy: &Sample) -> Option<Gain> {
        let (_, base) = self.tried.first()?;
        let factor = Factor::of(&base.ratio_to(remedy).ok()?)?;
        let change = base.median().zip(remedy.median()).map(|(before, after)| [before, after]);
        Some(Gain { of: self.what.to_owned(), factor, basis: Basis::Measured, change })
    }

    pub(crate) fn table(&self) -> Table {
        let title = format!("Remedies tried on {}", self.what);
        let mut table = Table::numbers(title, "remedy", ["median", "gain", "rounds"]);
        for (index, (name, sample)) in self.tried.iter().enumerate() {
            let gain = self.gain(sample).filter(|_| index > 0);
            let gain = gain.map(|gain| gain.factor.to_string());
            let rounds = sample.len().to_string();
            table.add_row([Cell::from(*name), sample.median().into(), gain.into(), rounds.into()]);
        }
        table
    }

    pub(crate) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.tried.iter().map(|(_, sample)| sample).filter(|sample| !sample.is_empty())
    }

    /// Returns a finding about the best remedy with a proven gain. Among equally good remedies, selects the first,
    /// because it takes the least effort.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let gains = self.tried.iter().skip(1).filter_map(|(name, sample)| Some((*name, self.gain(sample)?)));
        let gains: Vec<_> = gains.collect();
        let proof = |gain: &Gain| Proof::of(gain.factor, MIN_WORTHWHILE_GAIN, &self.shortage);
        let helps = |gain: &Gain| proof(gain).gain().is_some();
        let greatest = |gains: &[(&'static str, Gain)]| {
            gains.iter().map(|(_, gain)| gain.factor.point()).fold(0.0, f64::max)
        };
        let proven: Vec<_> = gains.iter().filter(|(_, gain)| helps(gain)).cloned().collect();
        let best = greatest(&proven);
        let Some((name, gain)) =
            proven.into_iter().find(|(_, gain)| gain.factor.point() >= EQUALLY_GOOD * best)
        else {
            let best = greatest(&gains);
            let (name, gain) = gains.iter().find(|(_, gain)| gain.factor.point() >= best)?;
            return Some(no_remedy_helps(name, gain, gains.iter().map(|(_, gain)| proof(gain))));
        };
        Some(Finding {
            name: format!("The best of the tried remedies: {name}"),
            evidence: format!("The table \"Remedies tried on {}\" shows the others.", self.what),
            gain: Some(gain),
            remedy: match name {
                "rollback" => "Run each test within a transaction that is rolled back.".to_owned(),
                name if name.starts_with("DELETE") => {
                    "Clean up by DELETE, or use a fresh database for each test, as \"pgfresh run\" provides."
                        .to_owned()
                }
                name if name.contains("RAM") => "\"pgfresh run --place ram -- COMMAND\".".to_owned(),
                _ => "\"pgfresh run -- COMMAND\", or these settings on a server whose data is disposable."
                    .to_owned(),
            },
        })
    }
}

/// Returns the finding to report if no remedy has a proven gain. `name` is the remedy with the best gain.
fn no_remedy_helps(name: &str, gain: &Gain, mut proofs: impl Iterator<Item = Proof>) -> Finding {
    let why = proofs.find_map(|proof| match proof {
        Proof::Unknown(_, why) => Some(why),
        Proof::Gain(_) | Proof::NoGain(_) => None,
    });
    let (name, evidence, remedy) = match why {
        Some(why) => (
            "Whether a remedy helps is not known",
            format!("The best of them, {name}: {gain}. That is not proven: {why}."),
            "Try again when the machine is quiet.",
        ),
        None => (
            "None of the remedies helps",
            format!("The best of them, {name}: {gain}."),
            "Find out where the suite's time goes: \"pgfresh run --profile -- COMMAND\".",
        ),
    };
    Finding { name: name.to_owned(), evidence, gain: None, remedy: remedy.to_owned() }
}

/// Returns SQL that creates the typical test's tables.
fn create_tables() -> String {
    let table = |n| {
        format!("CREATE TABLE t{n} (id serial PRIMARY KEY, a integer, b text); CREATE INDEX ON t{n} (a);")
    };
    (1..=TABLE_COUNT).map(table).collect()
}

/// Repeats the typical test for one turn, returning the mean duration.
fn run_test(session: &mut AdminConnection, clean_up: CleanUp) -> Result<PhaseTimes, SessionError> {
    let insert = |n| format!("INSERT INTO t{n} (a, b) SELECT g, 'x' || g FROM generate_series(1, 10) g");
    let inserts: Vec<String> = (1..=5).map(insert).collect();
    let each = |word: &str| (1..=TABLE_COUNT).map(|n| format!("{word} t{n}")).collect::<Vec<_>>().join("; ");
    let all = (1..=TABLE_COUNT).map(|n| format!("t{n}")).collect::<Vec<_>>().join(", ");
    let (begin, end) = match clean_up {
        CleanUp::Truncate => (None, format!("TRUNCATE {all} RESTART IDENTITY CASCADE")),
        CleanUp::Delete => (None, each("DELETE FROM")),
        CleanUp::Rollback => (Some("BEGIN"), "ROLLBACK".to_owned()),
    };
    mean_cycle("a test", TURN_DURATION, || {
        for statement in begin.into_iter().chain(inserts.iter().map(String::as_str)).chain([end.as_str()]) {
            session.query(statement)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// An observer that records one letter per remedy and cancels after the seventh turn.
    struct CancelAfterSeven(RefCell<String>);

    impl Progress for CancelAfterSeven {
        fn is_cancelled(&self) -> bool {
            self.0.borrow().len() == 7
        }
    }

    /// Returns the kernel's files of a machine with enough CPUs.
    fn idle() -> Roots {
        Roots { procfs: "/nowhere".into(), ..Roots::default() }
    }

    fn tries<'a>(order: &'a RefCell<String>) -> Vec<RemedyTrial<'a>> {
        let one = |name: &'static str, seconds| -> RemedyTrial<'a> {
            let turn = move || {
                order.borrow_mut().push_str(name);
                Ok(vec![("all", Duration::from_secs(seconds))])
            };
            (name, Box::new(turn))
        };
        vec![one("A", 10), one("B", 2), one("C", 5)]
    }

    #[test]
    fn remedies_alternate_direction_and_best_is_named() {
        let order = RefCell::new(String::new());
        let remedies = Remedies::take_turns("a test", tries(&order), &idle(), &()).unwrap();
        assert_eq!(*order.borrow(), "ABCCBA".repeat(3));
        let finding = remedies.finding().unwrap();
        assert_eq!(finding.name, "The best of the tried remedies: B");
        assert_eq!(
            finding.gain.unwrap().to_string(),
            "a test 5.00 × [5.00 ×, 5.00 ×] as fast, measured: 10.0 s → 2.00 s"
        );
    }

    #[test]
    fn only_finished_rounds_count() {
        let progress = CancelAfterSeven(RefCell::default());
        let remedies = Remedies::take_turns("a test", tries(&progress.0), &idle(), &progress).unwrap();
        assert!(remedies.samples().all(|sample| sample.len() == 2), "{remedies:?}");
        assert!(remedies.table().to_string().contains("about 5.00 ×"));
    }

    #[test]
    fn remedies_without_gain_are_reported_as_unhelpful() {
        let order = RefCell::new(String::new());
        let mut tries = tries(&order);
        tries.truncate(1);
        tries.push(("B", Box::new(|| Ok(vec![("all", Duration::from_millis(9500))]))));
        let remedies = Remedies::take_turns("the suite", tries, &idle(), &()).unwrap();
        assert_eq!(remedies.finding().unwrap().name, "None of the remedies helps");
        let short = Remedies { shortage: Shortage { waited: Some(0.9), stolen: None }, ..remedies };
        let finding = short.finding().unwrap();
        assert_eq!(finding.name, "Whether a remedy helps is not known");
        assert!(finding.evidence.contains("CPU time was short"), "{}", finding.evidence);
    }
}
