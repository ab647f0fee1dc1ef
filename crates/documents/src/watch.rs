//! Watches: return the updates of a document as they become durable.

use std::sync::Arc;
use std::time::Duration;

use brooklet::{Bytes, Tail, TailEvent};

use crate::documents::Documents;
use crate::error::{Error, Result};
use crate::format::DocEntry;
use crate::history::{Update, seq, update_of};
use crate::load::state_of;
use crate::model::Model;

/// One step of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<S, C> {
    /// The next update of the document.
    Update(Update<C>),
    /// The document was created, or made again after [`Deleted`](Self::Deleted).
    Created {
        /// The version of the new document.
        version: u64,
        /// The state of the new document.
        state: Arc<S>,
        /// The author that the request named; empty if it named none.
        author: Bytes,
    },
    /// A snapshot dropped updates before the watch returned them. [Get](Documents::get) the
    /// document, or its [state](Documents::at) at the version before the next update.
    Missed {
        /// Version of the first update that was missed; 1 if the watch knew no version before.
        from: u64,
        /// Version of the last update that was missed.
        to: u64,
    },
    /// The document was deleted. Drop all that you know of it. The watch waits for a document of
    /// the same name.
    Deleted,
}

/// A reader that follows a document: it returns every update once, in order, as soon as the update
/// is durable; see [`Documents::watch`].
///
/// A watch is an iterator that blocks the thread until the next event. In a task, await
/// [`next_async`](Self::next_async). An error ends it: [`Error::Store`] once the store is closed or
/// has stopped, after all updates that were durable. A watch holds no updates in memory: a slow one
/// reads them from the log, and learns if the log no longer has them.
pub struct Watch<M: Model> {
    documents: Documents<M>,
    name: Box<[u8]>,
    tail: Tail,
    /// Version of the document as the caller knows it; `None` if there is no document.
    known: Option<u64>,
    /// An event that comes before those of the tail.
    first: Option<Event<M::State, M::Change>>,
    /// An entry that comes after a missed range.
    pending: Option<Pending>,
    has_undo: bool,
}

/// An entry that the watch has read, and not returned yet.
struct Pending {
    seq: u64,
    entry: DocEntry,
}

/// An event of a watch over documents of a model.
type EventOf<M> = Event<<M as Model>::State, <M as Model>::Change>;

impl<M: Model> Documents<M> {
    /// Follows a document from a version on: the watch returns all updates after version `from`,
    /// and then each update as it becomes durable. The document need not exist yet: pass 0 then.
    ///
    /// If the document of version `from` was deleted since then, the watch returns
    /// [`Event::Deleted`], and then [`Event::Created`] if the document was made again.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Event, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({}).into())?;
    /// let mut watch = documents.watch("notes", 1)?;
    /// documents.patch("notes", 1, "r2", &JsonChange::merge(json!({"a": 1})))?;
    /// match watch.next().transpose()? {
    ///     Some(Event::Update(update)) => assert_eq!(update.version, 2),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchVersion`] if the document has not reached the version; [`Error::Damaged`];
    /// [`Error::Store`].
    pub fn watch(&self, name: impl AsRef<[u8]>, from: u64) -> Result<Watch<M>> {
        let name = name.as_ref();
        let key = self.core.keys.document(name)?;
        let (mut known, mut first, mut begin) = ((from > 0).then_some(from), None, 0);
        match self.head(name) {
            Ok(head) => {
                self.expect_reached(name, &head, from)?;
                begin = head.first;
                if from >= head.created && from >= head.oldest() {
                    begin = if from == head.version { head.next } else { seq(&head, from + 1) };
                } else if from < head.created && from > 0 {
                    (known, first) = (None, Some(Event::Deleted));
                }
            }
            Err(Error::NotFound { .. }) if from > 0 => (known, first) = (None, Some(Event::Deleted)),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        // A tail sees durable entries only, and this look makes deferred ones durable.
        self.core.store.get_bounds(&key)?;
        let tail = self.core.store.tail(key, begin)?;
        let (documents, name) = (self.clone(), name.into());
        Ok(Watch { documents, name, tail, known, first, pending: None, has_undo: true })
    }
}

impl<M: Model> Watch<M> {
    /// Returns the version up to which the watch has returned all; `None` if there is no document.
    /// Another watch goes on from there.
    pub fn version(&self) -> Option<u64> {
        self.known
    }

    /// Leaves the undo out of updates, and so decodes only their changes. An undo may be much
    /// larger than its change.
    pub fn without_undo(mut self) -> Self {
        self.has_undo = false;
        self
    }

