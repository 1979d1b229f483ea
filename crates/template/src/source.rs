//! Another way to a template than building it: from a place where others have put it.

use std::fmt;

use storage::{Building, Entry};

/// What came of looking for a template elsewhere.
pub enum Sought {
    /// It is in the cache.
    Fetched(Entry),
    /// It is to be built. Others wait for it instead of building it, too, until what is in here is dropped.
    Missing(Option<Box<dyn Send>>),
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub enum SeekStep {
    /// Another machine builds it.
    Waiting,
    /// It comes; told again and again.
    Receiving {
        /// Bytes that have come.
        done: u64,
        /// Of so many.
        total: u64,
    },
}

/// Where templates may come from, and where they may go once they are built.
pub trait TemplateSource: fmt::Debug + Send + Sync {
    /// Brings the template into the cache, if it is there and has at most `limit` bytes, or if another machine is building it.
    ///
    /// # Errors
    /// Why not, in one line; it can be built then.
    fn fetch(
        &self,
        fingerprint: &str,
        building: &Building,
        limit: u64,
        progress: &dyn Fn(SeekStep),
    ) -> Result<Sought, String>;

    /// Takes a template that was built here, if it takes any; the bytes that were sent.
    ///
    /// # Errors
    /// Why not, in one line.
    fn offer(&self, entry: &Entry, progress: &dyn Fn(u64, u64)) -> Result<Option<u64>, String>;
}
