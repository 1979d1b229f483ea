//! Rollback isolation: undoes everything a test does in its database with a single ROLLBACK.
//!
//! Each lease is one server session with one transaction, which pgfresh rolls back when the lease ends. There is
//! nothing else to clean up, so one database can serve thousands of leases. Since clients must not notice any of this,
//! their own transactions become savepoints within the lease's transaction.
//!
//! [`RollbackSession`] decides what happens to each message, without input or output. [`Drive`](drive::Drive) connects
//! this state machine to the two sockets. Between client sessions, the `lease` crate holds on to the server's session
//! and its database.
//!
//! Terms in this module:
//!
//! - An *injected* statement comes from the gateway itself. The client doesn't see its result.
//! - A *group* is the client's messages in the extended protocol up to a Sync.
//! - The *turn* is the owner of the running statement: the client, the gateway (for an injected statement), or none.
//! - A *commit* in this module does the work of the client's COMMIT, although no real COMMIT reaches the server.
//!
//! ```text
//! BEGIN, SAVEPOINT pgfresh_lease            with the lease's first statement
//!   SAVEPOINT pgfresh_t … RELEASE           a statement alone, or the client's BEGIN … COMMIT; released with what comes next
//!   SAVEPOINT pgfresh_t … ROLLBACK TO …     one that failed, or the client's BEGIN … ROLLBACK
//! ROLLBACK                                  at the lease's end
//! ```

mod commit;
mod connection;
mod control;
#[cfg(test)]
mod conversation_tests;
mod drive;
mod gate;
mod message;
mod parameters;
mod session;
mod setting_changes;
mod settings;
mod statement;
mod statement_names;
#[cfg(test)]
mod stub;
mod task;

pub(crate) use connection::RollbackConnection;
pub(crate) use gate::Gate;
pub(crate) use session::RollbackSession;
