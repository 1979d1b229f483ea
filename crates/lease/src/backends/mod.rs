//! Starts, retains and lends the backends that serve clients, and predicts which backends the next clients will need.

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod demand;
pub(crate) mod expected;
pub(crate) mod seats;
pub(crate) mod spares;
