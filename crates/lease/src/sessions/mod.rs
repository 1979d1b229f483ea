//! Opens, inspects and terminates sessions, in leased databases and in others, for clients and for pgfresh itself.

pub(crate) mod inspect;
pub(crate) mod replica;
pub(crate) mod session;
pub(crate) mod terminate;
pub(crate) mod unleased;
