//! Summarizes a suite's plans for a terminal, and formats the messages about budgets and the baseline.

use std::collections::HashMap;

use report::{cut, hang};

use super::{PlanReport, count, test_list, without_columns};
use crate::numbers::{bytes, cost};
use crate::{BaselineChanges, ChangedPlan, ExplainedStatement, OverPlanBudget, PlanFinding};

/// Maximum number of statements with findings, of findings for each statement, and of statements in a message.
const MAX_STATEMENTS: usize = 5;
const MAX_FINDINGS: usize = 3;
const MAX_MESSAGES: usize = 10;
/// Maximum number of names in a line.
const MAX_NAMES: usize = 3;
/// Maximum and minimum width of the summary in columns.
const WIDTH: usize = 120;
const MIN_WIDTH: usize = 40;

/// Lines of the summary. Most lines begin with a word that names their subject.
struct Lines {
    columns: usize,
    text: String,
}

impl Lines {
    fn new(columns: usize) -> Self {
        Self { columns: columns.clamp(MIN_WIDTH, WIDTH), text: String::new() }
    }

    /// Adds a text. Wraps it if it is too long for a line.
    fn add(&mut self, head: &str, text: &str) {
        self.text += &hang(&format!("{head:<9} "), text, self.columns);
    }

    /// Adds a text. Cuts it off if it is too long for a line.
    fn add_start(&mut self, head: &str, text: &str) {
        let lead = format!("{head:<9} ");
        self.text += &format!("{lead}{}\n", cut(text, self.columns - lead.len()));
    }

    fn add_blank(&mut self) {
        self.text.push('\n');
    }
}

impl PlanReport {
    /// Formats the summary for a terminal with `columns` columns, so that no line is longer.
    #[must_use]
    pub fn summary(&self, columns: usize) -> String {
        let mut lines = Lines::new(columns);
        lines.text +=
            &hang("", &format!("production's plans ({})", self.statistics.description()), lines.columns);
        lines.add("explained", &self.explained());
        let statements = self.statements_with_findings();
        for (statement, findings) in statements.iter().take(MAX_STATEMENTS) {
            self.add_statement(&mut lines, statement, findings);
        }
        lines.add_blank();
        if let Some(more) = statements.len().checked_sub(MAX_STATEMENTS + 1) {
            let more = count(more + 1, "more statement", "more statements");
            lines.add("…", &format!("{more} with findings: --report FILE has all"));
        }
        self.add_rest(&mut lines);
        if let Some(changes) = &self.changes {
            changes.summarize(&mut lines);
        }
        lines.text
    }

    fn explained(&self) -> String {
        let statements = count(self.analysis.statements.len(), "statement", "statements");
        let time = report::Quantity::new(self.seconds, report::Unit::Seconds);
        let findings = match self.analysis.findings.len() {
            0 => "no findings".to_owned(),
            findings => count(findings, "finding", "findings"),
        };
        format!("{statements} in {time} after the command; {findings}")
    }

    /// Returns the statements with findings, those with the most expensive finding first.
    fn statements_with_findings(&self) -> Vec<(&ExplainedStatement, Vec<&PlanFinding>)> {
        let mut order: Vec<usize> = Vec::new();
        let mut groups: HashMap<usize, Vec<&PlanFinding>> = HashMap::new();
        for finding in &self.analysis.findings {
            let group = groups.entry(finding.statement).or_default();
            if group.is_empty() {
                order.push(finding.statement);
            }
            group.push(finding);
        }
        let mut statement =
            |place: usize| Some((self.analysis.statements.get(place)?, groups.remove(&place)?));
        order.into_iter().filter_map(&mut statement).collect()
    }

    fn add_statement(&self, lines: &mut Lines, statement: &ExplainedStatement, findings: &[&PlanFinding]) {
        lines.add_blank();
        let tests = count(statement.tests.len(), "test", "tests");
        lines.add_start(&tests, &without_columns(&statement.normalized));
        for finding in findings.iter().take(MAX_FINDINGS) {
            let seconds = finding.seconds.map(|(from, to)| format!(" About {} a call.", seconds(from, to)));
            lines.add("", &format!("{}{}", finding.evidence, seconds.unwrap_or_default()));
            let change = &finding.change;
            match self.size(finding) {
                Some(size) => {
                    let size = bytes(report::as_f64(size));
                    lines.add("  →", &format!("{change}  ({}, about {size})", Self::costs(finding)));
                }
                None => lines.add("  →", change),
            }
        }
        if let Some(more) = findings.len().checked_sub(MAX_FINDINGS + 1) {
            lines.add("", &format!("… and {}", count(more + 1, "more finding", "more findings")));
        }
        let names: Vec<_> = statement.tests.iter().take(MAX_NAMES).map(String::as_str).collect();
        let more = if statement.tests.len() > MAX_NAMES { ", …" } else { "" };
        lines.add_start("  in", &format!("{}{more}", names.join(", ")));
    }

    fn add_rest(&self, lines: &mut Lines) {
        let Self { analysis, left_out, unseen, .. } = self;
        if !analysis.unused.is_empty() {
            let names = some(&analysis.unused);
            lines.add("unused", &format!("no statement of the suite uses {names}"));
        }
        let unexplained = analysis.unexplained.iter().map(|unexplained| {
            let statements = count(unexplained.count, "statement", "statements");
            format!("{statements}: {}", unexplained.cause)
        });
        let unexplained: Vec<_> = unexplained.collect();
        for (word, sentences) in [
            ("no plan", &unexplained),
            ("not seen", unseen),
            ("left out", left_out),
            ("note", &analysis.notes),
        ] {
            for (place, sentence) in sentences.iter().take(MAX_NAMES).enumerate() {
                lines.add(if place == 0 { word } else { "" }, sentence);
            }
            if let Some(more) = sentences.len().checked_sub(MAX_NAMES + 1) {
                lines.add("", &format!("… and {} more", more + 1));
            }
        }
    }

