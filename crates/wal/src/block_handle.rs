//! The handle of a block: its state, and the memory that it keeps.
//!
//! Lifecycle: a block is *open* while records are appended to it, *closed* when no more may be
//! appended, *placed* when it has its position and checksum, *durable* when it and all blocks
//! before it are on stable media and the sink has seen it, or *failed*. `place` is set when the
//! block is placed; `state` changes once, from pending to durable or failed.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use bytes::Bytes;

use crate::error::WalError;
use crate::listeners::{Heard, Listeners};
use crate::ring::Cursor;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use crate::sync::thread::Thread;
use crate::sync::{Mutex, MutexGuard};

const PENDING: u8 = 0;
const DURABLE: u8 = 1;
const FAILED: u8 = 2;

/// The data of a placed block.
struct Placed {
    /// Start of the block, and start of the next block.
    from: Cursor,
    to: Cursor,
    data: Bytes,
}

/// A block's second end: the moment when the mirror keeps it.
pub(crate) enum Kept {
    /// The log has no mirror.
    Never,
    /// The block ends only then.
    AtItsEnd,
    /// This block stands for that moment.
    Later(Arc<Block>),
}

/// A block of the log. Cheap to keep: all references share the payload memory.
pub struct Block {
    seq: u64,
    state: AtomicU8,
    /// Number of threads that still write their records into the block.
    writers: AtomicU32,
    place: OnceLock<Placed>,
    /// The error of a failed block; set before `state` changes.
    failure: OnceLock<WalError>,
    /// When the mirror of the log keeps the block.
    kept: Kept,
    listeners: Mutex<Listeners>,
}

impl Block {
    pub(crate) fn new(seq: u64, kept: Kept) -> Self {
        let (state, place, failure) = (AtomicU8::new(PENDING), OnceLock::new(), OnceLock::new());
        Self { seq, state, writers: AtomicU32::new(0), place, failure, kept, listeners: Mutex::default() }
    }

    /// Returns when the mirror of the log keeps the block.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Returns the block that stands for the moment when the mirror keeps this one, if that is
    /// another moment than the end of this one.
    pub(crate) fn later(&self) -> Option<&Arc<Self>> {
        if let Kept::Later(block) = &self.kept { Some(block) } else { None }
    }

    /// Creates a block that was read from the ring, or from another store: durable from the start.
    pub fn recovered(from: Cursor, to: Cursor, data: Bytes) -> Self {
        let block = Self::new(from.seq, Kept::Never);
        block.set_place(from, to, data);
        block.finish(&Ok(()));
        block
    }

    /// Returns the block's number; 1 more than the number of the block before.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the log positions of the block's records, in bytes.
    ///
    /// # Panics
    /// If the block is not durable yet.
    pub fn lsns(&self) -> Range<u64> {
        let (from, to) = self.cursors();
        from.lsn..to.lsn
    }

    /// Returns the records, uncompressed. Record offsets count from the start of these bytes.
    ///
    /// # Panics
    /// If the block is not durable yet.
    pub fn data(&self) -> &Bytes {
        &self.place.get().expect("the payload of a block is shared once it is placed").data
    }

    /// Returns the records of a placed block, uncompressed; `None` if it is not placed yet.
    pub(crate) fn placed(&self) -> Option<&Bytes> {
        self.place.get().map(|placed| &placed.data)
    }

    /// Counts a thread that begins to write its record.
    pub(crate) fn begin_writing(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts a thread that has written its record.
    pub(crate) fn end_writing(&self) {
        self.writers.fetch_sub(1, Ordering::Release);
    }

    /// Returns whether a thread still writes its record. No thread begins once the block is closed.
    pub(crate) fn is_being_filled(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// Returns the start of a placed block, and the start of the next block.
    pub(crate) fn cursors(&self) -> (Cursor, Cursor) {
        let place = self.place.get().expect("a block has its cursors once it is placed");
        (place.from, place.to)
    }

    pub(crate) fn set_place(&self, from: Cursor, to: Cursor, data: Bytes) {
        let once = self.place.set(Placed { from, to, data });
        assert!(once.is_ok(), "block {} is placed twice", self.seq);
    }

    /// Returns whether the block, and all before it, are on stable media; `None` if it failed.
    pub(crate) fn is_durable(&self) -> Option<bool> {
        match self.state.load(Ordering::Acquire) {
            PENDING => Some(false),
            DURABLE => Some(true),
            _ => None,
        }
    }

    /// Returns the block's result; `None` while there is none.
    pub(crate) fn ended(&self) -> Option<Result<(), WalError>> {
        match self.is_durable() {
            Some(false) => None,
            Some(true) => Some(Ok(())),
            None => Some(Err(self.failure.get().cloned().expect("a block that failed knows why"))),
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().expect("nothing of others runs under the lock")
    }

    /// Adds a listener with `join`, unless the block has ended already. `join` runs under a lock.
    pub(crate) fn listen<T>(&self, join: impl FnOnce(&mut Listeners) -> T) -> Option<T> {
        let mut listeners = self.listeners();
        // Read under the lock: `finish` sets the state before it takes the listeners.
        (self.is_durable() == Some(false)).then(|| join(&mut listeners))
    }

    /// Adds a task as a listener; `slot` is the task's earlier slot, if any.
    pub(crate) fn listen_as_task(&self, slot: &mut Option<usize>, waker: &Waker) -> Option<Heard> {
        if self.is_durable() != Some(false) {
            return None;
        }
        // Cloned before the lock is taken; the replaced waker is dropped after it.
        let waker = waker.clone();
        let (heard, _replaced) = self.listen(|all| all.task(slot, waker))?;
        Some(heard)
    }

    /// Removes a task that needs no notification any more. Returns `false` if the block has ended.
    pub(crate) fn leave(&self, slot: Option<usize>) -> bool {
        // Most acks are dropped when their block has ended: they need no lock.
        if self.is_durable() != Some(false) {
            return false;
        }
        self.listen(|all| slot.map(|slot| all.leave(slot))).is_some()
    }

    /// Returns whether any listener waits.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.listeners().is_empty()
    }

    /// Takes one waiting thread out of the listeners, to drive the block. The thread listens again
    /// if necessary.
    pub(crate) fn take_thread(&self) -> Option<Thread> {
        self.listeners().take_thread()
    }

    /// Ends the block and returns its listeners, to be notified when no lock is held.
    pub(crate) fn finish(&self, result: &Result<(), WalError>) -> Listeners {
        let state = match result {
            Ok(()) => DURABLE,
            Err(error) => {
                self.failure.get_or_init(|| error.clone());
                FAILED
            }
        };
        let before = self.state.swap(state, Ordering::AcqRel);
        assert!(before == PENDING, "block {} ended twice", self.seq);
        std::mem::take(&mut *self.listeners())
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({}, durable: {:?})", self.seq, self.is_durable())
    }
}
