//! Commits in flight: threads that append without waiting, told by callbacks, until they are
//! stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// What a thread may still append, given back by callbacks.
pub struct Credits {
    free: AtomicUsize,
    most: usize,
    thread: Thread,
}

impl Credits {
    /// Credits of the calling thread, all of them free.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(most), most, thread: thread::current() })
    }

    /// Takes all that are free. Where there is none, sleeps a while and gives 0.
    pub fn take(&self) -> usize {
        let free = self.free.swap(0, Ordering::AcqRel);
        if free == 0 {
            thread::park();
        }
        free
    }

    /// Gives one back.
    pub fn give(&self) {
        // The thread sleeps until half of them are back: waking it for each would be a wake-up per
        // append.
        if self.free.fetch_add(1, Ordering::AcqRel) + 1 == self.most / 2 {
            self.thread.unpark();
        }
    }
}

/// Sets a flag when it goes, so that threads that watch it end even where their starter fails.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on several threads, which end soon after they are told, when `span` is over; what
/// they give, and how long it took until the last of them had ended.
pub fn on_threads<T: Send>(
    threads: usize,
    span: Duration,
    work: impl Fn(usize, &AtomicBool) -> Result<T, Failure> + Sync,
) -> Result<(Vec<T>, Duration), Failure> {
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let given: Result<Vec<T>, Failure> = thread::scope(|scope| {
        let (work, stop) = (&work, &stop);
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread, stop))).collect();
        let ends = Stop(stop);
        thread::sleep(span);
        drop(ends);
        running.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect()
    });
    Ok((given?, begin.elapsed()))
}
