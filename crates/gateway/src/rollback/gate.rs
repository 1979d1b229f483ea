//! When a cancel request may reach the server: while a statement of the client's runs, and never one of ours.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use super::task::Turn;

/// How long a request may wait for a statement of ours to end; most take less than a millisecond.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// Held by the task that interrupts the session, and for a moment by the session when its turn changes.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Turn>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Turn::Nobody))
    }

    /// Waits for a request that is on its way.
    pub(super) async fn set(&self, turn: Turn) {
        *self.0.lock().await = turn;
    }

    /// Lets a request through; `None` if nothing is to be interrupted. What it returns is held until the server has it.
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
