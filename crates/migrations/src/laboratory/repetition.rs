//! Repeats the sessions of a migration, request by request.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use pgwire::{SessionTranscript, StatementError, TranscribedRequest};
use plans::BoundValue;
use server::Server;

use super::catalog::Catalogs;
use super::class::StatementClass;
use super::error::LaboratoryError;
use super::events::{Event, events};
use super::records::Records;
use super::requests::{Request, Unit};
use super::session::RepeatedSession;
use super::sizes::Sizes;
use super::watch::Watch;
use crate::{Observations, ObservedStatement};

/// Maximum time for a request that took no time in the tool's run, and how much longer others may take.
const LIMIT: Duration = Duration::from_mins(2);
const SLOWER: u32 = 10;
/// Maximum number of characters of a statement in a sentence.
const SHOWN: usize = 60;
/// Errors that depend on other sessions, on time or on an administrator. A repetition alone does not meet them again.
const ACCIDENTAL: [&str; 7] = ["40001", "40P01", "55P03", "57014", "57P01", "25P03", "57P05"];
/// Errors of statements that PostgreSQL refuses in a transaction, and of procedures that end their transaction.
const REFUSED: [&str; 2] = ["25001", "2D000"];

/// The repetition of all sessions.
pub(super) struct Repetition<'a> {
    transcripts: &'a [SessionTranscript],
    pub(super) catalogs: Catalogs<'a>,
    /// Sessions by their numbers. `None` before the begin and after the end.
    sessions: Vec<Option<RepeatedSession>>,
    pub(super) records: Records,
    pub(super) sizes: Sizes,
    /// End of the transcripts.
    end: Instant,
}

/// A request during its repetition.
pub(super) struct Progress<'a> {
    pub(super) session: usize,
    pub(super) database: &'a str,
    request: &'a TranscribedRequest,
    /// When the server could begin with the request.
    begun: Instant,
    /// When the server had answered it.
    ended: Instant,
    /// Number of the first statement.
    first: usize,
    /// Number of command tags so far.
    tags: usize,
    /// Whether a statement has failed.
    has_failed: bool,
}

/// Result of a statement in the tool's run.
#[derive(Debug, Clone, PartialEq)]
enum Expected<'a> {
    Tag(&'a str),
    Error(&'a StatementError),
    /// A suspended portal.
    Nothing,
    Unknown,
}

/// A statement to run.
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) parameters: Vec<BoundValue>,
    pub(super) messages: Vec<u8>,
    pub(super) is_extended: bool,
    pub(super) class: StatementClass,
}

impl<'a> Progress<'a> {
    fn expected(&self) -> Expected<'a> {
        let Some(outcome) = &self.request.outcome else { return Expected::Unknown };
        match (outcome.tags.get(self.tags), &outcome.error) {
            (Some(tag), _) => Expected::Tag(tag),
            (None, Some(error)) => Expected::Error(error),
            (None, None) => Expected::Nothing,
        }
    }

    /// Returns a limit for the repetition.
    pub(super) fn limit(&self) -> Duration {
        LIMIT + self.ended.saturating_duration_since(self.begun) * SLOWER
    }
}

impl<'a> Repetition<'a> {
    pub(super) fn new(
        server: &'a Server,
        major: u32,
        transcripts: &'a [SessionTranscript],
        sizes: Sizes,
    ) -> Self {
        let requests = transcripts.iter().flat_map(|transcript| &transcript.requests);
        let times = requests.flat_map(|request| {
            [Some(request.sent), request.outcome.as_ref().map(|outcome| outcome.answered)]
        });
        Self {
            transcripts,
            catalogs: Catalogs::new(server, major),
            sessions: transcripts.iter().map(|_| None).collect(),
            records: Records::new(transcripts.len()),
            sizes,
            end: times.flatten().max().unwrap_or_else(Instant::now),
        }
    }

