//! Ends a repeated session's wait that would never end by itself.

use std::collections::HashSet;
use std::time::Duration;

use super::catalog::Catalogs;
use super::error::LaboratoryError;

/// Time until the laboratory first checks what a session waits for, and between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time for a canceled statement to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(20);

/// Limits for one exchange.
#[derive(Debug)]
pub(super) struct Watch {
    pid: u32,
    /// Pids of the other repeated sessions. They don't make progress during the exchange, so a wait for them never
    /// ends.
    peers: HashSet<u32>,
    limit: Duration,
    /// Elapsed time at which the next check is due.
    next: Duration,
    /// Elapsed time at which the statement was canceled. `None` if it wasn't.
    cancelled: Option<Duration>,
    terminated: bool,
}

impl Watch {
    pub(super) fn new(pid: u32, peers: HashSet<u32>, limit: Duration) -> Self {
        Self { pid, peers, limit, next: POLL_INTERVAL, cancelled: None, terminated: false }
    }

    /// Returns true if the laboratory canceled the statement.
    pub(super) fn has_cancelled(&self) -> bool {
        self.cancelled.is_some()
    }

    /// Cancels the statement if it waits only for other repeated sessions, or if it takes too long. Ends the session if
    /// the statement then still runs.
    pub(super) fn tick(
        &mut self,
        elapsed: Duration,
        catalogs: &mut Catalogs<'_>,
    ) -> Result<(), LaboratoryError> {
        match self.cancelled {
            Some(at) if elapsed > at + 2 * CANCEL_TIMEOUT => {
                Err(LaboratoryError::Silent { event: "the end of a statement", after: elapsed })
            }
            Some(at) if elapsed > at + CANCEL_TIMEOUT && !self.terminated => {
                self.terminated = true;
                catalogs.interrupt(self.pid, true)
            }
            None if elapsed > self.next => {
                self.next = elapsed + POLL_INTERVAL;
                let blockers = catalogs.blockers(self.pid)?;
                let is_stuck = !blockers.is_empty() && blockers.is_subset(&self.peers);
                if is_stuck || elapsed > self.limit {
                    self.cancelled = Some(elapsed);
                    catalogs.interrupt(self.pid, false)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
