//! The interface of event stores.

use super::event::Event;
use crate::BenchError;

/// An event store. Whether appended events are durable depends on its configuration.
pub(crate) trait Store {
    /// Returns the name and version of the server.
    fn version(&self) -> &str;

    fn append(&mut self, event: &Event) -> Result<(), BenchError>;
}
