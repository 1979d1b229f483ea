//! Interface for a service that answers HTTP requests on the gateway's port.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use crate::Stream;

/// A service for HTTP connections.
pub trait HttpService: Debug + Send + Sync {
    /// Serves one connection until it ends. The service receives all of the connection's bytes, from the first one on.
    fn serve(self: Arc<Self>, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
