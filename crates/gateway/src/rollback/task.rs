//! What a session in rollback isolation waits for, and what it does next.

use super::statement::Kind;

/// What a statement of ours has returned for one row.
pub(super) type Row = Vec<Option<String>>;

/// What is to become of a message of which the head is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Not yet.
    Wait,
    /// It has to be seen from end to end.
    Whole,
    /// Its names have to be seen, then it is passed on.
    Names,
    Pass,
    Drop,
}

/// Who may be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Nobody,
    /// A statement of the client's runs.
    Client,
    /// A statement of ours runs, before or after one of the client's.
    Injected,
}

/// What ends with the next ReadyForQuery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Injected(InjectedStatement),
    /// A Query of the client's, or a part of it.
    Part,
    /// Messages of the extended protocol.
    Group,
}

/// What a statement of ours is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InjectedStatement {
    /// It cannot fail, unless the transaction is not what it should be any more.
    Must,
    /// The same, and it changes nothing that the client is told of: what follows for the client need not wait for it.
    Silent,
    /// Looks at what a COMMIT has to do.
    Look,
    /// Reads which constraints are deferrable.
    Constraints,
    /// Makes the client's work part of the transaction.
    Release,
    /// Reads the settings before a statement may change them.
    Settings,
    /// Reads which objects of the database may change settings.
    Sources,
    /// Reads them once more at the end of the client's transaction, with the names of custom settings.
    Found,
    /// Reads whether the client's transaction is read only, for the next in its chain.
    Access,
    /// Checks the syntax of a string, behind a savepoint or in a transaction that has failed.
    Syntax { saved: bool },
    /// Fails, so that all that the client has done in its transaction is undone now.
    Abort,
}

/// What is to be done once nothing is awaited.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// A statement that the server must not simply be given. `top`: it is not one of several in a string.
    Control {
        kind: Kind,
        top: bool,
        native: Native,
    },
    Native(Native),
    Inject(Vec<String>, InjectedStatement),
    /// Reads the settings before a statement may change them.
    ReadSettings,
    /// Finds out whether the server understands the whole string, of which it will get parts.
    CheckSyntax(Vec<u8>),
    Settle,
    /// The rest of [`Self::Settle`], with the cursors to close.
    Release(Vec<String>),
    Undo,
    /// The client's transaction has ended, or a chained one begins.
    Left {
        tag: &'static str,
        chain: bool,
    },
    Say(Vec<u8>),
    /// The end of a Query or of a group.
    End,
    Ready,
}

/// A statement of the client's as the server gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// A Query or `FunctionCall`, and where in the client's string it begins, in characters.
    Part(Vec<u8>, usize),
    /// An Execute.
    Execute(Vec<u8>),
}
