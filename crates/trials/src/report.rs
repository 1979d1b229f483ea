//! Formats the report of the trials, as text for a terminal and as data for the other report formats.

use std::collections::BTreeSet;

use report::{
    Column, MeasuredTest, MeasuredTests, Quantity, Report, Table, Tile, Unit, as_f64, counted, hang,
};
use serde_json::{Value, json};

use crate::judgement::FindingKind;
use crate::points::Point;

/// Maximum width of the text report in columns.
const WIDTH: usize = 120;
/// Minimum width of the text report in columns.
const MIN_WIDTH: usize = 50;
/// Indentation of statements.
const STATEMENT: &str = "  ";
/// Indentation of the lines below a statement.
const ABOUT: &str = "      ";
/// Maximum number of names that the text report lists. Other reports list all names.
const SHOWN: usize = 8;
/// Phrase that lists faults no trial tries.
const NEVER_TRIED: &str = "two faults in one test, other orders of parallel sessions, statements that run only after a \
    fault, statements that pgfresh does not see, such as those of procedures, and COMMIT after nothing but DDL and \
    queries of views, even if these write rows";

/// Findings of the trials, with the number and duration of the runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialsReport {
    /// The command whose tests were tried.
    pub command: RepeatableCommand,
    /// Version of the PostgreSQL server.
    pub postgres: String,
    /// Duration of the trials in seconds.
    pub seconds: f64,
    /// Duration of the runs, by purpose.
    pub time: TimeSpent,
    /// Findings that a second run confirmed, sorted by test, statement and fault.
    pub findings: Vec<TrialFinding>,
    /// Findings without a second run, because no further run could begin.
    pub seen_once: Vec<TrialFinding>,
    /// Findings that a second run didn't confirm.
    pub unconfirmed: Vec<TrialFinding>,
    /// Tests with the number of faults tried on each.
    pub tests: Vec<TriedTest>,
    /// Tests on which no fault was tried.
    pub left_out: Vec<UntriedTest>,
    /// Number of points tried. A point counts once even if it was tried twice.
    pub runs: usize,
    /// Number of points at which the command passed, with the same rows as without faults.
    pub recovered: usize,
    /// Number of points at which the command passed, but the rows couldn't be compared.
    pub passed: usize,
    /// Number of points at which the command failed, so that the error reached the test.
    pub shown: usize,
    /// Number of points whose fault didn't fire.
    pub not_reached: usize,
    /// Points that weren't tried.
    pub not_run: Vec<Point>,
    /// Why points weren't tried or findings have no second run, as a clause. Empty if neither is the case.
    pub not_run_because: String,
    /// Phrases that describe what the trials couldn't observe.
    pub unseen: Vec<String>,
}

/// A test on which faults were tried. A lease whose test has no name counts as a test, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedTest {
    /// Label of the lease.
    pub label: String,
    /// Number of faults tried.
    pub runs: usize,
    /// Number of faults not tried.
    pub not_run: usize,
}

/// A test on which no fault was tried.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UntriedTest {
    /// Name of the test.
    pub test: String,
    /// Why no fault was tried, as a phrase.
    pub because: String,
}

/// Number and duration of the runs for one purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunTime {
    /// Number of runs.
    pub runs: usize,
    /// Total duration of these runs in seconds, including the start and stop of their servers.
    pub seconds: f64,
}

/// Number and duration of the runs, by purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TimeSpent {
    /// Runs without faults.
    pub recording: RunTime,
    /// First run of each fault.
    pub trying: RunTime,
    /// Second run of each fault with a finding.
    pub confirming: RunTime,
    /// Maximum number of concurrent runs.
    pub jobs: usize,
}

/// Words of the command line that repeats the trials. Passwords are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepeatableCommand {
    /// Options for pgfresh.
    pub options: Vec<String>,
    /// The user's command.
    pub words: Vec<String>,
}

/// A fault that the application mishandled.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialFinding {
    /// The fault and the statement it hits.
    pub point: Point,
    /// How the application mishandled the fault.
    pub kind: FindingKind,
    /// End of the command's output.
    pub output: String,
}

