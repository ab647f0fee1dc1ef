//! Reads of logs, and look-ups of their bounds.

use std::ops::RangeBounds;
use std::sync::Arc;

use brooklet_io::seeded::bug;

use crate::counters::ReadSource;
use crate::engine::Inner;
use crate::error::{Error, KeyText};
use crate::model::Bounds;
use crate::model::key::check_key;
use crate::model::retention::Retention;
use crate::model::retention_state::{State, retention};
use crate::read::asked::Asked;
use crate::read::{Entries, Entry, ReadView};
use crate::run::RunSet;
use crate::state::StoreState;
use crate::store::Store;

/// Number of logs that a call for many logs looks up under one lock. Appends wait meanwhile.
const AT_ONCE: usize = 64;

impl Store {
    /// Reads entries of a log, as they are at the call. `..` reads all entries, `5..` reads from
    /// number 5 on, and `.rev()` on the result reads the newest entry first.
    ///
    /// The iterator returns only acknowledged entries. Later changes of the log do not change the
    /// entries that the iterator returns.
    ///
    /// # Errors
    /// [`Error::UnknownLog`]; [`Error::OutOfRange`] if the range includes entries that were trimmed
    /// or that do not exist yet. The iterator returns [`Error::Damaged`] if an entry does not read
    /// back as it was written.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// store.append_many("doc", ["a", "b", "c"])?.wait()?;
    /// let newest = store.read("doc", 1..)?.rev().next().unwrap()?;
    /// assert_eq!((newest.seq, &newest.payload[..]), (2, &b"c"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Entries, Error> {
        self.read_asked(key.as_ref(), &Asked::exactly(&range))
    }

    /// Reads the entries of a range that the log has. A log that does not exist has none. The call
    /// suits a reader that goes on where it stopped: entries that were trimmed meanwhile are not an
    /// error. To notice them, compare the number of the first entry with the expected number.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// store.append_many("doc", ["a", "b", "c"])?.wait()?;
    /// store.trim("doc", 2)?.wait()?;
    /// let seqs = |key| store.read_available(key, 1..).map(|entries| entries.range());
    /// assert_eq!((seqs("doc")?, seqs("none")?), (2..3, 0..0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), without [`Error::UnknownLog`] and
    /// [`Error::OutOfRange`].
    pub fn read_available(
        &self,
        key: impl AsRef<[u8]>,
        range: impl RangeBounds<u64>,
    ) -> Result<Entries, Error> {
        self.read_asked(key.as_ref(), &Asked::available(&range))
    }

    /// Returns the first entry of a log; `None` if the log does not exist or has no entry.
    ///
    /// # Errors
    /// The errors of [`read_available`](Self::read_available).
    pub fn first(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>, Error> {
        self.read_available(key, ..)?.next().transpose()
    }

    /// Returns the last entry of a log; `None` if the log does not exist or has no entry.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// store.append_many("doc", ["a", "b", "c"])?.wait()?;
    /// assert_eq!(store.last("doc")?.map(|entry| entry.seq), Some(2));
    /// assert_eq!(store.last("none")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`read_available`](Self::read_available).
    pub fn last(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>, Error> {
        self.read_available(key, ..)?.next_back().transpose()
    }

    /// Reads all entries of several logs; the result has the order of the keys. A log that does not
    /// exist has no entries. Each log is as it was at one moment of the call; a
    /// [view](Self::view) has all logs at the same moment.
    ///
    /// The call takes the store's lock once for 64 logs, and looks the logs up in key order. Until
    /// they are dropped, the results hold a block of each run for each log.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// store.append_many("b", ["x", "y"])?.wait()?;
    /// let lens = store.read_many(["a", "b"])?.into_iter().map(|entries| entries.count());
    /// assert_eq!(lens.collect::<Vec<_>>(), [0, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`read_available`](Self::read_available), for any of the logs.
    pub fn read_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Entries>, Error> {
        let asked = Asked::available(&..);
        self.many(
            keys,
            |inner, key| inner.read_in_memory(key, &asked),
            |state, key, now| take_view(state, key, &asked, now),
            |_, key, read_view| read_view.entries(key, &asked),
        )
    }

    /// Returns the first and next numbers of several logs, in the order of the keys; `None` for a
    /// log that does not exist. See [`read_many`](Self::read_many).
    ///
    /// # Errors
    /// The errors of [`get_bounds`](Self::get_bounds), for any of the logs.
    pub fn bounds_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bounds>>, Error> {
        self.many(
            keys,
            |inner, key| Ok(inner.find_in_memory(key).map(|state| state.shown(inner.now()))),
            Known::take,
            |runs, key, known: Known| {
                let state = known.state.map_or_else(|| runs.state(key), Ok)?;
                Ok(state.shown(known.now))
            },
        )
    }

    /// Returns the log's first and next numbers.
    ///
    /// # Errors
    /// [`Error::UnknownLog`].
    pub fn bounds(&self, key: impl AsRef<[u8]>) -> Result<Bounds, Error> {
        let key = key.as_ref();
        self.get_bounds(key)?.ok_or_else(|| Error::UnknownLog { key: KeyText::of(key) })
    }

    /// Returns the log's first and next numbers; `None` if the log does not exist.
    ///
    /// # Errors
    /// [`Error::Damaged`] if damage hides the log.
    pub fn get_bounds(&self, key: impl AsRef<[u8]>) -> Result<Option<Bounds>, Error> {
        let (state, now) = self.find(key.as_ref())?;
        Ok(state.shown(now))
    }

    /// Returns the retention of the log.
    ///
    /// # Errors
    /// [`Error::UnknownLog`].
    pub fn retention(&self, key: impl AsRef<[u8]>) -> Result<Retention, Error> {
        let key = key.as_ref();
        let (State { bounds, terms }, _) = self.find(key)?;
        bounds.map(|_| retention(terms.as_deref())).ok_or_else(|| Error::UnknownLog { key: KeyText::of(key) })
    }

    /// Returns whether the log exists.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.find(key.as_ref())?.0.bounds.is_some())
    }

    fn read_asked(&self, key: &[u8], asked: &Asked) -> Result<Entries, Error> {
        let inner = self.inner();
        inner.here()?;
        check_key(key)?;
        if let Some(entries) = inner.read_in_memory(key, asked)? {
            return Ok(entries);
        }
        self.settle(&[key])?;
        inner.read_below(key, asked)
    }

    /// Returns the state of a log, and the time at which the age of its entries is judged.
    fn find(&self, key: &[u8]) -> Result<(State, u64), Error> {
        let inner = self.inner();
        inner.here()?;
        check_key(key)?;
        if let Some(state) = inner.find_in_memory(key) {
            return Ok((state, inner.now()));
        }
        self.settle(&[key])?;
        inner.find_below(key)
    }

    /// Looks several logs up: those of spaces in memory by `in_memory`, then the others by `take`
    /// under the lock, and by `end` in the runs without it.
    fn many<K: AsRef<[u8]>, T, R>(
        &self,
        keys: impl IntoIterator<Item = K>,
        in_memory: impl Fn(&Inner, &[u8]) -> Result<Option<R>, Error>,
        take: impl Fn(&mut StoreState, &[u8], u64) -> Result<T, Error>,
        end: impl Fn(&Arc<RunSet>, &[u8], T) -> Result<R, Error>,
    ) -> Result<Vec<R>, Error> {
        let inner = self.inner();
        inner.here()?;
        let keys: Vec<K> = keys.into_iter().collect();
        keys.iter().try_for_each(|key| check_key(key.as_ref()))?;
        // Logs that are neighbours are often in the same blocks.
        let mut order: Vec<(&[u8], usize)> =
            keys.iter().enumerate().map(|(i, key)| (key.as_ref(), i)).collect();
        order.sort_unstable();
        let mut results: Vec<Option<R>> = keys.iter().map(|_| None).collect();
        for some in order.chunks(AT_ONCE) {
            for (key, i) in some {
                results[*i] = in_memory(inner, key)?;
            }
            let below: Vec<_> = some.iter().filter(|(_, i)| results[*i].is_none()).collect();
            self.settle(&below.iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
            let mut state = inner.sound_state()?;
            let (now, runs) = (inner.now(), state.runs.clone());
            let taken: Vec<_> = below.iter().map(|(key, _)| take(&mut state, key, now)).collect();
            drop(state);
            for ((key, i), taken) in below.into_iter().zip(taken) {
                let look = || end(&runs, key, taken?);
                results[*i] = Some(inner.counters.run_lookups.time(&*inner.options.clock, look)?);
            }
        }
        Ok(results.into_iter().map(|result| result.expect("each log was looked up")).collect())
    }

    /// Makes the deferred commits on some logs durable: readers see acknowledged commits, and see
    /// only durable data.
    fn settle(&self, keys: &[&[u8]]) -> Result<(), Error> {
        let state = self.inner().state();
        let deferred = keys.iter().map(|key| state.deferred(key)).max().unwrap_or_default();
        drop(state);
        self.settle_block(deferred)
    }

    pub(super) fn settle_block(&self, deferred: u64) -> Result<(), Error> {
        let inner = self.inner();
        match &inner.wal {
            Some(wal) if deferred > 0 && wal.durable() < deferred && !bug("deferred-stay-unseen") => {
                match inner.flush() {
                    // Closing has made the block durable.
                    Err(Error::Closed) => Ok(()),
                    done => done,
                }
            }
            _ => Ok(()),
        }
    }
}

impl Inner {
    /// Reads the visible entries of a log, without waiting for deferred commits.
    pub(super) fn read_visible(&self, key: &[u8], asked: &Asked) -> Result<Entries, Error> {
        self.read_in_memory(key, asked)?.map_or_else(|| self.read_below(key, asked), Ok)
    }

    /// Returns the visible bounds of a log, without waiting for deferred commits.
    pub(super) fn visible_bounds(&self, key: &[u8]) -> Result<Option<Bounds>, Error> {
        let in_memory = self.find_in_memory(key).map(|state| (state, self.now()));
        let (state, now) = in_memory.map_or_else(|| self.find_below(key), Ok)?;
        Ok(state.shown(now))
    }

    /// Reads a log in memtables and runs.
    fn read_below(&self, key: &[u8], asked: &Asked) -> Result<Entries, Error> {
        let mut state = self.sound_state()?;
        let read_view = take_view(&mut state, key, asked, self.now())?;
        drop(state);
        if !read_view.looks_below() {
            return read_view.entries(key, asked);
        }
        self.counters.run_lookups.time(&*self.options.clock, || read_view.entries(key, asked))
    }

    /// Returns the state of a log in memtables and runs, and the time at which the age of its
    /// entries is judged.
    fn find_below(&self, key: &[u8]) -> Result<(State, u64), Error> {
        let mut state = self.sound_state()?;
        let known = Known::take(&mut state, key, self.now())?;
        let runs = state.runs.clone();
        drop(state);
        let look = || self.counters.run_lookups.time(&*self.options.clock, || runs.state(key));
        Ok((known.state.map_or_else(look, Ok)?, known.now))
    }
}

/// Takes a view of a log, and counts the read.
fn take_view(state: &mut StoreState, key: &[u8], asked: &Asked, now: u64) -> Result<ReadView, Error> {
    state.spaces.note_read(key);
    let read_view = ReadView::take(state, key, asked, now)?;
    state.reads.note(read_view.read_source);
    Ok(read_view)
}

/// The knowledge of the memtables and of the bounds cache about a log.
struct Known {
    /// The state of the log; `None` if only the runs know it.
    state: Option<State>,
    /// The time at which the age of entries is judged.
    now: u64,
}

impl Known {
    fn take(state: &mut StoreState, key: &[u8], now: u64) -> Result<Self, Error> {
        if let Some(doubt) = state.doubt(key) {
            let before = state.recent(key).first().and_then(|(_, _, piece)| piece.bounds);
            return Err(doubt.error(key, before.map(|bounds| bounds.next)));
        }
        let known = state.recent(key);
        let mut read_source = state.read_source(&known);
        let mut found = known.first().map(|(_, log, piece)| {
            let terms = log.visible_terms().cloned();
            State { bounds: piece.bounds, terms }
        });
        // The cache does not hear of changes in memory.
        let below_memory = state.spaces.is_in_memory(key);
        let remembered = (found.is_none() && !below_memory).then(|| state.bounds_cache.get(key));
        if let Some(bounds) = remembered.flatten() {
            (found, read_source) = (Some(State::without_terms(bounds)), ReadSource::BoundsCache);
        }
        state.reads.note(read_source);
        Ok(Self { state: found, now: state.seen_at(key, now) })
    }
}
