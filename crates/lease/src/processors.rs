//! Measures whether the processors are busy, so that background work can give way to clients.

use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use sys::lock;

/// How long a measurement is valid.
const COUNTS: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(crate) struct Processors {
    /// Number of processors. It is counted on first use, because counting reads files and most servers never need it.
    count: OnceLock<usize>,
    /// Time and result of the last measurement.
    seen: Mutex<Option<(Instant, bool)>>,
}

impl Processors {
    /// Whether the machine has more runnable tasks than processors.
    pub(crate) fn are_busy(&self) -> bool {
        let mut seen = lock(&self.seen);
        match *seen {
            Some((at, busy)) if at.elapsed() < COUNTS => busy,
            _ => {
                let count = || thread::available_parallelism().map_or(1, usize::from);
                let count = *self.count.get_or_init(count);
                let busy = sys::runnable_tasks().is_some_and(|tasks| tasks > count);
                *seen = Some((Instant::now(), busy));
                busy
            }
        }
    }
}
