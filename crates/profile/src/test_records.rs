//! Determines what each test did in its database and which queries it repeated.
//!
//! A record starts with the first use of a database and ends when a client names its test, releases the database, or
//! disconnects. A record without a name only counts as a test if each test has its own database. Suites that weren't
//! adapted to pgfresh often use the same database for all tests, or one database per worker process. In such a
//! database, many tests may run the same query once each, which must not count as an N+1. Transactions and savepoints
//! can't separate the tests, because applications also use them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::completed_statement::CompletedStatement;
use crate::time::Time;
use pgwire::{QueryRuns, RepeatedPart, StatementKind};

/// Maximum number of repeated queries in a test's record.
const MAX_REPETITIONS: usize = 5;

/// Minimum number of databases before pgfresh assumes that each test has its own database. If a suite uses fewer
/// databases, mostly one after another, pgfresh doesn't assume this.
const MIN_TEST_DATABASES: usize = 10;
/// Minimum ratio between the total number of databases and the number of databases in use concurrently.
const MIN_DATABASE_TURNOVER: usize = 3;
/// Database that programs connect to when they create and drop other databases. It doesn't belong to a test.
const MAINTENANCE: &str = "postgres";

/// Record of a test's activity in its database.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TestRecord {
    /// The test's name as reported by the test runner. Without a reported name, the name of the test's database.
    pub(crate) name: String,
    /// True if the record belongs to exactly one test.
    pub(crate) is_test: bool,
    /// True if a client named the test.
    pub(crate) is_named: bool,
    /// How long the server worked for the test.
    pub(crate) time: Time,
    /// Number of statements run.
    pub(crate) statements: u64,
    /// Number of rows returned or changed by the statements.
    pub(crate) rows: u64,
    /// Number of sessions started.
    pub(crate) sessions: u64,
    /// Number of COMMIT statements.
    pub(crate) commits: u64,
    /// The statement that took longest, with its duration in seconds.
    pub(crate) longest: Option<(u32, f64)>,
    /// Queries that the test repeated, longest total time first. Empty if the record doesn't belong to exactly one
    /// test.
    pub(crate) repetitions: Vec<Repetition>,
}

/// A query that a test ran more than once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Repetition {
    /// Index of the statement.
    pub(crate) statement: u32,
    /// Number of runs.
    pub(crate) count: u64,
    /// Total time of all runs, in seconds.
    pub(crate) seconds: f64,
    /// Whether the values were the same each time.
    pub(crate) kind: RepetitionKind,
}

/// The kind of a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepetitionKind {
    /// The query ran with different values each time, so a single query could replace all runs.
    NPlusOne {
        /// Index of the statement before the first run, if that statement returned several rows.
        after: Option<u32>,
    },
    /// The query ran with the same values each time.
    Identical,
}

/// The records of all tests.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestRecords {
    at_work: HashMap<Arc<str>, RunningTest>,
    ended: Vec<EndedTest>,
}

/// A database's record after the client has released the database.
#[derive(Debug, Clone)]
struct EndedTest {
    /// The record with its repetitions. The record counts as a test if the client named the test.
    record: TestRecord,
    lasted: Option<TimeSpan>,
}

/// The times at which the first and the last statement ended.
type TimeSpan = (Instant, Instant);

/// The record of a test that hasn't ended yet.
#[derive(Debug, Clone, Default)]
struct RunningTest {
    record: TestRecord,
    queries: HashMap<u32, Runs>,
    /// The last statement and the number of rows it returned.
    last: Option<(u32, u64)>,
    lasted: Option<TimeSpan>,
}

/// A query's runs.
#[derive(Debug, Clone, Default)]
struct Runs {
    counted: QueryRuns,
    seconds: f64,
    /// The query before the first run, if it returned several rows.
    after: Option<u32>,
}

impl TestRecords {
    /// Records the start of a session in this database.
    pub(crate) fn session_started(&mut self, database: &Arc<str>) {
        self.at_work.entry(Arc::clone(database)).or_default().record.sessions += 1;
    }

