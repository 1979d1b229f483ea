//! Determines why a database is slow and suggests remedies.
//!
//! An [`Examination`] measures one layer after another and returns a [`Diagnosis`]. The layers are the device below a
//! path, its file system, its syncs, and the cost of a commit with different settings. The diagnosis also contains
//! findings, which are conclusions with a remedy. Each measurement has its own file.
//!
//! This crate doesn't print and doesn't depend on the command line. It only writes to its own run directories, which
//! disappear when this process exits, even if it's killed.

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
