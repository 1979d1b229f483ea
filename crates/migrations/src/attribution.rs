//! Determines which migration each statement belongs to.
//!
//! A migration tool keeps a table, called its ledger here, with a row for each migration that has run. The tool inserts
//! the row before or after the migration's statements, in the same session or in a different one. Statements without
//! such a row belong to the SQL file that contains them.

use std::collections::HashMap;

use pgwire::{Token, begins_with};
use plans::RelationName;

use crate::sql_text::tokens;
use crate::{LockMode, Observations, ObservedStatement, RelationLock};

mod equal_statements;
mod files;
mod ledger;
mod lines;
mod own_statements;
mod written_row;

use equal_statements::SqlFiles;
pub use files::{MigrationFiles, is_migration_file};
use files::{NamedMigration, name_of_file};
pub use ledger::tables_of_tools;
use ledger::{LedgerEvent, Ledgers, MigrationKey};

/// Tables that Django fills after all migrations have run.
const FILLED_AFTERWARDS: [&str; 2] = ["django_content_type", "auth_permission"];

/// The migration that a statement belongs to, and its position in the migration's file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatementOrigin {
    /// Name of the migration, as users know it from its file or from the tool's output. `None` if it is unknown.
    pub migration: Option<String>,
    /// Path of the migration's file in the project. `None` if the project has no file for the migration.
    pub file: Option<String>,
    /// Line of the statement in the file, starting at 1. `None` if the file doesn't contain the statement's text.
    pub line: Option<usize>,
    /// Whether the tool sent the statement for its own purposes. Such a statement has no migration and no file.
    pub is_bookkeeping: bool,
}

/// Returns the origin of each observed statement.
#[must_use]
pub fn attribute(observations: &Observations, files: &MigrationFiles<'_>) -> Vec<StatementOrigin> {
    let statements = &observations.statements;
    let ledgers = Ledgers::of(statements);
    let mut found = vec![StatementOrigin::default(); statements.len()];
    for (index, is_own) in own(statements, &ledgers).into_iter().enumerate() {
        found[index].is_bookkeeping = is_own;
    }
    let sql = SqlFiles::read(files);
    let mut databases: Vec<_> = statements.iter().map(|statement| &statement.database).collect();
    databases.sort_unstable();
    databases.dedup();
    for database in databases {
        let is_here = |index: &usize| statements[*index].database == *database;
        let mut walk = Walk::new(statements);
        for index in (0..statements.len()).filter(is_here) {
            match ledgers.event(&statements[index]) {
                Some(event) => walk.event(index, event),
                None if !found[index].is_bookkeeping => walk.statement(index),
                None => {}
            }
        }
        walk.finish().name(&sql, files, &mut found);
    }
    lines::find(statements, files, &mut found);
    found
}

/// Returns which statements the tool sent for its own purposes. BEGIN and COMMIT count if every statement between them
/// does.
fn own(statements: &[ObservedStatement], ledgers: &Ledgers) -> Vec<bool> {
    let is_of_tool = |one: &ObservedStatement| {
        own_statements::is_of_tool(&one.sql, ledgers) && !works_on_others(one, ledgers)
    };
    let own: Vec<_> = statements.iter().map(is_of_tool).collect();
    let transaction = |one: &ObservedStatement| (one.session, one.transaction);
    let is_control = |one: &ObservedStatement| {
        begins(&one.sql) || ends(&one.sql) || begins_with(&one.sql, &["savepoint", "release"])
    };
    let mut has_others = HashMap::new();
    for (one, is_own) in statements.iter().zip(&own) {
        *has_others.entry(transaction(one)).or_insert(false) |= !is_own && !is_control(one);
    }
    let is_idle = |one: &ObservedStatement| is_control(one) && !has_others[&transaction(one)];
    statements.iter().zip(own).map(|(one, is_own)| is_own || is_idle(one)).collect()
}

