//! Profile of a test suite, as seen by its server.
//!
//! A [`Recorder`] samples a server into a [`Recording`]. An [`Attribution`] divides the suite's time among kinds of
//! statements, waits and databases. A [`Profile`] draws conclusions. This crate needs no extension, changes nothing in
//! the server, prints nothing, and does not know the command line.

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
