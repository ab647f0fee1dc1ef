//! The past of documents: states at earlier versions, changes since a version, histories.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brooklet::{Bytes, Entries, Entry};

use crate::documents::{Document, Documents, RETRIES};
use crate::error::{Error, Result, text};
use crate::format::{DocEntry, UpdateEntry};
use crate::head::Head;
use crate::load::{expect_version, guarded, replay, state_of, trusted};
use crate::model::Model;

/// An update of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update<C> {
    /// Version of the document after the update.
    pub version: u64,
    /// When the update was made, by the clock of its host.
    pub time: SystemTime,
    /// The author that the request named; empty if it named none.
    pub author: Bytes,
    /// The request id; empty if there was none.
    pub request: Bytes,
    /// The version that the update went back to, if it was made by
    /// [`rewind`](Documents::rewind).
    pub back_to: Option<u64>,
    /// The change.
    pub change: C,
    /// The change that undoes it, if the model has one.
    pub undo: Option<C>,
}

/// All that happened to a document since a version; see [`Documents::changes`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes<C> {
    /// Version of the document now.
    pub version: u64,
    /// The updates since the version, oldest first.
    pub updates: Vec<Update<C>>,
    /// One change with the effect of all updates, if there are any, and the model can compose them.
    pub merged: Option<C>,
}

impl<M: Model> Documents<M> {
    /// Returns a document as it was at a version. Reads the last snapshot before the version and
    /// the updates between them; or, if the history begins after that snapshot, the first snapshot
    /// after the version, and undoes the updates between them.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({"stars": 1}).into())?;
    /// documents.patch("notes", 1, "r2", &JsonChange::merge(json!({"stars": 2})))?;
    /// assert_eq!(documents.at("notes", 1)?.state["stars"], 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NoSuchVersion`]; [`Error::HistoryGone`]; the errors of
    /// [`get`](Self::get).
    pub fn at(&self, name: impl AsRef<[u8]>, version: u64) -> Result<Document<M::State>> {
        let name = name.as_ref();
        let (head, entries) = self.read_part(name, |head| self.part_for(name, head, version))?;
        self.state_at(name, &head, version, entries)
    }

    /// Returns the changes that a client lacks which has a document at version `since`: the
    /// updates, and one change with the effect of all, if the model can compose them.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({}).into())?;
    /// documents.patch("notes", 1, "r2", &JsonChange::merge(json!({"a": 1})))?;
    /// documents.patch("notes", 2, "r3", &JsonChange::merge(json!({"a": 2})))?;
    /// let changes = documents.changes("notes", 1)?;
    /// assert_eq!((changes.version, changes.updates.len()), (3, 2));
    /// assert_eq!(changes.merged, Some(JsonChange::merge(json!({"a": 2}))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::HistoryGone`] if updates since then were dropped: get the whole document;
    /// [`Error::NoSuchVersion`]; [`Error::NotFound`]; [`Error::Damaged`]; [`Error::Store`].
    pub fn changes(&self, name: impl AsRef<[u8]>, since: u64) -> Result<Changes<M::Change>> {
        let name = name.as_ref();
        let mut reader = self.updates(name, since)?;
        let version = reader.version();
        let updates = reader.by_ref().collect::<Result<Vec<_>>>()?;
        let changes: Vec<M::Change> = updates.iter().map(|update| update.change.clone()).collect();
        let composed = (!changes.is_empty()).then(|| guarded(name, || Ok(self.core.model.compose(&changes))));
        Ok(Changes { version, updates, merged: composed.transpose()?.flatten() })
    }

    /// Returns the updates after version `since`, oldest first, one after another: for histories
    /// that should not be in memory as a whole, as [`changes`](Self::changes) returns them.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({}).into())?;
    /// documents.patch("notes", 1, "r2", &JsonChange::merge(json!({"a": 1})))?;
    /// documents.patch("notes", 2, "r3", &JsonChange::merge(json!({"a": 2})))?;
    /// let mut updates = documents.updates("notes", 2)?;
    /// assert_eq!(updates.version(), 3);
    /// assert_eq!(updates.next().unwrap()?.version, 3);
    /// assert!(updates.next().is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`changes`](Self::changes); [`Error::Damaged`] also by the iterator.
    pub fn updates(&self, name: impl AsRef<[u8]>, since: u64) -> Result<History<M>> {
        let name = name.as_ref();
        let (head, entries) = self.read_part(name, |head| {
            self.expect_reached(name, head, since)?;
            self.expect_kept(name, since, head.oldest())?;
            let first = if since == head.version { head.next } else { seq(head, since + 1) };
            Ok((first, head.next))
        })?;
        Ok(History { last: Some(since), ..History::new(self, name, &head, entries) })
    }

