//! The primitives by which threads share data and wait: those of the standard library, or, with
//! `--cfg shuttle`, those of a scheduler that tries many interleavings (`tests/shuttle`).

#[cfg(not(shuttle))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, atomic, mpsc},
    thread,
};

#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic, mpsc};

#[cfg(shuttle)]
pub mod thread {
    pub use shuttle::thread::*;
    use std::time::Duration;

    /// Models a timed wait; the scheduler has no time. A short wait may end at any moment. A long
    /// wait ends only by a wake-up, so that a lost wake-up shows as a deadlock.
    pub fn park_timeout(time: Duration) {
        if time > Duration::from_secs(60) {
            return park();
        }
        yield_now();
        // Takes the token, if there is one, without blocking.
        current().unpark();
        park();
    }
}

/// Takes a lock, even if a thread panicked while it held the lock. For data that is never half
/// changed, or that nobody uses after a panic.
pub fn held<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
