//! Gives each test a fresh database quickly, by keeping copies of a template ready and recycling used ones.
//!
//! A *lease* is the right to use a database under a name. [`Leases`] keeps copies of a template ready and gives one to
//! each new lease. When a lease ends, pgfresh resets its database to the template's state, or drops the database if it
//! can't prove that the reset worked.
//!
//! The module `table` decides which name gets which database, without any I/O. The `execute` module runs the table's
//! tasks, either in a waiting client's thread or in a maintenance worker (module `maintenance`). All code is blocking,
//! because every task waits for the server. This crate doesn't deal with the protocol between clients and the gateway.
//!
//! Some words have a specific meaning here:
//!
//! - A database is *fresh* if it equals its template.
//! - A *ready* database is fresh and has no lease yet.
//! - A database is *in doubt* if the log might not show all changes to it.
//! - Some of the server's sessions are for clients. A *seat* is one backend's right to use one of these.
//! - A *stamp* is a text representing everything that a session reads only at its start. If any of this changes, so
//!   does the stamp.
//! - A lease *lingers* if it keeps its database for a while after its last session has ended.
//! - *Traces* are state that a called function leaves behind in a backend. A backend with traces can't be reused.
//! - *SQL* as the subject of a sentence stands for statements run by users. A database *belongs to SQL* if users have
//!   created or renamed it, so pgfresh doesn't manage it.
//! - A *mark* is a record that pgfresh writes to the log. Once the server
//!   has flushed the mark, it has also flushed all earlier records.
//! - A *note* is a file in a cache entry. One server stores its findings about a template there for the next server.
//!
//! Databases have these names:
//!
//! ```text
//! template database      pgfresh_template_NAME   closed to connections
//! in preparation         pgfresh_preparing_N     programs that list databases may see it
//! ready database         pgfresh_ready_N         closed to connections, may contain idle backends
//! leased database        the client's name       renamed under its backends
//! ```

mod address;
mod admin;
mod backends;
mod error;
mod isolation;
mod lsn;
mod names;
mod options;
mod reset;
mod runtime;
mod sessions;
mod table;
mod wal;

pub use backends::backend::Backend;
pub use backends::client::ClientLink;
pub use backends::seats::Seat;
pub use error::LeaseError;
pub use isolation::{Isolation, ParseIsolationError};
pub use lsn::{Lsn, LsnError};
pub use names::{NameRules, cut};
pub use options::{LeaseObserver, LeaseOptions, ServerRole, TemplateDatabase};
pub use reset::digest::{Difference, Digest};
pub use reset::rollback::{
    BEGIN_LEASE, Constraints, DISCARD_ALL, LeaseTransaction, RELEASE_TRANSACTION, STAY_IDLE, Savepoint,
    UNBOUNDED, UNDO_TRANSACTION,
};
pub use runtime::leased_server::ServerAction;
pub use runtime::leases::{Leases, MaintenanceGuard};
pub use runtime::replica::{LaggingRead, ReplicaLag, ReplicaWatch};
pub use runtime::shared::SharedStateChange;
pub use runtime::status::{LeaseStatus, Status};
pub use runtime::stock::NEEDED_COPIES_NOTE;
pub use sessions::inspect::Inspection;
pub use sessions::session::{ConnectRequest, Connected, Entered, SessionGuard, TransactionGuard};
pub use sessions::unleased::SpareHold;
pub use table::linger::LingerUse;
pub use wal::changes::{Changes, FileChanges, SharedChange};
pub use wal::error::WalError;
pub use wal::reader::WalReader;
pub use wal::record::RelationFile;
