//! What a write gives back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use brooklet_wal::Ack;

use crate::error::Error;
use crate::memory_space::MemorySpace;
use crate::memtable::seqs::Seqs;

/// The promise of a write: its sequence numbers now, its durability when it comes.
///
/// Wait for it on a thread, await it in a task of any runtime, or leave a callback. Dropping it
/// changes nothing: the write becomes durable all the same. Keeping it keeps nothing open: a ticket
/// of a store that is gone says how the write ended, or [`Error::Closed`].
///
/// # Where code of yours runs
///
/// Callbacks, and the wakers of tasks, are called, cloned and dropped under no lock of the store. A
/// panic in one is logged, and the others are called; the store goes on.
///
/// - Callbacks run one after another on a thread that does nothing else. They may do whatever any
///   thread may: append, wait, close the store, drop the last handle to it. The callbacks behind
///   them wait meanwhile, and nothing else does.
/// - A waker may run on the thread that writes. It may append where there is room, and read, but
///   not wait: a call that would wait is refused with [`Error::WouldWait`]. A waker that schedules
///   its task, as those of all common runtimes do, never comes to that.
///   [`Store::close`](crate::Store::close) in a waker closes the store on another thread, and does
///   not wait.
#[derive(Clone, Debug)]
#[must_use = "a write is acknowledged only once its ticket has been waited for"]
pub struct Ticket {
    pub(crate) seqs: Seqs,
    pub(crate) rests: Rests,
}

/// Where what was written is, and when that is acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum Rests {
    /// On its way to stable media.
    Ring(Ack),
    /// The same, and acknowledged by now.
    Deferred(Ack),
    /// In the memory of this space.
    Memory(Arc<MemorySpace>),
}

impl Ticket {
    /// The number of the entry that was added; of the first, where there are several; 0 where none
    /// was.
    pub fn seq(&self) -> u64 {
        self.seqs.as_slice().first().copied().unwrap_or_default()
    }

    /// The numbers of all entries that were added, in the order of the operations.
    pub fn seqs(&self) -> &[u64] {
        self.seqs.as_slice()
    }

    /// Blocks until the write is acknowledged: on stable media, or at once for a deferred one, and
    /// for one on a log that is kept in memory.
    ///
    /// # Errors
    /// [`Error::Stopped`]: a write to the device failed; whether this commit took effect is unknown
    /// until the store is opened again. [`Error::Closed`] where the store is gone,
    /// [`Error::Forked`] in a process that did not open it, [`Error::WouldWait`] in a waker.
    pub fn wait(&self) -> Result<(), Error> {
        match &self.rests {
            Rests::Ring(ack) => Ok(ack.wait()?),
            Rests::Deferred(_) | Rests::Memory(_) => Ok(()),
        }
    }

    /// Whether the write is acknowledged, without waiting.
    pub fn is_done(&self) -> bool {
        match &self.rests {
            Rests::Ring(ack) => ack.is_done(),
            Rests::Deferred(_) | Rests::Memory(_) => true,
        }
    }

    /// Blocks until the write is on stable media, a deferred one too.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); and [`Error::InMemory`] for a write that is in memory only, until
    /// [`Space::dump`].
    ///
    /// [`Space::dump`]: crate::Space::dump
    pub fn wait_durable(&self) -> Result<(), Error> {
        match &self.rests {
            Rests::Ring(ack) | Rests::Deferred(ack) => Ok(ack.wait()?),
            Rests::Memory(memory_space) => Err(Error::InMemory { space: memory_space.name.clone() }),
        }
    }

    /// Whether the write is on stable media, without waiting. For one that is in memory this is not
    /// told.
    pub fn is_durable(&self) -> bool {
        match &self.rests {
            Rests::Ring(ack) | Rests::Deferred(ack) => ack.is_done(),
            Rests::Memory(_) => false,
        }
    }

    /// Whether both writes go to stable media together, so that whoever waits for one need not wait
    /// for the other.
    pub fn comes_with(&self, other: &Self) -> bool {
        match (&self.rests, &other.rests) {
            (Rests::Ring(a) | Rests::Deferred(a), Rests::Ring(b) | Rests::Deferred(b)) => a.comes_with(b),
            _ => false,
        }
    }

    /// Whether what was written is in memory only, as its [space](crate::Class::Memory) is.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.rests, Rests::Memory(_))
    }

    /// Calls `callback` once the write is acknowledged, or cannot be any more; at once, on this
    /// thread, if it is.
    ///
    /// It may append, wait, and close the store; [where it runs](Self#where-code-of-yours-runs)
    /// says more.
    pub fn on_done(&self, callback: impl FnOnce(Result<(), Error>) + Send + 'static) {
        match &self.rests {
            Rests::Ring(ack) => ack.on_done(|result| callback(result.map_err(Error::from))),
            Rests::Deferred(_) | Rests::Memory(_) => callback(Ok(())),
        }
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.rests {
            Rests::Ring(ack) => Pin::new(ack).poll(context).map_err(Error::from),
            Rests::Deferred(_) | Rests::Memory(_) => Poll::Ready(Ok(())),
        }
    }
}
