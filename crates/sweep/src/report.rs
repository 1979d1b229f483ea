//! The report of a sweep.

use report::{
    Column, MeasuredTest, MeasuredTests, Quantity, Report, Table, Tile, Unit, as_f64, counted, hang,
};
use serde_json::{Value, json};

use crate::judgement::FindingKind;
use crate::points::Point;

/// Maximum and minimum width in columns.
const WIDTH: usize = 120;
const MIN_WIDTH: usize = 50;
/// Indentation of statements, and of the lines about them.
const STATEMENT: &str = "  ";
const ABOUT: &str = "      ";
/// Sentences about what no sweep tries.
const NEVER_TRIED: &str = "two faults in one test, other orders of parallel sessions, statements that run only after a \
    fault, and faults of statements that pgfresh does not see, such as those of procedures";

/// Findings of a sweep, and the runs that it has made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepReport {
    /// The command.
    pub command: RepeatableCommand,
    /// Version of PostgreSQL.
    pub postgres: String,
    /// Duration of the sweep in seconds.
    pub seconds: f64,
    /// Findings, sorted by test, statement and fault.
    pub findings: Vec<SweepFinding>,
    /// Number of points with a run.
    pub runs: usize,
    /// Number of points in which the command passed with the rows of a run without faults.
    pub recovered: usize,
    /// Number of points in which the command passed, and the rows could not be compared.
    pub passed: usize,
    /// Number of points in which the command failed, so that the error reached the test.
    pub shown: usize,
    /// Number of points whose fault did not fire.
    pub not_reached: usize,
    /// Number of points with a finding that a second run did not confirm.
    pub unconfirmed: usize,
    /// Number of points without a run.
    pub not_run: usize,
    /// Why points have no run.
    pub not_run_because: String,
    /// Phrases about what the sweep could not see.
    pub unseen: Vec<String>,
}

/// Words of the command line that repeats a sweep, without passwords.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepeatableCommand {
    /// Options of pgfresh.
    pub options: Vec<String>,
    /// The user's command.
    pub words: Vec<String>,
}

/// A fault that the application does not cope with.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepFinding {
    /// The fault and its statement.
    pub point: Point,
    /// How the application does not cope.
    pub kind: FindingKind,
    /// End of the command's output.
    pub output: String,
}

