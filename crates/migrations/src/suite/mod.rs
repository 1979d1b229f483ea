//! Examines a suite's statements: which of them have to wait for a migration's locks, and which fail after it.

mod attribution;
mod blocked;
mod broken;
mod catalog;
mod changes;
mod copy;
mod explain;
mod needs;
mod recording;

pub use blocked::blocked;
pub use broken::broken;
pub use explain::SuiteError;
pub use needs::{LockReason, NeededLock, StatementNeeds, needs, unseen};
pub use recording::{RecordingError, SuiteRecording};
