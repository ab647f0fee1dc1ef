//! Resizes a ring in use.
//!
//! Steps: appends pause; all appended records become durable, so that the log ends where the new
//! span begins; `record` stores the new map; the ring continues in the new span. Meanwhile appends
//! wait for room: until the blocks in flight are durable and the map is stored. A crash before the
//! map is stored leaves the old ring; after that, the new map locates every existing block at the
//! same place.

use std::time::Duration;

use crate::core::Limits;
use crate::error::WalError;
use crate::map::Map;
use crate::ring::Cursor;
use crate::shared::Shared;
use crate::sync::thread::Thread;
use crate::wal::Wal;

/// Longest time for which appends pause until the mirror keeps all appended blocks. Appends do not
/// wait for a mirror that is further behind.
const LAG: Duration = Duration::from_secs(1);

/// The reason why a ring was not resized. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotResized {
    /// The new ring would have only `free` bytes for new blocks, too few for its largest record.
    NoRoom {
        /// Bytes for new blocks.
        free: u64,
    },
    /// Acknowledgements wait for the mirror, and the mirror is far behind.
    MirrorLags,
}

/// A guard that allows appends again, after any outcome of the resize.
struct Paused<'a>(&'a Shared);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let mut core = self.0.lock();
        core.resume();
        let (rest, waiters) = (core.rest_without_cause(), core.room_changed());
        drop(core);
        self.0.end_rest(rest);
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
    /// Returns `Ok(Err(why))` if the ring cannot be resized now; nothing has changed then, and
    /// `record` was not called.
    ///
    /// # Errors
    /// The error that stopped the log; [`WalError::WouldWait`] in a waker; and the error of
    /// `record`.
    pub fn resize(
        &self,
        size: u64,
        record: impl FnOnce(Map, Cursor) -> Result<(), WalError>,
    ) -> Result<Result<(), NotResized>, WalError> {
        self.may_wait()?;
        self.resize_within(size, Limits::new(&self.shared.config, size), record)
    }

    /// Returns whether acknowledgements wait for a mirror that is so far behind that the ring is
    /// not resized.
    pub fn mirror_lags(&self) -> bool {
        let shared = &*self.shared;
        shared.lock().hides_since(shared.clock.now()).is_some_and(|lag| lag >= LAG)
    }

    /// Resizes like [`resize`](Self::resize), within given limits.
    pub(crate) fn resize_within(
        &self,
        size: u64,
        limits: Limits,
        record: impl FnOnce(Map, Cursor) -> Result<(), WalError>,
    ) -> Result<Result<(), NotResized>, WalError> {
        let shared = &*self.shared;
        if self.mirror_lags() {
            return Ok(Err(NotResized::MirrorLags));
        }
        shared.lock().pause();
        let _paused = Paused(shared);
        let (map, end) = loop {
            if !self.flush_within_lag()? {
                return Ok(Err(NotResized::MirrorLags));
            }
            let core = shared.lock();
            core.check()?;
            if core.is_idle() {
                match core.resized(&limits, size) {
                    Ok(map) => break (map, core.end()),
                    Err(free) => return Ok(Err(NotResized::NoRoom { free })),
                }
            }
        };
        record(map, end)?;
        shared.lock().change(limits, map);
        Ok(Ok(()))
    }

    /// Makes all appended records durable. Returns `false` if acknowledgements wait for the mirror,
    /// and the mirror does not keep the records within [`LAG`].
    fn flush_within_lag(&self) -> Result<bool, WalError> {
        let (hides, last) = {
            let core = self.shared.lock();
            (core.may_hide(), core.last_appended())
        };
        match last.filter(|_| hides) {
            // Without a thread of the committer, the caller has run it: only the mirror is left.
            Some(last) => {
                let alone = self.shared.committer.get().is_none();
                self.ack(last).wait_timeout(if alone { Duration::ZERO } else { LAG })
            }
            None => self.flush().map(|()| true),
        }
    }
}
