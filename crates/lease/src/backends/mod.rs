//! Backends of the server that serve clients, and what pgfresh knows about the clients.

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod expected;
pub(crate) mod seats;
