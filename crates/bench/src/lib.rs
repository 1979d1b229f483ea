//! Workloads, timed in turn.
//!
//! A bench names its contenders, [`report::Rounds`] lets them take turns, and what comes out is a [`report::Report`] with
//! every sample behind it. Nothing is printed here, and nothing is known of the command line: who calls gives the commands
//! that are to be timed. What a contender starts lives in a guarded run directory, so it goes away with us, whatever ends us.

mod by_hand;
mod client;
mod environment;
mod error;
mod events;
mod fixture;
mod fleet;
mod floor;
mod fresh;
mod goal;
mod memory;
mod pgbench;
mod proxy;
mod setup;
mod start;
mod start_report;
mod summary;
mod transactions;
mod truncate;

pub use error::BenchError;
pub use events::{EventStore, Events};
pub use fleet::Fleet;
pub use fresh::Fresh;
pub use proxy::ProxyBench;
pub use start::Start;
pub use transactions::Transactions;
pub use truncate::Truncate;

/// What was measured, with the raw samples behind it, and the failure that ended it early, if one did.
pub type Measured = (report::Report, Option<BenchError>);
