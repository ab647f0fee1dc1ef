//! The promise of an append, for threads, tasks and callbacks alike.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::block::{Block, Listener};
use crate::error::WalError;
use crate::shared::Shared;

/// Resolves once the record's block and all blocks before it are on stable media.
///
/// Wait for it on a thread ([`wait`](Self::wait)), await it in a task of any runtime, or leave a callback
/// ([`on_done`](Self::on_done)). Dropping it changes nothing: the record becomes durable all the same, within the
/// time it was given. Keeping it keeps the log's volume open.
pub struct Ack {
    shared: Arc<Shared>,
    block: Arc<Block>,
    slot: u64,
}

impl Clone for Ack {
    fn clone(&self) -> Self {
        // A slot stands for one task; the clone may be awaited by another.
        Self::new(self.shared.clone(), self.block.clone())
    }
}

static SLOTS: AtomicU64 = AtomicU64::new(1);

impl Ack {
    pub(crate) fn new(shared: Arc<Shared>, block: Arc<Block>) -> Self {
        Self { shared, block, slot: 0 }
    }

    /// Blocks the thread until the record is durable.
    ///
    /// # Errors
    /// [`WalError::Stopped`] where a write failed: the record may or may not be there after the next opening.
    pub fn wait(&self) -> Result<(), WalError> {
        self.shared.wait(&self.block)
    }

    /// Blocks the thread until the record is durable, for `timeout` at most; whether it is.
    ///
    /// For a device that may hang in the middle of a write: unlike [`wait`](Self::wait) this never writes on the
    /// caller's thread, but leaves that to the committer, without which nothing happens.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool, WalError> {
        let (tell, told) = sync_channel(1);
        self.on_done(move |result| drop(tell.send(result)));
        match told.recv_timeout(timeout) {
            Ok(result) => result.map(|()| true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(self.shared.failed()),
        }
    }

    /// Whether the record is durable, without waiting.
    pub fn is_done(&self) -> bool {
        self.block.is_durable() == Some(true)
    }

    /// Calls `callback` once, with how it ended; at once where it has ended already.
    ///
    /// The callback runs on a thread that drives the log: it must be quick, and must not wait for another append.
    pub fn on_done(&self, callback: impl FnOnce(Result<(), WalError>) + Send + 'static) {
        // Not a strong reference: the block that keeps the callback belongs to the log.
        let shared = Arc::downgrade(&self.shared);
        let failed = move || shared.upgrade().map_or(WalError::Closed, |shared| shared.failed());
        let call = move |durable| callback(if durable { Ok(()) } else { Err(failed()) });
        match self.block.listen(Listener::Callback(Box::new(call))) {
            Some(listener) => listener.call(self.is_done()),
            None => self.shared.urge(),
        }
    }
}

impl Shared {
    fn failed(&self) -> WalError {
        self.lock().check().err().unwrap_or(WalError::Closed)
    }

    /// Sees to it that somebody drives a block that tasks or callbacks wait for.
    fn urge(&self) {
        let next = self.lock().next_driver();
        self.wake(next);
    }
}

impl Future for Ack {
    type Output = Result<(), WalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.block.is_durable() {
            Some(true) => return Poll::Ready(Ok(())),
            None => return Poll::Ready(Err(self.shared.failed())),
            Some(false) => {}
        }
        if self.slot == 0 {
            self.slot = SLOTS.fetch_add(1, Ordering::Relaxed);
        }
        match self.block.listen(Listener::Task(self.slot, context.waker().clone())) {
            Some(_) if self.is_done() => Poll::Ready(Ok(())),
            Some(_) => Poll::Ready(Err(self.shared.failed())),
            None => {
                self.shared.urge();
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ack({:?})", self.block)
    }
}
