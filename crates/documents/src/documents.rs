//! Documents: opens them, gets, creates, deletes and lists them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brooklet::{Bytes, Commit, Logs, Store, Ticket};

use crate::cache::{Cache, Open, Slot};
use crate::due::{Due, Worker};
use crate::error::{Error, Result, text};
use crate::format::{Keys, Meta, SnapshotEntry, UsedId};
use crate::head::Head;
use crate::load::{guarded, read};
use crate::model::Model;
use crate::options::Options;
use crate::request::{Call, Request, content};

/// Number of times that a call begins again because other handles write the same documents.
pub(crate) const RETRIES: u32 = 100;

/// The documents below a prefix of a store. A clone is a handle to the same documents.
///
/// Any number of threads may use the same document at once. A call returns after the store has
/// acknowledged all that its answer depends on.
///
/// Open the documents of a prefix once for a store, and clone the handle. Of two that are open over
/// the same prefix, each refuses to overwrite the other, but may return a state from its cache that
/// the other has changed.
///
/// A document has a version, which is 1 for a first document. Each update makes the next version. A
/// document that is made again after a [`delete`](Self::delete) begins with a greater version than
/// the deleted one had, so a patch for the deleted one is a conflict.
///
/// ```
/// use brooklet_documents::{Documents, Error, Json, JsonChange, Options};
/// use serde_json::json;
///
/// # fn main() -> Result<(), Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
/// documents.create("notes", "r1", &json!({"title": "Notes"}).into())?;
/// documents.patch("notes", 1, "r2", &JsonChange::merge(json!({"stars": 5})))?;
/// match documents.patch("notes", 1, "r3", &JsonChange::merge(json!({"stars": 4}))) {
///     Err(Error::Conflict { head, .. }) => assert_eq!(head, 2),
///     other => panic!("{other:?}"),
/// }
/// let found = documents.get("notes")?.expect("it was created");
/// assert_eq!((found.version, &found.state["stars"]), (2, &json!(5)));
/// # Ok(())
/// # }
/// ```
pub struct Documents<M: Model> {
    pub(crate) core: Arc<Core<M>>,
    /// The thread that takes snapshots, which ends with the last handle.
    _worker: Option<Arc<Worker>>,
}

pub(crate) struct Core<M: Model> {
    pub store: Store,
    pub keys: Keys,
    pub model: M,
    pub options: Options,
    pub cache: Cache<M>,
    pub due: Arc<Due>,
    loads: AtomicU64,
}

/// A document at a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<S> {
    /// The version.
    pub version: u64,
    /// The state; cheap to clone.
    pub state: Arc<S>,
}

/// The answer to a request that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The version of the document that the request made.
    pub version: u64,
    /// Whether the request had happened before, and this is its first answer.
    pub repeated: bool,
}

/// The documents that are in memory; see [`Documents::cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheInfo {
    /// Number of documents in memory, with or without their state.
    pub documents: usize,
    /// Number of documents whose state is in memory.
    pub states: usize,
    /// Bytes of memory that the documents take, about.
    pub bytes: usize,
    /// Number of states that were loaded since the documents were opened.
    pub loads: u64,
}

impl<M: Model> Documents<M> {
    /// Opens the documents below the prefix of the options. Reads and writes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an option is invalid, or the model has a name of more than 255 bytes.
    pub fn open(store: &Store, model: M, options: Options) -> Result<Self> {
        options.check()?;
        let len = model.name().len();
        if len > 255 {
            return Err(Error::Invalid(format!("a model name of {len} bytes: use at most 255 bytes")));
        }
        let background = options.background;
        let core = Core {
            store: store.clone(),
            keys: Keys::new(&options.prefix),
            model,
            cache: Cache::new(options.cache_budget),
            options,
            due: Arc::default(),
            loads: AtomicU64::new(0),
        };
        let mut documents = Self { core: Arc::new(core), _worker: None };
        if background {
            let own = documents.clone();
            let worker = Worker::start(documents.core.due.clone(), move |name| own.snapshot_if_due(name));
            documents._worker = Some(Arc::new(worker));
        }
        Ok(documents)
    }

    /// Returns a document with its state; `None` if the document does not exist. A document that is
    /// not in memory is loaded by one read: of its last snapshot, and the updates behind it.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::OtherModel`], [`Error::ModelPanicked`]; [`Error::Store`].
    pub fn get(&self, name: impl AsRef<[u8]>) -> Result<Option<Document<M::State>>> {
        self.settled(name.as_ref(), |slot, key| {
            let open = self.ensure(name.as_ref(), key, slot, true)?;
            Ok(open.map(|Open { head, state }| Document {
                version: head.version,
                state: state.clone().expect("the state was loaded"),
            }))
        })
    }

