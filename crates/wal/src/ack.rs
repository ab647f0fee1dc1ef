//! The acknowledgement of an append, for threads, tasks and callbacks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use brooklet_io::Process;

use crate::block_handle::{Block, Kept};
use crate::calls::Callback;
use crate::error::WalError;
use crate::shared::Shared;

/// The acknowledgement of an append. It resolves when the record's block and all blocks before it
/// are on stable media.
///
/// Wait for it on a thread ([`wait`](Self::wait)), await it in a task of any runtime, or register a
/// callback ([`on_done`](Self::on_done)). Dropping an ack changes nothing: the record becomes
/// durable within its time all the same. An ack does not keep the log's volume open. If the log is
/// dropped first, the ack ends with [`WalError::Closed`], unless it had ended before.
///
/// # Where code of yours runs
///
/// The log calls, clones and drops callbacks, and the wakers of tasks, under no lock of its own. It
/// logs a panic in one, and calls the others.
///
/// - With a committer, as in a [`Log`](crate::Log), callbacks run one after another on a separate
///   thread. They may do anything that a thread may: append, wait, close the log, drop its last
///   handle. Meanwhile only the callbacks behind them wait.
/// - A waker may run on the committer's thread. It may append if there is room, but may not wait: a
///   call that would wait fails with [`WalError::WouldWait`]. A waker that schedules its task, as
///   in all common runtimes, never waits.
/// - Without a committer, both run on a thread that waits for the log, before its wait returns.
pub struct Ack {
    shared: Weak<Shared>,
    process: Process,
    block: Arc<Block>,
    /// The slot in which the ack's task listens.
    slot: Option<usize>,
}

impl Clone for Ack {
    fn clone(&self) -> Self {
        // A slot belongs to one task; another task may await the clone.
        Self { shared: self.shared.clone(), block: self.block.clone(), slot: None, ..*self }
    }
}

impl Ack {
    pub(crate) fn new(shared: &Arc<Shared>, block: Arc<Block>) -> Self {
        Self { shared: Arc::downgrade(shared), process: shared.process, block, slot: None }
    }

    /// Returns the log. An error if the log is gone, or belongs to another process.
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
    /// [`WalError::Stopped`] if a write failed: the record may or may not exist after the next
    /// opening. [`WalError::Closed`] if the log is gone, [`WalError::Forked`] in a process that did
    /// not open it, [`WalError::WouldWait`] in a waker.
    pub fn wait(&self) -> Result<(), WalError> {
        self.here()?;
        // Most late calls need no lock of the log.
        if let Some(ended) = self.block.ended() {
            return ended;
        }
        match self.shared() {
            Ok(shared) => shared.wait(&self.block),
            Err(error) => self.block_ended(error),
        }
    }

    /// Returns whether another record is in the same block, and so becomes durable at the same
    /// moment.
    pub fn comes_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
    }

    /// Blocks the thread until the record is durable, for `timeout` at most; returns whether it is
    /// durable.
    ///
    /// Use it for a device that may hang during a write: unlike [`wait`](Self::wait), this method
    /// never writes on the caller's thread. Only the committer writes; without one, nothing is
    /// written.
    ///
    /// # Errors
    /// The same errors as [`wait`](Self::wait).
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

    /// Returns whether the record is durable, without waiting. If it is, all records before it in
    /// the log are durable, too, and their acks report so.
    pub fn is_done(&self) -> bool {
        self.block.is_durable() == Some(true)
    }

    /// Returns whether [`wait`](Self::wait) would return at once, with a result or an error: the
    /// record is durable, its write has failed, or the log is gone. Never waits.
    pub fn has_ended(&self) -> bool {
        self.block.is_durable() != Some(false) || self.shared().is_err()
    }

    /// Returns the acknowledgement by the log's [mirror](crate::Mirror): it resolves when the
    /// mirror keeps the record's block and all blocks before it. `None` if the log has no mirror.
    /// Wait for the block's own acknowledgement first, so that the block is written.
    pub fn kept(&self) -> Option<Self> {
        let block = match self.block.kept() {
            Kept::Never => return None,
            Kept::AtItsEnd => self.block.clone(),
            Kept::Later(block) => block.clone(),
        };
        Some(Self { shared: self.shared.clone(), process: self.process, block, slot: None })
    }

    /// Calls `callback` once, with the result; immediately if the result is known already.
    ///
    /// The callback may append, wait, and close the log; [Where code of yours
    /// runs](Self#where-code-of-yours-runs) says more. In a process that did not open the log, it
    /// is called immediately, with [`WalError::Forked`].
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

    /// Returns the block's result; returns `error` if the block has no result, or may not be read.
    fn block_ended(&self, error: WalError) -> Result<(), WalError> {
        match error {
            WalError::Forked => Err(error),
            error => self.block.ended().unwrap_or(Err(error)),
        }
    }

    /// Returns the block's result, or [`WalError::Closed`] without one.
    fn ended(&self) -> Result<(), WalError> {
        self.block.ended().unwrap_or(Err(WalError::Closed))
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        // A task that gives up waiting, for example after a timeout, leaves nothing behind.
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
        // A thread that has stopped waiting needs no notification.
        let _ = self.0.try_send(());
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ack({:?})", self.block)
    }
}
