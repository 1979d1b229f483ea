//! Interface for a service that answers HTTP requests on the gateway's port.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use crate::Stream;

/// A service for connections on which the client speaks HTTP.
pub trait HttpService: Debug + Send + Sync {
    /// Serves one connection until it ends. The gateway has not consumed any bytes of the connection.
    fn serve(self: Arc<Self>, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
