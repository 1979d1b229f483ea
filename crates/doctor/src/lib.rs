//! Finds out why a database is slow, and suggests remedies.
//!
//! An [`Examination`] measures layer by layer and returns a [`Diagnosis`]. The layers are the device behind a path, its
//! file system, its syncs, and the cost of a commit with different settings. The diagnosis also contains findings, i.e.
//! conclusions with a remedy. Each probe has its own file.
//!
//! This crate prints nothing and doesn't know about the command line. It writes only into its own run directories,
//! which are removed when this process ends, even if it's killed.

mod change_points;
mod commit;
mod comparison;
mod device;
mod error;
mod examination;
mod filesystem;
mod findings;
mod fixture;
mod latencies;
mod machine;
mod proof;
mod remedies;
mod remote_server;
mod soak;
mod suite;
mod sync;

pub use comparison::SyncComparison;
pub use error::DoctorError;
pub use examination::{Diagnosis, Examination, Tests};
pub use remote_server::RemoteExamination;
