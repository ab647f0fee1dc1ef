//! The store as its users hold it: every public call.

pub mod check;
pub mod damage;
pub mod report;
pub mod space;
pub mod ticket;
pub mod view;

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{MemVolume, Volume};

use crate::counters::ReadSource;
use crate::engine::recovery;
use crate::engine::{Handle, Inner};
use crate::error::{Error, KeyText};
use crate::model::Bounds;
use crate::model::commit::{Action, Commit, Durability, Op};
use crate::model::key::check_key;
use crate::model::retention::Retention;
use crate::model::retention_state::{State, retention};
use crate::options::Options;
use crate::read::scan::{Listed, Logs};
use crate::read::{Entries, ReadView};
use crate::store::ticket::{Rests, Ticket};

use crate::volume::create;
use crate::volume::{self, Volumes};

/// A store of many small append-only logs in one file. Clones are handles to the same open store.
///
/// Dropping the last handle closes it. All calls may be made from any thread, and from callbacks; a
/// waker may not wait ([`Ticket`](crate::Ticket#where-code-of-yours-runs) says more).
///
/// A panic in a thread of the store, or in a volume of yours, stops the store as a failed write
/// does: with [`Error::Stopped`], which names it.
///
/// # After a `fork`
///
/// A child has a copy of the handles of its parent, and may not use them: every call on them, and
/// on the tickets, iterators, views and spaces that came from them, is refused with
/// [`Error::Forked`]; calls that have no error to give panic. Nothing is written, and dropping them
/// does nothing. The child may open other stores, or this one once the parent has closed it. But a
/// child that goes on keeps the file locked when the parent has ended, until it ends as well or
/// runs another program: a process that is to outlive the parent had better be started before the
/// store is opened.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

impl Store {
    /// Opens the store at `path` with the default options, creating it if it is not there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Options::new().open(path)
    }

    /// An empty store in memory, for tests and trials. `seed` makes its chances repeatable.
    pub fn in_memory(seed: u64) -> Result<Self, Error> {
        let options = Options::new().rng_seed(seed).ring_size(4 << 20).max_payload(512 << 10);
        options.create_on(Arc::new(MemVolume::new(seed)))
    }
}

impl Options {
    /// Opens the store at `path`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Store, Error> {
        self.validate()?;
        let (path, options) = self.settled(path.as_ref())?;
        let volumes = volume::open(&path, &options)?;
        options.start(volumes)
    }

    /// Opens the store on a volume.
    pub fn open_on(self, volume: Arc<dyn Volume>) -> Result<Store, Error> {
        self.start(Volumes { data: volume, ring: None })
    }

    /// Opens the store on a volume whose ring lies on another.
    #[doc(hidden)]
    pub fn open_on_with_ring(self, volume: Arc<dyn Volume>, ring: Arc<dyn Volume>) -> Result<Store, Error> {
        self.start(Volumes { data: volume, ring: Some(ring) })
    }

    /// Makes an empty store on a volume and opens it.
    pub fn create_on(self, volume: Arc<dyn Volume>) -> Result<Store, Error> {
        create::create(&Volumes { data: volume.clone(), ring: None }, &self, create::empty)?;
        self.open_on(volume)
    }

    /// Makes an empty store on a volume, with its ring on another, and opens it.
    #[doc(hidden)]
    pub fn create_on_with_ring(self, volume: Arc<dyn Volume>, ring: Arc<dyn Volume>) -> Result<Store, Error> {
        create::create(&Volumes { data: volume.clone(), ring: Some(ring.clone()) }, &self, create::empty)?;
        self.open_on_with_ring(volume, ring)
    }

    fn start(mut self, volumes: Volumes) -> Result<Store, Error> {
        self.validate()?;
        self.settle_metrics()?;
        if let (Some(ring), None) = (&self.ring, &volumes.ring) {
            let (ring, data) = (ring.display(), volumes.data.info().name);
            return Err(Error::InvalidOptions(format!(
                "a ring at {ring} for a store on a volume that is there ({data}): open the store at its path, or without that"
            )));
        }
        let (volumes, tethers) = volumes.tethered();
        let mut opened = recovery::load(&volumes, &self)?;
        if !self.read_only {
            recovery::claim(&mut opened, &self)?;
        }
        let is_read_only = self.read_only;
        let store = Store { handle: Arc::new(Handle::start(opened, self, tethers)?) };
        if !is_read_only {
            store.shared().load_memory()?;
        }
        store.shared().publish_metrics()?;
        Ok(store)
    }
}

