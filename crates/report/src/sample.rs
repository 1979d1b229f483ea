//! Represents samples (series of measured values) and computes their basic statistics.

use std::fmt;

use serde::Serialize;

use crate::{Quantity, Unit};

/// A series of measured values with a name and a unit. The values are all finite and remain in measurement order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    name: String,
    unit: Unit,
    values: Vec<f64>,
}

/// An error from adding a value to a sample or pairing two samples.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleError {
    /// The value is infinite or not a number.
    NotFinite {
        /// The sample's name.
        sample: String,
        /// The rejected value.
        value: f64,
    },
    /// The samples have different units.
    Units {
        /// The samples' names.
        samples: [String; 2],
        /// The samples' units.
        units: [Unit; 2],
    },
    /// The samples have different numbers of values.
    Lengths {
        /// The samples' names.
        samples: [String; 2],
        /// The numbers of values.
        lengths: [usize; 2],
    },
}

impl fmt::Display for SampleError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite { sample, value } => {
                write!(
                    formatter,
                    "cannot add {value} to sample \"{sample}\": a measurement is a finite number"
                )
            }
            Self::Units { samples: [one, other], units } => write!(
                formatter,
                "cannot pair sample \"{one}\" with \"{other}\": their units are {} and {}",
                units[0].name(),
                units[1].name()
            ),
            Self::Lengths { samples: [one, other], lengths } => write!(
                formatter,
                "cannot pair sample \"{one}\" with \"{other}\": they have {} and {} values",
                lengths[0], lengths[1]
            ),
        }
    }
}

impl std::error::Error for SampleError {}

impl Sample {
    /// Creates an empty sample.
    #[must_use]
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self { name: name.into(), unit, values: Vec::new() }
    }

    /// Appends a measured value, which must have the sample's unit. For example, a duration must be in seconds.
    ///
    /// # Errors
    /// Returns [`SampleError::NotFinite`] if `value` isn't finite, leaving the sample unchanged.
    pub fn push(&mut self, value: f64) -> Result<(), SampleError> {
        if !value.is_finite() {
            return Err(SampleError::NotFinite { sample: self.name.clone(), value });
        }
        self.values.push(value);
        Ok(())
    }

    /// Returns the name of the measured quantity.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the unit of all values.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns all values in measurement order, in [`Self::unit`].
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if the sample has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the minimum, or `None` for an empty sample.
    #[must_use]
    pub fn min(&self) -> Option<Quantity> {
        self.values.iter().copied().reduce(f64::min).map(|value| self.quantity(value))
    }

    /// Returns the maximum, or `None` for an empty sample.
    #[must_use]
    pub fn max(&self) -> Option<Quantity> {
        self.values.iter().copied().reduce(f64::max).map(|value| self.quantity(value))
    }

    /// Returns the arithmetic mean, or `None` for an empty sample. The median is usually the better choice, because a
    /// single outlier can change the mean a lot.
    #[must_use]
    pub fn mean(&self) -> Option<Quantity> {
        let n = as_f64(self.len());
        // Divide each value before adding, because the sum of large values can overflow.
        (!self.is_empty()).then(|| self.quantity(self.values.iter().map(|value| value / n).sum()))
    }

    /// Returns the middle value, or the mean of the two middle values if there is an even number of them. Returns
    /// `None` for an empty sample.
    #[must_use]
    pub fn median(&self) -> Option<Quantity> {
        median_of_sorted(&self.sorted()).map(|value| self.quantity(value))
    }

    /// Returns the smallest measured value such that at least `percent` % of all values are equal or smaller.
    ///
    /// Returns `None` for an empty sample or if `percent` isn't between 0 and 100.
    ///
    /// Source: the nearest-rank method, which is definition 1 of Hyndman and Fan, "Sample Quantiles in Statistical
    /// Packages", The American Statistician 50 (1996). For an even number of values, the 50th percentile is the lower
    /// of the two middle values, whereas the median is their mean.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<Quantity> {
        if self.is_empty() || !(0.0..=100.0).contains(&percent) {
            return None;
        }
        // A number such as 16.1 isn't a binary fraction. Without this tolerance, an error in its 16th digit would shift
        // the result by a whole rank.
        let rank = (percent * as_f64(self.len()) / 100.0 * (1.0 - 4.0 * f64::EPSILON)).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, from 0 to len")]
        let index = (rank as usize).saturating_sub(1);
        self.sorted().get(index).map(|value| self.quantity(*value))
    }

    /// Divides each value of this sample by the value at the same position in `base`. Returns the ratios.
    ///
    /// Measure both samples in turn (A B B A), so that a disturbance affects both values of a pair.
    /// [`crate::Interval::of_median`] of the result is then the interval of the gain. Note that the gain is the median
    /// of the ratios, not the ratio of the medians.
    ///
    /// # Errors
    /// Returns [`SampleError::Units`] or [`SampleError::Lengths`] if the samples don't match, or
    /// [`SampleError::NotFinite`] if a value of `base` is zero or so small that a ratio overflows.
    pub fn ratio_to(&self, base: &Self) -> Result<Self, SampleError> {
        let samples = || [self.name.clone(), base.name.clone()];
        if self.unit != base.unit {
            return Err(SampleError::Units { samples: samples(), units: [self.unit, base.unit] });
        }
        if self.len() != base.len() {
            return Err(SampleError::Lengths { samples: samples(), lengths: [self.len(), base.len()] });
        }
        let mut ratios = Self::new(format!("{} / {}", self.name, base.name), Unit::Ratio);
        for (value, base) in self.values.iter().zip(&base.values) {
            ratios.push(value / base)?;
        }
        Ok(ratios)
    }

    pub(crate) fn quantity(&self, value: f64) -> Quantity {
        Quantity::new(value, self.unit)
    }

    pub(crate) fn sorted(&self) -> Vec<f64> {
        sorted(self.values.clone())
    }
}

pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

pub(crate) fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len().is_multiple_of(2) {
        Some(sorted[sorted.len() / 2 - 1].midpoint(upper))
    } else {
        Some(upper)
    }
}

/// Converts a count to a float. The result is exact below 2⁵³, and no count is larger than that.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "see above")]
pub fn as_f64(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn sample(values: impl IntoIterator<Item = f64>) -> Sample {
        let mut sample = Sample::new("test", Unit::Seconds);
        values.into_iter().for_each(|value| sample.push(value).unwrap());
        sample
    }

    pub(crate) fn finite() -> impl Strategy<Value = f64> {
        use prop::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
        POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO
    }

    fn value(quantity: Option<Quantity>) -> f64 {
        quantity.unwrap().value
    }

    #[test]
    fn five_values_have_expected_statistics() {
        let sample = sample([15.0, 20.0, 35.0, 40.0, 50.0]);
        assert_eq!(sample.median(), Some(Quantity::new(35.0, Unit::Seconds)));
        assert!((value(sample.mean()) - 32.0).abs() < 1e-12);
        assert_eq!((sample.min(), sample.max()), (sample.percentile(0.0), sample.percentile(100.0)));
        // The standard example of the nearest-rank method: the 30th percentile is the second of five values.
        let expected = [15.0, 20.0, 20.0, 35.0, 50.0].map(|value| Some(Quantity::new(value, Unit::Seconds)));
        assert_eq!([5.0, 30.0, 40.0, 50.0, 100.0].map(|percent| sample.percentile(percent)), expected);
        assert_eq!([-0.1, 100.1, f64::NAN].map(|percent| sample.percentile(percent)), [None; 3]);
    }

    #[test]
    fn percentile_rank_survives_inexact_binary_fraction() {
        // In f64, 16.1 × 1000 / 100 is greater than 161.
        assert!((value(sample((1..=1000).map(as_f64)).percentile(16.1)) - 161.0).abs() < 0.5);
    }

    #[test]
    fn empty_sample_has_no_statistics() {
        let sample = sample([]);
        assert!(sample.is_empty());
        let all = [sample.median(), sample.mean(), sample.min(), sample.max(), sample.percentile(50.0)];
        assert_eq!(all, [None; 5]);
    }

    #[test]
    fn non_finite_value_is_refused_and_sample_unchanged() {
        let mut sample = sample([1.0]);
        assert_eq!(
            sample.push(f64::NAN).unwrap_err().to_string(),
            "cannot add NaN to sample \"test\": a measurement is a finite number"
        );
        assert!(sample.push(f64::INFINITY).is_err());
        assert_eq!(sample.values(), [1.0]);
    }

    #[test]
    fn ratios_require_samples_that_match() {
        let (slow, fast) = (sample([6.0, 9.0]), sample([2.0, 1.0]));
        let ratios = slow.ratio_to(&fast).unwrap();
        assert_eq!((ratios.values(), ratios.unit()), ([3.0, 9.0].as_slice(), Unit::Ratio));
        assert_eq!(
            slow.ratio_to(&sample([1.0])).unwrap_err().to_string(),
            "cannot pair sample \"test\" with \"test\": they have 2 and 1 values"
        );
        assert_eq!(
            slow.ratio_to(&ratios).unwrap_err().to_string(),
            "cannot pair sample \"test\" with \"test / test\": their units are seconds and ratio"
        );
        assert!(matches!(slow.ratio_to(&sample([1.0, 0.0])), Err(SampleError::NotFinite { .. })));
    }

    #[test]
    fn programs_get_every_value() {
        let json = serde_json::to_string(&sample([0.1, 1e-9])).unwrap();
        assert_eq!(json, r#"{"name":"test","unit":"seconds","values":[0.1,1e-9]}"#);
    }

    proptest! {
        #[test]
        fn median_lies_between_minimum_and_maximum(values in prop::collection::vec(finite(), 1..50)) {
            let sample = sample(values);
            let (min, max) = (value(sample.min()), value(sample.max()));
            let slack = 1e-12 * min.abs().max(max.abs());
            for middle in [sample.median(), sample.percentile(50.0), sample.mean()].map(value) {
                prop_assert!(min - slack <= middle && middle <= max + slack, "{} {} {}", min, middle, max);
            }
        }

        #[test]
        fn percentile_uses_the_exact_integer_rank(n in 1_usize..3000, tenths in 0_usize..=1000) {
            let sample = sample((1..=n).map(as_f64));
            let rank = (tenths * n).div_ceil(1000).max(1);
            let found = value(sample.percentile(as_f64(tenths) / 10.0));
            prop_assert!((found - as_f64(rank)).abs() < 0.5, "{} is not {}", found, rank);
        }
    }
}
