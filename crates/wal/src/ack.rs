//! The promise of an append, for threads, tasks and callbacks alike.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use brooklet_io::Process;

use crate::block_handle::Block;
use crate::calls::Callback;
use crate::error::WalError;
use crate::shared::Shared;

/// Resolves once the record's block and all blocks before it are on stable media.
///
/// Wait for it on a thread ([`wait`](Self::wait)), await it in a task of any runtime, or leave a
/// callback ([`on_done`](Self::on_done)). Dropping it changes nothing: the record becomes durable
/// all the same, within the time it was given. Keeping it does not keep the log's volume open;
/// where the log goes first, it ends with [`WalError::Closed`], unless it had ended before.
///
/// # Where code of yours runs
///
/// Callbacks, and the wakers of tasks, are called, cloned and dropped under no lock of the log. A
/// panic in one is logged, and the others are called.
///
/// - With a committer, as a [`Log`](crate::Log) has one, callbacks run one after another on a
///   thread that does nothing else. They may do whatever any thread may: append, wait, close the
///   log, drop the last handle to it. The callbacks behind them wait meanwhile, and nothing else
///   does.
/// - A waker may run on the committer's thread. It may append where there is room, but not wait: a
///   call that would wait is refused with [`WalError::WouldWait`]. A waker that schedules its task,
///   as those of all common runtimes do, never comes to that.
/// - Without a committer, both run on a thread that waits for the log, before its wait returns.
pub struct Ack {
    shared: Weak<Shared>,
    process: Process,
    block: Arc<Block>,
    /// Where its task listens.
    slot: Option<usize>,
}

impl Clone for Ack {
    fn clone(&self) -> Self {
        // A slot stands for one task; the clone may be awaited by another.
        Self { shared: self.shared.clone(), block: self.block.clone(), slot: None, ..*self }
    }
}

impl Ack {
    pub(crate) fn new(shared: &Arc<Shared>, block: Arc<Block>) -> Self {
        Self { shared: Arc::downgrade(shared), process: shared.process, block, slot: None }
    }

    /// The log. An error where it is gone, or is another process's.
    fn shared(&self) -> Result<Arc<Shared>, WalError> {
        self.here()?;
        self.shared.upgrade().ok_or(WalError::Closed)
    }

    fn here(&self) -> Result<(), WalError> {
        if self.process.is_here() { Ok(()) } else { Err(WalError::Forked) }
    }

    /// Blocks the thread until the record is durable.
    ///
    /// # Errors
    /// [`WalError::Stopped`] where a write failed: the record may or may not be there after the
    /// next opening. [`WalError::Closed`] where the log is gone, [`WalError::Forked`] in a process
    /// that did not open it, [`WalError::WouldWait`] in a waker.
    pub fn wait(&self) -> Result<(), WalError> {
        self.here()?;
        // Most who ask late need nothing of the log.
        if let Some(ended) = self.block.ended() {
            return ended;
        }
        match self.shared() {
            Ok(shared) => shared.wait(&self.block),
            Err(error) => self.block_ended(error),
        }
    }

    /// Whether another record is in the same block, and so durable at the same moment.
    pub fn comes_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
    }

    /// Blocks the thread until the record is durable, for `timeout` at most; whether it is.
    ///
    /// For a device that may hang in the middle of a write: unlike [`wait`](Self::wait) this never
    /// writes on the caller's thread, but leaves that to the committer, without which nothing
    /// happens.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool, WalError> {
        self.here()?;
        if let Some(ended) = self.block.ended() {
            return ended.map(|()| true);
        }
        let shared = self.shared()?;
        shared.may_wait()?;
        let (notify, told) = sync_channel(1);
        let (mut slot, waker) = (None, Arc::new(Teller(notify)).into());
        let heard = self.block.listen_as_task(&mut slot, &waker);
        if heard.is_some() {
            shared.see_to(heard);
            if told.recv_timeout(timeout).is_err() && self.block.leave(slot) {
                return Ok(false);
            }
        }
        self.ended().map(|()| true)
    }

    /// Whether the record is durable, without waiting. Where it is, all records before it in the
    /// log are, too, and their acks say so.
    pub fn is_done(&self) -> bool {
        self.block.is_durable() == Some(true)
    }

    /// Calls `callback` once, with how it ended; at once where it has ended already.
    ///
    /// It may append, wait, and close the log; [where it runs](Self#where-code-of-yours-runs) says
    /// more. In a process that did not open the log it is called at once, with
    /// [`WalError::Forked`].
    pub fn on_done(&self, callback: impl FnOnce(Result<(), WalError>) + Send + 'static) {
        let shared = match self.shared() {
            Ok(shared) => shared,
            Err(error) => return callback(self.block_ended(error)),
        };
        let mut callback: Option<Callback> = Some(Box::new(callback));
        let heard = self.block.listen(|all| all.callback(callback.take().expect("listens once")));
        match callback {
            Some(callback) => callback(self.ended()),
            None => shared.see_to(heard),
        }
    }

    /// How the block ended; with `error`, if it has not, or may not be looked at.
    fn block_ended(&self, error: WalError) -> Result<(), WalError> {
        match error {
            WalError::Forked => Err(error),
            error => self.block.ended().unwrap_or(Err(error)),
        }
    }

    /// How it ended, once it has.
    fn ended(&self) -> Result<(), WalError> {
        self.block.ended().unwrap_or(Err(WalError::Closed))
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        // Whoever gives up awaiting it, after a time say, leaves nothing behind.
        if self.slot.is_some() && self.process.is_here() {
            self.block.leave(self.slot);
        }
    }
}

impl Future for Ack {
    type Output = Result<(), WalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = match self.shared() {
            Ok(shared) => shared,
            Err(error) => return Poll::Ready(self.block_ended(error)),
        };
        let Self { block, slot, .. } = &mut *self;
        match block.listen_as_task(slot, context.waker()) {
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