impl SweepReport {
    /// Returns true if there is no finding.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.findings.is_empty()
    }

    /// Formats the report for a terminal of `columns` columns: the findings, below their tests, then the numbers of runs.
    /// Each line ends with a line feed.
    #[must_use]
    pub fn to_text(&self, columns: usize) -> String {
        let columns = columns.clamp(MIN_WIDTH, WIDTH);
        let mut text = String::new();
        let mut label = None;
        let like = |one: &SweepFinding, other: &SweepFinding| {
            one.point.is_beside(&other.point) && one.kind.sentence() == other.kind.sentence()
        };
        for alike in self.findings.chunk_by(like) {
            let [SweepFinding { point, kind, .. }, ..] = alike else { continue };
            if label != Some(&point.label) {
                text += &hang("", &point.label, columns);
                label = Some(&point.label);
            }
            let faults: Vec<_> = alike.iter().map(|finding| finding.point.fault.words()).collect();
            text += &hang(STATEMENT, &point.statement(), columns);
            text += &hang(&format!("{ABOUT}fault: "), &faults.join("; "), columns);
            text += &hang(ABOUT, &kind.sentence(), columns);
            let name = if alike.len() == 1 { kind.name_to_repeat(point) } else { point.name_of_all() };
            // One line, which users can copy.
            text += &format!("{ABOUT}again: {}\n", self.command.again(&name));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text += &hang("", &self.summary(), columns);
        for sentence in self.outcomes() {
            text += &hang(STATEMENT, &sentence, columns);
        }
        for (lead, sentence) in self.remarks() {
            text += &hang(&format!("{lead}: "), &sentence, columns);
        }
        text
    }

    /// Returns the sentence about the whole sweep, without a full stop.
    fn summary(&self) -> String {
        let findings = counted(self.findings.len(), "finding", "findings");
        let runs = counted(self.runs, "fault", "faults");
        format!("{findings} in {runs}, each in a run of its own, in {:.0} s", self.seconds)
    }

    /// Returns a phrase for each way in which runs ended without a finding.
    fn outcomes(&self) -> Vec<String> {
        [
            (self.recovered, "passed, with the rows of a run without faults"),
            (self.passed, "passed; their rows could not be compared"),
            (self.shown, "failed, so that the error reaches the test"),
            (self.not_reached, "did not reach the fault"),
            (self.unconfirmed, "had a finding that a second run did not confirm"),
        ]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, phrase)| format!("{number} {phrase}"))
        .collect()
    }

    fn remarks(&self) -> Vec<(&'static str, String)> {
        let mut remarks = Vec::new();
        if self.not_run > 0 {
            let faults = counted(self.not_run, "fault", "faults");
            remarks.push(("not run", format!("{faults}, because {}", self.not_run_because)));
        }
        remarks.extend(self.unseen.iter().map(|phrase| ("not seen", phrase.clone())));
        remarks.push(("never tried", NEVER_TRIED.to_owned()));
        remarks
    }

    /// Returns the report for JSON, HTML, Markdown, CSV and JUnit.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::new(self.title());
        report.add_environment("command", self.command.line());
        report.add_environment("PostgreSQL", &self.postgres);
        let number = |number: usize| Quantity::new(as_f64(number as u64), Unit::Count);
        report.add_tiles([
            Tile::new(
                "Findings",
                number(self.findings.len()),
                "faults that the application does not cope with",
            ),
            Tile::new("Faults", number(self.runs), "each in a run of its own"),
            Tile::new("Recovered", number(self.recovered), "same rows as without faults"),
            Tile::new("Not run", number(self.not_run), "after the budget or a signal"),
        ]);
        let mut table =
            Table::new("Findings", ["test", "statement", "fault", "what happens", "again"].map(Column::left));
        for finding in &self.findings {
            let SweepFinding { point, kind, .. } = finding;
            table.add_row([
                point.label.as_str().into(),
                report::Cell::statement(point.statement()),
                point.fault.words().into(),
                kind.sentence().into(),
                self.again(finding).into(),
            ]);
        }
        if !self.findings.is_empty() {
            report.add_table(table);
        }
        report.add_notes([self.summary()]);
        report.add_notes(self.outcomes());
        report.add_notes(self.remarks().iter().map(|(lead, sentence)| format!("{lead}: {sentence}")));
        report.add_data("findings", self.findings.iter().map(|one| self.finding_to_json(one)).collect());
        report.add_data("runs", self.runs_to_json());
        report.merge_tests(self.tests());
        report
    }

    /// Returns the command line that makes a finding again, for a shell.
    fn again(&self, finding: &SweepFinding) -> String {
        self.command.again(&finding.kind.name_to_repeat(&finding.point))
    }

    fn finding_to_json(&self, finding: &SweepFinding) -> Value {
        let SweepFinding { point, kind, output } = finding;
        let differences = kind.differences().iter().map(|difference| {
            json!({
                "table": difference.table, "expected": difference.expected, "found": difference.found,
                "rows": difference.rows,
            })
        });
        json!({
            "name": point.to_string(), "test": point.label, "statement": point.pattern, "nth": point.nth,
            "fault": point.fault.to_string(), "request": point.request(), "kind": kind.name(),
            "message": kind.sentence(), "differences": differences.collect::<Vec<_>>(),
            "again": self.again(finding), "output": output,
        })
    }

    fn title(&self) -> String {
        format!("Faults in {}", self.command.line())
    }

    fn runs_to_json(&self) -> Value {
        json!({
            "made": self.runs, "recovered": self.recovered, "passed": self.passed, "shown": self.shown,
            "not_reached": self.not_reached, "unconfirmed": self.unconfirmed, "not_run": self.not_run,
            "not_seen": self.unseen, "seconds": self.seconds,
        })
    }

    /// Returns a test for each test of the suite with a finding, and one for the whole sweep.
    fn tests(&self) -> MeasuredTests {
        let mut tests: Vec<MeasuredTest> = Vec::new();
        for finding in &self.findings {
            let SweepFinding { point, kind, output } = finding;
            let again = self.again(finding);
            let failure = format!("{}: {}: {}", point.statement(), point.fault.words(), kind.sentence());
            let note = format!("{failure}\nagain: {again}\n{output}");
            match tests.iter_mut().find(|test| test.name == point.label) {
                Some(test) => {
                    test.failure = test.failure.take().map(|other| format!("{other}; {failure}"));
                    test.notes.push(note);
                }
                None => tests.push(MeasuredTest {
                    name: point.label.clone(),
                    seconds: 0.0,
                    properties: Vec::new(),
                    notes: vec![note],
                    failure: Some(failure),
                }),
            }
        }
        tests.push(MeasuredTest {
            name: "faults".to_owned(),
            seconds: self.seconds,
            properties: Vec::new(),
            notes: [vec![self.summary()], self.outcomes()].concat(),
            failure: None,
        });
        MeasuredTests { name: self.title(), seconds: self.seconds, tests }
    }
}

impl RepeatableCommand {
    /// Returns the user's command on one line.
    #[must_use]
    pub fn line(&self) -> String {
        self.words.join(" ")
    }

    /// Returns the command line that runs the faults with this name, for a shell.
    #[must_use]
    pub fn again(&self, name: &str) -> String {
        let ours = ["pgfresh", "faults"].into_iter().chain(self.options.iter().map(String::as_str));
        let words = ours.chain(["--only", name, "--"]).chain(self.words.iter().map(String::as_str));
        words.map(in_shell).collect::<Vec<_>>().join(" ")
    }
}

/// Quotes a word for a shell, if it needs quotes.
fn in_shell(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:=@%+,{}".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;
