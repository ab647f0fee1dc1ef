//! Documents: loads, lists and clears documents.

use brooklet::{Commit, ErrorKind, Logs, Store};
use yrs::{Doc, Options, ReadTxn, StateVector, Transact, TransactionMut};

use crate::error::{Error, Result};
use crate::format::{Decoded, Keys, clears_used_up, decode_entry};
use crate::merge::{Waiting, load};

/// The documents below a prefix of a store. A clone is a handle to the same documents.
///
/// A document is a log of updates. Any number of handles and threads may use the same document at
/// once. Reads see the updates that the store has acknowledged.
///
/// A name has any bytes, also none. The store's longest key limits its length: 1,023 bytes less the
/// prefix.
#[derive(Clone, Debug)]
pub struct Documents {
    pub(crate) store: Store,
    pub(crate) keys: Keys,
    pub(crate) flush_every: u64,
}

/// The updates of a document from a number on.
pub(crate) struct Batch {
    pub updates: Vec<Decoded>,
    /// Number of the next entry of the log.
    pub next: u64,
}

impl Documents {
    /// Returns the documents below `prefix`. Reads and writes nothing.
    ///
    /// End the prefix with a slash, so that no other prefix in use begins with it. For the
    /// documents of a [space](brooklet::Space), pass `space.key("")`.
    ///
    /// ```
    /// use brooklet_yrs::Documents;
    ///
    /// # fn main() -> Result<(), brooklet_yrs::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::new(&store, "docs/");
    /// let games = store.create_space("games", brooklet::SpaceConfig::new())?;
    /// let of_games = Documents::new(&store, games.key(""));
    /// # assert_eq!(documents.iter_docs()?.count() + of_games.iter_docs()?.count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(store: &Store, prefix: impl AsRef<[u8]>) -> Self {
        Self { store: store.clone(), keys: Keys::new(prefix.as_ref()), flush_every: 0 }
    }

    /// Makes every `n`th [push](Self::push_update) of a document also [flush](Self::flush_doc) the
    /// document, so that its log stays short. 0 is the default: only the caller flushes.
    ///
    /// A flush reads the whole document, and garbage-collects deleted content. So this is a choice,
    /// and only [`push_update`](Self::push_update) flushes, which may block its thread. After
    /// [`submit_update`](Self::submit_update) and [`push_update_async`](Self::push_update_async),
    /// flush on a thread that may wait: for example each time that the update's number is a
    /// multiple of 500.
    ///
    /// ```
    /// use brooklet_yrs::Documents;
    /// use yrs::{Doc, Text, Transact};
    ///
    /// # fn main() -> Result<(), brooklet_yrs::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::new(&store, "docs/").flush_every(100);
    /// let doc = Doc::new();
    /// let text = doc.get_or_insert_text("text");
    /// for _ in 0..1000 {
    ///     let mut txn = doc.transact_mut();
    ///     text.push(&mut txn, "a");
    ///     documents.push_update("notes", &txn.encode_update_v1())?;
    /// }
    /// assert!(store.bounds("docs/dnotes")?.len() < 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn flush_every(mut self, n: u64) -> Self {
        self.flush_every = n;
        self
    }

    /// Appends the state of a yrs document as one update, and waits until the update is durable.
    /// Returns the number of the update. Updates that the document has already stay: the call
    /// merges, and does not replace. Updates that wait in the yrs document for missing ones are not
    /// part of its state.
    ///
    /// # Errors
    /// [`Error::NameTooLong`](crate::Error::NameTooLong); [`Error::Store`](crate::Error::Store).
    pub fn insert_doc<T: ReadTxn>(&self, name: impl AsRef<[u8]>, txn: &T) -> Result<u64> {
        self.push_update(name, &txn.encode_diff_v1(&StateVector::default()))
    }

    /// Applies all updates of a document to a transaction. Returns the number of the document's
    /// next update, from which [`updates`](Self::updates) goes on; `None` if the document does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if an entry is not an update, and then the
    /// transaction is unchanged; also if yrs cannot apply an update, and then the transaction has
    /// some of the updates: drop its document. [`Error::NameTooLong`](crate::Error::NameTooLong);
    /// [`Error::Store`](crate::Error::Store).
    pub fn load_doc(&self, name: impl AsRef<[u8]>, txn: &mut TransactionMut<'_>) -> Result<Option<u64>> {
        let name = name.as_ref();
        let Some(batch) = self.batch(name, 0)? else { return Ok(None) };
        let next = batch.next;
        load(name, txn, batch.updates)?;
        Ok(Some(next))
    }

    /// Returns the state vector of a document: the updates of each client that the document has,
    /// up to the first one that is missing. `None` if the document does not exist.
    ///
    /// # Errors
    /// Same errors as [`load_doc`](Self::load_doc).
    pub fn get_state_vector(&self, name: impl AsRef<[u8]>) -> Result<Option<StateVector>> {
        let doc = self.whole(name.as_ref())?;
        Ok(doc.map(|doc| doc.transact().state_vector()))
    }

    /// Returns an update with all that a replica with this state vector lacks. Updates that build
    /// on missing ones are not part of it. `None` if the document does not exist.
    ///
    /// ```
    /// use brooklet_yrs::Documents;
    /// use yrs::updates::decoder::Decode;
    /// use yrs::{Doc, GetString, ReadTxn, Text, Transact, Update};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # let documents = Documents::new(&store, "docs/");
    /// let doc = Doc::new();
    /// doc.get_or_insert_text("text").push(&mut doc.transact_mut(), "hello");
    /// documents.insert_doc("notes", &doc.transact())?;
    ///
    /// let replica = Doc::new();
    /// let text = replica.get_or_insert_text("text");
    /// let known = replica.transact().state_vector();
    /// let diff = documents.get_diff("notes", &known)?.expect("the document exists");
    /// replica.transact_mut().apply_update(Update::decode_v1(&diff)?)?;
    /// assert_eq!(text.get_string(&replica.transact()), "hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same errors as [`load_doc`](Self::load_doc).
    pub fn get_diff(&self, name: impl AsRef<[u8]>, known: &StateVector) -> Result<Option<Vec<u8>>> {
        let doc = self.whole(name.as_ref())?;
        Ok(doc.map(|doc| doc.transact().encode_diff_v1(known)))
    }

    /// Lists the names of all documents, in the order of their bytes. A document that has only
    /// metadata is not listed.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store).
    pub fn iter_docs(&self) -> Result<DocNames> {
        let prefix = self.keys.all_updates();
        Ok(DocNames { logs: self.store.scan(&prefix)?, skip: prefix.len() })
    }

    /// Deletes a document with its metadata, and waits until the deletion is durable. A document
    /// that does not exist is not an error. The next update of the name has a number behind all
    /// numbers that the document had.
    ///
    /// Metadata that is inserted while the call runs may stay. If one commit has no room for all
    /// metadata, it is deleted before the document.
    ///
    /// # Errors
    /// [`Error::NameTooLong`](crate::Error::NameTooLong); [`Error::Store`](crate::Error::Store).
    pub fn clear_doc(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        loop {
            let keys = self.keys_of(name)?;
            match self.clear_at_once(name, &keys) {
                Err(Error::Store(brooklet::Error::CommitTooLarge { .. })) if keys.len() > 1 => {
                    self.remove_all(&keys[1..])?;
                }
                cleared => return cleared,
            }
        }
    }

    /// Returns the keys of the logs of a document. That of the updates is the first.
    fn keys_of(&self, name: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut keys = vec![self.keys.updates(name)?];
        // A name that is too long for metadata has none.
        if let Ok(meta) = self.keys.meta(name, b"") {
            for log in self.store.scan(meta)? {
                keys.push(log?.key);
            }
        }
        Ok(keys)
    }

    /// Deletes the logs of a document by one commit, and counts the clear.
    fn clear_at_once(&self, name: &[u8], keys: &[Vec<u8>]) -> Result<()> {
        let (count, used_up) = (self.keys.clears(name), self.used_up(&keys[0])?);
        let mut commit = Commit::new();
        if used_up > self.clears(name)? {
            commit.begin_at(&count, used_up);
        }
        commit.snapshot(&count, "");
        for key in keys {
            // The store deletes only what exists, and another call may just delete this log.
            commit.append(key, "").delete(key);
        }
        match self.store.commit(&commit) {
            Err(error) if error.kind() == ErrorKind::Full => self.clear_without_room(name, keys),
            cleared => Ok(cleared?.wait()?),
        }
    }

    /// Deletes the logs of a document by a commit that adds no entry: a full store takes it.
    fn clear_without_room(&self, name: &[u8], keys: &[Vec<u8>]) -> Result<()> {
        let count = self.keys.clears(name);
        loop {
            let (clears, used_up) = (self.clears(name)?, self.used_up(&keys[0])?);
            let mut commit = Commit::new();
            commit.expect_next(&count, clears);
            let mut is_there = false;
            for key in keys {
                if self.store.get_bounds(key)?.is_some() {
                    // The begin changes no log that exists.
                    commit.begin_at(key, 0).delete(key);
                    is_there = true;
                }
            }
            if !is_there {
                return Ok(());
            }
            commit.begin_at(&count, clears.max(used_up) + 1);
            match self.store.commit(&commit) {
                // Another clear was counted, which reads may not show yet.
                Err(error) if error.kind() == ErrorKind::Conflict => self.store.flush()?,
                cleared => return Ok(cleared?.wait()?),
            }
        }
    }

    /// Returns the count of clears whose numbers the document with this log has used up.
    fn used_up(&self, key: &[u8]) -> Result<u64> {
        Ok(clears_used_up(self.store.get_bounds(key)?.map_or(0, |bounds| bounds.next)))
    }

    /// Reads the updates of a document from a number on. `None` if there are none.
    pub(crate) fn batch(&self, name: &[u8], from: u64) -> Result<Option<Batch>> {
        let entries = self.store.read_available(self.keys.updates(name)?, from..)?;
        let next = entries.range().end;
        // Also if there is no entry to read: behind damage, an error may take the place of entries.
        let updates = entries.map(|entry| decode_entry(name, &entry?)).collect::<Result<Vec<_>>>()?;
        Ok((!updates.is_empty()).then_some(Batch { updates, next }))
    }

    /// Returns the document with all deleted content that its updates hold, and without updates
    /// that build on missing ones.
    fn whole(&self, name: &[u8]) -> Result<Option<Doc>> {
        let Some(batch) = self.batch(name, 0)? else { return Ok(None) };
        let doc = Doc::with_options(Options { skip_gc: true, ..plain() });
        Waiting::default().apply(name, &mut doc.transact_mut(), batch.updates)?;
        Ok(Some(doc))
    }
}

/// Returns the options of documents that only merge updates, and change nothing by themselves.
pub(crate) fn plain() -> Options {
    Options { cleanup_formatting: false, ..Options::default() }
}

/// An iterator over the names of documents; see [`Documents::iter_docs`].
pub struct DocNames {
    logs: Logs,
    /// Length of the part of a key before the name.
    skip: usize,
}

impl Iterator for DocNames {
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
