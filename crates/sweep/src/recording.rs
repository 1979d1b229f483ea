//! Leases of one run of the command, with their statements.

use std::time::Instant;

use pgwire::{NormalizedStatement, SessionTranscript, StatementKind, StatementNames};

use crate::contents::Contents;

/// A lease of a run: the use of a database by one test.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeaseRecord {
    /// Name of the database.
    pub database: String,
    /// Name of the test in its runner. `None` if no client has reported it.
    pub test: Option<String>,
    /// Statements of all sessions, in the order in which clients sent them.
    pub statements: Vec<RanStatement>,
    /// When each session began, in order.
    pub sessions: Vec<Instant>,
    /// Rows at the end of the lease. `None` if they could not be read.
    pub contents: Option<Contents>,
}

/// A statement that a client has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanStatement {
    /// The whole text.
    pub text: String,
    /// Kind of the statement.
    pub kind: StatementKind,
    /// When the client sent it.
    pub sent: Instant,
    /// Whether it ran in a transaction that a client had begun.
    pub in_transaction: bool,
    /// How it ended.
    pub result: StatementResult,
}

/// How a statement ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementResult {
    /// Success, with this command tag.
    Done(String),
    /// Error with this SQLSTATE.
    Failed(String),
    /// No answer: the server did not run the statement, or the session ended first.
    Unanswered,
}

/// The end of a lease, or of its first part if a client has reset the database.
#[derive(Debug, Clone)]
pub struct LeaseEnd {
    /// Name of the database.
    pub database: String,
    /// When the lease ended. All of its sessions had begun earlier.
    pub at: Instant,
    /// Rows at the end. `None` if they could not be read.
    pub contents: Option<Contents>,
}

/// The end of a test that used a database.
#[derive(Debug, Clone)]
pub struct TestEnd {
    /// Name of the database.
    pub database: String,
    /// When the client reported the end.
    pub at: Instant,
    /// Name of the test in its runner. `None` if the client has not told it.
    pub test: Option<String>,
}

impl RanStatement {
    /// Returns true if the statement succeeded.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.result, StatementResult::Done(_))
    }

    /// Returns the SQLSTATE of a statement that failed.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        match &self.result {
            StatementResult::Failed(sqlstate) => Some(sqlstate),
            _ => None,
        }
    }
}

/// Assigns the sessions of a run to leases. Returns the leases in the order of their first sessions.
#[must_use]
pub fn leases(transcripts: &[SessionTranscript], ends: Vec<LeaseEnd>, tests: &[TestEnd]) -> Vec<LeaseRecord> {
    let mut leases: Vec<(Option<Instant>, LeaseRecord)> = Vec::new();
    for transcript in transcripts {
        let end = ends
            .iter()
            .filter(|end| end.database == transcript.database && end.at >= transcript.began)
            .map(|end| end.at)
            .min();
        let known =
            leases.iter().position(|(other, lease)| *other == end && lease.database == transcript.database);
        let at = known.unwrap_or_else(|| {
            let database = transcript.database.clone();
            leases.push((end, LeaseRecord { database, ..LeaseRecord::default() }));
            leases.len() - 1
        });
        let lease = &mut leases[at].1;
        lease.sessions.push(transcript.began);
        lease.statements.extend(statements(transcript));
    }
    for LeaseEnd { database, at, contents } in ends {
        let of_lease = |(end, lease): &&mut (Option<Instant>, LeaseRecord)| {
            *end == Some(at) && lease.database == database
        };
        if let Some((_, lease)) = leases.iter_mut().find(of_lease) {
            lease.contents = contents;
        }
    }
    for (end, lease) in &mut leases {
        lease.sessions.sort_unstable();
        lease.statements.sort_by_key(|statement| statement.sent);
        let begun = lease.sessions.first().copied();
        let mut names = tests.iter().filter(|test| {
            test.database == lease.database && begun <= Some(test.at) && end.is_none_or(|end| test.at <= end)
        });
        lease.test = names.next_back().and_then(|test| test.test.clone());
    }
    leases.into_iter().map(|(_, lease)| lease).collect()
}

