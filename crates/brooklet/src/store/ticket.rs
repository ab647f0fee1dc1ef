//! Tickets: the return values of writes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brooklet_wal::Ack;

use crate::error::Error;
use crate::memory_space::MemorySpace;
use crate::memtable::seqs::Seqs;

/// The promise of a write: the ticket has the sequence numbers now, and reports the durability
/// later.
///
/// Wait for a ticket on a thread, await it in a task of any runtime, or set a callback. Dropping a
/// ticket does not cancel the write: the write becomes durable all the same. A ticket does not keep
/// its store open. A ticket of a dropped store reports how the write ended, or [`Error::Closed`].
///
/// # Where code of yours runs
///
/// The store holds no lock of its own while it calls, clones or drops a callback or the waker of a
/// task. The store logs a panic in one of them, calls the others, and continues.
///
/// - Callbacks run one after another on a thread that does nothing else. A callback may do all that
///   any thread may do: append, wait, close the store, or drop its last handle. Meanwhile the next
///   callbacks wait, and nothing else does.
/// - A waker may run on the thread that writes. A waker may append where room is left, and may
///   read, but may not wait: a call that would wait returns [`Error::WouldWait`]. A waker that only
///   schedules its task, as in all common runtimes, never makes such a call.
///   [`Store::close`](crate::Store::close) in a waker closes the store on another thread, and does
///   not wait.
#[derive(Clone, Debug)]
#[must_use = "a write is acknowledged only once its ticket has been waited for"]
pub struct Ticket {
    pub(crate) seqs: Seqs,
    pub(crate) rests: Rests,
}

/// The place of the written data, which decides when the write is acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum Rests {
    /// The ring: the data is on its way to stable media.
    Ring(Ack),
    /// The ring and the mirror: the data is on its way to both.
    Kept(Ack, Ack),
    /// The ring, for a deferred write that is acknowledged already.
    Deferred(Ack),
    /// The memory of this space.
    Memory(Arc<MemorySpace>),
}

impl Ticket {
    /// Returns the number of the added entry, or of the first one if the write added several.
    /// Returns 0 if the write added none.
    pub fn seq(&self) -> u64 {
        self.seqs.as_slice().first().copied().unwrap_or_default()
    }

    /// Returns the numbers of all added entries, in the order of the operations.
    pub fn seqs(&self) -> &[u64] {
        self.seqs.as_slice()
    }

    /// Blocks until the write is acknowledged: when it is on stable media, or at once for a
    /// deferred write and for a write in memory. With a [mirror](crate::Options::mirror), the write
    /// may also have to be kept there.
    ///
    /// # Errors
    /// [`Error::Stopped`] if a write to the device failed: the outcome of this commit is unknown
    /// until the store is opened again. [`Error::Closed`] if the store is gone, [`Error::Forked`]
    /// in a process that did not open the store, [`Error::WouldWait`] in a waker.
    pub fn wait(&self) -> Result<(), Error> {
        match &self.rests {
            Rests::Ring(ack) => Ok(ack.wait()?),
            Rests::Kept(ack, kept) => Ok(ack.wait().and_then(|()| kept.wait())?),
            Rests::Deferred(_) | Rests::Memory(_) => Ok(()),
        }
    }

