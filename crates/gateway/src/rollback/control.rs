//! Statements that begin, end or divide transactions, and those that mean something else outside of one.

use super::message::{DISCARD_ALL, INSTEAD, complete, literal, report};
use super::session::RollbackSession;
use super::statement::{Kind, Modes};
use super::task::{InjectedStatement, Native, Task};

const NO_TRANSACTION: &str = "25P01";
const ACTIVE_TRANSACTION: &str = "25001";

impl RollbackSession {
    /// Whether the server does with it what the client expects, as things are. `top`: it is not one of several.
    pub(super) fn is_native(&self, kind: &Kind, top: bool) -> bool {
        let failed = self.is_aborted();
        match kind {
            Kind::Plain => true,
            Kind::Begin { .. } | Kind::Commit { .. } | Kind::Rollback { .. } | Kind::PrepareTransaction => {
                false
            }
            Kind::Savepoint | Kind::Release | Kind::RollbackTo => self.tx,
            Kind::Lock | Kind::Declare | Kind::DiscardAll => self.tx || !top,
            Kind::SetConstraints => self.transaction.constraints.told && (self.tx || !top),
            Kind::SetTransaction(modes) => failed || (self.tx || !top) && !modes.level,
            Kind::SetLocal(_) | Kind::SetConfig(_) => failed,
            Kind::Set(name) => failed || !self.locals.iter().any(|(local, _)| is_covered(local, name)),
        }
    }

    /// Does what a plain server would do.
    pub(super) fn control(&mut self, kind: &Kind, top: bool, native: Native) {
        // In a string the server warns of nothing.
        let lonely = top && !self.tx;
        match kind {
            Kind::Begin { .. } if self.tx && matches!(native, Native::Part(..)) => {
                self.first([Task::Native(native)]);
            }
            Kind::Begin { start, modes } => self.begin(*start, *modes),
            Kind::Commit { chain } => self.commit(*chain),
            Kind::Rollback { chain } => self.rollback(*chain),
            // The server takes it for a ROLLBACK then.
            Kind::PrepareTransaction if self.is_aborted() => self.commit(false),
            Kind::PrepareTransaction => {
                self.tx = false;
                self.refuse("0A000", "cannot prepare a transaction in rollback isolation", Some(INSTEAD));
            }
            _ if self.is_native(kind, top) => self.first([Task::Native(native)]),
            Kind::SetTransaction(modes) => self.set_transaction(*modes, lonely, native),
            Kind::SetConstraints => {
                self.transaction.constraints.told = true;
                if lonely {
                    self.warn_outside("SET CONSTRAINTS");
                }
                self.first([Task::Native(native)]);
            }
            Kind::SetLocal(name) | Kind::SetConfig(name) => {
                if lonely && matches!(kind, Kind::SetLocal(_)) {
                    self.warn_outside("SET LOCAL");
                }
                self.set_local(name, native);
            }
            Kind::Set(name) => {
                self.locals.retain(|(local, _)| !is_covered(local, name));
                self.first([Task::Native(native)]);
            }
            Kind::DiscardAll => {
                let parts = DISCARD_ALL.map(str::to_owned).to_vec();
                self.ensure();
                // Like any statement that must be alone, it is committed at once.
                let said = Task::Say(complete("DISCARD ALL"));
                self.first([Task::Inject(parts, InjectedStatement::Must), Task::Settle, said]);
            }
            Kind::Savepoint => self.refuse_outside("SAVEPOINT"),
            Kind::Release => self.refuse_outside("RELEASE SAVEPOINT"),
            Kind::RollbackTo => self.refuse_outside("ROLLBACK TO SAVEPOINT"),
            Kind::Lock => self.refuse_outside("LOCK TABLE"),
            Kind::Declare => self.refuse_outside("DECLARE CURSOR"),
            Kind::Plain => self.first([Task::Native(native)]),
        }
    }

    fn begin(&mut self, start: bool, modes: Modes) {
        let tag = complete(if start { "START TRANSACTION" } else { "BEGIN" });
        if self.tx {
            self.warn(ACTIVE_TRANSACTION, "there is already a transaction in progress", None);
            self.read_only = modes.read_only == Some(true);
            self.first([Task::Say(tag)]);
            return self.restrict();
        }
        self.ensure();
        (self.tx, self.read_only) = (true, modes.read_only == Some(true));
        if modes.level {
            self.warn_of_level();
        }
        self.first([Task::Say(tag)]);
        self.restrict();
    }

