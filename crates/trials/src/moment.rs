//! Determines which statements the gateway counts as candidates for a fault.

use contract::FaultMoment;
use pgwire::StatementKind;

use crate::recording::{Call, RanStatement, StatementResult};

/// When a trial's fault happens. For some moments of the API, the gateway counts different candidates for a lost
/// connection than for an error. Those moments have two variants here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// An error replaces a statement.
    ErrorBeforeStatement,
    /// The connection is lost instead of a statement.
    LossBeforeStatement,
    /// The connection is lost after a statement.
    AfterStatement,
    /// An error replaces a COMMIT.
    Commit,
    /// The connection is lost instead of a COMMIT.
    BeforeCommit,
    /// The connection is lost after a COMMIT.
    AfterCommit,
}

impl Moment {
    /// Returns the API's name for this moment.
    pub(crate) fn of_api(self) -> FaultMoment {
        match self {
            Self::ErrorBeforeStatement | Self::LossBeforeStatement => FaultMoment::BeforeStatement,
            Self::AfterStatement => FaultMoment::AfterStatement,
            Self::Commit => FaultMoment::Commit,
            Self::BeforeCommit => FaultMoment::BeforeCommit,
            Self::AfterCommit => FaultMoment::AfterCommit,
        }
    }

    /// Returns true if the gateway counts `statement` as a candidate for a fault at this moment.
    pub(crate) fn counts(self, statement: &RanStatement) -> bool {
        let begins = begins(statement);
        let has_failed = statement.is_rolled_back_commit() || statement.sqlstate() == Some("25P02");
        match self {
            Self::ErrorBeforeStatement => begins && !has_failed,
            Self::LossBeforeStatement => begins,
            Self::AfterStatement => statement.is_done() && statement.call != Call::Parse,
            Self::Commit => begins && !has_failed && statement.ends_transaction(),
            Self::BeforeCommit => begins && statement.ends_transaction(),
            // The server also responds with the tag COMMIT outside of a transaction, so `ends_transaction` isn't
            // required.
            Self::AfterCommit => {
                statement.kind == StatementKind::Commit
                    && matches!(&statement.result, StatementResult::Done(tag)
                        if matches!(tag.as_str(), "COMMIT" | "PREPARE TRANSACTION"))
            }
        }
    }
}

/// Returns true if the server has started to run `statement`.
fn begins(statement: &RanStatement) -> bool {
    let sqlstate = statement.sqlstate().unwrap_or_default();
    // The server rejects these statements before it runs them: in the extended protocol, at Parse or Bind.
    let is_refused = sqlstate.starts_with("42") || sqlstate == "25P02" && statement.call == Call::Execute;
    matches!(statement.call, Call::Query | Call::Execute)
        && statement.result != StatementResult::Skipped
        && !is_refused
}

#[cfg(test)]
mod tests;
