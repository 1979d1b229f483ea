//! Tasks that a session in rollback isolation must perform, and the answers for which it waits.

use super::statement::Kind;

/// Values of one row that an injected statement returned.
pub(super) type Row = Vec<Option<String>>;

/// How to treat a message after its header has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Wait for the answers to earlier messages first.
    Wait,
    /// Wait for the complete message, because the session must read it.
    Whole,
    /// Wait for the names at the beginning of the message, then forward the message in pieces.
    Names,
    Pass,
    Drop,
}

/// Owner of the running statement. A cancel request can only interrupt the client's own statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Nobody,
    /// A statement of the client runs.
    Client,
    /// An injected statement runs, either before or after a statement of the client.
    Injected,
}

/// Work of the server that ends with the next ReadyForQuery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Injected(InjectedStatement),
    /// The client's Query, or a part of it.
    Part,
    /// A group of messages in the extended protocol.
    Group,
}

/// Purpose of an injected statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InjectedStatement {
    /// Must succeed. If this statement fails, the lease's transaction is lost.
    Required,
    /// Like [`Self::Required`], but without an effect that the client could notice. Later messages to the client
    /// therefore need not wait for this statement.
    Silent,
    /// Reads the state that decides what a COMMIT must do.
    CommitState,
    /// Reads which constraints are deferrable.
    Constraints,
    /// Makes the client's work part of the lease's transaction.
    Release,
    /// Reads the settings before a statement that may change them.
    Settings,
    /// Reads which database objects may change settings.
    Sources,
    /// Reads the settings again at the end of the client's transaction, including newly found custom settings.
    SettingsAtEnd,
    /// Reads whether the client's transaction is read-only, because the next transaction in its chain inherits this
    /// mode.
    ReadOnly,
    /// Checks the syntax of a string, after a savepoint (`saved`) or in a failed transaction.
    Syntax { saved: bool },
    /// Fails on purpose. The client's transaction fails with it, and the server rolls the transaction's work back at
    /// once.
    Abort,
}

/// A task for the session. It waits until the server has answered everything before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Handles a statement that the gateway can't simply forward. `top` means that the statement stands alone, i.e. it
    /// is not one of several in a string.
    Control {
        kind: Kind,
        top: bool,
        native: Native,
    },
    Native(Native),
    Inject(Vec<String>, InjectedStatement),
    /// Reads the settings before a statement that may change them.
    ReadSettings,
    /// Checks the syntax of a whole string, because the server will receive it in parts.
    CheckSyntax(Vec<u8>),
    Commit,
    /// Completes [`Self::Commit`]. The strings are the cursors to close.
    Release(Vec<String>),
    Undo,
    /// Ends the client's transaction. With `chain`, begins the next one.
    EndTransaction {
        tag: &'static str,
        chain: bool,
    },
    Send(Vec<u8>),
    /// Ends a Query or a group.
    End,
    Ready,
}

/// A client's statement, as the session will send it to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// A Query or `FunctionCall`, and its offset in the client's string, in characters.
    Part(Vec<u8>, usize),
    /// An Execute message.
    Execute(Vec<u8>),
}
