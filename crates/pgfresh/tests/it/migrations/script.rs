//! Builds transcripts with several sessions, request by request.

use std::time::{Duration, Instant};

use pgwire::{RequestOutcome, SessionTranscript, StatementError, TranscribedRequest, encode, query};

/// Transcripts with consecutive requests that take 10 ms each.
pub(super) struct Script {
    began: Instant,
    ticks: u32,
    pub(super) sessions: Vec<SessionTranscript>,
}

/// A request's result in the script: the command tags, the error's SQLSTATE (or an empty string), and
/// the transaction status.
pub(super) type Result<'a> = (&'a [&'a str], &'a str, u8);

impl Script {
    /// Creates a script with a session in each database.
    pub(super) fn new(databases: &[&str]) -> Self {
        let began = Instant::now();
        let parameters = vec![("user".to_owned(), "postgres".to_owned())];
        let session = |database: &&str| SessionTranscript {
            database: (*database).to_owned(),
            parameters: parameters.clone(),
            began,
            requests: Vec::new(),
            is_cut: false,
        };
        Self { began, ticks: 0, sessions: databases.iter().map(session).collect() }
    }

    /// Makes a session begin at the current time.
    pub(super) fn begin(&mut self, session: usize) {
        self.sessions[session].began = self.now();
    }

    fn now(&self) -> Instant {
        self.began + Duration::from_millis(10) * self.ticks
    }

    /// Adds a request with a response.
    pub(super) fn add(&mut self, session: usize, messages: &[Vec<u8>], result: Result<'_>) {
        let sent = self.now();
        self.ticks += 1;
        let (tags, sqlstate, status) = result;
        let error = StatementError { sqlstate: sqlstate.to_owned(), message: "as in the script".to_owned() };
        let outcome = RequestOutcome {
            answered: self.now(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            error: (!sqlstate.is_empty()).then_some(error),
            status,
        };
        self.push(session, messages, sent, Some(outcome));
    }

    /// Adds a Query with a response.
    pub(super) fn query(&mut self, session: usize, sql: &str, result: Result<'_>) {
        self.add(session, &[query(sql.as_bytes())], result);
    }

    /// Adds a Query without a response.
    pub(super) fn unanswered(&mut self, session: usize, sql: &str) {
        let sent = self.now();
        self.ticks += 1;
        self.push(session, &[query(sql.as_bytes())], sent, None);
    }

    fn push(&mut self, session: usize, messages: &[Vec<u8>], sent: Instant, outcome: Option<RequestOutcome>) {
        let messages = messages.concat().into();
        self.sessions[session].requests.push(TranscribedRequest { messages, sent, outcome });
    }
}

/// Encodes Parse.
pub(super) fn parse(name: &str, sql: &str) -> Vec<u8> {
    encode(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat())
}

/// Encodes Bind for a portal, with values as text.
pub(super) fn bind(portal: &str, statement: &str, values: &[&str]) -> Vec<u8> {
    let count = u16::try_from(values.len()).unwrap().to_be_bytes();
    let mut body = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0", &count].concat();
    for value in values {
        body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value.as_bytes());
    }
    body.extend([0, 0]);
    encode(b'B', &body)
}

/// Encodes Execute for a portal, with a row limit.
pub(super) fn execute(portal: &str, rows: u32) -> Vec<u8> {
    encode(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
}

/// Encodes Sync.
pub(super) fn sync() -> Vec<u8> {
    encode(b'S', b"")
}
