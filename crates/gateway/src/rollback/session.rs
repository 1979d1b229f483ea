//! Decides what happens to each client and server message in rollback isolation. Does no I/O.
//!
//! At any moment, the server works on one thing: injected statements, a client's Query, or a group of the client's
//! extended-protocol messages. Each ends with a ReadyForQuery from the server. Until that message arrives, an
//! [`Awaited`] represents the work; afterwards, the session performs its next [`Task`].
//!
//! The session doesn't forward the client's own Sync messages. Within a transaction, a Sync only ends a group, so the
//! session can send one whenever it needs to know the server's state. The client receives ReadyForQuery after all tasks
//! are done.

mod answers;

use std::collections::VecDeque;

use super::message::{
    BEGIN, BEGIN_PLACEHOLDER, BEGIN_SAVEPOINT, CLEAR_STATISTICS, RELEASE, STAY_IDLE, SYNC, UNBOUNDED, UNDO,
    injection, mentions, ready_for_query, report, syntax_check, with_sql,
};
use super::parameters::{Parameters, parameter};
use super::setting_changes::SettingChanges;
use super::settings::{Restored, SettingsTracker};
use super::statement::{Kind, Statement, kind_of_all, statements};
use super::statement_names::Names;
use super::task::{Awaited, Disposition, InjectedStatement, Native, Row, Task, Turn};
use lease::{LeaseTransaction, Savepoint};
use pgwire::{ErrorResponse, FramePrefix, SessionTraces, encode, is_frontend_tag, query, split_zero};
use server::Major;

/// OID of the function `lo_open`.
const LO_OPEN: u32 = 952;

/// One client's session in the transaction of a lease.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and most may hold together")]
pub(crate) struct RollbackSession {
    pub(super) to_server: Vec<u8>,
    pub(super) to_client: Vec<u8>,
    pub(super) transaction: LeaseTransaction,
    traces: SessionTraces,
    parameters: Parameters,
    /// Whether the client has begun a transaction.
    pub(super) in_transaction: bool,
    /// Transaction status in the server's last ReadyForQuery: T, or E after an error.
    pub(super) status: u8,
    pub(super) tasks: VecDeque<Task>,
    awaited: VecDeque<Awaited>,
    /// Rows that the running injected statement has returned so far.
    pub(super) rows: Vec<Row>,
    pub(super) error: Option<Vec<u8>>,
    /// Whether a group is open: the session has forwarded client messages but hasn't sent a Sync yet.
    open: bool,
    /// Whether the client has executed a statement since its last Sync.
    has_executed: bool,
    /// Whether an error makes the session ignore all messages up to the client's next Sync.
    skipping: bool,
    /// Whether the client is waiting for a ReadyForQuery.
    awaits_ready: bool,
    /// Whether the client can send data for a COPY.
    copying: bool,
    /// Whether the client sent all its COPY data before the server asked for it.
    copy_data_complete: bool,
    /// Whether the client's statement failed.
    failed: bool,
    /// A delayed CommandComplete message, because the client might have to receive an error instead.
    pub(super) delayed_completion: Vec<u8>,
    /// Position of the running statement in the client's string, in characters.
    offset: usize,
    pub(super) names: Names,
    /// Message that closes the unnamed portal, sent along with the next statement after the transaction has ended
    /// ([`Savepoint::Done`]).
    pub(super) ended_portal: Vec<u8>,
    pub(super) settings: SettingsTracker,
    /// The settings at the end of the client's transaction, as read from the server. `timeout` is the transaction's
    /// `transaction_timeout`.
    pub(super) settings_at_end: Vec<Row>,
    pub(super) timeout: String,
    /// Settings restored by the current COMMIT.
    pub(super) restored: Vec<Restored>,
    /// Whether a cursor WITH HOLD is still open in the lease's transaction after the end of the client's transaction.
    pub(super) has_held_cursor: bool,
    /// True until the first statement runs after the client's savepoint.
    pub(super) is_untouched: bool,
    /// Whether the client's SQL has mentioned `lo_open`, so that COMMIT must close large objects.
    pub(super) opens_large_objects: bool,
    /// Whether the client's SQL has mentioned `pg_stat`. The server reads these statistics once in its transaction, so
    /// the gateway must discard them at the beginning of each transaction of the client.
    reads_statistics: bool,
    /// Whether the client requested a read-only transaction.
    pub(super) read_only: bool,
    /// Whether the transaction inherited its read-only mode from the previous transaction in its chain.
    pub(super) inherited_read_only: bool,
    /// Whether a backslash is an escape character in plain literals.
    backslashes: bool,
    /// The server's major version.
    major: Major,
    /// The error that terminates the session, if there was one.
    pub(super) broken: Option<ErrorResponse>,
    /// Whether the client has received the server's last error, a FATAL one.
    pub(super) has_fatal_error: bool,
}

