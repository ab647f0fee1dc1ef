//! Snapshots: states in the log, after which older updates can go.

use std::sync::Arc;

use brooklet::{Bytes, Commit};

use crate::cache::Open;
use crate::documents::Documents;
use crate::error::{Error, Result};
use crate::format::DocEntry;
use crate::head::Head;
use crate::load::guarded;
use crate::model::Model;
use crate::request::Request;

impl<M: Model> Documents<M> {
    /// Writes a snapshot of a document, and drops the updates that are not part of the last
    /// `history` versions, in one atomic step. Waits until the snapshot is durable. Returns its
    /// version.
    ///
    /// Documents get snapshots by themselves, as the [options](crate::Options) say. These keep as
    /// many versions as the last call of this method asked for, and at least
    /// [`Options::history`](crate::Options::history). Patches of the same document wait while the
    /// model makes the bytes of the state.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// documents.create("notes", "r0", &json!({}).into())?;
    /// for version in 1..10 {
    ///     let request = format!("r{version}");
    ///     documents.patch("notes", version, request, &JsonChange::merge(json!({"a": version})))?;
    /// }
    /// assert_eq!(documents.snapshot("notes", 3)?, 10);
    /// assert_eq!(documents.history("notes")?.count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Refused`] if the state is over a limit of the model; the
    /// errors of [`get`](Self::get).
    pub fn snapshot(&self, name: impl AsRef<[u8]>, history: u64) -> Result<u64> {
        self.take_snapshot(name.as_ref(), Some(history), |_| true)?
            .ok_or_else(|| Error::not_found(name.as_ref()))
    }

    /// Takes all snapshots that are due. Returns their number. For programs without the
    /// [thread](crate::Options::background) that does so.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let options = Options::new("docs/").background(false).snapshot_updates(2);
    /// let documents = Documents::open(&store, Json::new(), options)?;
    /// documents.create("notes", "r1", &json!({}).into())?;
    /// documents.patch("notes", 1, "r2", &JsonChange::merge(json!({"a": 1})))?;
    /// assert_eq!(documents.maintain(), 0);
    /// documents.patch("notes", 2, "r3", &JsonChange::merge(json!({"a": 2})))?;
    /// assert_eq!(documents.maintain(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn maintain(&self) -> usize {
        let mut count = 0;
        while let Some(name) = self.core.due.pop() {
            self.snapshot_if_due(&name);
            count += 1;
        }
        count
    }

    /// Returns whether a document should get a snapshot.
    pub(crate) fn is_due(&self, head: &Head) -> bool {
        let options = &self.core.options;
        let limit_again = head.version - head.tried >= options.snapshot_updates;
        let is_first_try = head.tried == head.last_mark().version;
        limit_again || head.bytes_since >= options.snapshot_bytes && is_first_try
    }

    /// Takes a snapshot that is due. A failure is no failure of the document: the log has all
    /// updates.
    pub(crate) fn snapshot_if_due(&self, name: &[u8]) {
        let taken = self.take_snapshot(name, None, |head| head.updates_since() > 0);
        if let Err(error) = taken {
            tracing::warn!(document = %name.escape_ascii(), %error, "a document got no snapshot");
            let (result, _) = self.enter(name, |slot, _| {
                // The next try comes after as many updates as this one.
                slot.open.iter_mut().for_each(|open| open.head.tried = open.head.version);
                Ok(())
            });
            result.unwrap_or_default();
        }
    }

    /// Takes a snapshot if the head requires one. `asked` is the history that a caller asks for.
    /// Returns the version; `None` if the document does not exist.
    fn take_snapshot(
        &self,
        name: &[u8],
        asked: Option<u64>,
        is_due: impl Fn(&Head) -> bool,
    ) -> Result<Option<u64>> {
        // A call that writes nothing is a read of the version.
        let mut wrote = false;
        let (result, last) = self.enter(name, |slot, key| {
            let had_state = slot.open.as_ref().is_some_and(|open| open.state.is_some());
            let Some(open) = self.ensure(name, key, slot, false)? else { return Ok(None) };
            let version = open.head.version;
            if !is_due(&open.head) {
                return Ok(Some(version));
            }
            let mut commit = Commit::new();
            commit.expect_next(key, open.head.next);
            let mut after = open.head.clone();
            let mut folded = None;
            let kept = |asked: u64| asked.max(self.core.options.history);
            let history = asked.unwrap_or_else(|| kept(after.asked));
            let asked = asked.unwrap_or(after.asked);
            let has_undo = self.has_undo(name, key, &after)?;
            // A snapshot without updates behind it serves again, if it notes the history asked for.
            if open.head.updates_since() > 0 || kept(asked) != kept(after.asked) {
                let open = self.ensure(name, key, slot, true)?.ok_or_else(|| Error::not_found(name))?;
                let state = open.state.as_ref().expect("the state was loaded");
                let bytes = Bytes::from(guarded(name, || self.core.model.snapshot(state))?);
                let meta = self.meta(version, &Request::anonymous(), 0);
                let mut entry = self.snapshot_entry(meta, false, bytes.clone());
                after.add_snapshot();
                after.trim(after.first_kept(history, has_undo));
                after.asked = asked;
                entry.created = after.created;
                entry.history = asked;
                entry.ids = after.ids();
                // The list of the entry ends before the entry itself.
                entry.marks = after.marks[..after.marks.len() - 1].to_vec();
                commit.append(key, entry.encode(after.next - 1));
                folded = Some(bytes);
            } else {
                after.trim(after.first_kept(history, has_undo));
            }
            let open = slot.open.as_mut().expect("the document was opened");
            if after.first > open.head.first {
                commit.trim(key, after.first);
            } else if folded.is_none() {
                return Ok(Some(version));
            }
            slot.last = Some(self.core.store.commit(&commit)?);
            self.take_over(name, open, after, folded, had_state);
            wrote = true;
            Ok(Some(version))
        });
        match (&last, wrote) {
            (Some(last), true) => self.wait(name, last)?,
            _ => self.shown(name, last.as_ref())?,
        }
        result
    }

    /// Returns whether the model goes back from a snapshot by the undo of the updates before it, as
    /// the last update shows.
    fn has_undo(&self, name: &[u8], key: &[u8], head: &Head) -> Result<bool> {
        if M::UNSEEN {
            return Ok(false);
        }
        if let Some(has_undo) = head.has_undo {
            return Ok(has_undo);
        }
        for entry in self.core.store.read_available(key, head.first..head.last_mark().seq)?.rev() {
            if let DocEntry::Update(update) = DocEntry::of(name, &entry?)? {
                return Ok(update.undo.is_some());
            }
        }
        Ok(true)
    }

    /// Sets the document in memory to what the log has. A model that takes changes unseen has now a
    /// shorter state than the one that collected them.
    fn take_over(
        &self,
        name: &[u8],
        open: &mut Open<M>,
        after: Head,
        folded: Option<Bytes>,
        had_state: bool,
    ) {
        open.head = after;
        if !M::UNSEEN {
            return;
        }
        let model = &self.core.model;
        if let Some(bytes) = folded {
            let load = || guarded(name, || model.load(model.version(), &bytes));
            open.state = had_state.then(load).and_then(Result::ok).map(Arc::new);
        }
    }
}
