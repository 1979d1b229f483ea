//! Handles the extended protocol: prepared statements, portals, and their execution.

use pgwire::split_zero;

use super::failure::Failure;
use super::messages::{FLUSH, failing_commit_execute, failing_execute, name, parts};
use super::moments::{PlannedError, StatementFaults, Strikes};
use super::{FaultSession, Interruption, Output, Portal, Prepared, Run, Work};
use crate::faults::sql_request::requested_fault;
use crate::faults::statement::{Kind, Statement, statements};

/// Name for a statement whose text the session doesn't know. Errors must come before such statements, because each
/// might be a COMMIT.
const UNKNOWN: &str = "(a statement that was prepared before the fault)";

/// SQLSTATE for a refused fault request.
const REFUSED: &str = "22023";

impl FaultSession {
    /// Forwards a Parse, Bind, Describe or Close.
    pub(super) fn prepare(&mut self, message: &[u8]) {
        let parts = parts(message);
        let (first, rest) = split_zero(parts.body);
        match (parts.tag, first) {
            (b'P', name) => {
                let prepared = self.prepared_from(split_zero(rest).0);
                self.replace_prepared(name, Some(prepared));
            }
            (b'B', portal) => {
                let statement = self.prepared.get(split_zero(rest).0).cloned().unwrap_or(Prepared::Unknown);
                self.portals.insert(portal.to_vec(), Portal { statement, has_run: false });
            }
            (b'C', [b'S', name @ ..]) => self.replace_prepared(name, None),
            (b'C', [b'P', name @ ..]) => {
                self.portals.remove(name);
                self.unconfirmed.push_back(None);
            }
            _ => {}
        }
        self.unanswered += 1;
        self.pass_to_server(message);
    }

    /// Replaces or removes the prepared statement `name`. If the server refuses the message, [`Self::restore_prepared`]
    /// reverts this.
    fn replace_prepared(&mut self, name: &[u8], prepared: Option<Prepared>) {
        let before = match prepared {
            Some(prepared) => self.prepared.insert(name.to_vec(), prepared),
            None => self.prepared.remove(name),
        };
        self.unconfirmed.push_back(Some((name.to_vec(), before)));
    }

    /// Reverts name changes that the server hasn't accepted. The unnamed statement stays removed, because the server
    /// removes it even if it refuses the new statement.
    pub(super) fn restore_prepared(&mut self) {
        for (name, before) in self.unconfirmed.drain(..).rev().flatten() {
            match before.filter(|_| !name.is_empty()) {
                Some(before) => drop(self.prepared.insert(name, before)),
                None => drop(self.prepared.remove(&name)),
            }
        }
    }

    /// Stores a statement that the client prepared before the session obeyed faults, unless the client has replaced it
    /// since.
    pub(in crate::faults) fn know_prepared(&mut self, name: Vec<u8>, sql: &[u8]) {
        let prepared = self.prepared_from(sql);
        self.prepared.entry(name).or_insert(prepared);
    }

    fn prepared_from(&self, sql: &[u8]) -> Prepared {
        statements(sql, self.standard_strings).into_iter().next().map_or(Prepared::Empty, Prepared::Known)
    }

    /// Processes an Execute once the server has responded to all earlier messages.
    pub(super) fn execute(&mut self, message: &[u8]) {
        if self.unanswered > 0 { self.hold(message) } else { self.execute_portal(message) }
    }

    /// Holds a message until the server has responded to all earlier messages, because these can fail.
    pub(super) fn hold(&mut self, message: &[u8]) {
        self.send_to_server(FLUSH.to_vec());
        self.work = Work::Before(message.to_vec());
    }

    pub(super) fn execute_portal(&mut self, message: &[u8]) {
        let Some(portal) = self.portals.get_mut(name(parts(message).body)) else {
            return self.run_unchanged(message, None);
        };
        let is_first = !std::mem::replace(&mut portal.has_run, true);
        let statement = match &portal.statement {
            Prepared::Known(statement) => statement.clone(),
            Prepared::Unknown => Statement::of_kind(Kind::Alone, UNKNOWN),
            Prepared::Empty => return self.run_unchanged(message, None),
        };
        if !is_first {
            return self.run_unchanged(message, Some(statement));
        }
        // In a failed transaction, the server refuses the statement by itself.
        let request = Some(&statement).filter(|one| one.kind == Kind::Fault && !self.state.has_failed());
        if let Some(fault) = request.and_then(|statement| requested_fault(statement.text.as_bytes())) {
            self.work = Work::Request(message.to_vec(), statement);
            return self.emit(Output::Interruption(Interruption::Request(fault)));
        }
        let StatementFaults { error, before, during, slow, strikes } =
            self.faults_before(&statement, self.state, false);
        self.slow_down(slow);
        if let Some(effect) = before {
            return self.interrupt(effect, true, false);
        }
        match error {
            None => self.run_unchanged(message, Some(statement)),
            Some(error) => {
                let failure = self.fail_execute(&error);
                self.run_failing(statement, vec![strikes], failure);
            }
        }
        if let Some(effect) = during {
            self.interrupt(effect, false, false);
        }
    }

    /// Runs an Execute whose statement requests a fault. If the fault was refused (`is_added` is false), makes the
    /// Execute fail.
    pub(in crate::faults) fn execute_request(&mut self, is_added: bool) {
        match std::mem::replace(&mut self.work, Work::None) {
            Work::Request(message, statement) if is_added => self.run_unchanged(&message, Some(statement)),
            Work::Request(_, statement) => {
                self.send_to_server(failing_execute(REFUSED));
                self.run_failing(statement, Vec::new(), Failure::sent(REFUSED));
            }
            work => self.work = work,
        }
    }

    fn run_failing(&mut self, statement: Statement, strikes: Vec<Strikes>, failure: Failure) {
        self.work = Work::Run(Run {
            statements: vec![statement],
            strikes,
            next: 0,
            is_query: false,
            failure: Some(failure),
            is_invalid: false,
        });
    }

    /// Forwards an Execute unchanged. `statement` is `None` if the portal is unknown.
    fn run_unchanged(&mut self, message: &[u8], statement: Option<Statement>) {
        self.pass_to_server(message);
        self.send_to_server(FLUSH.to_vec());
        let statements = statement.into_iter().collect();
        self.work = Work::Run(Run {
            statements,
            strikes: Vec::new(),
            next: 0,
            is_query: false,
            failure: None,
            is_invalid: false,
        });
    }

    /// Sends a failing statement in place of an Execute.
    fn fail_execute(&mut self, PlannedError { sqlstate, is_commit, .. }: &PlannedError) -> Failure {
        if *is_commit {
            self.send_to_server(failing_commit_execute(sqlstate));
            return Failure::of_commit_execute(sqlstate);
        }
        self.send_to_server(failing_execute(sqlstate));
        Failure::sent(sqlstate)
    }
}
