//! Builds reports.
//!
//! A report contains everything that a command measured and concluded, together with the environment. It can be
//! formatted for a terminal, for a web page, or for programs.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::junit;
use crate::{Distribution, Finding, Layer, MeasuredTests, Plot, Sample, Table, Tile, text};

/// Maximum width of prose, in columns.
const PROSE_WIDTH: usize = 100;
/// Minimum width of a report on a terminal, in columns.
const MIN_WIDTH: usize = 30;

/// A measurement's results, with a title and the environment.
///
/// A report contains layers, findings, plots, distributions, tables and notes. It also contains every single measured
/// value, but only the machine-readable formats include these values.
///
/// `Display` formats the report as plain text. Its tables are as wide as their contents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    pub(crate) title: String,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) tiles: Vec<Tile>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) plots: Vec<Plot>,
    pub(crate) distributions: Vec<Distribution>,
    pub(crate) tables: Vec<Table>,
    pub(crate) notes: Vec<String>,
    samples: Vec<(String, Vec<Sample>)>,
    data: Vec<(&'static str, Value)>,
    tests: Option<MeasuredTests>,
    sarif: Option<Value>,
}

impl Report {
    /// Creates an empty report.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a fact about the environment, for example `"AMD EPYC 7B13"` under the key `"processor"`. Keys should be
    /// unique, because JSON only has one value per key.
    pub fn add_environment(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.environment.push((key.into(), value.into()));
    }

    /// Appends tiles.
    pub fn add_tiles(&mut self, tiles: impl IntoIterator<Item = Tile>) {
        self.tiles.extend(tiles);
    }

    /// Appends a layer.
    pub fn add_layer(&mut self, layer: Layer) {
        self.layers.push(layer);
    }

    /// Appends findings, which are presented in this order.
    pub fn add_findings(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
    }

    /// Appends a plot.
    pub fn add_plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    /// Appends a distribution.
    pub fn add_distribution(&mut self, distribution: Distribution) {
        self.distributions.push(distribution);
    }

    /// Adds all of a contender's measured values, one sample per phase. Only the machine-readable formats contain
    /// these values.
    pub fn add_samples(&mut self, name: impl Into<String>, phases: impl IntoIterator<Item = Sample>) {
        self.samples.push((name.into(), phases.into_iter().collect()));
    }

    /// Adds `value` to the JSON object under `key`. Other formats omit it.
    pub fn add_data(&mut self, key: &'static str, value: Value) {
        self.data.push((key, value));
    }

    /// Sets the tests for [`Self::to_junit`]. Other formats omit them.
    pub fn set_tests(&mut self, tests: MeasuredTests) {
        self.tests = Some(tests);
    }

    /// Adds measurements to the tests from [`Self::set_tests`]. Tests that are missing there are appended.
    pub fn merge_tests(&mut self, tests: MeasuredTests) {
        match &mut self.tests {
            Some(known) => known.merge(tests),
            None => self.tests = Some(tests),
        }
    }

    /// Sets the log for [`Self::to_sarif`]. Other formats omit it.
    pub fn set_sarif(&mut self, log: Value) {
        self.sarif = Some(log);
    }

    /// Returns the log from [`Self::set_sarif`] as text, or `null` if there is none.
    #[must_use]
    pub fn to_sarif(&self) -> String {
        format!("{:#}\n", self.sarif.as_ref().unwrap_or(&Value::Null))
    }

    /// Returns JUnit XML with a testcase for each test from [`Self::set_tests`]. A testcase contains how long the test
    /// took, but not whether the test runner reported it as passed.
    #[must_use]
    pub fn to_junit(&self) -> String {
        junit::render(self.tests.as_ref())
    }

    /// Appends a table.
    pub fn add_table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Appends notes, for example [`crate::Warning`]s.
    pub fn add_notes(&mut self, notes: impl IntoIterator<Item = impl fmt::Display>) {
        self.notes.extend(notes.into_iter().map(|note| note.to_string()));
    }

