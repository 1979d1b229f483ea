//! Manages the backends that serve clients and what pgfresh knows about these clients.

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod demand;
pub(crate) mod expected;
pub(crate) mod seats;
pub(crate) mod spares;
