//! Observes the locks of a statement that fails. PostgreSQL releases these locks before the session can read them, so
//! other sessions observe them.

use pgwire::begins_with;

use super::answer::Answer;
use super::bystander::Traps;
use super::error::LaboratoryError;
use super::facts::Facts;
use super::progress::{Progress, Statement};
use super::questions::SessionState;
use super::repetition::{Repetition, Scope};
use super::requests::Request;
use super::session::RepeatedSession;
use crate::ObservedStatement;

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
        self.set_lock_timeout(open, "0", Scope::Session)?;
        let (held, why) = (&before.relations, "which fails");
        let traps = Traps { held, tables: &tables, relations: &relations, opens_early: false, why };
        let (answer, locks) = self.exchange_beside(open, statement, parts, progress, &traps)?;
        observed.locks = Facts::of_failed_statement(&before.relations, &relations, &locks).locks;
        Ok(answer)
    }
}
