//! What becomes of each message, decided without input or output.
//!
//! The server link does one thing at a time: statements of ours, a Query of the client's, or a group of its messages in
//! the extended protocol. Each ends with a ReadyForQuery, for which [`Awaited`] stands. What is to be done after it are
//! [`Task`]s. The client's own Sync is never passed on: within a transaction a Sync ends nothing but a group, so there
//! may be one wherever we have to know how far the server is, and the client is told that the server is ready when all
//! is done.

use std::collections::VecDeque;

use super::message::{
    BEGIN, BEGIN_PLACEHOLDER, RELEASE, SAVE, STAY_IDLE, SYNC, SYNTAX_ABORT, SYNTAX_UNDO, UNBOUNDED, UNDO,
    explained, field, injection, lost, ready, report, reworded, syntax_check, values,
};
use super::names::Names;
use super::parameters::{Parameters, parameter};
use super::scope::Changes;
use super::settings::{Restored, Settings};
use super::statement::{Kind, Statement, kind_of_all, statements};
use super::task::{Awaited, Disposition, InjectedStatement, Native, Row, Task, Turn};
use lease::{LeaseTransaction, Savepoint};
use pgwire::{ErrorResponse, FramePrefix, HEADER, SessionTraces, encode, is_frontend_tag, query, split_zero};

/// One client session in the transaction of a lease.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and most may hold together")]
pub(crate) struct RollbackSession {
    pub(super) to_server: Vec<u8>,
    pub(super) to_client: Vec<u8>,
    pub(super) transaction: LeaseTransaction,
    traces: SessionTraces,
    parameters: Parameters,
    /// The client is in a transaction of its own.
    pub(super) tx: bool,
    /// What the server last said: T, or E for a failed transaction.
    pub(super) status: u8,
    pub(super) tasks: VecDeque<Task>,
    awaited: VecDeque<Awaited>,
    /// What came for a statement of ours.
    pub(super) rows: Vec<Row>,
    pub(super) error: Option<Vec<u8>>,
    /// Messages of the client's were passed on, and no Sync after them.
    open: bool,
    /// A statement was executed since the client's last Sync.
    piped: bool,
    /// All is dropped up to the client's Sync.
    skipping: bool,
    /// The client waits for a ReadyForQuery.
    owed: bool,
    /// The client may send data.
    copying: bool,
    /// The client has ended its data before the server has asked for them.
    ahead: bool,
    /// The client's statement failed.
    failed: bool,
    /// A CommandComplete that may still turn out to be an error.
    pub(super) held: Vec<u8>,
    /// Where the part that runs begins in the client's string, in characters.
    offset: usize,
    pub(super) names: Names,
    /// Closes the unnamed portal of a transaction that is [`Savepoint::Done`].
    pub(super) ended_portal: Vec<u8>,
    pub(super) settings: Settings,
    /// Settings as the server has them at the end of the client's transaction, and its `transaction_timeout`.
    pub(super) found: Vec<Row>,
    pub(super) timeout: String,
    /// Settings that COMMIT sets back now.
    pub(super) restored: Vec<Restored>,
    /// A cursor WITH HOLD has outlived its transaction: to the server it goes on in the one that there is.
    pub(super) holds: bool,
    /// No statement has run in the client's transaction.
    pub(super) is_untouched: bool,
    /// The client's transaction is to be read only.
    pub(super) read_only: bool,
    /// It is so because the one before it in a chain was.
    pub(super) inherited_read_only: bool,
    /// A backslash means something in a plain literal.
    backslashes: bool,
    /// The server's version.
    major: u32,
    /// Why no more can be done.
    pub(super) broken: Option<ErrorResponse>,
}

