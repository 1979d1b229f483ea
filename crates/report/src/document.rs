//! Tables, notes and where they were measured: what a command hands out.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::{Table, text};

/// A titled list of tables and notes, with the environment in which they were measured.
///
/// Displayed as text for a terminal, without colours.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    title: String,
    environment: Vec<(String, String)>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

impl Report {
    /// A report without content yet.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), environment: Vec::new(), tables: Vec::new(), notes: Vec::new() }
    }

    /// Adds a fact that results depend on: `"processor"`, `"AMD EPYC 7B13"`. Keys should differ: JSON has one value for
    /// each.
    pub fn add_environment(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.environment.push((key.into(), value.into()));
    }

    /// Adds a table below the others.
    pub fn add_table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Adds sentences that people should read with the tables, such as [`crate::Warning`]s.
    pub fn add_notes(&mut self, notes: impl IntoIterator<Item = impl fmt::Display>) {
        self.notes.extend(notes.into_iter().map(|note| note.to_string()));
    }

    /// GitHub Flavored Markdown, to be pasted into a ticket: tables, then notes, then the environment.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut sections = vec![format!("# {}\n", text::markdown(&self.title))];
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

    /// One line for each cell of each table, and for each note and each fact of the environment, in the columns
    /// `section`, `row`, `column`, `value` and `unit`.
    ///
    /// Tables differ in their columns, but all lines of one CSV file have the same (RFC 4180, section 2): for a single
    /// table with its own columns there is [`Table::to_csv`].
    #[must_use]
    pub fn to_csv(&self) -> String {
        let head = ["section", "row", "column", "value", "unit"].map(str::to_owned);
        let cells = self.tables.iter().flat_map(Table::cells);
        let plain = |section: &str, row: usize, column: &str, value: &str| {
            [section, &row.to_string(), column, value, ""].map(str::to_owned)
        };
        let notes = (1..).zip(&self.notes).map(|(row, note)| plain("Notes", row, "", note));
        let environment =
            (1..).zip(&self.environment).map(|(row, (key, value))| plain("Environment", row, key, value));
        std::iter::once(head)
            .chain(cells)
            .chain(notes)
            .chain(environment)
            .map(|line| text::csv(&line))
            .collect()
    }

    /// `{"title": …, "environment": {KEY: VALUE, …}, "tables": […], "notes": […]}`, tables as by [`Table::to_json`].
    ///
    /// A value and not a string, so that callers can put their samples beside it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let environment: Map<_, _> =
            self.environment.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let tables: Vec<_> = self.tables.iter().map(Table::to_json).collect();
        json!({ "title": self.title, "environment": environment, "tables": tables, "notes": self.notes })
    }
}

/// The lines under their head; nothing if there are none.
fn section(head: &str, lines: impl Iterator<Item = String>) -> Option<String> {
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| format!("{head}{lines}"))
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = text::plain(&self.title);
        let mut sections = vec![format!("{title}\n{}\n", "═".repeat(text::width(&title)))];
        sections.extend(self.tables.iter().map(ToString::to_string));
        sections
            .extend(section("Notes\n\n", self.notes.iter().map(|note| format!("- {}\n", text::plain(note)))));
        let keys: Vec<String> = self.environment.iter().map(|(key, _)| text::plain(key)).collect();
        let widest = keys.iter().map(|key| text::width(key)).max().unwrap_or(0);
        let environment = keys.iter().zip(&self.environment).map(|(key, (_, value))| {
            format!("{}  {}\n", text::pad(key, widest, text::Alignment::Left), text::plain(value))
        });
        sections.extend(section("Environment\n\n", environment));
        formatter.write_str(&sections.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_terminal_gets_all_of_it() {
        let expected = format!(
            "Settings\n════════\n\n{}\nNotes\n\n- fsync_off loses *data*.\n\n\
             Environment\n\nprocessor  AMD \"EPYC\"\ndisk       md0 [2J\n",
            commits()
        );
        assert_eq!(report().to_string(), expected);
    }

    #[test]
    fn markdown_has_all_of_it() {
        let expected = format!(
            "# Settings\n\n{}\n## Notes\n\n- fsync\\_off loses \\*data\\*.\n\n\
             ## Environment\n\n- processor: AMD \"EPYC\"\n- disk: md0 \\[2J\n",
            commits().to_markdown()
        );
        assert_eq!(report().to_markdown(), expected);
    }

    #[test]
    fn csv_is_one_rectangle() {
        let lines = read_csv(&report().to_csv());
        assert_eq!(lines.len(), 1 + 2 * 4 + 1 + 2);
        assert!(lines.iter().all(|line| line.len() == 5));
        assert_eq!(lines[0], ["section", "row", "column", "value", "unit"]);
        assert_eq!(lines[2], ["Commit", "1", "median", "0.0118", "seconds"]);
        assert_eq!(lines[9], ["Notes", "1", "", "fsync_off loses *data*.", ""]);
        assert_eq!(lines[10], ["Environment", "1", "processor", "AMD \"EPYC\"", ""]);
    }

    #[test]
    fn json_has_all_of_it() {
        let expected = json!({
            "title": "Settings",
            "environment": {"processor": "AMD \"EPYC\"", "disk": "md0\u{1b}[2J"},
            "tables": [commits().to_json()],
            "notes": ["fsync_off loses *data*."],
        });
        assert_eq!(report().to_json(), expected);
    }

    #[test]
    fn what_is_empty_has_no_heading() {
        let report = Report::new("Nothing");
        assert_eq!(report.to_string(), "Nothing\n═══════\n");
        assert_eq!(report.to_markdown(), "# Nothing\n");
        assert_eq!(report.to_csv(), "section,row,column,value,unit\n");
    }
}
