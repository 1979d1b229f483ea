//! Collects the distinct statements of a test suite: the values of a few runs, the session settings, and the tests that
//! ran them. A reader can then ask a planner for their plans.
//!
//! If a statement runs many times, the collection keeps the runs whose text and values have the lowest digests. This
//! selection is random but reproducible: it doesn't depend on the order of the tests.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use lease::cut;
use pgwire::{
    BoundValue, Completed, NormalizedStatement, SentStatement, SqlLexer, StartupParams, planned_query,
    split_statements,
};
use sys::lock;

use crate::planner_settings::PlannerSettings;

/// Maximum number of distinct statements.
const MAX_STATEMENTS: usize = 10_000;
/// Maximum size of all texts and values, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum number of runs of each statement with their values.
const RUNS: usize = 3;
/// Maximum number of pairs of a statement and a test that ran the statement.
const MAX_PAIRS: usize = 1_000_000;
/// Maximum number of original texts (as clients sent them) in the cache.
const MAX_CACHED_TEXTS: usize = 2000;
/// Maximum size of the cached texts, in bytes.
const MAX_CACHED_BYTES: usize = 8 << 20;

/// First words of statements that don't have plans and don't count as missing.
const OTHERS: &[&[u8]] = &[
    b"begin",
    b"start",
    b"rollback",
    b"savepoint",
    b"release",
    b"fetch",
    b"move",
    b"close",
    b"show",
    b"prepare",
    b"deallocate",
    b"listen",
    b"unlisten",
    b"notify",
    b"lock",
];

/// A collected statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedStatement {
    /// Name of the template that the statement's database is a copy of.
    pub template: String,
    /// Text with placeholders instead of values.
    pub normalized: String,
    /// Session settings that affect plans and names, sorted by name.
    pub settings: Vec<(String, String)>,
    /// Some runs with different texts or values. There is at least one.
    pub runs: Vec<CollectedRun>,
    /// Total number of runs.
    pub count: u64,
    /// Highest number of runs of one named prepared statement. 0 if clients prepared the statement only without a name.
    pub prepared_runs: u64,
    /// Names of the tests that ran the statement, sorted. For a test without a name, this is the database name.
    pub tests: Vec<String>,
}

/// A run of a collected statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedRun {
    /// Text of the single statement. For a cursor or a COPY of a query, this is the query. For a COPY of a table, it is
    /// the whole COPY.
    pub text: String,
    /// Bound values.
    pub values: Vec<BoundValue>,
}

/// All collected statements, and how many runs are missing from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectedStatements {
    /// Statements that the server plans, and COPY of tables, sorted by their normalized text.
    pub statements: Vec<CollectedStatement>,
    /// Runs of statements that the server doesn't plan, such as CREATE TABLE. Table COPY, transaction control, settings
    /// and FETCH don't count.
    pub utilities: u64,
    /// Runs of EXECUTE, which don't count because their statements were prepared in SQL.
    pub sql_executions: u64,
    /// Runs of statements that are too long or not UTF-8.
    pub unread: u64,
    /// Sessions that the gateway couldn't follow to their end, so their number of statements is unknown.
    pub lost_sessions: u64,
    /// Runs that exceed the limits on the number and size of statements.
    pub beyond_limits: u64,
    /// Pairs of a statement and a test that exceed the limit.
    pub tests_beyond_limit: u64,
    /// Whether any client has named a test.
    pub has_names: bool,
}

/// Collection for all sessions of a gateway.
#[derive(Debug, Default)]
pub struct StatementCollection(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    statements: Vec<Entry>,
    /// Indexes in `statements`.
    indexes: HashMap<Key, usize>,
    /// Parsed parts of the most recent client texts.
    parts: HashMap<Arc<str>, Arc<[Part]>>,
    parts_bytes: usize,
    normalized: Interner<String>,
    settings: Interner<Vec<(String, String)>>,
    names: Interner<String>,
    /// Statements of running tests, by the number of their database name.
    running: HashMap<u32, HashSet<usize>>,
    bytes: usize,
    pairs: usize,
    missing: CollectedStatements,
}

