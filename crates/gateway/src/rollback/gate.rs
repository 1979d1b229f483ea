//! Gate that delays cancel requests until a statement of the client runs.
//!
//! A cancel request must not interrupt an injected statement, because this could break the lease's transaction.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use super::task::Turn;

/// Maximum time that a cancel request waits for injected statements to end. Most injected statements take less than a
/// millisecond.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two checks of the turn.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Prevents a session from running its next statement while a cancel request is in transit. It is a lock on the
/// session's turn, i.e. on who owns the running statement. A cancel request holds the lock until the server has
/// received it, and the session must take the lock to change the turn.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Turn>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Turn::Nobody))
    }

    /// Changes the turn. If a cancel request is in transit, waits for it first.
    pub(super) async fn set(&self, turn: Turn) {
        *self.0.lock().await = turn;
    }

    /// Waits until the running statement is the client's own, so that a cancel request can be sent. Returns `None` if
    /// there is nothing to interrupt. The caller must keep the returned lock until the server has received the request.
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
