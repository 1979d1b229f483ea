//! Diagnosis of a slow database: measures layer by layer and suggests remedies.
//!
//! An [`Examination`] returns a [`Diagnosis`]: the device behind a path, its file system, its syncs, the cost of a
//! commit for each kind of settings, and the conclusions. Each probe has a file. This crate prints nothing, does not
//! know the command line, and writes only into its own run directories. Those disappear with this process, however it
//! ends.

mod change;
mod commit;
mod comparison;
mod device;
mod error;
mod examination;
mod filesystem;
mod findings;
mod fixture;
mod machine;
mod proof;
mod remedies;
mod soak;
mod suite;
mod sync;
mod trial;
mod url;

pub use comparison::SyncComparison;
pub use error::DoctorError;
pub use examination::{Diagnosis, Examination, Tests};
pub use url::Remote;
