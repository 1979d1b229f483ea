//! The extended protocol: prepared statements, portals, and their execution.

use pgwire::split_zero;

use super::failure::Failure;
use super::messages::{FLUSH, failing_commit_execute, failing_execute, name, parts};
use super::moments::{PlannedError, StatementFaults};
use super::{FaultSession, Portal, Run, Work};
use crate::faults::statement::{Kind, Statement, statements};

/// Name of a statement whose text the session does not know. An error must come before it, because it may be a COMMIT.
const UNKNOWN: &str = "(a statement that was prepared before the fault)";

impl FaultSession {
    /// Passes a Parse, Bind, Describe or Close on.
    pub(super) fn prepare(&mut self, message: &[u8]) {
        let parts = parts(message);
        let (first, rest) = split_zero(parts.body);
        match (parts.tag, first) {
            (b'P', name) => {
                let found = statements(split_zero(rest).0, self.standard_strings);
                let text = found.into_iter().next().map_or_else(|| "".into(), |statement| statement.text);
                self.prepared.insert(name.to_vec(), text);
            }
            (b'B', portal) => {
                let text = self.prepared.get(split_zero(rest).0).cloned();
                self.portals.insert(portal.to_vec(), Portal { statement: text, has_run: false });
            }
            (b'C', [b'S', name @ ..]) => drop(self.prepared.remove(name)),
            (b'C', [b'P', name @ ..]) => drop(self.portals.remove(name)),
            _ => {}
        }
        self.unanswered += 1;
        self.pass_to_server(message);
    }

    /// Processes an Execute once the server has answered all messages before it, because these may fail.
    pub(super) fn execute(&mut self, message: &[u8]) {
        if self.unanswered > 0 {
            self.send_to_server(FLUSH.to_vec());
            self.work = Work::BeforeExecute(message.to_vec());
        } else {
            self.execute_portal(message);
        }
    }

    pub(super) fn execute_portal(&mut self, message: &[u8]) {
        let portal = self.portals.get_mut(name(parts(message).body));
        let is_first = portal.is_some_and(|portal| !std::mem::replace(&mut portal.has_run, true));
        let text = self.portals.get(name(parts(message).body)).map(|portal| &portal.statement);
        let statement = text.and_then(|text| match text {
            Some(text) => statements(text.as_bytes(), self.standard_strings).into_iter().next(),
            None => Some(Statement { kind: Kind::Alone, ..Statement::named(UNKNOWN) }),
        });
        let statement = match statement {
            Some(statement) if is_first => statement,
            statement => return self.run_unchanged(message, statement),
        };
        let StatementFaults { error, before, during, slow, strikes } =
            self.faults_before(&statement, self.state, false);
        self.slow_down(slow);
        if let Some(effect) = before {
            return self.interrupt(effect, true, false);
        }
        match error {
            None => self.run_unchanged(message, Some(statement)),
            Some(error) => {
                let failure = self.fail_execute(message, &statement, &error);
                let failure = Some(failure);
                let (statements, strikes) = (vec![statement], vec![strikes]);
                self.work = Work::Run(Run {
                    statements,
                    strikes,
                    next: 0,
                    is_query: false,
                    failure,
                    is_invalid: false,
                });
            }
        }
        if let Some(effect) = during {
            self.interrupt(effect, false, false);
        }
    }

    /// Runs an Execute. There is no statement if the portal is unknown.
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

    fn fail_execute(&mut self, message: &[u8], statement: &Statement, error: &PlannedError) -> Failure {
        let PlannedError { sqlstate, is_commit, .. } = error;
        match statement.kind {
            _ if *is_commit => {
                self.send_to_server(failing_commit_execute(sqlstate));
                Failure::of_commit_execute(sqlstate)
            }
            Kind::CopyIn if sqlstate != "25006" => {
                self.pass_to_server(message);
                self.send_to_server(FLUSH.to_vec());
                Failure::of_copy_in(sqlstate, 0)
            }
            Kind::CopyOut => {
                self.pass_to_server(message);
                self.send_to_server(FLUSH.to_vec());
                Failure::of_copy_out(sqlstate)
            }
            _ => {
                self.send_to_server(failing_execute(sqlstate));
                Failure::sent(sqlstate)
            }
        }
    }
}
