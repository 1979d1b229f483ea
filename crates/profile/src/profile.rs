//! Combines a recording, facts about its run, and findings into a complete profile.

use report::{Cell, Column, Finding, Layer, Quantity, Report, Table, Tile, Unit, as_f64};

use crate::attribution::Attribution;
use crate::circumstances::{Circumstances, percent, seconds};
use crate::findings::Analysis;
use crate::gateway_times::GatewayTimes;
use crate::ranking::rank;
use crate::recording::Recording;
use crate::statement_counts::{Counted, CountedStatement};
use crate::test_records::TestRecord;
use crate::test_report::Tests;
use crate::time::Time;

/// Maximum number of rows in a table of statements or databases.
const LINES: usize = 20;

/// A recording with its attribution and its findings.
#[derive(Debug, Clone)]
pub struct Profile {
    pub(crate) recording: Recording,
    pub(crate) attribution: Attribution,
    pub(crate) circumstances: Circumstances,
    pub(crate) findings: Vec<Finding>,
    /// The tests' records, longest time first. Empty without a gateway.
    records: Vec<TestRecord>,
}

impl Profile {
    /// Divides the recording's time and derives the findings.
    #[must_use]
    pub fn new(recording: Recording, circumstances: Circumstances) -> Self {
        let attribution = Attribution::of(&recording);
        let case =
            Analysis { recording: &recording, attribution: &attribution, circumstances: &circumstances };
        let findings = case.findings();
        let records = recording.exact.as_ref().map_or_else(Vec::new, |exact| exact.tests.records());
        let mut profile = Self { recording, attribution, circumstances, findings, records };
        // Findings about named tests come before those about the whole suite.
        let found = profile.tests().finding();
        profile.findings.splice(0..0, found);
        rank(&mut profile.findings);
        profile
    }

    /// Returns true if the cost of a new database matters, because tests spend much of their time on cleaning up or
    /// creating databases.
    #[must_use]
    pub fn has_replaceable_databases(&self) -> bool {
        let Self { recording, attribution, circumstances, .. } = self;
        let case = Analysis { recording, attribution, circumstances };
        case.has_clean_up() || case.has_made_databases()
    }

    /// Repeats the analysis with a known cost of the first session in a new database, in seconds.
    #[must_use]
    pub fn with_fresh_database(self, cost: f64) -> Self {
        Self::new(self.recording, Circumstances { fresh_database: Some(cost), ..self.circumstances })
    }

