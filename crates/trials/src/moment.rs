//! Moments of faults, and the statements that the gateway counts at each.

use pgwire::StatementKind;

use crate::recording::{Call, RanStatement, StatementResult};

/// A moment at which a fault happens. The loss of a connection has other candidates than an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// An error instead of a statement.
    ErrorBeforeStatement,
    /// The loss of the connection instead of a statement.
    LossBeforeStatement,
    AfterStatement,
    /// An error instead of a COMMIT.
    Commit,
    BeforeCommit,
    AfterCommit,
}

impl Moment {
    /// Returns the name in a request for a fault.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ErrorBeforeStatement | Self::LossBeforeStatement => "before statement",
            Self::AfterStatement => "after statement",
            Self::Commit => "commit",
            Self::BeforeCommit => "before commit",
            Self::AfterCommit => "after commit",
        }
    }

    /// Returns true if the gateway counts the statement at this moment.
    pub(crate) fn counts(self, statement: &RanStatement) -> bool {
        let begins = begins(statement);
        let has_failed = statement.is_rolled_back_commit() || statement.sqlstate() == Some("25P02");
        match self {
            Self::ErrorBeforeStatement => begins && !has_failed,
            Self::LossBeforeStatement => begins,
            Self::AfterStatement => statement.is_done() && statement.call != Call::Parse,
            Self::Commit => begins && !has_failed && statement.ends_transaction(),
            Self::BeforeCommit => begins && statement.ends_transaction(),
            // The server says COMMIT outside of a transaction, too.
            Self::AfterCommit => {
                statement.kind == StatementKind::Commit
                    && matches!(&statement.result, StatementResult::Done(tag)
                        if matches!(tag.as_str(), "COMMIT" | "PREPARE TRANSACTION"))
            }
        }
    }
}

/// Returns true if the server has begun to run the statement.
fn begins(statement: &RanStatement) -> bool {
    let sqlstate = statement.sqlstate().unwrap_or_default();
    // The server refuses these before it runs them. In the extended protocol, it refuses a Parse or a Bind.
    let is_refused = sqlstate.starts_with("42") || sqlstate == "25P02" && statement.call == Call::Execute;
    matches!(statement.call, Call::Query | Call::Execute)
        && statement.result != StatementResult::Skipped
        && !is_refused
}

#[cfg(test)]
mod tests;
