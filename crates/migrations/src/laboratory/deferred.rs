//! Observes the locks of triggers and constraints that PostgreSQL defers to the end of the transaction.
//!
//! COMMIT runs the deferred triggers and releases their locks immediately. So the laboratory runs the triggers before
//! COMMIT, reads the locks, and rolls back to a savepoint. COMMIT then runs the triggers again.

use pgwire::begins_with;

use super::error::LaboratoryError;
use super::questions::{Question, SessionState};
use super::repetition::Repetition;
use super::session::RepeatedSession;
use crate::RelationLock;

const BEGIN: &str = "SAVEPOINT pgfresh_deferred";
const RUN: &str = "SET CONSTRAINTS ALL IMMEDIATE";
const UNDO: [&str; 2] = ["ROLLBACK TO SAVEPOINT pgfresh_deferred", "RELEASE SAVEPOINT pgfresh_deferred"];

impl Repetition<'_> {
    /// Returns the locks that the deferred triggers take when the session's transaction ends. Empty if a constraint is
    /// violated.
    pub(super) fn locks_of_deferred(
        &mut self,
        open: &mut RepeatedSession,
        database: &str,
    ) -> Result<Vec<RelationLock>, LaboratoryError> {
        let Some(before) = open.state.clone().filter(|_| open.is_in_transaction()) else {
            return Ok(Vec::new());
        };
        if self.question(open, Question::Deferrable)?.is_empty() {
            return Ok(Vec::new());
        }
        self.ask(open, BEGIN)?;
        let has_failed = self.ask(open, RUN)?.error.is_some();
        let mut locks = Vec::new();
        if !has_failed {
            let after = SessionState::read(&self.question(open, Question::Held)?);
            // A foreign-key check scans a whole table only if the table is tiny, so its scans say nothing about
            // production. Keep only the locks.
            locks = self.changes(database, &before, &after)?.locks;
        }
        for sql in UNDO {
            self.ask(open, sql)?;
        }
        Ok(locks)
    }
}

/// Returns true if a statement ends a transaction without discarding its changes.
pub(super) fn keeps_changes(sql: &str) -> bool {
    begins_with(sql, &["commit", "end", "prepare"])
}