    /// Returns the records of the tests that used the gateway.
    pub(crate) fn tests(&self) -> Tests<'_> {
        Tests { records: &self.records, statements: &self.recording.statements }
    }

    /// Returns the complete report.
    #[must_use]
    pub fn report(&self) -> Report {
        let title = self.circumstances.command.as_ref();
        let mut report =
            Report::new(title.map_or_else(|| "Profile".to_owned(), |what| format!("Profile of {what}")));
        report.add_environment("PostgreSQL", &self.recording.version);
        self.layers().into_iter().for_each(|layer| report.add_layer(layer));
        report.add_findings(self.findings.iter().cloned());
        let what = title.map_or("pgfresh run --profile", String::as_str);
        report.set_tests(self.tests().measured(what, self.attribution.wall));
        report.add_tiles(self.tiles());
        report.add_table(self.tests().table(self.attribution.wall));
        if let Some(repeated) = self.tests().repeated_queries() {
            report.add_table(repeated);
        }
        if !self.records.is_empty() {
            report.add_data("tests", self.tests().to_json());
        }
        report.add_table(self.kinds());
        report.add_table(self.causes());
        report.add_table(self.statements());
        report.add_table(self.databases());
        if let Some(Counted::Statements(lines)) = &self.recording.counted {
            report.add_table(counted(lines));
        }
        report.add_notes(self.notes());
        report
    }

    /// Returns the report's layers: time, server counters and machine.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        [self.suite(), self.server()].into_iter().chain(self.machine()).collect()
    }

    /// Returns the findings, largest gain first.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Formats the report as an HTML page with a picture of the sessions and their waits over time.
    #[must_use]
    pub fn to_html(&self) -> String {
        self.report().to_html(&self.timeline())
    }

    /// Returns the picture of the sessions and their waits over time, as a part of an HTML page.
    #[must_use]
    pub fn timeline(&self) -> String {
        crate::timeline::draw(&self.recording)
    }

    /// Returns the key figures for the top of the page. The suite's time comes first, followed by its time in
    /// the database.
    #[must_use]
    pub fn tiles(&self) -> [Tile; 6] {
        let Attribution { wall, database, in_transaction, statements, exact, .. } = &self.attribution;
        let time = |value| Quantity::new(value, Unit::Seconds);
        let count = |value| Quantity::new(value, Unit::Count);
        let within = match in_transaction {
            0.0 => String::new(),
            open => format!("{} in transactions", seconds(*open)),
        };
        let runs = statements.iter().map(|(_, spent)| spent.runs.round()).sum();
        let connecting = self.connecting();
        let waiting =
            connecting.map_or_else(String::new, |(_, spent)| format!("{} to start", seconds(spent)));
        let tests = self.records.iter().filter(|record| record.is_test).count();
        let names = if self.tests().has_names() { "named by a client" } else { "without names" };
        [
            Tile::new("Suite", time(*wall), "from start to end"),
            Tile::new("In the database", time(database.wall), percent(self.attribution.share(database.wall))),
            Tile::new("Outside", time(self.attribution.idle_seconds()), within),
            Tile::new("Statements", count(runs), if *exact { "timed exactly" } else { "estimated" }),
            Tile::new("Sessions", connecting.map(|(sessions, _)| count(sessions)), waiting),
            Tile::new("Tests", (tests > 0).then(|| count(as_f64(tests))), names),
        ]
    }

    fn suite(&self) -> Layer {
        let Attribution { wall, database, in_transaction, width, max_sessions: most, .. } = &self.attribution;
        let share = |seconds| percent(self.attribution.share(seconds));
        let verdict = format!(
            "{}: {} in the database, {} outside.",
            seconds(*wall),
            share(database.wall),
            share(self.attribution.idle_seconds())
        );
        let mut layer = Layer::new("Suite", verdict);
        let time = |value| Quantity::new(value, Unit::Seconds);
        let count = |value| Quantity::new(value, Unit::Count);
        layer.add_fact("wall", time(*wall));
        layer.add_fact("in the database", time(database.wall));
        layer.add_fact("outside", time(self.attribution.idle_seconds()));
        layer.add_fact("outside, within a transaction", time(*in_transaction));
        layer.add_fact("session time in the database", time(database.sessions));
        layer.add_fact("boot", self.circumstances.boot.map(time));
        layer.add_fact("template", self.circumstances.template.map(time));
        layer.add_fact("usual number of sessions at work", count(*width));
        layer.add_fact("at most", count(as_f64(*most)));
        let connecting = self.connecting();
        layer.add_fact("sessions started", connecting.map(|(sessions, _)| count(sessions)));
        layer.add_fact("waiting for sessions", connecting.map(|(_, spent)| time(spent)));
        layer
    }

    pub(crate) fn connecting(&self) -> Option<(f64, f64)> {
        let Self { recording, attribution, circumstances, .. } = self;
        Analysis { recording, attribution, circumstances }.connecting()
    }

    fn server(&self) -> Layer {
        let counters = self.recording.counters;
        let syncs = counters.wal_syncs.map_or_else(
            || "It does not count its flushes.".to_owned(),
            |syncs| format!("It flushed its log {syncs:.0} times."),
        );
        let mut layer = Layer::new("Server", syncs);
        let count = |value: Option<f64>| value.map(|value| Quantity::new(value, Unit::Count));
        layer.add_fact("log", counters.wal_bytes.map(|bytes| Quantity::new(bytes, Unit::Bytes)));
        layer.add_fact("commits", count(counters.commits));
        layer.add_fact("checkpoints requested", count(counters.checkpoints_requested));
        layer.add_fact("checkpoints scheduled", count(counters.checkpoints_timed));
        let syncing = counters.checkpoint_sync_seconds.map(|time| Quantity::new(time, Unit::Seconds));
        layer.add_fact("checkpoints flushing", syncing);
        layer.add_fact("files flushed by sessions", count(counters.session_syncs));
        layer
    }

    fn machine(&self) -> Option<Layer> {
        let machine = self.recording.machine?;
        let time = |value| Quantity::new(value, Unit::Seconds);
        let verdict = format!(
            "The server's sessions used processors for {}, and waited for them for {}.",
            seconds(machine.backend_cpu),
            seconds(machine.backend_delay)
        );
        let mut layer = Layer::new("Machine", verdict);
        layer.add_fact("processors", Quantity::new(machine.processors, Unit::Count));
        let suite = Some(machine.suite_cpu).filter(|cpu| *cpu > 0.0);
        layer.add_fact("suite's processor time", suite.map(time));
        layer.add_fact("sessions' processor time", time(machine.backend_cpu));
        layer.add_fact("sessions' wait for processors", time(machine.backend_delay));
        layer.add_fact("written by sessions", Quantity::new(machine.backend_written, Unit::Bytes));
        layer.add_fact("time with a task waiting for a processor", machine.cpu_pressure.map(time));
        layer.add_fact("time with a task waiting for a disk", machine.io_pressure.map(time));
        Some(layer)
    }

    /// Returns the cells for a time: its wall time, its session time, and the latter as a fraction of all
    /// session time.
    fn cells(&self, time: Time) -> [Cell; 3] {
        let quantity = |value| Quantity::new(value, Unit::Seconds);
        let all = self.attribution.database.sessions;
        let share = if all > 0.0 { percent(time.sessions / all) } else { percent(0.0) };
        [quantity(time.wall).into(), quantity(time.sessions).into(), share.into()]
    }

    /// Returns a table of the time in the database, one row per kind of statement.
    #[must_use]
    pub fn kinds(&self) -> Table {
        let numbers = ["wall", "sessions", "share"].map(Column::right);
        let columns = [Column::left("kind")].into_iter().chain(numbers).chain([Column::left("waits for")]);
        let mut table = Table::new("Kinds of statements", columns);
        for (kind, time) in Attribution::ranked(&self.attribution.kinds) {
            let of_kind = self.attribution.kinds_and_causes.iter().filter(|((this, _), _)| *this == kind);
            let mut waits: Vec<_> = of_kind.map(|((_, cause), time)| (cause, time.sessions)).collect();
            waits.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            let waits = waits
                .iter()
                .filter(|(_, spent)| *spent >= 0.05 * time.sessions)
                .map(|(cause, spent)| format!("{cause} {}", percent(spent / time.sessions)))
                .collect::<Vec<_>>();
            let [wall, sessions, share] = self.cells(time);
            table.add_row([kind.name().into(), wall, sessions, share, waits.join(", ").into()]);
        }
        table
    }

    fn causes(&self) -> Table {
        let ranked = Attribution::ranked(&self.attribution.causes).into_iter();
        self.times("Waits", "for", ranked.map(|(cause, time)| (cause.name(), time)))
    }

    fn databases(&self) -> Table {
        let databases = self.attribution.databases.iter().take(LINES);
        self.times("Databases", "database", databases.map(|(name, time)| (name.as_str(), *time)))
    }

    fn times<'a>(&self, title: &str, words: &str, rows: impl Iterator<Item = (&'a str, Time)>) -> Table {
        let mut table = Table::numbers(title, words, ["wall", "sessions", "share"]);
        for (name, time) in rows {
            let [wall, sessions, share] = self.cells(time);
            table.add_row([name.into(), wall, sessions, share]);
        }
        table
    }

    fn statements(&self) -> Table {
        let runs: &[&str] = if self.attribution.exact { &["runs"] } else { &["sampled runs", "runs, about"] };
        let numbers =
            [&["wall", "sessions", "share"], runs, &["each"]].concat().into_iter().map(Column::right);
        let mut table = Table::new("Statements", numbers.chain([Column::left("statement")]));
        for (statement, spent) in self.attribution.statements.iter().take(LINES) {
            let [wall, sessions, share] = self.cells(spent.time);
            let seen = (!self.attribution.exact).then(|| as_f64(spent.seen));
            let runs = seen.into_iter().chain([spent.runs.round()]);
            let runs = runs.map(|runs| Quantity::new(runs, Unit::Count).into());
            let each = Quantity::new(spent.each(), Unit::Seconds);
            let text = self.recording.statements.get(*statement).text.as_str();
            table.add_row(
                [wall, sessions, share].into_iter().chain(runs).chain([each.into(), Cell::statement(text)]),
            );
        }
        table
    }

    fn notes(&self) -> Vec<String> {
        let Recording { samples, sampling_time, seconds: length, cut_short, exact, .. } = &self.recording;
        let each = sampling_time / as_f64(samples.len().max(1));
        let mut notes = Vec::new();
        if self.attribution.exact {
            notes.push(
                "Times and runs of statements are exact, because the gateway measures them from the request to the \
                response. Samples show what the statements waited for."
                    .to_owned(),
            );
        } else if exact.is_some() {
            notes.push(
                "All times are estimates from samples, because some sessions did not come through the gateway, or \
                because there were more statements than it could log."
                    .to_owned(),
            );
        }
        notes.push(format!(
            "There were {} samples in {}, each of {}. A share of the time is accurate to about {} points.",
            samples.len(),
            seconds(*length),
            seconds(each),
            // Two standard errors of a proportion of one half.
            (100.0 / as_f64(samples.len().max(1)).sqrt()).round()
        ));
        notes.push(
            "\"wall\" divides each moment among the sessions at work, and \"sessions\" counts it once for each of \
            them."
                .to_owned(),
        );
        notes.extend(exact.as_ref().and_then(GatewayTimes::unfinished_note));
        if let Some(Counted::Unavailable(why)) = &self.recording.counted {
            notes.push(format!("The server did not count statements: {why}."));
        }
        if let Some(why) = cut_short {
            notes.push(format!("pgfresh did not observe the server to the end: {why}."));
        }
        notes
    }
}

