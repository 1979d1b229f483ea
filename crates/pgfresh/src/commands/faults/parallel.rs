//! Works on several items at the same time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use sys::lock;

use crate::failure::Failure;

/// Calls `work` for each item, up to `jobs` at the same time, and returns the results in the order of the items. Calls `see`
/// for each result as soon as it is there. After the first failure, no work begins.
pub(super) fn in_parallel<I: Sync, T: Send>(
    jobs: usize,
    items: &[I],
    work: impl Fn(&I) -> Result<T, Failure> + Sync,
    mut see: impl FnMut(&T),
) -> Result<Vec<T>, Failure> {
    let queue: Mutex<VecDeque<_>> = Mutex::new(items.iter().enumerate().collect());
    let (sender, results) = channel();
    let mut done = Vec::new();
    let mut failure = None;
    thread::scope(|scope| {
        for _ in 0..jobs.min(items.len()) {
            let (sender, queue, work) = (sender.clone(), &queue, &work);
            scope.spawn(move || {
                while let Some((place, item)) = { lock(queue).pop_front() } {
                    let result = work(item);
                    if result.is_err() {
                        lock(queue).clear();
                    }
                    // The receiver lives as long as the scope.
                    drop(sender.send((place, result)));
                }
            });
        }
        drop(sender);
        for (place, result) in results {
            match result {
                Ok(result) => {
                    see(&result);
                    done.push((place, result));
                }
                Err(error) => failure = Some(error),
            }
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    done.sort_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
