//! Load of the processors.

use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use sys::lock;

/// Time for which a measurement holds.
const COUNTS: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(crate) struct Processors {
    /// Number of processors. Counting reads files, and most servers need not know it.
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
