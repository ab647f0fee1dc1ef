//! Flushes: merge the updates of a document into one entry.

use std::collections::BTreeSet;

use brooklet::{Bytes, Commit, ErrorKind};
use yrs::{Doc, Options, ReadTxn, StateVector, Transact};

use crate::documents::{Documents, plain};
use crate::error::{Error, Result};
use crate::format::{state_entry, update_entry};
use crate::merge::Waiting;
use crate::update::{Ids, decode};

/// Number of tries in which a flush puts the merged state before all later updates. The next try
/// leaves updates that are pushed meanwhile before the state.
const IN_ORDER: u32 = 3;

/// The merged updates of a document.
struct Merged {
    doc: Doc,
    /// Number of clears before the first update was read.
    clears: u64,
    /// Number of the next update to read.
    next: u64,
    /// The updates that build on missing ones, and are not in the document.
    waiting: Waiting,
    /// The ids of all updates.
    ids: Ids,
}

impl Documents {
    /// Merges all updates of a document into one, so that the document loads fast, and its log is
    /// short. Returns the merged document; `None` if the document does not exist.
    ///
    /// The merged state takes the place of the updates in one atomic commit, which is durable when
    /// the call returns. Updates that are pushed meanwhile stay. Updates that build on others which
    /// the document lacks stay, too. If nothing can be merged, nothing is written.
    ///
    /// yrs garbage-collects the content that the updates delete. To keep deleted content, call
    /// [`flush_doc_with`](Self::flush_doc_with) with the option `skip_gc`.
    ///
    /// Before the commit, the call checks that no id is lost which the updates insert or delete.
    ///
    /// ```
    /// use brooklet_yrs::Documents;
    /// use yrs::{Doc, GetString, Text, Transact};
    ///
    /// # fn main() -> Result<(), brooklet_yrs::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # let documents = Documents::new(&store, "docs/");
    /// let doc = Doc::new();
    /// let text = doc.get_or_insert_text("text");
    /// for word in ["one ", "two ", "three"] {
    ///     let mut txn = doc.transact_mut();
    ///     text.push(&mut txn, word);
    ///     documents.push_update("notes", &txn.encode_update_v1())?;
    /// }
    /// let merged = documents.flush_doc("notes")?.expect("the document exists");
    /// let text = merged.get_or_insert_text("text");
    /// assert_eq!(text.get_string(&merged.transact()), "one two three");
    /// assert_eq!(store.bounds("docs/dnotes")?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Incomplete`]; [`Error::NameTooLong`]; [`Error::Store`]. The
    /// document keeps all of its updates.
    pub fn flush_doc(&self, name: impl AsRef<[u8]>) -> Result<Option<Doc>> {
        self.flush_doc_with(name, plain())
    }

    /// Merges all updates of a document, like [`flush_doc`](Self::flush_doc), by a document with
    /// these options.
    ///
    /// # Errors
    /// Same errors as [`flush_doc`](Self::flush_doc).
    pub fn flush_doc_with(&self, name: impl AsRef<[u8]>, options: Options) -> Result<Option<Doc>> {
        let name = name.as_ref();
        let key = self.keys.updates(name)?;
        let mut merged: Option<Merged> = None;
        let mut tries = 0;
        loop {
            // Counted before the updates are read: a later clear makes the commit fail.
            let clears = self.clears()?;
            let mut now = match merged.take() {
                Some(merged) if merged.clears == clears => merged,
                _ => Merged::new(clears, options.clone()),
            };
            self.read_on(name, &mut now)?;
            if now.next == 0 {
                return Ok(None);
            }
            let waiting: BTreeSet<&Bytes> = now.waiting.iter().collect();
            let bounds = self.store.get_bounds(&key)?;
            let least = 1 + waiting.len() as u64;
            if bounds.is_some_and(|bounds| bounds.len() <= least && bounds.next == now.next) {
                return now.document(name);
            }
            let mut commit = Commit::new();
            commit.expect_next(self.keys.clears(), clears);
            if tries < IN_ORDER {
                commit.expect_next(&key, now.next);
            }
            commit.append(&key, state_entry(&now.state(name)?));
            for update in waiting {
                commit.append(&key, update_entry(update));
            }
            commit.trim(&key, now.next);
            match self.store.commit(&commit) {
                Ok(ticket) => {
                    ticket.wait()?;
                    return now.document(name);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    // The updates in the way may not be durable yet, so that no reader sees them.
                    self.store.flush()?;
                    merged = Some(now);
                    tries += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Applies the entries that the document has since the last read. Where another flush merged
    /// some of them, its state is among them.
    fn read_on(&self, name: &[u8], merged: &mut Merged) -> Result<()> {
        let Some(batch) = self.batch(name, merged.next)? else { return Ok(()) };
        merged.next = batch.next;
        for entry in &batch.updates {
            merged.ids.add(&entry.update);
        }
        merged.waiting.apply(name, &mut merged.doc.transact_mut(), batch.updates)
    }

    /// Returns the number of clears of documents of this prefix.
    fn clears(&self) -> Result<u64> {
        Ok(self.store.get_bounds(self.keys.clears())?.map_or(0, |bounds| bounds.next))
    }
}

impl Merged {
    fn new(clears: u64, options: Options) -> Self {
        Self {
            doc: Doc::with_options(options),
            clears,
            next: 0,
            waiting: Waiting::default(),
            ids: Ids::default(),
        }
    }

    /// Returns the merged state. Checks that the state and the updates that wait have the ids of
    /// all updates.
    fn state(&self, name: &[u8]) -> Result<Vec<u8>> {
        let state = self.doc.transact().encode_state_as_update_v1(&StateVector::default());
        let mut ids = Ids::default();
        for bytes in self.waiting.iter().map(|bytes| &bytes[..]).chain([&state[..]]) {
            ids.add(&decode(bytes).map_err(|_| Error::incomplete(name))?);
        }
        if self.ids.are_in(&ids) { Ok(state) } else { Err(Error::incomplete(name)) }
    }

    /// Returns the document, which keeps the updates that wait.
    fn document(self, name: &[u8]) -> Result<Option<Doc>> {
        self.waiting.leave(name, &mut self.doc.transact_mut())?;
        Ok(Some(self.doc))
    }
}
