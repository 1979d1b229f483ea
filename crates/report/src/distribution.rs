//! Represents distributions of measured values.
//!
//! A median can hide two peaks or a long tail, for example, so reports also show each sample as a histogram.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::sample::as_f64;
use crate::{Quantity, Sample, Unit, text};

/// Maximum number of bins in a histogram. On a terminal, each bin takes up one column.
pub(crate) const BINS: usize = 60;
/// The percentiles for JSON and CSV. 0 and 100 are the minimum and the maximum.
const PERCENTILES: [f64; 7] = [0.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0];
/// Characters for bars with a height of 0 to 8 eighths of a line.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Samples with the same unit, drawn one below the other on a shared logarithmic axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    pub(crate) title: String,
    pub(crate) samples: Vec<Sample>,
}

/// A logarithmic axis, from the smallest positive value of all samples to the largest 99.9th percentile.
///
/// A few values beyond that percentile would leave no room for the others. Values off the axis count toward the first
/// or last bin.
pub(crate) struct Axis {
    low: f64,
    high: f64,
    unit: Unit,
}

impl Axis {
    pub(crate) fn ends(&self) -> (Quantity, Quantity) {
        (Quantity::new(self.low, self.unit), Quantity::new(self.high, self.unit))
    }

    /// Returns a value's position on the axis, from 0 (the left end) to 1 (the right end).
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln());
        place.clamp(0.0, 1.0)
    }

    /// Returns the height of each of `bins` bins as a fraction of the fullest bin's height.
    pub(crate) fn shares(&self, sample: &Sample, bins: usize) -> Vec<f64> {
        let mut counts = vec![0_usize; bins];
        for value in sample.values() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to the number of bins"
            )]
            let bin = (self.place(*value) * as_f64(bins)) as usize;
            counts[bin.min(bins - 1)] += 1;
        }
        let most = counts.iter().copied().max().unwrap_or(0).max(1);
        counts.iter().map(|count| as_f64(*count) / as_f64(most)).collect()
    }
}

impl Distribution {
    /// Creates the distributions of `samples`, which must have the same unit. Empty samples are ignored.
    #[must_use]
    pub fn new(title: impl Into<String>, samples: impl IntoIterator<Item = Sample>) -> Self {
        let samples = samples.into_iter().filter(|sample| !sample.is_empty()).collect();
        Self { title: title.into(), samples }
    }

    /// Returns the axis, or `None` if no sample has a positive value.
    pub(crate) fn axis(&self) -> Option<Axis> {
        let positive = |value: &f64| *value > 0.0;
        let least =
            self.samples.iter().flat_map(Sample::values).copied().filter(positive).reduce(f64::min)?;
        let tops = self.samples.iter().filter_map(|sample| sample.percentile(99.9));
        let top = tops.map(|top| top.value).fold(least, f64::max);
        // Give the axis a nonzero length.
        let high = top.max(least * 1.1);
        Some(Axis { low: least, high, unit: self.samples[0].unit() })
    }

    /// Yields one object per sample: `{"title": …, "name": …, "unit": …, "count": …, "percentiles": {"50": …, …}}`.
    pub(crate) fn to_json(&self) -> impl Iterator<Item = Value> {
        self.samples.iter().map(|sample| {
            let percentiles = PERCENTILES
                .iter()
                .filter_map(|percent| Some((percent.to_string(), json!(sample.percentile(*percent)?.value))));
            let percentiles: Map<_, _> = percentiles.collect();
            json!({ "title": self.title, "name": sample.name(), "unit": sample.unit(), "count": sample.len(),
                "percentiles": percentiles })
        })
    }

    pub(crate) fn to_markdown(&self) -> String {
        format!("## {}\n\n```text\n{}```\n", text::markdown(&self.title), self.drawing(usize::MAX))
    }

