//! The interface of the event stores.

use super::event::Event;
use crate::BenchError;

/// An event store. Its configuration decides whether appended events are durable.
pub(crate) trait Store {
    /// Returns the name and version of the server.
    fn version(&self) -> &str;

    fn append(&mut self, event: &Event) -> Result<(), BenchError>;
}
