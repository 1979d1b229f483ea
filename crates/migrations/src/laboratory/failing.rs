//! Observes the locks of a statement that fails. PostgreSQL releases these locks before the session can read them, so
//! other sessions observe them.

use std::collections::HashMap;
use std::time::Duration;

use pgwire::begins_with;

use super::answer::Answer;
use super::bystander::{Bystander, Target};
use super::catalog::Relations;
use super::error::LaboratoryError;
use super::facts::Facts;
use super::progress::{Progress, Statement};
use super::questions::{RelationState, SessionState};
use super::repetition::{Repetition, shortened};
use super::requests::Request;
use super::session::{Exchange, RepeatedSession};
use crate::{LockMode, ObservedStatement};

/// Tables on which to set traps for a statement.
pub(super) struct Traps<'a> {
    /// Relations that the statement's transaction has already locked.
    pub(super) held: &'a HashMap<u32, RelationState>,
    /// Object identifiers of the tables.
    pub(super) tables: &'a [u32],
    pub(super) relations: &'a Relations,
    /// Why the session can't report the locks, as a relative clause.
    pub(super) why: &'static str,
}

impl Repetition<'_> {
    /// Runs a statement that failed in the tool's run. `before` is the state of its transaction.
    pub(super) fn observe_failing(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        parts: &mut Request,
        progress: &Progress<'_>,
        (before, observed): (&SessionState, &mut ObservedStatement),
    ) -> Result<Answer, LaboratoryError> {
        let database = progress.database;
        let relations = self.catalogs.all(database)?;
        let mut tables = self.tables_named_in(open, &statement.sql, database)?;
        if tables.is_empty() && begins_with(&statement.sql, &["do", "call", "execute"]) {
            tables = Self::all_tables(&relations);
        }
        if tables.is_empty() {
            return self.exchange(open, statement, parts, progress);
        }
        // Waiting for a trap must not count against the client's timeout, so turn it off. The failure undoes this
        // setting.
        self.set_lock_timeout(open, "0")?;
        let traps =
            Traps { held: &before.relations, tables: &tables, relations: &relations, why: "which fails" };
        let (answer, locks) = self.exchange_beside(open, statement, parts, progress, &traps)?;
        observed.locks = Facts::of_failed_statement(&before.relations, &relations, &locks).locks;
        Ok(answer)
    }

    /// Runs a statement while traps observe its locks. Returns the answer, and the lock modes for each relation. The
    /// session's `lock_timeout` must be off.
    pub(super) fn exchange_beside(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        parts: &mut Request,
        progress: &Progress<'_>,
        traps: &Traps<'_>,
    ) -> Result<(Answer, HashMap<u32, Vec<LockMode>>), LaboratoryError> {
        let target =
            Target { database: progress.database, pid: open.pid, held: traps.held, opens_early: false };
        let mut bystander = Bystander::new(&mut self.catalogs, &target, traps.tables, traps.relations)?;
        let exchange = Exchange { tick: Duration::from_millis(1), ..Self::exchange_of(statement) };
        let mut watch = self.watch(open.pid, progress.limit());
        let catalogs = &mut self.catalogs;
        let answer = open.exchange(&exchange, &mut parts.copies, &mut |elapsed| {
            bystander.look(catalogs)?;
            watch.tick(elapsed, catalogs)
        })?;
        if bystander.is_incomplete {
            let (statement, why) = (shortened(&statement.sql), traps.why);
            self.records.note(format!("some locks of \"{statement}\", {why}"));
        }
        Ok((answer, bystander.finish()))
    }
}
