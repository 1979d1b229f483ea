//! Gate for cancel requests, which may reach the server only while a statement of the client runs.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use super::task::Turn;

/// Longest time that a request waits for the end of an injected statement; most take less than a millisecond.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two checks of the turn.
const LOOK: Duration = Duration::from_millis(1);

/// Lock on the turn of a session. A cancel request holds it while it is on its way, and the session while its turn
/// changes.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Turn>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Turn::Nobody))
    }

    /// Changes the turn, after a request that is on its way.
    pub(super) async fn set(&self, turn: Turn) {
        *self.0.lock().await = turn;
    }

    /// Admits a request; `None` if there is nothing to interrupt. The caller holds the lock until the server has the
    /// request.
    pub(crate) async fn enter(&self) -> Option<MutexGuard<'_, Turn>> {
        let begun = Instant::now();
        loop {
            let turn = self.0.lock().await;
            match *turn {
                Turn::Client => return Some(turn),
                Turn::Injected if begun.elapsed() < STATEMENT_TIMEOUT => {}
                Turn::Injected | Turn::Nobody => return None,
            }
            drop(turn);
            sleep(LOOK).await;
        }
    }
}