    /// Records a completed statement and how long it took.
    pub(crate) fn statement_completed(
        &mut self,
        done: &CompletedStatement<'_>,
        statement: u32,
        kind: StatementKind,
        time: Time,
    ) {
        let ongoing = self.at_work.entry(Arc::clone(done.database)).or_default();
        ongoing.lasted = Some((ongoing.lasted.map_or(done.at, |(first, _)| first), done.at));
        let record = &mut ongoing.record;
        record.time.add_time(time);
        record.statements += done.runs;
        record.rows += done.rows;
        record.commits += done.runs * u64::from(kind == StatementKind::Commit);
        if record.longest.is_none_or(|(_, longest)| time.sessions > longest) {
            record.longest = Some((statement, time.sessions));
        }
        let last = ongoing.last.replace((statement, done.rows));
        // Batched runs cost no round trip each, so don't count them as repetitions.
        if kind == StatementKind::Select && done.runs == 1 {
            let after = last.filter(|(last, rows)| *last != statement && *rows > 1).map(|(last, _)| last);
            let runs = ongoing.queries.entry(statement).or_insert_with(|| Runs { after, ..Runs::default() });
            runs.counted.add(done.values, done.statement);
            runs.seconds += time.sessions;
        }
    }

    /// Ends the test in `database`. `name` is the test's name as reported by the test runner.
    pub(crate) fn test_ended(&mut self, database: &str, name: Option<&str>) {
        if let Some((database, ongoing)) = self.at_work.remove_entry(database) {
            let lasted = ongoing.lasted;
            let record = ongoing.end(name.unwrap_or(&database));
            let record = TestRecord { is_test: name.is_some(), is_named: name.is_some(), ..record };
            self.ended.push(EndedTest { record, lasted });
        }
    }

    /// Returns all records, including those of unfinished tests, longest time first.
    pub(crate) fn records(&self) -> Vec<TestRecord> {
        let one_each = self.has_one_database_for_each_test();
        let at_work = self.at_work.iter().map(|(database, ongoing)| {
            let is_test = &**database != MAINTENANCE;
            TestRecord { is_test: is_test && one_each, ..ongoing.clone().end(database) }
        });
        let ended = self.ended.iter().map(|EndedTest { record, .. }| TestRecord {
            is_test: record.is_test || one_each,
            ..record.clone()
        });
        let mut records: Vec<TestRecord> = ended.chain(at_work).collect();
        for shared in records.iter_mut().filter(|record| !record.is_test) {
            shared.repetitions.clear();
        }
        records.sort_by(|one, other| {
            other.time.sessions.total_cmp(&one.time.sessions).then_with(|| one.name.cmp(&other.name))
        });
        records
    }

    /// Returns true if each test seems to have its own database. In that case, there are many databases, but
    /// only a few of them are in use concurrently. A worker's database, by contrast, remains in use until the
    /// end of the suite.
    fn has_one_database_for_each_test(&self) -> bool {
        let of_tests = self.at_work.iter().filter(|(database, _)| &***database != MAINTENANCE);
        let at_work = of_tests.map(|(_, ongoing)| ongoing.lasted);
        let lasted: Vec<_> = at_work.chain(self.ended.iter().map(|ended| ended.lasted)).flatten().collect();
        let at_once = |(first, _): &(Instant, Instant)| {
            lasted.iter().filter(|(begin, end)| begin <= first && first <= end).count()
        };
        let most = lasted.iter().map(at_once).max().unwrap_or_default();
        lasted.len() >= MIN_TEST_DATABASES && most * MIN_DATABASE_TURNOVER <= lasted.len()
    }
}

