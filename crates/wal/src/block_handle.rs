//! A block as its waiters see it: when it is durable, and the memory it keeps.
//!
//! Lifecycle, told once: a block is *open* while records are appended to it, *closed* when no more
//! may, *placed* when it has its position and checksum, *durable* when it and all blocks before it
//! are on stable media and the sink has seen it - or *failed*. `place` is set when the block is
//! placed; `state` moves once, from pending to one of the ends.

use std::ops::Range;
use std::sync::OnceLock;
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

/// What is known of a block once it is placed.
struct Placed {
    /// Where it starts, and where the log goes on behind it.
    from: Cursor,
    to: Cursor,
    data: Bytes,
}

/// A block of the log. Cheap to keep: the payload memory is shared by all who refer into it.
pub struct Block {
    seq: u64,
    state: AtomicU8,
    /// Writers that still write their records into it.
    writers: AtomicU32,
    place: OnceLock<Placed>,
    /// Why it failed, if it did; set before `state` says so.
    failure: OnceLock<WalError>,
    listeners: Mutex<Listeners>,
}

impl Block {
    pub(crate) fn new(seq: u64) -> Self {
        let (state, place, failure) = (AtomicU8::new(PENDING), OnceLock::new(), OnceLock::new());
        Self { seq, state, writers: AtomicU32::new(0), place, failure, listeners: Mutex::default() }
    }

    /// A block read back from the ring, or from wherever it was kept: durable from the start.
    pub fn recovered(from: Cursor, to: Cursor, data: Bytes) -> Self {
        let block = Self::new(from.seq);
        block.set_place(from, to, data);
        block.finish(&Ok(()));
        block
    }

    /// The block's number; 1 more than the block before.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Which bytes of the log its records are, of all that were ever appended.
    ///
    /// # Panics
    /// If the block is not durable yet.
    pub fn lsns(&self) -> Range<u64> {
        let (from, to) = self.cursors();
        from.lsn..to.lsn
    }

    /// The records, uncompressed. Record offsets count from its start.
    ///
    /// # Panics
    /// If the block is not durable yet.
    pub fn data(&self) -> &Bytes {
        &self.place.get().expect("the payload of a block is shared once it is placed").data
    }

    /// A writer begins to write its record.
    pub(crate) fn begin_writing(&self) {
        self.writers.fetch_add(1, Ordering::Relaxed);
    }

    /// A writer has written its record.
    pub(crate) fn end_writing(&self) {
        self.writers.fetch_sub(1, Ordering::Release);
    }

    /// Whether some writer still writes its record. No more join once the block is closed.
    pub(crate) fn is_being_filled(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// Where a placed block starts, and where the log goes on behind it.
    pub(crate) fn cursors(&self) -> (Cursor, Cursor) {
        let place = self.place.get().expect("a block has its cursors once it is placed");
        (place.from, place.to)
    }

    pub(crate) fn set_place(&self, from: Cursor, to: Cursor, data: Bytes) {
        let once = self.place.set(Placed { from, to, data });
        assert!(once.is_ok(), "block {} is placed twice", self.seq);
    }

    /// Whether the block, and all before it, are on stable media; `None` if it failed.
    pub(crate) fn is_durable(&self) -> Option<bool> {
        match self.state.load(Ordering::Acquire) {
            PENDING => Some(false),
            DURABLE => Some(true),
            _ => None,
        }
    }

    /// How the block ended; `None` while it has not.
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

    /// Lets someone listen by `join`, unless the block has ended already. `join` moves what is
    /// there already: it runs under a lock.
    pub(crate) fn listen<T>(&self, join: impl FnOnce(&mut Listeners) -> T) -> Option<T> {
        let mut listeners = self.listeners();
        // Read under the lock: `finish` sets the state before it takes the listeners.
        (self.is_durable() == Some(false)).then(|| join(&mut listeners))
    }

    /// A task listens, as `slot` if it came before.
    pub(crate) fn listen_as_task(&self, slot: &mut Option<usize>, waker: &Waker) -> Option<Heard> {
        if self.is_durable() != Some(false) {
            return None;
        }
        // Cloned before the lock is taken, and what is replaced is dropped after it.
        let waker = waker.clone();
        let (heard, _replaced) = self.listen(|all| all.task(slot, waker))?;
        Some(heard)
    }

    /// Lets a task go that need not be told any more. `false` where the block has ended.
    pub(crate) fn leave(&self, slot: Option<usize>) -> bool {
        // Most acks are dropped when their block has ended: they need no lock.
        if self.is_durable() != Some(false) {
            return false;
        }
        self.listen(|all| slot.map(|slot| all.leave(slot))).is_some()
    }

    /// Whether anybody listens.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.listeners().is_empty()
    }

    /// Takes one waiting thread out of the listeners, to drive the block. It listens again if it
    /// must.
    pub(crate) fn take_thread(&self) -> Option<Thread> {
        self.listeners().take_thread()
    }

    /// Ends the block and hands out its listeners, to be told when no lock is held.
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
