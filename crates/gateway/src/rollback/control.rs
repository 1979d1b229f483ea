//! Handles statements that need special treatment in rollback isolation.
//!
//! These statements begin, end or subdivide transactions, or they behave differently outside a transaction. For
//! example, LOCK TABLE should fail outside a transaction. In rollback isolation, however, the server always sees a
//! transaction, so the gateway must report this error itself.

use pgwire::SavepointStatement;

use super::message::{DISCARD_ALL, UNDO, USE_CLONE_HINT, command_complete, report};
use super::session::RollbackSession;
use super::setting_changes::SettingChanges;
use super::statement::{Kind, Modes};
use super::task::{InjectedStatement, Native, Task};

const NO_TRANSACTION: &str = "25P01";
const ACTIVE_TRANSACTION: &str = "25001";
const CANNOT_PREPARE: &str = "cannot prepare a transaction in rollback isolation";

impl RollbackSession {
    /// Returns true if the gateway can forward the statement unchanged, because in the current state the server does
    /// what the client expects. `top` means that the statement is the only one in its query string.
    pub(super) fn is_supported_unchanged(&self, kind: &Kind, top: bool) -> bool {
        let failed = self.is_aborted();
        match kind {
            Kind::Plain => true,
            _ if !failed && self.must_read_settings(kind) => false,
            Kind::Begin { .. } | Kind::Commit { .. } | Kind::Rollback { .. } | Kind::PrepareTransaction => {
                false
            }
            Kind::Savepoint(_) => self.in_transaction,
            Kind::Lock | Kind::Declare | Kind::DiscardAll => self.in_transaction || !top,
            Kind::SetConstraints => {
                self.transaction.constraints.set_by_client && (self.in_transaction || !top)
            }
            Kind::SetTransaction(modes) => {
                let is_block = self.in_transaction || !top || modes.warning.is_none();
                failed || is_block && !modes.level && !self.may_change(*modes)
            }
            Kind::SetLocal(_) => failed || self.in_transaction || !top,
            Kind::Set(_) | Kind::MaySet(_) => true,
        }
    }

    /// Executes the statement so that the client sees the result of a plain server.
    pub(super) fn execute_control(&mut self, kind: &Kind, top: bool, native: Native) {
        if !self.is_aborted() && self.must_read_settings(kind) {
            self.ensure_savepoint();
            self.prepend_tasks([Task::ReadSettings, Task::Control { kind: kind.clone(), top, native }]);
            return self.ensure_sources();
        }
        self.track_settings(kind);
        // For one of several statements in a query string, a plain server doesn't send a warning.
        let lonely = top && !self.in_transaction;
        match kind {
            Kind::Begin { modes, .. }
                if self.in_transaction && matches!(native, Native::Part(..)) && !self.may_change(*modes) =>
            {
                self.prepend_tasks([Task::Native(native)]);
            }
            Kind::Begin { start, modes } => self.begin(*start, *modes),
            Kind::Commit { chain } => self.commit(*chain),
            Kind::Rollback { chain } => self.rollback(*chain),
            // A plain server treats PREPARE TRANSACTION in a failed transaction as a ROLLBACK.
            Kind::PrepareTransaction if self.is_aborted() => self.commit(false),
            Kind::PrepareTransaction => {
                self.in_transaction = false;
                self.report_error("0A000", CANNOT_PREPARE, Some(USE_CLONE_HINT));
            }
            // Since `track_settings` may have injected statements, run the client's statement after them.
            _ if self.is_supported_unchanged(kind, top) => self.perform(Task::Native(native)),
            Kind::SetTransaction(modes) => self.set_transaction(*modes, lonely, native),
            Kind::SetConstraints => {
                self.transaction.constraints.set_by_client = true;
                if lonely {
                    self.warn_outside_transaction("SET CONSTRAINTS");
                }
                self.prepend_tasks([Task::Native(native)]);
            }
            Kind::SetLocal(_) => {
                self.warn_outside_transaction("SET LOCAL");
                self.prepend_tasks([Task::Native(native)]);
            }
            Kind::DiscardAll => {
                let parts = DISCARD_ALL.map(str::to_owned).to_vec();
                self.ensure_savepoint();
                // DISCARD ALL can't run in a transaction block, so a plain server has no open transaction after it.
                // Commit immediately to match this.
                let response = Task::Send(command_complete("DISCARD ALL"));
                self.prepend_tasks([
                    Task::Inject(parts, InjectedStatement::Required),
                    Task::Commit,
                    response,
                ]);
            }
            Kind::Savepoint(statement) => self.refuse_outside_transaction(statement.command()),
            Kind::Lock => self.refuse_outside_transaction("LOCK TABLE"),
            Kind::Declare => self.refuse_outside_transaction("DECLARE CURSOR"),
            Kind::Plain | Kind::Set(_) | Kind::MaySet(_) => self.perform(Task::Native(native)),
        }
    }

