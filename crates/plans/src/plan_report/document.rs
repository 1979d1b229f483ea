//! Presents a suite's plans in a [`Report`].

use std::collections::BTreeMap;

use report::{
    Cell, Column, Finding, MeasuredTest, MeasuredTests, Quantity, Report, Table, Tile, Unit, as_f64,
};

use super::summary::cost_change;
use super::{PlanReport, count, json, test_list, without_columns};
use crate::numbers::{bytes, cost};
use crate::{BaselineChanges, ChangedPlan};

/// Maximum number of plans in the plan table.
const MAX_PLANS: usize = 200;
/// Maximum number of test names in a cell.
const MAX_NAMES: usize = 5;
/// Maximum length of a finding's name, in columns.
const NAME_WIDTH: usize = 100;

/// The plans of one test.
#[derive(Default)]
struct OfTest {
    statements: usize,
    cost: f64,
    notes: Vec<String>,
    failures: Vec<String>,
}

impl PlanReport {
    /// Returns a report that only contains these plans. `command` is the command that ran the tests.
    #[must_use]
    pub fn report(&self, command: &str) -> Report {
        let mut report = Report::new(format!("Production's plans of {command}"));
        report.add_tiles(self.tiles());
        self.add_to(&mut report, command);
        report
    }

    /// Adds all plans, findings and suggestions to a report on the same run.
    pub fn add_to(&self, report: &mut Report, command: &str) {
        report.add_environment("statistics", self.statistics.description());
        let major = self.statistics.major();
        report.add_environment("plans", format!("by PostgreSQL {}, production has {major}", self.postgres));
        report.add_findings(self.findings());
        let tables = [
            self.over_budget_table(),
            self.changes.as_ref().and_then(|changes| changes_table("Changed plans", &changes.changed)),
            self.suggestions_table(),
            self.plans_table(),
            self.unused_table(),
            self.unexplained_table(),
            self.changes.as_ref().and_then(|changes| changes_table("New statements", &changes.new)),
            self.changes.as_ref().and_then(|changes| changes_table("Vanished statements", &changes.vanished)),
        ];
        tables.into_iter().flatten().for_each(|table| report.add_table(table));
        let cause = self.changes.as_ref().and_then(|changes: &BaselineChanges| self.other_cause(changes));
        report.add_notes(self.left_out.iter().map(|line| format!("Statistics left out: {line}.")));
        report.add_notes(self.unseen.iter().map(|line| format!("Not seen: {line}.")));
        report.add_notes(self.analysis.notes.iter().chain(&cause));
        report.add_data("plans", self.plans_to_json());
        report.add_data("plan_facts", self.facts_to_json());
        if let Some(changes) = &self.changes {
            report.add_data("baseline", json::changes_to_json(changes));
        }
        report.merge_tests(self.tests(command));
    }

    fn tiles(&self) -> [Tile; 4] {
        let number = |number: usize| Quantity::new(as_f64(number as u64), Unit::Count);
        let analysis = &self.analysis;
        let time = Quantity::new(self.seconds, Unit::Seconds);
        [
            Tile::new("Statements", number(analysis.statements.len()), format!("explained in {time}")),
            Tile::new("Findings", number(analysis.findings.len()), "in their plans"),
            Tile::new("Suggested indexes", number(analysis.suggestions.len()), "for all statements together"),
            Tile::new("Over budget", number(self.over_budget.len()), "statements"),
        ]
    }

    fn findings(&self) -> impl Iterator<Item = Finding> {
        self.analysis.findings.iter().filter_map(|finding| {
            let statement = self.analysis.statements.get(finding.statement)?;
            let shown = report::cut(&without_columns(&statement.normalized), NAME_WIDTH);
            let tests = test_list(&finding.tests, MAX_NAMES);
            let change = &finding.change;
            let takes = if finding.suggestions.len() == 1 { "it takes" } else { "they take" };
            let remedy = match self.size(finding) {
                Some(size) => format!("{change}; {takes} about {}.", bytes(as_f64(size))),
                None => change.clone(),
            };
            Some(Finding {
                name: format!("{}: {shown}", finding.kind.title()),
                evidence: format!("{} Plan: {}. {tests}.", finding.evidence, Self::costs(finding)),
                gain: None,
                remedy,
            })
        })
    }

    fn suggestions_table(&self) -> Option<Table> {
        let words = ["index", "costs", "replaces"].map(Column::left);
        let numbers = ["size", "statements", "writers"].map(Column::right);
        let mut table = Table::new("Suggested indexes", words.into_iter().chain(numbers));
        for index in &self.analysis.suggestions {
            let best = index.gains.first().map(|gain| {
                let costs = cost_change(gain.before, gain.after);
                match self.sql(&gain.with) {
                    with if with.is_empty() => costs,
                    with => format!("{costs} with {with}"),
                }
            });
            let number = |number: usize| Cell::from(Quantity::new(as_f64(number as u64), Unit::Count));
            let replaces = (!index.replaces.is_empty()).then(|| index.replaces.join(", "));
            table.add_row([
                Cell::statement(index.sql.clone()),
                best.into(),
                replaces.into(),
                Quantity::new(as_f64(index.bytes), Unit::Bytes).into(),
                number(index.gains.len()),
                number(index.writers),
            ]);
        }
        (!self.analysis.suggestions.is_empty()).then_some(table)
    }