impl Store {
    pub(crate) fn inner(&self) -> &Inner {
        &self.handle.inner
    }

    pub(crate) fn shared(&self) -> Arc<Inner> {
        self.handle.inner.clone()
    }

    pub(crate) fn write(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        wait: bool,
    ) -> Result<Ticket, Error> {
        let inner = self.inner();
        inner.here()?;
        ops.iter().try_for_each(|op| inner.check(op))?;
        loop {
            // A space may go to memory, or come from there, between the two.
            if let Some((seqs, memory_space)) = inner.commit_in_memory(ops, durability, wait)? {
                return Ok(Ticket { seqs, rests: Rests::Memory(memory_space) });
            }
            if let Some(accepted) = inner.append(ops, durability, wait)? {
                let ack = inner.wal()?.ack(accepted.appended.block.clone());
                let rests = if accepted.deferred { Rests::Deferred(ack) } else { Rests::Ring(ack) };
                return Ok(Ticket { seqs: accepted.seqs, rests });
            }
            if let Some(why) = inner.wal()?.failure() {
                // It stopped while the space was on its way to memory.
                return Err(why.into());
            }
        }
    }

    fn write_one(&self, key: &(impl AsRef<[u8]> + ?Sized), action: Action<'_>) -> Result<Ticket, Error> {
        self.write(&[Op { key: key.as_ref(), action }], None, true)
    }