/// Numbers of the template, the normalized text and the settings.
type Key = (u32, u32, u32);

#[derive(Debug)]
struct Entry {
    key: Key,
    /// Runs with their digests, in ascending order.
    runs: Vec<(u64, SentStatement)>,
    count: u64,
    prepared_runs: u64,
    tests: BTreeSet<u32>,
}

/// A part of a client's text, which can contain several statements.
#[derive(Debug, Clone)]
enum Part {
    /// A statement that the server plans, or a COPY of a table. The number is that of its normalized text, or `None`
    /// above the limit. The text is `None` if it is the client's whole text.
    Planned(Option<u32>, Option<Arc<str>>),
    Setting(Arc<str>),
    /// The end of a transaction. True means a commit.
    End(bool),
    SqlExecution,
    Utility,
    /// BEGIN, SAVEPOINT, FETCH and similar statements, which don't need a plan and don't count as missing.
    Other,
}

/// Assigns equal values the same number, starting at 0.
#[derive(Debug)]
struct Interner<T> {
    numbers: HashMap<Arc<T>, u32>,
    values: Vec<Arc<T>>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }
}

impl<T: std::hash::Hash + Eq> Interner<T> {
    fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let value = Arc::new(value);
        self.values.push(Arc::clone(&value));
        self.numbers.insert(value, number);
        number
    }

    /// Like [`Self::number`], but returns `None` for a new value beyond [`MAX_STATEMENTS`].
    fn limited_number(&mut self, value: T) -> Option<u32> {
        let has_room = self.values.len() < MAX_STATEMENTS || self.numbers.contains_key(&value);
        has_room.then(|| self.number(value))
    }

    fn value(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}

/// Adds the statements of one session to a collection.
#[derive(Debug)]
pub(crate) struct SessionCollector {
    collection: Arc<StatementCollection>,
    template: u32,
    database: u32,
    settings: PlannerSettings,
    /// Number of the current settings. `None` above the limit.
    settings_number: Option<u32>,
}

impl StatementCollection {
    /// Returns a collector for a new session in the lease `database`.
    pub(crate) fn session(
        self: &Arc<Self>,
        database: &str,
        template: String,
        params: &StartupParams,
    ) -> SessionCollector {
        let settings = PlannerSettings::at_startup(params);
        let mut state = lock(&self.0);
        let template = state.names.number(template);
        let database = state.names.number(cut(database).to_owned());
        let settings_number = state.settings.limited_number(settings.current());
        drop(state);
        SessionCollector { collection: Arc::clone(self), template, database, settings, settings_number }
    }

    /// Ends the test that used the lease `database`. `name` is the test's name in its test runner.
    pub(crate) fn test_ended(&self, database: &str, name: Option<&str>) {
        let mut state = lock(&self.0);
        let database = state.names.number(cut(database).to_owned());
        state.missing.has_names |= name.is_some();
        if let Some(statements) = state.running.remove(&database) {
            let test = name.map_or(database, |name| state.names.number(name.to_owned()));
            state.add_test(test, statements);
        }
    }

    /// Counts a session that the gateway couldn't follow to its end.
    pub(crate) fn count_lost(&self) {
        lock(&self.0).missing.lost_sessions += 1;
    }

