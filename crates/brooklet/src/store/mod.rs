//! The public API of a store: every public call.

mod appended;
mod beside;
pub mod check;
pub mod committing;
pub mod damage;
mod enroll;
mod prepare;
mod reads;
pub mod report;
pub mod space;
pub mod tail;
pub mod ticket;
pub mod view;
pub mod wait_for;
mod waiting;
pub mod walk;
pub mod watch;

use std::path::Path;
use std::sync::Arc;

use brooklet_io::tether::Tether;
use brooklet_io::{MemVolume, Volume};

use crate::engine::append::{Patience, Tried};
use crate::engine::beside::load_beside;
use crate::engine::memory::TriedInMemory;
use crate::engine::recovery::{self, Opened};
use crate::engine::{Handle, Inner};
use crate::error::Error;
use crate::model::commit::{Action, Commit, Durability, Op};
use crate::model::rehearsal::Rehearsal;
use crate::model::retention::Retention;
use crate::options::Options;
use crate::read::scan::{Listed, Logs};
use crate::store::ticket::{Rests, Ticket};

use crate::volume::create;
use crate::volume::{self, Volumes};

/// A store of many small append-only logs in one file. Clones are handles to the same open store.
///
/// Dropping the last handle closes the store. Any thread and any callback may make any call; a
/// waker may not wait (see [`Ticket`](crate::Ticket#where-code-of-yours-runs)).
///
/// A panic in a thread of the store, or in a volume that the caller supplied, stops the store as a
/// failed write does. Writes then return [`Error::Stopped`], which names the panic.
///
/// # After a `fork`
///
/// A child has a copy of the handles of its parent, and may not use them. Every call on these
/// handles, and on their tickets, iterators, views and spaces, returns [`Error::Forked`]; a call
/// that returns no error panics. The calls write nothing, and dropping the handles does nothing.
///
/// The child may open other stores, or this one once the parent has closed it. A child that
/// outlives its parent keeps the file locked until the child ends or runs another program. Start a
/// process that is to outlive the parent before the store is opened.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

impl Store {
    /// Opens the store at `path` with the default options. Creates the store if it does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Options::new().open(path)
    }

    /// Starts a store that was loaded.
    pub(crate) fn start(opened: Opened, options: Options, tethers: Vec<Arc<Tether>>) -> Result<Self, Error> {
        Ok(Self { handle: Arc::new(Handle::start(opened, options, tethers)?) })
    }

    /// Creates an empty store in memory, for tests and trials. `seed` makes its random choices
    /// repeatable.
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

    /// Opens the store on a volume, with its ring on another volume.
    #[doc(hidden)]
    pub fn open_on_with_ring(self, volume: Arc<dyn Volume>, ring: Arc<dyn Volume>) -> Result<Store, Error> {
        self.start(Volumes { data: volume, ring: Some(ring) })
    }

    /// Creates an empty store on a volume and opens the store.
    pub fn create_on(self, volume: Arc<dyn Volume>) -> Result<Store, Error> {
        create::create(&Volumes { data: volume.clone(), ring: None }, &self, create::empty)?;
        self.open_on(volume)
    }

    /// Creates an empty store on a volume, with its ring on another volume, and opens the store.
    #[doc(hidden)]
    pub fn create_on_with_ring(self, volume: Arc<dyn Volume>, ring: Arc<dyn Volume>) -> Result<Store, Error> {
        create::create(&Volumes { data: volume.clone(), ring: Some(ring.clone()) }, &self, create::empty)?;
        self.open_on_with_ring(volume, ring)
    }

    fn start(mut self, volumes: Volumes) -> Result<Store, Error> {
        self.validate()?;
        self.settle_metrics()?;
        self.refuse_other_files()?;
        if let (Some(ring), None) = (&self.ring, &volumes.ring) {
            let (ring, data) = (ring.display(), volumes.data.info().name);
            return Err(Error::InvalidOptions(format!(
                "the options name a ring at {ring}, but the store is on a given volume ({data}): open the store by its path, or name no ring"
            )));
        }
        let _span = tracing::info_span!("open", store = volumes.data.info().name).entered();
        let (volumes, tethers) = volumes.tethered();
        let load = if self.beside_writer { load_beside } else { recovery::load };
        let mut opened = load(&volumes, &self)?;
        if !self.read_only {
            recovery::claim(&mut opened, &self)?;
            recovery::open_mirror(&opened, &self)?;
        }
        let is_read_only = self.read_only;
        let store = Store::start(opened, self, tethers)?;
        if !is_read_only {
            store.shared().load_memory()?;
        }
        store.shared().publish_metrics()?;
        Ok(store)
    }
}

