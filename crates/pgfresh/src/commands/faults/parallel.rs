//! Processes several items concurrently.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use sys::lock;

/// Calls `work` for each item, for up to `jobs` items concurrently, and returns the results in item order. Calls `see`
/// with each result as soon as it is available.
pub(super) fn in_parallel<I: Sync, T: Send>(
    jobs: usize,
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
    mut see: impl FnMut(&T),
) -> Vec<T> {
    let queue: Mutex<VecDeque<_>> = Mutex::new(items.iter().enumerate().collect());
    let (sender, results) = channel();
    let mut done = Vec::new();
    thread::scope(|scope| {
        for _ in 0..jobs.min(items.len()) {
            let (sender, queue, work) = (sender.clone(), &queue, &work);
            scope.spawn(move || {
                while let Some((place, item)) = { lock(queue).pop_front() } {
                    // The receiver lives as long as the scope, so sending can't fail.
                    drop(sender.send((place, work(item))));
                }
            });
        }
        drop(sender);
        for (place, result) in results {
            see(&result);
            done.push((place, result));
        }
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}
