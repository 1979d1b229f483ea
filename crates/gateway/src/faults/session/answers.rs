//! Processes the server's messages.

use std::borrow::Cow;

use pgwire::{ErrorResponse, HEADER, encode, split_zero};

use super::failure::Failure;
use super::messages::{failing_execute, parts};
use super::moments::{Strikes, is_plain_error};
use super::{FaultSession, Run, TransactionState, Work};
use crate::faults::errors::{Occasion, error, field};
use crate::faults::fault::FaultEffect;

/// SQLSTATE class of errors that the server raises before it runs a statement: syntax error or access rule violation.
const INVALID: &[u8] = b"42";

impl FaultSession {
    /// Processes a server message: its header, and at least [`Self::wanted`] bytes of its body.
    pub(crate) fn observe_server(&mut self, message: &[u8]) {
        self.passes_server = false;
        let parts = parts(message);
        match parts.tag {
            _ if self.has_ended => {}
            b'Z' => self.ready(message),
            _ if self.cut.is_some() => {}
            b'S' => {
                match parts.body {
                    b"standard_conforming_strings\0on\0" => self.standard_strings = true,
                    b"standard_conforming_strings\0off\0" => self.standard_strings = false,
                    _ => {}
                }
                self.pass_to_client(message);
            }
            b'N' => {
                let notice = self.notice_of_commit(message);
                self.pass_to_client(notice.as_deref().unwrap_or(message));
            }
            b'A' => self.pass_to_client(message),
            b'E' => self.server_fails(message),
            tag => match &mut self.work {
                Work::Run(run) => {
                    let failure = run.failure.as_mut().filter(|failure| failure.at == run.next);
                    if !failure.is_some_and(|failure| failure.expects(tag)) {
                        self.run_answers(message);
                    }
                }
                _ => self.group_answers(message),
            },
        }
    }

    /// Rewrites the warning "no transaction in progress" of a ROLLBACK that replaced a COMMIT, so that it looks like
    /// COMMIT's.
    fn notice_of_commit(&self, notice: &[u8]) -> Option<Vec<u8>> {
        let Work::Run(Run { failure: Some(failure), .. }) = &self.work else { return None };
        let is_rollback = failure.is_commit && field(notice, b'R') == Some(b"UserAbortTransactionBlock");
        is_rollback.then(|| {
            edited(
                notice,
                |code, value| if code == b'R' { b"EndTransactionBlock".into() } else { value.into() },
            )
        })
    }

    /// Processes a response to a running statement.
    fn run_answers(&mut self, message: &[u8]) {
        let tag = parts(message).tag;
        match tag {
            b'C' | b'V' => self.complete(message),
            b's' | b'I' => {
                self.pass_to_client(message);
                self.end_execute();
            }
            _ => {
                self.is_copying |= tag == b'G' || tag == b'W';
                self.pass_to_client(message);
            }
        }
    }

    /// Processes the completion of a statement.
    fn complete(&mut self, message: &[u8]) {
        self.is_copying = false;
        let Work::Run(run) = &mut self.work else { return };
        let (is_query, statement) = (run.is_query, run.statements.get(run.next).cloned());
        run.next += 1;
        let Some(statement) = statement else {
            self.pass_to_client(message);
            return self.end_execute();
        };
        let tag = split_zero(parts(message).body).0;
        let has_committed = statement.kind.commits() && matches!(tag, b"COMMIT" | b"PREPARE TRANSACTION");
        let before = self.state;
        self.forget_prepared(tag);
        self.state = before.after(statement.kind);
        // Errors in a Query were planned before it ran, so the statement can't fail now.
        let may_fail = !is_query
            && !before.has_failed()
            && !before.must_fail_before(statement.kind)
            && !statement.kind.rolls_back();
        for effect in self.faults_after(&statement, has_committed, may_fail) {
            match effect {
                FaultEffect::Error { ref sqlstate, .. } if is_plain_error(&effect) => {
                    self.send_to_server(failing_execute(sqlstate));
                    if let Work::Run(run) = &mut self.work {
                        (run.next, run.failure) = (0, Some(Failure::sent(sqlstate)));
                    }
                    return;
                }
                effect => self.interrupt(effect, is_query, true),
            }
        }
        if self.has_ended {
            return;
        }
        if self.cut.is_none() {
            self.pass_to_client(message);
        }
        self.end_execute();
    }

    /// Accepts the client's next message after the response to an Execute.
    fn end_execute(&mut self) {
        if matches!(&self.work, Work::Run(run) if !run.is_query) {
            self.work = Work::None;
        }
    }

    /// Removes the statements that DEALLOCATE ALL or DISCARD ALL has removed on the server.
    fn forget_prepared(&mut self, tag: &[u8]) {
        if matches!(tag, b"DEALLOCATE ALL" | b"DISCARD ALL") {
            self.prepared.clear();
        }
    }