    /// Blocks like [`wait`](Self::wait), for `timeout` at most; returns whether the write is
    /// acknowledged. A write that is not yet acknowledged continues.
    ///
    /// Use it for a device that may hang during a write: unlike [`wait`](Self::wait), this method
    /// never writes on the caller's thread.
    ///
    /// # Errors
    /// The same errors as [`wait`](Self::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool, Error> {
        match &self.rests {
            Rests::Ring(ack) => Ok(ack.wait_timeout(timeout)?),
            Rests::Kept(ack, kept) => {
                // Only a block that is waited for is written at once. The mirror gets it then.
                let mut wanted = ack.clone();
                let context = &mut Context::from_waker(Waker::noop());
                if let Poll::Ready(ended) = Pin::new(&mut wanted).poll(context) {
                    ended?;
                }
                // A block that the mirror keeps is durable here; readers see it within moments.
                Ok(kept.wait_timeout(timeout)? && ack.wait_timeout(timeout)?)
            }
            Rests::Deferred(_) | Rests::Memory(_) => Ok(true),
        }
    }

    /// Returns whether the write is acknowledged, without waiting. Stays `false` for a write that
    /// has failed; see [`has_ended`](Self::has_ended).
    pub fn is_done(&self) -> bool {
        match &self.rests {
            Rests::Ring(ack) => ack.is_done(),
            Rests::Kept(ack, kept) => ack.is_done() && kept.is_done(),
            Rests::Deferred(_) | Rests::Memory(_) => true,
        }
    }

    /// Returns whether the write is acknowledged or has failed, without waiting: whether
    /// [`wait`](Self::wait) would return at once.
    pub fn has_ended(&self) -> bool {
        match &self.rests {
            Rests::Ring(ack) => ack.has_ended(),
            // The mirror matters only for a write that the device has.
            Rests::Kept(ack, kept) => ack.has_ended() && (!ack.is_done() || kept.has_ended()),
            Rests::Deferred(_) | Rests::Memory(_) => true,
        }
    }

    /// Blocks until the write is on stable media, also for a deferred write.
    ///
    /// # Errors
    /// The same errors as [`wait`](Self::wait); and [`Error::InMemory`] for a write that is in
    /// memory only, until [`Space::dump`].
    ///
    /// [`Space::dump`]: crate::Space::dump
    pub fn wait_durable(&self) -> Result<(), Error> {
        match &self.rests {
            Rests::Ring(ack) | Rests::Kept(ack, _) | Rests::Deferred(ack) => Ok(ack.wait()?),
            Rests::Memory(memory_space) => Err(Error::InMemory { space: memory_space.name.clone() }),
        }
    }

    /// Returns whether the write is on stable media, without waiting. Always `false` for writes in
    /// memory.
    pub fn is_durable(&self) -> bool {
        match &self.rests {
            Rests::Ring(ack) | Rests::Kept(ack, _) | Rests::Deferred(ack) => ack.is_done(),
            Rests::Memory(_) => false,
        }
    }

    /// Returns the acknowledgement by the ring.
    fn ring(&self) -> Option<&Ack> {
        match &self.rests {
            Rests::Ring(ack) | Rests::Kept(ack, _) | Rests::Deferred(ack) => Some(ack),
            Rests::Memory(_) => None,
        }
    }

    /// Blocks until the [mirror](crate::Options::mirror) of the store keeps the write, whatever the
    /// acknowledgement waits for. Returns `false` if the store has no mirror.
    ///
    /// # Errors
    /// The errors of [`wait_durable`](Self::wait_durable); [`Error::MirrorEnded`].
    pub fn wait_kept(&self) -> Result<bool, Error> {
        self.wait_durable()?;
        let Some(kept) = self.ring().and_then(Ack::kept) else { return Ok(false) };
        Ok(kept.wait().map(|()| true)?)
    }

    /// Returns whether the [mirror](crate::Options::mirror) of the store keeps the write, without
    /// waiting. Always `false` without a mirror.
    pub fn is_kept(&self) -> bool {
        self.ring().and_then(Ack::kept).is_some_and(|kept| kept.is_done())
    }

    /// Returns whether both writes reach stable media together, and both or none wait for the
    /// [mirror](crate::Options::mirror) too, so that a caller needs to wait for only one of them.
    pub fn comes_with(&self, other: &Self) -> bool {
        let waits_beyond = |ticket: &Self| matches!(ticket.rests, Rests::Kept(..));
        let together = self.ring().zip(other.ring()).is_some_and(|(one, other)| one.comes_with(other));
        together && waits_beyond(self) == waits_beyond(other)
    }

    /// Returns whether the written data is in memory only, as its [space](crate::Class::Memory) is.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.rests, Rests::Memory(_))
    }

    /// Calls `callback` once, when the write is acknowledged or has failed. If the write has ended
    /// already, `on_done` calls `callback` at once, on this thread.
    ///
    /// The callback may append, wait, and close the store; see [where it
    /// runs](Self#where-code-of-yours-runs).
    pub fn on_done(&self, callback: impl FnOnce(Result<(), Error>) + Send + 'static) {
        match &self.rests {
            Rests::Ring(ack) => ack.on_done(|result| callback(result.map_err(Error::from))),
            Rests::Kept(ack, kept) => {
                let kept = kept.clone();
                ack.on_done(move |result| match result {
                    Ok(()) => kept.on_done(|result| callback(result.map_err(Error::from))),
                    Err(error) => callback(Err(error.into())),
                });
            }
            Rests::Deferred(_) | Rests::Memory(_) => callback(Ok(())),
        }
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.rests {
            Rests::Ring(ack) => Pin::new(ack).poll(context).map_err(Error::from),
            Rests::Kept(ack, kept) => match Pin::new(ack).poll(context) {
                Poll::Ready(Ok(())) => Pin::new(kept).poll(context).map_err(Error::from),
                other => other.map_err(Error::from),
            },
            Rests::Deferred(_) | Rests::Memory(_) => Poll::Ready(Ok(())),
        }
    }
}
