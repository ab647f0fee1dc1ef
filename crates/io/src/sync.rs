//! The primitives by which threads share data and wait: those of the standard library, or, with
//! `--cfg shuttle`, those of a scheduler that tries many interleavings (`tests/shuttle`).

use std::sync::OnceLock;
use std::time::Duration;

use atomic::Ordering;

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

/// The sleep of a thread between its work, and the wake-ups from it.
///
/// A wake-up counts until the thread sleeps next. The token of [`thread::park`] does not: any wait
/// of the thread meanwhile, such as one for a lock or for a device, may take the token.
#[derive(Default)]
pub struct Sleeper {
    thread: OnceLock<thread::Thread>,
    woken: atomic::AtomicBool,
}

impl Sleeper {
    /// Sets the thread that sleeps here. Only the first call has an effect.
    pub fn set_thread(&self, thread: &thread::Thread) {
        self.thread.get_or_init(|| thread.clone());
    }

    /// Returns the thread that sleeps here, if it is set.
    pub fn thread(&self) -> Option<&thread::Thread> {
        self.thread.get()
    }

    /// Wakes the thread, or lets its next sleep end at once.
    pub fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Sleeps on the thread that is set, until a wake-up since the last sleep, or for at most this
    /// time. May end earlier.
    pub fn sleep(&self, most: Option<Duration>) {
        if !self.woken.load(Ordering::Acquire) {
            match most {
                Some(most) => thread::park_timeout(most),
                None => thread::park(),
            }
        }
        // The work that a wake-up announces is there by now: the thread looks for it next.
        self.woken.swap(false, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleeper").field("woken", &self.woken).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_counts_after_another_wait_took_the_token() {
        let sleeper = Sleeper::default();
        sleeper.wake();
        sleeper.set_thread(&thread::current());
        sleeper.sleep(None); // the wake-up from before the thread was set
        for _ in 0..3 {
            sleeper.wake();
            thread::park(); // a wait for something else
            sleeper.sleep(None);
        }
        assert!(!sleeper.woken.load(Ordering::Relaxed), "each wake-up counts once");
    }
}
