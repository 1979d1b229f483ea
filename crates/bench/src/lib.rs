//! Implements the workloads of `pgfresh bench`.
//!
//! A benchmark shows whether pgfresh is fast in comparison with what users would do without it. It defines contenders,
//! which [`report::Rounds`] runs in turn. The result is a [`report::Report`] with every measured value.
//!
//! This crate doesn't print and doesn't depend on the command line. The caller provides the pgfresh commands to
//! measure. Contenders start servers in guarded run directories, which disappear when this process exits, even if
//! it's killed.

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
mod http;
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
pub use events::{EventStore, Events, ParseEventStoreError};
pub use fleet::Fleet;
pub use fresh::Fresh;
pub use proxy::ProxyBench;
pub use start::Start;
pub use transactions::Transactions;
pub use truncate::Truncate;

use report::{Contender, Progress, Rounds, ToReport};

/// A report with all measured values, along with the error that ended the measurement early, if any.
pub type Measured = (report::Report, Option<BenchError>);

/// Times the contenders and reports the complete rounds. Drops the contenders before the last report, so that their
/// sessions are closed by then.
fn time_and_report(
    rounds: Rounds,
    mut contenders: Vec<Contender<'_, BenchError>>,
    progress: &dyn Progress,
    report: &ToReport<'_>,
) -> Measured {
    let (timed, end) = rounds.time(&mut contenders, progress, Some(report));
    drop(contenders);
    (report(&timed), end.err())
}
