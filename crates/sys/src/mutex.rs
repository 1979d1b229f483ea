//! Locks mutexes, refusing access to data that a panic may have left half changed.

use std::sync::{LockResult, Mutex, MutexGuard};
use std::thread;

/// Locks `mutex`.
///
/// # Panics
///
/// Panics if another thread panicked while holding the lock. See [`sound`].
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    sound(mutex.lock())
}

/// Unwraps the result of locking a mutex or of waiting on a condition variable.
///
/// # Panics
///
/// Panics if another thread panicked while holding the lock, because that thread may have changed only part
/// of the data. A thread that is already unwinding gets the guard anyway: a second panic would abort the
/// process before the thread has cleaned up.
pub fn sound<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(|poisoned| {
        assert!(thread::panicking(), "another thread has panicked while it changed these data");
        poisoned.into_inner()
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Sets the number to 2 when it is dropped.
    struct SetTwo<'a>(&'a Mutex<u32>);

    impl Drop for SetTwo<'_> {
        fn drop(&mut self) {
            *lock(self.0) = 2;
        }
    }

    #[test]
    fn half_changed_data_are_refused_except_during_cleanup() {
        let number = Mutex::new(0);
        let panics = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).is_err();
        assert!(panics(&|| {
            let mut guard = lock(&number);
            *guard = 1;
            panic!("the test plants this panic");
        }));
        assert!(panics(&|| drop(lock(&number))));
        assert!(panics(&|| {
            let _cleanup = SetTwo(&number);
            drop(lock(&number));
        }));
        number.clear_poison();
        assert_eq!(*lock(&number), 2);
    }
}
