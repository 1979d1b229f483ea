//! What takes events.

use super::event::Event;
use crate::BenchError;

/// Whatever takes events, each of them durably or as durably as it does by default.
pub(crate) trait Store {
    /// Which server it is, and its version.
    fn version(&self) -> &str;

    fn append(&mut self, event: &Event) -> Result<(), BenchError>;
}
