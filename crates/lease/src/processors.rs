//! Whether the processors are all busy.

use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use sys::lock;

/// How long what was seen counts.
const COUNTS: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(crate) struct Processors {
    /// How many there are: files are read for that, and most servers need not know.
    count: OnceLock<usize>,
    /// What was last seen, and when.
    seen: Mutex<Option<(Instant, bool)>>,
}

impl Processors {
    /// Whether more tasks want a processor than there are.
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
