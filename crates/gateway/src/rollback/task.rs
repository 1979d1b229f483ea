//! Tasks of a session in rollback isolation, and the answers that it waits for.

use super::statement::Kind;

/// Values of one row from an injected statement.
pub(super) type Row = Vec<Option<String>>;

/// Treatment of a message whose header has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Waits for earlier answers.
    Wait,
    /// Waits for the whole message, because the session has to read it.
    Whole,
    /// Waits for the names at its beginning, then forwards the message in pieces.
    Names,
    Pass,
    Drop,
}

/// Owner of the statement that runs, which a cancel request may interrupt or not.
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
    /// Query of the client, or a part of it.
    Part,
    /// Messages of the extended protocol.
    Group,
}

/// Purpose of an injected statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InjectedStatement {
    /// Cannot fail, unless the transaction of the lease is lost.
    Must,
    /// Cannot fail, as [`Self::Must`], and changes nothing that the client sees. Later messages to the client need not
    /// wait for it.
    Silent,
    /// Reads the state that decides what a COMMIT has to do.
    Look,
    /// Reads which constraints are deferrable.
    Constraints,
    /// Makes the client's work part of the transaction.
    Release,
    /// Reads the settings before a statement may change them.
    Settings,
    /// Reads which objects of the database may change settings.
    Sources,
    /// Reads the settings once more at the end of the client's transaction, with the names of custom settings.
    Found,
    /// Reads whether the client's transaction is read only, for the next in its chain.
    Access,
    /// Checks the syntax of a string, after a savepoint (`saved`) or in a failed transaction.
    Syntax { saved: bool },
    /// Fails, so that the server undoes all work of the client's transaction now.
    Abort,
}

/// Task to perform once the session waits for no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Handles a statement that the gateway must not simply forward. `top` means that it is not one of several in a
    /// string.
    Control {
        kind: Kind,
        top: bool,
        native: Native,
    },
    Native(Native),
    Inject(Vec<String>, InjectedStatement),
    /// Reads the settings before a statement may change them.
    ReadSettings,
    /// Checks the syntax of a whole string, which the server will get in parts.
    CheckSyntax(Vec<u8>),
    Settle,
    /// Completes [`Self::Settle`], with the cursors to close.
    Release(Vec<String>),
    Undo,
    /// Ends the client's transaction, or begins a chained one.
    Left {
        tag: &'static str,
        chain: bool,
    },
    Say(Vec<u8>),
    /// Ends a Query or a group.
    End,
    Ready,
}

/// Statement of the client as the server gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// Query or `FunctionCall`, and its offset in the client's string, in characters.
    Part(Vec<u8>, usize),
    /// Execute message.
    Execute(Vec<u8>),
}