impl TrialsReport {
    /// Returns true if there are no findings.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.findings.is_empty()
    }

    /// Formats the report for a terminal with `columns` columns: first the findings, grouped by test, then the number
    /// of runs. Each line ends with a line feed.
    #[must_use]
    pub fn to_text(&self, columns: usize) -> String {
        let columns = columns.clamp(MIN_WIDTH, WIDTH);
        let mut text = String::new();
        let mut label = None;
        let like = |one: &TrialFinding, other: &TrialFinding| {
            one.point.is_beside(&other.point) && one.kind.sentence() == other.kind.sentence()
        };
        for alike in self.findings.chunk_by(like) {
            let [TrialFinding { point, kind, .. }, ..] = alike else { continue };
            if label != Some(&point.label) {
                text += &hang("", &point.label, columns);
                label = Some(&point.label);
            }
            let faults: Vec<_> = alike.iter().map(|finding| finding.point.fault.description()).collect();
            text += &hang(STATEMENT, &point.statement(), columns);
            text += &hang(&format!("{ABOUT}fault: "), &faults.join("; "), columns);
            text += &hang(ABOUT, &kind.sentence(), columns);
            let name = if alike.len() == 1 { kind.name_to_repeat(point) } else { point.name_of_all() };
            // Don't wrap this line, so that users can copy it.
            text += &format!("{ABOUT}again: {}\n", self.command.again(&name));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text += &hang("", &self.summary(), columns);
        for sentence in self.outcomes() {
            text += &hang(STATEMENT, &sentence, columns);
        }
        for (lead, sentence) in self.remarks(SHOWN) {
            text += &hang(&format!("{lead}: "), &sentence, columns);
        }
        text
    }

    /// Summarizes the trials in a sentence without a full stop.
    fn summary(&self) -> String {
        let findings = counted(self.findings.len(), "finding", "findings");
        let runs = counted(self.runs, "fault", "faults");
        format!("{findings} in {runs}, each in a run of its own, in {:.0} s", self.seconds)
    }

    /// Returns a phrase for each way in which runs ended without a confirmed finding.
    fn outcomes(&self) -> Vec<String> {
        let once = format!("had a finding without a second run, because {}", self.not_run_because);
        [
            (self.recovered, "passed, with the rows of a run without faults"),
            (self.passed, "passed; their rows could not be compared"),
            (self.shown, "failed, so that the error reaches the test"),
            (self.not_reached, "did not reach the fault"),
            (self.unconfirmed.len(), "had a finding that a second run did not confirm"),
            (self.seen_once.len(), &once),
        ]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, phrase)| format!("{number} {phrase}"))
        .collect()
    }

    /// Returns sentences about the limitations of the result. `shown` is the maximum number of names in each sentence.
    fn remarks(&self, shown: usize) -> Vec<(&'static str, String)> {
        let mut remarks = vec![("time", self.time.sentence())];
        remarks.extend(self.seen_once.iter().take(shown).map(|one| ("seen once", one.short())));
        remarks.extend(self.unconfirmed.iter().take(shown).map(|one| ("not confirmed", one.short())));
        if !self.not_run.is_empty() {
            remarks.push(("not run", self.not_run_sentence(shown)));
        }
        for reason in self.left_out.iter().map(|test| &test.because).collect::<BTreeSet<_>>() {
            let tests = self.left_out.iter().filter(|test| test.because == *reason);
            let names: Vec<_> = tests.map(|test| test.test.as_str()).collect();
            remarks.push(("left out", format!("{}: {reason}", list(&names, shown))));
        }
        remarks.extend(self.unseen.iter().map(|phrase| ("not seen", phrase.clone())));
        remarks.push(("never tried", NEVER_TRIED.to_owned()));
        remarks
    }

    fn not_run_sentence(&self, shown: usize) -> String {
        let faults = counted(self.not_run.len(), "fault", "faults");
        let sentence = format!("{faults}, because {}", self.not_run_because);
        let none = self.tests.iter().filter(|test| test.runs == 0 && test.not_run > 0);
        let none: Vec<_> = none.map(|test| test.label.as_str()).collect();
        if none.is_empty() {
            return sentence;
        }
        format!("{sentence}; no fault of {}", list(&none, shown))
    }

    /// Returns the report for the formats JSON, HTML, Markdown, CSV and JUnit.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::new(self.title());
        report.add_environment("command", self.command.line());
        report.add_environment("PostgreSQL", &self.postgres);
        let number = |number: usize| Quantity::new(as_f64(number as u64), Unit::Count);
        report.add_tiles([
            Tile::new("Findings", number(self.findings.len()), "faults that the application does not handle"),
            Tile::new("Faults", number(self.runs), "each in a run of its own"),
            Tile::new("Recovered", number(self.recovered), "same rows as without faults"),
            Tile::new("Not run", number(self.not_run.len()), "faults without a run"),
        ]);
        let mut table =
            Table::new("Findings", ["test", "statement", "fault", "what happens", "again"].map(Column::left));
        for finding in &self.findings {
            let TrialFinding { point, kind, .. } = finding;
            table.add_row([
                point.label.as_str().into(),
                report::Cell::statement(point.statement()),
                point.fault.description().into(),
                kind.sentence().into(),
                self.again(finding).into(),
            ]);
        }
        if !self.findings.is_empty() {
            report.add_table(table);
        }
        let untried = self.untried();
        if !untried.is_empty() {
            let mut table = Table::new("Not tried", ["test", "what", "why"].map(Column::left));
            for (test, what, why) in untried {
                table.add_row([test.into(), what.into(), why.into()]);
            }
            report.add_table(table);
        }
        report.add_notes([self.summary()]);
        report.add_notes(self.outcomes());
        report
            .add_notes(self.remarks(usize::MAX).iter().map(|(lead, sentence)| format!("{lead}: {sentence}")));
        report.add_data("findings", self.findings.iter().map(|one| self.finding_to_json(one)).collect());
        report.add_data("runs", self.runs_to_json());
        report.merge_tests(self.tests());
        report
    }

    /// Returns the shell command that repeats a finding.
    fn again(&self, finding: &TrialFinding) -> String {
        self.command.again(&finding.kind.name_to_repeat(&finding.point))
    }

    fn finding_to_json(&self, finding: &TrialFinding) -> Value {
        let TrialFinding { point, kind, output } = finding;
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

    /// Returns each test or fault that wasn't tried: the test's name, the faults concerned, and the reason.
    fn untried(&self) -> Vec<(&str, String, &str)> {
        let left_out = self
            .left_out
            .iter()
            .map(|test| (test.test.as_str(), "all faults".to_owned(), test.because.as_str()));
        let not_run = self.not_run.iter().map(|point| {
            let fault = format!("{}: {}", point.statement(), point.fault.description());
            (point.label.as_str(), fault, self.not_run_because.as_str())
        });
        left_out.chain(not_run).collect()
    }

    fn title(&self) -> String {
        format!("Faults in {}", self.command.line())
    }

    fn runs_to_json(&self) -> Value {
        let names = |findings: &[TrialFinding]| -> Vec<String> {
            findings.iter().map(|one| one.point.to_string()).collect()
        };
        let time = |time: RunTime| json!({ "runs": time.runs, "seconds": time.seconds });
        let left_out = self.left_out.iter().map(|one| json!({ "test": one.test, "because": one.because }));
        json!({
            "made": self.runs, "recovered": self.recovered, "passed": self.passed, "shown": self.shown,
            "not_reached": self.not_reached, "unconfirmed": names(&self.unconfirmed), "seen_once": names(&self.seen_once),
            "not_run": self.not_run.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "not_run_because": (!self.not_run.is_empty()).then_some(&self.not_run_because),
            "left_out": left_out.collect::<Vec<_>>(),
            "not_seen": self.unseen, "seconds": self.seconds, "jobs": self.time.jobs,
            "time": {
                "without_faults": time(self.time.recording), "with_fault": time(self.time.trying),
                "second_runs": time(self.time.confirming),
            },
        })
    }

    /// Returns one entry for each test of the suite, and one for the trials as a whole.
    fn tests(&self) -> MeasuredTests {
        let measured = |name: &str| MeasuredTest {
            name: name.to_owned(),
            seconds: 0.0,
            properties: Vec::new(),
            notes: Vec::new(),
            failure: None,
            skipped: None,
        };
        let mut tests: Vec<_> =
            self.tests.iter().map(|test| self.measured(test, measured(&test.label))).collect();
        for UntriedTest { test, because } in &self.left_out {
            tests.push(MeasuredTest {
                skipped: Some(format!("no fault was tried: {because}")),
                ..measured(test)
            });
        }
        let notes =
            self.remarks(usize::MAX).into_iter().map(|(lead, sentence)| format!("{lead}: {sentence}"));
        tests.push(MeasuredTest {
            seconds: self.seconds,
            notes: [vec![self.summary()], self.outcomes(), notes.collect()].concat(),
            ..measured("faults")
        });
        MeasuredTests { name: self.title(), seconds: self.seconds, tests }
    }

    /// Adds the test's findings and its number of faults to `measured`.
    fn measured(&self, test: &TriedTest, mut measured: MeasuredTest) -> MeasuredTest {
        let mut failures = Vec::new();
        for finding in self.findings.iter().filter(|finding| finding.point.label == test.label) {
            let TrialFinding { point, kind, output } = finding;
            let failure =
                format!("{}: {}: {}", point.statement(), point.fault.description(), kind.sentence());
            measured.notes.push(format!("{failure}\nagain: {}\n{output}", self.again(finding)));
            failures.push(failure);
        }
        for (lead, findings) in [("seen once", &self.seen_once), ("not confirmed", &self.unconfirmed)] {
            let of_test = findings.iter().filter(|finding| finding.point.label == test.label);
            measured.notes.extend(of_test.map(|finding| format!("{lead}: {}", finding.short())));
        }
        measured.properties = vec![
            ("faults", test.runs.to_string()),
            ("findings", failures.len().to_string()),
            ("faults_not_run", test.not_run.to_string()),
        ];
        if test.not_run > 0 {
            let faults = counted(test.not_run, "fault", "faults");
            measured.notes.push(format!("not run: {faults}, because {}", self.not_run_because));
        }
        measured.failure = (!failures.is_empty()).then(|| failures.join("; "));
        measured.skipped = match (test.runs, test.not_run) {
            (0, 0) => Some("no statement that can have a fault".to_owned()),
            (0, _) => Some(format!("no fault was tried, because {}", self.not_run_because)),
            _ => None,
        };
        measured
    }
}

