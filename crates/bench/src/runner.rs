//! Contenders taking turns: what disturbs one disturbs its neighbours, so their ratios can be believed.
//!
//! ```text
//! warm-up   A B C     not kept
//! round 1   A B C
//! round 2   C B A     what the one before leaves behind (dirty pages, heat) is everybody's in turn
//! ```
//! A round counts when every contender has finished it: all samples have the same length, in the same order.

use std::fmt;
use std::time::{Duration, Instant};

use report::{Report, Sample, Unit};

/// Named steps in the order in which they were done, and how long each took.
pub type PhaseTimes = Vec<(&'static str, Duration)>;

/// What makes a report of what is finished.
pub type ToReport<'a> = dyn Fn(&[Timed]) -> Report + 'a;

/// Something that is timed over and over.
pub struct Contender<'a, E> {
    name: String,
    run: Box<dyn FnMut() -> Result<PhaseTimes, E> + 'a>,
}

impl<'a, E> Contender<'a, E> {
    /// `run` does it once; its phases are the same each time, and what it does beside them is not counted.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<PhaseTimes, E> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

impl<E> fmt::Debug for Contender<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Contender").field(&self.name).finish()
    }
}

/// Who looks on while it is measured.
pub trait Observer {
    /// So many rounds are finished, `of` so many: none when the warm-up is over, which is not counted.
    fn after_round(&mut self, done: u32, of: u32);

    /// What would be reported if it ended now is to be had, if that is known. Not within any time that is taken.
    fn found(&mut self, _: &dyn Fn() -> Report) {}

    /// Whether to leave it at the finished rounds. Asked before each contender.
    fn wants_to_stop(&self) -> bool;
}

/// All that was measured of one contender.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    name: String,
    phases: Vec<Sample>,
}

/// Adds every value that was measured, for programs.
pub(crate) fn add_samples(report: &mut Report, timed: &[Timed]) {
    for timed in timed {
        report.add_samples(timed.name(), timed.phases().to_vec());
    }
}

impl Timed {
    /// The contender.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One sample for each phase; none before the first round is finished.
    #[must_use]
    pub fn phases(&self) -> &[Sample] {
        &self.phases
    }

    /// The sums of all phases, round by round.
    #[must_use]
    pub fn total(&self) -> Sample {
        self.sum_of(|_| true)
    }

    /// The sums of the phases of these names, round by round.
    #[must_use]
    pub fn sum(&self, names: &[&str]) -> Sample {
        self.sum_of(|name| names.contains(&name))
    }

    fn sum_of(&self, counts: impl Fn(&str) -> bool) -> Sample {
        let mut sums = Sample::new(&self.name, Unit::Seconds);
        let phases: Vec<_> = self.phases.iter().filter(|phase| counts(phase.name())).collect();
        for round in 0..phases.first().map_or(0, |phase| phase.len()) {
            let sum = phases.iter().map(|phase| phase.values()[round]).sum();
            sums.push(sum).expect("durations add up to a finite number");
        }
        sums
    }

    fn add(&mut self, measured: PhaseTimes) {
        if self.phases.is_empty() {
            self.phases = measured.iter().map(|(name, _)| Sample::new(*name, Unit::Seconds)).collect();
        }
        assert_eq!(self.phases.len(), measured.len(), "phases of \"{}\" in every round", self.name);
        for (sample, (_, duration)) in self.phases.iter_mut().zip(measured) {
            sample.push(duration.as_secs_f64()).expect("a duration is finite");
        }
    }
}

/// Goes round for `span`, at least once; returns how often, and how long that took.
pub(crate) fn cycles<E>(
    span: Duration,
    mut cycle: impl FnMut() -> Result<(), E>,
) -> Result<(u32, Duration), E> {
    let begun = Instant::now();
    let mut count = 0;
    while count == 0 || begun.elapsed() < span {
        cycle()?;
        count += 1;
    }
    Ok((count, begun.elapsed()))
}

/// Goes round for `span`, at least once; the mean time of a round is the phase `name`.
pub(crate) fn mean_cycle<E>(
    name: &'static str,
    span: Duration,
    cycle: impl FnMut() -> Result<(), E>,
) -> Result<PhaseTimes, E> {
    let (count, taken) = cycles(span, cycle)?;
    Ok(vec![(name, taken / count)])
}