    /// Adds an entry to a log, creating the log if need be.
    ///
    /// The entry's number is known at once ([`Ticket::seq`]); the entry is safe, and visible to
    /// readers, once the ticket says so ([`Ticket::wait`], or awaiting it).
    pub fn append(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Append(payload.as_ref()))
    }

    /// [`append`](Self::append), acknowledged as `durability` says, or as the log's
    /// [space](crate::Space) does if that promises more.
    pub fn append_with(
        &self,
        key: impl AsRef<[u8]>,
        payload: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Ticket, Error> {
        self.write(
            &[Op { key: key.as_ref(), action: Action::Append(payload.as_ref()) }],
            Some(durability),
            true,
        )
    }

    /// Adds several entries to a log, all or none, with consecutive numbers.
    pub fn append_many<P: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<Ticket, Error> {
        let payloads: Vec<P> = payloads.into_iter().collect();
        let op = |i: usize| Op { key: key.as_ref(), action: Action::Append(payloads[i].as_ref()) };
        let ops: Vec<Op<'_>> = (0..payloads.len()).map(op).collect();
        self.write(&ops, None, true)
    }

    /// Adds an entry and drops all before it, in one step.
    pub fn snapshot(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Snapshot(payload.as_ref()))
    }

    /// Drops the entries before `before`, which may be at most the log's next number. What is
    /// dropped already stays so.
    pub fn trim(&self, key: impl AsRef<[u8]>, before: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Trim(before))
    }

    /// Drops all but the last `n` entries.
    pub fn keep_last(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::KeepLast(n))
    }

    /// Drops the entries from `from` on; the next entry gets that number.
    pub fn truncate(&self, key: impl AsRef<[u8]>, from: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Truncate(from))
    }

    /// Drops the log. A log created later under the same key is a new one and starts at 0.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Delete)
    }

    /// Sets what a log keeps from now on: its newest entries, within each limit of `retention`.
    /// Creates the log, empty, where there is none; without a limit everything is kept again, and
    /// there must be a log.
    ///
    /// The limits belong to the log and go with it. They take effect at once, and hold for
    /// everything that commits to it: an entry that has gone does not come back, whatever limits
    /// follow and whatever is truncated.
    ///
    /// Limits of entries and bytes are exact: the append that brings an entry too many drops the
    /// oldest. Entries that are too old by the wall clock are left out of every read from that
    /// moment on. For good they go with the next commit on the log, or, if nobody commits, once the
    /// store is idle and they are worth the work: all entries of a run, or a seventh of all that
    /// the runs hold; or an hour later, and ever later where that finds little; and with
    /// [`compact`](Self::compact). Until then a clock that is wrong does no harm that a right one
    /// would not undo: entries that went when it jumped ahead are there again when it is set back.
    /// Those that it dates in the future stay until their time has come. What was in a log before
    /// an age was first set counts as committed then.
    ///
    /// # Errors
    /// [`Error::InvalidRetention`] where a limit makes no sense; [`Error::UnknownLog`] where there
    /// is neither limit nor log.
    pub fn set_retention(&self, key: impl AsRef<[u8]>, retention: Retention) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Retain(retention))
    }

    /// Does everything in a commit, or nothing of it.
    ///
    /// # Errors
    /// [`Error::Conflict`] where an expectation does not hold: it names the log and what was found.
    pub fn commit(&self, commit: &Commit) -> Result<Ticket, Error> {
        commit.with_ops(|ops| self.write(ops, commit.durability, true))
    }

    /// [`commit`](Self::commit), but refused with [`Error::Full`] where it would have to wait for
    /// room. For callers that may not wait, such as one that the store's own volume calls back.
    #[doc(hidden)]
    pub fn commit_now(&self, commit: &Commit) -> Result<Ticket, Error> {
        commit.with_ops(|ops| self.write(ops, commit.durability, false))
    }

    /// Reads entries of a log, as they are now: `..` for all, `5..` from number 5 on, `.rev()` for
    /// the newest first.
    ///
    /// Only acknowledged entries are seen. What happens to the log later does not change what the
    /// iterator gives.
    ///
    /// # Errors
    /// [`Error::UnknownLog`], and [`Error::OutOfRange`] where the range names entries that were
    /// trimmed or that are not there yet. While iterating, [`Error::Damaged`] where an entry does
    /// not read back as it was written.
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
        let key = key.as_ref();
        self.inner().here()?;
        check_key(key)?;
        if let Some(entries) = self.inner().read_in_memory(key, &range)? {
            return Ok(entries);
        }
        self.settle(key)?;
        let mut state = self.inner().sound_state()?;
        state.spaces.note_read(key);
        let inner = self.inner();
        let read_view = ReadView::take(&state, key, &range, inner.now())?;
        state.reads.note(read_view.read_source);
        drop(state);
        if !read_view.looks_below() {
            return read_view.entries(key, &range);
        }
        inner.counters.run_lookups.time(&*inner.options.clock, || read_view.entries(key, &range))
    }

    /// The log's first and next numbers.
    ///
    /// # Errors
    /// [`Error::UnknownLog`].
    pub fn bounds(&self, key: impl AsRef<[u8]>) -> Result<Bounds, Error> {
        let key = key.as_ref();
        let (state, now) = self.find(key)?;
        state.shown(now).ok_or_else(|| Error::UnknownLog { key: KeyText::of(key) })
    }

    /// What the log keeps.
    ///
    /// # Errors
    /// [`Error::UnknownLog`].
    pub fn retention(&self, key: impl AsRef<[u8]>) -> Result<Retention, Error> {
        let key = key.as_ref();
        let (State { bounds, terms }, _) = self.find(key)?;
        bounds.map(|_| retention(terms.as_deref())).ok_or_else(|| Error::UnknownLog { key: KeyText::of(key) })
    }

    /// Whether the log exists.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.find(key.as_ref())?.0.bounds.is_some())
    }

    /// What a log is, and when the age of its entries is looked at.
    fn find(&self, key: &[u8]) -> Result<(State, u64), Error> {
        self.inner().here()?;
        check_key(key)?;
        if let Some(state) = self.inner().find_in_memory(key) {
            return Ok((state, self.inner().now()));
        }
        self.settle(key)?;
        let mut state = self.inner().sound_state()?;
        if let Some(doubt) = state.doubt(key) {
            let before = state.recent(key).first().and_then(|(_, _, piece)| piece.bounds);
            return Err(doubt.error(key, before.map(|bounds| bounds.next)));
        }
        let known = state.recent(key);
        let mut read_source = state.read_source(&known);
        let mut told = known.first().map(|(_, log, piece)| {
            let terms = log.visible_terms().cloned();
            State { bounds: piece.bounds, terms }
        });
        if let Some(bounds) = told.is_none().then(|| state.bounds_cache.get(key)).flatten() {
            (told, read_source) = (Some(State::without_terms(bounds)), ReadSource::BoundsCache);
        }
        state.reads.note(read_source);
        let now = state.seen_at(key, self.inner().now());
        let runs = state.runs.clone();
        drop(state);
        let inner = self.inner();
        let look = || inner.counters.run_lookups.time(&*inner.options.clock, || runs.state(key));
        Ok((told.map_or_else(look, Ok)?, now))
    }

    /// Makes durable what was acknowledged on a log without being so, since readers see it and
    /// nothing but durable data.
    fn settle(&self, key: &[u8]) -> Result<(), Error> {
        let deferred = self.inner().state().deferred(key);
        self.settle_block(deferred)
    }

    fn settle_block(&self, deferred: u64) -> Result<(), Error> {
        let inner = self.inner();
        match &inner.wal {
            Some(wal) if deferred > 0 && wal.durable() < deferred && !bug("deferred-stay-unseen") => {
                match inner.flush() {
                    // Closing has made it durable.
                    Err(Error::Closed) => Ok(()),
                    done => done,
                }
            }
            _ => Ok(()),
        }
    }

    /// The logs whose keys start with `prefix`, in the order of their keys.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<Logs, Error> {
        self.list(Listed::new(prefix.as_ref(), b""))
    }

    /// The logs whose keys start with `prefix` and are `from` or greater, in the order of their
    /// keys: a listing that goes on where another ended. What comes before is passed by in the
    /// runs, not read.
    ///
    /// The least key behind a key is that key and a byte of 0.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// for key in ["a/1", "a/2", "a/3", "b/1"] {
    ///     store.append(key, "entry")?.wait()?;
    /// }
    /// let page: Vec<_> = store.scan("a/")?.take(2).collect::<Result<_, _>>()?;
    /// let next = [&page[1].key[..], b"\0"].concat();
    /// let rest: Vec<_> = store.scan_from("a/", next)?.collect::<Result<_, _>>()?;
    /// assert_eq!((rest.len(), &rest[0].key[..]), (1, &b"a/3"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_from(&self, prefix: impl AsRef<[u8]>, from: impl AsRef<[u8]>) -> Result<Logs, Error> {
        self.list(Listed::new(prefix.as_ref(), from.as_ref()))
    }

    fn list(&self, listed: Listed) -> Result<Logs, Error> {
        let inner = self.inner();
        let deferred = inner.sound_state()?.last_deferred;
        self.settle_block(deferred)?;
        // What a dump takes out of memory after that is in the runs.
        let (in_memory, alone) = inner.scan_in_memory(&listed);
        let state = inner.state();
        let (logs, runs) = Logs::take(&state, listed, in_memory, inner.now());
        drop(state);
        logs.with_runs(if alone { &[] } else { &runs })
    }

    /// Makes everything committed before the call durable, deferred commits too.
    pub fn flush(&self) -> Result<(), Error> {
        self.inner().flush()
    }

    /// Writes the memtable to a run and frees the ring behind it. Happens by itself; this does it
    /// now.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.inner().may_wait()?;
        self.inner().checkpoint()
    }

    /// Merges all runs into one: what was trimmed and deleted leaves, and its space is free.
    /// Happens by itself, to some of the runs at a time and as far as it pays; this does all of it
    /// now. What was [offloaded](Self::offload) stays as it is.
    ///
    /// # Errors
    /// [`Error::Damaged`] where damage was met in a run: that run and all older ones stay as they
    /// are, and what can be merged was. Also those of a [checkpoint](Self::checkpoint).
    pub fn compact(&self) -> Result<(), Error> {
        // What is too old as it begins goes as well.
        match self.checkpoint() {
            // Merging what there is may make the room that this takes.
            Err(Error::Full { .. }) => {
                self.merge_runs()?;
                self.checkpoint()?;
            }
            done => done?,
        }
        let inner = self.inner();
        if inner.is_ageing() {
            inner.expire_all()?;
            self.checkpoint()?;
        }
        self.merge_runs()
    }

    fn merge_runs(&self) -> Result<(), Error> {
        let inner = self.inner();
        let context = inner.context()?;
        inner.maintenance().request_full();
        let before: Vec<u64> = inner.state().runs.iter().map(|run| run.meta.id).collect();
        // A merged run is a new one, with a number of its own; and where the others are freed
        // unread, one is left as it is.
        let left = || {
            let runs = inner.state().runs.clone();
            inner.maintenance().can_merge(&runs, &before)
        };
        while left() {
            inner.maintenance().merge_all(&context)?;
            match inner.maintain() {
                Ok(true) => {}
                Ok(false) => inner.flush()?,
                // A checkpoint that had its turn found no room. Merging gets on, and makes some; or
                // fails, and says so.
                Err(Error::Full { .. }) if inner.maintenance().is_stuck() => {}
                Err(error) => return Err(error),
            }
        }
        let runs = inner.state().runs.clone();
        inner.maintenance().expect_none_left_out(&runs)
    }

    /// Does the next piece of work of the store's threads, for a store [without
    /// them](Options::threads). Returns `false` where there is nothing to do. Needs the feature
    /// `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn step(&self) -> Result<bool, Error> {
        self.inner().here()?;
        self.handle.inner.dump_what_is_due();
        self.inner().step()
    }

    /// Lets go of the store as a killed process would: nothing more is written. Needs the feature
    /// `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn abandon(self) {
        let inner = self.inner();
        if inner.here().is_err() {
            return;
        }
        let hush = inner.hush();
        let mut closed = crate::sync::held(&inner.closed);
        inner.wal.iter().for_each(|wal| wal.abandon());
        inner.end_threads();
        *closed = Some(Ok(()));
        drop(closed);
        drop(hush);
        inner.join_callbacks();
    }

    /// Makes everything durable and closes the store, so that the next opening need not look for a
    /// torn end. Every handle stops taking writes; the file is let go of when the last one is
    /// dropped, whatever tickets, iterators and views are kept: these go on with what they have in
    /// memory, and then end with [`Error::Closed`]. Closing twice is no error.
    ///
    /// When it returns, every [callback](Ticket::on_done) has been called, but for those behind one
    /// that this is called in. In a waker it does not wait: the store closes on another thread.
    ///
    /// # Errors
    /// Why the store stopped, if it did; [`Error::Forked`].
    pub fn close(&self) -> Result<(), Error> {
        self.handle.close()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.inner().here() {
            Ok(()) => write!(f, "Store({})", self.inner().volumes.data.info().name),
            Err(error) => write!(f, "Store({error})"),
        }
    }
}
