//! Atomic patches of many documents.

use std::sync::MutexGuard;

use brooklet::{Bytes, Commit};

use crate::cache::Slot;
use crate::documents::{Answer, Documents, RETRIES, expect, repeated};
use crate::error::{Error, Result, text};
use crate::load::guarded;
use crate::model::Model;
use crate::patch::Draft;
use crate::request::{Call, Request, content};

/// A patch of one of several documents.
struct Part<'a, C> {
    name: &'a [u8],
    key: Vec<u8>,
    expected: u64,
    draft: Draft<'a, C>,
}

impl<M: Model> Documents<M> {
    /// Changes several documents, each at its expected version: all of them, or none. Waits until
    /// the changes are durable. Returns the answers in the order of the patches.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let accounts = Documents::open(&store, Json::new(), Options::new("accounts/"))?;
    /// accounts.create("ada", "r1", &json!({"coins": 5}).into())?;
    /// accounts.create("bob", "r2", &json!({"coins": 0}).into())?;
    /// let (less, more) = (JsonChange::merge(json!({"coins": 3})), JsonChange::merge(json!({"coins": 2})));
    /// accounts.patch_many("r3", &[("ada", 1, &less), ("bob", 1, &more)])?;
    /// assert_eq!(accounts.get("bob")?.unwrap().state["coins"], 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`patch`](Self::patch), which name the document;
    /// [`Error::RequestForgotten`] if only some of the documents remember the request;
    /// [`Error::Invalid`] if a document is named twice, or none is.
    pub fn patch_many<N: AsRef<[u8]>>(
        &self,
        request: impl Into<Request>,
        patches: &[(N, u64, &M::Change)],
    ) -> Result<Vec<Answer>> {
        let request = request.into();
        request.check()?;
        let mut order: Vec<usize> = (0..patches.len()).collect();
        order.sort_by_key(|i| patches[*i].0.as_ref());
        let name = |i: usize| patches[i].0.as_ref();
        if patches.is_empty() || order.windows(2).any(|pair| name(pair[0]) == name(pair[1])) {
            return Err(Error::Invalid("name at least one document, and each document once".into()));
        }
        let mut parts = Vec::new();
        for i in &order {
            let bytes = guarded(name(*i), || self.core.model.encode(patches[*i].2))?;
            parts.push(Bytes::copy_from_slice(name(*i)));
            parts.push(bytes.into());
        }
        let content = content(Call::PatchMany, &parts.iter().map(|part| &part[..]).collect::<Vec<_>>());
        let part = |(i, bytes): (&usize, &[Bytes])| {
            let (name, expected, change) = &patches[*i];
            let draft =
                Draft { change: *change, bytes: bytes[1].clone(), back: None, request: &request, content };
            let key = self.core.keys.document(name.as_ref())?;
            Ok(Part { name: name.as_ref(), key, expected: *expected, draft })
        };
        let parts = order.iter().zip(parts.chunks(2)).map(part).collect::<Result<Vec<_>>>()?;
        let answers = self.write_many(&parts)?;
        let mut sorted: Vec<_> = order.into_iter().zip(answers).collect();
        sorted.sort_by_key(|(i, _)| *i);
        Ok(sorted.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Locks all documents, in the order of their names, and changes them.
    fn write_many(&self, parts: &[Part<'_, M::Change>]) -> Result<Vec<Answer>> {
        for retry in 0.. {
            let shared: Vec<_> = parts.iter().map(|part| self.core.cache.slot(part.name)).collect();
            let mut slots: Vec<_> = shared.iter().map(|shared| shared.lock()).collect();
            let result = self.try_many(&mut slots, parts);
            let is_late = matches!(result, Err(Error::Store(brooklet::Error::Conflict { .. })));
            if is_late {
                slots.iter_mut().for_each(|slot| slot.open = None);
            }
            let slots_of = parts.iter().zip(&slots);
            let after: Vec<_> =
                slots_of.map(|(part, slot)| (slot.last.clone(), self.size(part.name, slot))).collect();
            drop(slots);
            drop(shared);
            for (part, (_, size)) in parts.iter().zip(&after) {
                self.core.cache.used(part.name, *size);
            }
            if is_late && retry < RETRIES {
                self.core.store.flush()?;
                continue;
            }
            for (part, (last, _)) in parts.iter().zip(&after) {
                match (&result, last) {
                    (Ok(_), Some(last)) => self.wait(part.name, last)?,
                    (_, last) => self.shown(part.name, last.as_ref())?,
                }
            }
            return result;
        }
        unreachable!("the loop returns")
    }

    fn try_many(
        &self,
        slots: &mut [MutexGuard<'_, Slot<M>>],
        parts: &[Part<'_, M::Change>],
    ) -> Result<Vec<Answer>> {
        let (mut known, mut forgot) = (Vec::new(), None);
        for (slot, part) in slots.iter_mut().zip(parts) {
            let open = self.opened(part.name, &part.key, slot)?;
            match repeated(part.name, &open.head, part.draft.request, part.draft.content)? {
                Some(answer) => known.push((part.name, answer)),
                None => forgot = Some(part.name),
            }
        }
        match (known.first(), forgot) {
            (None, _) => {}
            (Some(_), None) => return Ok(known.into_iter().map(|(_, answer)| answer).collect()),
            // It happened to all of them, as it happens to none otherwise.
            (Some((name, answer)), Some(forgot)) => {
                let (document, forgot) = (text(name), text(forgot));
                return Err(Error::RequestForgotten { document, version: answer.version, forgot });
            }
        }
        let mut commit = Commit::new();
        let mut entries = Vec::new();
        for (slot, part) in slots.iter_mut().zip(parts) {
            let open = slot.open.as_mut().expect("the document was opened");
            expect(part.name, &open.head, part.expected)?;
            commit.expect_next(&part.key, open.head.next);
        }
        let mut changed = 0;
        let written: Result<()> = slots.iter_mut().zip(parts).try_for_each(|(slot, part)| {
            let open = slot.open.as_mut().expect("the document was opened");
            let entry = self.prepare(part.name, open, &part.draft)?;
            changed += 1;
            let bytes = entry.encode();
            commit.append(&part.key, &bytes);
            entries.push((entry, bytes.len()));
            Ok(())
        });
        let committed = written.and_then(|()| self.core.store.commit(&commit).map_err(Error::from));
        let ticket = committed.inspect_err(|_| {
            // These states are ahead of the store.
            let ahead = slots[..changed].iter_mut().filter_map(|slot| slot.open.as_mut());
            ahead.for_each(|open| open.state = None);
        })?;
        let entries = slots.iter_mut().zip(parts).zip(entries);
        Ok(entries
            .map(|((slot, part), (entry, len))| {
                slot.last = Some(ticket.clone());
                let open = slot.open.as_mut().expect("the document was opened");
                self.written(part.name, open, &entry, len)
            })
            .collect())
    }
}
