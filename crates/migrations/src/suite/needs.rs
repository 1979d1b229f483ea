//! Determines the locks that each statement of a suite takes on a database.
//!
//! PostgreSQL reports the locks of planning: pgfresh explains the statement in a transaction and reads `pg_locks`.
//! Execution takes more locks, which pgfresh derives from the catalogs. They are on the indexes of a changed table, on
//! the tables at the other end of foreign keys, and on the partitions that rows go to. The locks that functions and
//! triggers take stay unknown, so pgfresh lists the names of these.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use pgwire::Token;
use plans::{RelationName, SuiteStatement};
use server::AdminConnection;

use super::catalog::{Catalog, Change, Columns};
use super::changes::changes;
use super::explain::{Explained, Explainer, SuiteError, visit_texts};
use crate::LockMode;
use crate::sql_text::tokens;

/// Maximum number of triggers and functions that a phrase names.
const MOST_NAMES: usize = 5;

/// The locks that a statement takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatementNeeds {
    /// SQL without values.
    pub statement: String,
    /// Names of the tests that run the statement, sorted.
    pub tests: Vec<String>,
    /// How often the statement ran in the recording.
    pub runs: u64,
    /// Locks on relations that aren't temporary, sorted by relation. Empty if `error` is set.
    pub locks: Vec<NeededLock>,
    /// Triggers and functions that the statement runs and whose locks are unknown, as phrases such as "the trigger
    /// audit".
    pub unseen: Vec<String>,
    /// PostgreSQL's error message if it can't explain the statement with any of the recorded values.
    pub error: Option<String>,
}

/// A lock that a statement takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededLock {
    /// Name of the relation.
    pub relation: RelationName,
    /// Why the statement locks the relation.
    pub reason: LockReason,
    /// The strongest mode that the statement takes.
    pub mode: LockMode,
}

/// Why a statement locks a relation. The reasons are ordered from the most certain to the least.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockReason {
    /// Every run of the statement locks it.
    Statement,
    /// The foreign key with this name has to check or change a row.
    ForeignKey(String),
    /// Some values lead to this partition, but not the recorded ones, or pgfresh doesn't know these.
    Partition,
}

impl fmt::Display for LockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Statement => f.write_str("in each run"),
            Self::ForeignKey(name) => write!(f, "by the foreign key {name}"),
            Self::Partition => f.write_str("with values of this partition"),
        }
    }
}

/// Returns the locks that each statement takes, sorted by text. Statements that differ only in their values count as
/// one.
///
/// The session must have the settings that a client's session would have, and its database must be a copy of the
/// template from before the migration. No statement is executed.
///
/// # Errors
///
/// Returns an error if the session fails. A statement that PostgreSQL can't explain isn't an error.
pub fn needs(
    connection: &mut AdminConnection,
    statements: &[SuiteStatement],
) -> Result<Vec<StatementNeeds>, SuiteError> {
    let mut session = Explainer::new(connection);
    let catalog = Catalog::read(session.connection())?;
    let mut all = Vec::new();
    for (text, group) in by_text(statements) {
        let mut collector = Collector { catalog: &catalog, locks: BTreeMap::new(), unseen: BTreeSet::new() };
        let (mut error, mut is_explained) = (None, false);
        for suite in &group {
            match session.explain(&suite.statement)? {
                Ok(explained) => {
                    is_explained = true;
                    collector.add(&explained, &suite.statement.text);
                }
                Err(refusal) => error = error.or(Some(refusal.0)),
            }
        }
        all.push(StatementNeeds {
            statement: text.to_owned(),
            tests: tests(&group),
            runs: group.iter().map(|suite| suite.runs).sum(),
            locks: collector.sorted(),
            unseen: collector.unseen.into_iter().collect(),
            error: error.filter(|_| !is_explained),
        });
    }
    Ok(all)
}

