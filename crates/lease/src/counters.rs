//! What is counted, and what has failed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::digest::Difference;

/// How long the cause of a failure is not said again.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// What happened since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) created: (u64, Duration),
    pub(crate) recycled: (u64, Duration),
    pub(crate) warm: u64,
    pub(crate) cold: u64,
    pub(crate) differences: Vec<Difference>,
    /// Tasks of the background that failed, by what was tried.
    pub(crate) errors: HashMap<&'static str, u64>,
    /// When each cause of these was last said.
    said: HashMap<(&'static str, String), Instant>,
}

impl Counters {
    /// Whether that cause of a failure was not said of late.
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
    fn a_cause_is_said_once_however_often_it_makes_a_task_fail() {
        let mut counters = Counters::default();
        let said = (0..10).filter(|_| counters.is_news("drop a database", "it is in use")).count();
        assert_eq!(said, 1);
        assert!(counters.is_news("drop a database", "the server has ended"));
        assert!(counters.is_news("reset a database", "it is in use"));
    }
}