/// Returns a table of the server's own counts.
fn counted(lines: &[CountedStatement]) -> Table {
    let numbers = ["time", "runs", "each", "rows"].map(Column::right);
    let words = ["database", "statement"].map(Column::left);
    let mut table = Table::new("Counted by pg_stat_statements", numbers.into_iter().chain(words));
    for CountedStatement { statement, database, runs, seconds, rows } in lines.iter().take(LINES) {
        let [time, each] = [*seconds, seconds / runs].map(|time| Quantity::new(time, Unit::Seconds).into());
        let [runs, rows] = [*runs, *rows].map(|count| Quantity::new(count, Unit::Count).into());
        table.add_row([
            time,
            runs,
            each,
            rows,
            database.as_str().into(),
            Cell::statement(statement.text.as_str()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use report::display_width;

    use super::*;
    use crate::attribution::tests::recording;
    use crate::test_records::{Repetition, RepetitionKind};

    proptest! {
        #[test]
        fn summary_fits_terminal(
            sql in "[^:]{1,300}",
            name in prop_oneof![any::<String>(), "[a-z_日本]{0,300}"],
            is_test: bool,
            columns in prop_oneof![Just(40_usize), Just(80), Just(200), 30_usize..200],
        ) {
            let statement = format!("a:SELECT {sql}:lock");
            let mut profile = Profile::new(recording(&[&[&statement]]), Circumstances::default());
            let kind = RepetitionKind::NPlusOne { after: None };
            let repetitions = vec![Repetition { statement: 0, count: 12, seconds: 0.5, kind }];
            profile.records = vec![TestRecord { name, is_test, repetitions, ..TestRecord::default() }];
            for line in profile.summary(columns).lines().chain(profile.report().to_text(columns).lines()) {
                prop_assert!(display_width(line) <= columns, "{}: {:?}", columns, line);
            }
        }
    }
}
