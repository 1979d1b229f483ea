//! A request during its repetition, and its result in the tool's run.

use std::time::{Duration, Instant};

use pgwire::{SessionTranscript, StatementError, TranscribedRequest};
use plans::BoundValue;

use super::class::StatementClass;
use super::requests::Unit;
use crate::ObservedStatement;

/// Maximum time for a request that took no time in the tool's run.
pub(super) const LIMIT: Duration = Duration::from_mins(2);
/// Maximum additional time, as a multiple of the tool's own time.
const SLOWER: u32 = 10;
/// Maximum time for a request that had no answer. The user has interrupted the tool and waits for the report.
const UNANSWERED_LIMIT: Duration = Duration::from_secs(5);
/// Errors that depend on other sessions, on time or on an administrator. A repetition alone does not meet them again.
const ACCIDENTAL: [&str; 7] = ["40001", "40P01", "55P03", "57014", "57P01", "25P03", "57P05"];
/// Errors of statements that PostgreSQL refuses in a transaction, and of procedures that end their transaction.
const REFUSED: [&str; 2] = ["25001", "2D000"];
/// Error that prevents all statements of a Query.
const SYNTAX_ERROR: &str = "42601";

/// A request during its repetition.
pub(super) struct Progress<'a> {
    pub(super) session: usize,
    pub(super) database: &'a str,
    pub(super) request: &'a TranscribedRequest,
    /// When the server could begin with the request.
    pub(super) begun: Instant,
    /// When the server had answered it.
    pub(super) ended: Instant,
    /// Whether the request has several statements, which are one transaction.
    pub(super) is_several: bool,
    /// Numbers of its statements so far.
    pub(super) numbers: Vec<usize>,
    /// Number of command tags so far.
    pub(super) tags: usize,
    /// Whether a statement has failed.
    pub(super) has_failed: bool,
}

/// Result of a statement in the tool's run.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expected<'a> {
    Tag(&'a str),
    Error(&'a StatementError),
    /// A suspended portal, or messages that run nothing.
    Nothing,
    Unknown,
}

/// A statement to run.
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) parameters: Vec<BoundValue>,
    pub(super) messages: Vec<u8>,
    pub(super) is_extended: bool,
    /// Whether the statement fetches more rows of an earlier run.
    pub(super) continues: bool,
    pub(super) portal: Vec<u8>,
    pub(super) class: StatementClass,
}

impl<'a> Progress<'a> {
    /// Creates the progress of a request. `end` is the end of the transcripts.
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

    /// Returns the result of the next statement.
    pub(super) fn expected(&self) -> Expected<'a> {
        let Some(outcome) = &self.request.outcome else { return Expected::Unknown };
        match (outcome.tags.get(self.tags), &outcome.error) {
            (Some(tag), _) => Expected::Tag(tag),
            (None, Some(error)) => Expected::Error(error),
            (None, None) => Expected::Nothing,
        }
    }

    /// Returns true if PostgreSQL refused the whole text of a Query.
    pub(super) fn is_unreadable(&self) -> bool {
        let is_syntax = |error: &StatementError| error.sqlstate == SYNTAX_ERROR;
        let outcome = self.request.outcome.as_ref();
        outcome
            .is_some_and(|outcome| outcome.tags.is_empty() && outcome.error.as_ref().is_some_and(is_syntax))
    }

    /// Returns a limit for the repetition of a statement.
    pub(super) fn limit(&self) -> Duration {
        if self.request.outcome.is_none() {
            return UNANSWERED_LIMIT;
        }
        LIMIT + self.ended.saturating_duration_since(self.begun) * SLOWER
    }

    /// Returns a statement without facts.
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
    /// Returns true if a repetition of the statement would not meet the error: it depends on other sessions, or on the
    /// other statements of its Query.
    pub(super) fn is_accident(&self, class: &StatementClass, is_idle: bool) -> bool {
        let Self::Error(error) = self else { return false };
        let is_of_query = is_idle && matches!(class, StatementClass::Outside { .. });
        ACCIDENTAL.contains(&error.sqlstate.as_str()) || is_of_query && is_refused(Some(&error.sqlstate))
    }
}

impl Statement {
    /// Creates a statement from the unit of a request.
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

/// Returns true if PostgreSQL refuses a statement in a transaction, or a procedure that ends its transaction.
pub(super) fn is_refused(sqlstate: Option<&str>) -> bool {
    sqlstate.is_some_and(|sqlstate| REFUSED.contains(&sqlstate))
}
