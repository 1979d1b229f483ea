//! What a measured gain proves: that there is one, that there is none, or nothing.

use report::Factor;
use sys::Shortage;

/// A gain below this is not worth a change. Source: what is left of it in a suite that does more than commit.
pub(crate) const NOTICEABLE: f64 = 1.15;
/// Who may gain this much at the very most gains nothing worth a change.
const NEGLIGIBLE: f64 = 1.3;

/// What is known of a gain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Proof {
    /// There is one: its interval lies above 1.
    Gain(Factor),
    /// There is none worth a change: its interval lies below what is one.
    NoGain(Factor),
    /// Neither is shown, and why not.
    Unknown(Factor, String),
}

impl Proof {
    /// What `factor` proves, where a gain is one from `least` on. In a shortage of processors a gain may drown in the
    /// waiting for them.
    pub(crate) fn of(factor: Factor, least: f64, shortage: &Shortage) -> Self {
        match factor {
            Factor::Interval(interval) if interval.low.value > 1.0 && interval.point.value >= least => {
                Self::Gain(factor)
            }
            _ if shortage.is_severe() => Self::Unknown(factor, format!("processors were short, {shortage}")),
            Factor::Interval(interval) if interval.high.value < NEGLIGIBLE => Self::NoGain(factor),
            Factor::Interval(_) => Self::Unknown(factor, "the rounds differ too much".to_owned()),
            Factor::Point(_) => Self::Unknown(factor, "there were too few rounds".to_owned()),
        }
    }

    /// The gain, if it is proven.
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
    fn absence_of_proof_is_no_proof() {
        let proof = |low, point, high, disturbed| {
            Proof::of(interval(low, point, high), NOTICEABLE, &shortage(disturbed))
        };
        assert!(matches!(proof(1.1, 1.2, 1.5, false), Proof::Gain(_)));
        assert!(matches!(proof(1.1, 1.2, 1.5, true), Proof::Gain(_)));
        assert!(matches!(proof(0.9, 1.0, 1.2, false), Proof::NoGain(_)));
        assert!(matches!(proof(0.9, 1.0, 1.2, true), Proof::Unknown(..)));
        // 20.7 ms against 105 µs, and rounds in which it was the other way round.
        assert!(matches!(proof(0.8, 190.0, 210.0, false), Proof::Unknown(..)));
        assert!(matches!(proof(0.7, 1.0, 1.4, false), Proof::Unknown(..)));
        // Shown to be more than none, and too little.
        assert!(matches!(proof(1.01, 1.05, 1.1, false), Proof::NoGain(_)));
        let point = Factor::Point(Quantity::new(50.0, Unit::Ratio));
        assert!(matches!(Proof::of(point, NOTICEABLE, &shortage(false)), Proof::Unknown(..)));
    }

    proptest! {
        /// Rounds of a true gain with noise that is at most `noise` times as slow or as fast, either side by itself.
        #[test]
        fn nothing_is_proven_that_is_not_so(
            truth in prop_oneof![Just(1.0), 1.0..1.14, 1.5..3.0, 3.0..400.0_f64],
            noise in prop_oneof![Just(0.0), 0.0..0.1, 0.0..5.0_f64],
            rounds in prop::collection::vec((-1.0..1.0_f64, -1.0..1.0_f64), 12),
            disturbed in any::<bool>(),
        ) {
            let mut ratios = Sample::new("gain", Unit::Ratio);
            for (one, other) in rounds {
                ratios.push(truth * (noise * (one - other)).exp()).unwrap();
            }
            let proof = Proof::of(Factor::of(&ratios).unwrap(), NOTICEABLE, &shortage(disturbed));
            // The interval leaves out the truth once in twenty: what it says must hold within itself, and for little noise.
            match proof {
                Proof::Gain(factor) => prop_assert!(factor.point() >= NOTICEABLE),
                Proof::NoGain(factor) => prop_assert!(factor.point() < NEGLIGIBLE && !disturbed),
                Proof::Unknown(..) => prop_assert!(noise > 0.0 || disturbed || (NOTICEABLE..NEGLIGIBLE).contains(&truth)),
            }
            if noise < 0.1 && truth >= 1.5 {
                prop_assert!(matches!(proof, Proof::Gain(_)));
            }
        }
    }
}
