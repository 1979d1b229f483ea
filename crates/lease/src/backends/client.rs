//! Represents the clients of open sessions. A lease needs to know only whether a client is connected, leaving or gone.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The gateway's link to the client of a session. The gateway downcasts the link to its own type with [`Any`].
pub trait ClientLink: Any + fmt::Debug + Send + Sync {
    /// Returns true if the client has closed its end of the connection, even if no thread has noticed yet.
    fn is_gone(&self) -> bool;
    /// Notifies the gateway that the server is terminating the session, so
    /// that the gateway stops waiting for the client to read earlier messages.
    fn close(&self);
}

/// The client of an open session.
#[derive(Debug)]
pub(crate) struct Client {
    link: Option<Arc<dyn ClientLink>>,
    leaving: AtomicBool,
    closed: AtomicBool,
}

impl Client {
    pub(crate) fn new(link: Option<Arc<dyn ClientLink>>) -> Self {
        Self { link, leaving: AtomicBool::new(false), closed: AtomicBool::new(false) }
    }

    /// Returns the gateway's link to the client, if there is one.
    pub(crate) fn link(&self) -> Option<Arc<dyn ClientLink>> {
        self.link.clone()
    }

    /// Records that the client is leaving. Returns `false` if an earlier call has already recorded this.
    pub(crate) fn leave(&self) -> bool {
        !self.leaving.swap(true, Ordering::Relaxed)
    }

    /// Notifies the client's link that the session and its backend are ending.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(link) = &self.link {
            link.close();
        }
    }

    /// Returns true if [`Self::close`] was called. The backend must then not serve another client, even if it is still
    /// running.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns true if [`Self::leave`] was called.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Returns true if the client still seems to be connected.
    pub(crate) fn is_present(&self) -> bool {
        !self.is_leaving() && !self.link.as_ref().is_some_and(|link| link.is_gone())
    }
}
