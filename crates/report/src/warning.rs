//! Warnings about doubtful samples: outliers, and drift during the measurement.

use std::f64::consts::FRAC_PI_2;
use std::fmt;

use crate::sample::{as_f64, median_of_sorted, sorted};
use crate::{Quantity, Sample, binomial};

/// Modified Z-score beyond which a value is an outlier.
const OUTLYING: f64 = 3.5;

/// Smallest sample for which the authors tested the modified Z-score.
const FEWEST_FOR_OUTLIERS: usize = 10;

/// Rate of false drift warnings. Reports show many samples, so the usual 5 % would be too many.
const FALSE_ALARMS: f64 = 0.01;

/// Share of the median below which drift is not reported, because even tiny drift is significant in large samples.
const NEGLIGIBLE_DRIFT: f64 = 0.01;

/// Reason to doubt a sample. `Display` formats it as one sentence.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// At least 1 % of the values are far from the median. Any large sample has a smaller share of such values.
    ///
    /// Far means a modified Z-score, 0.6745 (x - median) / MAD, beyond ±3.5, where MAD is the median distance from the
    /// median. If more than half of the values are equal, MAD is zero. Then √(π/2) times the mean distance replaces MAD
    /// / 0.6745: for normal values, both estimate the standard deviation. Samples with fewer than 10 values never get
    /// this warning.
    ///
    /// Source: Iglewicz and Hoaglin, "How to Detect and Handle Outliers", ASQC (1993), section 3.3.
    Outliers {
        /// Name of the sample.
        sample: String,
        /// Number of outliers.
        count: usize,
        /// Number of values.
        of: usize,
        /// Median of the sample.
        median: Quantity,
        /// Outlier farthest from the median.
        farthest: Quantity,
    },
    /// The second half differs from the first: the warm-up was too short, or something fills up, heats up or ages.
    ///
    /// The test compares each value of the first half with its partner in the second (x₁ with x₁₊ₖ and so on), ignoring
    /// the middle value of an odd number. It is a two-sided sign test at a level of 1 %; equal partners do not count.
    /// Differences of the medians below 1 % are not reported. Fewer than 16 values cannot be significant. The test
    /// assumes independent values, so slow waves such as checkpoints can trigger it too.
    ///
    /// Source: Cox and Stuart, "Some quick sign tests for trend in location and dispersion", Biometrika 42 (1955).
    Drift {
        /// Name of the sample.
        sample: String,
        /// Median of the first half.
        first: Quantity,
        /// Median of the second half.
        second: Quantity,
        /// Probability that a sample without drift looks at least this much like one with drift; 0 to 0.01.
        p: f64,
    },
}

impl Warning {
    /// Returns all warnings about `sample`. Small samples get none; there, a missing or wide interval shows the
    /// uncertainty.
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

    /// `n` values near 1 without trend or outlier: the golden ratio's multiples spread evenly over 0 to 1.
    fn steady(n: usize) -> impl Iterator<Item = f64> {
        (0..n).map(|i| 1.0 + 0.1 * (as_f64(i) * 0.618_034).fract())
    }

    fn texts(values: impl IntoIterator<Item = f64>) -> Vec<String> {
        Warning::of(&sample(values)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nothing_is_said_of_steady_values() {
        for n in [0, 1, 2, 9, 10, 15, 16, 100, 1001] {
            assert_eq!(texts(steady(n)), [""; 0], "{n} values");
        }
    }

    #[test]
    fn outliers_are_counted_and_the_farthest_is_named() {
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
    fn an_outlier_among_equal_values_is_found() {
        let found = Warning::of(&sample([10.0; 9].into_iter().chain([100.0])));
        assert!(matches!(found[..], [Warning::Outliers { count: 1, of: 10, .. }]), "{found:?}");
        assert_eq!(texts([10.0; 100]), [""; 0]);
        // The mean distance is 0.3, so the limit is 3.5 × 1.2533 × 0.3 = 1.316.
        assert_eq!(texts([10.0; 7].into_iter().chain([11.0; 3])), [""; 0]);
    }

    #[test]
    fn few_values_and_small_shares_are_left_alone() {
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
    fn the_probability_is_that_of_the_sign_test() {
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
        fn any_values_can_be_judged(values in prop::collection::vec(finite(), 0..60)) {
            for text in texts(values) {
                prop_assert!(text.ends_with('.') && !text.contains('\n'));
            }
        }

        #[test]
        fn scale_does_not_change_the_judgement(values in prop::collection::vec(0.5..9.0, 0..60), power in -20..20) {
            // Powers of two scale without rounding.
            let scaled: Vec<f64> = values.iter().map(|value| value * f64::from(power).exp2()).collect();
            prop_assert_eq!(texts(values).len(), texts(scaled).len());
        }
    }
}
