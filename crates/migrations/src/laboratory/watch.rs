//! Ends waits of a repeated session that would never end.

use std::collections::HashSet;
use std::time::Duration;

use super::catalog::Catalogs;
use super::error::LaboratoryError;

/// Time after which the laboratory asks what a session waits for, and between two such questions.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time for a cancelled statement to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(20);

/// Limits of one exchange.
#[derive(Debug)]
pub(super) struct Watch {
    pid: u32,
    /// Pids of the other repeated sessions. They make no progress meanwhile.
    peers: HashSet<u32>,
    limit: Duration,
    /// When the next question is due.
    next: Duration,
    /// When the statement was cancelled.
    cancelled: Option<Duration>,
    terminated: bool,
}

impl Watch {
    pub(super) fn new(pid: u32, peers: HashSet<u32>, limit: Duration) -> Self {
        Self { pid, peers, limit, next: POLL_INTERVAL, cancelled: None, terminated: false }
    }

    /// Returns true if the laboratory has cancelled the statement.
    pub(super) fn has_cancelled(&self) -> bool {
        self.cancelled.is_some()
    }

    /// Cancels the statement if it waits for another repeated session, or takes too long. Ends its session if that does
    /// not help.
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