    /// Waits in a task until the watch has an event or an entry, which it does not decode yet.
    /// Returns the bytes of its change or state. For callers that wait for memory before they take
    /// the event by [`try_next`](Self::try_next), which returns `None` for an entry that is no
    /// event. To cancel the wait, drop the future: no event is lost.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Damaged`].
    pub async fn wait_async(&mut self) -> Result<usize> {
        loop {
            if self.first.is_some() {
                return Ok(0);
            }
            match self.pending.as_ref().map(|pending| &pending.entry) {
                Some(DocEntry::Update(update)) => return Ok(update.change.len()),
                Some(DocEntry::Snapshot(snapshot)) => return Ok(snapshot.state.len()),
                None => {}
            }
            let event = self.tail.next_async().await?;
            self.take(event)?;
        }
    }

    /// Returns the next event, or `None` if the call would wait for it.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Damaged`]; [`Error::OtherModel`], [`Error::ModelPanicked`].
    pub fn try_next(&mut self) -> Result<Option<Event<M::State, M::Change>>> {
        loop {
            if let Some(event) = self.ready()? {
                return Ok(Some(event));
            }
            match self.tail.try_next()? {
                Some(event) => self.take(event)?,
                None => return Ok(None),
            }
        }
    }

    /// Returns the next event. Waits for it for `timeout` at most, and then returns `None`. An
    /// entry that is no event, such as a snapshot, begins the wait again.
    ///
    /// # Errors
    /// Same errors as [`try_next`](Self::try_next).
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Event<M::State, M::Change>>> {
        loop {
            if let Some(event) = self.ready()? {
                return Ok(Some(event));
            }
            match self.tail.next_timeout(timeout)? {
                Some(event) => self.take(event)?,
                None => return Ok(None),
            }
        }
    }

    /// Waits for the next event in a task, in any runtime. To cancel the wait, drop the future: no
    /// event is lost.
    ///
    /// # Errors
    /// Same errors as [`try_next`](Self::try_next).
    pub async fn next_async(&mut self) -> Result<Event<M::State, M::Change>> {
        loop {
            if let Some(event) = self.ready()? {
                return Ok(event);
            }
            let event = self.tail.next_async().await?;
            self.take(event)?;
        }
    }

    /// Notes an event of the log.
    fn take(&mut self, event: TailEvent) -> Result<()> {
        match event {
            TailEvent::Entry(entry) => {
                let decoded = DocEntry::of(&self.name, &entry)?;
                self.pending = Some(Pending { seq: entry.seq, entry: decoded });
            }
            // The version of the next entry says what was missed.
            TailEvent::Trimmed(_) => {}
            // Nothing truncates a log of documents but a deletion and a creation.
            _ => {
                if self.known.take().is_some() {
                    self.first = Some(Event::Deleted);
                }
            }
        }
        Ok(())
    }

    /// Returns the event of the entry that was read, if it is one.
    fn ready(&mut self) -> Result<Option<EventOf<M>>> {
        if let Some(event) = self.first.take() {
            return Ok(Some(event));
        }
        let Some(pending) = self.pending.take() else { return Ok(None) };
        let version = pending.entry.meta().version;
        let before = match &pending.entry {
            DocEntry::Update(_) => version.saturating_sub(1),
            DocEntry::Snapshot(_) => version,
        };
        let is_creation = matches!(&pending.entry, DocEntry::Snapshot(snapshot) if snapshot.is_creation);
        match self.known {
            // The log of a document that was made again begins with its creation, or without it.
            Some(_) if is_creation => {
                self.known = None;
                self.pending = Some(pending);
                return Ok(Some(Event::Deleted));
            }
            Some(known) if before > known => {
                self.known = Some(before);
                self.pending = Some(pending);
                return Ok(Some(Event::Missed { from: known + 1, to: before }));
            }
            None if !is_creation && before > 0 => {
                self.known = Some(before);
                self.pending = Some(pending);
                return Ok(Some(Event::Missed { from: 1, to: before }));
            }
            _ => {}
        }
        self.event(pending)
    }

    fn event(&mut self, Pending { seq, entry }: Pending) -> Result<Option<EventOf<M>>> {
        let model = &self.documents.core.model;
        let event = match entry {
            DocEntry::Update(update) => {
                Event::Update(update_of(model, &self.name, seq, update, self.has_undo)?)
            }
            DocEntry::Snapshot(snapshot) if snapshot.is_creation => Event::Created {
                version: snapshot.meta.version,
                state: Arc::new(state_of(model, &self.name, seq, &snapshot)?),
                author: snapshot.meta.author,
            },
            DocEntry::Snapshot(_) => return Ok(None),
        };
        match &event {
            Event::Update(update) => self.known = Some(update.version),
            Event::Created { version, .. } => self.known = Some(*version),
            _ => {}
        }
        Ok(Some(event))
    }
}

impl<M: Model> Iterator for Watch<M> {
    type Item = Result<Event<M::State, M::Change>>;

    /// Blocks until the next event. Returns `None` after an error of the store.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.ready() {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
            match self.tail.next()?.map_err(Error::from).and_then(|event| self.take(event)) {
                Ok(()) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl<M: Model> std::fmt::Debug for Watch<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({} after {:?})", self.name.escape_ascii(), self.known)
    }
}
