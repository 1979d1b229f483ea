//! What is known beside a recording, and how figures of it are written.

use report::{Quantity, Unit};

/// What the caller that ran the suite knows of it, in seconds.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// Whether the server is one of ours.
    pub ours: bool,
    /// What was run, as people write it; `None` if the server was only watched.
    pub command: Option<String>,
    /// From nothing to the first answer, the template aside.
    pub boot: Option<f64>,
    /// Looking up the template, and making it if need be.
    pub template: Option<f64>,
    /// What the first session in a new database costs its client here.
    pub fresh_database: Option<f64>,
    /// How much longer a commit takes here with a flush than without, as a multiple of the flush alone: after a wait, the
    /// processor's caches are cold and the journal begins again, so that the work between two waits takes longer, too.
    pub waiting_cost: Option<f64>,
}

pub(crate) fn seconds(value: f64) -> String {
    Quantity::new(value, Unit::Seconds).to_string()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
