//! Event counts, and errors of background work.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::digest::Difference;

/// How long pgfresh waits before it reports the same cause of a failure again.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// Counts of events since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) created: (u64, Duration),
    pub(crate) recycled: (u64, Duration),
    pub(crate) warm: u64,
    pub(crate) cold: u64,
    pub(crate) differences: Vec<Difference>,
    /// Number of failed background tasks, by purpose.
    pub(crate) errors: HashMap<&'static str, u64>,
    /// Time of the last report, by purpose and cause.
    said: HashMap<(&'static str, String), Instant>,
}

impl Counters {
    /// Whether this cause of a failure has not been reported lately. If so, counts as a report.
    pub(crate) fn is_news(&mut self, verb: &'static str, why: &str) -> bool {
        self.said.retain(|_, last| last.elapsed() < SAY_AGAIN);
        let is_news = !self.said.contains_key(&(verb, why.to_owned()));
        if is_news {
            self.said.insert((verb, why.to_owned()), Instant::now());
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_task_failure_is_reported_once_per_cause() {
        let mut counters = Counters::default();
        let said = (0..10).filter(|_| counters.is_news("drop a database", "it is in use")).count();
        assert_eq!(said, 1);
        assert!(counters.is_news("drop a database", "the server has ended"));
        assert!(counters.is_news("reset a database", "it is in use"));
    }
}
