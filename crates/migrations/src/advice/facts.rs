//! Answers the rules' questions about a statement and its transaction from what was observed.

use plans::{RelationKind, RelationName};

use super::change::SchemaChange;
use super::cursor::SqlName;
use super::old_relations::OldRelations;
use super::table_action::TableAction;
use crate::sql_text::tokens;
use crate::{LockMode, ObservedStatement, RelationLock, ReportedStatement};

/// Shortest predicted time that matters, in seconds. Rules ignore scans and rewrites that certainly take less.
const UNNOTICED: f64 = 0.1;

/// A statement that rules examine. All methods leave out relations that the migration itself created.
pub(super) struct Facts<'a> {
    pub(super) statements: &'a [ReportedStatement],
    /// The change that each statement makes, in the order of `statements`.
    pub(super) changes: &'a [SchemaChange],
    pub(super) index: usize,
    pub(super) old: &'a OldRelations,
    /// Whether pgfresh knows the suite's statements. An empty list of broken statements then means that none of them
    /// breaks.
    pub(super) knows_suite: bool,
}

impl<'a> Facts<'a> {
    pub(super) fn reported(&self) -> &'a ReportedStatement {
        &self.statements[self.index]
    }

    pub(super) fn observed(&self) -> &'a ObservedStatement {
        &self.reported().observed
    }

    pub(super) fn change(&self) -> &'a SchemaChange {
        &self.changes[self.index]
    }

    /// Returns the SQLSTATE of the error. `None` if the statement succeeded.
    pub(super) fn error(&self) -> Option<&'a str> {
        self.observed().error.as_ref().map(|error| error.sqlstate.as_str())
    }

    pub(super) fn is_old(&self, name: &SqlName) -> bool {
        self.old.has(&self.observed().database, name)
    }

    /// Returns true if the schema has tables from before the migration.
    pub(super) fn is_old_schema(&self, schema: &str) -> bool {
        self.old.has_schema(&self.observed().database, schema)
    }

    fn is_known(&self, relation: &RelationName) -> bool {
        self.old.contains(&self.observed().database, relation)
    }

    /// Returns the locks on tables and materialized views that the statement took.
    pub(super) fn locks(&self) -> Vec<&'a RelationLock> {
        self.locks_of(self.observed())
    }

    fn locks_of(&self, statement: &'a ObservedStatement) -> Vec<&'a RelationLock> {
        let locks = statement.locks.iter();
        locks.filter(|lock| !lock.kind.is_index() && self.is_known(&lock.relation)).collect()
    }

    /// Returns the locks that earlier statements of the transaction took and that block at least writes.
    pub(super) fn held(&self) -> Vec<&'a RelationLock> {
        let earlier = self.statements[..self.index].iter().filter(|earlier| !earlier.is_bookkeeping);
        let earlier: Vec<_> = earlier
            .map(|earlier| &earlier.observed)
            .filter(|earlier| self.is_same_transaction(earlier))
            .collect();
        let last_rollback = earlier.iter().rposition(|earlier| earlier.tag.as_deref() == Some("ROLLBACK"));
        let is_held = |(position, earlier): &(usize, &ObservedStatement)| {
            !(earlier.is_rolled_back && last_rollback.is_some_and(|rollback| *position < rollback))
        };
        let held = earlier.into_iter().enumerate().filter(is_held);
        held.flat_map(|(_, earlier)| self.locks_of(earlier)).filter(|lock| lock.blocks_writes()).collect()
    }

    fn is_same_transaction(&self, other: &ObservedStatement) -> bool {
        let this = self.observed();
        (this.session, this.transaction) == (other.session, other.transaction)
    }

    /// Returns the changes that the other statements of the transaction make: those before this statement, and those
    /// after it.
    pub(super) fn in_transaction(&self) -> (Vec<&'a SchemaChange>, Vec<&'a SchemaChange>) {
        let others = |range: std::ops::Range<usize>| {
            let pairs = self.statements[range.clone()].iter().zip(&self.changes[range]);
            pairs
                .filter(|(other, _)| self.is_same_transaction(&other.observed))
                .map(|(_, change)| change)
                .collect()
        };
        (others(0..self.index), others(self.index + 1..self.statements.len()))
    }

    /// Returns true if the statement itself validates a constraint.
    pub(super) fn validates(&self) -> bool {
        let SchemaChange::AlterTable { actions, .. } = self.change() else { return false };
        actions.contains(&TableAction::ValidateConstraint)
    }

    /// Returns the changes that a DO block made. Omits changes to tables that the block didn't lock, because it may have
    /// skipped them.
    pub(super) fn block(&self) -> Vec<SchemaChange> {
        let locks = self.locks();
        let is_locked = |name: &SqlName| {
            let is_it = |lock: &&&RelationLock| lock.relation.name == name.name;
            locks.iter().find(is_it).is_some_and(|lock| lock.mode == LockMode::AccessExclusive)
        };
        let mut changes = SchemaChange::read_block(&self.observed().sql);
        changes.retain(|change| match change {
            SchemaChange::AlterTable { table, .. } => is_locked(table),
            SchemaChange::DropTables { names } => names.iter().any(is_locked),
            _ => true,
        });
        changes
    }

    /// Returns the names of the tables that the statement read completely.
    pub(super) fn scanned(&self) -> Vec<String> {
        let scans = self.observed().scans.iter().filter(|scan| self.is_known(&scan.relation));
        scans.map(|scan| scan.relation.to_string()).collect()
    }

    /// Returns the number of rows that the statement updated or deleted, with the name of the table that has most of
    /// them. If the statement's text names a partitioned table, its partitions' rows count as that table's.
    pub(super) fn changed(&self, named: Option<&SqlName>) -> (u64, Option<String>) {
        let known = || self.observed().changed.iter().filter(|changed| self.is_known(&changed.relation));
        let rows = known().map(|changed| changed.rows).sum();
        let is_root = |lock: &&&RelationLock| {
            lock.kind == RelationKind::PartitionedTable
                && named.is_some_and(|name| name.name == lock.relation.name)
        };
        let root = self.locks().iter().find(is_root).map(|lock| lock.relation.to_string());
        let most = known().rev().max_by_key(|changed| changed.rows);
        (rows, root.or_else(|| Some(most?.relation.to_string())))
    }

    /// Returns the names of the tables that the statement copied into new files.
    pub(super) fn rewritten(&self) -> Vec<String> {
        let rewrites = self.observed().rewrites.iter().filter(|rewrite| {
            rewrite.table.is_none() && !rewrite.is_emptied && self.is_known(&rewrite.relation)
        });
        rewrites.map(|rewrite| rewrite.relation.to_string()).collect()
    }

    /// Returns the table of each index that the statement rebuilt. A table appears once for each index.
    fn rebuilt(&self) -> Vec<String> {
        let rewrites = self.observed().rewrites.iter().filter(|rewrite| !rewrite.is_emptied);
        let tables = rewrites.filter_map(|rewrite| rewrite.table.as_ref());
        tables.filter(|table| self.is_known(table)).map(ToString::to_string).collect()
    }

    /// Returns true if the statement copied a table or rebuilt an index.
    pub(super) fn rewrites(&self) -> bool {
        !(self.rewritten().is_empty() && self.rebuilt().is_empty())
    }

    /// Returns true if the statement's duration grows with the size of the table, or if the statement failed because the
    /// template's rows violate a constraint.
    pub(super) fn is_long(&self) -> bool {
        let is_small = self.reported().predicted.is_some_and(|predicted| predicted.high < UNNOTICED);
        self.refuses_rows() || (self.rewrites() || !self.scanned().is_empty()) && !is_small
    }

    /// Returns true if a row of the template violates the new constraint.
    pub(super) fn refuses_rows(&self) -> bool {
        self.error().is_some_and(|code| code.starts_with("23"))
    }

    /// Describes, in one short clause, the danger of `work` while the transaction holds its locks.
    pub(super) fn danger_of(&self, work: &str) -> String {
        if self.refuses_rows() {
            return "fails, because rows violate it".to_owned();
        }
        match self.waiting() {
            Some(waiting) => format!("{work} while {waiting} wait"),
            None => work.to_owned(),
        }
    }

    /// Describes the scans and rewrites, as in "rewrites orders and 2 indexes".
    pub(super) fn work(&self) -> String {
        let (rewritten, rebuilt) = (self.rewritten(), self.rebuilt());
        let indexes = match rebuilt.len() {
            1 => "1 index".to_owned(),
            count => format!("{count} indexes"),
        };
        if !rewritten.is_empty() {
            let indexes = if rebuilt.is_empty() { vec![] } else { vec![indexes] };
            return format!("rewrites {}", enumerated(&[rewritten, indexes].concat()));
        }
        if let Some(table) = rebuilt.first() {
            return format!("rebuilds {indexes} of {table}");
        }
        format!("scans {}", enumerated(&self.scanned()))
    }

    /// Returns true if the statement contains CONCURRENTLY. It then blocks neither reads nor writes while it waits.
    pub(super) fn is_concurrent(&self) -> bool {
        let tokens = tokens(&self.observed().sql);
        tokens.iter().any(|token| token.is_word(b"concurrently"))
    }

    /// Returns true if old code may fail after the statement: either the statement breaks one of the suite's
    /// statements, or those are unknown.
    pub(super) fn may_break(&self) -> bool {
        !self.knows_suite || !self.reported().breaks.is_empty()
    }

    /// Describes, in one short clause, what happens to old code that uses `used`.
    pub(super) fn broken(&self, used: &str) -> String {
        match self.reported().breaks.len() {
            0 => format!("code that still uses {used} fails until its new version is deployed"),
            1 => "breaks a statement of the suite".to_owned(),
            count => format!("breaks {count} statements of the suite"),
        }
    }

    /// Names the statements that have to wait for the transaction's locks, such as writes.
    pub(super) fn waiting(&self) -> Option<&'static str> {
        let locks: Vec<_> = self.held().into_iter().chain(self.locks()).collect();
        if locks.iter().any(|lock| lock.mode == LockMode::AccessExclusive) {
            return Some("reads and writes");
        }
        locks.iter().any(|lock| lock.blocks_writes()).then_some("writes")
    }
}

/// Quotes a name as SQL requires.
pub(super) fn sql_name(name: &str) -> String {
    RelationName { schema: "public".to_owned(), name: name.to_owned() }.to_string()
}

/// Lists names as "a", "a and b", or "a, b and 3 more".
pub(super) fn enumerated(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first, second] => format!("{first} and {second}"),
        [first, second, rest @ ..] => format!("{first}, {second} and {} more", rest.len()),
    }
}
