//! Defines the tasks that a session in rollback isolation must perform, and the responses that it waits for.

use super::statement::Kind;

/// Values of one row returned by an injected statement.
pub(super) type Row = Vec<Option<String>>;

/// How to treat a message after its header has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Wait for the responses to earlier messages first.
    Wait,
    /// Wait for the complete message, which the session must read.
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
    /// One of the client's statements is running.
    Client,
    /// An injected statement is running, either before or after one of the client's.
    Injected,
}

/// Server work that ends with the next ReadyForQuery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Injected(InjectedStatement),
    /// The client's Query, or a part of it.
    Part,
    /// A group of extended-protocol messages.
    Group,
}

/// Purpose of an injected statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InjectedStatement {
    /// Must succeed; otherwise, the lease's transaction is lost.
    Required,
    /// Like [`Self::Required`], but without an effect that the client can see, so later messages to the client needn't
    /// wait for this statement.
    Silent,
    /// Reads the state that determines what a COMMIT must do.
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
    /// Closes large objects. If this fails, they stay open.
    LargeObjects,
    /// Reads whether the client's transaction is read-only, a mode inherited by the next transaction in its chain.
    ReadOnly,
    /// Checks the syntax of a string, after a savepoint (`saved`) or in a failed transaction.
    Syntax { saved: bool },
    /// Fails on purpose, so that the client's transaction fails too and the server immediately rolls back its work.
    Abort,
}

/// A task for the session, which starts after the server has responded to everything before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Handles a statement that the gateway can't simply forward. `top` means that the statement is the only one in its
    /// query string.
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
    /// Completes [`Self::Commit`]. `cursors` are those to close, and `checked` means that deferred constraints hold.
    Release {
        cursors: Vec<String>,
        checked: bool,
    },
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

/// A client's statement, in the form sent to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// A Query or `FunctionCall`, with its offset in the client's string, in characters.
    Part(Vec<u8>, usize),
    /// An Execute message.
    Execute(Vec<u8>),
}
