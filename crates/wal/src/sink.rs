//! The receiver of durable blocks, before any acknowledgement.

use std::sync::Arc;
use std::task::Waker;

use crate::block_handle::Block;
use crate::sync::thread::Thread;

/// A receiver of every durable block, in order, before its acknowledgement.
pub trait Sink: Send + Sync {
    /// Receives blocks that are on stable media; all blocks before them are on stable media too.
    /// The sink adds its own waiters to `waiters`; the log wakes them after the acknowledgement.
    fn durable(&self, blocks: &[Arc<Block>], waiters: &mut Waiters);

    /// Learns that the log was closed or has stopped: no further block becomes durable. The sink
    /// adds all its waiters to `waiters`. The log may call this more than once, also while a thread
    /// holds the sink's locks after a panic.
    fn stopped(&self, _waiters: &mut Waiters) {}
}

impl Sink for () {
    fn durable(&self, _: &[Arc<Block>], _: &mut Waiters) {}
}

/// Threads and tasks that a [`Sink`] wakes.
#[derive(Debug, Default)]
pub struct Waiters {
    /// Threads that park.
    pub threads: Vec<Thread>,
    /// The wakers of tasks: code of users, which the log runs under no lock.
    pub tasks: Vec<Waker>,
}

impl Waiters {
    /// Returns whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.tasks.is_empty()
    }
}
