//! Observes the locks of a block that rolls a part of its work back. PostgreSQL releases the locks of that part before
//! the block ends, so other sessions observe them.

use pgwire::begins_with;

use super::answer::Answer;
use super::bystander::Traps;
use super::code::Code;
use super::error::LaboratoryError;
use super::facts::HiddenLocks;
use super::progress::{Progress, Statement};
use super::questions::SessionState;
use super::repetition::{Repetition, Scope, shortened};
use super::requests::Request;
use super::session::RepeatedSession;
use crate::sql_text::tokens;

impl Repetition<'_> {
    /// Runs a statement whose code may roll a part of its work back. `before` is the state of its transaction.
    pub(super) fn observe_hidden(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        parts: &mut Request,
        progress: &Progress<'_>,
        (before, code): (&SessionState, &Code),
    ) -> Result<(Answer, HiddenLocks), LaboratoryError> {
        let database = progress.database;
        let relations = self.catalogs.all(database)?;
        let text: Vec<_> = code.texts().chain([statement.sql.as_str()]).collect();
        let tables = if code.is_dynamic() {
            Self::all_tables(&relations)
        } else {
            self.tables_named_in(open, &text.join(" "), database)?
        };
        // Waiting for a trap must not count against the client's timeout.
        self.set_lock_timeout(open, "0", Scope::Transaction)?;
        let (held, why) = (&before.relations, "which may roll a part back");
        let traps = Traps { held, tables: &tables, relations: &relations, opens_early: false, why };
        let (answer, locks) = self.exchange_beside(open, statement, parts, progress, &traps)?;
        Ok((answer, HiddenLocks { relations, locks }))
    }

    /// Restores the `lock_timeout` from before the statement, unless the statement set another one.
    pub(super) fn restore_lock_timeout(
        &mut self,
        open: &mut RepeatedSession,
        before: &SessionState,
        after: &mut SessionState,
    ) -> Result<(), LaboratoryError> {
        if let (Some(timeout), None) = (before.lock_timeout, after.lock_timeout) {
            self.set_lock_timeout(open, &format!("{}ms", timeout.as_millis()), Scope::Transaction)?;
            after.lock_timeout = Some(timeout);
        }
        Ok(())
    }

    /// Notes that locks of a statement are missing if it rolled a part of its work back. `first` is the number of the
    /// server's next transaction before the statement.
    pub(super) fn note_rollback(&mut self, first: u64, statement: &Statement) -> Result<(), LaboratoryError> {
        if self.catalogs.ended_since(first)?.rolled_back > 0 {
            let statement = shortened(&statement.sql);
            self.records
                .note(format!("locks of \"{statement}\" that it released, because it rolled a part back"));
        }
        Ok(())
    }
}

/// Returns true for `LOCK TABLE … NOWAIT`, which fails instead of waiting.
pub(super) fn never_waits(sql: &str) -> bool {
    begins_with(sql, &["lock"]) && tokens(sql).iter().any(|token| token.is_word(b"nowait"))
}
