//! Tracks the repetition of a request and compares it with the tool's run.

use std::time::{Duration, Instant};

use pgwire::{SessionTranscript, StatementError, TranscribedRequest};
use plans::BoundValue;

use super::class::StatementClass;
use super::requests::Unit;
use crate::ObservedStatement;

/// Maximum time for repeating a request that took no time in the tool's run.
pub(super) const LIMIT: Duration = Duration::from_mins(2);
/// Maximum additional time, as a multiple of the time in the tool's run.
const SLOWER: u32 = 10;
/// Maximum time for repeating a request that got no response. The user has interrupted the tool and is waiting for the
/// report.
const UNANSWERED_LIMIT: Duration = Duration::from_secs(5);
/// SQLSTATEs of errors that depend on other sessions, on timing or on an administrator, so that a repetition doesn't
/// reproduce them.
const ACCIDENTAL: [&str; 7] = ["40001", "40P01", "55P03", "57014", "57P01", "25P03", "57P05"];
/// SQLSTATEs for a statement that PostgreSQL refuses in a transaction, and for a procedure that ends its own
/// transaction.
const REFUSED: [&str; 2] = ["25001", "2D000"];
/// SQLSTATE for a statement that PostgreSQL refuses outside a transaction, such as LOCK TABLE.
const NEEDS_TRANSACTION: &str = "25P01";
/// SQLSTATE of a syntax error, which prevents all statements of a Query message.
const SYNTAX_ERROR: &str = "42601";

/// A request that the laboratory is repeating.
pub(super) struct Progress<'a> {
    pub(super) session: usize,
    pub(super) database: &'a str,
    pub(super) request: &'a TranscribedRequest,
    /// When the server could start the request.
    pub(super) begun: Instant,
    /// When the server had responded to the request.
    pub(super) ended: Instant,
    /// Whether the request contains several statements, which then share a transaction.
    pub(super) is_several: bool,
    /// Record numbers of the request's statements so far.
    pub(super) numbers: Vec<usize>,
    /// Number of command tags received so far.
    pub(super) tags: usize,
    /// Whether a statement of the request has failed.
    pub(super) has_failed: bool,
}

/// A statement's result in the tool's run.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expected<'a> {
    Tag(&'a str),
    Error(&'a StatementError),
    /// The portal was suspended, or the messages ran nothing.
    Nothing,
    Unknown,
}

/// A statement to repeat.
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) parameters: Vec<BoundValue>,
    pub(super) messages: Vec<u8>,
    pub(super) is_extended: bool,
    /// Whether the statement fetches more rows from a portal that an earlier statement started.
    pub(super) continues: bool,
    pub(super) portal: Vec<u8>,
    pub(super) class: StatementClass,
}

impl<'a> Progress<'a> {
    /// Creates the progress of request `number`. `end` is the time when the transcripts end.
    pub(super) fn of(transcript: &'a SessionTranscript, session: usize, number: usize, end: Instant) -> Self {
        let request = &transcript.requests[number];
        let previous = number.checked_sub(1).and_then(|before| transcript.requests[before].outcome.as_ref());
        Self {
            session,
            database: &transcript.database,
            request,
            begun: previous.map_or(request.sent, |previous| request.sent.max(previous.answered)),
            ended: request.outcome.as_ref().map_or(end, |outcome| outcome.answered),
            is_several: false,
            numbers: Vec::new(),
            tags: 0,
            has_failed: false,
        }
    }

    /// Returns what the next statement's result was in the tool's run.
    pub(super) fn expected(&self) -> Expected<'a> {
        let Some(outcome) = &self.request.outcome else { return Expected::Unknown };
        match (outcome.tags.get(self.tags), &outcome.error) {
            (Some(tag), _) => Expected::Tag(tag),
            (None, Some(error)) => Expected::Error(error),
            (None, None) => Expected::Nothing,
        }
    }

    /// Returns true if PostgreSQL rejected the whole text of a Query message.
    pub(super) fn is_unreadable(&self) -> bool {
        let is_syntax = |error: &StatementError| error.sqlstate == SYNTAX_ERROR;
        let outcome = self.request.outcome.as_ref();
        outcome
            .is_some_and(|outcome| outcome.tags.is_empty() && outcome.error.as_ref().is_some_and(is_syntax))
    }

    /// Returns the maximum time for repeating a statement.
    pub(super) fn limit(&self) -> Duration {
        if self.request.outcome.is_none() {
            return UNANSWERED_LIMIT;
        }
        LIMIT + self.ended.saturating_duration_since(self.begun) * SLOWER
    }

    /// Returns the observation of a statement, still without facts.
    pub(super) fn observed(&self, statement: &Statement) -> ObservedStatement {
        ObservedStatement {
            database: self.database.to_owned(),
            session: self.session,
            sql: statement.sql.clone(),
            parameters: statement.parameters.clone(),
            ..ObservedStatement::default()
        }
    }
}

impl Expected<'_> {
    /// Returns true if a repetition wouldn't reproduce the error, because it depends on other sessions or on the other
    /// statements of its Query message.
    pub(super) fn is_accident(&self, class: &StatementClass, is_idle: bool) -> bool {
        let Self::Error(error) = self else { return false };
        let is_of_query = is_idle && matches!(class, StatementClass::Outside { .. });
        ACCIDENTAL.contains(&error.sqlstate.as_str()) || is_of_query && is_refused(Some(&error.sqlstate))
    }
}

impl Statement {
    /// Creates a statement from one unit of a request.
    pub(super) fn of(unit: Unit) -> Self {
        match unit {
            Unit::Run { sql, parameters, messages, is_extended, portal, is_bound } => {
                let class = StatementClass::of(&sql);
                Self { sql, parameters, messages, is_extended, continues: !is_bound, portal, class }
            }
            Unit::Prepare { messages, sql } => Self {
                sql,
                parameters: Vec::new(),
                messages,
                is_extended: true,
                continues: false,
                portal: Vec::new(),
                class: StatementClass::Preparation,
            },
        }
    }
}

/// Returns true if PostgreSQL refused the statement because no transaction was open.
pub(super) fn needs_transaction(expected: &Expected<'_>) -> bool {
    matches!(expected, Expected::Error(error) if error.sqlstate == NEEDS_TRANSACTION)
}

/// Returns true if PostgreSQL refuses the statement in a transaction, or if it calls a procedure that ends its own
/// transaction.
pub(super) fn is_refused(sqlstate: Option<&str>) -> bool {
    sqlstate.is_some_and(|sqlstate| REFUSED.contains(&sqlstate))
}
