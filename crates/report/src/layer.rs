//! Represents the layers of an examined system.
//!
//! A suite can be slow because of the disk, the file system or the settings, for example. A report describes each of
//! these layers with a verdict and facts.

use serde_json::{Map, Value, json};

use crate::{Cell, text};

/// A layer of a system, such as its disk, with a sentence for humans and facts for programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    name: String,
    verdict: String,
    facts: Vec<(String, Cell)>,
}

impl Layer {
    /// Creates a layer without facts. `verdict` is a single sentence.
    #[must_use]
    pub fn new(name: impl Into<String>, verdict: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: verdict.into(), facts: Vec::new() }
    }

    /// Adds a fact. Names should be unique, because JSON only has one value per key. Human-readable formats omit facts
    /// without a value.
    pub fn add_fact(&mut self, name: impl Into<String>, value: impl Into<Cell>) {
        self.facts.push((name.into(), value.into()));
    }

    /// Returns the layer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the layer's verdict.
    #[must_use]
    pub fn verdict(&self) -> &str {
        &self.verdict
    }

    /// Yields the facts that have a value.
    pub(crate) fn known_facts(&self) -> impl Iterator<Item = (&str, &Cell)> {
        let known = self.facts.iter().filter(|(_, value)| *value != Cell::Missing);
        known.map(|(name, value)| (name.as_str(), value))
    }

    /// Returns all known facts on a single line.
    fn list_facts(&self) -> String {
        // Use no-break spaces so that a number and its unit stay on the same line.
        let read = |value: &Cell| match value {
            Cell::Quantity(_) => value.to_human_text().replace(' ', text::NO_BREAK),
            _ => value.to_human_text(),
        };
        let known = self.known_facts().map(|(name, value)| format!("{name}: {}", read(value)));
        known.collect::<Vec<_>>().join("; ")
    }

    /// Formats the layer for a terminal, with the name and the verdict side by side and the facts below them. Lines
    /// have at most `width` columns. The name takes up `margin` of these columns.
    pub(crate) fn to_text(&self, margin: usize, width: usize) -> String {
        let lead = text::pad(&text::cut(&self.name, margin), margin, text::Alignment::Left) + "  ";
        let mut lines = text::hang(&lead, &self.verdict, width);
        let known = self.list_facts();
        if !known.is_empty() {
            lines += &text::hang(&" ".repeat(margin + 2), &known, width);
        }
        lines
    }

    pub(crate) fn to_markdown(&self) -> String {
        let [name, verdict, known] = [&self.name, &self.verdict, &self.list_facts()]
            .map(|part| text::markdown(&part.replace(text::NO_BREAK, " ")));
        let known = if known.is_empty() { known } else { format!(" ({known})") };
        format!("- **{name}**: {verdict}{known}\n")
    }

    pub(crate) fn to_json(&self) -> Value {
        let facts: Map<_, _> =
            self.facts.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
        json!({ "name": self.name, "verdict": self.verdict, "facts": facts })
    }

    /// Yields each fact's name, value and unit.
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
    fn text_shows_known_facts_only() {
        assert_eq!(disk().to_text(8, 40), "Device    It flushes.\n          disk: vda; size: 2.00 TB\n");
        assert_eq!(disk().to_markdown(), "- **Device**: It flushes. (disk: vda; size: 2.00 TB)\n");
        assert_eq!(Layer::new("Commit", "None.").to_text(8, 40), "Commit    None.\n");
    }

    #[test]
    fn json_layer_has_missing_facts() {
        let expected = json!({"name": "Device", "verdict": "It flushes.",
            "facts": {"disk": "vda", "size": {"value": 2e12, "unit": "bytes"}, "model": null}});
        assert_eq!(disk().to_json(), expected);
    }
}
