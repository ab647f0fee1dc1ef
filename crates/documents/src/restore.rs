//! Restores: a document alone comes back from a view, such as a backup.

use std::sync::Arc;

use brooklet::{Bytes, Commit, View};

use crate::cache::Open;
use crate::documents::{Answer, Document, Documents, repeated};
use crate::error::{Error, Result, text};
use crate::head::Head;
use crate::load::{guarded, read};
use crate::model::Model;
use crate::request::{Call, Request, content};

impl<M: Model> Documents<M> {
    /// Returns a document as a view has it: at `version`, or at the version that it has in the
    /// view. `None` if the view has no such document. The view may be one of this store or of a
    /// backup; these documents are below the same prefix there.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({"stars": 1}).into())?;
    /// let view = store.view()?;
    /// documents.patch("notes", 1, "r2", &JsonChange::merge(json!({"stars": 2})))?;
    /// let then = documents.in_view(&view, "notes", None)?.expect("the view has it");
    /// assert_eq!((then.version, &then.state["stars"]), (1, &json!(1)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`at`](Self::at).
    pub fn in_view(
        &self,
        view: &View,
        name: impl AsRef<[u8]>,
        version: Option<u64>,
    ) -> Result<Option<Document<M::State>>> {
        let name = name.as_ref();
        let key = self.core.keys.document(name)?;
        let entries = match view.read(&key, ..) {
            Err(brooklet::Error::UnknownLog { .. }) => return Ok(None),
            entries => entries?,
        };
        let Some(loaded) = read(name, entries, self.core.options.remember)? else { return Ok(None) };
        let head = &loaded.head;
        match version {
            Some(version) if version != head.version => {
                let (first, end) = self.part_for(name, head, version)?;
                self.state_at(name, head, version, view.read(&key, first..end)?).map(Some)
            }
            _ => {
                let state = Arc::new(loaded.state(&self.core.model, name)?);
                Ok(Some(Document { version: head.version, state }))
            }
        }
    }

    /// Restores a document alone from a view, such as a backup: at `version`, or at the version
    /// that it has in the view. Waits until the document is durable. `expected` is the version of
    /// the document now; 0 if it does not exist.
    ///
    /// A document that exists is deleted, and made again with the state of the view, in one commit.
    /// So its history begins anew, with a version that no document of this name had before, which
    /// the answer returns. The same request again returns the first answer. A document that is
    /// damaged is replaced whatever `expected` is.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({"stars": 1}).into())?;
    /// let backup = store.view()?;                      // or `brooklet_archive::Backup::view`
    /// documents.delete("notes", 1)?;
    /// documents.restore("notes", 0, "r2", &backup, None)?;
    /// assert_eq!(documents.get("notes")?.unwrap().state["stars"], 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the view has no such document, or `expected` is not 0 and the
    /// document does not exist; [`Error::Conflict`] if it is at another version;
    /// [`Error::RequestReused`]; [`Error::HistoryGone`] and [`Error::NoSuchVersion`] of the
    /// document in the view; the errors of [`create`](Self::create).
    pub fn restore(
        &self,
        name: impl AsRef<[u8]>,
        expected: u64,
        request: impl Into<Request>,
        view: &View,
        version: Option<u64>,
    ) -> Result<Answer> {
        let (name, request) = (name.as_ref(), request.into());
        request.check()?;
        let then = self.in_view(view, name, version)?.ok_or_else(|| Error::not_found(name))?;
        let bytes = Bytes::from(guarded(name, || self.core.model.snapshot(&then.state))?);
        let content = content(Call::Restore, &[&bytes]);
        self.acknowledged(name, |slot, key| {
            let mut commit = Commit::new();
            let next = match self.ensure(name, key, slot, false) {
                Err(error) if error.is_damage() => {
                    // Nobody knows the version that it has, so there is none to expect.
                    let bounds = self.core.store.get_bounds(key)?.ok_or(error)?;
                    commit.expect_next(key, bounds.next).delete(key);
                    bounds.next
                }
                Err(error) => return Err(error),
                Ok(Some(open)) => {
                    if let Some(answer) = repeated(name, &open.head, &request, content)? {
                        return Ok(answer);
                    }
                    let head = open.head.version;
                    if head != expected {
                        return Err(Error::Conflict { document: text(name), expected, head });
                    }
                    commit.expect_next(key, open.head.next).delete(key);
                    open.head.next
                }
                Ok(None) if expected > 0 => return Err(Error::not_found(name)),
                Ok(None) => self.expect_none(name, key, &mut commit)?,
            };
            let entry = self.snapshot_entry(self.meta(next + 1, &request, content), true, bytes.clone());
            commit.begin_at(key, next).append(key, entry.encode(next));
            slot.last = Some(self.core.store.commit(&commit)?);
            let state = (!M::UNSEEN).then(|| then.state.clone());
            slot.open = Some(Open { head: Head::new(&entry, next, next), state });
            Ok(Answer { version: next + 1, repeated: false })
        })
    }

    /// Deletes a document whatever its version is, also if it is damaged, and waits until the
    /// deletion is durable.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r1", &json!({}).into())?;
    /// documents.discard("notes")?;
    /// assert!(documents.get("notes")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`]; [`Error::Store`].
    pub fn discard(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.acknowledged(name, |slot, key| {
            slot.open = None;
            slot.settle()?;
            let bounds = self.core.store.get_bounds(key)?.filter(|bounds| !bounds.is_empty());
            let next = bounds.ok_or_else(|| Error::not_found(name))?.next;
            let mut commit = Commit::new();
            commit.expect_next(key, next).delete(key).begin_at(self.core.keys.floor(name), next);
            slot.last = Some(self.core.store.commit(&commit)?);
            Ok(())
        })
    }
}
