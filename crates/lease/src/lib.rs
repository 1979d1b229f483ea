//! Databases handed out: a fresh copy of a template for each name, and what becomes of it afterwards.
//!
//! Makes [`Databases`], which keeps a pool of ready copies with warm backends in them, and gives a session of any kind
//! to any name. All of it is blocking code on a few threads: what it waits for is the server. It knows nothing of the
//! clients' side of the wire.
//!
//! ```text
//! template database      pgfresh_template_NAME   nobody may connect
//! ready database         pgfresh_ready_N         only our warm backends are in it
//! leased database        the client's name       renamed under its warm backends
//! database to be dropped pgfresh_old_N           its lease has ended
//! ```

mod alone;
mod backend;
mod databases;
mod digest;
mod error;
mod isolation;
mod keeper;
mod leaks;
mod leases;
mod own;
mod recycle;
mod rest;
mod room;
mod sequences;
mod shape;
mod sql;
mod state;
mod table;
mod template;
mod wal;

pub use backend::{Backend, Kind};
pub use databases::{
    Connected, Databases, Difference, LeaseStatus, Origin, Request, Status, TemplateDatabase, Tenancy,
};
pub use digest::Digest;
pub use error::LeaseError;
pub use isolation::Isolation;
pub use leaks::Leak;
pub use own::{Servers, Turn};
pub use sequences::Sequences;
pub use wal::{Changes, FileChanges, Lsn, LsnError, RelationFile, SharedChange, WalError, WalReader};
