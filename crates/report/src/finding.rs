//! What was found out, what it costs, and what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Interval, Quantity, Sample, text};

/// Where a gain comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// It follows from other measurements.
    Predicted,
    /// With and without the remedy, in turn.
    Measured,
}

/// How much better something becomes by a remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// What becomes so many times as fast: `"commits"`, `"the suite"`.
    pub of: String,
    /// How many times as fast; 1 is no gain. Without an interval where only a point is known.
    pub factor: Factor,
    /// From where this is known.
    pub basis: Basis,
    /// What it takes now and with the remedy, where that is known.
    pub change: Option<[Quantity; 2]>,
}

/// A factor with its uncertainty, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Factor {
    /// With its 95 % confidence interval.
    Interval(Interval),
    /// An estimate of unknown uncertainty.
    Point(Quantity),
}

impl Factor {
    /// The median of ratios, with its interval if there are enough of them; `None` if there is none.
    #[must_use]
    pub fn of(ratios: &Sample) -> Option<Self> {
        Interval::of_median(ratios).map(Self::Interval).or_else(|| ratios.median().map(Self::Point))
    }

    /// The estimate.
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
    /// `commits 11.3 × [10.9 ×, 11.8 ×] as fast, predicted`.
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

/// A conclusion with its evidence, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What is the case, in a few words.
    pub name: String,
    /// From what this follows: a sentence with the figures.
    pub evidence: String,
    /// What the remedy gains; `None` where that is not a matter of speed, or not known.
    pub gain: Option<Gain>,
    /// What to do: one or two sentences.
    pub remedy: String,
}

impl Finding {
    /// The greatest gain first; what has none comes last, in the order in which it was found.
    pub fn rank(findings: &mut [Self]) {
        let factor = |finding: &Self| finding.gain.as_ref().map_or(0.0, |gain| gain.factor.point());
        findings.sort_by(|one, other| factor(other).total_cmp(&factor(one)));
    }

    /// For a terminal: the name, and below it gain, evidence and remedy, each on lines of at most `width` columns.
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
    fn the_greatest_gain_comes_first_and_none_last() {
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
    fn people_read_gain_evidence_and_remedy() {
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
