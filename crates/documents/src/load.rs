//! Loads: read a document back, from its last snapshot and the updates behind it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use brooklet::{Bytes, Entries};

use crate::error::{Error, Result, text};
use crate::format::{DocEntry, SnapshotEntry, UpdateParts, check_model};
use crate::head::Head;
use crate::model::Model;
use crate::refusal::Refusal;

/// A document as its log has it.
pub(crate) struct Loaded {
    pub head: Head,
    snapshot: SnapshotEntry,
    /// The changes behind the snapshot, oldest first.
    changes: Vec<Bytes>,
}

/// The updates behind a snapshot, newest first, as a load reads them. The bytes that a load needs
/// of them are together, so that an update takes no allocation of its own.
#[derive(Default)]
struct Behind {
    updates: Vec<Update>,
    changes: Vec<u8>,
    ids: Vec<u8>,
}

/// What a load needs of an update.
struct Update {
    version: u64,
    has_undo: bool,
    /// Bytes of its entry.
    len: usize,
    /// Place of its change.
    change: Range<usize>,
    /// Place of its request id, which is empty if there is none, or none that is remembered.
    id: Range<usize>,
    /// Hash of the content of the request.
    content: u64,
}

/// Calls the model. A panic is an error of the document.
pub(crate) fn guarded<T>(name: &[u8], run: impl FnOnce() -> Result<T, Refusal>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|refusal| Error::refused(name, refusal)),
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().copied();
            let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Err(Error::ModelPanicked { document: text(name), what: what.unwrap_or("no message").into() })
        }
    }
}

/// Calls the model with bytes of the store, which the model wrote: it has no reason to refuse them.
pub(crate) fn trusted<T>(name: &[u8], seq: u64, run: impl FnOnce() -> Result<T, Refusal>) -> Result<T> {
    guarded(name, run).map_err(|error| damaged(name, seq, error))
}

/// Returns the error for a model that refuses its own bytes.
fn damaged(name: &[u8], seq: u64, error: Error) -> Error {
    match error {
        Error::Refused { refusal, .. } => Error::damaged(name, seq, refusal.to_string()),
        other => other,
    }
}

/// Reads the last snapshot and the updates behind it, newest first. Reads nothing before the
/// snapshot. Returns `None` for a log without entries.
pub(crate) fn read(name: &[u8], mut entries: Entries, remember: u64) -> Result<Option<Loaded>> {
    let range = entries.range();
    if range.is_empty() {
        return Ok(None);
    }
    let (mut behind, mut failed) = (Behind::default(), None);
    entries.lend_back_while(|seq, payload| match UpdateParts::decode(payload) {
        Ok(Some(update)) => {
            behind.add(&update, payload.len(), remember);
            true
        }
        Ok(None) => false,
        Err(what) => {
            failed = Some(Error::damaged(name, seq, what));
            false
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let Some(entry) = entries.next_back().transpose()? else {
        return Err(Error::damaged(name, range.start, "no snapshot is before or at it"));
    };
    let DocEntry::Snapshot(snapshot) = DocEntry::of(name, &entry)? else {
        unreachable!("no update ends the walk")
    };
    let head = behind.head(name, Head::new(&snapshot, entry.seq, range.start), remember)?;
    Ok(Some(Loaded { head, snapshot, changes: behind.changes() }))
}

impl Behind {
    /// Adds the update before those that are there.
    fn add(&mut self, update: &UpdateParts<'_>, len: usize, remember: u64) {
        let (version, content) = (update.meta.version, update.meta.content);
        let newest = self.updates.first().map_or(version, |first| first.version);
        let is_remembered = version.saturating_add(remember) > newest;
        let id = put(&mut self.ids, if is_remembered { update.meta.id } else { &[] });
        let change = put(&mut self.changes, update.change);
        self.updates.push(Update { version, has_undo: update.undo.is_some(), len, change, id, content });
    }

    /// Returns the head behind these updates. `head` is the one of the snapshot.
    fn head(&self, name: &[u8], mut head: Head, remember: u64) -> Result<Head> {
        for update in self.updates.iter().rev() {
            let Update { version, has_undo, len, content, .. } = *update;
            expect_version(name, head.next, head.version + 1, version)?;
            let id = &self.ids[update.id.clone()];
            head.add(version, (!id.is_empty()).then_some((id, content)), has_undo, len, remember);
        }
        Ok(head)
    }

    /// Returns the changes, oldest first.
    fn changes(self) -> Vec<Bytes> {
        let changes = Bytes::from(self.changes);
        self.updates.into_iter().rev().map(|update| changes.slice(update.change)).collect()
    }
}

/// Appends bytes, and returns their place.
fn put(to: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = to.len();
    to.extend_from_slice(bytes);
    start..to.len()
}

/// Checks that an update has the version that follows.
pub(crate) fn expect_version(name: &[u8], seq: u64, expected: u64, found: u64) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => {
            let what = format!("it has version {found}, and version {expected} follows");
            Err(Error::damaged(name, seq, what))
        }
    }
}

/// Returns the state of a snapshot.
pub(crate) fn state_of<M: Model>(
    model: &M,
    name: &[u8],
    seq: u64,
    snapshot: &SnapshotEntry,
) -> Result<M::State> {
    check_model(name, snapshot, model.name(), model.version())?;
    trusted(name, seq, || model.load(snapshot.model_version, &snapshot.state))
}

/// Applies changes that the store has, each with the number of its entry.
pub(crate) fn replay<'a, M: Model>(
    model: &M,
    name: &[u8],
    state: &mut M::State,
    changes: impl Iterator<Item = (u64, &'a Bytes)>,
) -> Result<()> {
    let mut last = 0;
    let mut changes = changes.map(|(seq, change)| {
        last = seq;
        change
    });
    let replayed = guarded(name, || model.replay(state, &mut changes));
    replayed.map_err(|error| damaged(name, last, error))
}

impl Loaded {
    /// Returns the state at the head.
    pub fn state<M: Model>(&self, model: &M, name: &[u8]) -> Result<M::State> {
        let seq = self.head.last_mark().seq;
        let mut state = state_of(model, name, seq, &self.snapshot)?;
        let changes = self.changes.iter().zip(seq + 1..).map(|(change, seq)| (seq, change));
        replay(model, name, &mut state, changes)?;
        Ok(state)
    }
}
