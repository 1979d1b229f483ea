//! Facts about a run besides its recording, and the format of figures.

use report::{Quantity, Unit};

/// Facts that the caller knows about the suite. Times are in seconds.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// Whether the server belongs to pgfresh.
    pub ours: bool,
    /// Command line of the suite; `None` if the server was only observed.
    pub command: Option<String>,
    /// Time from the start of pgfresh to the server's first answer, without the template.
    pub boot: Option<f64>,
    /// Time for looking up the template and building it if necessary.
    pub template: Option<f64>,
    /// Time that a client waits for the first session in a new database.
    pub fresh_database: Option<f64>,
    /// How much longer a commit takes with a flush than without, as a multiple of the flush alone. It may exceed 1:
    /// after a wait, the processor's caches are cold and the journal starts again, so the work between two waits takes
    /// longer as well.
    pub waiting_cost: Option<f64>,
}

pub(crate) fn seconds(value: f64) -> String {
    Quantity::new(value, Unit::Seconds).to_string()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
