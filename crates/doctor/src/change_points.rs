//! Finds change points, where the level of a series of rates changes permanently.
//!
//! A soak (minutes of repeated syncs) uses change points to distinguish a disk that slows down permanently from a disk
//! that is merely noisy.

/// Minimum number of values on each side of a change.
const MIN_VALUES_PER_SIDE: usize = 4;
/// Minimum ratio between two medians for their levels to count as different.
const MIN_LEVEL_RATIO: f64 = 1.25;
/// Minimum score of the rank test for a significant change, as a standard normal deviate. By chance, a single position
/// reaches this score once in 370 cases. The limit is this strict because the search examines many positions.
const MIN_RANK_SCORE: f64 = 3.0;

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Change {
    /// Index of the first value after the change.
    pub(crate) at: usize,
    /// Median of the values between the previous change and this one.
    pub(crate) before: f64,
    /// Median of the values between this change and the next one.
    pub(crate) after: f64,
}

/// Returns all level changes in `values`, in order. The values must be positive.
///
/// The method is binary segmentation. It cuts the series in two where the sum of all distances from the values to the
/// median of their part is smallest. A cut counts as a change if the medians differ by a quarter and the Mann–Whitney
/// rank test is significant. The search then continues in both parts.
///
/// Source: Killick, Fearnhead and Eckley, "Optimal detection of changepoints", JASA 107 (2012), section 2.2.
pub(crate) fn changes(values: &[f64]) -> Vec<Change> {
    let mut cuts = Vec::new();
    find_cuts(values, 0, &mut cuts);
    cuts.sort_unstable();
    let bounds: Vec<usize> = std::iter::once(0).chain(cuts).chain([values.len()]).collect();
    let levels: Vec<f64> = bounds.windows(2).map(|bounds| median(&values[bounds[0]..bounds[1]])).collect();
    let inner = bounds.iter().skip(1).zip(levels.windows(2));
    inner.map(|(at, levels)| Change { at: *at, before: levels[0], after: levels[1] }).collect()
}

fn find_cuts(values: &[f64], offset: usize, cuts: &mut Vec<usize>) {
    if values.len() < 2 * MIN_VALUES_PER_SIDE {
        return;
    }
    let places = MIN_VALUES_PER_SIDE..=values.len() - MIN_VALUES_PER_SIDE;
    let cost = |at: &usize| distance(&values[..*at]) + distance(&values[*at..]);
    let Some(at) = places.min_by(|one, other| cost(one).total_cmp(&cost(other))) else { return };
    let (left, right) = values.split_at(at);
    let (one, other) = (median(left), median(right));
    if one.max(other) < MIN_LEVEL_RATIO * one.min(other)
        || score(left, right) < MIN_RANK_SCORE.min(maximum_score(left, right))
    {
        return;
    }
    cuts.push(offset + at);
    find_cuts(left, offset, cuts);
    find_cuts(right, offset + at, cuts);
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the quantile `share` (0 to 1) of `values`, or 0 if `values` is empty.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = (report::as_f64(sorted.len()) * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

fn distance(values: &[f64]) -> f64 {
    let median = median(values);
    values.iter().map(|value| (value - median).abs()).sum()
}

/// Returns the maximum score for samples of these sizes, reached if the samples don't overlap.
fn maximum_score(left: &[f64], right: &[f64]) -> f64 {
    let (n, m) = (report::as_f64(left.len()), report::as_f64(right.len()));
    n * m / 2.0 / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

/// Returns the rank test's absolute score, as a standard normal deviate. Source: Mann and Whitney, Annals of
/// Mathematical Statistics 18 (1947).
fn score(left: &[f64], right: &[f64]) -> f64 {
    let (n, m) = (report::as_f64(left.len()), report::as_f64(right.len()));
    let wins: f64 = left
        .iter()
        .flat_map(|one| {
            right.iter().map(move |other| f64::midpoint(1.0, f64::from(one.total_cmp(other) as i8)))
        })
        .sum();
    (wins - n * m / 2.0).abs() / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields values within ±10 % of `level`, spread evenly by multiples of the golden ratio.
    fn steady(level: f64, count: u32) -> impl Iterator<Item = f64> {
        (0..count).map(move |i| level * (0.9 + 0.2 * (f64::from(i) * 0.618_034).fract()))
    }

    fn places(values: impl Iterator<Item = f64>) -> Vec<usize> {
        changes(&values.collect::<Vec<_>>()).iter().map(|change| change.at).collect()
    }

    #[test]
    fn cliff_is_found_at_its_step() {
        let found = changes(&steady(980.0, 12).chain(steady(300.0, 48)).collect::<Vec<_>>());
        let [change] = found[..] else { panic!("{found:?}") };
        assert_eq!(change.at, 12);
        assert!((change.before / change.after - 3.27).abs() < 0.2, "{change:?}");
        assert_eq!(places(steady(980.0, 4).chain(steady(300.0, 4))), [4]);
    }

    #[test]
    fn every_level_change_is_found() {
        let values =
            steady(900.0, 10).chain(steady(300.0, 10)).chain(steady(900.0, 10)).chain(steady(500.0, 20));
        assert_eq!(places(values), [10, 20, 30]);
    }

    #[test]
    fn steady_outlying_or_few_values_show_no_change() {
        assert_eq!(places(steady(980.0, 60)), [0; 0]);
        assert_eq!(
            places(steady(980.0, 60).enumerate().map(|(i, v)| if i == 30 { v / 9.0 } else { v })),
            [0; 0]
        );
        assert_eq!(places(steady(980.0, 3).chain(steady(300.0, 3))), [0; 0]);
        assert_eq!(places(std::iter::repeat_n(5.0, 40)), [0; 0]);
        assert_eq!(places(std::iter::empty()), [0; 0]);
    }
}
