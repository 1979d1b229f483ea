//! Handles the simple protocol: a Query with one or more statements, and function calls.

use pgwire::{encode, query, split_zero};

use super::failure::Failure;
use super::messages::{failing, parts};
use super::moments::{PlannedError, StatementFaults, Strikes, is_slow};
use super::{FaultSession, Run, Work};
use crate::faults::fault::FaultEffect;
use crate::faults::statement::{Statement, statements};

/// Name of a function call in reports.
const FUNCTION_CALL: &str = "(a function is called)";

impl FaultSession {
    pub(super) fn query(&mut self, message: &[u8]) {
        let sql = split_zero(parts(message).body).0;
        let found = statements(sql, self.standard_strings);
        self.prepared.remove(&b""[..]);
        let mut state = self.state;
        let (mut strikes, mut during, mut failing, mut end) = (Vec::new(), None::<FaultEffect>, None, None);
        for (at, statement) in found.iter().enumerate() {
            let faults = self.faults_before(statement, state, true);
            let StatementFaults { error, before, during: effect, slow, strikes: of_statement } = faults;
            self.slow_down(slow);
            if at == 0
                && let Some(effect) = before
            {
                return self.interrupt(effect, true, false);
            }
            strikes.push(of_statement);
            during = during.or(effect);
            // The server still runs the earlier statements, and keeps what the string commits before this statement.
            failing =
                error.or_else(|| before.as_ref().map(|_| PlannedError::of_end())).map(|error| (at, error));
            end = before;
            if failing.is_some() || during.as_ref().is_some_and(|effect| !is_slow(effect)) {
                break;
            }
            state = state.after(statement.kind);
        }
        let planned = failing.map(|(at, error)| plan(sql, &found, at, &error));
        let mut failure = self.send_query(message, planned);
        if let Some(failure) = &mut failure {
            failure.end = end;
        }
        self.begin_run(found, strikes, failure, during);
    }

    pub(super) fn function_call(&mut self, message: &[u8]) {
        let statement = Statement::named(FUNCTION_CALL);
        let StatementFaults { error, before, during, slow, strikes } =
            self.faults_before(&statement, self.state, true);
        self.slow_down(slow);
        if let Some(effect) = before {
            return self.interrupt(effect, true, false);
        }
        let planned = error.map(|PlannedError { sqlstate, .. }| {
            (Failure::sent(&sqlstate), query(failing(&sqlstate).as_bytes()))
        });
        let failure = self.send_query(message, planned);
        self.begin_run(vec![statement], vec![strikes], failure, during);
    }

    /// Sends the server the messages of a planned failure. Otherwise, sends the client's message. Returns the failure.
    fn send_query(&mut self, message: &[u8], planned: Option<(Failure, Vec<u8>)>) -> Option<Failure> {
        let Some((failure, messages)) = planned else {
            self.pass_to_server(message);
            return None;
        };
        self.send_to_server(messages);
        Some(failure)
    }

    fn begin_run(
        &mut self,
        statements: Vec<Statement>,
        strikes: Vec<Strikes>,
        failure: Option<Failure>,
        during: Option<FaultEffect>,
    ) {
        self.work =
            Work::Run(Run { statements, strikes, next: 0, is_query: true, failure, is_invalid: false });
        if let Some(effect) = during {
            self.interrupt(effect, true, false);
        }
    }

    pub(super) fn slow_down(&mut self, effects: Vec<FaultEffect>) {
        for effect in effects {
            self.interrupt(effect, true, false);
        }
    }
}

/// Plans the failure of the statement at position `at` in a Query's string. Returns the failure and the messages for
/// the server.
fn plan(sql: &[u8], found: &[Statement], at: usize, error: &PlannedError) -> (Failure, Vec<u8>) {
    let PlannedError { sqlstate, is_after, is_commit } = error;
    let statement = &found[at];
    let (failure, changed) = match () {
        () if *is_commit => Failure::of_commit(sqlstate, at, sql, statement),
        () if *is_after => Failure::after(sqlstate, at, sql, statement),
        () if found.len() == 1 => return Failure::of_single(sqlstate, sql),
        () => Failure::before(sqlstate, at, sql, statement),
    };
    (failure, encode(b'Q', &[&changed[..], b"\0"].concat()))
}