    /// Formats the report as GitHub Flavored Markdown, which users can paste into an issue.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut sections = vec![format!("# {}\n", text::markdown(&self.title))];
        sections.extend(section("## Layers\n\n", self.layers.iter().map(Layer::to_markdown)));
        let findings = (1..).zip(&self.findings).map(|(number, finding)| finding.to_markdown(number));
        sections.extend(section("## Findings\n\n", findings));
        sections.extend(self.plots.iter().map(Plot::to_markdown));
        sections.extend(self.distributions.iter().map(Distribution::to_markdown));
        sections.extend(self.tables.iter().map(Table::to_markdown));
        let notes = self.notes.iter().map(|note| format!("- {}\n", text::markdown(note)));
        sections.extend(section("## Notes\n\n", notes));
        let environment = self
            .environment
            .iter()
            .map(|(key, value)| format!("- {}: {}\n", text::markdown(key), text::markdown(value)));
        sections.extend(section("## Environment\n\n", environment));
        sections.join("\n")
    }

    /// Formats the report as CSV with the columns `section`, `row`, `column`, `value` and `unit`.
    ///
    /// Each value has its own line: each fact of a layer, each cell of a table, each note, and so on. A finding has
    /// lines for its name, its evidence, its factor and its remedy.
    ///
    /// All lines of a CSV file must have the same columns (RFC 4180, section 2), but the columns of a report's tables
    /// differ. With a line per value, the tables can share a file.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let head = ["section", "row", "column", "value", "unit"].map(str::to_owned);
        let cells = self.tables.iter().flat_map(Table::cells);
        let plain = |section: &str, row: usize, column: &str, value: &str| {
            [section, &row.to_string(), column, value, ""].map(str::to_owned)
        };
        let layers = self.layers.iter().flat_map(|layer| {
            let verdict = plain(layer.name(), 1, "verdict", layer.verdict());
            let facts = layer.values().map(|(name, value, unit)| {
                [layer.name(), "1", name, value.as_str(), unit].map(str::to_owned)
            });
            std::iter::once(verdict).chain(facts)
        });
        let findings = (1..).zip(&self.findings).flat_map(|(row, finding)| {
            let factor =
                finding.gain.as_ref().map_or_else(String::new, |gain| gain.factor.point().to_string());
            let words =
                [("name", &finding.name), ("evidence", &finding.evidence), ("remedy", &finding.remedy)];
            let gain = ["Findings", &row.to_string(), "gain", &factor, "ratio"].map(str::to_owned);
            let words = words.map(|(column, text)| plain("Findings", row, column, text));
            words.into_iter().chain((!factor.is_empty()).then_some(gain))
        });
        let notes = (1..).zip(&self.notes).map(|(row, note)| plain("Notes", row, "", note));
        let environment =
            (1..).zip(&self.environment).map(|(row, (key, value))| plain("Environment", row, key, value));
        std::iter::once(head)
            .chain(layers)
            .chain(findings)
            .chain(self.plots.iter().flat_map(Plot::cells))
            .chain(self.distributions.iter().flat_map(Distribution::cells))
            .chain(cells)
            .chain(notes)
            .chain(environment)
            .chain(self.sample_cells())
            .map(|line| text::csv(&line))
            .collect()
    }

    /// Yields the contender, the round (counted from 1), the phase, the value and the unit for each measured value.
    fn sample_cells(&self) -> impl Iterator<Item = [String; 5]> {
        let phases =
            self.samples.iter().flat_map(|(name, phases)| phases.iter().map(move |phase| (name, phase)));
        phases.flat_map(|(name, phase)| {
            (1..).zip(phase.values()).map(move |(round, value)| {
                let [round, value] = [round.to_string(), value.to_string()];
                [
                    format!("Samples: {name}"),
                    round,
                    phase.name().to_owned(),
                    value,
                    phase.unit().name().to_owned(),
                ]
            })
        })
    }

    /// Returns the report as a JSON object.
    ///
    /// The form is `{"title": …, "environment": {KEY: VALUE, …}, "layers": […], "findings": […], "plots": […],
    /// "distributions": […], "tables": […], "notes": […], "samples": [{"name": …, "phases": […]}, …]}`. For tables, see
    /// [`Table::to_json`]. A layer is `{"name": …, "verdict": …, "facts": {NAME: CELL, …}}`, and a phase is `{"name":
    /// …, "unit": …, "values": […]}`.
    ///
    /// Empty lists are included, except for distributions and samples. Callers can add further keys.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let environment: Map<_, _> =
            self.environment.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let tables: Vec<_> = self.tables.iter().map(Table::to_json).collect();
        let layers: Vec<_> = self.layers.iter().map(Layer::to_json).collect();
        let mut value = json!({ "title": self.title, "environment": environment, "layers": layers, "findings": self.findings,
            "plots": self.plots, "tables": tables, "notes": self.notes });
        if !self.distributions.is_empty() {
            value["distributions"] = self.distributions.iter().flat_map(Distribution::to_json).collect();
        }
        if !self.samples.is_empty() {
            let one = |(name, phases): &(String, Vec<Sample>)| json!({ "name": name, "phases": phases });
            value["samples"] = self.samples.iter().map(one).collect();
        }
        for (key, data) in &self.data {
            value[*key] = data.clone();
        }
        value
    }
}

