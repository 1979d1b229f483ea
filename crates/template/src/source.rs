//! Defines the interface to sources that can provide a template without a build, such as a remote.

use std::error::Error;
use std::fmt;

use storage::{Building, Entry};

/// Result of asking a source for a template.
pub enum FetchResult {
    /// The source had the template, which is now in the cache.
    Fetched(Entry),
    /// The caller must build the template. As long as the caller holds this value, other
    /// machines wait for the caller's build instead of building the template themselves.
    Missing(Option<Box<dyn Send>>),
}

/// Progress report of a fetch.
#[derive(Debug, Clone, Copy)]
pub enum FetchProgress {
    /// Another machine is building the template.
    Waiting,
    /// The template is being received. This is reported repeatedly until the fetch finishes.
    Receiving {
        /// Number of bytes received so far.
        done: u64,
        /// Size of the whole template, in bytes.
        total: u64,
    },
}

/// A source's failure. The caller can still build the template.
#[derive(Debug, thiserror::Error)]
#[error("{source_name}: {reason}")]
pub struct SourceError {
    /// Name of the source, e.g. its address without credentials.
    pub source_name: String,
    /// Cause of the failure, with a one-line message.
    pub reason: Box<dyn Error + Send + Sync>,
}

/// A source of templates, which pgfresh can fetch instead of building
/// them. The source may also accept templates built on this machine.
pub trait TemplateSource: fmt::Debug + Send + Sync {
    /// Puts the template into the cache if the source has it. If another machine is building the template, waits for
    /// that build. The template can have at most `limit` bytes.
    ///
    /// # Errors
    /// Returns an error if the source failed, or if its template is too large or isn't trusted.
    fn fetch(
        &self,
        fingerprint: &str,
        building: &Building,
        limit: u64,
        progress: &dyn Fn(FetchProgress),
    ) -> Result<FetchResult, SourceError>;

    /// Offers the source a template built on this machine. Returns the number of bytes sent, or `None` if the source
    /// doesn't accept templates.
    ///
    /// # Errors
    /// Returns an error if the source failed.
    fn offer(&self, entry: &Entry, progress: &dyn Fn(u64, u64)) -> Result<Option<u64>, SourceError>;
}