/// Returns true if the statement works on a table that isn't the tool's: a function that looks harmless may change any
/// table. A failed statement counts unless it names one of the tool's tables.
fn works_on_others(statement: &ObservedStatement, ledgers: &Ledgers) -> bool {
    let is_other = |name: &RelationName| !ledgers.has(&name.name) && !is_of_system(name);
    let is_strong =
        |lock: &&RelationLock| !lock.kind.is_index() && lock.mode >= LockMode::ShareUpdateExclusive;
    let locks = statement.locks.iter().filter(is_strong);
    let tables = locks.map(|lock| &lock.relation);
    let rewrites =
        statement.rewrites.iter().map(|rewrite| rewrite.table.as_ref().unwrap_or(&rewrite.relation));
    let mut works_on = tables.chain(rewrites).chain(statement.scans.iter().map(|scan| &scan.relation));
    let has_failed = statement.error.is_some() && !own_statements::names_ledger(&statement.sql, ledgers);
    has_failed || works_on.any(is_other)
}

fn is_of_system(name: &RelationName) -> bool {
    name.schema == "information_schema" || name.schema.starts_with("pg_")
}

fn begins(sql: &str) -> bool {
    begins_with(sql, &["begin", "start"])
}

fn ends(sql: &str) -> bool {
    begins_with(sql, &["commit", "rollback", "end", "abort"])
}

/// Walks over the statements of one database and assigns them to migrations.
struct Walk<'a> {
    statements: &'a [ObservedStatement],
    /// Keys of the migrations, in the order of their ledger rows.
    migrations: Vec<MigrationKey>,
    /// For each statement of the walk: its index, and the index of its migration.
    steps: Vec<(usize, Option<usize>)>,
    /// Positions in `steps` whose statements no ledger row has claimed yet.
    unclaimed: Vec<usize>,
    /// The migration that has started but not ended, for each session.
    open: HashMap<usize, usize>,
    /// Transaction of the last ledger row and migration of this row, for each session.
    last: HashMap<usize, (usize, usize)>,
}

impl<'a> Walk<'a> {
    fn new(statements: &'a [ObservedStatement]) -> Self {
        Self {
            statements,
            migrations: Vec::new(),
            steps: Vec::new(),
            unclaimed: Vec::new(),
            open: HashMap::new(),
            last: HashMap::new(),
        }
    }

    fn statement(&mut self, index: usize) {
        let ObservedStatement { session, transaction, sql, .. } = &self.statements[index];
        let is_rest = |step: &usize| {
            let other = &self.statements[self.steps[*step].0];
            (other.session, other.transaction) == (*session, *transaction)
        };
        let migration = match self.last.get(session) {
            Some((last, migration)) if last == transaction && ends(sql) => {
                (!self.unclaimed.iter().any(is_rest)).then_some(*migration)
            }
            _ => None,
        };
        if migration.is_none() {
            self.unclaimed.push(self.steps.len());
        }
        self.steps.push((index, migration));
    }

    fn event(&mut self, index: usize, event: LedgerEvent) {
        let ObservedStatement { session, transaction, .. } = self.statements[index];
        match event {
            LedgerEvent::Started(key) => {
                self.claim(session);
                self.open.insert(session, self.migrations.len());
                self.migrations.push(key);
            }
            LedgerEvent::Ended(key) => {
                let open = self.open.remove(&session);
                let same = open.filter(|open| key.as_ref().is_none_or(|key| self.migrations[*open] == *key));
                let migration = match (same, key) {
                    (Some(open), _) => open,
                    (None, Some(key)) => {
                        self.migrations.push(key);
                        self.migrations.len() - 1
                    }
                    (None, None) => return,
                };
                for step in self.claim(session) {
                    self.steps[step].1 = Some(migration);
                }
                self.last.insert(session, (transaction, migration));
            }
        }
    }

    /// Claims the unclaimed statements of a session. If the session has none, claims those of all sessions, because a
    /// tool may write its ledger through a different connection.
    fn claim(&mut self, session: usize) -> Vec<usize> {
        let is_of = |step: &usize| self.statements[self.steps[*step].0].session == session;
        let (own, others): (Vec<_>, Vec<_>) = self.unclaimed.iter().copied().partition(is_of);
        if own.is_empty() {
            return std::mem::take(&mut self.unclaimed);
        }
        self.unclaimed = others;
        own
    }

    /// Ends the walk. The remaining statements belong to a migration that has started but not ended.
    fn finish(mut self) -> Self {
        let mut open: Vec<_> = self.open.drain().collect();
        open.sort_unstable();
        for (session, migration) in open {
            for step in self.claim(session) {
                self.steps[step].1 = Some(migration);
            }
        }
        self
    }

