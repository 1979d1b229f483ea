//! Workloads of `pgfresh bench`, measured in turns.
//!
//! A bench names its contenders, and [`report::Rounds`] runs them in turns. The result is a [`report::Report`] with
//! every sample. This crate prints nothing and does not know the command line: the caller passes the commands to
//! measure. Contenders start servers in guarded run directories, which disappear with this process, however it ends.

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

/// Report with the raw samples, and the error that ended the measurement early, if any.
pub type Measured = (report::Report, Option<BenchError>);
