//! Locks that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left behind is still a value; the thread's end was logged.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