    /// Ends all tests, and removes and returns all statements.
    #[must_use]
    pub fn finish(&self) -> CollectedStatements {
        let mut state = std::mem::take(&mut *lock(&self.0));
        for (database, statements) in state.running.drain().collect::<BTreeMap<_, _>>() {
            state.add_test(database, statements);
        }
        let State { statements, normalized, settings, names, missing, .. } = state;
        let collected = |Entry { key, runs, count, prepared_runs, tests }: Entry| {
            let mut tests: Vec<_> = tests.into_iter().map(|test| names.value(test).clone()).collect();
            tests.sort_unstable();
            let runs = runs.into_iter().filter_map(|(_, sent)| {
                Some(CollectedRun { text: sent.text.as_ref().to_owned(), values: sent.parameters()? })
            });
            let (template, text, session) = key;
            CollectedStatement {
                template: names.value(template).clone(),
                normalized: normalized.value(text).clone(),
                settings: settings.value(session).clone(),
                runs: runs.collect(),
                count,
                prepared_runs,
                tests,
            }
        };
        let mut statements: Vec<_> =
            statements.into_iter().map(collected).filter(|statement| !statement.runs.is_empty()).collect();
        statements.sort_by(|one, other| {
            (&one.normalized, &one.settings, &one.template).cmp(&(
                &other.normalized,
                &other.settings,
                &other.template,
            ))
        });
        CollectedStatements { statements, ..missing }
    }
}

impl SessionCollector {
    /// Adds a completed message.
    pub(crate) fn add(&mut self, done: &Completed) {
        if done.error.is_some() {
            self.settings.failed();
        } else if done.ran {
            match &done.sent {
                Some(sent) => self.add_parts(sent),
                None => lock(&self.collection.0).missing.unread += 1,
            }
        }
        if done.rests == Some(false) {
            self.end_transaction(done.error.is_none());
        }
    }

    fn add_parts(&mut self, sent: &SentStatement) {
        let collection = Arc::clone(&self.collection);
        let parts = lock(&collection.0).parts(&sent.text);
        for part in parts.iter() {
            match part {
                Part::Planned(normalized, text) => {
                    let key = normalized.zip(self.settings_number);
                    let key = key.map(|(normalized, settings)| (self.template, normalized, settings));
                    lock(&collection.0).add(key, self.database, sent, text.as_ref());
                }
                Part::Setting(text) => {
                    if self.settings.apply(text, &sent.parameters().unwrap_or_default()) {
                        self.renumber();
                    }
                }
                Part::End(commits) => self.end_transaction(*commits),
                Part::SqlExecution => lock(&collection.0).missing.sql_executions += 1,
                Part::Utility => lock(&collection.0).missing.utilities += 1,
                Part::Other => {}
            }
        }
    }

    fn end_transaction(&mut self, commits: bool) {
        if self.settings.end_transaction(commits) {
            self.renumber();
        }
    }

    fn renumber(&mut self) {
        self.settings_number = lock(&self.collection.0).settings.limited_number(self.settings.current());
    }

    /// Counts this session as one that the gateway couldn't follow to its end.
    pub(crate) fn count_lost(&self) {
        self.collection.count_lost();
    }
}

impl State {
    fn parts(&mut self, text: &Arc<str>) -> Arc<[Part]> {
        if let Some(parts) = self.parts.get(text) {
            return Arc::clone(parts);
        }
        let parts: Arc<[Part]> =
            split_statements(text).into_iter().map(|part| self.part(text, part)).collect();
        if self.parts.len() >= MAX_CACHED_TEXTS || self.parts_bytes + text.len() > MAX_CACHED_BYTES {
            self.parts.clear();
            self.parts_bytes = 0;
        }
        self.parts_bytes += text.len();
        self.parts.insert(Arc::clone(text), Arc::clone(&parts));
        parts
    }