    /// Repeats everything.
    pub(super) fn run(mut self) -> Result<Observations, LaboratoryError> {
        for (number, transcript) in self.transcripts.iter().enumerate() {
            if transcript.is_cut {
                self.records.note(format!("The transcript of session {} is incomplete.", number + 1));
            }
        }
        for event in events(self.transcripts) {
            match event {
                Event::Open { session } => self.open(session)?,
                Event::Answered { session, request } => self.repeat(session, request)?,
                Event::Close { session } => self.close(session),
                Event::Unfinished { session, request } => {
                    // Locks of the other sessions would block the statement here, too.
                    for other in (0..self.sessions.len()).filter(|other| *other != session) {
                        let is_done =
                            self.transcripts[other].requests.iter().all(|one| one.outcome.is_some());
                        if is_done {
                            self.close(other);
                        } else {
                            self.roll_back(other)?;
                        }
                    }
                    self.repeat(session, request)?;
                }
            }
        }
        for session in 0..self.sessions.len() {
            self.close(session);
        }
        self.catalogs.close();
        Ok(Observations { sizes: self.sizes.into_sizes(), ..self.records.finish() })
    }

    fn open(&mut self, session: usize) -> Result<(), LaboratoryError> {
        let transcript = &self.transcripts[session];
        match RepeatedSession::open(&self.catalogs.socket_directory(), transcript) {
            Ok(open) => self.sessions[session] = Some(open),
            Err(error) => self.records.note(format!(
                "The laboratory could not repeat session {} in the database \"{}\": {error}.",
                session + 1,
                transcript.database
            )),
        }
        Ok(())
    }

    /// Ends a session. The server rolls an open transaction back.
    fn close(&mut self, session: usize) {
        if self.sessions[session].take().is_some() {
            self.records.end_transaction(session, self.end);
        }
    }

    fn roll_back(&mut self, session: usize) -> Result<(), LaboratoryError> {
        let Some(mut open) = self.sessions[session].take() else { return Ok(()) };
        if open.status != b'I' && !open.is_over {
            self.ask(&mut open, "ROLLBACK")?;
        }
        self.sessions[session] = Some(open);
        Ok(())
    }

    /// Runs SQL of the laboratory in a repeated session.
    pub(super) fn ask(
        &mut self,
        open: &mut RepeatedSession,
        sql: &str,
    ) -> Result<super::answer::Answer, LaboratoryError> {
        let mut watch = self.watch(open.pid, LIMIT);
        let catalogs = &mut self.catalogs;
        open.ask(sql, &mut |elapsed| watch.tick(elapsed, catalogs))
    }

    /// Returns the limits of an exchange of the session with this pid.
    pub(super) fn watch(&self, pid: u32, limit: Duration) -> Watch {
        let peers: HashSet<u32> =
            self.sessions.iter().flatten().map(|open| open.pid).filter(|other| *other != pid).collect();
        Watch::new(pid, peers, limit)
    }

    fn repeat(&mut self, session: usize, number: usize) -> Result<(), LaboratoryError> {
        let transcripts = self.transcripts;
        let transcript = &transcripts[session];
        let request = &transcript.requests[number];
        let previous = number.checked_sub(1).and_then(|before| transcript.requests[before].outcome.as_ref());
        let begun = previous.map_or(request.sent, |previous| request.sent.max(previous.answered));
        let ended = request.outcome.as_ref().map_or(self.end, |outcome| outcome.answered);
        let mut progress = Progress {
            session,
            database: &transcript.database,
            request,
            begun,
            ended,
            first: self.records.len(),
            tags: 0,
            has_failed: false,
        };
        let Some(mut open) = self.sessions[session].take() else { return Ok(()) };
        let mut parts = open.names.read(&request.messages);
        for unit in std::mem::take(&mut parts.units) {
            if progress.has_failed {
                break;
            }
            self.unit(&mut open, unit, &mut parts, &mut progress)?;
        }
        self.finish_request(&mut open, &progress)?;
        self.share_time(&progress);
        self.sessions[session] = Some(open);
        Ok(())
    }

