//! Facts about a run that its recording does not contain.

use report::{Quantity, Unit};

/// Facts that the caller knows about the suite. All times are in seconds.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// Whether pgfresh started the server.
    pub is_own_server: bool,
    /// The suite's command line. `None` if pgfresh only observed a server.
    pub command: Option<String>,
    /// Time from the start of pgfresh to the server's first response, without the time for the template.
    pub boot: Option<f64>,
    /// Time to look up the template, and to build it if necessary.
    pub template: Option<f64>,
    /// Time for which a client waits for the first session in a new database.
    pub fresh_database: Option<f64>,
    /// Ratio of two times: by how much a flush makes a commit longer, and how long the flush alone takes.
    ///
    /// It can exceed 1. After a wait, the processor's caches are cold and the journal starts again. The work between
    /// two waits therefore also takes longer.
    pub waiting_cost: Option<f64>,
}

pub(crate) fn seconds(value: f64) -> String {
    Quantity::new(value, Unit::Seconds).to_string()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
