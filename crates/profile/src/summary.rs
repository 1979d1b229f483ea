//! Summarizes a profile in about ten lines for a terminal.

use std::fmt;

use report::Finding;

use crate::attribution::Attribution;
use crate::circumstances::{percent, seconds};
use crate::profile::Profile;
use crate::statement_counts::{Counted, CountedStatement};

/// Maximum number of findings, and of statements, in the summary.
const MAX_LINES: usize = 3;
/// Maximum width of a statement or a test name, in characters.
const WIDTH: usize = 110;

/// Formats the summary for a terminal.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        line(f, what, &time)?;
        if let Some(before) = self.before() {
            line(f, "before", &before)?;
        }
        let kinds = Attribution::ranked(&self.attribution.kinds);
        line(f, "in it", &self.list(kinds.iter().map(|(kind, time)| (kind.name(), time.sessions))))?;
        let causes = Attribution::ranked(&self.attribution.causes);
        line(f, "waits", &self.list(causes.iter().map(|(cause, time)| (cause.name(), time.sessions))))?;
        line(f, "sessions", &self.sessions())?;
        for (place, (statement, spent)) in self.attribution.statements.iter().take(MAX_LINES).enumerate() {
            let text = &self.recording.statements.get(*statement).text;
            let text = format!("{} {text}", seconds(spent.time.sessions));
            line(f, if place == 0 { "longest" } else { "" }, &cut(&text))?;
        }
        let tests = self.tests();
        for (place, test) in tests.slowest(MAX_LINES).enumerate() {
            line(f, if place == 0 { "tests" } else { "" }, &cut(&test))?;
        }
        if let Some(advice) = tests.advice().filter(|_| tests.slowest(1).next().is_none()) {
            line(f, "tests", advice)?;
        }
        if let Some(counted) = &self.recording.counted {
            line(f, "counted", &cut(&summarize_counts(counted)))?;
        }
        for finding in self.findings.iter().take(MAX_LINES) {
            line(f, "finding", &summarize_finding(finding))?;
            line(f, "", &finding.remedy)?;
        }
        Ok(())
    }
}

impl Profile {
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
            format!("by pg_stat_statements: {} in {runs:.0} runs{longest}", seconds(time))
        }
    }
}

fn summarize_finding(finding: &Finding) -> String {
    match &finding.gain {
        Some(gain) => format!("{}: {gain}", finding.name),
        None => format!("{}. {}", finding.name, finding.evidence),
    }
}

fn line(f: &mut fmt::Formatter<'_>, head: &str, text: &str) -> fmt::Result {
    writeln!(f, "{head:<9} {text}")
}

/// Shortens `text` to one line.
fn cut(text: &str) -> String {
    if text.chars().count() <= WIDTH {
        return text.to_owned();
    }
    text.chars().take(WIDTH - 1).chain(['…']).collect()
}
