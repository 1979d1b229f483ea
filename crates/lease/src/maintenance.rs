//! Maintenance workers: make databases ready, end leases, drop what is left of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::CATCH_UP;
use crate::inner::Inner;
use crate::table::Event;

/// How long a worker waits where nothing is due.
const LONGEST_IDLE: Duration = Duration::from_mins(10);

/// Works until the leases are closed.
pub(crate) fn work(inner: &Arc<Inner>) {
    let mut caught_up = Instant::now();
    loop {
        let mut core = inner.lock();
        if core.closed {
            return;
        }
        core.raise_in_background(Event::Tick);
        let soonest = match core.next_task() {
            Ok(task) => {
                drop(core);
                let mut tasks = vec![task];
                while let Some(task) = tasks.pop() {
                    tasks.extend(inner.run(task, None));
                }
                continue;
            }
            Err(soonest) => soonest,
        };
        let now = Instant::now();
        if core.table.is_used() && caught_up + CATCH_UP <= now {
            drop(core);
            caught_up = now;
            catch_up(inner);
            continue;
        }
        let mut until = soonest.unwrap_or(now + LONGEST_IDLE);
        if core.table.is_used() {
            until = until.min(caught_up + CATCH_UP);
        }
        inner.wait(core, until);
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
