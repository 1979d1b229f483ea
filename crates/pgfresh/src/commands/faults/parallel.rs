//! Works on several items at the same time.

use std::sync::Mutex;
use std::thread;

use sys::lock;

use crate::failure::Failure;

/// Calls `work` for each item, up to `jobs` at the same time, and returns the results in the order of the items.
pub(super) fn in_parallel<I: Sync, T: Send>(
    jobs: usize,
    items: &[I],
    work: impl Fn(&I) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let (next, results) = (Mutex::new(items.iter().enumerate()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..jobs.min(items.len()) {
            scope.spawn(|| {
                while let Some((place, item)) = { lock(&next).next() } {
                    let result = work(item);
                    let has_failed = result.is_err();
                    lock(&results).push((place, result));
                    if has_failed {
                        lock(&next).by_ref().for_each(drop);
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}
