//! HTTP comes in by the gateway's port; what serves it is not the gateway's business.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use crate::Stream;

/// Serves connections on which a client speaks HTTP.
pub trait HttpService: Debug + Send + Sync {
    /// Serves one until it ends. Nothing of it has been read.
    fn serve(self: Arc<Self>, stream: Stream) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
