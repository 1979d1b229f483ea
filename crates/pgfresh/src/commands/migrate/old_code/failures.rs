//! Finds failed statements in transcripts.

use std::collections::BTreeMap;

use migrations::BrokenStatement;
use pgwire::{NormalizedStatement, SessionTranscript, StatementNames};

/// Failed statements without their values. The key consists of the statement and the SQLSTATE, because messages can
/// contain values.
pub(super) type Failures = BTreeMap<(String, String), BrokenStatement>;

/// Returns the statements that failed.
pub(super) fn find(transcripts: &[SessionTranscript]) -> Failures {
    let mut failures = Failures::new();
    for transcript in transcripts {
        let mut names = StatementNames::default();
        for request in &transcript.requests {
            let texts = names.read(&request.messages);
            let Some(outcome) = &request.outcome else { continue };
            let Some(error) = &outcome.error else { continue };
            // Each statement before the failed one has a tag, so the number of tags is the failed statement's index.
            let Some(text) = texts.get(outcome.tags.len()).or(texts.last()) else { continue };
            let statement = NormalizedStatement::read(text).text;
            failures.entry((statement.clone(), error.sqlstate.clone())).or_insert_with(|| BrokenStatement {
                statement,
                tests: Vec::new(),
                error: format!("{} ({})", error.message, error.sqlstate),
            });
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use pgwire::{RequestOutcome, StatementError, TranscribedRequest, encode, query};

    use super::*;

    fn request(messages: &[u8], tags: usize) -> TranscribedRequest {
        let error = StatementError { sqlstate: "42703".to_owned(), message: "no such column".to_owned() };
        let now = Instant::now();
        TranscribedRequest {
            messages: messages.into(),
            sent: now,
            outcome: Some(RequestOutcome {
                answered: now,
                tags: vec!["SELECT 1".to_owned(); tags],
                error: Some(error),
                status: b'I',
            }),
        }
    }

    #[test]
    fn failed_statement_is_the_one_without_a_tag() {
        let parse = encode(b'P', b"s\0SELECT old FROM orders WHERE id = $1\0\0\0");
        let bind = encode(b'B', b"\0s\0\0\0\0\0\0\0");
        let execute = encode(b'E', b"\0\0\0\0\0");
        let requests = vec![
            request(&query(b"SELECT 1; SELECT a FROM b WHERE c = 5; SELECT 3"), 1),
            request(&query(b"SELECT a FROM b WHERE c = 6"), 0),
            request(&parse, 0),
            request(&[bind, execute].concat(), 0),
        ];
        let transcript = SessionTranscript {
            database: "app".to_owned(),
            parameters: Vec::new(),
            began: Instant::now(),
            requests,
            is_cut: false,
        };
        let found = find(&[transcript]);
        let statements: Vec<_> = found.values().map(|failure| failure.statement.as_str()).collect();
        assert_eq!(statements, ["SELECT a FROM b WHERE c = ?", "SELECT old FROM orders WHERE id = ?"]);
        assert!(found.values().all(|failure| failure.error == "no such column (42703)"));
    }
}
