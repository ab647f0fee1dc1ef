//! The promise of an append, for threads, tasks and callbacks alike.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use crate::block::Block;
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
    /// Where its task listens.
    slot: Option<usize>,
}

impl Clone for Ack {
    fn clone(&self) -> Self {
        // A slot stands for one task; the clone may be awaited by another.
        Self::new(self.shared.clone(), self.block.clone())
    }
}

impl Ack {
    pub(crate) fn new(shared: Arc<Shared>, block: Arc<Block>) -> Self {
        Self { shared, block, slot: None }
    }

    /// Blocks the thread until the record is durable.
    ///
    /// # Errors
    /// [`WalError::Stopped`] where a write failed: the record may or may not be there after the next opening.
    pub fn wait(&self) -> Result<(), WalError> {
        self.shared.wait(&self.block)
    }

    /// Whether another record is in the same block, and so durable at the same moment.
    pub fn comes_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
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
        let mut slot = None;
        let heard = self.block.listen(|all| all.task(&mut slot, &Arc::new(Teller(tell)).into()));
        if heard.is_some() {
            self.shared.see_to(heard);
            if told.recv_timeout(timeout).is_err() && self.block.leave(slot) {
                return Ok(false);
            }
        }
        self.ended().map(|()| true)
    }

    /// Whether the record is durable, without waiting. Where it is, all records before it in the log are, too, and their acks
    /// say so.
    pub fn is_done(&self) -> bool {
        self.block.is_durable() == Some(true)
    }

    /// Calls `callback` once, with how it ended; at once where it has ended already.
    ///
    /// The callback runs on a thread that drives the log: it must be quick, and must not wait for another append.
    pub fn on_done(&self, callback: impl FnOnce(Result<(), WalError>) + Send + 'static) {
        let mut callback = Some(callback);
        let heard = self.block.listen(|all| all.callback(Box::new(callback.take().expect("listens once"))));
        match (heard, callback) {
            (None, Some(callback)) => callback(self.ended()),
            (heard, _) => self.shared.see_to(heard),
        }
    }

    /// How it ended, once it has.
    fn ended(&self) -> Result<(), WalError> {
        if self.is_done() { Ok(()) } else { Err(self.shared.failed()) }
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        // Whoever gives up awaiting it, after a time say, leaves nothing behind.
        if self.slot.is_some() {
            self.block.leave(self.slot);
        }
    }
}

impl Future for Ack {
    type Output = Result<(), WalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, block, slot } = &mut *self;
        match block.listen(|all| all.task(slot, context.waker())) {
            None => Poll::Ready(self.ended()),
            heard => {
                shared.see_to(heard);
                Poll::Pending
            }
        }
    }
}

/// Wakes a thread that waits for a given time.
struct Teller(SyncSender<()>);

impl Wake for Teller {
    fn wake(self: Arc<Self>) {
        // One who has stopped waiting needs no telling.
        let _ = self.0.try_send(());
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ack({:?})", self.block)
    }
}