impl RunningTest {
    fn end(self, name: &str) -> TestRecord {
        let repeated = self.queries.into_iter().filter_map(|(statement, runs)| runs.repetition(statement));
        let mut repetitions: Vec<Repetition> = repeated.collect();
        repetitions.sort_by(|one, other| {
            other.seconds.total_cmp(&one.seconds).then(one.statement.cmp(&other.statement))
        });
        repetitions.truncate(MAX_REPETITIONS);
        TestRecord { name: name.to_owned(), repetitions, ..self.record }
    }
}

impl Runs {
    /// Returns the query's repetition if the query ran often enough.
    fn repetition(self, statement: u32) -> Option<Repetition> {
        let Self { counted, seconds, after } = self;
        let kind = match counted.repeated()? {
            RepeatedPart::Query => RepetitionKind::NPlusOne { after },
            RepeatedPart::Values => RepetitionKind::Identical,
        };
        let count = counted.count();
        Some(Repetition { statement, count, seconds, kind })
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::interner::Interner;
    use pgwire::NormalizedStatement;

    fn digest(text: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    }

    /// Simulates a statement that returns `rows` rows and takes a millisecond. The line is `DATABASE:SQL`, or
    /// `DATABASE:SQL|VALUES` if there are bound values.
    fn simulate_statement(
        tests: &mut TestRecords,
        statements: &mut Interner<NormalizedStatement>,
        line: &str,
        rows: u64,
    ) {
        let (database, sql) = line.split_once(':').unwrap();
        let (sql, values) =
            sql.split_once('|').map_or((sql, None), |(sql, values)| (sql, Some(digest(values))));
        let read = NormalizedStatement::read(sql);
        let (kind, place) = (read.kind, statements.intern(read));
        let (database, statement, at) = (&database.into(), &sql.into(), Instant::now());
        let done = CompletedStatement {
            session: 1,
            database,
            statement,
            runs: 1,
            values,
            rows,
            idle_in_transaction: None,
            at,
        };
        tests.statement_completed(&done, place, kind, Time { wall: 1e-3, sessions: 1e-3, saved: 0.0 });
    }

    fn simulate(script: &[(&str, u64)]) -> (TestRecords, Interner<NormalizedStatement>) {
        let (mut tests, mut statements) = (TestRecords::default(), Interner::default());
        for (line, rows) in script {
            simulate_statement(&mut tests, &mut statements, line, *rows);
        }
        (tests, statements)
    }

    #[test]
    fn n_plus_one_is_found_with_both_protocols() {
        for each in ["t:SELECT * FROM books WHERE author = $1|{}", "t:SELECT * FROM books WHERE author = {}"]
        {
            let books: Vec<String> = (0..7).map(|author| each.replace("{}", &author.to_string())).collect();
            let mut script = vec![("t:SELECT * FROM authors", 7)];
            script.extend(books.iter().map(|line| (line.as_str(), 2)));
            let (mut tests, statements) = simulate(&script);
            assert!(tests.records()[0].repetitions.is_empty(), "no client has said that it is one test");
            tests.test_ended("t", Some("t"));
            let records = tests.records();
            let [record] = &records[..] else { panic!("{records:?}") };
            assert_eq!((record.name.as_str(), record.statements, record.rows), ("t", 8, 21));
            let [repetition] = &record.repetitions[..] else { panic!("{record:?}") };
            assert_eq!(
                (repetition.count, statements.get(repetition.statement).kind),
                (7, StatementKind::Select)
            );
            let RepetitionKind::NPlusOne { after: Some(after) } = repetition.kind else {
                panic!("{record:?}")
            };
            assert_eq!(statements.get(after).text, "SELECT * FROM authors");
        }
    }

    #[test]
    fn equal_queries_of_one_test_are_identical_repetitions() {
        let (mut tests, _) = simulate(&[("t:SELECT * FROM settings WHERE name = $1|theme", 1); 6]);
        tests.test_ended("t", Some("t"));
        let records = tests.records();
        assert_eq!(records[0].repetitions[0].kind, RepetitionKind::Identical);
        // Two tests may run the same query, and writes never count as repetitions.
        let apart: Vec<String> = (0..6).map(|test| format!("t{test}:SELECT 1")).collect();
        let apart: Vec<_> = apart
            .iter()
            .map(|line| (line.as_str(), 1))
            .chain([("t0:INSERT INTO t VALUES (1)", 1); 9])
            .collect();
        let records = simulate(&apart).0.records();
        assert!(records.iter().all(|record| record.repetitions.is_empty()));
        // An implicit commit doesn't count as a COMMIT statement.
        assert!(records.iter().all(|record| record.commits == 0));
    }

    /// If many tests run the same query once each, it must not count as an N+1 in any of them.
    #[test]
    fn databases_that_tests_share_have_no_repetitions() {
        let lookups =
            |database: &str| (0..50).map(|key| format!("{database}:SELECT {key}")).collect::<Vec<_>>();
        let repetitions = |script: &[String]| {
            let script: Vec<_> = script.iter().map(|line| (line.as_str(), 1)).collect();
            simulate(&script).0.records().iter().filter(|record| !record.repetitions.is_empty()).count()
        };
        let one_after_another = |count: usize| {
            (0..count).flat_map(|database| lookups(&format!("d{database}"))).collect::<Vec<_>>()
        };
        // Suites with one database for all tests, with two databases one after another, and with one database for each
        // of twelve workers.
        assert_eq!(repetitions(&lookups("test_app")), 0);
        assert_eq!(repetitions(&one_after_another(2)), 0);
        let mut workers = one_after_another(12);
        workers.sort_by_key(|line| line.rsplit(' ').next().and_then(|key| key.parse::<u32>().ok()));
        assert_eq!(repetitions(&workers), 0);
        // If a client releases a database without naming a test, the database's record doesn't count as a test.
        let (mut tests, _) = simulate(&[("leased:SELECT 1", 1); 9]);
        tests.test_ended("leased", None);
        assert!(tests.records()[0].repetitions.is_empty());
        // A suite with one database per test. The maintenance database doesn't belong to a test.
        let mut each = one_after_another(MIN_TEST_DATABASES);
        assert_eq!(repetitions(&each), MIN_TEST_DATABASES);
        each.extend(lookups(MAINTENANCE));
        assert_eq!(repetitions(&each), MIN_TEST_DATABASES);
    }

    #[test]
    fn named_end_closes_one_test_and_begins_next() {
        let (mut tests, _) = simulate(&[("fresh:SELECT 1", 1), ("fresh:COMMIT", 0), ("other:SELECT 2", 1)]);
        tests.test_ended("fresh", Some("test_one"));
        tests.test_ended("unused", Some("test_two"));
        tests.session_started(&"fresh".into());
        let mut records = tests.records();
        records.sort_by(|one, other| one.name.cmp(&other.name));
        let seen = records
            .iter()
            .map(|record| (record.name.as_str(), record.statements, record.commits, record.sessions));
        assert_eq!(seen.collect::<Vec<_>>(), [("fresh", 0, 0, 1), ("other", 1, 0, 0), ("test_one", 2, 1, 0)]);
    }

    proptest! {
        #[test]
        fn every_statement_belongs_to_one_test(
            script in prop::collection::vec((0..3_usize, 0..4_u8, 0..3_u64, any::<bool>()), 0..60),
        ) {
            let (mut tests, mut statements, mut ends) = (TestRecords::default(), Interner::default(), 0);
            for (database, value, rows, ends_here) in &script {
                simulate_statement(&mut tests, &mut statements, &format!("d{database}:SELECT {value}"), *rows);
                if *ends_here {
                    tests.test_ended(&format!("d{database}"), Some("named"));
                    ends += 1;
                }
            }
            let records = tests.records();
            prop_assert_eq!(records.iter().map(|record| record.statements).sum::<u64>(), script.len() as u64);
            prop_assert_eq!(records.iter().filter(|record| record.name == "named").count(), ends);
        }
    }
}
