//! Locks between threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what is always consistent: a panic of another thread that had it does not make it less so.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
