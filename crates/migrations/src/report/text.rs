//! Formats the report as text for a terminal.

use report::{counted, cut, hang};

use super::{MigrationReport, ReportedStatement, StatementAdvice, words};

/// Maximum and minimum line width, in columns.
const WIDTH: usize = 120;
const MIN_WIDTH: usize = 50;
/// Indentation of a statement, and of the lines that describe it.
const STATEMENT: &str = "  ";
const ABOUT: &str = "      ";
/// Maximum number of failed tests and of failed statements that the text lists.
const MAX_TESTS: usize = 20;
const MAX_FAILURES: usize = 10;
/// Heading for statements whose migration is unknown.
const UNKNOWN: &str = "unnamed migration";

/// Collects the lines of the report.
struct Lines {
    columns: usize,
    text: String,
}

impl Lines {
    fn add(&mut self, lead: &str, text: &str) {
        self.text += &hang(lead, text, self.columns);
    }

    fn add_start(&mut self, lead: &str, text: &str) {
        self.text += &format!("{lead}{}\n", cut(text, self.columns.saturating_sub(lead.len())));
    }
}

impl MigrationReport {
    /// Formats the report for a terminal that is `columns` wide. The text lists the statements that others have to wait
    /// for, grouped by migration, and then the exceeded budgets. Each line ends with a line feed.
    #[must_use]
    pub fn to_text(&self, columns: usize) -> String {
        let mut lines = Lines { columns: columns.clamp(MIN_WIDTH, WIDTH), text: String::new() };
        let mut migration = None;
        let mut given: Vec<&StatementAdvice> = Vec::new();
        for statement in self.shown() {
            let name = statement.migration.as_deref().unwrap_or(UNKNOWN);
            if migration != Some(name) {
                lines.add("", name);
                (migration, given) = (Some(name), Vec::new());
            }
            self.add_statement(&mut lines, statement, &mut given);
        }
        if !lines.text.is_empty() {
            lines.text.push('\n');
        }
        lines.add("", &self.summary());
        self.add_suite(&mut lines);
        for sentence in &self.run.waits {
            lines.add("waits: ", sentence);
        }
        for sentence in &self.assumptions {
            lines.add("assumed: ", sentence);
        }
        for sentence in &self.unseen {
            lines.add("not seen: ", sentence);
        }
        for over in &self.over_budget {
            lines.add("fails: ", &over.message);
        }
        lines.text
    }

    /// Yields the statements that the report must show.
    pub(super) fn shown(&self) -> impl Iterator<Item = &ReportedStatement> {
        self.statements.iter().filter(|statement| !statement.is_bookkeeping && !statement.is_quiet())
    }

    fn add_statement<'a>(
        &self,
        lines: &mut Lines,
        statement: &'a ReportedStatement,
        given: &mut Vec<&'a StatementAdvice>,
    ) {
        let observed = &statement.observed;
        lines.add_start(STATEMENT, &observed.sql);
        lines.add(ABOUT, &words::effects(observed));
        for line in words::times(self, statement) {
            lines.add(ABOUT, &line);
        }
        let sentences = [
            words::failure_after_effects(observed),
            words::blocked(&statement.blocks),
            words::broken(&statement.breaks),
        ];
        for sentence in sentences.iter().flatten() {
            lines.add(ABOUT, sentence);
        }
        for advice in &statement.advice {
            lines.add(ABOUT, &advice.danger);
            let is_given =
                given.iter().any(|other| (other.topic, &other.instead) == (advice.topic, &advice.instead));
            let instead = if is_given { "as above" } else { &advice.instead };
            lines.add(&format!("{ABOUT}instead: "), &format!("{instead} ({})", words::page(advice.topic)));
            given.push(advice);
        }
        if let Some(reason) = &statement.exception {
            lines.add(&format!("{ABOUT}allowed: "), reason);
        }
    }

    /// Returns a sentence that summarizes the run, without a full stop.
    pub(super) fn summary(&self) -> String {
        let ours = || self.statements.iter().filter(|statement| !statement.is_bookkeeping);
        let changes = || ours().filter(|statement| !statement.is_quiet() || !statement.is_about_session());
        let migrations: std::collections::BTreeSet<_> =
            ours().filter_map(|one| one.migration.as_ref()).collect();
        let statements = counted(changes().count(), "statement", "statements");
        let of = match migrations.len() {
            0 => String::new(),
            many => format!(" of {}", counted(many, "migration", "migrations")),
        };
        let quiet = changes().filter(|statement| statement.is_quiet()).count();
        let quiet = if quiet == 0 { String::new() } else { format!(", {quiet} that nothing waits for") };
        let mut sentence = format!("{statements}{of}{quiet}, since {}", self.run.base);
        if changes().count() == 0 {
            sentence = format!("no migration since {}", self.run.base);
        }
        if self.run.is_interrupted {
            sentence += "; interrupted";
        } else if self.run.exit_code != 0 {
            sentence += &format!("; the command failed with exit code {}", self.run.exit_code);
        }
        match &self.run.production {
            Some(production) => sentence + &format!("; sizes of production: {production}"),
            None => sentence,
        }
    }

    fn add_suite(&self, lines: &mut Lines) {
        let Some(suite) = &self.suite else { return };
        lines.add("", &suite.sentence());
        for test in suite.failed_tests.iter().take(MAX_TESTS) {
            lines.add_start(&format!("{STATEMENT}failed: "), test);
        }
        for failure in suite.failures.iter().take(MAX_FAILURES) {
            lines.add_start(STATEMENT, &failure.statement);
            lines.add(ABOUT, &failure.error);
        }
    }
}

impl super::SuiteOutcome {
    /// Returns the suite's result as a sentence without a full stop.
    pub(super) fn sentence(&self) -> String {
        let Self { command, exit_code, exit_code_before, failures, failed_tests } = self;
        match (exit_code, exit_code_before) {
            (0, _) => format!("old code: {command} passes on the migrated database"),
            (_, Some(0) | None) => {
                format!("old code: {command} fails on the migrated database (exit code {exit_code})")
            }
            _ if !self.could_run() => {
                format!("old code: {command} cannot be run (exit code {exit_code})")
            }
            (_, Some(_)) if failures.is_empty() && failed_tests.is_empty() => {
                format!("old code: {command} fails before the migration and after it, with the same errors")
            }
            (_, Some(_)) => format!(
                "old code: {command} fails before the migration, too; {} and {} only on the migrated database",
                counted(failed_tests.len(), "test", "tests"),
                counted(failures.len(), "statement", "statements")
            ),
        }
    }
}