    /// Returns true if the session must read the settings before running a statement of this kind.
    fn must_read_settings(&self, kind: &Kind) -> bool {
        match kind {
            Kind::SetLocal(changes) | Kind::Set(changes) | Kind::MaySet(changes) => {
                self.settings.must_read_before(changes)
            }
            _ => false,
        }
    }

    /// Informs the settings tracker of a statement before the server runs it.
    pub(super) fn track_settings(&mut self, kind: &Kind) {
        match kind {
            Kind::Savepoint(SavepointStatement::RollBackTo(name)) if self.in_transaction => {
                self.settings.roll_back_to(name);
            }
            _ if self.is_aborted() => {}
            Kind::Savepoint(SavepointStatement::Define(name)) if self.in_transaction => {
                self.settings.save(name);
            }
            Kind::Savepoint(SavepointStatement::Release(name)) if self.in_transaction => {
                self.settings.release(name);
            }
            Kind::SetLocal(changes) | Kind::Set(changes) | Kind::MaySet(changes) => {
                // The tracker must know the state before the first statement of the transaction.
                self.ensure_savepoint();
                self.settings.run(changes);
            }
            Kind::DiscardAll => {
                self.ensure_savepoint();
                self.settings.run(&SettingChanges::of_setting(None, false));
            }
            Kind::Plain => {
                self.ensure_savepoint();
                self.settings.run_without_change();
            }
            Kind::Declare | Kind::SetConstraints if self.in_transaction => self.settings.run_without_change(),
            _ => {}
        }
    }

    fn begin(&mut self, start: bool, modes: Modes) {
        let tag = command_complete(if start { "START TRANSACTION" } else { "BEGIN" });
        if self.in_transaction {
            self.warn(ACTIVE_TRANSACTION, "there is already a transaction in progress", None);
            if modes.level {
                self.warn_about_level();
            }
            self.prepend_tasks([Task::Send(tag)]);
            return self.change_access(modes);
        }
        self.ensure_savepoint();
        (self.in_transaction, self.read_only) = (true, modes.read_only == Some(true));
        if modes.level {
            self.warn_about_level();
        }
        self.prepend_tasks([Task::Send(tag)]);
        self.apply_read_only();
    }

    fn commit(&mut self, chain: bool) {
        if self.is_aborted() {
            // After a failed transaction, the next one in the chain inherits only the mode that the failed transaction
            // had inherited itself.
            self.read_only = self.inherited_read_only;
            self.prepend_tasks([Task::Undo, Task::EndTransaction { tag: "ROLLBACK", chain }]);
        } else if self.can_end_transaction("COMMIT AND CHAIN", chain) {
            self.prepend_tasks([Task::Commit, Task::EndTransaction { tag: "COMMIT", chain }]);
            self.keep_read_only_in_chain(chain);
        }
    }

    fn rollback(&mut self, chain: bool) {
        if self.is_aborted() {
            self.commit(chain);
        } else if self.can_end_transaction("ROLLBACK AND CHAIN", chain) {
            if self.has_savepoint() {
                self.prepend_tasks([Task::Undo, Task::EndTransaction { tag: "ROLLBACK", chain }]);
                self.keep_read_only_in_chain(chain);
            } else {
                self.end_transaction("ROLLBACK", chain);
            }
        }
    }

