//! Reads of entries that are appended and may not be durable yet.

use std::ops::RangeBounds;

use crate::error::Error;
use crate::model::Bounds;
use crate::model::key::check_key;
use crate::model::retention_state::shown;
use crate::read::asked::Asked;
use crate::read::{Entries, ReadView};
use crate::store::Store;
use crate::sync::thread;

impl Store {
    /// Reads the entries of a range that the log has, also entries that are not durable yet. A log
    /// that does not exist has none. The call sees every commit that was accepted before it.
    ///
    /// **A power cut or a kill may still undo the returned entries**, and their numbers are then
    /// used again: wait for the [`Ticket`](crate::Ticket) of an entry before anybody outside relies
    /// on the entry. The call is for a writer that reads its own log back, as a Raft host does:
    /// the host sends entries to others while its own copy is on the way to the medium.
    ///
    /// [`read_available`](Self::read_available) returns durable entries only.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let ticket = store.append("raft/7", "entry")?;
    /// let entry = store.read_appended("raft/7", 0..)?.next().unwrap()?;
    /// assert_eq!((entry.seq, &entry.payload[..]), (0, &b"entry"[..]));
    /// ticket.wait()?; // now it is durable
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`read_available`](Self::read_available); [`Error::Stopped`] if the store can
    /// make no more entries durable.
    pub fn read_appended(
        &self,
        key: impl AsRef<[u8]>,
        range: impl RangeBounds<u64>,
    ) -> Result<Entries, Error> {
        let (key, asked, inner) = (key.as_ref(), Asked::available(&range), self.inner());
        inner.here()?;
        check_key(key)?;
        let Some(wal) = &inner.wal else { return inner.read_visible(key, &asked) };
        if let Some(entries) = inner.read_in_memory(key, &asked)? {
            return Ok(entries);
        }
        loop {
            let mut state = inner.sound_state()?;
            state.spaces.note_read(key);
            let view = ReadView::take_appended(&state, key, &asked, inner.now(), wal)?;
            if let Some(view) = view {
                state.reads.note(view.read_source);
                drop(state);
                return view.entries(key, &asked);
            }
            // Another thread compresses the block, which takes less than a millisecond.
            drop(state);
            thread::yield_now();
        }
    }

    /// Returns the log's first and next numbers after all accepted commits, also those that are not
    /// durable yet; `None` if the log does not exist. See [`read_appended`](Self::read_appended).
    ///
    /// # Errors
    /// The errors of [`get_bounds`](Self::get_bounds).
    pub fn bounds_appended(&self, key: impl AsRef<[u8]>) -> Result<Option<Bounds>, Error> {
        let (key, inner) = (key.as_ref(), self.inner());
        inner.here()?;
        check_key(key)?;
        if inner.wal.is_none() || inner.find_in_memory(key).is_some() {
            return inner.visible_bounds(key);
        }
        let state = inner.sound_state()?;
        let Some(bounds) = state.bounds_appended(key) else {
            drop(state);
            return inner.visible_bounds(key);
        };
        let now = state.seen_at(key, inner.now());
        Ok(bounds.map(|bounds| shown(bounds, state.terms_appended(key), now)))
    }
}