/// Describes the statements whose locks are unknown, in one phrase for each reason.
#[must_use]
pub fn unseen(needs: &[StatementNeeds]) -> Vec<String> {
    let mut phrases = Vec::new();
    let refused: Vec<_> = needs.iter().filter_map(|need| Some((need, need.error.as_ref()?))).collect();
    if let Some((first, error)) = refused.first() {
        let which = if refused.len() == 1 { "" } else { " the first is" };
        phrases.push(format!(
            "{} of the suite, which PostgreSQL does not explain:{which} {} ({error})",
            statements(refused.len()),
            first.statement
        ));
    }
    let count = needs.iter().filter(|need| !need.unseen.is_empty()).count();
    if count > 0 {
        let names: BTreeSet<&str> = needs.iter().flat_map(|need| &need.unseen).map(String::as_str).collect();
        let more = names.len().saturating_sub(MOST_NAMES);
        let mut names: Vec<_> = names.into_iter().take(MOST_NAMES).map(str::to_owned).collect();
        names.extend((more > 0).then(|| format!("{more} more")));
        let verb = if count == 1 { "runs" } else { "run" };
        phrases.push(format!(
            "locks in functions: {} of the suite {verb} {}",
            statements(count),
            names.join(", ")
        ));
    }
    phrases
}

fn statements(count: usize) -> String {
    if count == 1 { "1 statement".to_owned() } else { format!("{count} statements") }
}

/// Groups statements by their SQL without values.
pub(super) fn by_text(statements: &[SuiteStatement]) -> BTreeMap<&str, Vec<&SuiteStatement>> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for statement in statements {
        groups.entry(statement.normalized.as_str()).or_default().push(statement);
    }
    groups
}

/// Returns the names of all tests that run a statement of `group`, sorted.
pub(super) fn tests(group: &[&SuiteStatement]) -> Vec<String> {
    let names: BTreeSet<&String> = group.iter().flat_map(|suite| &suite.tests).collect();
    names.into_iter().cloned().collect()
}

/// Collects the locks of one statement.
struct Collector<'a> {
    catalog: &'a Catalog,
    /// The strongest mode for each relation and reason.
    locks: BTreeMap<(u32, LockReason), LockMode>,
    unseen: BTreeSet<String>,
}

