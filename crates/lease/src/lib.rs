//! Gives each test a fresh database quickly, by keeping copies of a template ready and recycling used ones.
//!
//! A *lease* is the right to a database under a name. [`Leases`] keeps copies of a template ready and gives one to each new lease.
//! When a lease ends, pgfresh returns its database to the state of the template. If it cannot prove that this worked, it drops the
//! database instead.
//!
//! A table without I/O (`table`) decides which name gets which database. The module `execute` runs the table's tasks, either in the
//! thread of the client that waits or in a worker of `maintenance`. All code is blocking, because every task waits for the server.
//! This crate doesn't know the protocol between clients and the gateway.
//!
//! Some words have a fixed meaning here:
//!
//! - A database is *fresh* if it equals its template.
//! - A *ready* database is fresh and has no lease yet.
//! - A database is *in doubt* if the log can't show everything that has changed in it.
//! - A *seat* is the right of one backend to use one of the server's sessions for clients.
//! - A *stamp* is a text that changes when the catalogs that a session reads at its start change.
//! - A *mark* is a record that pgfresh writes to the log to learn how far the log has been flushed.
//! - A *note* is a file in a cache entry, in which one server leaves what it knows for the next one.
//!
//! Databases have these names:
//!
//! ```text
//! template database      pgfresh_template_NAME   nobody may connect
//! in preparation         pgfresh_preparing_N     programs that list databases may see it
//! ready database         pgfresh_ready_N         only backends that wait for a client are in it; nobody may connect
//! leased database        the client's name       renamed under its backends
//! ```

mod address;
mod admin;
mod attributes;
mod backend;
mod cached;
mod catalog;
mod claims;
mod client;
mod computed;
mod copies;
mod core;
mod counters;
mod digest;
mod drop;
mod error;
mod eviction;
mod evidence;
mod execute;
mod expected;
#[cfg(test)]
mod fake;
mod growth;
mod inner;
mod inspect;
mod isolation;
mod leased_server;
mod leases;
mod maintenance;
mod name_rules;
mod names;
mod naming;
mod note;
mod options;
mod pool;
mod processors;
mod reach;
mod reset;
mod resources;
mod rollback;
mod seats;
mod session;
mod shared;
mod shared_core;
mod slot;
mod stats;
mod status;
mod table;
mod template;
mod vacuum;
mod wal;

pub use backend::Backend;
pub use client::ClientLink;
pub use digest::{Difference, Digest};
pub use error::LeaseError;
pub use inspect::Inspection;
pub use isolation::Isolation;
pub use leased_server::ServerAction;
pub use leases::{Leases, MaintenanceGuard};
pub use name_rules::NameRules;
pub use names::cut;
pub use options::{LeaseOptions, TemplateDatabase};
pub use rollback::{
    BEGIN_LEASE, Constraints, DISCARD_ALL, LeaseTransaction, RELEASE_TRANSACTION, STAY_IDLE, Savepoint,
    UNBOUNDED, UNDO_TRANSACTION,
};
pub use seats::Seat;
pub use session::{ConnectRequest, Connected, Entered, SessionGuard, TransactionGuard};
pub use shared::SharedStateChange;
pub use status::{LeaseStatus, Status};
pub use wal::{Changes, FileChanges, Lsn, LsnError, RelationFile, SharedChange, WalError, WalReader};
