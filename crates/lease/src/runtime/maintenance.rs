//! Runs the maintenance workers: threads that prepare databases, end leases
//! and drop databases, so that clients don't have to wait for this work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backends::expected;
use crate::runtime::inner::Inner;
use crate::table::Event;

/// Maximum time that a worker sleeps when there is no task.
const LONGEST_IDLE: Duration = Duration::from_mins(10);
/// Number of resets after which a worker removes the dead rows of `pg_database`. Each lease leaves two dead rows of 28
/// bytes, and autovacuum runs only once an hour.
const VACUUM_EVERY: u64 = 10_000;
/// Removes the dead rows without truncating the table, because other sessions would have to wait for the truncation's
/// lock.
const VACUUM: &str = "VACUUM (TRUNCATE false) pg_database";

/// Runs background tasks until the leases close.
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
                inner.run(task);
                continue;
            }
            Err(soonest) => soonest,
        };
        if let Some(kind) = core.pool.spares.start_next() {
            drop(core);
            inner.start_spare(&kind);
            continue;
        }
        if let Some(note) = core.expected.take_note() {
            drop(core);
            if let Some(entry) = &inner.options.entry {
                expected::note(entry, &note);
            }
            continue;
        }
        let (now, reads_log_at) = (Instant::now(), core.reads_log_at());
        if reads_log_at.is_some_and(|time| time <= now) {
            core.caught_up = Some(now);
            let is_vacuum_due = core.take_vacuum_due(VACUUM_EVERY);
            drop(core);
            catch_up(inner);
            if is_vacuum_due && let Err(error) = inner.admin.run("vacuum pg_database", VACUUM) {
                inner.report("vacuum pg_database", &error.to_string());
            }
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