impl TrialFinding {
    /// Returns the point's name and a description of the finding.
    fn short(&self) -> String {
        format!("{}: {}", self.point, self.kind.sentence())
    }
}

impl TimeSpent {
    fn sentence(&self) -> String {
        let of = |time: RunTime, one: &str, more: &str| {
            (time.runs > 0).then(|| format!("{} {:.1} s", counted(time.runs, one, more), time.seconds))
        };
        let parts = [
            of(self.recording, "run without faults", "runs without faults"),
            of(self.trying, "run with a fault", "runs with a fault"),
            of(self.confirming, "second run of a finding", "second runs of findings"),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        format!("{}; up to {} at the same time", parts.join(", "), self.jobs)
    }
}

/// Lists up to `shown` names, and the number of the remaining names.
fn list(names: &[&str], shown: usize) -> String {
    let more = names.len().saturating_sub(shown);
    let listed = names.iter().take(shown).copied().collect::<Vec<_>>().join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}

impl RepeatableCommand {
    /// Returns the user's command on one line.
    #[must_use]
    pub fn line(&self) -> String {
        self.words.join(" ")
    }

    /// Returns the shell command that repeats the faults that `name` selects.
    #[must_use]
    pub fn again(&self, name: &str) -> String {
        let ours = ["pgfresh", "faults"].into_iter().chain(self.options.iter().map(String::as_str));
        let words = ours.chain(["--only", name, "--"]).chain(self.words.iter().map(String::as_str));
        words.map(in_shell).collect::<Vec<_>>().join(" ")
    }
}

/// Quotes a word for a shell if necessary. Escapes control characters, so that the word stays on its line. Bash, zsh
/// and ksh understand these escapes.
fn in_shell(word: &str) -> String {
    if word.contains(char::is_control) {
        let mut quoted = "$'".to_owned();
        for letter in word.chars() {
            match letter {
                '\'' | '\\' => quoted.extend(['\\', letter]),
                '\n' => quoted.push_str("\\n"),
                _ if letter.is_control() => {
                    letter.to_string().bytes().for_each(|byte| quoted += &format!("\\x{byte:02x}"));
                }
                _ => quoted.push(letter),
            }
        }
        return quoted + "'";
    }
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:=@%+,{}".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;
