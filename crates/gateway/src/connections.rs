//! Counts open connections, and measures for how long there have been none.
//!
//! Background servers stop once they have been idle for a while.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sys::lock;

/// Number of open connections to one gateway. Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionCount(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    open: usize,
    last_left: Instant,
}

/// An open connection. The connection counts as closed once all clones of this guard are dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(ConnectionCount);

impl ConnectionCount {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { open: 0, last_left: Instant::now() })))
    }

    pub(crate) fn open(&self) -> OpenConnection {
        lock(&self.0).open += 1;
        OpenConnection(self.clone())
    }

    /// Returns how long there has been no open connection, or `None` while there is one.
    pub(crate) fn idle(&self) -> Option<Duration> {
        let state = lock(&self.0);
        (state.open == 0).then(|| state.last_left.elapsed())
    }
}

impl Clone for OpenConnection {
    fn clone(&self) -> Self {
        self.0.open()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.open -= 1;
        state.last_left = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_begins_after_last_connection() {
        let count = ConnectionCount::new();
        let (one, other) = (count.open(), count.open());
        drop(one);
        assert_eq!(count.idle(), None);
        drop(other);
        assert!(count.idle().is_some());
    }
}
