//! Decides whether another run of the command can begin.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sys::lock;

use crate::failure::Failure;

/// Admits runs until the budget is used up, a signal arrives, or pgfresh itself fails. Runs that have already begun
/// continue to their end, so the trials take at most the budget plus the longest run.
#[derive(Debug)]
pub(super) struct RunGate<'a> {
    begun: Instant,
    budget: Duration,
    interrupted: &'a AtomicBool,
    /// pgfresh's first failure, such as a server that doesn't start.
    failure: Mutex<Option<Failure>>,
}

/// Reason why further runs can't begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    Interrupted,
    Failed,
    Spent,
    /// The first half of the budget is used up. From then on, pgfresh doesn't begin to record further tests.
    HalfSpent,
}

impl<'a> RunGate<'a> {
    pub(super) fn new(budget: Duration, interrupted: &'a AtomicBool) -> Self {
        Self { begun: Instant::now(), budget, interrupted, failure: Mutex::default() }
    }

    /// Returns why further runs can't begin, or `None` if they can.
    pub(super) fn closed(&self) -> Option<Closed> {
        self.closed_after(self.budget, Closed::Spent)
    }

    /// Returns why further tests can't be recorded, or `None` if they can.
    pub(super) fn closed_for_tests(&self) -> Option<Closed> {
        self.closed_after(self.budget / 2, Closed::HalfSpent)
    }

    fn closed_after(&self, share: Duration, spent: Closed) -> Option<Closed> {
        if self.is_interrupted() {
            Some(Closed::Interrupted)
        } else if lock(&self.failure).is_some() {
            Some(Closed::Failed)
        } else {
            (self.begun.elapsed() >= share).then_some(spent)
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Prevents further runs because of a failure. Stores only the first failure.
    pub(super) fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
    }

    /// Takes the first failure, if there is one.
    pub(super) fn take_failure(&self) -> Option<Failure> {
        lock(&self.failure).take()
    }

    /// Returns the reason as a clause.
    pub(super) fn reason(&self, closed: Closed) -> String {
        let budget = humane(self.budget);
        match closed {
            Closed::Interrupted => "a signal has ended the trials".to_owned(),
            Closed::Failed => "pgfresh has failed".to_owned(),
            Closed::Spent => format!("the budget of {budget} is spent: --budget sets a larger budget"),
            Closed::HalfSpent => {
                format!(
                    "runs without faults have used half of the budget of {budget}: --budget sets a larger budget"
                )
            }
        }
    }
}

/// Formats a duration in seconds, or in milliseconds below one second.
fn humane(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 1..1000 => format!("{millis} ms"),
        _ => format!("{} s", duration.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_closes_after_budget_signal_or_failure() {
        let interrupted = AtomicBool::new(false);
        let gate = RunGate::new(Duration::from_hours(1), &interrupted);
        assert_eq!((gate.closed(), gate.closed_for_tests()), (None, None));
        gate.fail(Failure::new("first"));
        gate.fail(Failure::new("second"));
        assert_eq!(gate.closed(), Some(Closed::Failed));
        interrupted.store(true, Ordering::Relaxed);
        assert_eq!(gate.closed(), Some(Closed::Interrupted));
        assert!(gate.take_failure().unwrap().to_string().contains("first"));
        interrupted.store(false, Ordering::Relaxed);
        let gate = RunGate::new(Duration::ZERO, &interrupted);
        assert_eq!((gate.closed(), gate.closed_for_tests()), (Some(Closed::Spent), Some(Closed::HalfSpent)));
        assert!(gate.reason(Closed::Spent).contains("the budget of 0 s is spent"));
        let gate = RunGate::new(Duration::from_millis(1), &interrupted);
        assert!(gate.reason(Closed::Spent).contains("of 1 ms"));
    }
}
