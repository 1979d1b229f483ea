//! Gate that delays cancel requests until a statement of the client runs.
//!
//! A cancel request that interrupted an injected statement could break the lease's transaction.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use super::task::Turn;

/// Maximum time for which a request waits for an injected statement to end. Most of these take less than a millisecond.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two checks of the turn.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Lock on a session's turn, i.e. on who owns the running statement. A cancel request holds the lock while it is in
/// transit. The session holds it while it changes the turn.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Turn>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Turn::Nobody))
    }

    /// Changes the turn. Waits for a cancel request that is in transit.
    pub(super) async fn set(&self, turn: Turn) {
        *self.0.lock().await = turn;
    }

    /// Waits until a cancel request can be sent. Returns `None` if there is nothing to interrupt. The caller must hold
    /// the lock until the server has received the request.
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
