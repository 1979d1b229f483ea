//! Reads an earlier report's JSON.
//!
//! Users can profile a suite on one machine and pass the report to an examination on another machine.

use serde::Deserialize;

use crate::{Finding, Layer};

/// The parts of an earlier report that a new report can repeat.
#[derive(Debug, Clone, Deserialize)]
pub struct Earlier {
    /// The title of the earlier report.
    pub title: String,
    layers: Vec<Verdict>,
    /// The findings of the earlier report.
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, Deserialize)]
struct Verdict {
    name: String,
    verdict: String,
}

impl Earlier {
    /// Parses JSON produced by [`crate::Report::to_json`].
    ///
    /// # Errors
    /// Returns an error if `json` isn't in the report format.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Returns the layer called `name`, with its verdict but without its facts, or `None` if the report doesn't
    /// have this layer.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<Layer> {
        let found = self.layers.iter().find(|layer| layer.name == name)?;
        Some(Layer::new(&found.name, &found.verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::finding;
    use crate::layer::tests::disk;
    use crate::{Factor, Interval, Quantity, Report, Unit};

    #[test]
    fn verdicts_and_findings_are_read_back() {
        let mut certain = finding("commits wait", Some(4.0));
        let ratio = |value| Quantity::new(value, Unit::Ratio);
        let interval = Interval { low: ratio(3.0), point: ratio(4.0), high: ratio(5.0) };
        certain.gain.as_mut().unwrap().factor = Factor::Interval(interval);
        let findings = [certain, finding("or so", Some(2.0)), finding("all is well", None)];
        let mut report = Report::new("Doctor");
        report.add_layer(disk());
        report.add_findings(findings.clone());
        let earlier = Earlier::read(&report.to_json().to_string()).unwrap();
        assert_eq!(earlier.title, "Doctor");
        assert_eq!(earlier.findings, findings);
        assert_eq!(earlier.layer("Device").unwrap().verdict(), "It flushes.");
        assert!(earlier.layer("Suite").is_none());
    }

    #[test]
    fn invalid_report_is_refused() {
        for text in ["", "{}", "[1]", r#"{"title": 1, "layers": [], "findings": []}"#] {
            assert!(Earlier::read(text).is_err(), "{text}");
        }
    }
}