    /// Returns all updates that the document still has, oldest first; `.rev()` reads the newest
    /// first. The creation is none of them.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options, Request};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({}).into())?;
    /// let change = JsonChange::merge(json!({"a": 1}));
    /// documents.patch("notes", 1, Request::new("r2").author("Ada"), &change)?;
    /// let last = documents.history("notes")?.next_back().unwrap()?;
    /// assert_eq!((last.version, &last.author[..]), (2, &b"Ada"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Damaged`], also by the iterator; [`Error::Store`].
    pub fn history(&self, name: impl AsRef<[u8]>) -> Result<History<M>> {
        let name = name.as_ref();
        let (head, entries) = self.read_part(name, |head| Ok((head.first, head.next)))?;
        Ok(History::new(self, name, &head, entries))
    }

    /// Returns the head of a document, when it is durable.
    pub(crate) fn head(&self, name: &[u8]) -> Result<Head> {
        let head = self.settled(name, |slot, key| {
            Ok(self.ensure(name, key, slot, false)?.map(|open| open.head.clone()))
        })?;
        head.ok_or_else(|| Error::not_found(name))
    }

    /// Reads the entries of a document that `bounds` names: the first, and the one after the last.
    fn read_part(
        &self,
        name: &[u8],
        bounds: impl Fn(&Head) -> Result<(u64, u64)>,
    ) -> Result<(Head, Entries)> {
        let key = self.core.keys.document(name)?;
        let mut retry = 0;
        loop {
            let head = self.head(name)?;
            let (first, end) = bounds(&head)?;
            let entries = self.core.store.read_available(&key, first..end)?;
            if first == end || entries.range() == (first..end) || retry == RETRIES {
                return Ok((head, entries));
            }
            // A snapshot of another thread or handle has dropped entries meanwhile.
            retry += 1;
            self.forget(name);
        }
    }

    /// Returns the entries that the state at a version needs: the first, and the one after the
    /// last.
    pub(crate) fn part_for(&self, name: &[u8], head: &Head, version: u64) -> Result<(u64, u64)> {
        self.expect_reached(name, head, version)?;
        Ok(match head.mark_before(version) {
            Some(mark) if mark.version == version => (mark.seq, mark.seq + 1),
            Some(mark) => (mark.seq, seq(head, version) + 1),
            None => {
                let oldest = if M::UNSEEN { head.marks[0].version } else { head.oldest() };
                self.expect_kept(name, version, oldest)?;
                (seq(head, version + 1), head.marks[0].seq + 1)
            }
        })
    }

    /// Returns the state at a version, from the entries that [`part_for`](Self::part_for) named.
    pub(crate) fn state_at(
        &self,
        name: &[u8],
        head: &Head,
        version: u64,
        entries: Entries,
    ) -> Result<Document<M::State>> {
        let model = &self.core.model;
        let mut entries: Vec<Entry> = entries.collect::<std::result::Result<_, _>>()?;
        let goes_back = head.mark_before(version).is_none();
        if goes_back {
            entries.reverse();
        }
        let (mut state, mut changes) = (None, Vec::new());
        for entry in entries {
            match (DocEntry::of(name, &entry)?, &state) {
                (DocEntry::Snapshot(snapshot), None) => {
                    state = Some(state_of(model, name, entry.seq, &snapshot)?);
                }
                (DocEntry::Update(update), Some(_)) if goes_back => {
                    let no_undo = || Error::NoUndo { document: text(name), model: model.name().into() };
                    changes.push((entry.seq, update.undo.ok_or_else(no_undo)?));
                }
                (DocEntry::Update(update), Some(_)) => changes.push((entry.seq, update.change)),
                _ => {
                    return Err(Error::damaged(
                        name,
                        entry.seq,
                        "a snapshot was expected before or after it",
                    ));
                }
            }
        }
        let mut state = state.ok_or_else(|| Error::damaged(name, head.first, "it has no snapshot"))?;
        replay(model, name, &mut state, changes.iter().map(|(seq, change)| (*seq, change)))?;
        Ok(Document { version, state: Arc::new(state) })
    }

    pub(crate) fn expect_reached(&self, name: &[u8], head: &Head, asked: u64) -> Result<()> {
        match asked <= head.version {
            true => Ok(()),
            false => Err(Error::NoSuchVersion { document: text(name), asked, head: head.version }),
        }
    }

    fn expect_kept(&self, name: &[u8], asked: u64, oldest: u64) -> Result<()> {
        match asked >= oldest {
            true => Ok(()),
            false => Err(Error::HistoryGone { document: text(name), asked, oldest }),
        }
    }
}

