//! Summarizes a profile in about ten lines for a terminal.

use report::Finding;

use crate::attribution::Attribution;
use crate::circumstances::{percent, seconds};
use crate::profile::Profile;
use crate::statement_counts::{Counted, CountedStatement};

/// Maximum number of findings, and of statements, in the summary.
const MAX_LINES: usize = 3;
/// Maximum width of a line with a statement or a test's name, in columns.
const WIDTH: usize = 120;
/// Minimum width of the summary, in columns.
const MIN_WIDTH: usize = 30;

/// Lines of the summary. Most lines begin with a word for their subject.
struct Lines {
    columns: usize,
    text: String,
}

impl Lines {
    /// Adds a text, on several lines if the text is too long for a single line.
    fn add(&mut self, head: &str, text: &str) {
        self.text += &report::hang(&format!("{head:<9} "), text, self.columns);
    }

    /// Adds as much of a text as fits on a line.
    fn add_start(&mut self, head: &str, text: &str) {
        let lead = format!("{head:<9} ");
        let room = self.columns.min(WIDTH) - lead.len();
        self.text += &format!("{lead}{}\n", report::cut(text, room));
    }
}

impl Profile {
    /// Formats the summary for a terminal with `columns` columns. No line is longer than that.
    #[must_use]
    pub fn summary(&self, columns: usize) -> String {
        let mut lines = Lines { columns: columns.max(MIN_WIDTH), text: String::new() };
        self.summarize_times(&mut lines);
        self.summarize_tests(&mut lines);
        if let Some(counted) = &self.recording.counted {
            lines.add_start("counted", &summarize_counts(counted));
        }
        for finding in self.findings.iter().take(MAX_LINES) {
            lines.add("finding", &summarize_finding(finding));
            lines.add("", &finding.remedy);
        }
        lines.text
    }

    fn summarize_times(&self, lines: &mut Lines) {
        let Attribution { wall, database, in_transaction, .. } = &self.attribution;
        let share = |part| percent(self.attribution.share(part));
        let what = if self.circumstances.command.is_some() { "suite" } else { "watched" };
        let mut time = format!(
            "{}: {} in the database ({}), {} outside",
            seconds(*wall),
            seconds(database.wall),
            share(database.wall),
            seconds(self.attribution.idle_seconds())
        );
        if self.attribution.share(*in_transaction) >= 0.01 {
            time = format!("{time}, {} of it within transactions", seconds(*in_transaction));
        }
        lines.add(what, &time);
        if let Some(before) = self.before() {
            lines.add("before", &before);
        }
        let kinds = Attribution::ranked(&self.attribution.kinds);
        lines.add("in it", &self.list(kinds.iter().map(|(kind, time)| (kind.name(), time.sessions))));
        let causes = Attribution::ranked(&self.attribution.causes);
        lines.add("waits", &self.list(causes.iter().map(|(cause, time)| (cause.name(), time.sessions))));
        lines.add("sessions", &self.sessions());
        for (place, (statement, spent)) in self.attribution.statements.iter().take(MAX_LINES).enumerate() {
            let text = &self.recording.statements.get(*statement).text;
            let text = format!("{} {text}", seconds(spent.time.sessions));
            lines.add_start(if place == 0 { "longest" } else { "" }, &text);
        }
    }

    fn summarize_tests(&self, lines: &mut Lines) {
        let tests = self.tests();
        let slowest: Vec<String> = tests.slowest(MAX_LINES).collect();
        for (place, test) in slowest.iter().enumerate() {
            lines.add_start(if place == 0 { "tests" } else { "" }, test);
        }
        // If some tests have names, the report contains the note about the other tests.
        if slowest.is_empty() || !tests.has_names() {
            let head = if slowest.is_empty() { "tests" } else { "" };
            tests.advice().iter().for_each(|advice| lines.add(head, advice));
        }
    }

    fn before(&self) -> Option<String> {
        let parts = [("boot", self.circumstances.boot), ("template", self.circumstances.template)];
        let known: Vec<String> =
            parts.iter().filter_map(|(name, spent)| Some(format!("{name} {}", seconds((*spent)?)))).collect();
        (!known.is_empty()).then(|| known.join(", "))
    }

    /// Lists the parts that take at least 1 % of the time in the database.
    fn list<'a>(&self, parts: impl Iterator<Item = (&'a str, f64)>) -> String {
        let all = self.attribution.database.sessions;
        let named: Vec<String> = parts
            .filter(|(_, spent)| *spent > 0.0 && *spent >= 0.01 * all)
            .map(|(name, spent)| format!("{name} {}", percent(spent / all)))
            .collect();
        if named.is_empty() { "nothing was seen".to_owned() } else { named.join(", ") }
    }

    fn sessions(&self) -> String {
        let Attribution { width, max_sessions: most, .. } = self.attribution;
        let at_once = match most {
            0 => "no session was seen at work".to_owned(),
            _ => format!("{width:.0} at work at once, {most} at most"),
        };
        match self.connecting() {
            Some((0.0, _)) => format!("{at_once}; none started"),
            Some((count, spent)) => {
                format!("{at_once}; {count:.0} started, which took {}", seconds(spent))
            }
            None => at_once,
        }
    }
}

fn summarize_counts(counted: &Counted) -> String {
    match counted {
        Counted::Unavailable(why) => format!("nothing by the server: {why}"),
        Counted::Statements(lines) => {
            let [time, runs] = [|line: &CountedStatement| line.seconds, |line: &CountedStatement| line.runs]
                .map(|of| lines.iter().map(of).sum::<f64>());
            let longest = lines.first().map_or_else(String::new, |first| {
                format!("; {} in {:.0} of {}", seconds(first.seconds), first.runs, first.statement.text)
            });
            let runs = format!("{runs:.0}");
            let noun = if runs == "1" { "run" } else { "runs" };
            format!("by pg_stat_statements: {} in {runs} {noun}{longest}", seconds(time))
        }
    }
}

fn summarize_finding(finding: &Finding) -> String {
    match &finding.gain {
        Some(gain) => format!("{}: {gain}", finding.name),
        None => format!("{}. {}", finding.name, finding.evidence),
    }
}