impl RollbackSession {
    /// Creates a session in a lease's transaction. `startup_response` is the server's startup response.
    pub(crate) fn new(transaction: LeaseTransaction, startup_response: &[u8]) -> Self {
        let backslashes = parameter(startup_response, b"standard_conforming_strings\0").starts_with(b"off");
        let version = String::from_utf8_lossy(parameter(startup_response, b"server_version\0")).into_owned();
        let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
        let major = Major(digits.parse().unwrap_or(0));
        let (traces, parameters) =
            (SessionTraces::of_session(startup_response), Parameters::new(startup_response, major));
        let mut settings = SettingsTracker::new(parameter(startup_response, b"session_authorization\0"));
        if transaction.constraints.seen.is_some() {
            settings.add_object_texts(&transaction.constraints.sources);
        }
        Self {
            transaction,
            traces,
            parameters,
            settings,
            backslashes,
            major,
            status: b'T',
            ..Self::default()
        }
    }

    /// Decides what to do with the client's next message, given its tag.
    pub(super) fn client_head(&mut self, tag: u8) -> Disposition {
        let busy = self.awaits_ready || !self.tasks.is_empty() || !(self.awaited.is_empty() || self.open);
        match tag {
            b'd' | b'c' | b'f' if self.copying => {
                self.copying = tag == b'd';
                Disposition::Pass
            }
            // The client sends COPY data before the server requests it.
            b'd' | b'c' | b'f' if self.open => {
                self.copy_data_complete |= tag != b'd';
                Disposition::Pass
            }
            // The server ignores these messages during a COPY.
            b'H' | b'S' if self.copying => Disposition::Drop,
            _ if busy && !self.copying => Disposition::Wait,
            _ if !is_frontend_tag(tag) => {
                self.fail_with_protocol_error(format!("invalid frontend message type {tag}"))
            }
            // This data is left over from a failed COPY.
            b'd' | b'c' | b'f' => Disposition::Drop,
            b'S' => Disposition::Whole,
            _ if self.skipping => Disposition::Drop,
            b'B' if !self.names.wants_values() => Disposition::Names,
            _ => Disposition::Whole,
        }
    }

    /// Terminates the session with a protocol error.
    fn fail_with_protocol_error(&mut self, message: String) -> Disposition {
        self.broken = Some(ErrorResponse::violation(message));
        Disposition::Drop
    }

    /// Processes the names in a Bind message, which the drive then forwards in pieces.
    pub(super) fn client_bind(&mut self, body: &[u8]) {
        self.names.bind(body);
        self.open_group();
    }

    /// Processes a complete message from the client.
    pub(super) fn client_message(&mut self, tag: u8, body: &[u8]) {
        self.traces.observe_client(FramePrefix { tag, length: body.len(), body });
        self.transaction.leaves_nothing &= self.traces.leaves_nothing();
        match tag {
            b'Q' => self.query(body),
            b'S' => {
                self.awaits_ready = true;
                self.close_group();
                self.tasks.push_back(if self.skipping { Task::Ready } else { Task::End });
                self.skipping = false;
            }
            b'F' => {
                self.awaits_ready = true;
                self.opens_large_objects |= body.starts_with(&LO_OPEN.to_be_bytes());
                let (kind, native) =
                    (Kind::MaySet(SettingChanges::unknown()), Native::Part(encode(tag, body), 0));
                self.tasks.push_back(Task::Control { kind, top: true, native });
                self.tasks.push_back(Task::End);
            }
            b'B' => {
                self.names.bind(body);
                self.pass(&encode(tag, body));
            }
            b'P' => self.parse(body),
            b'E' => self.execute(body),
            // The server has responded to all messages, and a group would begin a transaction, so drop this Flush.
            b'H' if !self.open => {}
            _ => {
                if tag == b'C' {
                    self.names.close(body);
                }
                self.pass(&encode(tag, body));
            }
        }
        self.perform_tasks();
    }

