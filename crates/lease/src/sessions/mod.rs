//! Opens sessions in leased databases, for clients and for pgfresh itself.

pub(crate) mod inspect;
pub(crate) mod replica;
pub(crate) mod session;
pub(crate) mod terminate;
pub(crate) mod unleased;