impl Inner {
    /// Applies operations, all or none, to logs in memory or in the ring. Reads the volume if
    /// necessary, and waits for room if `wait` is set.
    pub(super) fn write(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        wait: bool,
    ) -> Result<Ticket, Error> {
        self.write_rehearsed(ops, durability, if wait { Patience::Room } else { Patience::Reads }, None)
    }

    /// Applies operations as [`write`](Self::write) does, within `patience`, which permits reads.
    fn write_rehearsed(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        patience: Patience,
        rehearsal: Option<&Rehearsal>,
    ) -> Result<Ticket, Error> {
        let must_read = || Error::Busy { why: "a log must be read from the volume".into() };
        self.write_with(ops, durability, patience, rehearsal)?.ok_or_else(must_read)
    }

    /// Applies operations like [`write`](Self::write). Returns `None` if the commit must read the
    /// volume, and `patience` does not permit it.
    pub(super) fn write_with(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        patience: Patience,
        rehearsal: Option<&Rehearsal>,
    ) -> Result<Option<Ticket>, Error> {
        self.here()?;
        // A prepared commit, too: it may have been prepared by another store, or for another space.
        ops.iter().try_for_each(|op| self.check(op))?;
        loop {
            // A space may move to memory, or out of memory, between these two calls.
            match self.commit_in_memory(ops, durability, patience)? {
                TriedInMemory::Done(seqs, memory_space) => {
                    return Ok(Some(Ticket { seqs, rests: Rests::Memory(memory_space) }));
                }
                TriedInMemory::MustRead => return Ok(None),
                TriedInMemory::Elsewhere => {}
            }
            match self.append(ops, durability, patience, rehearsal)? {
                Tried::Done(accepted) => {
                    let ack = self.wal()?.ack(accepted.appended.block.clone());
                    let rests = match self.waits_beyond(ops).then(|| ack.kept()).flatten() {
                        _ if accepted.deferred => Rests::Deferred(ack),
                        Some(kept) => Rests::Kept(ack, kept),
                        None => Rests::Ring(ack),
                    };
                    return Ok(Some(Ticket { seqs: accepted.seqs, rests }));
                }
                Tried::MustRead => return Ok(None),
                Tried::InMemory => {}
            }
            if let Some(why) = self.wal()?.failure() {
                // The log stopped while the space moved to memory.
                return Err(why.into());
            }
        }
    }
}

impl Inner {
    /// Returns whether a commit waits for the mirror, although its block does not.
    fn waits_beyond(&self, ops: &[Op<'_>]) -> bool {
        let mirror = self.options.mirror.as_ref();
        mirror.is_some_and(|mirror| ops.iter().any(|op| mirror.waits_beyond(op.key)))
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
        self.inner().write(ops, durability, wait)
    }

    fn write_one(&self, key: &(impl AsRef<[u8]> + ?Sized), action: Action<'_>) -> Result<Ticket, Error> {
        self.write(&[Op { key: key.as_ref(), action }], None, true)
    }

    /// Appends an entry to a log. Creates the log if it does not exist.
    ///
    /// [`Ticket::seq`] returns the entry's number at once. The entry is safe, and visible to
    /// readers, once the write is acknowledged: call [`Ticket::wait`], or await the ticket.
    pub fn append(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Append(payload.as_ref()))
    }

    /// Appends an entry like [`append`](Self::append). The write is acknowledged as `durability`
    /// says, or as the log's [space](crate::Space) says if the space promises more.
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

    /// Appends several entries to a log with consecutive numbers, all or none.
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