impl Collector<'_> {
    fn add(&mut self, explained: &Explained, text: &str) {
        for (relation, mode) in &explained.locks {
            self.need(*relation, *mode, &LockReason::Statement);
        }
        self.add_functions(explained);
        let mut done = HashSet::new();
        for (relation, changes) in changes(&explained.plans, text) {
            let Some(table) = self.catalog.number(&relation) else { continue };
            for change in changes {
                self.add_own_change(table, &change);
                self.add_change(table, &change, &mut done);
            }
        }
        self.add_partitions(explained, text);
    }

    /// Adds the partitions that other values would lead to, if the statement names the partitioned table. A statement
    /// that names only a partition makes PostgreSQL lock the partitioned table too, but doesn't lead to other
    /// partitions.
    fn add_partitions(&mut self, explained: &Explained, text: &str) {
        let names: HashSet<String> = tokens(text).iter().filter_map(Token::name).collect();
        let has_view = explained.locks.iter().any(|(relation, _)| self.catalog.is_view(*relation));
        for (relation, mode) in &explained.locks {
            let is_named = self.catalog.name(*relation).is_some_and(|name| names.contains(&name.name));
            if (is_named || has_view) && self.catalog.is_partitioned(*relation) {
                self.need_partitions(*relation, *mode, &LockReason::Partition);
            }
        }
    }

    fn need(&mut self, relation: u32, mode: LockMode, reason: &LockReason) {
        let known = self.locks.entry((relation, reason.clone())).or_insert(mode);
        *known = mode.max(*known);
    }

    /// Adds a table and its indexes, which PostgreSQL locks in the table's mode.
    fn need_table(&mut self, table: u32, mode: LockMode, reason: &LockReason) {
        self.need(table, mode, reason);
        for index in self.catalog.indexes(table) {
            self.need(*index, mode, reason);
        }
    }

    fn need_partitions(&mut self, table: u32, mode: LockMode, reason: &LockReason) {
        for partition in self.catalog.partitions(table) {
            self.need_table(partition, mode, reason);
        }
    }

    /// Adds the locks that a change takes when it is executed: on indexes, and on the partitioned tables above a
    /// partition, because PostgreSQL reads their definitions.
    fn add_own_change(&mut self, table: u32, change: &Change) {
        if *change != Change::Delete && !self.catalog.is_partitioned(table) {
            for index in self.catalog.indexes(table) {
                self.need(*index, LockMode::RowExclusive, &LockReason::Statement);
            }
        }
        for ancestor in self.catalog.ancestors(table) {
            self.need(ancestor, LockMode::AccessShare, &LockReason::Statement);
        }
    }

    /// Adds the locks that a change of rows takes because of foreign keys, and the triggers that it fires.
    fn add_change(&mut self, table: u32, change: &Change, done: &mut HashSet<(u32, Change)>) {
        if !done.insert((table, change.clone())) {
            return;
        }
        let tables: Vec<u32> = std::iter::once(table).chain(self.catalog.partitions(table)).collect();
        for table in tables {
            for trigger in self.catalog.triggers(table, change) {
                self.unseen.insert(format!("the trigger {trigger}"));
            }
            self.check_referenced(table, change);
            self.change_referencing(table, change, done);
        }
    }

    /// Adds the tables that a new row refers to.
    fn check_referenced(&mut self, table: u32, change: &Change) {
        let keys = self.catalog.foreign_keys.iter();
        for key in keys.filter(|key| key.table == table && !key.is_of_partition) {
            let is_checked = match change {
                Change::Insert => true,
                Change::Update(set) => set.touch(&key.columns),
                Change::Delete => false,
            };
            if is_checked {
                let reason = LockReason::ForeignKey(key.name.clone());
                self.need_table(key.referenced, LockMode::RowShare, &reason);
                self.need_partitions(key.referenced, LockMode::RowShare, &LockReason::Partition);
            }
        }
    }

    /// Adds the tables whose rows refer to an old row.
    fn change_referencing(&mut self, table: u32, change: &Change, done: &mut HashSet<(u32, Change)>) {
        for key in self.catalog.foreign_keys.iter().filter(|key| key.referenced == table) {
            let action = match change {
                Change::Delete => &key.on_delete,
                Change::Update(set) if set.touch(&key.referenced_columns) => &key.on_update,
                _ => continue,
            };
            let follows = match action.as_str() {
                "a" | "r" => None,
                "c" if *change == Change::Delete => Some(Change::Delete),
                _ => Some(Change::Update(Columns::Only(key.columns.clone()))),
            };
            let mode = if follows.is_some() { LockMode::RowExclusive } else { LockMode::RowShare };
            let reason = LockReason::ForeignKey(key.name.clone());
            self.need_table(key.table, mode, &reason);
            self.need_partitions(key.table, mode, &reason);
            if let Some(follows) = follows {
                self.add_change(key.table, &follows, done);
            }
        }
    }

    /// Adds the functions that the plans call. Functions that the planner has inlined don't appear in plans.
    fn add_functions(&mut self, explained: &Explained) {
        for plan in &explained.plans {
            visit_texts(plan, &mut |text| {
                let mut last: Option<String> = None;
                for token in tokens(text) {
                    if token.is_sign(b'(')
                        && let Some(name) = last.take()
                        && self.catalog.has_function(&name)
                    {
                        self.unseen.insert(format!("the function {name}"));
                    }
                    last = token.name();
                }
            });
        }
    }

    /// Returns the locks. Leaves out a less certain lock on a relation unless it is stronger.
    fn sorted(&self) -> Vec<NeededLock> {
        let mut locks: Vec<NeededLock> = Vec::new();
        let mut strongest: Option<(u32, LockMode)> = None;
        for ((relation, reason), mode) in &self.locks {
            let is_weaker = strongest.is_some_and(|(known, most)| known == *relation && *mode <= most);
            let Some(name) = self.catalog.name(*relation).filter(|_| !is_weaker) else { continue };
            strongest = Some((*relation, *mode));
            locks.push(NeededLock { relation: name.clone(), reason: reason.clone(), mode: *mode });
        }
        locks.sort();
        locks
    }
}