    fn name(&self, sql: &SqlFiles<'_>, files: &MigrationFiles<'_>, found: &mut [StatementOrigin]) {
        let texts: Vec<_> =
            self.steps.iter().map(|(index, _)| self.statements[*index].sql.as_str()).collect();
        let equal = sql.of(&texts);
        let named: Vec<_> =
            (0..self.migrations.len()).map(|number| self.named(number, &equal, files)).collect();
        let rest = self.rest(&equal, &named, files);
        for (step, (index, migration)) in self.steps.iter().enumerate() {
            let named = if let Some(number) = migration {
                Some(named[*number].clone())
            } else {
                let rest = || rest.clone().filter(|(first, _)| step >= *first).map(|(_, named)| named);
                equal[step].map(of_file).or_else(|| between(&equal, step)).or_else(rest)
            };
            let is_afterwards = migration.is_none() && fills_afterwards(&self.statements[*index].sql);
            found[*index] = match named {
                _ if is_afterwards => StatementOrigin { is_bookkeeping: true, ..StatementOrigin::default() },
                Some(NamedMigration { name, file }) => {
                    StatementOrigin { migration: Some(name), file, line: None, is_bookkeeping: false }
                }
                None => StatementOrigin::default(),
            };
        }
    }

    /// Returns the migration's name and file. The file is the one that contains most of the migration's statements,
    /// because the ledger row of a down migration may have a different number.
    fn named(&self, number: usize, equal: &[Option<&str>], files: &MigrationFiles<'_>) -> NamedMigration {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let steps = self.steps.iter().zip(equal).filter(|((_, migration), _)| *migration == Some(number));
        steps.filter_map(|(_, file)| *file).for_each(|file| *counts.entry(file).or_default() += 1);
        let key = &self.migrations[number];
        let named = files.resolve(key);
        let file = counts.into_iter().max_by_key(|(file, count)| (*count, std::cmp::Reverse(*file)));
        match (file, key) {
            (Some((file, _)), MigrationKey::Version(_) | MigrationKey::JournalTime(_)) => of_file(file),
            (Some((file, _)), _) => NamedMigration { file: Some(file.to_owned()), ..named },
            (None, _) => named,
        }
    }

    /// Returns the migration of the statements that neither a ledger row nor an SQL file identifies, and the position
    /// in `steps` where these statements start.
    fn rest(
        &self,
        equal: &[Option<&str>],
        named: &[NamedMigration],
        files: &MigrationFiles<'_>,
    ) -> Option<(usize, NamedMigration)> {
        let is_used = |path: &str| {
            equal.contains(&Some(path)) || named.iter().any(|one| one.file.as_deref() == Some(path))
        };
        let unused = files.unused_additions(is_used);
        let last = self.steps.iter().rposition(|(_, migration)| migration.is_some());
        if let ([only], None) = (&unused[..], last) {
            return Some((0, of_file(only)));
        }
        let first = last.map_or(0, |last| last + 1);
        let fails = self.steps[first..].iter().any(|(index, _)| {
            let statement = &self.statements[*index];
            statement.error.is_some() || statement.is_unfinished
        });
        if !fails || equal[first..].iter().any(Option::is_some) {
            return None;
        }
        let after_last = || {
            let number = self.steps[last?].1?;
            files.next(&self.migrations[number], named[number].file.as_deref()?)
        };
        let file = unused.first().map(|path| (*path).to_owned()).or_else(after_last)?;
        Some((first, of_file(&file)))
    }
}

fn of_file(path: &str) -> NamedMigration {
    NamedMigration { name: name_of_file(path), file: Some(path.to_owned()) }
}

/// Returns the file that contains both the previous and the next statement. A statement between them can differ from
/// the file because of psql variables.
fn between(equal: &[Option<&str>], step: usize) -> Option<NamedMigration> {
    let before = equal[..step].iter().rev().find_map(|file| *file)?;
    let after = equal[step + 1..].iter().find_map(|file| *file)?;
    (before == after).then(|| of_file(before))
}

fn fills_afterwards(sql: &str) -> bool {
    let tokens = tokens(sql);
    tokens.iter().filter_map(Token::name).any(|name| FILLED_AFTERWARDS.contains(&name.as_str()))
}

#[cfg(test)]
mod tests;
