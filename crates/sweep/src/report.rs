//! The report of a sweep.

use report::{Column, MeasuredTest, MeasuredTests, Quantity, Report, Table, Tile, Unit, as_f64, hang};
use serde_json::{Map, Value, json};

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
    /// The command on one line, without passwords.
    pub command: String,
    /// Version of PostgreSQL.
    pub postgres: String,
    /// Duration of the sweep in seconds.
    pub seconds: f64,
    /// Findings, in the order of the tests.
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

/// A fault that the application does not cope with.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepFinding {
    /// The fault and its statement.
    pub point: Point,
    /// How the application does not cope.
    pub kind: FindingKind,
    /// Command that repeats the run.
    pub again: String,
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
            // Each command is one line, which users can copy.
            for finding in alike {
                text += &format!("{ABOUT}again: {}\n", finding.again);
            }
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
        let findings = count(self.findings.len(), "finding", "findings");
        let runs = count(self.runs, "fault", "faults");
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
            let faults = count(self.not_run, "fault", "faults");
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
        report.add_environment("command", &self.command);
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
            Tile::new("Not run", number(self.not_run), "beyond the budget"),
        ]);
        let mut table =
            Table::new("Findings", ["test", "statement", "fault", "what happens", "again"].map(Column::left));
        for SweepFinding { point, kind, again, .. } in &self.findings {
            table.add_row([
                point.label.as_str().into(),
                report::Cell::statement(point.statement()),
                point.fault.words().into(),
                kind.sentence().into(),
                again.as_str().into(),
            ]);
        }
        if !self.findings.is_empty() {
            report.add_table(table);
        }
        report.add_notes([self.summary()]);
        report.add_notes(self.outcomes());
        report.add_notes(self.remarks().iter().map(|(lead, sentence)| format!("{lead}: {sentence}")));
        report.add_data("findings", self.findings.iter().map(finding_to_json).collect());
        report.add_data("runs", self.runs_to_json());
        report.merge_tests(self.tests());
        report
    }

    fn title(&self) -> String {
        format!("Faults in {}", self.command)
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
        for SweepFinding { point, kind, again, output } in &self.findings {
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

fn finding_to_json(finding: &SweepFinding) -> Value {
    let SweepFinding { point, kind, again, output } = finding;
    let differences = kind.differences().iter().map(|difference| {
        json!({
            "table": difference.table, "expected": difference.expected, "found": difference.found,
            "rows": difference.rows,
        })
    });
    let members = [
        ("name", json!(point.to_string())),
        ("test", json!(point.label)),
        ("statement", json!(point.pattern)),
        ("nth", json!(point.nth)),
        ("fault", json!(point.fault.to_string())),
        ("request", json!(point.request())),
        ("kind", json!(kind.name())),
        ("message", json!(kind.sentence())),
        ("differences", differences.collect()),
        ("again", json!(again)),
        ("output", json!(output)),
    ];
    Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}

fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