    /// Returns a message about plans that exceed the budget, or `None` if no plan does. The first line contains their
    /// number.
    #[must_use]
    pub fn budget_message(&self) -> Option<String> {
        let over = &self.over_budget;
        if over.is_empty() {
            return None;
        }
        let statements = count(over.len(), "statement exceeds", "statements exceed");
        let mut text = format!("{statements} the budget for production's plans");
        for OverPlanBudget { statement, limits } in over.iter().take(MAX_MESSAGES) {
            let Some(statement) = self.analysis.statements.get(*statement) else { continue };
            let shown = cut(&without_columns(&statement.normalized), WIDTH);
            text += &format!("\n{shown}\n    {}", limits.join("; "));
            text += &format!("\n    {}", test_list(&statement.tests, MAX_NAMES));
        }
        if over.len() > MAX_MESSAGES {
            text += &format!("\n… and {} more", over.len() - MAX_MESSAGES);
        }
        Some(text)
    }

    /// Returns a message about plans whose shape differs from the baseline in the file `name`, or `None` if no plan
    /// differs.
    #[must_use]
    pub fn baseline_message(&self, name: &str) -> Option<String> {
        let changes = self.changes.as_ref().filter(|changes| !changes.changed.is_empty())?;
        let statements =
            count(changes.changed.len(), "statement has a different plan", "statements have different plans");
        let mut text = format!("{statements} than in \"{name}\"");
        for change in changes.changed.iter().take(MAX_MESSAGES) {
            text += &format!("\n{}", cut(&without_columns(&change.statement), WIDTH));
            text += &change.difference("    ");
            text += &format!("\n    {}", test_list(&change.tests, MAX_NAMES));
        }
        if changes.changed.len() > MAX_MESSAGES {
            text += &format!("\n… and {} more", changes.changed.len() - MAX_MESSAGES);
        }
        if let Some(cause) = self.other_cause(changes) {
            text += &format!("\nDETAIL:  {cause}");
        }
        Some(text + "\nHINT:  If the new plans are right, write them with --update-baseline.")
    }

    /// Returns reasons, other than changed code, why plans may differ from the baseline.
    pub(super) fn other_cause(&self, changes: &BaselineChanges) -> Option<String> {
        let BaselineChanges { statistics, postgres, .. } = changes;
        let statistics = (*statistics != self.statistics.day).then(|| {
            format!(
                "The baseline has the plans for the statistics of {statistics}, and this run those for {}.",
                self.statistics.day
            )
        });
        let is_other = self.postgres.split('.').next() != Some(&postgres.to_string());
        let server = is_other.then(|| {
            format!("PostgreSQL {postgres} chose the baseline's plans, and {} these.", self.postgres)
        });
        let causes: Vec<_> = statistics.into_iter().chain(server).collect();
        (!causes.is_empty()).then(|| causes.join(" "))
    }
}

impl BaselineChanges {
    fn summarize(&self, lines: &mut Lines) {
        let Self { changed, new, vanished, .. } = self;
        let parts = [
            (changed, "with a different plan"),
            (new, "that the baseline lacks"),
            (vanished, "of the baseline that did not run"),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(list, _)| !list.is_empty())
            .map(|(list, what)| format!("{} {what}", count(list.len(), "statement", "statements")))
            .collect();
        let all = if parts.is_empty() { "all plans are the same".to_owned() } else { parts.join(", ") };
        lines.add("baseline", &all);
        for (word, list) in [("new", new), ("gone", vanished)] {
            for (place, change) in list.iter().take(MAX_NAMES).enumerate() {
                lines.add_start(if place == 0 { word } else { "" }, &without_columns(&change.statement));
            }
        }
    }
}

impl ChangedPlan {
    /// Returns a diff of both plans. Lines from the baseline begin with `-`, lines from this run with `+`, and equal
    /// lines at the start and the end with a space.
    fn difference(&self, indent: &str) -> String {
        let Self { before, after, .. } = self;
        let equal = |one: &mut dyn Iterator<Item = (&String, &String)>| {
            one.take_while(|(old, new)| old == new).count()
        };
        let first = equal(&mut before.iter().zip(after));
        let rest = before.len().min(after.len()) - first;
        let last = equal(&mut before.iter().rev().zip(after.iter().rev())).min(rest);
        let lines = |sign: &'static str, lines: &[String]| {
            lines.iter().flat_map(|line| ["\n", indent, sign, " ", line]).collect::<String>()
        };
        [
            lines(" ", &before[..first]),
            lines("-", &before[first..before.len() - last]),
            lines("+", &after[first..after.len() - last]),
            lines(" ", &before[before.len() - last..]),
        ]
        .concat()
    }

    /// Returns the diff of both plans without indentation.
    pub(super) fn difference_text(&self) -> String {
        self.difference("").trim_start_matches('\n').to_owned()
    }
}

/// Returns some names and the number of remaining names.
fn some(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(MAX_NAMES).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns a range of durations, such as `1.00 s to 20.0 s`.
fn seconds(from: f64, to: f64) -> String {
    let [from, to] = [from, to].map(|time| report::Quantity::new(time, report::Unit::Seconds).to_string());
    format!("{from} to {to}")
}

/// Describes a cost change in words.
pub(super) fn cost_change(before: f64, after: f64) -> String {
    format!("{} → {}", cost(before), cost(after))
}
