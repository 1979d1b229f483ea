//! Moments of faults, and the statements that the gateway counts at each.

use contract::FaultMoment;
use pgwire::StatementKind;

use crate::recording::{Call, RanStatement, StatementResult};

/// A moment at which a trial's fault happens. The gateway counts other candidates for a lost connection than for an
/// error, so one moment of the API can be two of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// An error instead of a statement.
    ErrorBeforeStatement,
    /// The loss of the connection instead of a statement.
    LossBeforeStatement,
    /// The loss of the connection after a statement.
    AfterStatement,
    /// An error instead of a COMMIT.
    Commit,
    /// The loss of the connection instead of a COMMIT.
    BeforeCommit,
    /// The loss of the connection after a COMMIT.
    AfterCommit,
}

impl Moment {
    /// Returns the moment of the API.
    pub(crate) fn of_api(self) -> FaultMoment {
        match self {
            Self::ErrorBeforeStatement | Self::LossBeforeStatement => FaultMoment::BeforeStatement,
            Self::AfterStatement => FaultMoment::AfterStatement,
            Self::Commit => FaultMoment::Commit,
            Self::BeforeCommit => FaultMoment::BeforeCommit,
            Self::AfterCommit => FaultMoment::AfterCommit,
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
    // The server refuses such a statement before it runs it. In the extended protocol, it refuses the Parse or the Bind.
    let is_refused = sqlstate.starts_with("42") || sqlstate == "25P02" && statement.call == Call::Execute;
    matches!(statement.call, Call::Query | Call::Execute)
        && statement.result != StatementResult::Skipped
        && !is_refused
}

#[cfg(test)]
mod tests;
