//! Groups the transcribed sessions of a run into leases, and determines how each statement ended.

use std::collections::HashSet;
use std::time::Instant;

use pgwire::{
    NormalizedStatement, SessionTranscript, StatementKind, StatementNames, frames, has_words, split_zero,
};

use crate::contents::Contents;

/// Record of a lease: the sessions, statements and rows while one test used a database.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeaseRecord {
    /// Name of the database.
    pub database: String,
    /// Name of the test, as its test runner calls it. `None` if no client has reported it.
    pub test: Option<String>,
    /// Statements of all sessions, in the order in which clients sent them.
    pub statements: Vec<RanStatement>,
    /// When each session began, in ascending order.
    pub sessions: Vec<Instant>,
    /// Rows at the end of the lease. `None` if pgfresh couldn't read them.
    pub contents: Option<Contents>,
}

/// A statement that a client sent, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanStatement {
    /// Full text of the statement.
    pub text: String,
    /// Kind of the statement.
    pub kind: StatementKind,
    /// Number of the session in the lease, from 1.
    pub session: usize,
    /// Protocol message that made the server run the statement.
    pub call: Call,
    /// When the client sent the statement.
    pub sent: Instant,
    /// Whether the statement ran in a transaction that a client had begun.
    pub in_transaction: bool,
    /// Whether earlier statements of the same request did work that the server hadn't committed yet.
    pub follows_work: bool,
    /// How the statement ended.
    pub result: StatementResult,
}

/// Protocol message that made the server run a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A Query message.
    Query,
    /// The first Execute of the statement's portal.
    Execute,
    /// A later Execute, which fetches more rows from the portal.
    Fetch,
    /// A Parse without an Execute: the statement was only prepared.
    Parse,
}

/// How a statement ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementResult {
    /// The statement succeeded with this command tag.
    Done(String),
    /// The statement failed with this SQLSTATE.
    Failed(String),
    /// The server didn't run the statement because an earlier statement of the same request had failed.
    Skipped,
    /// The server didn't send a result, because the session ended first or the portal was suspended.
    Unanswered,
}

/// The end of a lease. If a client resets the database, each reset ends a lease too.
#[derive(Debug, Clone)]
pub struct LeaseEnd {
    /// Name of the database.
    pub database: String,
    /// When the lease ended. All its sessions began before.
    pub at: Instant,
    /// Rows at the end. `None` if pgfresh couldn't read them.
    pub contents: Option<Contents>,
}

/// A client's report that a test which used a database has ended.
#[derive(Debug, Clone)]
pub struct TestEnd {
    /// Name of the database.
    pub database: String,
    /// When the client reported that the test ended.
    pub at: Instant,
    /// Name of the test, as its test runner calls it. `None` if the client didn't report a name.
    pub test: Option<String>,
}

impl RanStatement {
    /// Returns true if the statement succeeded.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.result, StatementResult::Done(_))
    }

    /// Returns true if the statement is a COMMIT, END or PREPARE TRANSACTION that ends a transaction block, or that
    /// commits earlier work of the same request.
    #[must_use]
    pub fn ends_transaction(&self) -> bool {
        let is_commit = self.kind == StatementKind::Commit && !has_words(&self.text, &["prepared"]);
        is_commit && (self.in_transaction || self.follows_work)
    }

    /// Returns true for a COMMIT that the server turned into a ROLLBACK, because the transaction had failed.
    #[must_use]
    pub fn is_rolled_back_commit(&self) -> bool {
        self.kind == StatementKind::Commit
            && matches!(&self.result, StatementResult::Done(tag) if tag == "ROLLBACK")
    }

    /// Returns the SQLSTATE if the statement failed.
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
        lease.statements.extend(statements(transcript, lease.sessions.len()));
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

