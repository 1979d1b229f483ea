//! Rollback isolation: a lease is one server session in one transaction, which is rolled back at its end.
//!
//! The client's own transactions are savepoints in it. [`RollbackSession`] decides about each message without input or
//! output. [`Drive`] feeds it from two sockets, and `lease` keeps the server's session and its database. A rollback
//! leaves nothing to clean up, so one database serves thousands of leases.
//!
//! ```text
//! BEGIN, SAVEPOINT pgfresh_lease            with the lease's first statement
//!   SAVEPOINT pgfresh_t … RELEASE           a statement alone, or the client's BEGIN … COMMIT; released with what comes next
//!   SAVEPOINT pgfresh_t … ROLLBACK TO …     one that failed, or the client's BEGIN … ROLLBACK
//! ROLLBACK                                  at the lease's end
//! ```

mod connection;
mod control;
mod drive;
mod gate;
mod message;
mod names;
mod parameters;
mod scope;
mod session;
mod settings;
mod settle;
mod statement;
#[cfg(test)]
mod stub;
mod task;
#[cfg(test)]
mod trace;

pub(crate) use connection::RollbackConnection;
pub(crate) use gate::Gate;
pub(crate) use session::RollbackSession;
