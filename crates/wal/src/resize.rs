//! Resizes a ring in use.
//!
//! Steps: appends pause; all appended records become durable, so that the log ends where the new
//! span begins; `record` stores the new map; the ring continues in the new span. Meanwhile appends
//! wait for room: until the blocks in flight are durable and the map is stored. A crash before the
//! map is stored leaves the old ring; after that, the new map locates every existing block at the
//! same place.

use crate::core::Limits;
use crate::error::WalError;
use crate::map::Map;
use crate::ring::Cursor;
use crate::shared::Shared;
use crate::sync::thread::Thread;
use crate::wal::Wal;

/// A guard that allows appends again, after any outcome of the resize.
struct Paused<'a>(&'a Shared);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let mut core = self.0.lock();
        core.resume();
        let waiters = core.room_changed();
        drop(core);
        waiters.iter().for_each(Thread::unpark);
    }
}

impl Wal {
    /// Returns the log position of the next record.
    pub(crate) fn next_lsn(&self) -> u64 {
        self.shared.lock().next_lsn()
    }

    /// Returns the map of positions.
    pub fn map(&self) -> Map {
        self.shared.lock().map()
    }

    /// Continues in a ring of `size` bytes. Its space must be allocated and written before, and the
    /// last resize must have settled: [`Map::before`] is `None`. Copies nothing. Appends wait
    /// meanwhile.
    ///
    /// `record` makes the new map durable, with the end of the log: the next opening of the ring
    /// goes by this map. If `record` fails, it must also have stopped the log, by
    /// [`fail`](Self::fail).
    ///
    /// Returns `Ok(Err(free))` if the new ring would have only `free` bytes for new blocks, too few
    /// for its largest record; nothing has changed then, and `record` was not called.
    ///
    /// # Errors
    /// The error that stopped the log; [`WalError::WouldWait`] in a waker; and the error of
    /// `record`.
    pub fn resize(
        &self,
        size: u64,
        record: impl FnOnce(Map, Cursor) -> Result<(), WalError>,
    ) -> Result<Result<(), u64>, WalError> {
        self.may_wait()?;
        self.resize_within(size, Limits::new(&self.shared.config, size), record)
    }

    /// Resizes like [`resize`](Self::resize), within given limits.
    pub(crate) fn resize_within(
        &self,
        size: u64,
        limits: Limits,
        record: impl FnOnce(Map, Cursor) -> Result<(), WalError>,
    ) -> Result<Result<(), u64>, WalError> {
        let shared = &*self.shared;
        shared.lock().pause();
        let _paused = Paused(shared);
        let (map, end) = loop {
            self.flush()?;
            let core = shared.lock();
            core.check()?;
            if core.is_idle() {
                match core.resized(&limits, size) {
                    Ok(map) => break (map, core.end()),
                    Err(free) => return Ok(Err(free)),
                }
            }
        };
        record(map, end)?;
        shared.lock().change(limits, map);
        Ok(Ok(()))
    }
}
