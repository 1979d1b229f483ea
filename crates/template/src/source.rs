//! Another way to a template than building it: from a place where others have put it.

use std::fmt;

use storage::{Building, Entry};

/// Where templates may come from, and where they may go once they are built.
pub trait TemplateSource: fmt::Debug + Send + Sync {
    /// Brings the template into the cache, if it is there and has at most `limit` bytes. `progress` is told of bytes that have
    /// come, and of their sum.
    ///
    /// # Errors
    /// Why not, in one line; it can be built then.
    fn fetch(
        &self,
        fingerprint: &str,
        building: &Building,
        limit: u64,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Option<Entry>, String>;

    /// Takes a template that was built here, if it takes any; the bytes that were sent.
    ///
    /// # Errors
    /// Why not, in one line.
    fn offer(&self, entry: &Entry, progress: &dyn Fn(u64, u64)) -> Result<Option<u64>, String>;
}
