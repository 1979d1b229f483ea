//! Computes a median's confidence interval.
//!
//! The interval is valid for every distribution, which matters because durations rarely follow a normal distribution.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::median_of_sorted;
use crate::{Quantity, Sample, binomial};

/// Maximum probability that the median is below the interval. The same limit applies to a median above the interval.
const TAIL: f64 = 0.025;

/// A 95 % confidence interval. `Display` formats it as `1.23 ms [1.20 ms, 1.27 ms]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end, at most `point`.
    pub low: Quantity,
    /// Estimate: the sample's median.
    pub point: Quantity,
    /// Upper end, at least `point`.
    pub high: Quantity,
}

impl Interval {
    /// Returns the confidence interval for the median of the distribution that `sample` comes from.
    ///
    /// Returns `None` for fewer than 6 values. With 5 values, even the minimum and the maximum enclose the median with
    /// a probability of only 93.75 %.
    ///
    /// Both ends are measured values, equally far from the two ends of the sorted sample. Among these pairs, the
    /// interval is the narrowest that encloses the median with a probability of at least 95 %. For independent values,
    /// the probability is exact if the distribution is continuous, and a lower bound otherwise. Values that drift
    /// aren't independent (see [`crate::Warning::Drift`]).
    ///
    /// To get the interval of a gain, pass the ratios of paired samples (see [`Sample::ratio_to`]).
    ///
    /// Source: David and Nagaraja, "Order Statistics", 3rd edition (2003), section 7.1; Le Boudec, "Performance
    /// Evaluation of Computer and Communication Systems" (2010), theorem 2.1 and its table for small samples.
    #[must_use]
    pub fn of_median(sample: &Sample) -> Option<Self> {
        let sorted = sample.sorted();
        let depth = binomial::cumulative(sorted.len()).take_while(|probability| *probability <= TAIL).count();
        let low = *sorted.get(depth.checked_sub(1)?)?;
        let high = *sorted.get(sorted.len() - depth)?;
        let point = median_of_sorted(&sorted)?;
        Some(Self { low: sample.quantity(low), point: sample.quantity(point), high: sample.quantity(high) })
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{} [{}, {}]", self.point, self.low, self.high))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::as_f64;
    use crate::sample::tests::{finite, sample};

    /// Returns both ends' ranks, counted from 1.
    fn ranks(n: usize) -> Option<(f64, f64)> {
        let interval = Interval::of_median(&sample((1..=n).map(as_f64)))?;
        Some((interval.low.value, interval.high.value))
    }

    #[test]
    fn interval_ranks_match_published_tables() {
        assert!((0..6).all(|n| ranks(n).is_none()));
        for (n, low, high) in [
            (6, 1.0, 6.0),
            (8, 1.0, 8.0),
            (9, 2.0, 8.0),
            (12, 3.0, 10.0),
            (15, 4.0, 12.0),
            (17, 5.0, 13.0),
            (20, 6.0, 15.0),
            (35, 12.0, 24.0),
            (70, 27.0, 44.0),
        ] {
            assert_eq!(ranks(n), Some((low, high)), "{n} values");
        }
    }

    #[test]
    fn interval_of_many_values_matches_normal_approximation() {
        // n/2 - 0.98 √n, Le Boudec's approximation for large n.
        let (low, high) = ranks(1_000_000).unwrap();
        assert!((low - (500_000.0 - 980.0)).abs() < 2.0, "{low}");
        assert!((low + high - 1_000_001.0).abs() < 0.5, "{high}");
    }

    #[test]
    fn interval_of_ratios_encloses_gain() {
        let before = sample([10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
        let after = sample([5.0, 5.5, 6.0, 6.5, 7.0, 5.0]);
        let gain = Interval::of_median(&before.ratio_to(&after).unwrap()).unwrap();
        assert_eq!(gain.to_string(), "2.00 × [2.00 ×, 3.00 ×]");
    }

    /// `SplitMix64` (Steele, Lea and Flood 2014). Returns uniform numbers between 0 and 1, which are the same on every
    /// run.
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(u32::try_from((bits ^ (bits >> 31)) >> 32).unwrap()) / f64::from(u32::MAX)
    }

    #[test]
    fn median_interval_keeps_coverage_for_skewed_distribution() {
        // An exponential distribution with a median of ln 2. The 8th and 18th of 25 values enclose the median with
        // probability 0.9567.
        let (mut state, rounds) = (17, 20_000);
        let covered = (0..rounds)
            .filter(|_| {
                let values: Vec<f64> =
                    (0..25).map(|_| -(1.0 - 0.999_999 * uniform(&mut state)).ln()).collect();
                let interval = Interval::of_median(&sample(values)).unwrap();
                (interval.low.value..=interval.high.value).contains(&std::f64::consts::LN_2)
            })
            .count();
        // For a proportion near 0.957 over 20 000 rounds, four standard errors are 0.0057.
        let share = as_f64(covered) / as_f64(rounds);
        assert!((share - 0.9567).abs() < 0.0057, "{share}");
    }

    proptest! {
        #[test]
        fn interval_encloses_the_median(values in prop::collection::vec(finite(), 6..80)) {
            let Interval { low, point, high } = Interval::of_median(&sample(values)).unwrap();
            prop_assert!(low.value <= point.value && point.value <= high.value);
        }

        #[test]
        fn interval_does_not_depend_on_order(mut values in prop::collection::vec(finite(), 6..30)) {
            let before = Interval::of_median(&sample(values.clone()));
            values.reverse();
            prop_assert_eq!(before, Interval::of_median(&sample(values)));
        }
    }
}
