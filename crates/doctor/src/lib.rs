//! Why a database is slow on this machine, and what would help: measured layer by layer.
//!
//! Makes a [`Diagnosis`] of an [`Examination`]: the device behind a path, its file system, its syncs, what a commit costs
//! there under each kind of settings, and what follows. One file for each probe. It prints nothing, knows nothing of the
//! command line, and writes only into run directories of its own, which go away whatever ends us.

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
