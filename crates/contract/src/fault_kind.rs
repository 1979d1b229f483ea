//! Kinds and moments of faults, and which of them go together. The gateway checks requests by these functions, and tests
//! generate the API's schema from them.

use std::fmt;

/// Maximum of `nth` and of `times` in a request.
pub const MOST_FAULTS: u64 = 1_000_000;
/// SQLSTATE with which a server refuses sessions while it starts.
const STARTING_UP: &str = "57P03";
/// SQLSTATEs of the errors that end a session, except [`STARTING_UP`].
const SESSION_ENDS: [&str; 6] = ["57P01", "57P02", "57P05", "25P03", "25P04", "53300"];
/// Text of `error` for a failover.
const FAILOVER: &str = "failover";

/// Moment at which a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultMoment {
    /// COMMIT, END or PREPARE TRANSACTION fails, and the server rolls the transaction back.
    Commit,
    /// Instead of a statement.
    BeforeStatement,
    /// After the server has received a statement, without waiting for its answer.
    DuringStatement,
    /// After a statement has run, instead of its completion.
    AfterStatement,
    /// Instead of COMMIT, END or PREPARE TRANSACTION.
    BeforeCommit,
    /// After the server has committed, instead of the completion of COMMIT, END or PREPARE TRANSACTION.
    AfterCommit,
    /// Instead of a new session.
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

    /// Returns the moment's name, as in the member `at` of a request.
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

    /// Returns the moment with this name, or `None` if there is none.
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

/// Kind of a fault. It decides at which moments the fault can happen, and which members its request can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A failover: `error` is `failover`.
    Failover,
    /// The refusal of a server that starts: `error` is `57P03`.
    StartingUp,
    /// Another error that ends the session, such as `57P01`.
    SessionEnd,
    /// An error after which the session goes on: `error` is any other SQLSTATE.
    Error,
    /// A lost or silent connection (`connection`).
    Connection,
    /// A delay (`delay`).
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

    /// Returns the kind of a fault whose member `error` has this text.
    #[must_use]
    pub fn of_error(error: &str) -> Self {
        match error {
            FAILOVER => Self::Failover,
            STARTING_UP => Self::StartingUp,
            _ if SESSION_ENDS.contains(&error) => Self::SessionEnd,
            _ => Self::Error,
        }
    }

    /// Returns true if the session ends with the fault.
    #[must_use]
    pub fn ends_session(self) -> bool {
        matches!(self, Self::Failover | Self::StartingUp | Self::SessionEnd | Self::Connection)
    }

    /// Returns true if the fault is possible at this moment.
    #[must_use]
    pub fn is_possible_at(self, moment: FaultMoment) -> bool {
        self != Self::Error || !matches!(moment, FaultMoment::DuringStatement | FaultMoment::AfterCommit)
    }

    /// Returns the moment of a fault whose request has no `at`.
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

    /// Returns true if the fault can have an `nth` above 1 at this moment. A failover at a connection happens at once.
    #[must_use]
    pub fn has_nth_at(self, moment: FaultMoment) -> bool {
        self != Self::Failover || moment != FaultMoment::Connect
    }
}

#[cfg(test)]
pub(crate) mod schema {
    //! JSON schemas of the effects of faults.

    use serde_json::{Value, json};

    use super::{FAILOVER, FaultKind, SESSION_ENDS, STARTING_UP};

    impl FaultKind {
        /// Returns the member of a request that has the effect, and the schema of its value.
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
