//! Provides report parts that several benchmarks share.

use report::{Interval, Quantity, Report, Sample, Timed, Unit, Warning};

/// Adds all measured values to the report's machine-readable formats.
pub(crate) fn add_samples(report: &mut Report, timed: &[Timed]) {
    for timed in timed {
        report.add_samples(timed.name(), timed.phases().to_vec());
    }
}

/// Returns the times of the contender called `name`.
pub(crate) fn find<'a>(timed: &'a [Timed], name: &str) -> Option<&'a Timed> {
    timed.iter().find(|timed| timed.name() == name)
}

/// Returns the median, over all rounds, of the ratio between the times of `name` and `base`.
pub(crate) fn ratio(timed: &[Timed], name: &str, base: &str) -> Option<Quantity> {
    let (one, base) = (find(timed, name)?.total(), find(timed, base)?.total());
    if one.len() == base.len() {
        return one.ratio_to(&base).ok()?.median();
    }
    // The two contenders didn't run in the same rounds, so their times can't be paired.
    Some(Quantity::new(one.median()?.value / base.median()?.value, Unit::Ratio))
}

/// Returns how many times per second a contender finishes.
pub(crate) fn rate(timed: &[Timed], name: &str) -> Option<Quantity> {
    let each = find(timed, name)?.total().median()?;
    Some(Quantity::new(1.0 / each.value, Unit::PerSecond))
}

/// Formats the median's confidence interval.
pub(crate) fn interval(sample: &Sample) -> Option<String> {
    Interval::of_median(sample).map(|interval| format!("{} to {}", interval.low, interval.high))
}

/// Minimum number of rounds for the median's confidence interval.
const MIN_ROUNDS_FOR_INTERVAL: usize = 6;

/// Adds warnings about the measurement, with advice on the number of rounds. `option` is the command-line option that
/// sets this number.
pub(crate) fn add_warnings(report: &mut Report, timed: &[Timed], option: &str) {
    let warnings: Vec<Warning> = timed.iter().flat_map(|timed| Warning::of(&timed.total())).collect();
    let doubtful = !warnings.is_empty();
    report.add_notes(warnings);
    let rounds = timed.first().map_or(0, |timed| timed.total().len());
    if rounds < MIN_ROUNDS_FOR_INTERVAL {
        report.add_notes([format!(
            "{rounds} measurements are too few for a 95 % interval: try {option} {MIN_ROUNDS_FOR_INTERVAL} or more."
        )]);
    } else if doubtful {
        report.add_notes([format!("Once it is quiet, try {option} {}: medians become firmer.", rounds * 2)]);
    }
}

#[cfg(test)]
mod tests {
    use report::{Contender, Rounds};

    use super::*;

    /// Returns the notes about a contender. `seconds` lists the durations of its turns.
    fn warnings(seconds: &[u64]) -> String {
        let mut left = seconds.iter();
        let take = || Ok::<_, ()>(vec![("all", std::time::Duration::from_secs(*left.next().unwrap()))]);
        let mut contenders = [Contender::new("A", take)];
        let rounds = u32::try_from(seconds.len()).unwrap();
        let (timed, _) = Rounds::new(0, rounds).time(&mut contenders, &(), None);
        let mut report = Report::new("t");
        add_warnings(&mut report, &timed, "--rounds");
        report.to_string()
    }

    #[test]
    fn doubtful_result_names_the_option_to_try() {
        assert!(
            warnings(&[1, 1, 1])
                .contains("3 measurements are too few for a 95 % interval: try --rounds 6 or more.")
        );
        assert_eq!(warnings(&[1; 12]), "t\n═\n");
        let outlying = warnings(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 90]);
        assert!(outlying.contains("1 of 12 values") && outlying.contains("try --rounds 24"), "{outlying}");
    }
}
