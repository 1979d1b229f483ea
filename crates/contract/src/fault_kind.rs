//! Defines the kinds and moments of faults, and which combinations are valid. The gateway checks requests with these
//! functions, and tests generate the API's schema from them.

use std::fmt;

/// Maximum of `nth` and of `times` in a request.
pub const MOST_FAULTS: u64 = 1_000_000;
/// SQLSTATE of a server that refuses sessions because it is starting.
const STARTING_UP: &str = "57P03";
/// SQLSTATEs of the errors that end a session, except [`STARTING_UP`].
const SESSION_ENDS: [&str; 6] = ["57P01", "57P02", "57P05", "25P03", "25P04", "53300"];
/// Value of `error` that requests a failover.
const FAILOVER: &str = "failover";

/// When a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultMoment {
    /// Makes COMMIT, END or PREPARE TRANSACTION fail, and the server rolls the transaction back.
    Commit,
    /// In place of a statement.
    BeforeStatement,
    /// Once the server has received a statement, without waiting for its response.
    DuringStatement,
    /// After a statement has run, in place of its completion.
    AfterStatement,
    /// In place of COMMIT, END or PREPARE TRANSACTION.
    BeforeCommit,
    /// After the server has committed, in place of the completion of COMMIT, END or PREPARE TRANSACTION.
    AfterCommit,
    /// In place of a new session.
    Connect,
}

impl FaultMoment {
    /// All moments.
    pub const ALL: [Self; 7] = [
        Self::Commit,
        Self::BeforeStatement,
        Self::DuringStatement,
        Self::AfterStatement,
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::Connect,
    ];

    /// Returns the moment's name, as in the request member `at`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::BeforeStatement => "before statement",
            Self::DuringStatement => "during statement",
            Self::AfterStatement => "after statement",
            Self::BeforeCommit => "before commit",
            Self::AfterCommit => "after commit",
            Self::Connect => "connect",
        }
    }

    /// Returns true if a fault at this moment can have a `statement`.
    #[must_use]
    pub fn has_statement(self) -> bool {
        self != Self::Connect
    }

    /// Returns the moment called `name`, or `None` if there isn't one.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|moment| moment.name() == name)
    }
}

impl fmt::Display for FaultMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kind of a fault. It determines when the fault can happen, and which members its request can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A failover: `error` is `failover`.
    Failover,
    /// A server that refuses sessions because it is starting: `error` is `57P03`.
    StartingUp,
    /// Any other error that ends the session, such as `57P01`.
    SessionEnd,
    /// An error that doesn't end the session: `error` is any other SQLSTATE.
    Error,
    /// A lost or silent connection (`connection`).
    Connection,
    /// A delayed message (`delay`).
    Delay,
    /// A slow connection (`bandwidth`).
    Bandwidth,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Failover,
        Self::StartingUp,
        Self::SessionEnd,
        Self::Error,
        Self::Connection,
        Self::Delay,
        Self::Bandwidth,
    ];

    /// Returns the kind of a fault whose request member `error` is `error`.
    #[must_use]
    pub fn of_error(error: &str) -> Self {
        match error {
            FAILOVER => Self::Failover,
            STARTING_UP => Self::StartingUp,
            _ if SESSION_ENDS.contains(&error) => Self::SessionEnd,
            _ => Self::Error,
        }
    }

    /// Returns true if the fault ends the session.
    #[must_use]
    pub fn ends_session(self) -> bool {
        matches!(self, Self::Failover | Self::StartingUp | Self::SessionEnd | Self::Connection)
    }

    /// Returns true if the fault can happen at `moment`.
    #[must_use]
    pub fn is_possible_at(self, moment: FaultMoment) -> bool {
        self != Self::Error || !matches!(moment, FaultMoment::DuringStatement | FaultMoment::AfterCommit)
    }

    /// Returns the moment of a fault whose request doesn't contain `at`.
    #[must_use]
    pub fn default_moment(self) -> FaultMoment {
        if self == Self::Failover { FaultMoment::Connect } else { FaultMoment::BeforeStatement }
    }

    /// Returns true if the fault can have a `duration`.
    #[must_use]
    pub fn has_duration(self) -> bool {
        matches!(self, Self::Failover | Self::StartingUp)
    }

    /// Returns true if the fault can have `read_only`.
    #[must_use]
    pub fn has_read_only(self) -> bool {
        self == Self::Failover
    }

    /// Returns true if the fault can have an `nth` above 1 at `moment`. A failover can't at `connect`, because it then
    /// happens immediately.
    #[must_use]
    pub fn has_nth_at(self, moment: FaultMoment) -> bool {
        self != Self::Failover || moment != FaultMoment::Connect
    }
}

#[cfg(test)]
pub(crate) mod schema {
    //! Generates the JSON schemas of fault effects.

    use serde_json::{Value, json};

    use super::{FAILOVER, FaultKind, SESSION_ENDS, STARTING_UP};

    impl FaultKind {
        /// Returns the request member that names the effect, and the schema of its value.
        pub(crate) fn effect(self) -> (&'static str, Value) {
            match self {
                Self::Failover => ("error", json!({ "const": FAILOVER })),
                Self::StartingUp => ("error", json!({ "const": STARTING_UP })),
                Self::SessionEnd => ("error", json!({ "enum": SESSION_ENDS })),
                Self::Error => {
                    let others = [&SESSION_ENDS[..], &[STARTING_UP]].concat();
                    let pattern = "^(0[3-9A-Z]|[1-9A-Z][0-9A-Z])[0-9A-Z]{3}$";
                    ("error", json!({ "type": "string", "pattern": pattern, "not": { "enum": others } }))
                }
                Self::Connection => ("connection", json!({ "enum": ["reset", "silent"] })),
                Self::Delay => ("delay", json!({ "type": "string" })),
                Self::Bandwidth => ("bandwidth", json!({ "type": "string" })),
            }
        }
    }
}
