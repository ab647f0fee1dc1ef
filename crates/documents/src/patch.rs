//! Patches: changes at an expected version, once for each request.

use std::sync::Arc;

use brooklet::{Bytes, Commit, Ticket};

use crate::cache::{Open, Slot};
use crate::documents::{Answer, Documents, expect, repeated};
use crate::error::{Error, Result};
use crate::format::UpdateEntry;
use crate::load::guarded;
use crate::model::Model;
use crate::request::{Call, Request, content};

/// A patch that the store has, and that is durable later; see [`Documents::submit`].
#[derive(Debug)]
#[must_use = "a patch is acknowledged only once it has been waited for"]
pub struct Submitted<M: Model> {
    documents: Documents<M>,
    name: Box<[u8]>,
    answer: Answer,
    last: Option<Ticket>,
}

/// A change as the log will hold it.
pub(crate) struct Draft<'a, C> {
    pub change: &'a C,
    pub bytes: Bytes,
    /// The version that a rewind goes back to.
    pub back: Option<u64>,
    pub request: &'a Request,
    pub content: u64,
}

impl<M: Model> Documents<M> {
    /// Changes a document that is at version `expected`, and waits until the change is durable, or
    /// as its [space](brooklet::Space) requires. Returns the new version.
    ///
    /// The same request again returns the first answer, and changes nothing: exactly once, also
    /// after a crash, for as long as the document [remembers](crate::Options::remember) the id.
    /// The id of a refused request may be used again.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the document is at another version, which the error names;
    /// [`Error::RequestReused`] if the id belongs to other content; [`Error::Refused`] if the model
    /// refuses the change; [`Error::ModelPanicked`]; [`Error::NotFound`]; [`Error::Invalid`];
    /// [`Error::Store`].
    pub fn patch(
        &self,
        name: impl AsRef<[u8]>,
        expected: u64,
        request: impl Into<Request>,
        change: &M::Change,
    ) -> Result<Answer> {
        self.submit(name, expected, request, change)?.wait()
    }

    /// Changes a document like [`patch`](Self::patch), and returns before the change is durable.
    /// For callers that have many patches in flight. Later calls see the change, and wait for it.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r0", &json!({}).into())?;
    /// let first = documents.submit("notes", 1, "r1", &JsonChange::merge(json!({"a": 1})))?;
    /// let second = documents.submit("notes", 2, "r2", &JsonChange::merge(json!({"b": 2})))?;
    /// assert_eq!(second.wait()?.version, 3);
    /// assert_eq!(first.wait()?.version, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same errors as [`patch`](Self::patch).
    pub fn submit(
        &self,
        name: impl AsRef<[u8]>,
        expected: u64,
        request: impl Into<Request>,
        change: &M::Change,
    ) -> Result<Submitted<M>> {
        let (name, request) = (name.as_ref(), request.into());
        request.check()?;
        let bytes = Bytes::from(guarded(name, || self.core.model.encode(change))?);
        let content = content(Call::Patch, &[&bytes]);
        let (result, last) = self.enter(name, |slot, key| {
            let open = self.opened(name, key, slot)?;
            if let Some(answer) = repeated(name, &open.head, &request, content)? {
                return Ok(answer);
            }
            expect(name, &open.head, expected)?;
            let draft = Draft { change, bytes: bytes.clone(), back: None, request: &request, content };
            self.write(name, key, slot, draft)
        });
        match result {
            Ok(answer) => Ok(Submitted { documents: self.clone(), name: name.into(), answer, last }),
            Err(error) => {
                // The error may name a version that is not durable yet.
                self.shown(name, last.as_ref())?;
                Err(error)
            }
        }
    }

    /// Opens a document for a patch.
    pub(crate) fn opened<'a>(
        &self,
        name: &[u8],
        key: &[u8],
        slot: &'a mut Slot<M>,
    ) -> Result<&'a mut Open<M>> {
        self.ensure(name, key, slot, !M::UNSEEN)?.ok_or_else(|| Error::not_found(name))
    }

    /// Applies a change to a state in memory, and returns the entry. Where this fails, the document
    /// is as it was, or without a state.
    pub(crate) fn prepare(
        &self,
        name: &[u8],
        open: &mut Open<M>,
        draft: &Draft<'_, M::Change>,
    ) -> Result<UpdateEntry> {
        let model = &self.core.model;
        let mut undo = None;
        if let Some(state) = &mut open.state {
            let applied = guarded(name, || model.apply(Arc::make_mut(state), draft.change));
            let encoded = match applied {
                // The model left the state as it was.
                Err(refused @ Error::Refused { .. }) => return Err(refused),
                Ok(Some(undo)) => guarded(name, || model.encode(&undo)).map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            undo = encoded.inspect_err(|_| open.state = None)?;
        }
        let meta = self.meta(open.head.version + 1, draft.request, draft.content);
        Ok(UpdateEntry { meta, back: draft.back, undo: undo.map(Bytes::from), change: draft.bytes.clone() })
    }

    /// Notes an update that the store has accepted.
    pub(crate) fn written(&self, name: &[u8], open: &mut Open<M>, entry: &UpdateEntry, len: usize) -> Answer {
        let meta = &entry.meta;
        let request = meta.request.as_ref().map(|used| (&used.id[..], used.content));
        open.head.add(meta.version, request, entry.undo.is_some(), len, self.core.options.remember);
        if self.is_due(&open.head) {
            self.core.due.push(name);
        }
        Answer { version: open.head.version, repeated: false }
    }

    /// Writes a change of a document that is open.
    pub(crate) fn write(
        &self,
        name: &[u8],
        key: &[u8],
        slot: &mut Slot<M>,
        draft: Draft<'_, M::Change>,
    ) -> Result<Answer> {
        let open = slot.open.as_mut().expect("the document was opened");
        let entry = self.prepare(name, open, &draft)?;
        let bytes = entry.encode();
        let mut commit = Commit::new();
        commit.expect_next(key, open.head.next).append(key, &bytes);
        // After a failure, the state is ahead of the store.
        let ticket = self.core.store.commit(&commit).inspect_err(|_| open.state = None)?;
        let answer = self.written(name, open, &entry, bytes.len());
        slot.last = Some(ticket);
        Ok(answer)
    }
}

impl<M: Model> Submitted<M> {
    /// Returns the answer, which holds once [`wait`](Self::wait) has returned.
    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// Returns the ticket to wait for, in a task or by a callback; `None` if the answer is durable
    /// already.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.last.as_ref()
    }

    /// Waits until the patch is durable, or as its [space](brooklet::Space) requires.
    ///
    /// # Errors
    /// [`Error::Store`] if the store stopped: whether the patch happened is unknown until the store
    /// is opened again, and then the same request finds out.
    pub fn wait(self) -> Result<Answer> {
        if let Some(last) = &self.last {
            self.documents.wait(&self.name, last)?;
        }
        Ok(self.answer)
    }
}
