//! Models a server: transactions, both protocols, COPY, and errors that the server raises by itself.

use std::collections::HashMap;

use pgwire::{encode, frames, split_zero};

use crate::faults::errors::{Occasion, error};
use crate::faults::statement::{Kind, Statement, statements};

/// First keyword of statements with rows or data.
const SELECT: &str = "SELECT";
const COPY_IN: &str = "COPY t FROM";
const COPY_OUT: &str = "COPY t TO";

/// When the model raises an error by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Statement,
    AfterStatement,
    Commit,
}

/// An error that the model raises, like a server whose sessions conflict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conflict {
    pub(super) moment: Moment,
    /// First words of the statement that fails.
    pub(super) statement: &'static str,
    /// Number of candidates before the one that fails.
    pub(super) after: usize,
}

/// A COPY FROM STDIN.
#[derive(Debug)]
struct Copying {
    statement: Statement,
    /// Statements after the COPY in the Query's string.
    rest: Vec<Statement>,
    in_query: bool,
}

/// A model server with one session.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) status: u8,
    /// Committed statements.
    pub(super) committed: Vec<String>,
    pending: Vec<String>,
    savepoint: Option<usize>,
    prepared: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, String>,
    /// Whether statements have run outside a transaction block.
    has_work: bool,
    is_skipping: bool,
    /// The COPY that is reading data, and the rest of its query string.
    copying: Option<Copying>,
    pub(super) conflict: Option<Conflict>,
}

impl Server {
    pub(super) fn new() -> Self {
        Self {
            status: b'I',
            committed: Vec::new(),
            pending: Vec::new(),
            savepoint: None,
            prepared: HashMap::new(),
            portals: HashMap::new(),
            has_work: false,
            is_skipping: false,
            copying: None,
            conflict: None,
        }
    }

