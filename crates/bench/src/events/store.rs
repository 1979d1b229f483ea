//! Defines the interface of event stores.

use super::event::Event;
use crate::BenchError;

/// An event store. Its configuration determines whether appended events are durable.
pub(crate) trait Store {
    /// Returns the server's name and version.
    fn version(&self) -> &str;

    fn append(&mut self, event: &Event) -> Result<(), BenchError>;
}