    /// Processes a response to Parse, Bind, Describe or Close.
    fn group_answers(&mut self, message: &[u8]) {
        self.pass_to_client(message);
        let tag = parts(message).tag;
        if matches!(tag, b'1' | b'3') {
            self.unconfirmed.pop_front();
        }
        if matches!(tag, b'1' | b'2' | b'3' | b'T' | b'n') {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        if self.unanswered > 0 {
            return;
        }
        match &mut self.work {
            Work::Before(message) => {
                let message = std::mem::take(message);
                self.work = Work::None;
                match parts(&message).tag {
                    b'Q' => self.query(&message),
                    b'F' => self.function_call(&message),
                    _ => self.execute_portal(&message),
                }
            }
            Work::Flush => self.work = Work::None,
            _ => {}
        }
    }

    /// Processes an error from the server, planned or not.
    fn server_fails(&mut self, message: &[u8]) {
        self.is_copying = false;
        if self.state.status == b'T' {
            self.state.status = b'E';
        }
        if let Work::Run(run) = &mut self.work {
            run.is_invalid = field(message, b'C').is_some_and(|sqlstate| sqlstate.starts_with(INVALID));
        }
        let (major, process) = (self.major, self.process);
        let mut for_client = None;
        if let Work::Run(Run { statements, next, failure: Some(failure), .. }) = &mut self.work {
            if failure.at == *next && failure.is_raised_by(message) {
                failure.has_fired = true;
                if let Some(effect) = failure.end.take() {
                    // The strike of the fault that fired remains counted.
                    *next += 1;
                    return self.interrupt(effect, true, false);
                }
                let statement = statements.get(failure.at).map_or("", |statement| &statement.text);
                let severity = field(message, b'S').unwrap_or(b"ERROR");
                let occasion = Occasion { major, process, statement, is_commit: failure.is_commit };
                for_client = Some(error(&failure.sqlstate, severity, occasion));
            } else {
                for_client = Some(moved(message, |position| failure.position(position)));
            }
        }
        self.pass_to_client(for_client.as_deref().unwrap_or(message));
        let is_query = matches!(&self.work, Work::Run(run) if run.is_query);
        self.restore_prepared();
        if !is_query && !matches!(self.work, Work::Sync) {
            self.is_skipping = true;
            self.end_run();
        }
    }

    /// Ends the run, and takes back the strikes for statements that the server never reached.
    fn end_run(&mut self) {
        let Work::Run(run) = std::mem::replace(&mut self.work, Work::None) else { return };
        let Run { strikes, next, failure, is_invalid, .. } = &run;
        for (at, Strikes { before, after }) in strikes.iter().enumerate() {
            let planned = failure.as_ref().filter(|failure| failure.at == at);
            let is_hit = planned.is_some_and(|failure| failure.has_fired);
            // If a statement fails by itself, its error replaces the planned one.
            let has_begun =
                at < *next || at == *next && !is_invalid && planned.is_none_or(|one| one.is_after);
            if !is_hit && !has_begun {
                for strike in before {
                    self.faults.take_back(strike);
                }
            }
            if let Some(strike) = after.as_ref().filter(|_| !is_hit && at >= *next) {
                self.faults.take_back(strike);
            }
        }
    }

    fn ready(&mut self, message: &[u8]) {
        self.end_run();
        let status = parts(message).body.first().copied().unwrap_or_default();
        self.state = TransactionState { status, has_work: false };
        if status == b'I' {
            // Portals end with their transaction.
            self.portals.clear();
        }
        (self.unanswered, self.is_copying) = (0, false);
        match &self.cut {
            Some(cut) if cut.after_answer => self.cut_now(),
            Some(_) => {}
            None => self.pass_to_client(message),
        }
    }
}

/// Returns the error with its position mapped to the client's query string.
fn moved(error: &[u8], place: impl Fn(usize) -> usize) -> Vec<u8> {
    edited(error, |code, value| {
        let position = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        match position.filter(|_| code == b'P') {
            Some(position) => place(position).to_string().into_bytes().into(),
            None => value.into(),
        }
    })
}

/// Returns an error or a notice whose fields `edit` has changed.
fn edited(message: &[u8], edit: impl for<'a> Fn(u8, &'a [u8]) -> Cow<'a, [u8]>) -> Vec<u8> {
    let mut body = Vec::with_capacity(message.len());
    for (code, value) in ErrorResponse::fields(&message[HEADER..]) {
        body.push(code);
        body.extend_from_slice(&edit(code, value));
        body.push(0);
    }
    body.push(0);
    encode(message[0], &body)
}
