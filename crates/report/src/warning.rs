//! Warns about samples that shouldn't be trusted.
//!
//! A median is only meaningful if nothing disturbed the measurement and the system was in a steady state. The warnings
//! point out outliers and drift.

use std::f64::consts::FRAC_PI_2;
use std::fmt;

use crate::sample::{as_f64, median_of_sorted, sorted};
use crate::{Quantity, Sample, binomial};

/// Maximum modified Z-score of a value that isn't an outlier.
const OUTLYING: f64 = 3.5;

/// Minimum number of values for the modified Z-score. Its authors didn't test smaller samples.
const FEWEST_FOR_OUTLIERS: usize = 10;

/// Rate of false drift warnings. A report contains many samples, so the usual 5 % would produce too many
/// false warnings.
const FALSE_ALARMS: f64 = 0.01;

/// Minimum drift worth a warning, as a fraction of the median. In large samples, the test is so sensitive that even a
/// tiny drift is significant.
const NEGLIGIBLE_DRIFT: f64 = 0.01;

/// A reason to doubt a sample. `Display` formats it as a sentence.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// Too many values (at least 1 %) are far from the median. A smaller share is normal in large samples.
    ///
    /// A value is far from the median if its modified Z-score, 0.6745 (x - median) / MAD, is beyond ±3.5. MAD is the
    /// median distance from the median.
    ///
    /// If more than half of the values are equal, MAD is zero. In that case, √(π/2) times the mean distance replaces
    /// MAD / 0.6745. For a normal distribution, both estimate the standard deviation.
    ///
    /// Samples with fewer than 10 values never get this warning.
    ///
    /// Source: Iglewicz and Hoaglin, "How to Detect and Handle Outliers", ASQC (1993), section 3.3.
    Outliers {
        /// The sample's name.
        sample: String,
        /// The number of outliers.
        count: usize,
        /// The number of values.
        of: usize,
        /// The sample's median.
        median: Quantity,
        /// The outlier farthest from the median.
        farthest: Quantity,
    },
    /// The second half of the values differs from the first half. Either the warm-up was too short, or something fills
    /// up, heats up or ages during the measurement.
    ///
    /// A two-sided sign test at a level of 1 % compares each value in the first half with its partner in the second
    /// half (x₁ with x₁₊ₖ and so on). Pairs of equal values don't count, and neither does the middle value of an odd
    /// number of values.
    ///
    /// The warning only appears if the medians differ by more than 1 %. With fewer than 16 values, the test can't be
    /// significant. Since the test assumes that values are independent, slow waves (for example from checkpoints) can
    /// also cause this warning.
    ///
    /// Source: Cox and Stuart, "Some quick sign tests for trend in location and dispersion", Biometrika 42 (1955).
    Drift {
        /// The sample's name.
        sample: String,
        /// The first half's median.
        first: Quantity,
        /// The second half's median.
        second: Quantity,
        /// The test's p-value, from 0 to 0.01: the probability that a sample without drift looks at least as
        /// suspicious.
        p: f64,
    },
}

impl Warning {
    /// Returns all warnings about `sample`. Small samples don't get warnings, because a missing or wide interval
    /// already shows their uncertainty.
    #[must_use]
    pub fn of(sample: &Sample) -> Vec<Self> {
        [outliers(sample), drift(sample)].into_iter().flatten().collect()
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outliers { sample, count, of, median, farthest } => write!(
                formatter,
                "{count} of {of} values of \"{sample}\" are outliers, the farthest {farthest} where the median is \
                 {median}: look for other work on this machine, and measure again."
            ),
            Self::Drift { sample, first, second, .. } => write!(
                formatter,
                "\"{sample}\" drifts, from {first} in its first half to {second} in its second: warm up longer, or \
                 look for what fills up, heats up or throttles."
            ),
        }
    }
}

fn outliers(sample: &Sample) -> Option<Warning> {
    let of = sample.len();
    let median = median_of_sorted(&sample.sorted())?;
    let distance = |value: &f64| (value - median).abs();
    let distances: Vec<f64> = sample.values().iter().map(distance).collect();
    let mean_distance = distances.iter().map(|distance| distance / as_f64(of)).sum::<f64>();
    let limit = match median_of_sorted(&sorted(distances))? {
        0.0 => OUTLYING * FRAC_PI_2.sqrt() * mean_distance,
        mad => OUTLYING / 0.6745 * mad,
    };
    let outlying = || sample.values().iter().filter(|value| distance(value) > limit);
    let farthest = outlying().max_by(|one, other| distance(one).total_cmp(&distance(other)))?;
    let count = outlying().count();
    (of >= FEWEST_FOR_OUTLIERS && count * 100 >= of).then(|| Warning::Outliers {
        sample: sample.name().to_owned(),
        count,
        of,
        median: sample.quantity(median),
        farthest: sample.quantity(*farthest),
    })
}