    fn query(&mut self, body: &[u8]) {
        self.awaits_ready = true;
        self.close_group();
        let sql = split_zero(body).0;
        self.note_mentions(sql);
        let found = statements(sql, !self.backslashes);
        for statement in &found {
            self.settings.add_prepared_text(&sql[statement.place.clone()], !self.backslashes);
        }
        self.names.forget_unnamed();
        let top = found.len() == 1;
        if found.iter().all(|statement| !statement.kind.is_control()) {
            let (kind, native) = (kind_of_all(&found), Native::Part(encode(b'Q', body), 0));
            self.tasks.push_back(Task::Control { kind, top, native });
        } else {
            if !top {
                self.tasks.push_back(Task::CheckSyntax(sql.to_vec()));
            }
            for run in found.chunk_by(|one, next| !one.kind.is_control() && !next.kind.is_control()) {
                self.tasks.push_back(task_for(sql, run, top));
            }
        }
        self.tasks.push_back(Task::End);
    }

    /// Records that the client's SQL mentions functions whose effect a server ends with the transaction.
    fn note_mentions(&mut self, sql: &[u8]) {
        self.opens_large_objects = self.opens_large_objects || mentions(sql, b"lo_open");
        self.reads_statistics = self.reads_statistics || mentions(sql, b"pg_stat");
    }

    fn parse(&mut self, body: &[u8]) {
        let sql = split_zero(split_zero(body).1).0;
        self.note_mentions(sql);
        let mut found = statements(sql, !self.backslashes);
        self.settings.add_prepared_text(sql, !self.backslashes);
        // If there are several statements, let the server report the error.
        let kind = if found.len() == 1 { found.remove(0).kind } else { Kind::Plain };
        let replacement = match kind {
            Kind::Begin { .. } => Some(BEGIN_PLACEHOLDER),
            // Like COMMIT and ROLLBACK, this replacement can be prepared even in a failed transaction.
            Kind::Commit { .. } | Kind::Rollback { .. } => Some(UNDO),
            _ => None,
        };
        self.names.parse(split_zero(body).0, kind, replacement.map(|_| sql));
        self.pass(&replacement.map_or_else(|| encode(b'P', body), |other| with_sql(body, other)));
    }

    fn execute(&mut self, body: &[u8]) {
        let (kind, execute) = (self.names.of_portal(split_zero(body).0), encode(b'E', body));
        // Starting with a group's second statement, the server behaves as if the group were one Query with several
        // statements. Before PostgreSQL 18, this matters only for DISCARD ALL.
        let top = !self.has_executed || !self.major.groups_pipelines() && kind != Some(Kind::DiscardAll);
        let ends = kind.as_ref().is_some_and(Kind::ends_pipeline);
        match kind {
            Some(kind) if !self.is_supported_unchanged(&kind, top) => {
                self.close_group();
                let native = Native::Execute(execute);
                self.tasks.push_back(Task::Control { kind, top, native });
            }
            kind => {
                self.track_settings(&kind.unwrap_or(Kind::Plain));
                self.perform(Task::Native(Native::Execute(execute)));
            }
        }
        self.has_executed = !ends;
    }

    /// Performs tasks until the session must wait for a response.
    pub(super) fn perform_tasks(&mut self) {
        while self.broken.is_none() && (self.awaited.is_empty() || self.can_send_next()) {
            let Some(task) = self.tasks.pop_front() else { return };
            self.perform(task);
        }
    }

