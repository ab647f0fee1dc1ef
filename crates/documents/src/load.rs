//! Loads: read a document back, from its last snapshot and the updates behind it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brooklet::{Bytes, Entries};

use crate::error::{Error, Result, text};
use crate::format::{DocEntry, SnapshotEntry, UpdateEntry, check_model};
use crate::head::Head;
use crate::model::Model;
use crate::refusal::Refusal;

/// A document as its log has it.
pub(crate) struct Loaded {
    pub head: Head,
    pub snapshot: SnapshotEntry,
    /// The updates behind the snapshot, oldest first.
    pub updates: Vec<UpdateEntry>,
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
    let mut updates: Vec<(UpdateEntry, usize)> = Vec::new();
    loop {
        let Some(entry) = entries.next_back().transpose()? else {
            return Err(Error::damaged(name, range.start, "no snapshot is before or at it"));
        };
        match DocEntry::of(name, &entry)? {
            DocEntry::Update(update) => updates.push((update, entry.payload.len())),
            DocEntry::Snapshot(snapshot) => {
                updates.reverse();
                let mut head = Head::new(&snapshot, entry.seq, range.start);
                for (update, len) in &updates {
                    expect_version(name, head.next, head.version + 1, update.meta.version)?;
                    head.add(update, *len, remember);
                }
                head.own_ids();
                let updates = updates.into_iter().map(|(update, _)| update).collect();
                return Ok(Some(Loaded { head, snapshot, updates }));
            }
        }
    }
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
        let changes = self.updates.iter().zip(seq + 1..).map(|(update, seq)| (seq, &update.change));
        replay(model, name, &mut state, changes)?;
        Ok(state)
    }
}
