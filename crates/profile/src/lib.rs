//! Profiles a test suite from the server's point of view: shows where its database time goes, and how to save it.
//!
//! A [`Recorder`] samples a server and produces a [`Recording`]. An [`Attribution`] divides the suite's time among
//! statements, waits and databases. A [`Profile`] derives findings from it. This crate needs no extension in the server
//! and changes nothing there. It prints nothing, and does not depend on the command line.

mod attribution;
mod by_test;
mod circumstances;
mod completed;
mod correction;
mod counted;
mod counters;
mod database_findings;
mod error;
mod exact;
mod findings;
mod interner;
mod machine;
mod made_databases;
mod profile;
mod ranking;
mod recorder;
mod recording;
mod summary;
mod target;
mod test_report;
mod time;
mod timeline;
mod wait;

pub use attribution::Attribution;
pub use circumstances::Circumstances;
pub use completed::CompletedStatement;
pub use counted::{Counted, Line};
pub use error::ProfileError;
pub use exact::Exact;
pub use interner::Interner;
pub use pgwire::NormalizedStatement;
pub use profile::Profile;
pub use recorder::{Feed, Pace, Recorder};
pub use recording::Recording;
pub use target::Target;
pub use time::Time;