    fn unit(
        &mut self,
        open: &mut RepeatedSession,
        unit: Unit,
        parts: &mut Request,
        progress: &mut Progress<'_>,
    ) -> Result<(), LaboratoryError> {
        let statement = match unit {
            Unit::Run { sql, parameters, messages, is_extended, .. } => {
                let class = StatementClass::of(&sql);
                Statement { sql, parameters, messages, is_extended, class }
            }
            Unit::Prepare { messages, sql } => {
                return self.prepare(open, &messages, sql, progress);
            }
        };
        let expected = progress.expected();
        let mut observed = self.blank(&statement, progress);
        let mut is_accident = false;
        if let Expected::Error(error) = &expected
            && ACCIDENTAL.contains(&error.sqlstate.as_str())
        {
            is_accident = true;
            self.fail(open)?;
        }
        let skips = open.is_over || open.is_lost || is_accident;
        let answer = if skips {
            None
        } else {
            Some(self.observe(open, &statement, parts, progress, &mut observed)?)
        };
        match &expected {
            Expected::Tag(tag) => observed.tag = Some((*tag).to_owned()),
            Expected::Error(error) => observed.error = Some((*error).clone()),
            Expected::Nothing => {}
            Expected::Unknown => observed.is_unfinished = true,
        }
        if let Some(answer) = &answer {
            self.compare(open, &expected, answer, &statement, progress)?;
            progress.has_failed |= answer.error.is_some();
        }
        match expected {
            Expected::Tag(_) => progress.tags += 1,
            Expected::Error(_) => progress.has_failed = true,
            Expected::Nothing | Expected::Unknown => {}
        }
        self.record(open, observed, &statement.class, progress);
        Ok(())
    }

    /// Returns a statement without facts.
    fn blank(&self, statement: &Statement, progress: &Progress<'_>) -> ObservedStatement {
        ObservedStatement {
            database: progress.database.to_owned(),
            session: progress.session,
            sql: statement.sql.clone(),
            parameters: statement.parameters.clone(),
            ..ObservedStatement::default()
        }
    }

    /// Adds a statement, and follows its transaction.
    fn record(
        &mut self,
        open: &RepeatedSession,
        observed: ObservedStatement,
        class: &StatementClass,
        progress: &Progress<'_>,
    ) {
        let is_over = match class {
            StatementClass::End { is_chained } => {
                *is_chained && observed.error.is_none() || open.status == b'I' || open.is_lost
            }
            _ => open.status == b'I' && !open.is_wrapped,
        };
        let has_succeeded = observed.tag.is_some();
        self.records.add(observed, progress.begun);
        match class {
            StatementClass::Savepoint(name) if has_succeeded => {
                self.records.savepoint(progress.session, name.clone());
            }
            StatementClass::RollbackTo(name) if has_succeeded => {
                self.records.roll_back_to(progress.session, name, progress.ended);
            }
            _ => {}
        }
        if is_over {
            self.records.end_transaction(progress.session, progress.ended);
        }
    }

