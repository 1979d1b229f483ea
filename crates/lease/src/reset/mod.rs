//! Restores the state of a template in a used database, and knows the template's contents for this.

pub(crate) mod catalog;
pub(crate) mod digest;
pub(crate) mod expressions;
pub(crate) mod growth;
pub(crate) mod note;
pub(crate) mod recycle;
pub(crate) mod rollback;
pub(crate) mod stats;
mod vacuum;
