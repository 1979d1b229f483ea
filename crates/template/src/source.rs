//! Sources of templates besides builds, such as a remote.

use std::fmt;

use storage::{Building, Entry};

/// Result of a search for a template in a source.
pub enum Sought {
    /// The source had the template, and it is in the cache now.
    Fetched(Entry),
    /// The template has to be built. While the value lives, other machines wait for the build instead of repeating
    /// it.
    Missing(Option<Box<dyn Send>>),
}

/// Progress of a fetch.
#[derive(Debug, Clone, Copy)]
pub enum SeekStep {
    /// Another machine builds the template.
    Waiting,
    /// The template arrives. Repeats until its end.
    Receiving {
        /// Bytes that have arrived.
        done: u64,
        /// Bytes of the whole template.
        total: u64,
    },
}

/// Source of templates besides builds. It may also take the templates that this machine builds.
pub trait TemplateSource: fmt::Debug + Send + Sync {
    /// Brings the template into the cache if the source has it in at most `limit` bytes. Waits for another machine
    /// that builds it.
    ///
    /// # Errors
    /// One line with the reason. The caller can still build the template.
    fn fetch(
        &self,
        fingerprint: &str,
        building: &Building,
        limit: u64,
        progress: &dyn Fn(SeekStep),
    ) -> Result<Sought, String>;

    /// Offers a template that this machine built. Returns the number of sent bytes, or `None` if the source takes no
    /// templates.
    ///
    /// # Errors
    /// One line with the reason.
    fn offer(&self, entry: &Entry, progress: &dyn Fn(u64, u64)) -> Result<Option<u64>, String>;
}
