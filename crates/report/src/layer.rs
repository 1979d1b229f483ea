//! One layer of what was examined: what is to be thought of it, and what is known of it.

use serde_json::{Map, Value, json};

use crate::{Cell, text};

/// A layer of a system, such as its disk, with a sentence on it and facts that programs can read.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    name: String,
    verdict: String,
    facts: Vec<(String, Cell)>,
}

impl Layer {
    /// A layer with its name and one sentence, without facts yet.
    #[must_use]
    pub fn new(name: impl Into<String>, verdict: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: verdict.into(), facts: Vec::new() }
    }

    /// Adds what is known. Names should differ: JSON has one value for each. People do not read facts that are missing.
    pub fn add_fact(&mut self, name: impl Into<String>, value: impl Into<Cell>) {
        self.facts.push((name.into(), value.into()));
    }

    /// The layer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is to be thought of it.
    #[must_use]
    pub fn verdict(&self) -> &str {
        &self.verdict
    }

    pub(crate) fn known(&self) -> String {
        let known = self.facts.iter().filter(|(_, value)| *value != Cell::Missing);
        // A number stays on the line of its unit.
        let read = |value: &Cell| match value {
            Cell::Quantity(_) => value.read().replace(' ', text::NO_BREAK),
            _ => value.read(),
        };
        known.map(|(name, value)| format!("{name}: {}", read(value))).collect::<Vec<_>>().join("; ")
    }

    /// For a terminal: the name beside the sentence, and the facts below, on lines of at most `width` columns. Names
    /// are filled up to `margin` columns.
    pub(crate) fn to_text(&self, margin: usize, width: usize) -> String {
        let lead = text::pad(&self.name, margin, text::Alignment::Left) + "  ";
        let mut lines = text::hang(&lead, &self.verdict, width);
        let known = self.known();
        if !known.is_empty() {
            lines += &text::hang(&" ".repeat(margin + 2), &known, width);
        }
        lines
    }

    pub(crate) fn to_markdown(&self) -> String {
        let [name, verdict, known] = [&self.name, &self.verdict, &self.known()]
            .map(|part| text::markdown(&part.replace(text::NO_BREAK, " ")));
        let known = if known.is_empty() { known } else { format!(" ({known})") };
        format!("- **{name}**: {verdict}{known}\n")
    }

    pub(crate) fn to_json(&self) -> Value {
        let facts: Map<_, _> =
            self.facts.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
        json!({ "name": self.name, "verdict": self.verdict, "facts": facts })
    }

    /// For each fact: its name, value and unit.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, String, &'static str)> {
        self.facts.iter().map(|(name, value)| {
            let (value, unit) = value.value_and_unit();
            (name.as_str(), value, unit)
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Quantity, Unit};

    pub(crate) fn disk() -> Layer {
        let mut layer = Layer::new("Device", "It flushes.");
        layer.add_fact("disk", "vda");
        layer.add_fact("size", Quantity::new(2e12, Unit::Bytes));
        layer.add_fact("model", Cell::Missing);
        layer
    }

    #[test]
    fn people_read_what_is_known() {
        assert_eq!(disk().to_text(8, 40), "Device    It flushes.\n          disk: vda; size: 2.00 TB\n");
        assert_eq!(disk().to_markdown(), "- **Device**: It flushes. (disk: vda; size: 2.00 TB)\n");
        assert_eq!(Layer::new("Commit", "None.").to_text(8, 40), "Commit    None.\n");
    }

    #[test]
    fn programs_read_all() {
        let expected = json!({"name": "Device", "verdict": "It flushes.",
            "facts": {"disk": "vda", "size": {"value": 2e12, "unit": "bytes"}, "model": null}});
        assert_eq!(disk().to_json(), expected);
    }
}
