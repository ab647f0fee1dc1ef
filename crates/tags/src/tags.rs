//! Records: puts, replaces, removes and reads them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use brooklet::{Bytes, Commit, Store, Ticket};

use crate::error::{Error, Result};
use crate::format::{self, Change, Keys, WINDOW};
use crate::index::{Cache, Index, load};

/// The options of tagged records.
///
/// ```
/// let options = brooklet_tags::Options::new().recent(100_000).cache(16 << 20);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub(crate) recent: usize,
    pub(crate) cache: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { recent: 1 << 20, cache: 256 << 20 }
    }
}

impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of tags of records that are kept in memory before they are appended to the
    /// logs; a tag counts once for each of its records. A record without a tag counts as one, and
    /// so does a removal. The default is about a million, some tens of megabytes. A larger number
    /// makes fewer and larger blocks, and a slower opening, which reads each of those records.
    pub fn recent(mut self, tags: usize) -> Self {
        self.recent = tags.max(1);
        self
    }

    /// Sets the bytes of memory for recently used sets of tags. The default is 256 MiB; a set takes
    /// two bytes per record or less.
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }
}

/// The tagged records of one name in a store. A clone is a handle to the same records.
///
/// Only one handle and its clones may write to a name. A second handle of the same name does not
/// see the first one's changes in memory.
#[derive(Clone)]
pub struct Tags {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub store: Store,
    pub keys: Keys,
    pub options: Options,
    pub state: Mutex<State>,
    pub cache: Mutex<Cache>,
    /// Lock of the thread that settles.
    pub settling: Mutex<()>,
}

/// The state that writers share.
pub(crate) struct State {
    /// The ordinal of the next change.
    next: u64,
    pub index: Index,
    /// Changes that may not be durable yet, which readers do not see.
    pending: VecDeque<Pending>,
    /// The last pending change of each id.
    of_id: BTreeMap<Box<[u8]>, Pended>,
}

struct Pending {
    ticket: Ticket,
    change: Change,
    tags: Vec<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Pended {
    ordinal: u64,
    removed: bool,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Tags of the record, in order.
    pub tags: Vec<Vec<u8>>,
    /// Payload of the record.
    pub payload: Bytes,
    pub(crate) ordinal: u64,
}

/// The promise of a put or a removal. Dropping it does not undo the write, which still becomes
/// durable.
#[derive(Debug)]
#[must_use = "a write is acknowledged only once it has been waited for"]
pub struct Written {
    ticket: Ticket,
}

impl Written {
    /// Blocks until the write is acknowledged: on stable media, or as the name's
    /// [space](brooklet::Space) requires.
    ///
    /// # Errors
    /// [`brooklet::Error::Stopped`].
    pub fn wait(&self) -> Result<()> {
        Ok(self.ticket.wait()?)
    }