fn drift(sample: &Sample) -> Option<Warning> {
    let values = sample.values();
    let (first, second) = (&values[..values.len() / 2], &values[values.len().div_ceil(2)..]);
    let rising = first.iter().zip(second).filter(|(early, late)| early < late).count();
    let falling = first.iter().zip(second).filter(|(early, late)| early > late).count();
    let p = 2.0 * binomial::cumulative(rising + falling).nth(rising.min(falling))?;
    let [first, second] =
        [median_of_sorted(&sorted(first.to_vec()))?, median_of_sorted(&sorted(second.to_vec()))?];
    (p <= FALSE_ALARMS && (second - first).abs() > NEGLIGIBLE_DRIFT * first.abs()).then(|| Warning::Drift {
        sample: sample.name().to_owned(),
        first: sample.quantity(first),
        second: sample.quantity(second),
        p,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::tests::{finite, sample};

    /// Yields `n` values near 1 without trends or outliers. The values are based on multiples of the golden ratio,
    /// which spread evenly over 0 to 1.
    fn steady(n: usize) -> impl Iterator<Item = f64> {
        (0..n).map(|i| 1.0 + 0.1 * (as_f64(i) * 0.618_034).fract())
    }

    fn texts(values: impl IntoIterator<Item = f64>) -> Vec<String> {
        Warning::of(&sample(values)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn steady_values_get_no_warning() {
        for n in [0, 1, 2, 9, 10, 15, 16, 100, 1001] {
            assert_eq!(texts(steady(n)), [""; 0], "{n} values");
        }
    }

    #[test]
    fn warning_counts_outliers_and_names_farthest() {
        let values = steady(98).chain([2.0, 0.5]);
        assert_eq!(
            texts(values),
            [
                "2 of 100 values of \"test\" are outliers, the farthest 2.00 s where the median is 1.05 s: look for \
              other work on this machine, and measure again."
            ]
        );
    }

    #[test]
    fn outlier_scores_beyond_three_and_a_half() {
        // The median is 0 and MAD is 1, so the limit is 3.5 / 0.6745 = 5.189.
        let values = |last| [-1.0, 1.0].repeat(4).into_iter().chain([-1.0, last]);
        assert_eq!(texts(values(5.18)), [""; 0]);
        assert_eq!(texts(values(5.20)).len(), 1);
    }

    #[test]
    fn outlier_among_equal_values_is_found() {
        let found = Warning::of(&sample([10.0; 9].into_iter().chain([100.0])));
        assert!(matches!(found[..], [Warning::Outliers { count: 1, of: 10, .. }]), "{found:?}");
        assert_eq!(texts([10.0; 100]), [""; 0]);
        // The mean distance is 0.3, so the limit is 3.5 × 1.2533 × 0.3 = 1.316.
        assert_eq!(texts([10.0; 7].into_iter().chain([11.0; 3])), [""; 0]);
    }

    #[test]
    fn few_values_or_outliers_get_no_warning() {
        assert_eq!(texts([1.0, 1.001, 1.002, 50.0]), [""; 0]);
        assert_eq!(texts(steady(999).chain([50.0])), [""; 0]);
    }

    #[test]
    fn short_warm_up_is_reported_as_drift() {
        let values = steady(40).enumerate().map(|(i, value)| if i < 20 { value * 1.5 } else { value });
        assert_eq!(
            texts(values),
            [
                "\"test\" drifts, from 1.57 s in its first half to 1.05 s in its second: warm up longer, or look for \
              what fills up, heats up or throttles."
            ]
        );
    }

    #[test]
    fn drift_probability_matches_sign_test() {
        let found = Warning::of(&sample((0..17).map(as_f64)));
        let [Warning::Drift { p, first, second, .. }] = &found[..] else { panic!("{found:?}") };
        assert!((p - 2.0 / 256.0).abs() < 1e-12, "{p}");
        assert_eq!((first.to_string(), second.to_string()), ("3.50 s".to_owned(), "12.5 s".to_owned()));
        // Seven pairs of one sign happen by chance in 2 of 128 cases.
        assert_eq!(texts((0..15).map(as_f64)), [""; 0]);
    }

    #[test]
    fn negligible_drift_is_not_reported() {
        assert_eq!(texts((0..1000).map(|i| 1.0 + 1e-5 * f64::from(i))), [""; 0]);
    }

    proptest! {
        #[test]
        fn arbitrary_values_cause_no_panic(values in prop::collection::vec(finite(), 0..60)) {
            for text in texts(values) {
                prop_assert!(text.ends_with('.') && !text.contains('\n'));
            }
        }

        #[test]
        fn warnings_do_not_depend_on_scale(values in prop::collection::vec(0.5..9.0, 0..60), power in -20..20) {
            // Scale by powers of two, because this doesn't require rounding.
            let scaled: Vec<f64> = values.iter().map(|value| value * f64::from(power).exp2()).collect();
            prop_assert_eq!(texts(values).len(), texts(scaled).len());
        }
    }
}
