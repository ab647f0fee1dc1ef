//! What can go wrong with a ring, each kind telling the caller what to do.

use std::io;
use std::sync::Arc;

/// An error of the write-ahead log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    /// The record is larger than the ring is configured to take; nothing was written. Split it, or
    /// use a larger ring.
    #[error("a record of {len} bytes is over the limit of {limit}: split it, or make the ring larger")]
    TooLarge {
        /// Bytes of the record.
        len: usize,
        /// The most the ring takes.
        limit: usize,
    },
    /// The ring holds no room until something is trimmed; nothing was written.
    #[error("the ring is full ({used} of {size} bytes): trim it, then try again")]
    Full {
        /// Bytes in use.
        used: u64,
        /// Bytes of the ring.
        size: u64,
    },
    /// More is waiting to be written than the memory bound allows; nothing was taken. Wait for room
    /// and try again.
    #[error("too many blocks are waiting to be written: wait for room, then try again")]
    Busy,
    /// A write or flush failed earlier. The outcome of what was not acknowledged is unknown until
    /// the next opening.
    #[error(
        "the log stopped after a failed write ({0}): close it and open it again; unacknowledged appends may be lost"
    )]
    Stopped(Arc<io::Error>),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The log was opened by a process of which this one is a fork; nothing was done. Memory and
    /// locks of the copy are as they were at the fork, and what it would write, the parent writes.
    #[error(
        "the log was opened by another process, of which this one is a fork: open it here, once it is closed there"
    )]
    Forked,
    /// The call would wait, in a waker, on the thread that must go on for the wait to end; nothing
    /// was done.
    #[error("a waker may not wait for the log: append and wait in the task that it wakes, or in a callback")]
    WouldWait,
    /// Acknowledged data does not read back. Nothing is cut off: restore from a copy, or read what
    /// lies before.
    #[error("acknowledged block {seq} at ring position {position} (LSN {lsn}) is damaged: {what}")]
    Damaged {
        /// The block's number.
        seq: u64,
        /// Where it should be, in the endless ring.
        position: u64,
        /// The first log position that is affected.
        lsn: u64,
        /// What is wrong with it.
        what: String,
    },
    /// Reading failed.
    #[error("reading the ring failed: {0}")]
    Io(Arc<io::Error>),
}

impl From<io::Error> for WalError {
    fn from(error: io::Error) -> Self {
        WalError::Io(Arc::new(error))
    }
}

#[cfg(test)]
mod tests;