    fn plans_table(&self) -> Option<Table> {
        let words = ["statement", "plan", "tests"].map(Column::left);
        let numbers = ["cost", "rows", "sequential", "runs"].map(Column::right);
        let mut table = Table::new("Plans", words.into_iter().chain(numbers));
        let statements = &self.analysis.statements;
        for statement in statements.iter().take(MAX_PLANS) {
            let Some(worst) = statement.plans.first() else { continue };
            let number = |value: f64| Cell::from(Quantity::new(value.round(), Unit::Count));
            let sequential = worst.sequential.first().map(|read| as_f64(read.bytes));
            table.add_row([
                Cell::statement(statement.normalized.clone()),
                Cell::statement(worst.shape.to_string()),
                test_list(&statement.tests, MAX_NAMES).into(),
                number(worst.plan.root.total_cost),
                number(worst.plan.root.rows),
                sequential.map(|size| Quantity::new(size, Unit::Bytes)).into(),
                number(as_f64(statement.runs)),
            ]);
        }
        if statements.len() > MAX_PLANS {
            table.set_remark(format!(
                "The {MAX_PLANS} most expensive of {}; JSON has all.",
                count(statements.len(), "statement", "statements")
            ));
        }
        (!statements.is_empty()).then_some(table)
    }

    fn over_budget_table(&self) -> Option<Table> {
        let mut table = Table::new("Over budget", ["statement", "limits", "tests"].map(Column::left));
        for over in &self.over_budget {
            let Some(statement) = self.analysis.statements.get(over.statement) else { continue };
            table.add_row([
                Cell::statement(statement.normalized.clone()),
                over.limits.join("; ").into(),
                test_list(&statement.tests, MAX_NAMES).into(),
            ]);
        }
        (!self.over_budget.is_empty()).then_some(table)
    }

    fn unused_table(&self) -> Option<Table> {
        let mut table = Table::new("Unused indexes", [Column::left("index")]);
        table.set_remark("No statement of the suite uses them. Look at pg_stat_user_indexes of production before you drop one.");
        for index in &self.analysis.unused {
            table.add_row([Cell::from(index.as_str())]);
        }
        (!self.analysis.unused.is_empty()).then_some(table)
    }

    fn unexplained_table(&self) -> Option<Table> {
        let columns = [Column::left("cause"), Column::left("example"), Column::right("statements")];
        let mut table = Table::new("Statements without a plan", columns);
        for one in &self.analysis.unexplained {
            let number = Quantity::new(as_f64(one.count as u64), Unit::Count);
            table.add_row([one.cause.as_str().into(), Cell::statement(one.example.clone()), number.into()]);
        }
        (!self.analysis.unexplained.is_empty()).then_some(table)
    }

    /// Returns all tests with their plans. A test fails if one of its statements exceeds the budget, or if a plan
    /// differs from the baseline.
    fn tests(&self, command: &str) -> MeasuredTests {
        let mut tests: BTreeMap<&str, OfTest> = BTreeMap::new();
        let analysis = &self.analysis;
        for statement in &analysis.statements {
            let worst = statement.plans.first().map_or(0.0, |plan| plan.plan.root.total_cost);
            for test in &statement.tests {
                let of_test = tests.entry(test).or_default();
                of_test.statements += 1;
                of_test.cost = of_test.cost.max(worst);
            }
        }
        for finding in &analysis.findings {
            let Some(statement) = analysis.statements.get(finding.statement) else { continue };
            for test in &finding.tests {
                let note = format!("{}: {} {}", finding.kind.title(), statement.normalized, finding.evidence);
                tests.entry(test).or_default().notes.push(note);
            }
        }
        for over in &self.over_budget {
            let Some(statement) = analysis.statements.get(over.statement) else { continue };
            for test in &statement.tests {
                let failure = format!("{}: {}", over.limits.join("; "), statement.normalized);
                tests.entry(test).or_default().failures.push(failure);
            }
        }
        for change in self.changes.iter().flat_map(|changes| &changes.changed) {
            for test in &change.tests {
                let failure = format!("the plan differs from the baseline: {}", change.statement);
                tests.entry(test).or_default().failures.push(failure);
            }
        }
        let test = |(name, of_test): (&str, OfTest)| MeasuredTest {
            name: name.to_owned(),
            seconds: 0.0,
            properties: vec![
                ("explained_statements", of_test.statements.to_string()),
                ("highest_plan_cost", cost(of_test.cost).replace(',', "")),
            ],
            notes: of_test.notes,
            failure: (!of_test.failures.is_empty()).then(|| of_test.failures.join("; ")),
            skipped: None,
        };
        let tests = tests.into_iter().map(test).collect();
        MeasuredTests { name: command.to_owned(), seconds: 0.0, tests }
    }
}

fn changes_table(title: &str, changes: &[ChangedPlan]) -> Option<Table> {
    let mut table = Table::new(title, ["statement", "plan", "tests"].map(Column::left));
    for change in changes {
        let tests = (!change.tests.is_empty()).then(|| test_list(&change.tests, MAX_NAMES));
        table.add_row([
            Cell::statement(change.statement.clone()),
            Cell::statement(change.difference_text()),
            tests.into(),
        ]);
    }
    (!changes.is_empty()).then_some(table)
}