    /// Returns the store's ticket, for `await` or a callback.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

impl Tags {
    /// Opens the tagged records of a name: all logs whose keys begin with the name and a slash.
    /// Without such logs the result is empty.
    ///
    /// Makes all earlier commits of the store durable, and reads the [recent](Options::recent)
    /// records.
    ///
    /// # Errors
    /// [`Error::InvalidName`]; [`Error::Damaged`] where its logs have invalid contents; and
    /// [`brooklet::Error::Stopped`].
    pub fn open(store: &Store, name: &str, options: Options) -> Result<Self> {
        let keys = Keys::of(name)?;
        // A former handle may have left writes on their way, which no read shows yet.
        match store.flush() {
            Err(brooklet::Error::ReadOnly) => {}
            flushed => flushed?,
        }
        let mut index = Index { upto: watermark(store, &keys)?, ..Index::default() };
        let dead = Arc::make_mut(&mut index.dead);
        for log in store.scan(keys.all_dead())? {
            let key = log?.key;
            let window = std::str::from_utf8(&key[keys.all_dead().len()..]).unwrap_or_default();
            let window = u64::from_str_radix(window, 16);
            let window = window.map_err(|_| Error::damaged(&key, "its key names no window"))?;
            let bitmap = store.read(&key, ..)?.next_back().transpose()?.map(|entry| entry.payload);
            let known = format::decode_dead(&bitmap.unwrap_or_default(), window, dead);
            known.ok_or_else(|| Error::damaged(&key, "a set of ordinals"))?;
        }
        let cache = Mutex::new(Cache::new(options.cache));
        let (store, pending, of_id) = (store.clone(), VecDeque::new(), BTreeMap::new());
        let state = Mutex::new(State { next: index.upto, index, pending, of_id });
        let shared = Shared { store, keys, options, state, cache, settling: Mutex::default() };
        shared.replay()?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Puts a record in one atomic commit. Replaces the record with the same id, if any.
    ///
    /// Tags are any bytes, in any order; duplicates count once. Putting an unchanged record makes
    /// it the newest.
    ///
    /// # Errors
    /// [`Error::InvalidId`], [`Error::InvalidTag`], [`Error::TooManyTags`];
    /// [`brooklet::Error::PayloadTooLarge`], of payload and tags together; and the errors of a
    /// commit.
    pub fn put<T: AsRef<[u8]>>(
        &self,
        id: impl AsRef<[u8]>,
        tags: impl IntoIterator<Item = T>,
        payload: impl AsRef<[u8]>,
    ) -> Result<Written> {
        let id = id.as_ref();
        format::check_id(id)?;
        let tags = format::check_tags(tags)?;
        let written = self.shared.write(id, Some((tags, payload.as_ref())))?;
        self.shared.settle_if_much();
        Ok(written.expect("a put always writes"))
    }

    /// Removes a record in one atomic commit. Returns `None` if no record has the id. If an earlier
    /// removal is not acknowledged yet, the call returns the promise of that removal.
    ///
    /// # Errors
    /// [`Error::InvalidId`], and the errors of a commit.
    pub fn remove(&self, id: impl AsRef<[u8]>) -> Result<Option<Written>> {
        format::check_id(id.as_ref())?;
        let written = self.shared.write(id.as_ref(), None)?;
        self.shared.settle_if_much();
        Ok(written)
    }

    /// Returns the record of an id.
    ///
    /// # Errors
    /// [`Error::InvalidId`]; [`Error::Damaged`].
    pub fn get(&self, id: impl AsRef<[u8]>) -> Result<Option<Record>> {
        format::check_id(id.as_ref())?;
        self.shared.record(id.as_ref())
    }

    /// Returns the number of records with a tag.
    ///
    /// # Errors
    /// [`Error::InvalidTag`]; [`Error::Damaged`].
    pub fn count(&self, tag: impl AsRef<[u8]>) -> Result<u64> {
        self.find().all([tag]).count()
    }

    /// Returns the tags that begin with a prefix, in order, each with its number of records.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn tags(&self, prefix: impl AsRef<[u8]>) -> Result<impl Iterator<Item = Result<(Vec<u8>, u64)>>> {
        let (shared, tags) = (self.shared.clone(), self.shared.tags_with_prefix(prefix.as_ref())?);
        let counted = tags.into_iter().map(move |tag| {
            let glance = shared.state().index.glance(&[&tag]);
            let set = load(&shared.store, &shared.keys, &shared.cache, &tag)?;
            let count = glance.alive(&*set | &glance.recent[0]).len();
            Ok((tag, count))
        });
        // A tag without records is left out.
        Ok(counted.filter(|counted| !matches!(counted, Ok((_, 0)))))
    }

    /// Returns the number of records.
    pub fn len(&self) -> u64 {
        let state = self.shared.state();
        state.index.upto - state.index.dead.len()
    }

    /// Returns whether no record exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn watermark(store: &Store, keys: &Keys) -> Result<u64> {
    let key = keys.watermark();
    match store.read(&key, ..) {
        Err(brooklet::Error::UnknownLog { .. }) => Ok(0),
        entries => {
            let entry = entries?.next_back().transpose()?;
            let known = entry.and_then(|entry| format::decode_watermark(&entry.payload));
            known.ok_or_else(|| Error::damaged(&key, "the watermark"))
        }
    }
}

impl Shared {
    /// Returns the state that writers share, after it has applied all changes that readers may see.
    pub fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().expect("no panics");
        state.take_in();
        state
    }

    /// Applies the changes of the journal that the other logs lack.
    fn replay(&self) -> Result<()> {
        let mut state = self.state();
        loop {
            let (window, from) = (state.next / WINDOW, state.next % WINDOW);
            let key = self.keys.journal(window);
            let entries = match self.store.read(&key, from..) {
                Err(brooklet::Error::UnknownLog { .. }) => return Ok(()),
                Err(brooklet::Error::OutOfRange { .. }) => {
                    return Err(Error::damaged(&key, "it ends too early"));
                }
                entries => entries?,
            };
            for entry in entries {
                let change = Change::decode(&entry?.payload);
                let change = change.ok_or_else(|| Error::damaged(&key, "a change"))?;
                let ordinal = state.next;
                let record = if change.removes { None } else { self.record(&change.id)? };
                // A later change replaced this record, and marks its ordinal as dead.
                let tags = record.filter(|record| record.ordinal == ordinal).map(|record| record.tags);
                state.next += 1;
                state.index.apply(ordinal, change, tags.unwrap_or_default());
            }
            if !state.next.is_multiple_of(WINDOW) || state.next / WINDOW == window {
                return Ok(());
            }
        }
    }

