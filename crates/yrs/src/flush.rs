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
        let mut merged = None;
        let mut tries = 0;
        loop {
            let now = self.merge(name, merged.take(), &options)?;
            if now.next == 0 {
                return Ok(None);
            }
            if self.store_merged(name, &now, tries < IN_ORDER)? {
                now.waiting.leave(name, &mut now.doc.transact_mut())?;
                return Ok(Some(now.doc));
            }
            // The updates in the way may not be durable yet, so that no reader sees them.
            self.store.flush()?;
            merged = Some(now);
            tries += 1;
        }
    }

    /// Merges all updates of a document, or the updates since `merged`.
    fn merge(&self, name: &[u8], merged: Option<Merged>, options: &Options) -> Result<Merged> {
        // Counted before the updates are read: a later clear makes the commit fail.
        let clears = self.clears(name)?;
        let mut now = match merged {
            Some(merged) if merged.clears == clears => merged,
            _ => Merged::new(clears, options.clone()),
        };
        self.read_on(name, &mut now)?;
        Ok(now)
    }

    /// Puts the merged state into the place of its updates, unless that drops no entry. Returns
    /// whether the document is merged: another commit may be in the way.
    ///
    /// `in_order`: The state must come before all later updates.
    fn store_merged(&self, name: &[u8], merged: &Merged, in_order: bool) -> Result<bool> {
        let key = self.keys.updates(name)?;
        let waiting: BTreeSet<&Bytes> = merged.waiting.iter().collect();
        let bounds = self.store.get_bounds(&key)?;
        let least = 1 + waiting.len() as u64;
        if bounds.is_some_and(|bounds| bounds.len() <= least && bounds.next == merged.next) {
            return Ok(true);
        }
        let mut commit = Commit::new();
        commit.expect_next(self.keys.clears(name), merged.clears);
        if in_order {
            commit.expect_next(&key, merged.next);
        }
        commit.append(&key, state_entry(&merged.state(name)?));
        for update in waiting {
            commit.append(&key, update_entry(update));
        }
        commit.trim(&key, merged.next);
        match self.store.commit(&commit) {
            Ok(ticket) => ticket.wait()?,
            Err(error) if error.kind() == ErrorKind::Conflict => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
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

    /// Returns the number of clears of the documents among which this one is.
    pub(crate) fn clears(&self, name: &[u8]) -> Result<u64> {
        Ok(self.store.get_bounds(self.keys.clears(name))?.map_or(0, |bounds| bounds.next))
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
        let state = self.doc.transact().encode_diff_v1(&StateVector::default());
        let mut ids = Ids::default();
        for bytes in self.waiting.iter().map(|bytes| &bytes[..]).chain([&state[..]]) {
            ids.add(&decode(bytes).map_err(|_| Error::incomplete(name))?);
        }
        if self.ids.are_in(&ids) { Ok(state) } else { Err(Error::incomplete(name)) }
    }
}

#[cfg(test)]
mod tests {
    use brooklet::Store;
    use yrs::{GetString, Text};

    use super::*;

    /// Returns the updates of a client that writes a text word by word.
    fn words(client: u64, words: &[&str]) -> Vec<Vec<u8>> {
        let doc = Doc::with_client_id(client);
        let text = doc.get_or_insert_text("text");
        let push = |word: &&str| {
            let mut txn = doc.transact_mut();
            text.push(&mut txn, word);
            txn.encode_update_v1()
        };
        words.iter().map(push).collect()
    }

    fn push(documents: &Documents, updates: &[Vec<u8>]) {
        for update in updates {
            documents.push_update("doc", update).unwrap();
        }
    }

    fn text(documents: &Documents) -> String {
        let doc = Doc::new();
        let text = doc.get_or_insert_text("text");
        documents.load_doc("doc", &mut doc.transact_mut()).unwrap();
        text.get_string(&doc.transact())
    }

    fn documents() -> Documents {
        Documents::new(&Store::in_memory(1).unwrap(), "docs/")
    }

    #[test]
    fn a_clear_between_read_and_commit_wins() {
        let documents = documents();
        push(&documents, &words(1, &["old ", "document"]));
        let merged = documents.merge(b"doc", None, &plain()).unwrap();
        documents.clear_doc("doc").unwrap();
        // As many updates as were read.
        push(&documents, &words(2, &["new ", "document"]));
        for in_order in [true, false] {
            assert!(!documents.store_merged(b"doc", &merged, in_order).unwrap());
        }
        assert_eq!(text(&documents), "new document");
        // The next try begins anew.
        let merged = documents.merge(b"doc", Some(merged), &plain()).unwrap();
        assert!(documents.store_merged(b"doc", &merged, true).unwrap());
        assert_eq!(text(&documents), "new document");
    }

    #[test]
    fn pushes_between_read_and_commit_stay() {
        let documents = documents();
        let updates = words(1, &["a", "b", "c", "d", "e", "f"]);
        push(&documents, &updates[..2]);
        let merged = documents.merge(b"doc", None, &plain()).unwrap();
        push(&documents, &updates[2..4]);
        assert!(!documents.store_merged(b"doc", &merged, true).unwrap());
        let merged = documents.merge(b"doc", Some(merged), &plain()).unwrap();
        assert_eq!(merged.next, 4);
        push(&documents, &updates[4..]);
        // The state is behind the updates that build on it.
        assert!(documents.store_merged(b"doc", &merged, false).unwrap());
        let bounds = documents.store.bounds("docs/ddoc").unwrap();
        assert_eq!((bounds.first, bounds.next), (4, 7));
        assert_eq!(text(&documents), "abcdef");
        documents.flush_doc("doc").unwrap();
        assert_eq!(documents.store.bounds("docs/ddoc").unwrap().len(), 1);
        assert_eq!(text(&documents), "abcdef");
    }

    #[test]
    fn another_flush_between_read_and_commit_does_no_harm() {
        let documents = documents();
        push(&documents, &words(1, &["a", "b", "c"]));
        let merged = documents.merge(b"doc", None, &plain()).unwrap();
        documents.flush_doc("doc").unwrap();
        assert!(!documents.store_merged(b"doc", &merged, true).unwrap());
        // Its state is all there is.
        let merged = documents.merge(b"doc", Some(merged), &plain()).unwrap();
        assert!(documents.store_merged(b"doc", &merged, true).unwrap());
        assert_eq!(documents.store.bounds("docs/ddoc").unwrap().next, 4);
        assert_eq!(text(&documents), "abc");
    }
}