    /// Processes messages and returns the responses.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        for frame in frames(bytes) {
            let (first, rest) = split_zero(frame.body);
            match frame.tag {
                b'd' | b'c' | b'f' if self.copying.is_some() => self.copy(frame.tag, &mut answers),
                b'H' | b'S' if self.copying.is_some() => {}
                b'd' | b'c' | b'f' | b'H' => {}
                b'S' => {
                    self.is_skipping = false;
                    self.ready(&mut answers);
                }
                _ if self.is_skipping => {}
                b'Q' => {
                    let found = statements(first, true);
                    self.prepared.remove(&b""[..]);
                    if String::from_utf8_lossy(first).contains("FROM FROM") {
                        answers.extend(self.fails("42601"));
                        self.ready(&mut answers);
                    } else {
                        self.run_string(found, &mut answers);
                    }
                }
                tag => {
                    let result = self.extended(tag, first, rest, &mut answers);
                    if let Err(message) = result {
                        answers.extend(message);
                        self.is_skipping = true;
                    }
                }
            }
        }
        answers
    }

    fn ready(&mut self, answers: &mut Vec<u8>) {
        if self.status == b'I' {
            self.committed.append(&mut self.pending);
        }
        self.has_work = false;
        answers.extend(encode(b'Z', &[self.status]));
    }

    fn extended(&mut self, tag: u8, first: &[u8], rest: &[u8], answers: &mut Vec<u8>) -> Result<(), Vec<u8>> {
        match tag {
            b'P' => {
                let sql = String::from_utf8_lossy(split_zero(rest).0).into_owned();
                let found = statements(sql.as_bytes(), true);
                self.analyze(found.first())?;
                self.prepared.insert(first.to_vec(), sql);
                answers.extend(encode(b'1', b""));
            }
            b'B' => {
                let sql = self.prepared.get(split_zero(rest).0).cloned();
                let Some(sql) = sql else { return Err(self.fails("26000")) };
                self.portals.insert(first.to_vec(), sql);
                answers.extend(encode(b'2', b""));
            }
            b'D' => {
                let of_statement = first.first() == Some(&b'S');
                let all = if of_statement { &self.prepared } else { &self.portals };
                let sql = all.get(&first[1..]).cloned().unwrap_or_default();
                if of_statement {
                    answers.extend(encode(b't', b"\0\0"));
                }
                answers.extend(encode(if sql.starts_with(SELECT) { b'T' } else { b'n' }, b""));
            }
            b'C' => answers.extend(encode(b'3', b"")),
            _ => {
                let Some(sql) = self.portals.get(first).cloned() else { return Err(self.fails("34000")) };
                match statements(sql.as_bytes(), true).into_iter().next() {
                    None => answers.extend(encode(b'I', b"")),
                    Some(statement) if statement.text.starts_with(COPY_IN) => {
                        answers.extend(self.begin_copy(statement, Vec::new(), false)?);
                    }
                    Some(statement) => self.run(&statement, Protocol::Extended, answers)?,
                }
            }
        }
        Ok(())
    }

    fn run_string(&mut self, found: Vec<Statement>, answers: &mut Vec<u8>) {
        let mut rest = found.into_iter();
        let result = loop {
            let Some(statement) = rest.next() else { break Ok(()) };
            let result = self.analyze(Some(&statement)).and_then(|()| {
                if statement.text.starts_with(COPY_IN) {
                    answers.extend(self.begin_copy(statement, rest.clone().collect(), true)?);
                    return Ok(());
                }
                self.run(&statement, Protocol::Simple, answers)
            });
            if result.is_err() || self.copying.is_some() {
                break result;
            }
        };
        if let Err(message) = result {
            answers.extend(message);
        }
        if self.copying.is_none() {
            self.ready(answers);
        }
    }

    /// Raises the errors of a statement that the server refuses to run.
    fn analyze(&mut self, statement: Option<&Statement>) -> Result<(), Vec<u8>> {
        let Some(statement) = statement else { return Ok(()) };
        let ends = statement.kind.commits() || statement.kind.rolls_back();
        match () {
            () if self.status == b'E' && !ends => Err(self.fails("25P02")),
            () if statement.text.contains("pgfresh.\"") => Err(self.fails("42P01")),
            () if statement.text.contains("nothing") => Err(self.fails("42703")),
            () => Ok(()),
        }
    }

    fn begin_copy(
        &mut self,
        statement: Statement,
        rest: Vec<Statement>,
        in_query: bool,
    ) -> Result<Vec<u8>, Vec<u8>> {
        if self.is_due(Moment::Statement, &statement) {
            return Err(self.conflicts(&statement, false));
        }
        self.copying = Some(Copying { statement, rest, in_query });
        Ok(encode(b'G', b"\0\0\0"))
    }

    fn copy(&mut self, tag: u8, answers: &mut Vec<u8>) {
        let Some(copying) = self.copying.take() else { return };
        let Copying { statement, in_query, .. } = &copying;
        let in_query = *in_query;
        let result = match tag {
            b'd' => {
                self.copying = Some(copying);
                return;
            }
            b'c' => self.run(statement, Protocol::Extended, answers),
            _ => {
                self.undo_failed();
                Err(error_message("57014", "COPY from stdin failed"))
            }
        };
        match result {
            Ok(()) if in_query => self.run_string(copying.rest, answers),
            Ok(()) => {}
            Err(message) => {
                answers.extend(message);
                if in_query {
                    self.ready(answers);
                } else {
                    self.is_skipping = true;
                }
            }
        }
    }

    fn is_due(&mut self, moment: Moment, statement: &Statement) -> bool {
        let Some(conflict) = &mut self.conflict else { return false };
        let is_candidate = conflict.moment == moment
            && self.status != b'E'
            && !statement.kind.rolls_back()
            && statement.text.starts_with(conflict.statement);
        if !is_candidate {
            return false;
        }
        if conflict.after == 0 {
            self.conflict = None;
            return true;
        }
        conflict.after -= 1;
        false
    }

    fn conflicts(&mut self, statement: &Statement, is_commit: bool) -> Vec<u8> {
        self.undo_failed();
        if is_commit {
            (self.status, self.savepoint) = (b'I', None);
            self.pending.clear();
        }
        let occasion = Occasion { major: 15, process: 1, statement: &statement.text, is_commit };
        error("40001", b"ERROR", occasion)
    }

    fn run(
        &mut self,
        statement: &Statement,
        protocol: Protocol,
        answers: &mut Vec<u8>,
    ) -> Result<(), Vec<u8>> {
        let commits =
            statement.kind.commits() && (self.status == b'T' || self.status == b'I' && self.has_work);
        let is_copied = statement.text.starts_with(COPY_IN);
        let fails = !is_copied && self.is_due(Moment::Statement, statement)
            || commits && self.is_due(Moment::Commit, statement);
        let ends = statement.kind.commits() || statement.kind == Kind::Begin;
        if ends && (fails || self.is_due(Moment::AfterStatement, statement)) {
            return Err(self.conflicts(statement, commits));
        }
        if fails {
            return Err(self.conflicts(statement, false));
        }
        if statement.text.starts_with(COPY_OUT) {
            answers.extend([encode(b'H', b"\0\0\0"), encode(b'd', b"1"), encode(b'c', b"")].concat());
        }
        if statement.text.starts_with(SELECT) {
            let head = if protocol == Protocol::Simple { encode(b'T', b"") } else { Vec::new() };
            answers.extend([head, encode(b'D', b"\0\0")].concat());
        }
        let tag = self.effect(statement)?;
        if !ends && self.is_due(Moment::AfterStatement, statement) {
            return Err(self.conflicts(statement, false));
        }
        answers.extend(encode(b'C', &[tag.as_bytes(), b"\0"].concat()));
        Ok(())
    }

    fn effect(&mut self, statement: &Statement) -> Result<&'static str, Vec<u8>> {
        Ok(match statement.kind {
            Kind::Begin => {
                self.status = b'T';
                "BEGIN"
            }
            Kind::Commit { .. } | Kind::Rollback { .. } => {
                let commits = statement.kind.commits() && self.status != b'E';
                if commits {
                    self.committed.append(&mut self.pending);
                } else {
                    self.pending.clear();
                }
                (self.status, self.savepoint, self.has_work) = (b'I', None, false);
                if commits { "COMMIT" } else { "ROLLBACK" }
            }
            Kind::RollbackTo => {
                let Some(at) = self.savepoint else { return Err(self.fails("3B001")) };
                self.pending.truncate(at);
                self.status = b'T';
                "ROLLBACK"
            }
            _ if statement.text.starts_with("SAVEPOINT") => {
                if self.status != b'T' {
                    return Err(self.fails("25P01"));
                }
                self.savepoint = Some(self.pending.len());
                "SAVEPOINT"
            }
            _ => {
                self.has_work |= self.status == b'I';
                self.pending.push(statement.text.to_string());
                "DONE"
            }
        })
    }

    fn fails(&mut self, sqlstate: &str) -> Vec<u8> {
        self.undo_failed();
        error_message(sqlstate, "it fails")
    }

    fn undo_failed(&mut self) {
        if self.status == b'T' {
            self.status = b'E';
        }
        if self.status == b'I' {
            self.pending.clear();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Simple,
    Extended,
}

fn error_message(sqlstate: &str, text: &str) -> Vec<u8> {
    encode(b'E', format!("SERROR\0VERROR\0C{sqlstate}\0M{text}\0\0").as_bytes())
}
