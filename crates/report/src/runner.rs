//! Measures several contenders in turn.
//!
//! No machine is equally fast all the time. If contenders run in turn, a disturbance affects neighboring turns alike,
//! so the ratios between the contenders remain reliable.
//!
//! ```text
//! warm-up   A B C     discarded
//! round 1   C B A
//! round 2   A B C     each contender inherits the dirty pages and the heat of a different one in turn
//! ```
//!
//! The order alternates from the first round on, even without a warm-up.
//!
//! A canceled turn may be too short, so a round only counts if every contender finished its turn before the
//! cancellation. All samples therefore have the same length and the same order.

use std::time::{Duration, Instant};

use crate::{Progress, Report, Sample, Unit};

/// The steps of one turn in order, with their names and durations.
pub type PhaseTimes = Vec<(&'static str, Duration)>;

/// A function that builds a report on the rounds so far.
pub type ToReport<'a> = dyn Fn(&[Timed]) -> Report + 'a;

/// A candidate in a comparison. It runs repeatedly, and each turn returns a `T`.
#[allow(missing_debug_implementations)]
pub struct Contender<'a, E, T = PhaseTimes> {
    name: String,
    run: Box<dyn FnMut() -> Result<T, E> + 'a>,
}

impl<'a, E, T> Contender<'a, E, T> {
    /// Creates a contender. `run` performs one turn and measures the durations itself, so preparations don't count.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<T, E> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Numbers of warm-up rounds and of rounds that count.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    warm_up: u32,
    counted: u32,
}

impl Rounds {
    /// Creates `warm_up` rounds without results, followed by `counted` rounds that count.
    #[must_use]
    pub const fn new(warm_up: u32, counted: u32) -> Self {
        Self { warm_up, counted }
    }

    /// Returns how long a single turn can be for all turns of all contenders to fit into `length`.
    #[must_use]
    pub fn turn_within(self, length: Duration, contenders: usize) -> Duration {
        let turns = u32::try_from(contenders).unwrap_or(u32::MAX).saturating_mul(self.warm_up + self.counted);
        length / turns.max(1)
    }

    /// Yields the contenders' indexes in the order they run in during `round`.
    pub fn order(round: u32, contenders: usize) -> impl Iterator<Item = usize> {
        let backwards = round % 2 == 1;
        (0..contenders).map(move |turn| if backwards { contenders - 1 - turn } else { turn })
    }

    /// Runs the contenders in turn, passing the results of each round that counts to `keep`, in contender order. After
    /// a cancellation, the incomplete round is discarded.
    ///
    /// # Errors
    /// Returns the error of the first contender that fails. Errors after a cancellation are ignored, because the
    /// cancellation may have caused them.
    pub fn run<E, T>(
        self,
        contenders: &mut [Contender<'_, E, T>],
        progress: &dyn Progress,
        mut keep: impl FnMut(Vec<T>),
    ) -> Result<(), E> {
        for round in 0..self.warm_up + self.counted {
            if round == self.warm_up {
                progress.finished_round(0, self.counted);
            }
            if progress.is_cancelled() {
                return Ok(());
            }
            let mut measured: Vec<Option<T>> = contenders.iter().map(|_| None).collect();
            for index in Self::order(round, contenders.len()) {
                if progress.is_cancelled() {
                    return Ok(());
                }
                match (contenders[index].run)() {
                    _ if progress.is_cancelled() => return Ok(()),
                    result => measured[index] = Some(result?),
                }
            }
            if round >= self.warm_up {
                keep(measured.into_iter().flatten().collect());
                progress.finished_round(round + 1 - self.warm_up, self.counted);
            }
        }
        Ok(())
    }

    /// Measures the contenders and returns their times in the same order. If there is a `report`, offers `progress` an
    /// interim report after each round.
    ///
    /// # Errors
    /// The second value is the error of [`Rounds::run`]. Even after an error, the first value contains the
    /// complete rounds.
    pub fn time<E>(
        self,
        contenders: &mut [Contender<'_, E>],
        progress: &dyn Progress,
        report: Option<&ToReport<'_>>,
    ) -> (Vec<Timed>, Result<(), E>) {
        let timed = contenders.iter().map(|one| Timed { name: one.name.clone(), phases: Vec::new() });
        let mut timed: Vec<Timed> = timed.collect();
        let end = self.run(contenders, progress, |round| {
            timed.iter_mut().zip(round).for_each(|(timed, measured)| timed.add(measured));
            if let Some(report) = report {
                progress.interim_report(&|| report(&timed));
            }
        });
        (timed, end)
    }
}

/// All times of one contender.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    name: String,
    phases: Vec<Sample>,
}

impl Timed {
    /// Returns the contender's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns one sample per phase. Empty before the first round is complete.
    #[must_use]
    pub fn phases(&self) -> &[Sample] {
        &self.phases
    }