    /// Returns the version of a document, without its state; `None` if the document does not exist.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Store`].
    pub fn version(&self, name: impl AsRef<[u8]>) -> Result<Option<u64>> {
        self.settled(name.as_ref(), |slot, key| {
            Ok(self.ensure(name.as_ref(), key, slot, false)?.map(|open| open.head.version))
        })
    }

    /// Returns a version that no deleted document of this name was after; 0 if none was deleted. It
    /// may be later than the last version of them, as several names share it.
    ///
    /// If a client has seen a document at a later version, and the document does not exist, it was
    /// not deleted: it is not here yet, as on a [read replica](brooklet::Following) that is behind.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// let made = documents.create("notes", "r1", &json!({}).into())?;
    /// assert_eq!(documents.deleted_up_to("notes")?, 0);
    /// documents.delete("notes", made.version)?;
    /// assert!(documents.deleted_up_to("notes")? >= made.version);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn deleted_up_to(&self, name: impl AsRef<[u8]>) -> Result<u64> {
        let floor = self.core.keys.floor(name.as_ref());
        Ok(self.core.store.get_bounds(floor)?.map_or(0, |bounds| bounds.next))
    }

    /// Creates a document, and waits until it is durable, or as its [space](brooklet::Space)
    /// requires. The same request again returns the first answer, as long as the document exists
    /// and remembers the request.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::RequestReused`]; [`Error::Refused`] if the state is over a limit
    /// of the model; [`Error::Invalid`] for a name that is too long; [`Error::Store`].
    pub fn create(
        &self,
        name: impl AsRef<[u8]>,
        request: impl Into<Request>,
        state: &M::State,
    ) -> Result<Answer> {
        let (name, request) = (name.as_ref(), request.into());
        request.check()?;
        let bytes = Bytes::from(guarded(name, || self.core.model.snapshot(state))?);
        let content = content(Call::Create, &[&bytes]);
        self.acknowledged(name, |slot, key| {
            if let Some(open) = self.ensure(name, key, slot, false)? {
                let head = open.head.version;
                return repeated(name, &open.head, &request, content)?
                    .ok_or_else(|| Error::Exists { document: text(name), head });
            }
            let mut commit = Commit::new();
            let seq = self.expect_none(name, key, &mut commit)?;
            let entry = self.snapshot_entry(self.meta(seq + 1, &request, content), true, bytes.clone());
            if seq > 0 {
                commit.begin_at(key, seq);
            }
            commit.append(key, entry.encode(seq));
            slot.last = Some(self.core.store.commit(&commit)?);
            let state = (!M::UNSEEN).then(|| Arc::new(state.clone()));
            slot.open = Some(Open { head: Head::new(&entry, seq, seq), state });
            Ok(Answer { version: seq + 1, repeated: false })
        })
    }

    /// Deletes a document at a version, and waits until the deletion is durable. Its history and
    /// its request ids are gone.
    ///
    /// # Errors
    /// [`Error::NotFound`], also if an earlier call deleted the document; [`Error::Conflict`] if
    /// the document is at another version; [`Error::Store`].
    pub fn delete(&self, name: impl AsRef<[u8]>, expected: u64) -> Result<()> {
        let name = name.as_ref();
        self.acknowledged(name, |slot, key| {
            let open = self.ensure(name, key, slot, false)?.ok_or_else(|| Error::not_found(name))?;
            expect(name, &open.head, expected)?;
            let mut commit = Commit::new();
            commit.expect_next(key, open.head.next).delete(key);
            commit.begin_at(self.core.keys.floor(name), open.head.next);
            slot.last = Some(self.core.store.commit(&commit)?);
            slot.open = None;
            Ok(())
        })
    }

    /// Lists the names of all documents, in the order of their bytes.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn names(&self) -> Result<Names> {
        let prefix = self.core.keys.all();
        Ok(Names { logs: self.core.store.scan(&prefix)?, skip: prefix.len() })
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.core.store
    }

    /// Returns the model.
    pub fn model(&self) -> &M {
        &self.core.model
    }

    /// Returns how much is in memory.
    pub fn cache(&self) -> CacheInfo {
        let (documents, states, bytes) = self.core.cache.totals();
        CacheInfo { documents, states, bytes, loads: self.core.loads.load(Ordering::Relaxed) }
    }

    /// Takes that another process has written a log of the store, as on a
    /// [read replica](brooklet::Following): what memory has of its document is dropped. A log that
    /// is none of a document is passed over.
    pub fn note_written(&self, log: impl AsRef<[u8]>) {
        let Some(name) = log.as_ref().strip_prefix(&self.core.keys.all()[..]) else { return };
        if let Some(slot) = self.core.cache.find(name) {
            slot.lock().open = None;
        }
    }

    /// Returns whether the state of a document is in memory, or another call has the document in
    /// use. For programs that limit the number of loads at once. Does not wait.
    pub fn is_loaded(&self, name: impl AsRef<[u8]>) -> bool {
        self.core.cache.has_state(name.as_ref())
    }

    /// Returns whether a call for a document would wait for others: another call has the document
    /// in use, or its last write is not durable yet. For programs whose calls take turns: a writer
    /// may wait for room, and so do all calls for its document. Does not wait.
    pub fn is_busy(&self, name: impl AsRef<[u8]>) -> bool {
        self.core.cache.is_busy(name.as_ref())
    }

    /// Runs a step on a document, with its slot locked. Returns the last write that the result may
    /// depend on. The step begins again if another handle wrote the document meanwhile.
    pub(crate) fn enter<R>(
        &self,
        name: &[u8],
        mut step: impl FnMut(&mut Slot<M>, &[u8]) -> Result<R>,
    ) -> (Result<R>, Option<Ticket>) {
        let key = match self.core.keys.document(name) {
            Ok(key) => key,
            Err(error) => return (Err(error), None),
        };
        for retry in 0.. {
            let shared = self.core.cache.slot(name);
            let mut slot = shared.lock();
            let result = step(&mut slot, &key);
            let is_late = matches!(result, Err(Error::Store(brooklet::Error::Conflict { .. })));
            if is_late {
                slot.open = None;
            }
            let (last, size) = (slot.last.clone(), self.size(name, &slot));
            drop(slot);
            drop(shared);
            self.core.cache.used(name, size);
            if !is_late || retry == RETRIES {
                return (result, last);
            }
            // Reads show durable entries only.
            if let Err(error) = self.core.store.flush() {
                return (Err(error.into()), last);
            }
        }
        unreachable!("the loop returns")
    }

    /// Returns the bytes of memory that a document takes, about; 0 if its slot can go.
    pub(crate) fn size(&self, name: &[u8], slot: &Slot<M>) -> usize {
        slot.size(|state| guarded(name, || Ok(self.core.model.size(state))).unwrap_or_default())
    }

    /// Runs a step that reads a document, like [`enter`](Self::enter), and waits until all that the
    /// result may depend on is durable.
    pub(crate) fn settled<R>(
        &self,
        name: &[u8],
        step: impl FnMut(&mut Slot<M>, &[u8]) -> Result<R>,
    ) -> Result<R> {
        let (result, last) = self.enter(name, step);
        self.shown(name, last.as_ref())?;
        result
    }

    /// Runs a step that writes a document, like [`enter`](Self::enter), and waits until the write
    /// is acknowledged. An error may name the version of the document, so it waits like a read.
    pub(crate) fn acknowledged<R>(
        &self,
        name: &[u8],
        step: impl FnMut(&mut Slot<M>, &[u8]) -> Result<R>,
    ) -> Result<R> {
        let (result, last) = self.enter(name, step);
        match (&result, &last) {
            (Ok(_), Some(last)) => self.wait(name, last)?,
            (_, last) => self.shown(name, last.as_ref())?,
        }
        result
    }

    /// Waits until a write of a document is acknowledged. A write that failed leaves the document
    /// to be read again.
    pub(crate) fn wait(&self, name: &[u8], last: &Ticket) -> Result<()> {
        self.ended(name, last.wait())
    }

    /// Waits until readers may see the last write of a document. A deferred write is durable later
    /// than it is acknowledged, and a crash in between takes it back.
    pub(crate) fn shown(&self, name: &[u8], last: Option<&Ticket>) -> Result<()> {
        let Some(last) = last else { return Ok(()) };
        let is_durable = || if last.is_in_memory() { Ok(()) } else { last.wait_durable() };
        self.ended(name, last.wait().and_then(|()| is_durable()))
    }

    fn ended(&self, name: &[u8], ended: Result<(), brooklet::Error>) -> Result<()> {
        ended.map_err(|error| {
            let shared = self.core.cache.slot(name);
            let mut slot = shared.lock();
            slot.open = None;
            slot.forget_ended();
            drop(slot);
            drop(shared);
            self.core.cache.used(name, 0);
            error.into()
        })
    }

    /// Makes the next call read the document again.
    pub(crate) fn forget(&self, name: &[u8]) {
        self.core.cache.slot(name).lock().open = None;
        self.core.cache.used(name, 0);
    }

    /// Makes sure that the head of a document is in memory, and its state if `state` says so.
    /// Returns `None` if the document does not exist.
    pub(crate) fn ensure<'a>(
        &self,
        name: &[u8],
        key: &[u8],
        slot: &'a mut Slot<M>,
        state: bool,
    ) -> Result<Option<&'a mut Open<M>>> {
        let is_there = slot.open.as_ref().is_some_and(|open| open.state.is_some() || !state);
        if !is_there {
            slot.open = None;
            slot.settle()?;
            let core = &*self.core;
            let begin = core.options.clock.now();
            let entries = core.store.read_available(key, ..)?;
            let Some(loaded) = read(name, entries, core.options.remember)? else { return Ok(None) };
            let state = match state {
                true => Some(Arc::new(loaded.state(&core.model, name)?)),
                false => None,
            };
            if state.is_some() {
                core.loads.fetch_add(1, Ordering::Relaxed);
                let time = core.options.clock.now().saturating_sub(begin);
                if time >= core.options.snapshot_load_time && loaded.head.updates_since() > 0 {
                    core.due.push(name);
                }
            }
            slot.open = Some(Open { head: loaded.head, state });
        }
        Ok(slot.open.as_mut())
    }

    /// Expects in a commit that a document does not exist. Returns the number of its first entry.
    pub(crate) fn expect_none(&self, name: &[u8], key: &[u8], commit: &mut Commit) -> Result<u64> {
        let floor = self.core.keys.floor(name);
        let least = self.core.store.get_bounds(&floor)?.map_or(0, |bounds| bounds.next);
        commit.expect_next(&floor, least);
        match self.core.store.get_bounds(key)? {
            // Others have dropped all entries, as a retention does.
            Some(left) if left.is_empty() => {
                commit.expect_next(key, left.next).delete(key);
                Ok(least.max(left.next))
            }
            _ => {
                commit.expect_absent(key);
                Ok(least)
            }
        }
    }

    /// Returns the fields that all entries have.
    pub(crate) fn meta(&self, version: u64, request: &Request, content: u64) -> Meta {
        let used = UsedId { id: request.id.clone(), content, version };
        let time = self.core.options.clock.wall();
        Meta {
            version,
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            author: request.author.clone(),
            request: (!request.id.is_empty()).then_some(used),
        }
    }

    /// Returns a snapshot without older snapshots and request ids.
    pub(crate) fn snapshot_entry(&self, meta: Meta, is_creation: bool, state: Bytes) -> SnapshotEntry {
        let Core { model, options, .. } = &*self.core;
        SnapshotEntry {
            is_creation,
            created: meta.version,
            meta,
            model: Bytes::copy_from_slice(model.name().as_bytes()),
            model_version: model.version(),
            history: options.history,
            marks: Vec::new(),
            ids: Vec::new(),
            state,
        }
    }
}

