//! Converts the report to a [`Report`], for the formats that all commands share.

use report::{
    Cell, Column, Finding, MeasuredTest, MeasuredTests, Quantity, Report, Table, Tile, Unit, as_f64,
};

use super::{MigrationReport, ReportedStatement, words};

/// Maximum width of a finding's name, in columns.
const NAME_WIDTH: usize = 100;
/// Test name for statements whose migration is unknown.
const UNKNOWN: &str = "unnamed migration";

impl MigrationReport {
    /// Returns the report for JSON, HTML, CSV, JUnit and SARIF.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::new(self.title());
        report.add_environment("base", &self.run.base);
        report.add_environment("command", &self.run.command);
        report.add_environment("PostgreSQL", &self.run.postgres);
        if let Some(production) = &self.run.production {
            report.add_environment("production", production);
        }
        report.add_tiles(self.tiles());
        report.add_findings(self.findings());
        let tables = [
            self.over_budget_table(),
            self.statements_table(),
            self.suite_statements("Statements of the suite that wait", |one| {
                one.blocks.iter().map(|blocked| {
                    let why =
                        format!("wants {} on {}, {} is held", blocked.wants, blocked.relation, blocked.held);
                    [blocked.statement.clone(), why, blocked.tests.join(", ")]
                })
            }),
            self.suite_statements("Statements of the suite that fail afterwards", |one| {
                one.breaks
                    .iter()
                    .map(|broken| [broken.statement.clone(), broken.error.clone(), broken.tests.join(", ")])
            }),
            self.old_code_table(),
        ];
        tables.into_iter().flatten().for_each(|table| report.add_table(table));
        report.add_notes(self.suite.iter().map(super::SuiteOutcome::sentence));
        report.add_notes(self.run.waits.iter().map(|sentence| format!("Waits: {sentence}")));
        report.add_notes(self.assumptions.iter().map(|sentence| format!("Assumed: {sentence}")));
        report.add_notes(self.unseen.iter().map(|sentence| format!("Not seen: {sentence}")));
        self.to_json().into_iter().for_each(|(key, value)| report.add_data(key, value));
        report.set_sarif(self.to_sarif());
        report.merge_tests(self.tests());
        report
    }

    pub(super) fn title(&self) -> String {
        format!("Migrations since {}", self.run.base)
    }

    fn tiles(&self) -> [Tile; 4] {
        let number = |number: usize| Quantity::new(as_f64(number as u64), Unit::Count);
        let ours = || self.statements.iter().filter(|statement| !statement.is_bookkeeping);
        let advised = ours().filter(|statement| !statement.advice.is_empty()).count();
        let breaks = ours().filter(|statement| !statement.breaks.is_empty()).count();
        [
            Tile::new("Statements", number(ours().count()), "of the migrations"),
            Tile::new("With advice", number(advised), "there is a safer way"),
            Tile::new("Break old code", number(breaks), "statements of the suite fail"),
            Tile::new("Over budget", number(self.over_budget.len()), "statements"),
        ]
    }

    fn findings(&self) -> impl Iterator<Item = Finding> {
        let advised =
            self.shown().flat_map(|statement| statement.advice.iter().map(move |one| (statement, one)));
        advised.map(|(statement, advice)| Finding {
            name: report::cut(&statement.observed.sql, NAME_WIDTH),
            evidence: format!("{}: {}.", words::effects(&statement.observed), advice.danger),
            gain: None,
            remedy: format!("{} ({}).", advice.instead, words::page(advice.topic)),
        })
    }

    fn statements_table(&self) -> Option<Table> {
        let words = ["migration", "statement", "locks and work"].map(Column::left);
        let numbers = ["here", "in production"].map(Column::right);
        let mut table = Table::new("Statements", words.into_iter().chain(numbers));
        for statement in self.statements.iter().filter(|one| !one.is_left_out()) {
            let observed = &statement.observed;
            table.add_row([
                statement.migration.as_deref().into(),
                Cell::statement(observed.sql.clone()),
                words::effects(observed).into(),
                Quantity::new(observed.seconds, Unit::Seconds).into(),
                statement.predicted.map(words::range).into(),
            ]);
        }
        (!self.statements.is_empty()).then_some(table)
    }

    fn over_budget_table(&self) -> Option<Table> {
        let mut table = Table::new("Over budget", ["statement", "budget"].map(Column::left));
        for over in &self.over_budget {
            let sql =
                self.statements.get(over.statement).map(|one| Cell::statement(one.observed.sql.clone()));
            table.add_row([sql.unwrap_or(Cell::Missing), over.message.as_str().into()]);
        }
        (!self.over_budget.is_empty()).then_some(table)
    }

    fn suite_statements<'a, I>(
        &'a self,
        title: &str,
        of: impl Fn(&'a ReportedStatement) -> I,
    ) -> Option<Table>
    where
        I: Iterator<Item = [String; 3]>,
    {
        let columns = ["migration's statement", "suite's statement", "why", "tests"].map(Column::left);
        let mut table = Table::new(title, columns);
        let mut is_empty = true;
        for statement in &self.statements {
            for [suite, why, tests] in of(statement) {
                let cause = Cell::statement(statement.observed.sql.clone());
                table.add_row([cause, Cell::statement(suite), why.into(), tests.into()]);
                is_empty = false;
            }
        }
        (!is_empty).then_some(table)
    }

    fn old_code_table(&self) -> Option<Table> {
        let failures = &self.suite.as_ref()?.failures;
        let mut table = Table::new(
            "Old code on the migrated database",
            ["statement", "error", "tests"].map(Column::left),
        );
        for failure in failures {
            table.add_row([
                Cell::statement(failure.statement.clone()),
                failure.error.as_str().into(),
                failure.tests.join(", ").into(),
            ]);
        }
        (!failures.is_empty()).then_some(table)
    }

    /// Returns a test for each migration and one for the old code's suite. A migration's test fails if one of the
    /// migration's statements exceeds a budget.
    fn tests(&self) -> MeasuredTests {
        let mut tests: Vec<MeasuredTest> = Vec::new();
        for (place, statement) in self.statements.iter().enumerate() {
            if statement.is_left_out() {
                continue;
            }
            let name = statement.migration.as_deref().unwrap_or(UNKNOWN);
            if tests.iter().all(|test| test.name != name) {
                tests.push(test(name));
            }
            let Some(test) = tests.iter_mut().find(|test| test.name == name) else { continue };
            test.seconds += statement.observed.seconds;
            let effects = words::effects(&statement.observed);
            test.notes.push(format!("{}: {effects}", statement.observed.sql));
            let over = self.over_budget.iter().filter(|over| over.statement == place);
            let messages = over.map(|over| over.message.clone()).chain(words::failure(&statement.observed));
            let messages: Vec<_> = test.failure.take().into_iter().chain(messages).collect();
            test.failure = (!messages.is_empty()).then(|| messages.join("; "));
        }
        if let Some(suite) = &self.suite {
            let failure = (!suite.passes()).then(|| suite.sentence());
            tests.push(MeasuredTest { failure, ..test("old code") });
        }
        let seconds = tests.iter().map(|test| test.seconds).sum();
        MeasuredTests { name: self.title(), seconds, tests }
    }
}

fn test(name: &str) -> MeasuredTest {
    MeasuredTest {
        name: name.to_owned(),
        seconds: 0.0,
        properties: Vec::new(),
        notes: Vec::new(),
        failure: None,
        skipped: None,
    }
}
