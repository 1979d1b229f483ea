//! The state shared by all sessions of a gateway, and the handle for each connection.

use std::sync::Arc;

use lease::Leases;

use crate::Access;
use crate::cancel::CancelKeys;
use crate::closing::{Closing, closed};
use crate::connections::{ConnectionCount, OpenConnection};
use crate::faults::Faults;
use crate::http::HttpService;
use crate::statement_tap::Taps;
use crate::workers::Workers;

/// Shared state of all sessions.
#[derive(Debug)]
pub(crate) struct GatewayState {
    pub(crate) leases: Leases,
    pub(crate) access: Arc<Access>,
    /// Service for HTTP requests, if there is one.
    pub(crate) http: Option<Arc<dyn HttpService>>,
    pub(crate) keys: Arc<CancelKeys>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) connections: ConnectionCount,
    pub(crate) taps: Arc<Taps>,
    pub(crate) faults: Arc<Faults>,
}

/// Handle for an open connection. The connection counts as open while the handle exists. The handle also signals when
/// the gateway closes.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionHandle {
    closing: Closing,
    _open: OpenConnection,
}

impl ConnectionHandle {
    pub(crate) fn new(closing: Closing, connections: &ConnectionCount) -> Self {
        Self { closing, _open: connections.open() }
    }

    /// Waits until the gateway closes.
    pub(crate) async fn closed(&self) {
        closed(&mut self.closing.clone()).await;
    }
}
