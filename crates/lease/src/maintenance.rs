//! Maintenance workers: make databases ready, end leases, drop what is left of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::inner::Inner;
use crate::table::Event;

/// How long a worker waits where nothing is due.
const LONGEST_IDLE: Duration = Duration::from_mins(10);

/// Works until the leases are closed.
pub(crate) fn work(inner: &Arc<Inner>) {
    loop {
        let mut core = inner.lock();
        if core.closed {
            return;
        }
        core.raise_in_background(Event::Tick);
        let soonest = match core.next_task() {
            Ok(task) => {
                drop(core);
                inner.run(task, None);
                continue;
            }
            Err(soonest) => soonest,
        };
        let (now, reads_log_at) = (Instant::now(), core.reads_log_at());
        if reads_log_at.is_some_and(|time| time <= now) {
            core.caught_up = Some(now);
            drop(core);
            catch_up(inner);
            continue;
        }
        let until = soonest.into_iter().chain(reads_log_at).min();
        inner.wait(core, until.unwrap_or(now + LONGEST_IDLE));
    }
}

fn catch_up(inner: &Inner) {
    if let Err(error) = inner.evidence.catch_up(&inner.admin) {
        inner.report("read the log", &error.to_string());
    }
    for failure in inner.evidence.take_failures() {
        inner.report("follow the log", &failure);
    }
}
