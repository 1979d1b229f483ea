//! Represents findings.
//!
//! A finding is what a user takes away from a report: a conclusion, the evidence for it, a remedy, and how much the
//! remedy gains.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Interval, Quantity, Sample, text};

/// Origin of a gain's factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Calculated from other measurements.
    Predicted,
    /// Measured with and without the remedy, in turn.
    Measured,
}

/// How much a remedy improves something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The thing that becomes faster, for example `"commits"` or `"the suite"`.
    pub of: String,
    /// How many times as fast it becomes. 1 means no change.
    pub factor: Factor,
    /// Origin of the factor.
    pub basis: Basis,
    /// The values before and after the remedy. `None` if only the factor is known.
    pub change: Option<[Quantity; 2]>,
}

/// How many times as fast something becomes, with or without uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Factor {
    /// An estimate with its 95 % confidence interval.
    Interval(Interval),
    /// An estimate of unknown uncertainty.
    Point(Quantity),
}

impl Factor {
    /// Returns the median of the ratios, with a confidence interval if there are at least 6 ratios. Returns `None` for
    /// an empty sample.
    #[must_use]
    pub fn of(ratios: &Sample) -> Option<Self> {
        Interval::of_median(ratios).map(Self::Interval).or_else(|| ratios.median().map(Self::Point))
    }

    /// Returns the estimated ratio alone, without the uncertainty. 1 means no difference.
    #[must_use]
    pub fn point(&self) -> f64 {
        match self {
            Self::Interval(interval) => interval.point.value,
            Self::Point(quantity) => quantity.value,
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval(interval) => interval.fmt(formatter),
            Self::Point(quantity) => write!(formatter, "about {quantity}"),
        }
    }
}

impl fmt::Display for Gain {
    /// Formats the gain, for example as `commits 11.3 × [10.9 ×, 11.8 ×] as fast, predicted`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, factor, basis, change } = self;
        let basis = match basis {
            Basis::Predicted => "predicted",
            Basis::Measured => "measured",
        };
        write!(formatter, "{of} {factor} as fast, {basis}")?;
        match change {
            Some([before, after]) => write!(formatter, ": {before} → {after}"),
            None => Ok(()),
        }
    }
}

/// A conclusion, with the evidence for it and a remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The conclusion in a few words.
    pub name: String,
    /// The evidence, in a sentence with figures.
    pub evidence: String,
    /// How much the remedy gains. `None` if the gain is unknown or the finding isn't about speed.
    pub gain: Option<Gain>,
    /// The remedy, in one or two sentences.
    pub remedy: String,
}

impl Finding {
    /// Sorts findings by their gain, largest first. Findings without a gain come last, in their previous order.
    pub fn rank(findings: &mut [Self]) {
        let factor = |finding: &Self| finding.gain.as_ref().map_or(0.0, |gain| gain.factor.point());
        findings.sort_by(|one, other| factor(other).total_cmp(&factor(one)));
    }

    /// Formats the finding for a terminal: the name, followed by the gain, the evidence and the remedy. Lines have at
    /// most `width` columns.
    pub(crate) fn to_text(&self, number: usize, width: usize) -> String {
        let lead = format!("{number}. ");
        let blank = " ".repeat(lead.len());
        let mut lines = text::hang(&lead, &self.name, width);
        let gain = self.gain.as_ref().map(|gain| format!("Gain: {gain}."));
        for paragraph in gain.iter().chain([&self.evidence, &self.remedy]) {
            lines += &text::hang(&blank, paragraph, width);
        }
        lines
    }

    pub(crate) fn to_markdown(&self, number: usize) -> String {
        let gain = self.gain.as_ref().map_or_else(String::new, |gain| format!(" Gain: {gain}."));
        let [name, evidence, remedy] =
            [&self.name, &self.evidence, &self.remedy].map(|part| text::markdown(part));
        format!("{number}. **{name}.**{} {evidence} {remedy}\n", text::markdown(&gain))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Unit;

    pub(crate) fn finding(name: &str, factor: Option<f64>) -> Finding {
        let gain = factor.map(|factor| Gain {
            of: "commits".to_owned(),
            factor: Factor::Point(Quantity::new(factor, Unit::Ratio)),
            basis: Basis::Predicted,
            change: None,
        });
        Finding { name: name.to_owned(), evidence: "So it is.".to_owned(), gain, remedy: "Do it.".to_owned() }
    }

    #[test]
    fn findings_are_ranked_by_gain() {
        let mut findings = [
            finding("none", None),
            finding("small", Some(1.1)),
            finding("great", Some(9.0)),
            finding("also none", None),
        ];
        Finding::rank(&mut findings);
        assert_eq!(findings.map(|finding| finding.name), ["great", "small", "none", "also none"]);
    }

    #[test]
    fn text_shows_gain_evidence_and_remedy() {
        let ratio = |value| Quantity::new(value, Unit::Ratio);
        let mut finding = finding("commits wait for the disk", Some(4.0));
        let gain = finding.gain.as_mut().unwrap();
        gain.factor = Factor::Interval(Interval { low: ratio(3.5), point: ratio(4.0), high: ratio(4.5) });
        gain.change = Some([Quantity::new(12.0, Unit::Seconds), Quantity::new(3.0, Unit::Seconds)]);
        assert_eq!(
            finding.to_text(1, 60),
            "1. commits wait for the disk\n   \
             Gain: commits 4.00 × [3.50 ×, 4.50 ×] as fast, predicted:\n   12.0 s → 3.00 s.\n   So it is.\n   Do it.\n"
        );
        let json = serde_json::json!(finding);
        assert_eq!(json["gain"]["factor"]["high"]["value"], 4.5);
        assert_eq!(json["gain"]["basis"], "predicted");
        assert!(
            finding
                .to_markdown(2)
                .starts_with("2. **commits wait for the disk.** Gain: commits 4.00 × \\[3.50")
        );
    }
}
