//! Resets used databases to their template's state. To be able to do so, also records what the template contains.

pub(crate) mod catalog;
pub(crate) mod digest;
pub(crate) mod expressions;
pub(crate) mod growth;
pub(crate) mod note;
pub(crate) mod recycle;
pub(crate) mod rollback;
pub(crate) mod stats;
mod vacuum;
