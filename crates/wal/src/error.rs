//! The errors of a ring, and their remedies.

use std::fmt;
use std::io;
use std::sync::Arc;

/// An error of the write-ahead log.
#[derive(Clone)]
pub enum WalError {
    /// The record exceeds the limit of the ring; nothing was written. Split it, or use a larger
    /// ring.
    TooLarge {
        /// Size of the record, in bytes.
        len: usize,
        /// Size of the largest record that the ring takes, in bytes.
        limit: usize,
    },
    /// The ring has no room until something is trimmed; nothing was written.
    Full {
        /// Bytes in use.
        used: u64,
        /// Size of the ring, in bytes.
        size: u64,
    },
    /// Too many blocks wait to be written for the memory bound; nothing was appended. Wait for room
    /// and try again.
    Busy,
    /// A write or flush failed earlier. Whether unacknowledged records exist is unknown until the
    /// next opening.
    Stopped(Arc<io::Error>),
    /// The mirror of the log has ended: for example, another host has taken the log over. Whether
    /// unacknowledged records exist is unknown until the next opening.
    MirrorEnded {
        /// The reason.
        why: Arc<str>,
    },
    /// The log was closed.
    Closed,
    /// The log was opened by a process of which this one is a fork; nothing was done. Memory and
    /// locks of the copy are as they were at the fork, and the parent writes the pending blocks.
    Forked,
    /// In a waker, the call would wait for the thread that runs the waker; nothing was done.
    WouldWait,
    /// Acknowledged data does not read back. Nothing is cut off: restore from a copy, or read the
    /// records before the damage.
    Damaged {
        /// Number of the block.
        seq: u64,
        /// Expected position of the block in the endless ring, in bytes.
        position: u64,
        /// First affected log position.
        lsn: u64,
        /// Description of the damage.
        what: String,
    },
    /// A block is compressed by zstd, and this build lacks the feature `zstd`. Nothing was changed.
    NoCodec {
        /// Number of the block.
        seq: u64,
        /// Position of the block in the endless ring, in bytes.
        position: u64,
    },
    /// Reading failed.
    Io(Arc<io::Error>),
}

impl fmt::Display for WalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use WalError::*;
        match self {
            TooLarge { len, limit } => write!(
                f,
                "a record of {len} bytes is over the limit of {limit} bytes: split it, or make the ring larger"
            ),
            Full { used, size } => write!(
                f,
                "the ring is full ({used} of {size} bytes): trim it, then try again"
            ),
            Busy => f.write_str("too many blocks are waiting to be written: wait for room, then try again"),
            Stopped(it) => write!(
                f,
                "the log stopped after a failed write ({it}): close it and open it again; unacknowledged appends may be lost"
            ),
            MirrorEnded { why } => write!(
                f,
                "the second copy of the log has ended ({why}): close the log and open it again; unacknowledged appends may be lost"
            ),
            Closed => f.write_str("the log is closed"),
            Forked => f.write_str(
                "the log was opened by another process, of which this one is a fork: close it there, then open it here",
            ),
            WouldWait => f.write_str(
                "a waker must not wait for the log: append and wait in the task that the waker wakes, or in a callback",
            ),
            Damaged { seq, position, lsn, what } => write!(
                f,
                "acknowledged block {seq} at ring position {position} (LSN {lsn}) is damaged: {what}"
            ),
            NoCodec { seq, position } => write!(
                f,
                "block {seq} at ring position {position} is compressed by zstd: open the log with a build that has the feature `zstd`"
            ),
            Io(it) => write!(f, "reading the ring failed: {it}"),
        }
    }
}

impl std::error::Error for WalError {}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for WalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<io::Error> for WalError {
    fn from(error: io::Error) -> Self {
        WalError::Io(Arc::new(error))
    }
}

#[cfg(test)]
mod tests;