    /// Returns each round's sum of all phases.
    #[must_use]
    pub fn total(&self) -> Sample {
        self.sum_of(|_| true)
    }

    /// Returns each round's sum of the phases in `names`.
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

/// Repeats `cycle` until `span` has passed, but at least once. Returns how often it ran and the total duration.
///
/// # Errors
/// Returns the first error of `cycle`, without repeating `cycle` after that.
pub fn cycles<E>(span: Duration, mut cycle: impl FnMut() -> Result<(), E>) -> Result<(u32, Duration), E> {
    let begun = Instant::now();
    let mut count = 0;
    while count == 0 || begun.elapsed() < span {
        cycle()?;
        count += 1;
    }
    Ok((count, begun.elapsed()))
}

/// Repeats `cycle` until `span` has passed, but at least once. Returns the mean duration as a phase called `name`.
///
/// # Errors
/// Returns the first error of `cycle`.
pub fn mean_cycle<E>(
    name: &'static str,
    span: Duration,
    cycle: impl FnMut() -> Result<(), E>,
) -> Result<PhaseTimes, E> {
    let (count, taken) = cycles(span, cycle)?;
    Ok(vec![(name, taken / count)])
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// An observer that records all calls and cancels after `max_turns` turns.
    #[derive(Default)]
    struct Log {
        turns: RefCell<String>,
        max_turns: Option<usize>,
        rounds: RefCell<Vec<(u32, u32)>>,
        titles: RefCell<Vec<String>>,
    }

    impl Progress for Log {
        fn finished_round(&self, done: u32, of: u32) {
            self.rounds.borrow_mut().push((done, of));
        }

        fn interim_report(&self, report: &dyn Fn() -> Report) {
            self.titles.borrow_mut().extend(report().to_string().lines().next().map(str::to_owned));
        }

        fn is_cancelled(&self) -> bool {
            self.max_turns.is_some_and(|max_turns| self.turns.borrow().len() >= max_turns)
        }
    }

    impl Log {
        fn contender<'a>(&'a self, name: &'static str, time: u64) -> Contender<'a, &'static str> {
            Contender::new(name, move || {
                self.turns.borrow_mut().push_str(name);
                Ok(vec![("first", ms(time)), ("then", ms(1))])
            })
        }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn lengths(timed: &[Timed]) -> Vec<usize> {
        timed.iter().map(|timed| timed.total().len()).collect()
    }

    #[test]
    fn turns_alternate_and_warm_up_is_dropped() {
        let log = Log::default();
        let mut contenders = [log.contender("A", 10), log.contender("B", 20), log.contender("C", 30)];
        let (timed, end) = Rounds::new(1, 3).time(&mut contenders, &log, None);
        assert_eq!(end, Ok(()));
        assert_eq!(*log.turns.borrow(), "ABCCBAABCCBA");
        assert_eq!(*log.rounds.borrow(), [(0, 3), (1, 3), (2, 3), (3, 3)]);
        assert_eq!(timed.iter().map(Timed::name).collect::<String>(), "ABC");
        assert_eq!(timed[1].phases()[0].values(), [0.02; 3]);
        assert_eq!(timed[1].sum(&["then"]).values(), [0.001; 3]);
        let total = timed[1].total();
        assert!((total.values()[0] - 0.021).abs() < 1e-12 && total.len() == 3);
    }

    #[test]
    fn failed_measurement_returns_earlier_rounds() {
        let contender = |fails_after: u32| {
            let mut left = fails_after;
            Contender::new("A", move || {
                left = left.checked_sub(1).ok_or("no more")?;
                Ok(vec![("all", ms(1))])
            })
        };
        let (timed, end) = Rounds::new(1, 5).time(&mut [contender(9), contender(3)], &(), None);
        assert_eq!((lengths(&timed), end), (vec![2, 2], Err("no more")));
        let (timed, end) = Rounds::new(0, 5).time(&mut [contender(0)], &(), None);
        assert_eq!((lengths(&timed), end), (vec![0], Err("no more")));
    }

    #[test]
    fn cancellation_keeps_whole_rounds_and_starts_no_turn() {
        for max_turns in 0..=7 {
            let log = Log { max_turns: Some(max_turns), ..Log::default() };
            let mut contenders = [log.contender("A", 1), log.contender("B", 1)];
            let (timed, end) = Rounds::new(1, 5).time(&mut contenders, &log, None);
            // Each round has two turns. A round doesn't count if the user cancels during its last turn.
            let kept = (max_turns.max(1) - 1) / 2;
            assert_eq!(
                (lengths(&timed), end),
                (vec![kept.saturating_sub(1); 2], Ok(())),
                "{max_turns} turns"
            );
            assert_eq!(log.turns.borrow().len(), max_turns);
        }
    }

    #[test]
    fn failure_after_cancellation_is_ignored() {
        let log = Log { max_turns: Some(1), ..Log::default() };
        let mut contenders = [Contender::new("A", || {
            log.turns.borrow_mut().push('A');
            Err::<(), _>("interrupted")
        })];
        assert_eq!(Rounds::new(0, 2).run(&mut contenders, &log, drop), Ok(()));
        assert_eq!(Rounds::new(0, 2).run(&mut contenders, &(), drop), Err("interrupted"));
    }

    #[test]
    fn measurement_without_contenders_can_be_cancelled() {
        let log = Log { max_turns: Some(0), ..Log::default() };
        let mut contenders: [Contender<'_, ()>; 0] = [];
        assert_eq!(Rounds::new(0, 12).run(&mut contenders, &log, drop), Ok(()));
        assert!(log.rounds.borrow().iter().all(|(done, _)| *done == 0), "{:?}", log.rounds);
    }

    #[test]
    fn turn_results_keep_contender_order() {
        let serial = Cell::new(0);
        let next = || {
            serial.set(serial.get() + 1);
            Ok::<i32, ()>(serial.get())
        };
        let mut kept = Vec::new();
        let mut contenders = [Contender::new("A", next), Contender::new("B", next)];
        Rounds::new(0, 2).run(&mut contenders, &(), |round| kept.push(round)).unwrap();
        assert_eq!(kept, [[1, 2], [4, 3]]);
    }

    #[test]
    fn all_turns_fit_requested_length() {
        assert_eq!(Rounds::new(1, 3).turn_within(ms(120), 3), ms(10));
        assert_eq!(Rounds::new(1, 3).turn_within(ms(120), 0), ms(120));
    }

    #[test]
    fn report_follows_each_round_until_failure() {
        let mut left = 3;
        let contender = Contender::new("A", move || {
            left -= 1;
            if left > 0 { Ok(vec![("all", ms(1))]) } else { Err("no more") }
        });
        let report = |timed: &[Timed]| Report::new(format!("{} rounds", timed[0].total().len()));
        let log = Log::default();
        let (_, end) = Rounds::new(0, 5).time(&mut [contender], &log, Some(&report));
        assert_eq!((log.titles.take(), end), (vec!["1 rounds".into(), "2 rounds".into()], Err("no more")));
    }

    #[test]
    fn operation_longer_than_its_span_runs_once() {
        assert_eq!(cycles(ms(0), || Ok::<_, ()>(())).unwrap().0, 1);
    }
}
