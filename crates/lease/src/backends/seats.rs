//! Divides the server's sessions between clients and pgfresh, which reserves some so that it can rename, reset, copy
//! and drop databases even if there are too many clients.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sys::{lock, sound};

/// pgfresh reserves one out of this many sessions for itself, but at least [`LEAST_OWN`] in total.
const SHARE: usize = 16;
/// Minimum number of sessions that pgfresh needs: four for statements in the `postgres` database and [`ELSEWHERE`] for
/// other databases.
const LEAST_OWN: usize = 6;
/// How many of pgfresh's own sessions are for databases other than `postgres`.
const ELSEWHERE: usize = 2;

/// How a server's sessions are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Number of sessions for clients, including idle backends waiting for one.
    pub(crate) clients: usize,
    /// Number of sessions for pgfresh's statements in the `postgres` database.
    pub(crate) at_work: usize,
}

impl Shares {
    /// Divides the sessions of a server. Clients get at least half of them.
    pub(crate) fn of(sessions: usize) -> Self {
        let own = (sessions / SHARE).max(LEAST_OWN).min(sessions / 2);
        Self { clients: sessions - own, at_work: own.saturating_sub(ELSEWHERE) }
    }
}

/// Counts the sessions for clients.
#[derive(Debug)]
pub(crate) struct Seats {
    most: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

/// One backend's right to use one of the clients' sessions, to be dropped along with the backend's connection. The
/// default value is for backends that don't use up any of these sessions: replication backends and those in leased
/// servers.
#[derive(Debug, Default)]
pub struct Seat(Option<Arc<Seats>>);

impl Seats {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), freed: Condvar::new() })
    }

    /// Returns the number of sessions for clients.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Takes a seat, if one is free.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Seat> {
        self.take_within(Duration::ZERO)
    }

    /// Takes a seat, waiting for a free one if necessary. Returns `None` if no seat becomes free within `timeout`.
    pub(crate) fn take_within(self: &Arc<Self>, timeout: Duration) -> Option<Seat> {
        let is_full = |taken: &mut usize| *taken >= self.most;
        let waited = self.freed.wait_timeout_while(lock(&self.taken), timeout, is_full);
        let (mut taken, waited) = sound(waited);
        if waited.timed_out() {
            return None;
        }
        *taken += 1;
        Some(Seat(Some(Arc::clone(self))))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seats) = &self.0 {
            *lock(&seats.taken) -= 1;
            seats.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn server_sessions_split_into_client_and_work_shares() {
        for (sessions, clients, at_work) in
            [(320, 300, 18), (1000, 938, 60), (24, 18, 4), (14, 8, 4), (8, 4, 2), (1, 1, 0)]
        {
            assert_eq!(Shares::of(sessions), Shares { clients, at_work }, "{sessions}");
        }
    }

    #[test]
    fn taking_a_seat_waits_until_free_or_timeout() {
        let seats = Seats::new(2);
        let (one, _other) = (seats.try_take().unwrap(), seats.try_take().unwrap());
        assert!(seats.try_take().is_none());
        assert!(seats.take_within(Duration::from_millis(10)).is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| seats.take_within(Duration::from_mins(1)).is_some());
            drop(one);
            assert!(waits.join().unwrap());
        });
        drop(Seat::default());
        assert!(seats.try_take().is_some(), "the other thread's is free again");
    }
}
