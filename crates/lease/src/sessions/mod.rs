//! Sessions of clients, and the backends of the server that serve them.

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod expected;
pub(crate) mod inspect;
pub(crate) mod rollback;
pub(crate) mod seats;
pub(crate) mod session;
