//! Decides whether a gain is significant.
//!
//! Advice based on noise wastes the user's time. Therefore, each gain counts as proven, disproven or unknown, and only
//! remedies with a proven gain are recommended.

use report::Factor;
use sys::Shortage;

/// Minimum gain that is worth a change. Most suites do other work besides committing, so they only achieve a part
/// of this gain.
pub(crate) const MIN_WORTHWHILE_GAIN: f64 = 1.15;
/// If the upper end of the interval is below this value, there can't be a worthwhile gain.
const MAX_NEGLIGIBLE_GAIN: f64 = 1.3;

/// The result of testing whether a gain is significant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Proof {
    /// There is a gain: the whole interval is above 1.
    Gain(Factor),
    /// There isn't a worthwhile gain: the whole interval is below [`MAX_NEGLIGIBLE_GAIN`].
    NoGain(Factor),
    /// The measurements prove neither of the two, for this reason.
    Unknown(Factor, String),
}

impl Proof {
    /// Tests whether `factor` proves a gain of at least `least`.
    ///
    /// A CPU shortage can hide a gain, so the result is never [`Self::NoGain`] during a severe shortage.
    pub(crate) fn of(factor: Factor, least: f64, shortage: &Shortage) -> Self {
        match factor {
            Factor::Interval(interval) if interval.low.value > 1.0 && interval.point.value >= least => {
                Self::Gain(factor)
            }
            _ if shortage.is_severe() => Self::Unknown(factor, format!("CPU time was short, {shortage}")),
            Factor::Interval(interval) if interval.high.value < MAX_NEGLIGIBLE_GAIN => Self::NoGain(factor),
            Factor::Interval(_) => Self::Unknown(factor, "the rounds differ too much".to_owned()),
            Factor::Point(_) => Self::Unknown(factor, "there were too few rounds".to_owned()),
        }
    }

    /// Returns the gain if the measurements prove it.
    pub(crate) fn gain(self) -> Option<Factor> {
        match self {
            Self::Gain(factor) => Some(factor),
            Self::NoGain(_) | Self::Unknown(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use report::{Interval, Quantity, Sample, Unit};

    use super::*;

    fn interval(low: f64, point: f64, high: f64) -> Factor {
        let [low, point, high] = [low, point, high].map(|value| Quantity::new(value, Unit::Ratio));
        Factor::Interval(Interval { low, point, high })
    }

    fn shortage(is_severe: bool) -> Shortage {
        Shortage { waited: is_severe.then_some(0.97), stolen: None }
    }

    #[test]
    fn unproven_gain_is_unknown() {
        let proof = |low, point, high, disturbed| {
            Proof::of(interval(low, point, high), MIN_WORTHWHILE_GAIN, &shortage(disturbed))
        };
        assert!(matches!(proof(1.1, 1.2, 1.5, false), Proof::Gain(_)));
        assert!(matches!(proof(1.1, 1.2, 1.5, true), Proof::Gain(_)));
        assert!(matches!(proof(0.9, 1.0, 1.2, false), Proof::NoGain(_)));
        assert!(matches!(proof(0.9, 1.0, 1.2, true), Proof::Unknown(..)));
        // The medians are 20.7 ms and 105 µs, but in some rounds the order was reversed.
        assert!(matches!(proof(0.8, 190.0, 210.0, false), Proof::Unknown(..)));
        assert!(matches!(proof(0.7, 1.0, 1.4, false), Proof::Unknown(..)));
        // Significantly greater than 1, but too small to be worthwhile.
        assert!(matches!(proof(1.01, 1.05, 1.1, false), Proof::NoGain(_)));
        let point = Factor::Point(Quantity::new(50.0, Unit::Ratio));
        assert!(matches!(Proof::of(point, MIN_WORTHWHILE_GAIN, &shortage(false)), Proof::Unknown(..)));
    }

    proptest! {
        /// Checks rounds with a known true gain. Each side has independent noise of up to a factor of e^`noise`.
        #[test]
        fn proof_agrees_with_interval_and_truth(
            truth in prop_oneof![Just(1.0), 1.0..1.14, 1.5..3.0, 3.0..400.0_f64],
            noise in prop_oneof![Just(0.0), 0.0..0.1, 0.0..5.0_f64],
            rounds in prop::collection::vec((-1.0..1.0_f64, -1.0..1.0_f64), 12),
            disturbed in any::<bool>(),
        ) {
            let mut ratios = Sample::new("gain", Unit::Ratio);
            for (one, other) in rounds {
                ratios.push(truth * (noise * (one - other)).exp()).unwrap();
            }
            let proof = Proof::of(Factor::of(&ratios).unwrap(), MIN_WORTHWHILE_GAIN, &shortage(disturbed));
            // The interval misses the truth once in twenty times. The result must always agree with the interval, and
            // if there is little noise, also with the truth.
            match proof {
                Proof::Gain(factor) => prop_assert!(factor.point() >= MIN_WORTHWHILE_GAIN),
                Proof::NoGain(factor) => prop_assert!(factor.point() < MAX_NEGLIGIBLE_GAIN && !disturbed),
                Proof::Unknown(..) => prop_assert!(noise > 0.0 || disturbed || (MIN_WORTHWHILE_GAIN..MAX_NEGLIGIBLE_GAIN).contains(&truth)),
            }
            if noise < 0.1 && truth >= 1.5 {
                prop_assert!(matches!(proof, Proof::Gain(_)));
            }
        }
    }
}
