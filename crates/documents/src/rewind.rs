//! Rewinds: updates that lead back to an earlier version.

use brooklet::Bytes;

use crate::cache::Open;
use crate::documents::{Answer, Documents, RETRIES, expect, repeated};
use crate::error::{Error, Result, text};
use crate::format::DocEntry;
use crate::head::Head;
use crate::load::{expect_version, guarded, replay, trusted};
use crate::model::Model;
use crate::patch::Draft;
use crate::refusal::RefusalKind;
use crate::request::{Call, Request, content};

/// Bytes of undo below which a rewind does not ask whether a replacement is shorter: the answer
/// takes a copy of the state.
const SHORT: usize = 4 << 10;

/// A change that leads back, and its bytes.
type Undone<M> = Option<(<M as Model>::Change, Bytes)>;

impl<M: Model> Documents<M> {
    /// Goes back to an earlier version, by an update that undoes the updates since then, or that
    /// replaces the state where this is shorter. Waits until the update is durable. Returns the new
    /// version.
    ///
    /// Updates that earlier rewinds have undone need no undo: rewinds after rewinds stay short.
    ///
    /// # Errors
    /// [`Error::HistoryGone`] if the version is older than the history; [`Error::NoSuchVersion`] if
    /// the document is not past the version; [`Error::NoUndo`] if the model has no undo, or none
    /// for several updates together; the errors of [`patch`](Self::patch).
    pub fn rewind(
        &self,
        name: impl AsRef<[u8]>,
        expected: u64,
        request: impl Into<Request>,
        to: u64,
    ) -> Result<Answer> {
        let (name, request) = (name.as_ref(), request.into());
        request.check()?;
        let content = content(Call::Rewind, &[&to.to_le_bytes()]);
        self.acknowledged(name, |slot, key| {
            let mut replaces = false;
            for _ in 0..RETRIES {
                let open = self.opened(name, key, slot)?;
                if let Some(answer) = repeated(name, &open.head, &request, content)? {
                    return Ok(answer);
                }
                expect(name, &open.head, expected)?;
                if let Some((change, bytes)) = self.undo_to(name, key, open, to, replaces)? {
                    let draft = Draft { change: &change, bytes, back: Some(to), request: &request, content };
                    match self.write(name, key, slot, draft) {
                        // The undos of several updates may be together over the limits of one.
                        Err(Error::Refused { refusal, .. })
                            if refusal.kind() == RefusalKind::TooLarge && !replaces =>
                        {
                            replaces = true;
                            continue;
                        }
                        written => return written,
                    }
                }
                // Another handle has dropped entries: the head is not that of the log. The head is
                // read from what is durable.
                slot.open = None;
                self.core.store.flush()?;
            }
            Err(Error::HistoryGone { document: text(name), asked: to, oldest: expected })
        })
    }

    /// Returns the change that leads back to version `to`, and its bytes. `None` if the log no
    /// longer has an entry that the head names. `replaces`: the change replaces the state, if the
    /// model has such changes.
    fn undo_to(&self, name: &[u8], key: &[u8], open: &Open<M>, to: u64, replaces: bool) -> Result<Undone<M>> {
        let (document, head, model) = (text(name), &open.head, &self.core.model);
        if to >= head.version {
            return Err(Error::NoSuchVersion { document, asked: to, head: head.version });
        }
        let oldest = head.oldest();
        if to < oldest {
            return Err(Error::HistoryGone { document, asked: to, oldest });
        }
        let Some(undos) = self.undos(name, key, head, to)? else { return Ok(None) };
        let len: usize = undos.iter().map(|(_, undo)| undo.len()).sum();
        let asks = replaces || len > SHORT;
        let replacement = if asks { self.replacement(name, open, &undos)? } else { None };
        let replacement = replacement.filter(|(_, bytes)| replaces || bytes.len() < len);
        if replacement.is_some() {
            return Ok(replacement);
        }
        let decode = |(seq, undo): &(u64, Bytes)| trusted(name, *seq, || model.decode(undo));
        let decoded = undos.iter().map(decode).collect::<Result<Vec<_>>>()?;
        let Some(change) = guarded(name, || Ok(model.compose(&decoded)))? else {
            return self.replacement(name, open, &undos)?.ok_or_else(|| self.no_undo(name)).map(Some);
        };
        let bytes = guarded(name, || model.encode(&change))?;
        Ok(Some((change, bytes.into())))
    }

    /// Returns the undos that lead from the head to version `to`, with the numbers of their
    /// entries, in the order in which they apply. `None` if the log no longer has all entries.
    fn undos(&self, name: &[u8], key: &[u8], head: &Head, to: u64) -> Result<Option<Vec<(u64, Bytes)>>> {
        let first = u64::try_from(head.seq_of(to + 1)).unwrap_or(0);
        // The last updates of this handle may not be durable yet.
        let entries = self.core.store.read_appended(key, first..head.next)?;
        if entries.range() != (first..head.next) {
            return Ok(None);
        }
        let mut undos = Vec::new();
        // `version` is the next update to look at, `wanted` the state that is not undone yet.
        let (mut version, mut wanted) = (head.version, head.version);
        for entry in entries.rev() {
            let entry = entry?;
            let DocEntry::Update(update) = DocEntry::of(name, &entry)? else { continue };
            expect_version(name, entry.seq, version, update.meta.version)?;
            version -= 1;
            if update.meta.version > wanted {
                continue;
            }
            // The state after a rewind is the one that it went back to.
            wanted = match update.back.filter(|back| *back >= to) {
                Some(back) => back,
                None => {
                    let undo = update.undo.ok_or_else(|| self.no_undo(name))?;
                    // A copy: the undo itself holds the memory of its entry and those around it.
                    undos.push((entry.seq, Bytes::copy_from_slice(&undo)));
                    version
                }
            };
        }
        match version == to {
            true => Ok(Some(undos)),
            false => Err(Error::damaged(name, first, format!("it does not make version {}", to + 1))),
        }
    }

    fn no_undo(&self, name: &[u8]) -> Error {
        Error::NoUndo { document: text(name), model: self.core.model.name().into() }
    }

    /// Returns the change that replaces the state by the one that the undos lead to, and its bytes.
    /// `None` if the model has no such change.
    fn replacement(&self, name: &[u8], open: &Open<M>, undos: &[(u64, Bytes)]) -> Result<Undone<M>> {
        let model = &self.core.model;
        let Some(state) = &open.state else { return Ok(None) };
        let mut state = guarded(name, || Ok(M::State::clone(state)))?;
        replay(model, name, &mut state, undos.iter().map(|(seq, undo)| (*seq, undo)))?;
        let Some(change) = guarded(name, || Ok(model.replace(&state)))? else { return Ok(None) };
        let bytes = guarded(name, || model.encode(&change))?;
        Ok(Some((change, bytes.into())))
    }
}
