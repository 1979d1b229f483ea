//! Delays cancel requests until one of the client's own statements is running.
//!
//! A cancel request must not interrupt an injected statement, because this could break the lease's transaction.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use super::task::Turn;

/// How long a cancel request waits for injected statements to complete. Most take less than a millisecond.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks of the turn.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Prevents a session from running its next statement while a cancel request is in transit. The gate is a lock on the
/// session's turn (who owns the running statement). A cancel request holds this lock until the request has reached the
/// server, and the session must take the lock to change the turn.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Turn>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Turn::Nobody))
    }

    /// Changes the turn, after waiting for any cancel request in transit.
    pub(super) async fn set(&self, turn: Turn) {
        *self.0.lock().await = turn;
    }

    /// Waits until the running statement is the client's own, so that a cancel request can be sent. Returns `None` if
    /// there is nothing to interrupt. The caller must hold the returned lock until the server has received the request.
    pub(crate) async fn wait_for_client_turn(&self) -> Option<MutexGuard<'_, Turn>> {
        let begun = Instant::now();
        loop {
            let turn = self.0.lock().await;
            match *turn {
                Turn::Client => return Some(turn),
                Turn::Injected if begun.elapsed() < STATEMENT_TIMEOUT => {}
                Turn::Injected | Turn::Nobody => return None,
            }
            drop(turn);
            sleep(POLL_INTERVAL).await;
        }
    }
}
