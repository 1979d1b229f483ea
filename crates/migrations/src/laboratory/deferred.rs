//! Locks of the triggers and constraints that PostgreSQL defers to the end of a transaction.
//!
//! COMMIT runs them and releases the locks at once. So the laboratory runs them before COMMIT, asks for the locks, and goes
//! back to a savepoint. COMMIT then runs them again.

use pgwire::begins_with;

use super::error::LaboratoryError;
use super::questions::{HELD, SessionState};
use super::repetition::Repetition;
use super::session::RepeatedSession;
use crate::RelationLock;

/// Asks for a trigger that can be deferred, which may be new.
const DEFERRABLE: &str = "SELECT 1 FROM pg_catalog.pg_trigger WHERE tgdeferrable LIMIT 1";
const BEGIN: &str = "SAVEPOINT pgfresh_deferred";
const RUN: &str = "SET CONSTRAINTS ALL IMMEDIATE";
const UNDO: [&str; 2] = ["ROLLBACK TO SAVEPOINT pgfresh_deferred", "RELEASE SAVEPOINT pgfresh_deferred"];

impl Repetition<'_> {
    /// Returns the locks that the end of the session's transaction takes. Empty if a constraint is violated.
    pub(super) fn locks_of_deferred(
        &mut self,
        open: &mut RepeatedSession,
        database: &str,
    ) -> Result<Vec<RelationLock>, LaboratoryError> {
        let Some(before) = open.state.clone().filter(|_| open.is_in_transaction()) else {
            return Ok(Vec::new());
        };
        if self.ask(open, DEFERRABLE)?.rows.is_empty() {
            return Ok(Vec::new());
        }
        self.ask(open, BEGIN)?;
        let has_failed = self.ask(open, RUN)?.error.is_some();
        let mut locks = Vec::new();
        if !has_failed {
            let after = SessionState::read(&self.ask(open, HELD)?.rows);
            // Checks of a foreign key read whole tables only if these are tiny, so scans say nothing about production.
            locks = self.changes(database, &before, &after)?.locks;
        }
        for sql in UNDO {
            self.ask(open, sql)?;
        }
        Ok(locks)
    }
}

/// Returns true if a statement at the end of a transaction keeps its changes.
pub(super) fn keeps_changes(sql: &str) -> bool {
    begins_with(sql, &["commit", "end", "prepare"])
}
