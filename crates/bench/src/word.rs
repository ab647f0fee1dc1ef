//! Waiting without a lock.

use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(target_os = "linux")]
use rustix::thread::futex;

const PENDING: u32 = 0;

/// A word that threads wait for, without a lock.
#[derive(Default)]
pub struct Word(AtomicU32);

impl Word {
    pub fn reset(&self) {
        self.0.store(PENDING, Ordering::Release);
    }

    /// Sets the word, and wakes everybody who waits for it.
    pub fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
        #[cfg(target_os = "linux")]
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, u32::MAX >> 1);
    }

    /// Waits until the word is set, and returns it.
    pub fn wait(&self) -> u32 {
        loop {
            let value = self.0.load(Ordering::Acquire);
            if value != PENDING {
                return value;
            }
            // A signal, or a word that has changed, ends the call early.
            #[cfg(target_os = "linux")]
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, PENDING, None);
            #[cfg(not(target_os = "linux"))]
            std::thread::park_timeout(std::time::Duration::from_micros(20));
        }
    }
}
