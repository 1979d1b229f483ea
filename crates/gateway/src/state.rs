//! What all sessions of a gateway share.

use std::sync::Arc;

use lease::Leases;

use crate::Access;
use crate::cancel::CancelKeys;
use crate::closing::{Closing, closed};
use crate::connections::{ConnectionCount, ConnectionGuard};
use crate::http::HttpService;
use crate::tap::Taps;
use crate::workers::Workers;

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct GatewayState {
    pub(crate) leases: Leases,
    pub(crate) access: Arc<Access>,
    /// What serves HTTP, if anything does.
    pub(crate) http: Option<Arc<dyn HttpService>>,
    pub(crate) keys: Arc<CancelKeys>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) connections: ConnectionCount,
    pub(crate) taps: Arc<Taps>,
}

/// What a connection holds until it has ended, on any thread: it hears that the gateway closes, and counts as open.
#[derive(Debug, Clone)]
pub(crate) struct Presence {
    closing: Closing,
    _open: ConnectionGuard,
}

impl Presence {
    pub(crate) fn new(closing: Closing, connections: &ConnectionCount) -> Self {
        Self { closing, _open: connections.enter() }
    }

    /// Waits until the gateway closes.
    pub(crate) async fn closed(&mut self) {
        closed(&mut self.closing).await;
    }
}
