//! Profiles a test suite from the server's point of view: where the suite's time in the database goes, and
//! how to save it.
//!
//! A [`Recorder`] samples a server and produces a [`Recording`]. An [`Attribution`] divides the suite's time among
//! statements, waits and databases, and a [`Profile`] derives findings from it. This crate doesn't need a server
//! extension and doesn't change anything on the server. It doesn't print and doesn't depend on the command line.

mod attribution;
mod circumstances;
mod completed_statement;
mod correction;
mod counters;
mod created_databases;
mod database_findings;
mod error;
mod findings;
mod gateway_times;
mod interner;
mod machine;
mod profile;
mod ranking;
mod recorder;
mod recording;
mod session_findings;
mod spared_sessions;
mod statement_counts;
mod summary;
mod target;
mod test_records;
mod test_report;
mod time;
mod timeline;
mod wait;

pub use attribution::Attribution;
pub use circumstances::{Circumstances, LingerWait};
pub use completed_statement::CompletedStatement;
pub use error::ProfileError;
pub use gateway_times::GatewayTimes;
pub use interner::Interner;
pub use pgwire::NormalizedStatement;
pub use profile::Profile;
pub use recorder::{Feed, Pace, Recorder};
pub use recording::Recording;
pub use statement_counts::{Counted, CountedStatement};
pub use target::Target;
pub use time::Time;
