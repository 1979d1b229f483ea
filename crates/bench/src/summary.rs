//! What tables say of contenders.

use report::{Interval, Quantity, Report, Sample, Timed, Unit, Warning};

/// Adds every value that was measured, for programs.
pub(crate) fn add_samples(report: &mut Report, timed: &[Timed]) {
    for timed in timed {
        report.add_samples(timed.name(), timed.phases().to_vec());
    }
}

/// What was timed of that name.
pub(crate) fn find<'a>(timed: &'a [Timed], name: &str) -> Option<&'a Timed> {
    timed.iter().find(|timed| timed.name() == name)
}

/// How many times as long `name` takes as `base`, the median over all rounds.
pub(crate) fn ratio(timed: &[Timed], name: &str, base: &str) -> Option<Quantity> {
    let (one, base) = (find(timed, name)?.total(), find(timed, base)?.total());
    if one.len() == base.len() {
        return one.ratio_to(&base).ok()?.median();
    }
    // Not in the same rounds.
    Some(Quantity::new(one.median()?.value / base.median()?.value, Unit::Ratio))
}

/// So many in a second.
pub(crate) fn rate(timed: &[Timed], name: &str) -> Option<Quantity> {
    let each = find(timed, name)?.total().median()?;
    Some(Quantity::new(1.0 / each.value, Unit::PerSecond))
}

/// The ends of the interval of the median.
pub(crate) fn interval(sample: &Sample) -> Option<String> {
    Interval::of_median(sample).map(|interval| format!("{} to {}", interval.low, interval.high))
}

/// Rounds from which on a median has an interval.
const FEWEST: usize = 6;

/// Adds what makes the measurement doubtful, and what to try; `option` says how often each has its turn.
pub(crate) fn add_doubts(report: &mut Report, timed: &[Timed], option: &str) {
    let warnings: Vec<Warning> = timed.iter().flat_map(|timed| Warning::of(&timed.total())).collect();
    let doubtful = !warnings.is_empty();
    report.add_notes(warnings);
    let rounds = timed.first().map_or(0, |timed| timed.total().len());
    if rounds < FEWEST {
        report
            .add_notes([format!("Of {rounds} turns there is no interval: try {option} {FEWEST}, or more.")]);
    } else if doubtful {
        report.add_notes([format!("Once it is quiet, try {option} {}: medians become firmer.", rounds * 2)]);
    }
}

#[cfg(test)]
mod tests {
    use report::{Contender, Rounds};

    use super::*;

    /// What is said of a contender that takes so many seconds in each of its turns.
    fn doubts(seconds: &[u64]) -> String {
        let mut left = seconds.iter();
        let take = || Ok::<_, ()>(vec![("all", std::time::Duration::from_secs(*left.next().unwrap()))]);
        let mut contenders = [Contender::new("A", take)];
        let rounds = u32::try_from(seconds.len()).unwrap();
        let (timed, _) = Rounds::new(0, rounds).time(&mut contenders, &(), None);
        let mut report = Report::new("t");
        add_doubts(&mut report, &timed, "--rounds");
        report.to_string()
    }

    #[test]
    fn what_is_doubtful_names_the_option_to_try() {
        assert!(doubts(&[1, 1, 1]).contains("Of 3 turns there is no interval: try --rounds 6, or more."));
        assert_eq!(doubts(&[1; 12]), "t\n═\n");
        let outlying = doubts(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 90]);
        assert!(outlying.contains("1 of 12 values") && outlying.contains("try --rounds 24"), "{outlying}");
    }
}
