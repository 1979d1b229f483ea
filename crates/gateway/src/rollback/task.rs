//! Tasks that a session in rollback isolation must perform, and the answers that it waits for.

use super::statement::Kind;

/// Values of one row that an injected statement returned.
pub(super) type Row = Vec<Option<String>>;

/// How to treat a message whose header has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Wait for earlier answers first.
    Wait,
    /// Wait for the complete message, because the session must read it.
    Whole,
    /// Wait for the names at its beginning, then forward the message in pieces.
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
    /// An injected statement runs, before or after one of the client.
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
    /// Can fail only if the lease's transaction is lost.
    Required,
    /// Like [`Self::Required`], and has no effect that the client can see. Later messages to the client need not wait for
    /// it.
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
    /// Reads whether the client's transaction is read-only, for the next one in its chain.
    ReadOnly,
    /// Checks the syntax of a string, after a savepoint (`saved`) or in a failed transaction.
    Syntax { saved: bool },
    /// Fails on purpose, so that the server rolls back all work of the client's transaction now.
    Abort,
}

/// A task that the session performs once it waits for no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Handles a statement that the gateway can't simply forward. `top` means that the statement is not one of several
    /// in a string.
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

/// A client's statement in the form in which the server receives it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// A Query or `FunctionCall`, and its offset in the client's string, in characters.
    Part(Vec<u8>, usize),
    /// An Execute message.
    Execute(Vec<u8>),
}
