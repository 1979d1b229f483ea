//! Facts about a run that are not part of its recording.

use report::{Quantity, Unit};

/// Facts that the caller of this crate knows about the suite. All times are in seconds.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// True if pgfresh started the server.
    pub is_own_server: bool,
    /// Command line of the suite. `None` if pgfresh only observed a server.
    pub command: Option<String>,
    /// Time from the start of pgfresh to the server's first response, except for the time that the template took.
    pub boot: Option<f64>,
    /// Time to look the template up, and to build it if necessary.
    pub template: Option<f64>,
    /// Time that a client waits for the first session in a new database.
    pub fresh_database: Option<f64>,
    /// How much longer a commit takes with a flush, divided by the time that the flush alone takes.
    ///
    /// The quotient can exceed 1, because a wait also makes the work after it slower. The processor's caches are cold
    /// after a wait, and the file system's journal has to start again.
    pub waiting_cost: Option<f64>,
}

pub(crate) fn seconds(value: f64) -> String {
    Quantity::new(value, Unit::Seconds).to_string()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