/// Returns the number of the update that made a version. The log holds the update.
pub(crate) fn seq(head: &Head, version: u64) -> u64 {
    u64::try_from(head.seq_of(version)).unwrap_or(head.first)
}

/// Returns an update as callers see it; without its undo if nobody asks for it.
pub(crate) fn update_of<M: Model>(
    model: &M,
    name: &[u8],
    seq: u64,
    entry: UpdateEntry,
    with_undo: bool,
) -> Result<Update<M::Change>> {
    let update = Update::encoded(entry);
    let (change, undo) = trusted(name, seq, || {
        let undo = update.undo.as_ref().filter(|_| with_undo);
        Ok((model.decode(&update.change)?, undo.map(|undo| model.decode(undo)).transpose()?))
    })?;
    Ok(update.with(change, undo))
}

impl Update<Bytes> {
    /// Returns an update whose change and undo are the bytes of the entry.
    fn encoded(entry: UpdateEntry) -> Self {
        let UpdateEntry { meta, back, undo, change } = entry;
        let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(meta.time_ms));
        Self {
            version: meta.version,
            time: time.unwrap_or(SystemTime::UNIX_EPOCH),
            author: meta.author,
            request: meta.request.map(|used| used.id).unwrap_or_default(),
            back_to: back,
            change,
            undo,
        }
    }

    /// Returns the update with a change and an undo of a model.
    fn with<C>(self, change: C, undo: Option<C>) -> Update<C> {
        let Self { version, time, author, request, back_to, .. } = self;
        Update { version, time, author, request, back_to, change, undo }
    }
}

/// An iterator over the updates of a document; see [`Documents::history`].
pub struct History<M: Model> {
    documents: Documents<M>,
    name: Box<[u8]>,
    version: u64,
    entries: Entries,
    /// Version of the update that was read last from the front.
    last: Option<u64>,
}

impl<M: Model> History<M> {
    fn new(documents: &Documents<M>, name: &[u8], head: &Head, entries: Entries) -> Self {
        Self { documents: documents.clone(), name: name.into(), version: head.version, entries, last: None }
    }

    /// Returns the version of the document when the history was asked for: that of the last update.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the next update with the bytes of its change and of its undo, as the model encoded
    /// them. For callers that pass the bytes on, or that decide by them whether to decode them.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({}).into())?;
    /// documents.patch("notes", 1, "r2", &JsonChange::merge(json!({"a": 1})))?;
    /// let update = documents.history("notes")?.next_encoded().unwrap()?;
    /// assert_eq!(JsonChange::encoded_text(&update.change)?, ("application/merge-patch+json", "{\"a\":1}"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Store`].
    pub fn next_encoded(&mut self) -> Option<Result<Update<Bytes>>> {
        let entry = self.next_entry()?;
        Some(entry.map(|(_, entry)| Update::encoded(entry)))
    }

    /// Returns the entry of the next update, and its number.
    fn next_entry(&mut self) -> Option<Result<(u64, UpdateEntry)>> {
        loop {
            let entry = self.entries.next()?;
            let update = entry.map_err(Error::from).and_then(|entry| self.following(&entry));
            if let Some(update) = update.transpose() {
                return Some(update);
            }
        }
    }

    fn following(&mut self, entry: &Entry) -> Result<Option<(u64, UpdateEntry)>> {
        let DocEntry::Update(update) = DocEntry::of(&self.name, entry)? else { return Ok(None) };
        let version = update.meta.version;
        expect_version(&self.name, entry.seq, self.last.map_or(version, |last| last + 1), version)?;
        self.last = Some(version);
        Ok(Some((entry.seq, update)))
    }

    fn decoded(&self, (seq, entry): (u64, UpdateEntry)) -> Result<Update<M::Change>> {
        update_of(&self.documents.core.model, &self.name, seq, entry, true)
    }

    fn update(&self, entry: &Entry) -> Result<Option<Update<M::Change>>> {
        match DocEntry::of(&self.name, entry)? {
            DocEntry::Update(update) => self.decoded((entry.seq, update)).map(Some),
            DocEntry::Snapshot(_) => Ok(None),
        }
    }
}

impl<M: Model> Iterator for History<M> {
    type Item = Result<Update<M::Change>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.next_entry()?;
        Some(entry.and_then(|entry| self.decoded(entry)))
    }
}

impl<M: Model> DoubleEndedIterator for History<M> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.entries.next_back()?;
            let update = entry.map_err(Error::from).and_then(|entry| self.update(&entry));
            if let Some(update) = update.transpose() {
                return Some(update);
            }
        }
    }
}
