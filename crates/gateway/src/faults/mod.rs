//! Faults: errors, lost connections and delays that a client has requested for one lease.
//!
//! A session of a lease with faults runs behind a [`FaultSession`](session::FaultSession), which sits on the client's
//! side of the session. It knows where statements begin and end, and asks [`LeaseFaults`] at each of these moments which
//! fault is due. The session behind it, plain or in rollback isolation, sees only the messages of a client.
//!
//! Sessions of leases without faults do not pass through this module.

mod begin;
mod connect;
mod drive;
mod errors;
mod fault;
mod hold;
mod lease_faults;
mod order;
mod pace;
mod registry;
mod scope;
mod session;
mod sql_request;
mod statement;
mod switch;
mod switched_session;

pub use fault::{Fault, FaultEffect, FaultError};
pub use registry::{Faults, PlannedFault, UnfiredFault};

pub(crate) use connect::{Delayed, HitConnection};
pub(crate) use errors::fatal;
pub(crate) use hold::Hold;
pub(crate) use lease_faults::LeaseFaults;
pub(crate) use order::FaultOrder;
pub(crate) use scope::FaultScope;
pub(crate) use sql_request::{has_request, requests_fault};
pub(crate) use switch::switch;
pub(crate) use switched_session::{ClientSide, SessionFacts};
