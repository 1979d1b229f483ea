//! Collects the statements of a running command, for production's query plans and for migration checks.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway::{CollectedRun, CollectedStatement, CollectedStatements, StatementCollection};
use migrations::suite::SuiteRecording;
use pgwire::planned_query;
use plans::{BoundStatement, SuiteStatement};
use report::counted;
use storage::Cache;

use crate::cli::Run;
use crate::failure::Failure;
use crate::notice::notice;
use crate::report_file;
use crate::service::Service;
use crate::user_command;

/// Collects statements while a command runs.
#[derive(Debug)]
pub(crate) struct StatementWatch {
    collection: Arc<StatementCollection>,
    /// Name of the template whose databases the statements must run in.
    database: String,
}

/// Statements collected from a command that has ended.
#[derive(Debug)]
pub(crate) struct SuiteStatements {
    /// Statements that PostgreSQL plans.
    pub(crate) planned: Vec<SuiteStatement>,
    /// COPY statements that name a table. They take locks but aren't planned.
    copies: Vec<SuiteStatement>,
    /// A phrase for each reason why statements are missing.
    missing: Vec<String>,
}

impl StatementWatch {
    /// Collects the statements of all sessions from now on, if an option of the user needs them. Otherwise
    /// returns `None`.
    pub(crate) fn begin(service: &Service, arguments: &Run) -> Option<Self> {
        let is_needed = arguments.profile || arguments.plans || arguments.statements.is_some();
        let begin = || Self { collection: service.gateway.collect(), database: service.database.clone() };
        is_needed.then(begin)
    }

    /// Ends the collection.
    pub(crate) fn end(self) -> SuiteStatements {
        let collected = self.collection.finish();
        let missing = missing(&collected, &self.database);
        let statements = of_template(collected.statements, &self.database).into_iter();
        let (planned, copies) = statements.partition(|suite| planned_query(&suite.statement.text).is_some());
        SuiteStatements { planned, copies, missing }
    }
}

impl SuiteStatements {
    /// Stores the statements in the cache for later migration checks, and writes them to the file that the user
    /// requested. A failed command might not have run all statements. Its statements therefore only go to the cache if
    /// the cache has none, and never to the file.
    pub(crate) fn keep(
        &self,
        arguments: &Run,
        folder: &Path,
        cache: &Cache,
        code: u8,
    ) -> Result<(), Failure> {
        let recording = self.recording(arguments);
        if !recording.statements.is_empty() {
            let is_better = code == 0 || !recording.is_kept(cache, folder);
            if is_better && let Err(error) = recording.keep(cache, folder) {
                tracing::warn!(%error, "could not keep the suite's statements in the cache");
            }
        }
        let Some(file) = &arguments.statements else { return Ok(()) };
        let name = file.display();
        if code != 0 {
            notice!("pgfresh: did not write \"{name}\", because the command failed");
            return Ok(());
        }
        report_file::write(file, &recording.to_json())?;
        let texts: BTreeSet<_> = recording.statements.iter().map(|suite| &suite.normalized).collect();
        notice!("pgfresh: wrote {} to \"{name}\"", counted(texts.len(), "statement", "statements"));
        Ok(())
    }

    /// Returns a phrase for each reason why some statements have no plan.
    pub(crate) fn unplanned(&self) -> Vec<String> {
        let copies: u64 = self.copies.iter().map(|copy| copy.runs).sum();
        let phrase =
            (copies > 0).then(|| format!("{} of COPY, which PostgreSQL does not plan", runs(copies)));
        phrase.into_iter().chain(self.missing.iter().cloned()).collect()
    }

    fn recording(&self, arguments: &Run) -> SuiteRecording {
        SuiteRecording {
            recorded: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            commands: vec![user_command::to_line(&arguments.command)],
            statements: self.planned.iter().chain(&self.copies).cloned().collect(),
            missing: self.missing.clone(),
        }
    }
}

/// Converts the statements that ran in databases of the template `database`. A statement with several collected runs
/// becomes several statements. The first of them gets the whole run count, and the others count 0 runs.
fn of_template(statements: Vec<CollectedStatement>, database: &str) -> Vec<SuiteStatement> {
    let ours = statements.into_iter().filter(|statement| statement.template == database);
    let convert = |statement: CollectedStatement| {
        let CollectedStatement { normalized, settings, runs, count, prepared_runs, tests, .. } = statement;
        runs.into_iter().enumerate().map(move |(place, CollectedRun { text, values })| {
            let statement =
                BoundStatement { text, parameters: values, prepared_runs, settings: settings.clone() };
            let runs = if place == 0 { count } else { 0 };
            SuiteStatement { statement, normalized: normalized.clone(), runs, tests: tests.clone() }
        })
    };
    ours.flat_map(convert).collect()
}

/// Describes the missing statements, in one phrase for each reason.
fn missing(collected: &CollectedStatements, database: &str) -> Vec<String> {
    let CollectedStatements {
        statements,
        utilities,
        sql_executions,
        unread,
        lost_sessions,
        beyond_limits,
        tests_beyond_limit,
        has_names,
    } = collected;
    let of_others = statements.iter().filter(|statement| statement.template != database);
    let of_others = of_others.map(|statement| statement.count).sum();
    let reasons = [
        (*utilities, "of statements that PostgreSQL does not plan, such as CREATE TABLE"),
        (*sql_executions, "of EXECUTE, whose statements were prepared in SQL"),
        (*unread, "of statements longer than 256 kB, or not in UTF-8"),
        (*beyond_limits, "of statements beyond the first 10,000 different ones, or beyond 64 MB"),
        (of_others, "of statements in databases of other templates"),
    ];
    let mut sentences: Vec<_> = reasons
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", runs(*count)))
        .collect();
    if *lost_sessions > 0 {
        sentences.push(format!("a part of {lost_sessions} sessions whose messages pgfresh could not follow"));
    }
    if *tests_beyond_limit > 0 {
        sentences.push(format!("the names of tests beyond the first million, {tests_beyond_limit} times"));
    }
    if !has_names && !statements.is_empty() {
        sentences
            .push("names of tests: without a pgfresh client, a test has the name of its database".to_owned());
    }
    sentences
}

fn runs(count: u64) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}