/// As [`run_and_report`], without a report meanwhile.
pub(crate) fn run_in_turn<E>(
    contenders: &mut [Contender<'_, E>],
    warm_up: u32,
    rounds: u32,
    observer: &mut dyn Observer,
) -> (Vec<Timed>, Result<(), E>) {
    run_and_tell(contenders, warm_up, rounds, observer, None)
}

/// Lets the contenders take turns, `warm_up` rounds for nothing and then `rounds` that count, and returns what was
/// measured of each, in their order. After each round the observer is given what `report` makes of what is finished.
///
/// It ends early, with the rounds that are finished, if the observer wants to stop or a contender fails: the failure
/// comes with them, unless it came after the request to stop, which may well have caused it.
pub fn run_and_report<E>(
    contenders: &mut [Contender<'_, E>],
    warm_up: u32,
    rounds: u32,
    observer: &mut dyn Observer,
    report: &ToReport<'_>,
) -> (Vec<Timed>, Result<(), E>) {
    run_and_tell(contenders, warm_up, rounds, observer, Some(report))
}

fn run_and_tell<E>(
    contenders: &mut [Contender<'_, E>],
    warm_up: u32,
    rounds: u32,
    observer: &mut dyn Observer,
    report: Option<&ToReport<'_>>,
) -> (Vec<Timed>, Result<(), E>) {
    let mut timed: Vec<Timed> = contenders
        .iter()
        .map(|contender| Timed { name: contender.name.clone(), phases: Vec::new() })
        .collect();
    for round in 0..warm_up + rounds {
        if round == warm_up {
            observer.after_round(0, rounds);
        }
        let measured = match one_round(contenders, round % 2 == 1, observer) {
            Ok(Some(measured)) => measured,
            Ok(None) => break,
            Err(_) if observer.wants_to_stop() => break,
            Err(error) => return (timed, Err(error)),
        };
        if round < warm_up {
            continue;
        }
        for (timed, measured) in timed.iter_mut().zip(measured) {
            timed.add(measured);
        }
        observer.after_round(round + 1 - warm_up, rounds);
        if let Some(report) = report {
            observer.found(&|| report(&timed));
        }
    }
    (timed, Ok(()))
}

/// `None` if the observer wants to stop.
fn one_round<E>(
    contenders: &mut [Contender<'_, E>],
    backwards: bool,
    observer: &dyn Observer,
) -> Result<Option<Vec<PhaseTimes>>, E> {
    let count = contenders.len();
    let mut measured = vec![PhaseTimes::new(); count];
    for turn in 0..count {
        if observer.wants_to_stop() {
            return Ok(None);
        }
        let index = if backwards { count - 1 - turn } else { turn };
        measured[index] = (contenders[index].run)()?;
    }
    Ok(Some(measured))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Wants to stop after so many rounds.
    pub(crate) struct Patience(pub(crate) u32);

    impl Observer for Patience {
        fn after_round(&mut self, done: u32, _: u32) {
            self.0 -= u32::from(done > 0);
        }

        fn wants_to_stop(&self) -> bool {
            self.0 == 0
        }
    }

    /// Keeps what it is given.
    #[derive(Default)]
    struct Reader(Vec<String>);

    impl Observer for Reader {
        fn after_round(&mut self, _: u32, _: u32) {}

        fn found(&mut self, report: &dyn Fn() -> Report) {
            self.0.push(report().to_string());
        }

        fn wants_to_stop(&self) -> bool {
            false
        }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn turns_alternate_and_the_warm_up_is_not_kept() {
        let order = RefCell::new(String::new());
        let contender = |name: &'static str, time| {
            let order = &order;
            Contender::<()>::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(vec![("first", ms(time)), ("then", ms(1))])
            })
        };
        let mut contenders = [contender("A", 10), contender("B", 20), contender("C", 30)];
        let (timed, end) = run_in_turn(&mut contenders, 1, 3, &mut Patience(9));
        assert_eq!(end, Ok(()));
        assert_eq!(*order.borrow(), "ABCCBAABCCBA");
        assert_eq!(timed[1].phases()[0].values(), [0.02; 3]);
        assert_eq!(timed[1].sum(&["then"]).values(), [0.001; 3]);
        let total = timed[1].total();
        assert!((total.values()[0] - 0.021).abs() < 1e-12 && total.len() == 3);
    }

    #[test]
    fn what_is_finished_is_kept_when_it_ends_early() {
        let contender = |fails_after: u32| {
            let mut left = fails_after;
            Contender::new("A", move || {
                left = left.checked_sub(1).ok_or("no more")?;
                Ok(vec![("all", ms(1))])
            })
        };
        let (timed, end) = run_in_turn(&mut [contender(9), contender(3)], 1, 5, &mut Patience(9));
        assert_eq!((timed[0].total().len(), timed[1].total().len(), end), (2, 2, Err("no more")));
        let (timed, end) = run_in_turn(&mut [contender(9), contender(9)], 0, 5, &mut Patience(3));
        assert_eq!((timed[0].total().len(), end), (3, Ok(())));
        assert!(run_in_turn(&mut [contender(0)], 0, 5, &mut Patience(1)).0[0].total().is_empty());
    }
    #[test]
    fn a_report_is_there_after_each_round_until_one_fails() {
        let mut left = 3;
        let contender = Contender::new("A", move || {
            left -= 1;
            if left > 0 { Ok(vec![("all", ms(1))]) } else { Err("no more") }
        });
        let report = |timed: &[Timed]| Report::new(format!("{} rounds", timed[0].total().len()));
        let mut reader = Reader::default();
        let (_, end) = run_and_report(&mut [contender], 0, 5, &mut reader, &report);
        let titles: Vec<_> = reader.0.iter().map(|text| text.lines().next().unwrap()).collect();
        assert_eq!((titles, end), (vec!["1 rounds", "2 rounds"], Err("no more")));
    }

    #[test]
    fn what_takes_longer_than_its_span_is_still_done_once() {
        assert_eq!(cycles(ms(0), || Ok::<_, ()>(())).unwrap().0, 1);
    }
}