    /// Appends an entry and drops all entries before it, in one step.
    pub fn snapshot(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Snapshot(payload.as_ref()))
    }

    /// Appends an entry and drops all entries before it, like [`snapshot`](Self::snapshot). The
    /// write is acknowledged as `durability` says, as by [`append_with`](Self::append_with).
    pub fn snapshot_with(
        &self,
        key: impl AsRef<[u8]>,
        payload: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Ticket, Error> {
        self.write(
            &[Op { key: key.as_ref(), action: Action::Snapshot(payload.as_ref()) }],
            Some(durability),
            true,
        )
    }

    /// Drops the entries with numbers below `before`. `before` may be at most the log's next
    /// number. An entry that was dropped earlier stays dropped.
    pub fn trim(&self, key: impl AsRef<[u8]>, before: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Trim(before))
    }

    /// Drops all entries except the last `n`.
    pub fn keep_last(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::KeepLast(n))
    }

    /// Makes a log begin at number `first`. The store drops the entries with numbers below `first`.
    /// If the log ends before `first`, the log is empty afterwards, and its next entry gets the
    /// number `first`. Creates the log if it does not exist.
    ///
    /// The number may be past the log's end, unlike with [`trim`](Self::trim). The call is for logs
    /// whose numbers another system assigns: a Raft log, for example, begins behind the last entry
    /// of a snapshot that the host received. An entry that was dropped earlier stays dropped: a
    /// number below the log's first entry changes nothing.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// store.append_many("raft/7", ["a", "b", "c"])?;
    /// store.begin_at("raft/7", 1_000)?;
    /// assert_eq!(store.append("raft/7", "d")?.seq(), 1_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NumberTooLarge`] if `first` is greater than 2^62.
    pub fn begin_at(&self, key: impl AsRef<[u8]>, first: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Begin(first))
    }

    /// Drops the entries from number `from` on. The next entry gets the number `from`.
    pub fn truncate(&self, key: impl AsRef<[u8]>, from: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Truncate(from))
    }

    /// Deletes the log. A log created later under the same key is a new log and starts at 0.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Delete)
    }

    /// Sets the retention of a log: from now on, the log keeps its newest entries, within each
    /// limit of `retention`. With a limit, the call creates an empty log if the log does not exist.
    /// Without a limit, the log keeps all entries again; the log must exist.
    ///
    /// The limits belong to the log and are deleted with it. They take effect at once and apply to
    /// every commit to the log. A dropped entry does not return, whatever later limits or
    /// truncations follow.
    ///
    /// Limits of entries and bytes are exact: the append that exceeds a limit drops the oldest
    /// entries.
    ///
    /// Reads leave out entries that are too old by the wall clock, from the moment when the entries
    /// reach the age. The store removes these entries for good at one of these moments:
    /// - with the next commit to the log;
    /// - when the store is idle and the removal is worth the work: all entries of a run are too
    ///   old, or a seventh of all entries in the runs;
    /// - an hour later; the wait grows each time that such a round finds little;
    /// - with [`compact`](Self::compact).
    ///
    /// In a [memory space](crate::Class::Memory), a dump removes them too, and the store does not
    /// look for them by itself before the memory is full.
    ///
    /// Until the removal, a wrong clock does no lasting harm: if the clock jumped ahead and is set
    /// back, readers see the left-out entries again. Entries dated in the future by a wrong clock
    /// stay until they reach the age. Entries that the log held before its first age was set count
    /// as committed at that moment.
    ///
    /// # Errors
    /// [`Error::InvalidRetention`] if a limit is invalid; [`Error::UnknownLog`] if `retention` has
    /// no limit and the log does not exist.
    pub fn set_retention(&self, key: impl AsRef<[u8]>, retention: Retention) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Retain(retention))
    }

    /// Applies a commit: all of its operations, or none.
    ///
    /// # Errors
    /// [`Error::Conflict`] if an expectation does not hold; the error names the log and its actual
    /// state.
    pub fn commit(&self, commit: &Commit) -> Result<Ticket, Error> {
        let Commit { durability, .. } = *commit;
        commit
            .with_ops(|ops| self.inner().write_rehearsed(ops, durability, Patience::Room, commit.rehearsal()))
    }

    /// Applies a commit like [`commit`](Self::commit), but returns [`Error::Busy`] where
    /// [`commit`](Self::commit) would wait: for room in the ring, in memory or on the volume, for
    /// an earlier commit to become durable, or for a dump or a move of a space in memory. For
    /// callers that must not wait for writes, such as a task of an async runtime. The call may
    /// still read a log's state from the volume, if the log is not in memory.
    ///
    /// A refused commit had no effect. Retry it after an earlier ticket is done, or call
    /// [`commit`](Self::commit) on a thread that may wait. Only [`commit`](Self::commit) finds out
    /// whether the store can make room on the volume: it returns [`Error::Full`] if not.
    ///
    /// ```
    /// use brooklet::{Commit, ErrorKind, Store};
    ///
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = Store::in_memory(1)?;
    /// let mut commit = Commit::new();
    /// commit.append("doc/1", "edit");
    /// let ticket = match store.try_commit(&commit) {
    ///     Err(error) if error.kind() == ErrorKind::Busy => store.commit(&commit)?,
    ///     ticket => ticket?,
    /// };
    /// ticket.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`], and the errors of [`commit`](Self::commit).
    pub fn try_commit(&self, commit: &Commit) -> Result<Ticket, Error> {
        commit.with_ops(|ops| self.write(ops, commit.durability, false))
    }

    /// Lists the logs whose keys start with `prefix`, in key order.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<Logs, Error> {
        self.list(Listed::new(prefix.as_ref(), b""))
    }

    /// Lists the logs whose keys start with `prefix` and are `from` or greater, in key order. A
    /// listing can so resume where another ended. The call skips smaller keys in the runs without
    /// reading them.
    ///
    /// To resume after `key`, pass `key` plus a zero byte. [`Logs::take_damage`] returns the damage
    /// in a page.
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
        // Logs that a dump moves out of memory after this line are in the runs.
        let (in_memory, alone) = inner.scan_in_memory(&listed);
        let state = inner.state();
        let (logs, runs) = Logs::take(&state, listed, in_memory, inner.now());
        drop(state);
        logs.with_runs(if alone { &[] } else { &runs })
    }

    /// Makes all commits before the call durable, including deferred commits.
    pub fn flush(&self) -> Result<(), Error> {
        self.inner().flush()
    }

    /// Writes the memtable to a run and frees the ring space that the memtable used. The store
    /// takes checkpoints by itself; this call takes one now.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.inner().may_wait()?;
        self.inner().checkpoint()
    }

    /// Merges all runs into one run. Merging drops trimmed and deleted entries and frees their
    /// space. The store merges some runs at a time by itself, as far as the gain is worth the work;
    /// this call merges all of them now. [Offloaded](Self::offload) parts stay as they are.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a run is damaged: this run and all older runs stay as they are, and
    /// the call merges the other runs. Also the errors of [`checkpoint`](Self::checkpoint).
    pub fn compact(&self) -> Result<(), Error> {
        // The call also drops entries that are too old when the call begins.
        match self.checkpoint() {
            // Merging the existing runs may free the room that a checkpoint needs.
            Err(Error::Full { .. }) => {
                self.merge_runs()?;
                self.checkpoint()?;
            }
            done => done?,
        }
        let inner = self.inner();
        inner.memory_spaces.all().iter().for_each(|space| space.expire_all(&|| inner.now()));
        let mut unread = None;
        if inner.is_ageing() && !inner.follows {
            unread = inner.expire_all()?;
            self.checkpoint()?;
        }
        // A run that cannot be read keeps no other runs from being merged.
        self.merge_runs()?;
        unread.map_or(Ok(()), Err)
    }

    fn merge_runs(&self) -> Result<(), Error> {
        let inner = self.inner();
        let context = inner.context()?;
        inner.maintenance().request_full();
        let before: Vec<u64> = inner.state().runs.iter().map(|run| run.meta.id).collect();
        // A merged run is a new run with its own number. If merging frees the other runs unread, it
        // leaves one run as it is.
        let left = || {
            let runs = inner.state().runs.clone();
            inner.maintenance().can_merge(&runs, &before)
        };
        while left() {
            inner.maintenance().merge_all(&context)?;
            match inner.maintain() {
                Ok(true) => {}
                Ok(false) => inner.settle()?,
                // The checkpoint found no room. Merging either frees room or returns its own error.
                Err(Error::Full { .. }) if inner.maintenance().is_stuck() => {}
                Err(error) => return Err(error),
            }
        }
        let runs = inner.state().runs.clone();
        inner.maintenance().expect_none_left_out(&runs)
    }

    /// Runs the next piece of background work, for a store [without threads](Options::threads).
    /// Returns `false` if the store has no work to do. Needs the feature `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn step(&self) -> Result<bool, Error> {
        self.inner().here()?;
        self.handle.inner.dump_what_is_due();
        self.inner().step()
    }

    /// Abandons the store as a killed process would: the store writes nothing more. Needs the
    /// feature `testing`.
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

    /// Makes all commits durable and closes the store. The next opening then need not look for a
    /// torn end of the ring. After the call, every handle refuses writes. The store releases the
    /// file when the last handle is dropped, even if tickets, iterators and views remain: these use
    /// the data that they hold in memory, and then return [`Error::Closed`]. Closing a store twice
    /// is not an error.
    ///
    /// When the call returns, the store has called every [callback](Ticket::on_done), except the
    /// callbacks queued behind one that calls `close` itself. In a waker, the call does not wait:
    /// the store closes on another thread.
    ///
    /// # Errors
    /// The error that stopped the store, if the store stopped; [`Error::Forked`]. With
    /// [`Error::Full`], a space in memory found no room for its dump, and the store stays open:
    /// make room, and close the store again. The drop of the last handle closes it all the same,
    /// and leaves the space as in its last dump. If another thread commits to the space during the
    /// call, the store may close, and return [`Error::Full`] nevertheless. Each later call then
    /// returns the same error.
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
