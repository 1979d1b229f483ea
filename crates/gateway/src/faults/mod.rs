//! Injects faults (errors, lost connections and delays) that a client has requested for one lease.
//!
//! A session whose lease has faults runs behind a [`FaultSession`](session::FaultSession), which sits between the
//! client and the session. The `FaultSession` recognizes where statements begin and end, and asks [`LeaseFaults`] at
//! each of these moments which fault is due. The session behind it, plain or in rollback isolation, sees only client
//! messages.
//!
//! Sessions whose lease has no faults bypass this module.

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