/// Joins a section's lines below its heading. Returns `None` if there are no lines.
fn section(head: &str, lines: impl Iterator<Item = String>) -> Option<String> {
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| format!("{head}{lines}"))
}

impl Report {
    /// Formats the report for a terminal with `columns` columns, without colors. No line is longer than that.
    #[must_use]
    pub fn to_text(&self, columns: usize) -> String {
        let columns = columns.max(MIN_WIDTH);
        let prose = columns.min(PROSE_WIDTH);
        let title = text::plain(&self.title);
        let rule = "═".repeat(text::width(&title).min(columns));
        let mut sections = vec![format!("{}{rule}\n", text::hang("", &title, columns))];
        let margin = self.layers.iter().map(|layer| text::width(layer.name())).max().unwrap_or(0);
        let margin = margin.min(columns / 2);
        sections.extend(section("", self.layers.iter().map(|layer| layer.to_text(margin, prose))));
        let findings = (1..).zip(&self.findings).map(|(number, finding)| finding.to_text(number, prose));
        sections.extend(section("Findings\n\n", findings));
        sections.extend(self.plots.iter().map(|plot| plot.to_text(columns)));
        sections.extend(self.distributions.iter().map(|distribution| distribution.to_text(columns)));
        sections.extend(self.tables.iter().map(|table| table.to_text(columns)));
        sections.extend(section("Notes\n\n", self.notes.iter().map(|note| text::hang("- ", note, prose))));
        let keys: Vec<String> = self.environment.iter().map(|(key, _)| text::plain(key)).collect();
        let widest = keys.iter().map(|key| text::width(key)).max().unwrap_or(0).min(columns / 2);
        let environment = keys.iter().zip(&self.environment).map(|(key, (_, value))| {
            let lead = text::pad(&text::cut(key, widest), widest, text::Alignment::Left) + "  ";
            text::hang(&lead, value, columns)
        });
        sections.extend(section("Environment\n\n", environment));
        sections.join("\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_text(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::finding;
    use crate::layer::tests::disk;
    use crate::sample::tests::sample;
    use crate::table::tests::commits;
    use crate::text::tests::read_csv;

    fn report() -> Report {
        let mut report = Report::new("Settings");
        report.add_environment("processor", "AMD \"EPYC\"");
        report.add_environment("disk", "md0\u{1b}[2J");
        report.add_table(commits());
        report.add_notes(["fsync_off loses *data*."]);
        report
    }

    #[test]
    fn terminal_report_contains_all_parts() {
        let expected = format!(
            "Settings\n════════\n\n{}\nNotes\n\n- fsync_off loses *data*.\n\n\
             Environment\n\nprocessor  AMD \"EPYC\"\ndisk       md0 [2J\n",
            commits()
        );
        assert_eq!(report().to_string(), expected);
    }

    #[test]
    fn markdown_report_contains_all_parts() {
        let expected = format!(
            "# Settings\n\n{}\n## Notes\n\n- fsync\\_off loses \\*data\\*.\n\n\
             ## Environment\n\n- processor: AMD \"EPYC\"\n- disk: md0 \\[2J\n",
            commits().to_markdown()
        );
        assert_eq!(report().to_markdown(), expected);
    }

    #[test]
    fn csv_lines_have_equal_field_counts() {
        let lines = read_csv(&report().to_csv());
        assert_eq!(lines.len(), 1 + 2 * 4 + 1 + 2);
        assert!(lines.iter().all(|line| line.len() == 5));
        assert_eq!(lines[0], ["section", "row", "column", "value", "unit"]);
        assert_eq!(lines[2], ["Commit", "1", "median", "0.0118", "seconds"]);
        assert_eq!(lines[9], ["Notes", "1", "", "fsync_off loses *data*.", ""]);
        assert_eq!(lines[10], ["Environment", "1", "processor", "AMD \"EPYC\"", ""]);
    }

    #[test]
    fn json_report_contains_all_parts() {
        let expected = json!({
            "title": "Settings",
            "environment": {"processor": "AMD \"EPYC\"", "disk": "md0\u{1b}[2J"},
            "layers": [],
            "findings": [],
            "plots": [],
            "tables": [commits().to_json()],
            "notes": ["fsync_off loses *data*."],
        });
        assert_eq!(report().to_json(), expected);
    }

    #[test]
    fn every_format_has_layers_and_findings() {
        let mut report = Report::new("Doctor");
        report.add_layer(disk());
        report.add_findings([finding("commits wait", Some(4.0)), finding("all is well", None)]);
        assert_eq!(
            report.to_string(),
            "Doctor\n══════\n\nDevice  It flushes.\n        disk: vda; size: 2.00 TB\n\nFindings\n\n\
             1. commits wait\n   Gain: commits about 4.00 × as fast, predicted.\n   So it is.\n   Do it.\n\
             2. all is well\n   So it is.\n   Do it.\n"
        );
        let markdown = report.to_markdown();
        assert!(
            markdown.contains("## Layers\n\n- **Device**") && markdown.contains("\n2. **all is well.** So")
        );
        assert_eq!(report.to_json()["findings"][0]["gain"]["factor"]["value"], 4.0);
        assert_eq!(report.to_json()["layers"][0]["facts"]["disk"], "vda");
        let lines = read_csv(&report.to_csv());
        assert_eq!(lines.len(), 1 + 4 + 4 + 3);
        assert_eq!(lines[3], ["Device", "1", "size", "2000000000000", "bytes"]);
        assert_eq!(lines[8], ["Findings", "1", "gain", "4", "ratio"]);
    }

    #[test]
    fn csv_and_json_have_samples_and_distributions() {
        let mut report = report();
        let latency = sample([0.25, 0.5]);
        report.add_distribution(Distribution::new("Latency", [latency.clone()]));
        report.add_samples("commits", [latency]);
        assert!(report.to_string().contains("Latency\n\ntest: p50 250 ms"));
        assert!(report.to_markdown().contains("## Latency\n\n```text\n"));
        assert!(report.to_html("").contains("<svg class=\"chart\""));
        let json = report.to_json();
        assert_eq!(
            json["samples"][0],
            json!({"name": "commits", "phases": [
            {"name": "test", "unit": "seconds", "values": [0.25, 0.5]}]})
        );
        assert_eq!(json["distributions"][0]["percentiles"]["100"], 0.5);
        let lines = read_csv(&report.to_csv());
        assert!(lines.iter().all(|line| line.len() == 5));
        assert_eq!(lines.last().unwrap(), &["Samples: commits", "2", "test", "0.5", "seconds"]);
    }

    #[test]
    fn empty_report_sections_have_no_heading() {
        let report = Report::new("Nothing");
        assert_eq!(report.to_string(), "Nothing\n═══════\n");
        assert_eq!(report.to_markdown(), "# Nothing\n");
        assert_eq!(report.to_csv(), "section,row,column,value,unit\n");
    }
}
