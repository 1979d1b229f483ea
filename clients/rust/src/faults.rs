//! Faults that a test requests for a database, and the state of these faults.

use std::time::Duration;

use contract::{FaultDescription, FaultRequest};

use crate::statements::milliseconds;

/// Moment when a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// At COMMIT, which fails. The server rolls the transaction back.
    Commit,
    /// Instead of a statement.
    BeforeStatement,
    /// After the server has received a statement, without waiting for the response.
    DuringStatement,
    /// After a statement has run, instead of the response that reports its completion.
    AfterStatement,
    /// Instead of COMMIT.
    BeforeCommit,
    /// After the server has committed, instead of the response to COMMIT.
    AfterCommit,
    /// Instead of a new session.
    Connect,
}

impl Moment {
    fn as_str(self) -> &'static str {
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
}

/// Error, lost connection or delay for [`Database::fault`](crate::Database::fault).
///
/// ```no_run
/// # use pgfresh_test::{Database, TestFault, Moment};
/// # fn doc(database: &Database) -> Result<(), pgfresh_test::Error> {
/// database.fault(TestFault::error("40001").at(Moment::Commit))?;
/// database.fault(TestFault::connection_lost().at(Moment::AfterCommit))?;
/// database.fault(TestFault::delay(std::time::Duration::from_secs(2)).statement("SELECT … FROM orders"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "Database::fault requests it"]
pub struct TestFault(FaultRequest);

impl TestFault {
    /// Returns a fault that is an error with an SQLSTATE, such as `40001`.
    pub fn error(sqlstate: impl Into<String>) -> Self {
        Self(FaultRequest { error: Some(sqlstate.into()), ..FaultRequest::default() })
    }

    /// Returns a failover: all sessions end, and pgfresh refuses a new connection. The default moment is
    /// [`Moment::Connect`].
    pub fn failover() -> Self {
        Self::error("failover")
    }

    /// Returns a fault that closes the connection with a TCP reset.
    pub fn connection_lost() -> Self {
        Self(FaultRequest { connection: Some("reset".to_owned()), ..FaultRequest::default() })
    }

    /// Returns a fault that leaves the connection open, but nothing arrives on it anymore.
    pub fn connection_silent() -> Self {
        Self(FaultRequest { connection: Some("silent".to_owned()), ..FaultRequest::default() })
    }

    /// Returns a fault that delays a message. The client rounds `time` up to whole milliseconds.
    pub fn delay(time: Duration) -> Self {
        Self(FaultRequest { delay: Some(milliseconds(time)), ..FaultRequest::default() })
    }

    /// Returns a fault that limits the bytes per second from the moment on. `rate` has a unit: `10kB`.
    pub fn bandwidth(rate: impl Into<String>) -> Self {
        Self(FaultRequest { bandwidth: Some(rate.into()), ..FaultRequest::default() })
    }

    /// Sets the moment. Default: [`Moment::BeforeStatement`].
    pub fn at(mut self, moment: Moment) -> Self {
        self.0.at = Some(moment.as_str().to_owned());
        self
    }

    /// Makes the fault hit only statements that begin with `text`. `…` in `text` stands for any text.
    pub fn statement(mut self, text: impl Into<String>) -> Self {
        self.0.statement = Some(text.into());
        self
    }

    /// Sets the number of the first statement, commit or connection that the fault hits. Default: 1.
    pub fn nth(mut self, number: u64) -> Self {
        self.0.nth = Some(number);
        self
    }

    /// Sets the number of statements, commits or connections that the fault hits. Default: 1.
    pub fn times(mut self, number: u64) -> Self {
        self.0.times = Some(number);
        self
    }

    /// Sets how long a failover refuses new connections. Default: it refuses as many connections as
    /// [`TestFault::times`].
    pub fn duration(mut self, time: Duration) -> Self {
        self.0.duration = Some(milliseconds(time));
        self
    }

    /// Sets how long transactions are read-only after a failover. Default: not at all.
    pub fn read_only(mut self, time: Duration) -> Self {
        self.0.read_only = Some(milliseconds(time));
        self
    }

    pub(crate) fn into_request(self) -> FaultRequest {
        self.0
    }
}

/// Requested fault, with the statements that it hit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultStatus {
    /// Description of the fault: `40001 at commit`.
    pub text: String,
    /// How often the fault is to fire.
    pub times: u64,
    /// How often the fault has fired.
    pub fired: u64,
    /// Number of statements, commits or connections that the fault could have hit.
    pub candidates: u64,
    /// Statements that the fault hit, at most 100.
    pub statements: Vec<String>,
}

impl From<FaultDescription> for FaultStatus {
    fn from(description: FaultDescription) -> Self {
        let FaultDescription { number: _, fault: text, times, fired, candidates, statements } = description;
        Self { text, times, fired, candidates, statements }
    }
}

/// Returns one line for each fault in `faults`, which never fired. Returns `None` if `faults` is empty.
pub(crate) fn unfired_message(faults: &[String]) -> Option<String> {
    let lines: Vec<_> = faults.iter().map(|fault| format!("fault did not fire: {fault}")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