    /// Says how a repetition differs from the tool's run, and gives its transaction the state that the tool saw.
    fn compare(
        &mut self,
        open: &mut RepeatedSession,
        expected: &Expected<'_>,
        answer: &super::answer::Answer,
        statement: &Statement,
        progress: &Progress<'_>,
    ) -> Result<(), LaboratoryError> {
        let words = |tag: &str| {
            tag.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == ' ').to_owned()
        };
        let got = match (&answer.error, answer.tags.first()) {
            (Some(error), _) => format!("the error \"{}\"", error.message),
            (None, Some(tag)) => format!("\"{tag}\""),
            (None, None) => "no answer".to_owned(),
        };
        let sentence = match (expected, &answer.error) {
            (Expected::Unknown, _) => None,
            (Expected::Error(error), None) => {
                self.fail(open)?;
                Some(format!("the error \"{}\"", error.message))
            }
            (Expected::Error(error), Some(other)) if error.sqlstate != other.sqlstate => {
                Some(format!("the error \"{}\"", error.message))
            }
            (Expected::Tag(tag), error) => {
                open.is_lost |= error.is_some() && !open.is_wrapped && open.status == b'E';
                let is_same = answer.tags.first().is_some_and(|other| words(other) == words(tag));
                (!is_same).then(|| format!("\"{tag}\""))
            }
            (Expected::Nothing, Some(_)) => {
                open.is_lost |= !open.is_wrapped && open.status == b'E';
                Some("no error".to_owned())
            }
            _ => None,
        };
        if let Some(sentence) = sentence {
            let sql = shortened(&statement.sql);
            self.records.note(format!(
                "The laboratory saw {got} instead of {sentence} for \"{sql}\" in the database \"{}\".",
                progress.database
            ));
        }
        Ok(())
    }

    /// Makes an open transaction fail, as in the tool's run.
    fn fail(&mut self, open: &mut RepeatedSession) -> Result<(), LaboratoryError> {
        if open.is_in_transaction() {
            self.ask(open, "SELECT 1 / 0")?;
        }
        Ok(())
    }

    /// Sends messages that run no statement. Only an error makes a statement of them.
    fn prepare(
        &mut self,
        open: &mut RepeatedSession,
        messages: &[u8],
        sql: String,
        progress: &mut Progress<'_>,
    ) -> Result<(), LaboratoryError> {
        let class = StatementClass::Bare;
        let statement =
            Statement { sql, parameters: Vec::new(), messages: messages.to_vec(), is_extended: true, class };
        let expected = progress.expected();
        if !(open.is_over || open.is_lost) {
            let answer = self.exchange(open, &statement, &mut Request::default(), progress)?;
            let expected = if answer.error.is_none() && expected == Expected::Unknown {
                Expected::Nothing
            } else {
                expected.clone()
            };
            self.compare(open, &expected, &answer, &statement, progress)?;
        }
        if let Expected::Error(error) = expected {
            progress.has_failed = true;
            let mut observed = self.blank(&statement, progress);
            observed.error = Some(error.clone());
            self.record(open, observed, &statement.class, progress);
        }
        Ok(())
    }

    /// Ends a transaction that the laboratory began, and compares the state of the session with the tool's run.
    fn finish_request(
        &mut self,
        open: &mut RepeatedSession,
        progress: &Progress<'_>,
    ) -> Result<(), LaboratoryError> {
        if progress.request.outcome.is_none() {
            // The migration did not get this far.
            if open.status != b'I' && !open.is_over {
                self.ask(open, "ROLLBACK")?;
            }
            open.is_wrapped = false;
            self.records.end_transaction(progress.session, progress.ended);
            return Ok(());
        }
        if open.is_wrapped {
            let end = if open.status == b'T' { "COMMIT" } else { "ROLLBACK" };
            let answer = self.ask(open, end)?;
            open.is_wrapped = false;
            let expected = progress.expected();
            if let Some(error) = answer.error
                && !matches!(expected, Expected::Error(_))
            {
                self.records.note(format!(
                    "The laboratory could not commit in the database \"{}\": {}.",
                    progress.database, error.message
                ));
            }
            self.records.end_transaction(progress.session, progress.ended);
        }
        let status = progress.request.outcome.as_ref().map_or(b'I', |outcome| outcome.status);
        if open.is_over || status == open.status {
            return Ok(());
        }
        match status {
            b'I' => {
                self.ask(open, "ROLLBACK")?;
                open.is_lost = false;
                self.records.end_transaction(progress.session, progress.ended);
            }
            b'E' => self.fail(open)?,
            _ => open.is_lost = true,
        }
        Ok(())
    }

    /// Gives each statement of a request an equal part of its time.
    fn share_time(&mut self, progress: &Progress<'_>) {
        let numbers = progress.first..self.records.len();
        let seconds = progress.ended.saturating_duration_since(progress.begun).as_secs_f64();
        let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX).max(1);
        for number in numbers {
            self.records.statement(number).seconds = seconds / f64::from(count);
        }
    }
}

/// Returns true if PostgreSQL refuses a statement in a transaction, or a procedure that ends its transaction.
pub(super) fn is_refused(sqlstate: Option<&str>) -> bool {
    sqlstate.is_some_and(|sqlstate| REFUSED.contains(&sqlstate))
}

/// Returns the begin of a statement on one line.
pub(super) fn shortened(sql: &str) -> String {
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
