//! Repeats the sessions of a migration, one request after the other.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use pgwire::SessionTranscript;
use server::{Rows, Server, literal};

use super::answer::Answer;
use super::catalog::Catalogs;
use super::class::StatementClass;
use super::error::LaboratoryError;
use super::events::{Event, events};
use super::progress::{Expected, LIMIT, Progress, Statement};
use super::questions::Question;
use super::records::Records;
use super::requests::{Request, Unit};
use super::session::RepeatedSession;
use super::sizes::{self, Sizes};
use super::watch::Watch;
use crate::{Observations, ObservedStatement};

/// Maximum number of characters of a statement that a message quotes.
const SHOWN: usize = 60;

/// Repeats all sessions of a migration.
pub(super) struct Repetition<'a> {
    transcripts: &'a [SessionTranscript],
    pub(super) catalogs: Catalogs<'a>,
    /// The repeated sessions, by index. `None` before a session starts and after it ends.
    sessions: Vec<Option<RepeatedSession>>,
    pub(super) records: Records,
    pub(super) sizes: Sizes,
    /// The time when the transcripts end.
    end: Instant,
}

/// How long a setting lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Session,
    Transaction,
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

    /// Repeats all events and returns the observations.
    pub(super) fn run(mut self) -> Result<Observations, LaboratoryError> {
        for (number, transcript) in self.transcripts.iter().enumerate() {
            if transcript.is_cut {
                self.records
                    .note(format!("the last requests of session {}: its transcript is cut", number + 1));
            }
        }
        for event in events(self.transcripts) {
            match event {
                Event::Open { session } => self.open(session),
                Event::Answered { session, request } => self.repeat(session, request)?,
                Event::Close { session } => self.close(session),
                Event::Unfinished { session, request } => {
                    self.free_locks(session)?;
                    self.repeat(session, request)?;
                }
            }
        }
        for session in 0..self.sessions.len() {
            self.close(session);
        }
        self.catalogs.close();
        let mut observations = Observations { sizes: self.sizes.into_sizes(), ..self.records.finish() };
        sizes::leave_out_partial_scans(&mut observations);
        Ok(observations)
    }

    fn open(&mut self, session: usize) {
        let transcript = &self.transcripts[session];
        let has_functions = self.catalogs.create_functions(&transcript.database);
        match RepeatedSession::open(&self.catalogs.socket_directory(), transcript, has_functions) {
            Ok(open) => self.sessions[session] = Some(open),
            Err(error) => self.records.note(format!(
                "session {} in the database \"{}\": {error}",
                session + 1,
                transcript.database
            )),
        }
    }

    /// Ends a session. The server rolls back its open transaction.
    fn close(&mut self, session: usize) {
        if self.sessions[session].take().is_some() {
            self.records.end_transaction(session, self.end);
        }
    }

    /// Ends the transactions of all other sessions, because a statement without a response may have waited for one of
    /// them.
    fn free_locks(&mut self, session: usize) -> Result<(), LaboratoryError> {
        for other in (0..self.sessions.len()).filter(|other| *other != session) {
            let Some(mut open) = self.sessions[other].take() else { continue };
            if open.status != b'I' && !open.is_over {
                self.ask(&mut open, "ROLLBACK")?;
            }
            self.sessions[other] = Some(open);
        }
        Ok(())
    }

    /// Runs SQL of the laboratory in a repeated session.
    pub(super) fn ask(&mut self, open: &mut RepeatedSession, sql: &str) -> Result<Answer, LaboratoryError> {
        let mut watch = self.watch(open.pid, LIMIT);
        let catalogs = &mut self.catalogs;
        open.ask(sql, &mut |elapsed| watch.tick(elapsed, catalogs))
    }

    /// Asks a question in a repeated session. If the server refuses it, the session keeps the error.
    pub(super) fn question(
        &mut self,
        open: &mut RepeatedSession,
        question: Question,
    ) -> Result<Rows, LaboratoryError> {
        let sql = open.sql_of(question);
        self.answer(open, &sql)
    }

    /// Like [`Self::question`], for SQL that is no [`Question`].
    pub(super) fn answer(&mut self, open: &mut RepeatedSession, sql: &str) -> Result<Rows, LaboratoryError> {
        let answer = self.ask(open, sql)?;
        if let Some(error) = answer.error {
            open.refusal.get_or_insert(error.message);
        }
        Ok(answer.rows)
    }

    pub(super) fn set_lock_timeout(
        &mut self,
        open: &mut RepeatedSession,
        value: &str,
        scope: Scope,
    ) -> Result<(), LaboratoryError> {
        let is_local = scope == Scope::Transaction;
        let sql = format!("SELECT pg_catalog.set_config('lock_timeout', {}, {is_local})", literal(value));
        self.answer(open, &sql)?;
        Ok(())
    }

    /// Returns the limits for an exchange with the session whose pid is `pid`.
    pub(super) fn watch(&self, pid: u32, limit: Duration) -> Watch {
        let open = self.sessions.iter().flatten().map(|open| open.pid);
        let peers: HashSet<u32> = open.filter(|other| *other != pid).collect();
        Watch::new(pid, peers, limit)
    }

    fn repeat(&mut self, session: usize, number: usize) -> Result<(), LaboratoryError> {
        let transcripts = self.transcripts;
        let mut progress = Progress::of(&transcripts[session], session, number, self.end);
        let Some(mut open) = self.sessions[session].take() else { return Ok(()) };
        let mut parts = open.names.read(&progress.request.messages);
        if progress.is_unreadable() {
            parts.keep_whole(&progress.request.messages);
        }
        let units = std::mem::take(&mut parts.units);
        progress.is_several = units.iter().filter(|unit| matches!(unit, Unit::Run { .. })).count() > 1;
        for unit in units {
            if progress.has_failed {
                break;
            }
            self.repeat_statement(&mut open, &Statement::of(unit), &mut parts, &mut progress)?;
        }
        self.finish_request(&mut open, &progress)?;
        self.records.share_time(&progress.numbers, progress.begun, progress.ended);
        self.sessions[session] = Some(open);
        Ok(())
    }

    fn repeat_statement(
        &mut self,
        open: &mut RepeatedSession,
        statement: &Statement,
        parts: &mut Request,
        progress: &mut Progress<'_>,
    ) -> Result<(), LaboratoryError> {
        let is_preparation = statement.class == StatementClass::Preparation;
        let expected = match progress.expected() {
            Expected::Tag(_) | Expected::Unknown if is_preparation => Expected::Nothing,
            expected => expected,
        };
        let mut observed = progress.observed(statement);
        let is_accident = expected.is_accident(&statement.class, open.status == b'I');
        if is_accident {
            self.fail(open)?;
        }
        let has_facts = matches!(statement.class, StatementClass::Ordinary | StatementClass::Outside { .. });
        let has_succeeded = matches!(expected, Expected::Tag(_));
        if open.is_over || open.is_lost {
            observed.unobserved = (has_facts && has_succeeded).then(|| {
                "an earlier statement of its session has a different result in the laboratory".to_owned()
            });
        } else if !is_accident {
            let answer = self.observe(open, statement, parts, progress, &mut observed)?;
            self.compare(open, &expected, &answer, statement)?;
            progress.has_failed |= answer.error.is_some();
            let error = answer.error.filter(|_| has_succeeded).map(|error| error.message);
            let refusal = open.refusal.take();
            if let Some(cause) = refusal.as_ref().filter(|_| has_facts) {
                self.records.note(format!("facts of \"{}\": {cause}", shortened(&statement.sql)));
            }
            observed.unobserved = refusal.or(error).filter(|_| has_facts);
        }
        match &expected {
            Expected::Tag(tag) => {
                progress.tags += 1;
                observed.tag = Some((*tag).to_owned());
            }
            Expected::Error(error) => {
                progress.has_failed = true;
                observed.error = Some((*error).clone());
            }
            Expected::Nothing => {}
            Expected::Unknown => observed.is_unfinished = true,
        }
        // Messages that run nothing aren't a statement. Record them only if they fail.
        if !is_preparation || observed.error.is_some() {
            self.record(open, observed, statement, progress);
        }
        Ok(())
    }

    /// Records a statement, or adds a portal's rest to the statement that opened it. Keeps track of its transaction.
    fn record(
        &mut self,
        open: &mut RepeatedSession,
        observed: ObservedStatement,
        statement: &Statement,
        progress: &mut Progress<'_>,
    ) {
        let (has_succeeded, has_failed) = (observed.tag.is_some(), observed.error.is_some());
        let earlier = open.portals.get(&statement.portal).copied().filter(|_| statement.continues);
        let number = match earlier {
            Some(number) => {
                self.records.complete(number, observed);
                number
            }
            None => self.records.add(observed, progress.begun),
        };
        progress.numbers.push(number);
        if statement.is_extended {
            open.portals.insert(statement.portal.clone(), number);
        }
        let session = progress.session;
        match &statement.class {
            StatementClass::Savepoint(name) if has_succeeded => self.records.savepoint(session, name.clone()),
            StatementClass::RollbackTo(name) if has_succeeded => {
                self.records.roll_back_to(session, name, progress.ended);
            }
            _ => {}
        }
        let is_chained = statement.class == StatementClass::End { is_chained: true } && !has_failed;
        if is_chained || open.status == b'I' && !open.is_lost {
            self.records.end_transaction(session, progress.ended);
        }
    }

    /// Notes how a repetition differs from the tool's run. If only the tool's statement failed, makes the transaction
    /// fail too.
    fn compare(
        &mut self,
        open: &mut RepeatedSession,
        expected: &Expected<'_>,
        answer: &Answer,
        statement: &Statement,
    ) -> Result<(), LaboratoryError> {
        let difference = match (expected, &answer.error) {
            (Expected::Error(error), None) => {
                self.fail(open)?;
                Some(format!("the error \"{}\"", error.message))
            }
            (Expected::Error(error), Some(other)) if error.sqlstate != other.sqlstate => {
                Some(format!("the error \"{}\"", error.message))
            }
            (Expected::Tag(tag), None) => {
                let is_same = answer.tags.first().is_some_and(|other| words(other) == words(tag));
                (!is_same).then(|| format!("\"{tag}\""))
            }
            (Expected::Tag(_) | Expected::Nothing, Some(_)) => {
                open.is_lost = open.status == b'E' && !open.is_wrapped;
                Some("success".to_owned())
            }
            _ => None,
        };
        // After a refused question, the difference has no other cause.
        let Some(difference) = difference.filter(|_| open.refusal.is_none()) else { return Ok(()) };
        let got = match (&answer.error, answer.tags.first()) {
            (Some(error), _) => format!("the error \"{}\"", error.message),
            (None, Some(tag)) => format!("\"{tag}\""),
            (None, None) => "no result".to_owned(),
        };
        self.records.note(format!(
            "facts of \"{}\": the laboratory got {got} instead of {difference}",
            shortened(&statement.sql)
        ));
        Ok(())
    }

    /// Makes an open transaction fail, as it did in the tool's run.
    fn fail(&mut self, open: &mut RepeatedSession) -> Result<(), LaboratoryError> {
        if open.is_in_transaction() {
            self.ask(open, "SELECT 1 / 0")?;
        }
        Ok(())
    }

    /// Ends the transaction that the laboratory began for a request. Then brings the session into the transaction
    /// status that the tool saw.
    fn finish_request(
        &mut self,
        open: &mut RepeatedSession,
        progress: &Progress<'_>,
    ) -> Result<(), LaboratoryError> {
        let Some(outcome) = &progress.request.outcome else {
            // The transcript ended before this request did, so nothing after it depends on its transaction.
            if open.status != b'I' && !open.is_over {
                self.ask(open, "ROLLBACK")?;
            }
            self.records.end_transaction(progress.session, progress.ended);
            return Ok(());
        };
        if open.is_wrapped {
            let end = if open.status == b'T' { "COMMIT" } else { "ROLLBACK" };
            let locks = self.locks_of_deferred(open, progress.database)?;
            if let Some(last) = progress.numbers.last() {
                self.records.add_locks(*last, locks);
            }
            let answer = self.ask(open, end)?;
            if let (Some(error), None) = (answer.error, &outcome.error) {
                self.records.note(format!(
                    "what a request in the database \"{}\" changed: the laboratory could not commit it: {}",
                    progress.database, error.message
                ));
            }
            self.records.end_transaction(progress.session, progress.ended);
        }
        if open.is_over || outcome.status == open.status {
            return Ok(());
        }
        match outcome.status {
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
}

/// Returns a command tag without its row counts.
fn words(tag: &str) -> &str {
    tag.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == ' ')
}

/// Returns the start of a statement, on one line.
pub(super) fn shortened(sql: &str) -> String {
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
