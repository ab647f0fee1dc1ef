//! What a write gives back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use brooklet_wal::Ack;

use crate::error::Error;
use crate::front::Seqs;

/// The promise of a write: its sequence numbers now, its durability when it comes.
///
/// Wait for it on a thread, await it in a task of any runtime, or leave a callback. Dropping it changes nothing: the
/// write becomes durable all the same.
#[derive(Clone, Debug)]
#[must_use = "a write is acknowledged only once its ticket has been waited for"]
pub struct Ticket {
    pub(crate) seqs: Seqs,
    pub(crate) ack: Ack,
    pub(crate) deferred: bool,
}

impl Ticket {
    /// The number of the entry that was added; of the first, where there are several; 0 where none was.
    pub fn seq(&self) -> u64 {
        self.seqs.as_slice().first().copied().unwrap_or_default()
    }

    /// The numbers of all entries that were added, in the order of the operations.
    pub fn seqs(&self) -> &[u64] {
        self.seqs.as_slice()
    }

    /// Blocks until the write is acknowledged: on stable media, or at once for a deferred one.
    ///
    /// # Errors
    /// [`Error::Stopped`]: a write to the device failed; whether this commit took effect is unknown until the store is
    /// opened again.
    pub fn wait(&self) -> Result<(), Error> {
        if self.deferred { Ok(()) } else { self.wait_durable() }
    }

    /// Blocks until the write is on stable media, a deferred one too.
    pub fn wait_durable(&self) -> Result<(), Error> {
        Ok(self.ack.wait()?)
    }

    /// Whether the write is on stable media, without waiting.
    pub fn is_durable(&self) -> bool {
        self.ack.is_done()
    }

    /// Calls `callback` once the write is acknowledged, or cannot be any more.
    ///
    /// It runs on a thread that drives the log: it must be quick, and must not wait for another write.
    pub fn on_done(&self, callback: impl FnOnce(Result<(), Error>) + Send + 'static) {
        if self.deferred {
            callback(Ok(()));
        } else {
            self.ack.on_done(|result| callback(result.map_err(Error::from)));
        }
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.deferred {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.ack).poll(context).map_err(Error::from)
    }
}
