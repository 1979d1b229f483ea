//! Decides which faults to try on a suite, and judges how the suite copes with each of them.
//!
//! The caller runs the command twice without faults, and once for each [`Point`], that is, a fault at a statement of a
//! lease. This crate compares the leases of these runs. It doesn't start commands or servers.
//!
//! ```text
//! transcripts ── recording ── steady ── points            runs without faults → faults to try
//! transcripts ── recording ── judgement ── report         runs with a fault   → findings
//!        sessions ── contents ── difference ──┘           rows at the end of a lease
//! ```

mod contents;
mod difference;
mod effect;
mod judgement;
mod moment;
mod points;
mod recording;
mod report;
mod steady;
#[cfg(test)]
mod testing;

pub use contents::Contents;
pub use difference::{DifferenceKind, SteadyRows, TableDifference};
pub use judgement::{FaultyRun, FindingKind, Judgement, RunEnd, Stuck, judge, stuck};
pub use points::{Point, TriedFault, chosen, may_mean, points};
pub use recording::{Call, LeaseEnd, LeaseRecord, RanStatement, StatementResult, TestEnd, leases};
pub use report::{RepeatableCommand, RunTime, TimeSpent, TrialFinding, TrialsReport, TriedTest, UntriedTest};
pub use steady::{SteadyLease, steady_leases};
