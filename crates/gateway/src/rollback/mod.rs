//! Rollback isolation: undoes everything that a test does in its database with a single ROLLBACK.
//!
//! Each lease is one server session with one transaction. When the lease ends, pgfresh rolls this transaction back.
//! There is nothing else to clean up, so one database can serve thousands of leases. Clients must not notice any of
//! this. Their own transactions therefore become savepoints within the lease's transaction.
//!
//! [`RollbackSession`] decides what happens to each message, without input or output. [`Drive`](drive::Drive) connects
//! it to the two sockets. The crate `lease` keeps the server's session and its database between the client's sessions.
//!
//! Terms in this module:
//!
//! - An *injected* statement comes from the gateway itself. The client does not see its result.
//! - A *group* is the client's messages in the extended protocol up to a Sync.
//! - The *turn* says whose statement is running now: the client's, the gateway's (an injected statement), or none.
//! - A *commit* in this module does what the client's COMMIT must do, although no real COMMIT reaches the server.
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
