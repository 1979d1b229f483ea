//! Owns the threads and the databases' resources, and runs the table's tasks in the server.

pub(crate) mod attributes;
mod cached;
mod checkout;
mod claims;
mod contention;
mod copies;
pub(crate) mod core;
mod drop;
mod execute;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod inner;
pub(crate) mod leased_server;
pub(crate) mod leases;
mod maintenance;
mod naming;
mod pool;
pub(crate) mod replica;
pub(crate) mod requests;
pub(crate) mod resources;
pub(crate) mod shared;
mod shared_core;
pub(crate) mod status;
pub(crate) mod stock;
pub(crate) mod template;
#[cfg(test)]
mod tests;