    /// Returns true if the session can perform its next task immediately. This is so if the task only sends the client
    /// a message that doesn't depend on pending server responses.
    fn can_send_next(&self) -> bool {
        let tells = match self.tasks.front() {
            Some(Task::Send(_) | Task::Ready | Task::EndTransaction { chain: false, .. }) => true,
            Some(Task::End) => self.in_transaction || !self.has_savepoint(),
            _ => false,
        };
        tells && self.awaited.iter().all(|awaited| *awaited == Awaited::Injected(InjectedStatement::Silent))
    }

    pub(super) fn perform(&mut self, task: Task) {
        match task {
            Task::Control { kind, top, native } => {
                self.flush_delayed_completion();
                self.execute_control(&kind, top, native);
            }
            Task::Native(Native::Part(bytes, offset)) => {
                self.ensure_savepoint();
                (self.offset, self.is_untouched) = (offset, false);
                self.to_server.extend_from_slice(&bytes);
                self.awaited.push_back(Awaited::Part);
            }
            Task::Native(Native::Execute(bytes)) => {
                self.is_untouched = false;
                self.pass(&bytes);
            }
            Task::Inject(statements, ours) => self.inject(statements, ours),
            Task::ReadSettings => self.inject([self.settings.select()], InjectedStatement::Settings),
            Task::CheckSyntax(sql) => {
                let saved = !self.is_aborted();
                self.ensure_savepoint();
                self.to_server.extend(syntax_check(&sql, saved));
                self.awaited.push_back(Awaited::Injected(InjectedStatement::Syntax { saved }));
            }
            Task::Commit => self.start_commit(),
            Task::Release { cursors, checked } => self.release(cursors, checked),
            Task::Undo => self.undo(),
            Task::EndTransaction { tag, chain } => self.end_transaction(tag, chain),
            Task::Send(bytes) => self.send_to_client(&bytes),
            Task::End if !self.in_transaction && self.has_savepoint() => {
                self.prepend_tasks([Task::Commit, Task::Ready]);
            }
            Task::End | Task::Ready => {
                let status = self.client_status();
                (self.awaits_ready, self.has_executed) = (false, false);
                let reports = self.parameters.take_changes();
                self.send_to_client(&reports);
                self.send_to_client(&ready_for_query(status));
            }
        }
    }

    /// Inserts tasks before all others.
    pub(super) fn prepend_tasks(
        &mut self,
        tasks: impl IntoIterator<Item = Task, IntoIter: DoubleEndedIterator>,
    ) {
        for task in tasks.into_iter().rev() {
            self.tasks.push_front(task);
        }
    }

    /// Returns true if the savepoint for the client's transaction is open.
    pub(super) fn has_savepoint(&self) -> bool {
        self.transaction.savepoint == Savepoint::Open
    }

    /// Makes sure that a savepoint is open, so that the client's next statement can be rolled back. This never waits
    /// for the server.
    pub(super) fn ensure_savepoint(&mut self) {
        let mut statements = Vec::new();
        if !self.transaction.begun {
            statements.extend(BEGIN);
        }
        if self.transaction.savepoint == Savepoint::Done {
            self.to_server.append(&mut self.ended_portal);
            statements.push(RELEASE);
        }
        if !self.has_savepoint() {
            statements.extend(self.reads_statistics.then_some(CLEAR_STATISTICS));
            statements.push(BEGIN_SAVEPOINT);
            self.settings.begin();
            self.is_untouched = true;
        }
        (self.transaction.begun, self.transaction.savepoint) = (true, Savepoint::Open);
        if !statements.is_empty() {
            let bound = self.timeout_statement();
            statements.extend(bound.as_deref());
            self.status = b'T';
            self.inject(statements, InjectedStatement::Silent);
        }
    }

    fn undo(&mut self) {
        // Otherwise, the server would warn about a failed transaction's portals.
        self.to_server.extend(self.names.end_portals());
        // Rolling back to a savepoint doesn't stop the server's timer. Source: `assign_transaction_timeout`.
        let unbounded = self.timeout_statement().map(|_| UNBOUNDED);
        self.inject([UNDO, RELEASE].into_iter().chain(unbounded), InjectedStatement::Required);
        self.disable_idle_timeout();
        self.transaction.savepoint = Savepoint::Gone;
        self.settings.undo();
    }

