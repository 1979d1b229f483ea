//! Defines the interface to the service that handles HTTP requests on the gateway's port.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use crate::Stream;

/// A service for HTTP connections.
pub trait HttpService: Debug + Send + Sync {
    /// Serves one connection until it closes. `stream` yields all of the connection's bytes, from the very first.
    fn serve(self: Arc<Self>, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
