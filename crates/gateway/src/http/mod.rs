//! HTTP on the gateway's port.

use std::sync::Arc;

use database::Databases;

use crate::{Access, Stream};

/// Serves the requests that come over one connection.
pub(crate) async fn serve(stream: Stream, databases: Databases, access: Arc<Access>) {
    drop((stream, databases, access));
}
