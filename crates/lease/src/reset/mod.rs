//! Resets used databases to their template's state, based on a record of the template's contents.

pub(crate) mod catalog;
pub(crate) mod digest;
pub(crate) mod expressions;
pub(crate) mod growth;
pub(crate) mod note;
pub(crate) mod recycle;
pub(crate) mod rollback;
pub(crate) mod stats;
mod vacuum;