    pub fn record(&self, id: &[u8]) -> Result<Option<Record>> {
        let key = self.keys.record(id);
        let entry = match self.store.read(&key, ..) {
            Err(brooklet::Error::UnknownLog { .. }) => return Ok(None),
            entries => entries?.next_back().transpose()?,
        };
        let Some(entry) = entry else { return Ok(None) };
        let decoded = format::decode_record(&entry.payload);
        let (ordinal, tags, begins) = decoded.ok_or_else(|| Error::damaged(&key, "a record"))?;
        Ok(Some(Record { tags, payload: entry.payload.slice(begins..), ordinal }))
    }

    /// Writes or removes a record.
    fn write(&self, id: &[u8], record: Option<(Vec<Vec<u8>>, &[u8])>) -> Result<Option<Written>> {
        let key = self.keys.record(id);
        // Loads the log's bounds, so that the lookup below finds the bounds in memory.
        self.store.bounds(&key).ok();
        let mut state = self.state();
        let old = match state.of_id.get(id) {
            Some(Pended { ordinal, removed: true }) if record.is_none() => {
                // The record is there again after a crash: this removal is the earlier one.
                return Ok(state.ticket(*ordinal).map(|ticket| Written { ticket }));
            }
            Some(Pended { ordinal, removed }) => (!removed).then_some(*ordinal),
            None => self.record(id)?.map(|record| record.ordinal),
        };
        if record.is_none() && old.is_none() {
            return Ok(None);
        }
        let ordinal = state.next;
        let change = Change { removes: record.is_none(), old, id: id.to_vec() };
        let (journal, encoded) = (self.keys.journal(ordinal / WINDOW), change.encode());
        let (tags, bytes) = match record {
            Some((tags, payload)) => {
                let bytes = format::encode_record(ordinal, &tags, payload);
                (tags, Some(bytes))
            }
            None => (Vec::new(), None),
        };
        let mut commit = Commit::new();
        match &bytes {
            Some(bytes) => commit.snapshot(&key, bytes),
            None => commit.delete(&key),
        };
        // The commit fails if another handle has written to the name.
        commit.expect_next(&journal, ordinal % WINDOW).append(&journal, &encoded);
        let ticket = self.store.commit(&commit)?;
        state.next += 1;
        state.of_id.insert(id.into(), Pended { ordinal, removed: change.removes });
        state.pending.push_back(Pending { ticket: ticket.clone(), change, tags });
        Ok(Some(Written { ticket }))
    }

    /// Returns the tags that begin with a prefix, in order, also tags without records.
    pub fn tags_with_prefix(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut tags = self.state().index.tags_with_prefix(prefix);
        self.add_tags_of_logs(prefix, &mut tags)?;
        Ok(tags.into_iter().collect())
    }

    /// Adds the tags that begin with a prefix and have logs.
    pub fn add_tags_of_logs(&self, prefix: &[u8], tags: &mut BTreeSet<Vec<u8>>) -> Result<()> {
        let begins = self.keys.tag(b"").len();
        for log in self.store.scan(self.keys.tag(prefix))? {
            tags.insert(log?.key.split_off(begins));
        }
        Ok(())
    }
}

impl State {
    /// Returns the ticket of a change that may not be durable yet.
    fn ticket(&self, ordinal: u64) -> Option<Ticket> {
        let at = usize::try_from(ordinal.checked_sub(self.index.upto)?).ok()?;
        self.pending.get(at).map(|pending| pending.ticket.clone())
    }

    /// Applies all changes that readers may see now.
    fn take_in(&mut self) {
        while self.pending.front().is_some_and(|pending| pending.ticket.is_done()) {
            let Pending { change, tags, .. } = self.pending.pop_front().expect("it was just seen");
            let ordinal = self.index.upto;
            if self.of_id.get(&change.id[..]).is_some_and(|last| last.ordinal == ordinal) {
                self.of_id.remove(&change.id[..]);
            }
            self.index.apply(ordinal, change, tags);
        }
    }
}

impl Index {
    /// Applies the next change.
    fn apply(&mut self, ordinal: u64, change: Change, tags: Vec<Vec<u8>>) {
        self.upto = ordinal + 1;
        change.old.into_iter().for_each(|old| self.bury(old));
        if change.removes {
            self.bury(ordinal);
            self.recent.entries += 1;
        } else {
            self.recent.add(ordinal, tags);
        }
    }
}
