//! Formats annotations for GitHub, which shows them beside the changed files. Source: GitHub's manual, "Workflow
//! commands".

use super::{MigrationReport, ReportedStatement, words};

impl MigrationReport {
    /// Returns a line for each exceeded budget, failure and piece of advice, in the format that GitHub's runner reads.
    /// Leaves out statements with an exception.
    #[must_use]
    pub fn to_annotations(&self) -> String {
        let mut lines = String::new();
        for (place, statement) in self.statements.iter().enumerate() {
            if statement.exception.is_some() {
                continue;
            }
            let over = self.over_budget.iter().filter(|over| over.statement == place);
            for message in over.map(|over| over.message.clone()).chain(words::failure(&statement.observed)) {
                lines += &self.annotation("error", statement, &message);
            }
            for advice in &statement.advice {
                let message = format!("{}. Instead: {}", advice.danger, advice.instead);
                lines += &self.annotation("warning", statement, &message);
            }
            if let Some(message) = words::broken(&statement.breaks) {
                lines += &self.annotation("warning", statement, &message);
            }
        }
        lines
    }

    fn annotation(&self, level: &str, statement: &ReportedStatement, message: &str) -> String {
        let line = statement.line.map(|line| format!("line={line},")).unwrap_or_default();
        let file = self.file_of(statement).map(|file| format!("file={},{line}", property(file)));
        let title = property(&report::cut(&statement.observed.sql, 80));
        format!("::{level} {}title={title}::{}\n", file.unwrap_or_default(), data(message))
    }
}

/// Escapes a message, whose line breaks would otherwise end the annotation.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property value, where colons and commas are separators.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
