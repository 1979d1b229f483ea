//! The clients of open sessions, as far as a lease has to know them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A client's end of a session.
pub trait ClientLink: fmt::Debug + Send + Sync {
    /// Whether it has closed its end of the connection, noticed or not.
    fn is_gone(&self) -> bool;
    /// The server ends its session: it is not waited for until it has read what it was told before.
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

    /// Takes note that it leaves; false if that was known.
    pub(crate) fn leave(&self) -> bool {
        !self.leaving.swap(true, Ordering::Relaxed)
    }

    /// Tells it that its session ends, and its backend with it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(link) = &self.link {
            link.close();
        }
    }

    /// Whether it was told so. Its backend serves no other client, even if it has not heard of it yet.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether it is known to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Whether it is still there, as far as can be seen.
    pub(crate) fn is_present(&self) -> bool {
        !self.is_leaving() && !self.link.as_ref().is_some_and(|link| link.is_gone())
    }
}
