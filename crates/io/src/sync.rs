//! What threads share, and how they wait: the standard library's, or, with `--cfg shuttle`, that of
//! a scheduler which tries many interleavings (`tests/shuttle`).

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

    /// The scheduler knows no time. A short wait may be over at any moment; a long one ends only by
    /// being woken, so that a wake-up that is lost shows as a deadlock, and not as a store that is
    /// slow at times.
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

/// Takes a lock though a thread panicked under it: for what is never half done, or is not worked on
/// any more then.
pub fn held<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
