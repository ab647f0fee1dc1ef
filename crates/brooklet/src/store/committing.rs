//! Commits of tasks: futures that wait for room and for durability without blocking a thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use brooklet_io::panics::caught;

use crate::engine::Inner;
use crate::engine::append::Patience;
use crate::engine::blocking::{WaitReason, hashes};
use crate::error::Error;
use crate::model::commit::{Commit, Op};
use crate::store::Store;
use crate::store::ticket::Ticket;
use crate::sync::{Mutex, held};

/// A commit of a task, which ends with the numbers of all added entries; see
/// [`Store::commit_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Committing {
    store: Store,
    step: Step,
}

/// An append of a task, which ends with the number of the entry; see [`Store::append_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Appending(Committing);

enum Step {
    /// The store does not have the commit yet.
    New(Box<Commit>),
    /// A thread of the store makes the commit, which has to wait.
    Queued(Arc<Queued>),
    Appended(Ticket),
    Done,
}

/// A commit that a thread of the store makes.
struct Queued(Mutex<Slot>);

enum Slot {
    /// The commit, until its turn comes, and the task that waits.
    Waits(Commit, Waker),
    /// The thread makes the commit.
    Begun(Waker),
    Ended(Result<Ticket, Error>),
    /// The task no longer waits.
    Left,
}

impl Store {
    /// Applies a commit in a task: waits for room and then until the commit is acknowledged, and
    /// blocks no thread meanwhile. Returns the numbers of all added entries, in the order of the
    /// operations.
    ///
    /// The commit is made when the future is first polled. While the store has no room, later calls
    /// queue behind earlier ones. If the state of a log is not in memory, a thread of the store
    /// reads it from the volume and makes the commit; later commits on its logs queue behind it. So
    /// commits on one log are made in the order in which a task first polls them.
    ///
    /// A future that is dropped while it waits for room or for this read cancels its commit. Later,
    /// the commit becomes durable all the same.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), brooklet::Error> {
    /// use brooklet::{Commit, Store};
    ///
    /// let store = Store::in_memory(1)?;
    /// let mut commit = Commit::new();
    /// commit.append("order/7", "paid").append("outbox", "order/7");
    /// assert_eq!(store.commit_async(commit).await?, [0, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit) and of [`Ticket::wait`].
    pub fn commit_async(&self, commit: Commit) -> Committing {
        Committing { store: self.clone(), step: Step::New(commit.into()) }
    }

    /// Appends an entry in a task, like [`commit_async`](Self::commit_async). Returns the number of
    /// the entry.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// assert_eq!(store.append_async("doc/7", "an edit").await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`append`](Self::append) and of [`Ticket::wait`].
    pub fn append_async(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Appending {
        let mut commit = Commit::new();
        commit.append(key, payload);
        Appending(self.commit_async(commit))
    }
}

impl Committing {
    /// Returns whether the store has made the commit, or is making it. Then a drop of the future
    /// does not cancel it.
    pub fn is_made(&self) -> bool {
        match &self.step {
            Step::New(_) => false,
            Step::Queued(queued) => !matches!(*held(&queued.0), Slot::Waits(..)),
            Step::Appended(_) | Step::Done => true,
        }
    }