impl RollbackSession {
    /// Goes on in a transaction, with a server that has said `greeting`.
    pub(crate) fn new(transaction: LeaseTransaction, greeting: &[u8]) -> Self {
        let backslashes = parameter(greeting, b"standard_conforming_strings\0").starts_with(b"off");
        let version = String::from_utf8_lossy(parameter(greeting, b"server_version\0")).into_owned();
        let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
        let major = digits.parse().unwrap_or(0);
        let (traces, parameters) = (SessionTraces::of_session(greeting), Parameters::new(greeting, major));
        let mut settings = Settings::new(parameter(greeting, b"session_authorization\0"));
        settings.know_hidden(&transaction.constraints.sources);
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

    /// What to do with the client's next message.
    pub(super) fn client_head(&mut self, tag: u8) -> Disposition {
        let busy = self.owed || !self.tasks.is_empty() || !(self.awaited.is_empty() || self.open);
        match tag {
            b'd' | b'c' | b'f' if self.copying => {
                self.copying = tag == b'd';
                Disposition::Pass
            }
            // Sent before the server has asked for them.
            b'd' | b'c' | b'f' if self.open => {
                self.ahead |= tag != b'd';
                Disposition::Pass
            }
            // The server ignores them while it copies.
            b'H' | b'S' if self.copying => Disposition::Drop,
            _ if busy && !self.copying => Disposition::Wait,
            _ if !is_frontend_tag(tag) => self.break_off(format!("invalid frontend message type {tag}")),
            // Left over from a COPY that failed.
            b'd' | b'c' | b'f' => Disposition::Drop,
            b'S' => Disposition::Whole,
            _ if self.skipping => Disposition::Drop,
            b'B' if !self.names.wants_values() => Disposition::Names,
            _ => Disposition::Whole,
        }
    }

    /// Ends the session, with an error about its protocol.
    fn break_off(&mut self, message: String) -> Disposition {
        self.broken = Some(ErrorResponse::violation(message));
        Disposition::Drop
    }

    /// A message of the client's that is to be passed on has begun with these names.
    pub(super) fn client_names(&mut self, body: &[u8]) {
        self.names.bind(body);
        self.open_group();
    }

    /// A whole message of the client's.
    pub(super) fn client(&mut self, tag: u8, body: &[u8]) {
        self.traces.client_says(FramePrefix { tag, length: body.len(), body });
        self.transaction.leaves_nothing &= self.traces.leaves_nothing();
        match tag {
            b'Q' => self.query(body),
            b'S' => {
                self.owed = true;
                self.close_group();
                self.tasks.push_back(if self.skipping { Task::Ready } else { Task::End });
                self.skipping = false;
            }
            b'F' => {
                self.owed = true;
                let (kind, native) = (Kind::MaySet(Changes::unknown()), Native::Part(encode(tag, body), 0));
                self.tasks.push_back(Task::Control { kind, top: true, native });
                self.tasks.push_back(Task::End);
            }
            b'B' => {
                self.names.bind(body);
                self.pass(&encode(tag, body));
            }
            b'P' => self.parse(body),
            b'E' => self.execute(body),
            _ => {
                if tag == b'C' {
                    self.names.close(body);
                }
                self.pass(&encode(tag, body));
            }
        }
        self.proceed();
    }

    fn query(&mut self, body: &[u8]) {
        self.owed = true;
        self.close_group();
        let sql = split_zero(body).0;
        let found = statements(sql, !self.backslashes);
        self.settings.know_dormant(sql, !self.backslashes);
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
                self.tasks.push_back(part(sql, run, top));
            }
        }
        self.tasks.push_back(Task::End);
    }

    fn parse(&mut self, body: &[u8]) {
        let sql = split_zero(split_zero(body).1).0;
        let mut found = statements(sql, !self.backslashes);
        self.settings.know_dormant(sql, !self.backslashes);
        // Of several the server says that they are too many.
        let kind = if found.len() == 1 { found.remove(0).kind } else { Kind::Plain };
        let parse = match kind {
            Kind::Begin { .. } => reworded(body, BEGIN_PLACEHOLDER),
            // Like the original, it may be prepared in a failed transaction.
            Kind::Commit { .. } | Kind::Rollback { .. } => reworded(body, UNDO),
            _ => encode(b'P', body),
        };
        self.names.parse(split_zero(body).0, kind);
        self.pass(&parse);
    }

    fn execute(&mut self, body: &[u8]) {
        let (kind, execute) = (self.names.of_portal(split_zero(body).0), encode(b'E', body));
        // What comes later in a group is like one of several in a string, to new servers more than to old ones.
        let top = !self.piped || self.major < 18 && kind != Some(Kind::DiscardAll);
        let ends = kind.as_ref().is_some_and(Kind::ends_pipeline);
        match kind {
            Some(kind) if !self.is_native(&kind, top) => {
                self.close_group();
                let native = Native::Execute(execute);
                self.tasks.push_back(Task::Control { kind, top, native });
            }
            kind => {
                self.note(&kind.unwrap_or(Kind::Plain));
                self.perform(Task::Native(Native::Execute(execute)));
            }
        }
        self.piped = !ends;
    }

    /// What to do with the server's next message.
    pub(super) fn server_head(&mut self, tag: u8) -> Disposition {
        match tag {
            b'Z' | b'C' | b'E' | b'G' | b'1' | b'S' => return Disposition::Whole,
            // One that a check of ours has caused comes before the tag that waits for it.
            b'N' | b'A' if matches!(self.awaited.front(), Some(Awaited::Injected(_))) => {
                return Disposition::Pass;
            }
            _ => {}
        }
        match self.awaited.front() {
            Some(Awaited::Injected(_)) if tag == b'D' => Disposition::Whole,
            Some(Awaited::Injected(_)) => Disposition::Drop,
            _ => {
                self.flush_held();
                Disposition::Pass
            }
        }
    }

    /// A whole message of the server's.
    pub(super) fn server(&mut self, bytes: &[u8]) {
        let (tag, body) = (bytes[0], &bytes[HEADER..]);
        let ours = matches!(self.awaited.front(), Some(Awaited::Injected(_)));
        match tag {
            b'Z' => self.done(body.first().copied().unwrap_or_default()),
            b'S' => {
                match body {
                    b"standard_conforming_strings\0on\0" => self.backslashes = false,
                    b"standard_conforming_strings\0off\0" => self.backslashes = true,
                    _ => {}
                }
                if let Some(report) = self.parameters.hear(bytes, ours) {
                    self.say(report);
                }
            }
            b'D' => self.rows.push(values(body)),
            b'E' if ours => self.error = Some(bytes.to_vec()),
            _ if ours => {}
            b'C' if self.awaited.front() == Some(&Awaited::Part) => {
                self.flush_held();
                self.held = bytes.to_vec();
            }
            b'E' => {
                (self.failed, self.copying) = (true, false);
                self.flush_held();
                let explained = explained(bytes, self.offset, !self.tx, self.holds);
                self.to_client.extend_from_slice(&explained);
                self.close_group();
            }
            _ => {
                match tag {
                    b'1' => self.names.parsed(),
                    b'G' => self.begin_copy(),
                    _ => {}
                }
                self.say(bytes);
            }
        }
        self.proceed();
    }

    /// The server takes data now. A Sync that it has got already is as good as never sent.
    fn begin_copy(&mut self) {
        self.copying = !std::mem::take(&mut self.ahead);
        if !self.copying {
            return;
        }
        if self.awaited.front() == Some(&Awaited::Group) && !self.open {
            if self.tasks.iter().any(|task| *task != Task::End) {
                self.break_off("a transaction was to end during COPY from stdin".to_owned());
            }
            self.tasks.clear();
            (self.open, self.owed) = (true, false);
        }
    }

    fn done(&mut self, status: u8) {
        let awaited = self.awaited.pop_front();
        let restored = if awaited == Some(Awaited::Injected(InjectedStatement::Release)) {
            std::mem::take(&mut self.restored)
        } else {
            Vec::new()
        };
        // Where they are said at once, they come before the tag of what has caused them, and after an error.
        let mut reports = self.parameters.server_is_ready(&restored);
        self.status = status;
        if self.transaction.begun && status == b'I' {
            self.broken = Some(lost());
        }
        if let Some(Awaited::Injected(ours)) = awaited {
            let error = self.error.take();
            if error.is_none() {
                self.to_client.append(&mut reports);
            }
            self.answered(ours, error);
            return self.to_client.append(&mut reports);
        }
        (self.copying, self.ahead) = (false, false);
        if std::mem::take(&mut self.failed) {
            self.fail();
        }
    }

    fn answered(&mut self, ours: InjectedStatement, error: Option<Vec<u8>>) {
        let mut rows = std::mem::take(&mut self.rows).into_iter();
        let mut first = || rows.next().unwrap_or_default();
        match (ours, error) {
            (InjectedStatement::Must | InjectedStatement::Silent, Some(error)) => {
                let message = field(&error, b'M').unwrap_or_default();
                self.broken = Some(lost().detail(String::from_utf8_lossy(message).into_owned()));
            }
            // A string without a fault is refused for having several statements. Source: `exec_parse_message`.
            (InjectedStatement::Syntax { saved }, Some(error))
                if field(&error, b'R') != Some(b"exec_parse_message") =>
            {
                self.say(&error);
                self.fail();
                if saved && self.tx {
                    self.first([Task::Inject(
                        SYNTAX_ABORT.map(str::to_owned).to_vec(),
                        InjectedStatement::Abort,
                    )]);
                }
            }
            (InjectedStatement::Must | InjectedStatement::Silent, None)
            | (InjectedStatement::Syntax { saved: false } | InjectedStatement::Abort, _) => {}
            (InjectedStatement::Syntax { saved: true }, _) => {
                let undo = SYNTAX_UNDO.map(str::to_owned).to_vec();
                self.first([Task::Inject(undo, InjectedStatement::Must)]);
            }
            (_, Some(error)) => self.commit_failed(&error),
            (InjectedStatement::Look, None) => self.looked(rows),
            (InjectedStatement::Constraints, None) => self.know_constraints(first(), rows),
            (InjectedStatement::Release, None) => self.released(),
            (InjectedStatement::Access, None) => {
                self.read_only = first().first() == Some(&Some("on".to_owned()));
            }
            (InjectedStatement::Settings, None) => self.settings.read(rows),
            (InjectedStatement::Sources, None) => _ = self.learn_sources(rows),
            (InjectedStatement::Found, None) => self.found = rows.collect(),
        }
    }

    /// The client's statement has failed: outside a transaction of its own, what it did is undone.
    pub(super) fn fail(&mut self) {
        self.tasks.clear();
        self.names.failed();
        if !self.tx && self.is_saved() {
            self.tasks.push_back(Task::Undo);
        }
        if self.owed {
            self.tasks.push_back(Task::Ready);
        } else {
            self.skipping = true;
        }
    }

    /// Goes on with what is to be done, until an answer is awaited.
    pub(super) fn proceed(&mut self) {
        while self.broken.is_none() && (self.awaited.is_empty() || self.may_tell()) {
            let Some(task) = self.tasks.pop_front() else { return };
            self.perform(task);
        }
    }

    /// Whether the next task does no more than tell the client something that is true whatever the server answers.
    fn may_tell(&self) -> bool {
        let tells = match self.tasks.front() {
            Some(Task::Say(_) | Task::Ready | Task::Left { chain: false, .. }) => true,
            Some(Task::End) => self.tx || !self.is_saved(),
            _ => false,
        };
        tells && self.awaited.iter().all(|awaited| *awaited == Awaited::Injected(InjectedStatement::Silent))
    }

    pub(super) fn perform(&mut self, task: Task) {
        match task {
            Task::Control { kind, top, native } => {
                self.flush_held();
                self.control(&kind, top, native);
            }
            Task::Native(Native::Part(bytes, offset)) => {
                self.ensure();
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
                self.ensure();
                self.to_server.extend(syntax_check(&sql, saved));
                self.awaited.push_back(Awaited::Injected(InjectedStatement::Syntax { saved }));
            }
            Task::Settle => self.settle(),
            Task::Release(cursors) => self.release(&cursors),
            Task::Undo => self.undo(),
            Task::Left { tag, chain } => self.leave(tag, chain),
            Task::Say(bytes) => self.say(&bytes),
            Task::End if !self.tx && self.is_saved() => self.first([Task::Settle, Task::Ready]),
            Task::End | Task::Ready => {
                let status = if self.tx { self.status } else { b'I' };
                (self.owed, self.piped) = (false, false);
                let reports = self.parameters.take();
                self.say(&reports);
                self.say(&ready(status));
            }
        }
    }

    /// Puts tasks before all others.
    pub(super) fn first(&mut self, tasks: impl IntoIterator<Item = Task, IntoIter: DoubleEndedIterator>) {
        for task in tasks.into_iter().rev() {
            self.tasks.push_front(task);
        }
    }

    /// Whether the client's own transaction goes on in the server.
    pub(super) fn is_saved(&self) -> bool {
        self.transaction.savepoint == Savepoint::Open
    }

    /// Sees to it that what the client does can be undone. Does not wait for the server.
    pub(super) fn ensure(&mut self) {
        let mut statements = Vec::new();
        if !self.transaction.begun {
            statements.extend(BEGIN);
        }
        match self.transaction.savepoint {
            Savepoint::Open => {}
            Savepoint::Gone => statements.push(SAVE),
            Savepoint::Done => {
                self.to_server.append(&mut self.ended_portal);
                statements.extend([RELEASE, SAVE]);
            }
        }
        if !self.is_saved() {
            self.settings.begin();
        }
        (self.transaction.begun, self.transaction.savepoint) = (true, Savepoint::Open);
        if !statements.is_empty() {
            let bound = self.bound();
            statements.extend(bound.as_deref());
            self.status = b'T';
            self.inject(statements, InjectedStatement::Silent);
        }
    }

    fn undo(&mut self) {
        // The server would warn of one that was made in a failed transaction.
        self.to_server.extend(self.names.end_portals());
        // The server goes on to count where a savepoint is undone. Source: `assign_transaction_timeout`.
        let unbounded = self.bound().map(|_| UNBOUNDED);
        self.inject([UNDO, RELEASE].into_iter().chain(unbounded), InjectedStatement::Must);
        self.leave_idle();
        self.transaction.savepoint = Savepoint::Gone;
        self.settings.undo();
    }

    /// The client is in no transaction of its own once the server has done what it was sent: to be idle then is not to be idle
    /// in a transaction. It costs nothing, since the server reads it together with what was sent before.
    fn leave_idle(&mut self) {
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
            InjectedStatement::Look | InjectedStatement::Constraints | InjectedStatement::Release
        ) {
            self.leave_idle();
        }
        self.awaited.push_back(Awaited::Injected(ours));
    }

    /// Passes on a message of the extended protocol.
    fn pass(&mut self, bytes: &[u8]) {
        self.open_group();
        self.to_server.extend_from_slice(bytes);
    }

    fn open_group(&mut self) {
        self.ensure();
        if !self.open {
            (self.open, self.offset) = (true, 0);
            self.awaited.push_back(Awaited::Group);
        }
    }

    fn close_group(&mut self) {
        if std::mem::take(&mut self.open) {
            self.to_server.extend_from_slice(SYNC);
        }
    }

    /// Tells the client, after all that it was told before.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.flush_held();
        self.to_client.extend_from_slice(bytes);
    }

    pub(super) fn warn(&mut self, sqlstate: &str, text: &str, hint: Option<&str>) {
        self.say(&report("WARNING", sqlstate, text, hint));
    }

    fn flush_held(&mut self) {
        self.to_client.append(&mut self.held);
    }

    /// Whose statement runs.
    pub(super) fn turn(&self) -> Turn {
        match self.awaited.front() {
            Some(Awaited::Part | Awaited::Group) => Turn::Client,
            Some(Awaited::Injected(_)) => Turn::Injected,
            None if self.owed => Turn::Injected,
            None => Turn::Nobody,
        }
    }

    /// Ends what the client was about: it has gone.
    pub(super) fn hang_up(&mut self) {
        if std::mem::take(&mut self.copying) {
            self.to_server.extend(encode(b'f', b"the client has gone\0"));
        }
        self.close_group();
        self.tasks.clear();
        // No client waits for an answer any more.
        self.owed = false;
        self.proceed();
    }

    /// Whether nothing is awaited.
    pub(super) fn is_quiet(&self) -> bool {
        self.awaited.is_empty() && self.tasks.is_empty() && self.broken.is_none()
    }
}

/// Statements that go to the server together, or one that the machine looks after.
fn part(sql: &[u8], run: &[Statement], top: bool) -> Task {
    let (from, to) = (run[0].place.start, run[run.len() - 1].place.end);
    // Characters, as the server counts positions: what continues one in UTF-8 is none.
    let offset = sql[..from].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
    let native = Native::Part(query(&sql[from..to]), offset);
    Task::Control { kind: kind_of_all(run), top, native }
}
