//! Mutexes without poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even after a panic of another holder. Use it only for data that are consistent after each step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