    /// Makes a commit, or has a thread of the store make it.
    fn begin(&self, commit: Commit, waker: &Waker) -> Result<Step, Error> {
        let inner = self.store.shared();
        inner.here()?;
        if !inner.options.threads {
            return self.store.commit(&commit).map(Step::Appended);
        }
        let must_queue = inner.blocking_calls.must_queue(commit.keys());
        let mut reason = must_queue.unwrap_or(WaitReason::Room);
        if must_queue.is_none() {
            let try_it = |ops: &[Op<'_>]| {
                let durability = commit.durability;
                inner.write_with(ops, durability, Patience::None, commit.rehearsal())
            };
            match commit.with_ops(try_it) {
                Ok(None) => reason = WaitReason::Read,
                Ok(Some(ticket)) => return Ok(Step::Appended(ticket)),
                Err(Error::Busy { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let logs = hashes(commit.keys());
        let queued = Arc::new(Queued(Mutex::new(Slot::Waits(commit, waker.clone()))));
        let turn = Turn(queued.clone());
        inner.call_blocking(reason, logs, Box::new(move |inner| turn.take(inner)))?;
        Ok(Step::Queued(queued))
    }
}

/// The turn of a queued commit, on the thread that makes it.
struct Turn(Arc<Queued>);

impl Turn {
    /// Makes the commit, unless its task has left, and wakes the task.
    fn take(self, inner: &Inner) {
        if let Some(commit) = self.0.begin() {
            let write = || commit.with_ops(|ops| inner.write(ops, commit.durability, true));
            // The thread goes on: the later calls report why the store has stopped.
            let ended = caught("a commit of a task", write);
            self.0.end(ended.unwrap_or_else(|panic| Err(inner.stop(panic))));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A turn that was not taken: the store was closed.
        self.0.end(Err(Error::Closed));
    }
}

impl Queued {
    /// Takes the commit; `None` if its task has left.
    fn begin(&self) -> Option<Commit> {
        let mut slot = held(&self.0);
        match std::mem::replace(&mut *slot, Slot::Left) {
            Slot::Waits(commit, waker) => {
                *slot = Slot::Begun(waker);
                Some(commit)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Records the result, unless there is one already, and wakes the task.
    fn end(&self, ended: Result<Ticket, Error>) {
        let waker = {
            let mut slot = held(&self.0);
            match std::mem::replace(&mut *slot, Slot::Left) {
                Slot::Waits(_, waker) | Slot::Begun(waker) => {
                    *slot = Slot::Ended(ended);
                    waker
                }
                other => return *slot = other,
            }
        };
        // Code of the user runs under no lock.
        if let Err(error) = caught("a waker", || waker.wake()) {
            tracing::error!("{error}");
        }
    }

    /// Returns the result once it is known.
    fn poll(&self, waker: &Waker) -> Option<Result<Ticket, Error>> {
        let fresh = waker.clone();
        let mut slot = held(&self.0);
        let (result, old) = match &mut *slot {
            Slot::Waits(_, old) | Slot::Begun(old) => (None, Some(std::mem::replace(old, fresh))),
            Slot::Ended(_) | Slot::Left => match std::mem::replace(&mut *slot, Slot::Left) {
                Slot::Ended(result) => (Some(result), None),
                _ => (Some(Err(Error::Closed)), None),
            },
        };
        drop(slot);
        drop(old);
        result
    }
}

impl Committing {
    /// Returns the ticket once the commit is acknowledged.
    fn poll_ticket(&mut self, context: &mut Context<'_>) -> Poll<Result<Ticket, Error>> {
        loop {
            self.step = match std::mem::replace(&mut self.step, Step::Done) {
                Step::New(commit) => self.begin(*commit, context.waker())?,
                Step::Queued(queued) => match queued.poll(context.waker()) {
                    Some(result) => Step::Appended(result?),
                    None => {
                        self.step = Step::Queued(queued);
                        return Poll::Pending;
                    }
                },
                Step::Appended(mut ticket) => match Pin::new(&mut ticket).poll(context) {
                    Poll::Ready(done) => return Poll::Ready(done.map(|()| ticket)),
                    Poll::Pending => {
                        self.step = Step::Appended(ticket);
                        return Poll::Pending;
                    }
                },
                Step::Done => panic!("a commit that has ended is polled again"),
            };
        }
    }
}

impl Appending {
    /// Returns whether the store has made the append, or is making it. Then a drop of the future
    /// does not cancel it.
    pub fn is_made(&self) -> bool {
        self.0.is_made()
    }
}

impl Future for Committing {
    type Output = Result<Vec<u64>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_ticket(context).map_ok(|ticket| ticket.seqs().to_vec())
    }
}

impl Future for Appending {
    type Output = Result<u64, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_ticket(context).map_ok(|ticket| ticket.seq())
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        let Step::Queued(queued) = &self.step else { return };
        if self.store.inner().here().is_ok() {
            // Dropping a waker runs code of the user.
            let left = std::mem::replace(&mut *held(&queued.0), Slot::Left);
            drop(left);
        }
    }
}

impl fmt::Debug for Committing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.step {
            Step::New(_) => "Committing(new)",
            Step::Queued(_) => "Committing(queued)",
            Step::Appended(_) => "Committing(waits for durability)",
            Step::Done => "Committing(done)",
        })
    }
}