    fn commit(&mut self, chain: bool) {
        if self.is_aborted() {
            // Modes of its own are undone with a transaction that fails; what it has from the one before stays.
            self.read_only = self.inherited_read_only;
            self.first([Task::Undo, Task::Left { tag: "ROLLBACK", chain }]);
        } else if self.is_inside("COMMIT AND CHAIN", chain) {
            self.first([Task::Settle, Task::Left { tag: "COMMIT", chain }]);
            self.inherit(chain);
        }
    }

    fn rollback(&mut self, chain: bool) {
        if self.is_aborted() {
            self.commit(chain);
        } else if self.is_inside("ROLLBACK AND CHAIN", chain) {
            if self.is_saved() {
                self.first([Task::Undo, Task::Left { tag: "ROLLBACK", chain }]);
                self.inherit(chain);
            } else {
                self.leave("ROLLBACK", chain);
            }
        }
    }

    /// Has the next transaction of a chain be read only if this one is.
    fn inherit(&mut self, chain: bool) {
        if chain {
            let sql = "SELECT pg_catalog.current_setting('transaction_read_only')".to_owned();
            self.first([Task::Inject(vec![sql], InjectedStatement::Access)]);
        }
    }

    /// Whether a transaction may be ended here: outside of one that is worth a warning, unless another was to follow.
    fn is_inside(&mut self, what: &str, chain: bool) -> bool {
        if !self.tx && chain {
            self.refuse_outside(what);
            return false;
        }
        if !self.tx {
            self.warn(NO_TRANSACTION, "there is no transaction in progress", None);
        }
        true
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.tx && self.status == b'E'
    }

    /// The client's transaction is over.
    pub(super) fn leave(&mut self, tag: &str, chain: bool) {
        self.tx = chain;
        self.inherited_read_only = chain && self.read_only;
        self.say(&complete(tag));
        if chain {
            self.ensure();
            self.restrict();
        }
    }

    /// Makes the client's transaction read only, if the client asks for it.
    fn restrict(&mut self) {
        if self.read_only {
            self.first([Task::Inject(vec!["SET TRANSACTION READ ONLY".to_owned()], InjectedStatement::Must)]);
        }
    }

    fn set_transaction(&mut self, modes: Modes, lonely: bool, native: Native) {
        if lonely {
            self.warn_outside("SET TRANSACTION");
        }
        if !modes.level {
            return self.first([Task::Native(native)]);
        }
        self.warn_of_level();
        self.read_only = modes.read_only == Some(true) && !lonely;
        self.first([Task::Say(complete("SET"))]);
        self.restrict();
    }

    /// Reads the setting before it is changed, to put it back when the client's transaction ends.
    fn set_local(&mut self, name: &str, native: Native) {
        if self.locals.iter().any(|(local, _)| local == name) {
            return self.first([Task::Native(native)]);
        }
        self.ensure();
        let sql = format!("SELECT pg_catalog.current_setting({}, true)", literal(name));
        self.first([
            Task::Inject(vec![sql], InjectedStatement::Local(name.to_owned())),
            Task::Native(native),
        ]);
    }

    fn warn_of_level(&mut self) {
        self.warn(ACTIVE_TRANSACTION, "the isolation level stays \"read committed\"", Some(INSTEAD));
    }

    fn warn_outside(&mut self, what: &str) {
        self.warn(NO_TRANSACTION, &format!("{what} can only be used in transaction blocks"), None);
    }

    fn refuse_outside(&mut self, what: &str) {
        self.refuse(NO_TRANSACTION, &format!("{what} can only be used in transaction blocks"), None);
    }

    /// Fails in the server's place; the client is in no transaction afterwards.
    fn refuse(&mut self, sqlstate: &str, text: &str, hint: Option<&str>) {
        self.say(&report("ERROR", sqlstate, text, hint));
        self.fail();
    }
}

/// Whether a change of `name` for the session makes a value of `local` for the transaction forgotten. RESET ALL leaves out
/// who the user is. Source: `GUC_NO_RESET_ALL`.
fn is_covered(local: &str, name: &str) -> bool {
    name == local || name == "all" && !matches!(local, "role" | "session_authorization")
}
