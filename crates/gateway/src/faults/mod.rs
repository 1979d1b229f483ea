//! Faults: errors, lost connections and delays that a client has requested for one lease.
//!
//! A session of a lease with faults runs behind a [`FaultSession`](session::FaultSession), which sits on the client's
//! side of the session. It knows where statements begin and end, and asks [`LeaseFaults`] at each of these moments which
//! fault is due. The session behind it, plain or in rollback isolation, sees only the messages of a client.
//!
//! Sessions of leases without faults do not pass through this module.

mod errors;
mod fault;
mod lease_faults;
mod registry;
#[allow(dead_code, reason = "the drive comes next")]
mod session;
mod statement;

pub use fault::{Fault, FaultEffect, FaultError, FaultMoment};
pub use registry::{Faults, UnfiredFault};
