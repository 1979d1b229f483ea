//! Defines facts about a run that aren't part of its recording.

use report::{Quantity, Unit};

/// Waits for new databases while databases of earlier names lingered although no client used them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LingerWait {
    /// Number of names that got a database.
    pub names: u64,
    /// Total time that clients waited and would not have waited without lingering, in seconds.
    pub waited: f64,
}

/// Facts about the suite that this crate's caller provides. All times are in seconds.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// True if pgfresh started the server.
    pub is_own_server: bool,
    /// The suite's command line. `None` if pgfresh only observed a server.
    pub command: Option<String>,
    /// Time from the start of pgfresh to the server's first response, excluding the template's share.
    pub boot: Option<f64>,
    /// Time to look up the template, including the build if necessary.
    pub template: Option<f64>,
    /// How long a client waits for the first session in a new database.
    pub fresh_database: Option<f64>,
    /// Waits that `linger = "0"` saves. `None` if lingering was useful, or if the user chose how long databases linger.
    pub linger: Option<LingerWait>,
    /// How much longer a commit takes with a flush, divided by the duration of the flush alone.
    ///
    /// The quotient can exceed 1, because a wait also slows down the work after it: the CPU caches are cold, and the
    /// file system's journal has to start again.
    pub waiting_cost: Option<f64>,
}

pub(crate) fn seconds(value: f64) -> String {
    Quantity::new(value, Unit::Seconds).to_string()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