    /// Makes the next transaction in a chain read-only if this one is.
    fn keep_read_only_in_chain(&mut self, chain: bool) {
        if chain {
            let sql = "SELECT pg_catalog.current_setting('transaction_read_only')".to_owned();
            self.prepend_tasks([Task::Inject(vec![sql], InjectedStatement::ReadOnly)]);
        }
    }

    /// Returns true if the statement `what` can end a transaction now. If the client isn't in a transaction, sends a
    /// warning and still returns true; with `chain`, reports an error and returns false.
    fn can_end_transaction(&mut self, what: &str, chain: bool) -> bool {
        if !self.in_transaction && chain {
            self.refuse_outside_transaction(what);
            return false;
        }
        if !self.in_transaction {
            self.warn(NO_TRANSACTION, "there is no transaction in progress", None);
        }
        true
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.in_transaction && self.status == b'E'
    }

    /// Ends the client's transaction.
    pub(super) fn end_transaction(&mut self, tag: &str, chain: bool) {
        self.in_transaction = chain;
        self.inherited_read_only = chain && self.read_only;
        self.send_to_client(&command_complete(tag));
        if chain {
            self.ensure_savepoint();
            self.apply_read_only();
        }
    }

    /// Makes the client's transaction read-only if the client requested this.
    fn apply_read_only(&mut self) {
        if self.read_only {
            self.prepend_tasks([Task::Inject(
                vec!["SET TRANSACTION READ ONLY".to_owned()],
                InjectedStatement::Required,
            )]);
        }
    }

    /// Returns true if the gateway itself must apply these modes. A plain server accepts them before a transaction's
    /// first query, but the lease's server always refuses them because of the savepoint.
    fn may_change(&self, modes: Modes) -> bool {
        let is_fresh = self.in_transaction && self.is_untouched && !self.is_aborted();
        is_fresh && (modes.level || modes.read_only.is_some())
    }

    /// Makes the client's transaction read-only or read-write.
    fn change_access(&mut self, modes: Modes) {
        if modes.read_only == Some(false) && self.may_change(modes) {
            // Rolling back to the savepoint makes the transaction read-write again.
            let bound = self.timeout_statement();
            let statements = std::iter::once(UNDO.to_owned()).chain(bound).collect();
            self.prepend_tasks([Task::Inject(statements, InjectedStatement::Required)]);
        }
        if let Some(read_only) = modes.read_only {
            self.read_only = read_only;
        }
        if modes.read_only == Some(true) {
            self.apply_read_only();
        }
    }

    fn set_transaction(&mut self, modes: Modes, lonely: bool, native: Native) {
        if let Some(statement) = modes.warning.filter(|_| lonely) {
            self.warn_outside_transaction(statement);
        }
        if !modes.level && !self.may_change(modes) {
            return self.prepend_tasks([Task::Native(native)]);
        }
        if modes.level {
            self.warn_about_level();
        }
        self.prepend_tasks([Task::Send(command_complete("SET"))]);
        if !lonely {
            self.change_access(modes);
        }
    }

    fn warn_about_level(&mut self) {
        self.warn(ACTIVE_TRANSACTION, "the isolation level stays \"read committed\"", Some(USE_CLONE_HINT));
    }

    fn warn_outside_transaction(&mut self, what: &str) {
        self.warn(NO_TRANSACTION, &format!("{what} can only be used in transaction blocks"), None);
    }

    fn refuse_outside_transaction(&mut self, what: &str) {
        self.report_error(NO_TRANSACTION, &format!("{what} can only be used in transaction blocks"), None);
    }

    /// Reports an error as a plain server would. The caller must ensure that the client isn't in a transaction.
    fn report_error(&mut self, sqlstate: &str, text: &str, hint: Option<&str>) {
        self.send_to_client(&report("ERROR", sqlstate, text, hint));
        self.fail();
    }
}