/// Returns the statements in `transcript`. `session` is the number of the session in its lease.
fn statements(transcript: &SessionTranscript, session: usize) -> Vec<RanStatement> {
    let (mut names, mut portals) = (StatementNames::default(), Portals::default());
    let mut found = Vec::new();
    let mut in_transaction = false;
    for request in &transcript.requests {
        let texts = names.read(&request.messages);
        let mut calls = portals.read(&request.messages, texts.len()).into_iter();
        let outcome = request.outcome.as_ref();
        let mut follows_work = false;
        for (place, text) in texts.into_iter().enumerate() {
            let result = match outcome {
                Some(outcome) if place < outcome.tags.len() => {
                    StatementResult::Done(outcome.tags[place].clone())
                }
                Some(outcome) => match &outcome.error {
                    Some(error) if place == outcome.tags.len() => {
                        StatementResult::Failed(error.sqlstate.clone())
                    }
                    Some(_) => StatementResult::Skipped,
                    None => StatementResult::Unanswered,
                },
                None => StatementResult::Unanswered,
            };
            let (kind, sent) = (NormalizedStatement::read(&text).kind, request.sent);
            let call = calls.next().unwrap_or(Call::Query);
            let before = in_transaction;
            if let StatementResult::Done(tag) = &result {
                in_transaction = is_open_after(tag, &text).unwrap_or(before);
            }
            let has_work = !before
                && !in_transaction
                && !matches!(kind, StatementKind::Commit | StatementKind::Transaction);
            let statement = RanStatement {
                text,
                kind,
                session,
                call,
                sent,
                in_transaction: before,
                follows_work,
                result,
            };
            follows_work = has_work || follows_work && !statement.ends_transaction();
            found.push(statement);
        }
        if let Some(outcome) = outcome {
            in_transaction = outcome.status != b'I';
        }
    }
    found
}

/// Returns whether a transaction block is open after a statement with command tag `tag`, or `None` if the statement
/// doesn't change that.
fn is_open_after(tag: &str, text: &str) -> Option<bool> {
    match tag {
        "BEGIN" | "START TRANSACTION" => Some(true),
        "ROLLBACK" if has_words(text, &["to"]) => None,
        "COMMIT" | "ROLLBACK" => Some(has_words(text, &["and", "chain"])),
        "PREPARE TRANSACTION" => Some(false),
        _ => None,
    }
}

/// Names of the portals that the client has executed since it bound them.
#[derive(Debug, Default)]
struct Portals(HashSet<Vec<u8>>);

impl Portals {
    /// Returns how the client sent each of the `count` statements in a request.
    fn read(&mut self, messages: &[u8], count: usize) -> Vec<Call> {
        let mut calls = Vec::new();
        for frame in frames(messages) {
            let name = split_zero(frame.body).0;
            match frame.tag {
                b'Q' => return vec![Call::Query; count],
                b'B' => drop(self.0.remove(name)),
                b'E' if self.0.insert(name.to_vec()) => calls.push(Call::Execute),
                b'E' => calls.push(Call::Fetch),
                _ => {}
            }
        }
        calls.resize(count, Call::Parse);
        calls
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pgwire::{RequestOutcome, StatementError, TranscribedRequest, encode, query};

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
    fn commit_in_query_ends_transaction() {
        let now = Instant::now();
        let of = |sql: &str, tags: &[&str]| {
            let transcript = session("d", now, vec![request(sql, now, tags, None, b'I')]);
            let [lease] = &leases(&[transcript], Vec::new(), &[])[..] else { panic!() };
            let seen = lease
                .statements
                .iter()
                .map(|statement| (statement.in_transaction, statement.ends_transaction()));
            seen.collect::<Vec<_>>()
        };
        let tags = ["BEGIN", "INSERT 0 1", "COMMIT", "INSERT 0 1"];
        let found = of("BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2)", &tags);
        assert_eq!(found, [(false, false), (true, false), (true, true), (false, false)]);
        let tags = ["BEGIN", "ROLLBACK", "COMMIT", "SELECT 1"];
        let found = of("BEGIN; ROLLBACK TO a; COMMIT AND CHAIN; SELECT 1", &tags);
        assert_eq!(found, [(false, false), (true, false), (true, true), (true, false)]);
        let found = of("INSERT INTO t VALUES (1); COMMIT; COMMIT", &["INSERT 0 1", "COMMIT", "COMMIT"]);
        assert_eq!(found, [(false, false), (false, true), (false, false)]);
    }

    #[test]
    fn portals_tell_executes_from_fetches() {
        let bind = encode(b'B', b"p\0s\0\0\0\0\0\0\0");
        let (parse, execute) = (encode(b'P', b"s\0SELECT 1\0\0\0"), encode(b'E', b"p\0\0\0\0\0"));
        let mut portals = Portals::default();
        assert_eq!(portals.read(&parse, 1), [Call::Parse]);
        assert_eq!(portals.read(&[&bind[..], &execute, &execute].concat(), 2), [Call::Execute, Call::Fetch]);
        assert_eq!(portals.read(&[bind, execute].concat(), 1), [Call::Execute]);
        assert_eq!(portals.read(&query(b"SELECT 1; SELECT 2"), 2), [Call::Query; 2]);
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