/// Checks the version of a document.
pub(crate) fn expect(name: &[u8], head: &Head, expected: u64) -> Result<()> {
    match head.version == expected {
        true => Ok(()),
        false => Err(Error::Conflict { document: text(name), expected, head: head.version }),
    }
}

/// Returns the first answer to a request, if the request happened before.
pub(crate) fn repeated(name: &[u8], head: &Head, request: &Request, content: u64) -> Result<Option<Answer>> {
    if request.id.is_empty() {
        return Ok(None);
    }
    match head.find(&request.id) {
        Some(used) if used.content == content => Ok(Some(Answer { version: used.version, repeated: true })),
        Some(used) => Err(Error::RequestReused { document: text(name), version: used.version }),
        None => Ok(None),
    }
}

impl<M: Model> Clone for Documents<M> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), _worker: self._worker.clone() }
    }
}

impl<M: Model> std::fmt::Debug for Documents<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Documents({} in {:?})", self.core.options.prefix.escape_ascii(), self.core.store)
    }
}

/// An iterator over the names of documents; see [`Documents::names`].
pub struct Names {
    logs: Logs,
    /// Length of the part of a key before the name.
    skip: usize,
}

impl Iterator for Names {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.logs.next()? {
                Ok(log) if log.bounds.is_empty() => {}
                Ok(mut log) => return Some(Ok(log.key.split_off(self.skip))),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}
