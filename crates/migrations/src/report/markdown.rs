//! Formats the report as Markdown, for a comment on a pull request.

use report::escape_markdown as escaped;

use super::{MigrationReport, ReportedStatement, words};

/// Maximum width of a statement, in columns.
const STATEMENT_WIDTH: usize = 300;
/// Maximum number of broken statements that the comment lists.
const MAX_FAILURES: usize = 20;

impl MigrationReport {
    /// Formats the report as GitHub Flavored Markdown. The first lines say whether the migration passes.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {}\n\n", escaped(&self.title()));
        for over in &self.over_budget {
            line(&mut text, &format!("- **Fails**: {}", escaped(&over.message)));
        }
        if let Some(suite) = self.suite.as_ref().filter(|suite| !suite.passes()) {
            line(&mut text, &format!("- **Fails**: {}", escaped(&suite.sentence())));
        }
        if self.passes() {
            line(&mut text, "- **Passes**");
        }
        line(&mut text, &format!("- {}", escaped(&self.summary())));
        for sentence in &self.run.waits {
            line(&mut text, &format!("- **Waits**: {}", escaped(sentence)));
        }
        let mut migration = None;
        for statement in self.shown() {
            let name = statement.migration.as_deref();
            if migration != Some(name) {
                let title = name.map_or_else(|| "Unnamed migration".to_owned(), escaped);
                line(&mut text, &format!("\n## {title}"));
                migration = Some(name);
            }
            self.add_markdown(&mut text, statement);
        }
        self.add_old_code(&mut text);
        let notes = self.assumptions.iter().map(|sentence| format!("assumed: {sentence}"));
        let notes: Vec<_> =
            notes.chain(self.unseen.iter().map(|sentence| format!("not seen: {sentence}"))).collect();
        if !notes.is_empty() {
            text += "\n<details><summary>Assumptions and limits</summary>\n\n";
            for note in notes {
                line(&mut text, &format!("- {}", escaped(&note)));
            }
            text += "\n</details>\n";
        }
        text
    }

    fn add_markdown(&self, text: &mut String, statement: &ReportedStatement) {
        let observed = &statement.observed;
        text.push_str(&code(&report::cut(&observed.sql, STATEMENT_WIDTH)));
        let facts = [words::effects(observed)].into_iter().chain(words::times(self, statement));
        let more = [
            words::failure_after_effects(observed),
            words::blocked(&statement.blocks),
            words::broken(&statement.breaks),
        ];
        for fact in facts.chain(more.into_iter().flatten()) {
            line(text, &format!("- {}", escaped(&fact)));
        }
        for advice in &statement.advice {
            let page = words::page(advice.topic);
            let (danger, instead) = (escaped(&advice.danger), escaped(&advice.instead));
            line(text, &format!("- {danger}. **Instead**: {instead} (`{page}`)"));
        }
        if let Some(reason) = &statement.exception {
            line(text, &format!("- **Allowed**: {}", escaped(reason)));
        }
    }

    fn add_old_code(&self, text: &mut String) {
        let Some(suite) = &self.suite else { return };
        line(text, &format!("\n## Old code\n\n{}", escaped(&suite.sentence())));
        for test in suite.failed_tests.iter().take(MAX_FAILURES) {
            line(text, &format!("- {}", escaped(test)));
        }
        for failure in suite.failures.iter().take(MAX_FAILURES) {
            text.push_str(&code(&report::cut(&failure.statement, STATEMENT_WIDTH)));
            line(text, &format!("- {}", escaped(&failure.error)));
        }
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Returns a code block with SQL. Its fence is longer than any run of backticks in the statement.
fn code(sql: &str) -> String {
    let longest = sql.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("\n{fence}sql\n{sql}\n{fence}\n\n")
}