    fn part(&mut self, whole: &str, part: &str) -> Part {
        let mut lexer = SqlLexer::new(part.as_bytes(), true);
        let mut words = std::iter::from_fn(|| lexer.token()).map(|token| token.text.to_ascii_lowercase());
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if first == b"select" && part.contains("set_config") && PlannerSettings::is_change(part) {
            return Part::Setting(part.into());
        }
        match (first.as_slice(), second.as_slice()) {
            (b"set" | b"reset" | b"discard" | b"savepoint" | b"release", _) => {
                return Part::Setting(part.into());
            }
            (b"prepare", b"transaction") | (b"commit" | b"end", _) => return Part::End(true),
            (b"rollback" | b"abort", second) if second != b"prepared" => {
                let is_savepoint = second == b"to" || words.next().is_some_and(|third| third == b"to");
                return if is_savepoint { Part::Setting(part.into()) } else { Part::End(false) };
            }
            (b"execute", _) => return Part::SqlExecution,
            (first, _) if OTHERS.contains(&first) => return Part::Other,
            _ => {}
        }
        match planned_query(part) {
            Some(query) => {
                let text = (query.len() < whole.trim().len()).then(|| query.into());
                Part::Planned(self.normalized_number(NormalizedStatement::whole_text(query)), text)
            }
            // The server doesn't plan a COPY of a table, but its locks matter, so collect it.
            None if first == b"copy" => {
                let text = (part.len() < whole.trim().len()).then(|| part.into());
                Part::Planned(self.normalized_number(NormalizedStatement::whole_text(part)), text)
            }
            None => Part::Utility,
        }
    }

    /// Returns the number of a normalized text, or `None` for a new text above the limits.
    fn normalized_number(&mut self, text: String) -> Option<u32> {
        if self.bytes >= MAX_BYTES && !self.normalized.numbers.contains_key(&text) {
            return None;
        }
        let (before, size) = (self.normalized.values.len(), text.len());
        let number = self.normalized.limited_number(text)?;
        if self.normalized.values.len() > before {
            self.bytes += size;
        }
        Some(number)
    }

    /// Adds a run. `key` is `None` above the limits. `text` is the statement's text, or `None` if that is the client's
    /// whole text.
    fn add(&mut self, key: Option<Key>, database: u32, sent: &SentStatement, text: Option<&Arc<str>>) {
        let Some(index) = key.and_then(|key| self.index(key)) else {
            self.missing.beyond_limits += 1;
            return;
        };
        let text = text.unwrap_or(&sent.text);
        let statement = sent.with_text(Arc::clone(text));
        let entry = &mut self.statements[index];
        entry.count += 1;
        entry.prepared_runs = entry.prepared_runs.max(statement.prepared_runs);
        let before = entry.size();
        if before == 0 || self.bytes < MAX_BYTES {
            entry.keep(statement);
        }
        self.bytes = self.bytes - before + entry.size();
        self.running.entry(database).or_default().insert(index);
    }

    /// Returns the statement's index, or `None` for a new statement above the limits.
    fn index(&mut self, key: Key) -> Option<usize> {
        if let Some(index) = self.indexes.get(&key) {
            return Some(*index);
        }
        if self.statements.len() >= MAX_STATEMENTS || self.bytes >= MAX_BYTES {
            return None;
        }
        let index = self.statements.len();
        self.indexes.insert(key, index);
        self.statements.push(Entry {
            key,
            runs: Vec::new(),
            count: 0,
            prepared_runs: 0,
            tests: BTreeSet::new(),
        });
        Some(index)
    }

    fn add_test(&mut self, test: u32, statements: HashSet<usize>) {
        for index in statements {
            let tests = &mut self.statements[index].tests;
            if self.pairs >= MAX_PAIRS && !tests.contains(&test) {
                self.missing.tests_beyond_limit += 1;
            } else if tests.insert(test) {
                self.pairs += 1;
            }
        }
    }
}

impl Entry {
    /// Stores the run if its digest is among the lowest.
    fn keep(&mut self, statement: SentStatement) {
        let digest = statement.digest();
        let Err(at) = self.runs.binary_search_by_key(&digest, |(digest, _)| *digest) else { return };
        if at < RUNS {
            self.runs.insert(at, (digest, statement));
            self.runs.truncate(RUNS);
        }
    }

    fn size(&self) -> usize {
        self.runs.iter().map(|(_, statement)| statement.size()).sum()
    }
}

#[cfg(test)]
mod tests;
