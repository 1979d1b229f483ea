//! What was seen of a server, look by look.

use crate::counted::Counted;
use crate::counters::Counters;
use crate::exact::Exact;
use crate::interner::Interner;
use crate::machine::MachineUsage;
use crate::wait::Cause;
use pgwire::NormalizedStatement;

/// What a session does at the moment of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server works for it, or it waits for something.
    Active,
    /// Its client works, in the middle of a transaction.
    InTransaction,
}

/// A session that is not idle at the moment of a look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Which, in [`Recording::sessions`].
    pub session: u32,
    /// Whether the server or the client is at work.
    pub state: State,
    /// What it runs or ran last, in [`Recording::statements`].
    pub statement: u32,
    /// The wait event, in [`Recording::events`]; `None` if there is none.
    pub event: Option<u32>,
    /// Why it is not done.
    pub cause: Cause,
    /// When the statement began, in seconds since some moment; tells one run of it from the next.
    pub since: f64,
    /// Seconds since then.
    pub elapsed: f64,
    /// When its transaction began, likewise; 0 outside of one.
    pub transaction: f64,
}

/// All sessions that are not idle at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Seconds since the recording began.
    pub at: f64,
    /// Seconds for which it stands: half of those to either neighbour.
    pub seconds: f64,
    /// The sessions.
    pub seen: Vec<Observation>,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionName {
    /// Its process, as the server knows it.
    pub pid: i32,
    /// When it began, in microseconds: process numbers come again.
    pub began: i64,
    /// The database, as it was called when it was seen first there: databases are renamed under their backends.
    pub database: String,
    /// What it calls itself.
    pub application: String,
}

/// All that was seen of a server between two moments.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Its version, as it writes it.
    pub version: String,
    /// Its major version.
    pub major: u32,
    /// Seconds from the first moment to the last.
    pub seconds: f64,
    /// In order of time.
    pub looks: Vec<Snapshot>,
    /// Backends that were seen.
    pub sessions: Interner<SessionName>,
    /// Statements that were seen, without their values.
    pub statements: Interner<NormalizedStatement>,
    /// Wait events that were seen, as `TYPE EVENT`.
    pub events: Interner<String>,
    /// What the server counted meanwhile.
    pub counters: Counters,
    /// What the server counted of each statement; nothing is asked of a server of ours.
    pub counted: Option<Counted>,
    /// What the machine shows of it; nothing if the server is not on this machine.
    pub machine: Option<MachineUsage>,
    /// What was told of each statement, beside all looks; empty without a gateway.
    pub exact: Option<Exact>,
    /// Seconds that went into looking.
    pub looking: f64,
    /// What a new session costs, in seconds.
    pub session_cost: Option<f64>,
    /// Why it ended before its time.
    pub cut_short: Option<String>,
}