    /// Disables `idle_in_transaction_session_timeout` while the client is outside a transaction. This costs nothing,
    /// because the server reads this message along with the preceding ones.
    fn disable_idle_timeout(&mut self) {
        self.to_server.extend_from_slice(STAY_IDLE);
    }

    pub(super) fn inject<S: AsRef<str>>(
        &mut self,
        statements: impl IntoIterator<Item = S>,
        ours: InjectedStatement,
    ) {
        self.to_server.extend(injection(statements));
        if matches!(
            ours,
            InjectedStatement::CommitState
                | InjectedStatement::Constraints
                | InjectedStatement::SettingsAtEnd
                | InjectedStatement::LargeObjects
                | InjectedStatement::Release
        ) {
            self.disable_idle_timeout();
        }
        self.awaited.push_back(Awaited::Injected(ours));
    }

    /// Forwards an extended-protocol message.
    fn pass(&mut self, bytes: &[u8]) {
        self.open_group();
        self.to_server.extend_from_slice(bytes);
    }

    fn open_group(&mut self) {
        self.ensure_savepoint();
        if !self.open {
            (self.open, self.offset) = (true, 0);
            self.awaited.push_back(Awaited::Group);
        }
    }

    /// Returns true if the client has sent extended-protocol messages without a Sync.
    pub(super) fn has_open_pipeline(&self) -> bool {
        self.open
    }

    fn close_group(&mut self) {
        if std::mem::take(&mut self.open) {
            self.to_server.extend_from_slice(SYNC);
        }
    }

    /// Sends bytes to the client after all pending bytes.
    pub(super) fn send_to_client(&mut self, bytes: &[u8]) {
        self.flush_delayed_completion();
        self.to_client.extend_from_slice(bytes);
    }

    pub(super) fn warn(&mut self, sqlstate: &str, text: &str, hint: Option<&str>) {
        self.send_to_client(&report("WARNING", sqlstate, text, hint));
    }

    fn flush_delayed_completion(&mut self) {
        self.to_client.append(&mut self.delayed_completion);
    }

    /// Returns who owns the running statement.
    pub(super) fn turn(&self) -> Turn {
        match self.awaited.front() {
            Some(Awaited::Part | Awaited::Group) => Turn::Client,
            Some(Awaited::Injected(_)) => Turn::Injected,
            None if self.awaits_ready => Turn::Injected,
            None => Turn::Nobody,
        }
    }

    /// Ends a COPY whose data the client could still send. Returns false if no COPY is running.
    pub(super) fn fail_copy(&mut self) -> bool {
        let is_copying = std::mem::take(&mut self.copying);
        if is_copying {
            self.to_server.extend(encode(b'f', b"the client has gone\0"));
        }
        is_copying
    }

    /// Finishes the client's work after the client has disconnected.
    pub(super) fn client_disconnected(&mut self) {
        self.fail_copy();
        self.close_group();
        self.tasks.clear();
        // The client no longer waits for a response.
        self.awaits_ready = false;
        self.perform_tasks();
    }

    /// Returns true if the client has received responses to all its messages, whatever the state of its transaction.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_idle() && !self.open && !self.awaits_ready && !self.skipping && !self.copying
    }

    /// Returns the transaction status from the client's point of view.
    pub(super) fn client_status(&self) -> u8 {
        if self.in_transaction { self.status } else { b'I' }
    }

    /// Returns true if the session is idle: no tasks are left, no responses are pending, and the lease's transaction is
    /// intact.
    pub(super) fn is_idle(&self) -> bool {
        self.awaited.is_empty() && self.tasks.is_empty() && self.broken.is_none()
    }
}

/// Returns the task for consecutive statements. They can go to the server together, unless there is only one and it
/// needs special treatment.
fn task_for(sql: &[u8], run: &[Statement], top: bool) -> Task {
    let (from, to) = (run[0].place.start, run[run.len() - 1].place.end);
    // Count characters as the server does, i.e. skip the continuation bytes of UTF-8.
    let offset = sql[..from].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
    let native = Native::Part(query(&sql[from..to]), offset);
    Task::Control { kind: kind_of_all(run), top, native }
}