    /// Yields the title, the sample's name, the percentile, the value and the unit for each percentile of each sample.
    pub(crate) fn cells(&self) -> impl Iterator<Item = [String; 5]> {
        self.samples.iter().flat_map(move |sample| {
            PERCENTILES.iter().filter_map(move |percent| {
                let value = sample.percentile(*percent)?.value.to_string();
                let (name, unit) = (sample.name().to_owned(), sample.unit().name().to_owned());
                Some([self.title.clone(), name, format!("p{percent}"), value, unit])
            })
        })
    }

    /// Formats the histograms and their title with lines of at most `columns` columns.
    pub(crate) fn to_text(&self, columns: usize) -> String {
        format!("{}\n{}", text::hang("", &self.title, columns), self.drawing(columns))
    }

    fn drawing(&self, columns: usize) -> String {
        let Some(axis) = self.axis() else { return "nothing was measured\n".to_owned() };
        let bins = (columns - 1).min(BINS);
        let mut lines = String::new();
        for sample in &self.samples {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
            let bar = |share: &f64| EIGHTHS[(share * 8.0).ceil() as usize];
            let bars: String = axis.shares(sample, bins).iter().map(bar).collect();
            lines.push_str(&format!("{}│{}\n", text::hang("", &caption(sample), columns), bars.trim_end()));
        }
        let (low, high) = axis.ends();
        let (low, mut high) = (low.to_string(), format!("{high}, logarithmic"));
        if text::width(&low) + text::width(&high) >= bins {
            high.truncate(high.len() - ", logarithmic".len());
        }
        let gap = bins.saturating_sub(text::width(&low) + text::width(&high));
        lines + &format!("└{}\n {low}{}{high}\n", "─".repeat(bins), " ".repeat(gap))
    }
}

/// Returns the caption above a sample's histogram.
pub(crate) fn caption(sample: &Sample) -> String {
    let of = |percent| sample.percentile(percent).map_or_else(String::new, |value| value.to_string());
    format!("{}: p50 {}, p99 {}, most {}", sample.name(), of(50.0), of(99.0), of(100.0))
}

impl fmt::Display for Distribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_text(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::tests::{finite, sample};

    fn of(values: impl IntoIterator<Item = f64>) -> Distribution {
        Distribution::new("Latency", [sample(values)])
    }

    #[test]
    fn bimodal_distribution_shows_peaks_at_their_ratio() {
        let distribution = of([0.001].repeat(900).into_iter().chain([0.1].repeat(100)));
        let text = distribution.to_string();
        let histogram = text.lines().nth(3).unwrap();
        assert_eq!((histogram.chars().nth(1), histogram.chars().last()), (Some('█'), Some('▁')), "{text}");
        assert_eq!(text::width(histogram), BINS + 1);
        assert!(text.contains("test: p50 1.00 ms, p99 100 ms, most 100 ms"), "{text}");
        let axis = distribution.axis().unwrap();
        assert!((axis.place(0.01) - 0.5).abs() < 1e-9);
        assert!(distribution.to_html().contains("<title>p99 100 ms</title>"));
    }

    #[test]
    fn single_outlier_does_not_stretch_the_axis() {
        let (_, high) = of((0..9999).map(|_| 0.001).chain([60.0])).axis().unwrap().ends();
        assert!(high.value < 0.01, "{high}");
    }

    #[test]
    fn empty_samples_draw_no_histogram() {
        assert_eq!(of([]).to_html(), "");
        assert!(of([]).to_string().contains("nothing was measured"));
    }

    #[test]
    fn json_and_csv_have_percentiles() {
        let json = of((1..=100).map(f64::from)).to_json().next().unwrap();
        assert_eq!((&json["percentiles"]["99"], &json["count"]), (&99.0.into(), &100.into()));
        assert_eq!(of([1.0]).cells().count(), PERCENTILES.len());
    }

    proptest! {
        #[test]
        fn anything_can_be_drawn(values in prop::collection::vec(finite(), 0..60), columns in 30_usize..200) {
            let distribution = of(values);
            for line in distribution.to_text(columns).lines() {
                prop_assert!(text::width(line) <= columns, "{}", line);
            }
            let picture = distribution.to_html();
            prop_assert!(!picture.contains("NaN"), "{}", picture);
        }
    }
}