/// Returns the statements of a session.
fn statements(transcript: &SessionTranscript) -> Vec<RanStatement> {
    let mut names = StatementNames::default();
    let mut found = Vec::new();
    let mut in_transaction = false;
    for request in &transcript.requests {
        let texts = names.read(&request.messages);
        let outcome = request.outcome.as_ref();
        for (place, text) in texts.into_iter().enumerate() {
            let result = match outcome {
                Some(outcome) if place < outcome.tags.len() => {
                    StatementResult::Done(outcome.tags[place].clone())
                }
                Some(outcome) if place == outcome.tags.len() => match &outcome.error {
                    Some(error) => StatementResult::Failed(error.sqlstate.clone()),
                    None => StatementResult::Unanswered,
                },
                _ => StatementResult::Unanswered,
            };
            let kind = NormalizedStatement::read(&text).kind;
            let sent = request.sent;
            let begins =
                matches!(&result, StatementResult::Done(tag) if tag == "BEGIN" || tag == "START TRANSACTION");
            found.push(RanStatement { text, kind, sent, in_transaction, result });
            in_transaction |= begins;
        }
        if let Some(outcome) = outcome {
            in_transaction = outcome.status != b'I';
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pgwire::{RequestOutcome, StatementError, TranscribedRequest, query};

    use super::*;

    fn request(
        sql: &str,
        sent: Instant,
        tags: &[&str],
        error: Option<&str>,
        status: u8,
    ) -> TranscribedRequest {
        let error =
            error.map(|sqlstate| StatementError { sqlstate: sqlstate.to_owned(), message: String::new() });
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let outcome = Some(RequestOutcome { answered: sent, tags, error, status });
        TranscribedRequest { messages: query(sql.as_bytes()).into(), sent, outcome }
    }

    fn session(database: &str, began: Instant, requests: Vec<TranscribedRequest>) -> SessionTranscript {
        SessionTranscript {
            database: database.to_owned(),
            parameters: Vec::new(),
            began,
            requests,
            is_cut: false,
        }
    }

    #[test]
    fn statements_know_transaction_and_result() {
        let now = Instant::now();
        let requests = vec![
            request(
                "BEGIN; INSERT INTO t VALUES (1); SELECT 1/0; SELECT 2",
                now,
                &["BEGIN", "INSERT 0 1"],
                Some("22012"),
                b'E',
            ),
            request("ROLLBACK", now, &["ROLLBACK"], None, b'I'),
            request("UPDATE t SET a = 1", now, &["UPDATE 0"], None, b'I'),
        ];
        let [lease] = &leases(&[session("d", now, requests)], Vec::new(), &[])[..] else { panic!() };
        let seen: Vec<_> = lease
            .statements
            .iter()
            .map(|statement| (statement.in_transaction, statement.is_done(), statement.sqlstate()))
            .collect();
        assert_eq!(
            seen,
            [
                (false, true, None),
                (true, true, None),
                (true, false, Some("22012")),
                (true, false, None),
                (true, true, None),
                (false, true, None),
            ]
        );
    }

    #[test]
    fn sessions_belong_to_the_lease_that_ends_next() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let transcripts = [("a", 0), ("b", 1), ("a", 2), ("a", 5)]
            .map(|(database, began)| session(database, at(began), Vec::new()));
        let end = |seconds| LeaseEnd { database: "a".to_owned(), at: at(seconds), contents: None };
        let test = |name: &str, seconds| TestEnd {
            database: "a".to_owned(),
            at: at(seconds),
            test: Some(name.to_owned()),
        };
        let found = leases(&transcripts, vec![end(3), end(6)], &[test("one", 3), test("two", 6)]);
        let seen: Vec<_> = found
            .iter()
            .map(|lease| (lease.database.as_str(), lease.sessions.len(), lease.test.as_deref()))
            .collect();
        assert_eq!(seen, [("a", 2, Some("one")), ("b", 1, None), ("a", 1, Some("two"))]);
    }
}
