//! Drafts: changes that a long command makes in portions, and that nobody else sees before they are
//! committed as one.
//!
//! A command that runs on a draft sees the draft's keys. A key that the command opens for the first
//! time is copied from the cache. Other clients go on with the keys of the cache meanwhile; if they
//! change a key that the draft has, the draft is of no use any more, and the command begins again.
//!
//! The operations of a draft are added to its commit portion by portion. After the commit, its keys
//! are moved to the cache: each when it is opened, and the others little by little.

use std::mem::swap;

use brooklet::{Commit, Error};

use super::batch::Batch;
use super::cache::{Cache, Slot, SlotId};
use super::follow::Follower;
use super::handover::{self, Changes, Counts};
use super::names::LogKey;
use super::trace::Trace;
use super::{Changed, Keyspace};

/// Most bytes that the copy of a key may take: others wait while the key is copied.
const COPIED: usize = 256 << 10;

/// Epoch of entries that are not committed yet.
pub const UNCOMMITTED: u64 = u64::MAX;

/// Changes that are not committed, and the keys that they rest on.
pub struct Draft {
    /// The draft's keys; those of all clients, while a command runs on the draft.
    cache: Cache,
    batch: Batch,
    touched: Vec<(SlotId, bool)>,
    /// Bytes of the keys that were read.
    read: usize,
    /// Bytes that the copies of these take: texts are shared.
    copied: usize,
    /// Whether the command has stopped at a key that is too large to be copied.
    is_too_large: bool,
    /// Time of the beginning: no key expires while the command runs.
    now: u64,
    /// What the command did to the keys of the draft, which nobody listens to.
    trace: Option<Box<Trace>>,
    /// All operations of earlier portions.
    commit: Commit,
    /// Expiries that keys had before.
    lost: Vec<(u64, LogKey)>,
    /// The first time at which a key expires that was copied.
    expires: u64,
    /// How the numbers of keys change, once the whole commit is known.
    counts: Option<Counts>,
    /// Keys that others change.
    changes: Follower,
}

impl Draft {
    /// Returns the bytes that this takes, about. Texts are shared with the keys of all clients, but
    /// only as many as the budget of these keys allows.
    pub fn memory(&self, budget: usize) -> usize {
        self.copied + self.batch.memory() + self.read.saturating_sub(budget)
    }

    /// Returns whether the command has stopped at a key that is too large to be copied.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Returns the time of the beginning, in milliseconds since the Unix epoch.
    pub fn began(&self) -> u64 {
        self.now
    }

    /// Returns the number of entries and of other operations.
    pub(super) fn count(&self) -> usize {
        self.batch.count()
    }

    /// Takes the whole commit. No command runs on the draft any more.
    pub(super) fn take_commit(&mut self) -> Commit {
        self.batch.seal_all(&mut self.commit);
        self.counts = Some(handover::count(&self.cache, &self.touched));
        std::mem::take(&mut self.commit)
    }

    /// Puts the commit back.
    pub fn put_back(&mut self, commit: Commit) {
        self.commit = commit;
    }

    /// Returns whether a key of the draft has expired by a time, in milliseconds since the Unix
    /// epoch.
    pub fn has_expired(&self, now: u64) -> bool {
        self.expires <= now
    }

    /// Returns the commit, and what it changes.
    pub(super) fn into_commit(self) -> (Commit, Changes) {
        let Self { cache, mut batch, touched, mut commit, lost, counts, .. } = self;
        batch.seal_all(&mut commit);
        let counts = counts.unwrap_or_else(|| handover::count(&cache, &touched));
        (commit, Changes { cache, touched, lost, counts, size: batch.size })
    }

    /// Ignores the changes since the last look: they are the command's own.
    pub fn pass_changes(&mut self) {
        self.changes.take();
    }

    /// Returns whether others have changed a key that the draft has.
    pub fn is_outdated(&mut self) -> bool {
        let Some(changed) = self.changes.take() else { return true };
        changed.iter().any(|key| self.cache.find(key).is_some())
    }
}

/// The keys of a committed draft that are not in the cache yet.
pub struct Merging {
    cache: Cache,
    touched: Vec<(SlotId, bool)>,
    /// Number of those that had their turn.
    next: usize,
    epoch: u64,
    /// Epoch that replies about these keys must wait for; 0: none.
    acked_at: u64,
    is_in_memory: bool,
}

impl Merging {
    /// Begins to move the keys of the commit of an epoch.
    pub(super) fn new(
        cache: Cache,
        touched: Vec<(SlotId, bool)>,
        epoch: u64,
        acked_at: u64,
        is_in_memory: bool,
    ) -> Self {
        Self { cache, touched, next: 0, epoch, acked_at, is_in_memory }
    }
}

impl Keyspace {
    /// Begins a draft.
    pub fn begin_draft(&mut self) -> Draft {
        Draft {
            cache: Cache::new(usize::MAX),
            batch: Batch::of(UNCOMMITTED),
            touched: Vec::new(),
            read: 0,
            copied: 0,
            is_too_large: false,
            now: self.now,
            trace: None,
            commit: Commit::new(),
            lost: Vec::new(),
            expires: u64::MAX,
            counts: None,
            changes: self.follow(),
        }
    }

    fn swap_with(&mut self, draft: &mut Draft) {
        swap(&mut self.cache, &mut draft.cache);
        swap(&mut self.batch, &mut draft.batch);
        swap(&mut self.touched, &mut draft.touched);
        swap(&mut self.now, &mut draft.now);
        swap(&mut self.trace, &mut draft.trace);
    }

    /// Makes commands see, and change, the keys of a draft.
    pub fn open_draft(&mut self, mut draft: Box<Draft>) {
        self.swap_with(&mut draft);
        self.draft = Some(draft);
    }

    /// Makes commands see the keys of all clients again; returns the draft. `is_plain`: nothing
    /// changes again what was appended before.
    ///
    /// # Panics
    /// No draft is open.
    pub fn close_draft(&mut self, is_plain: bool) -> Box<Draft> {
        let mut draft = self.draft.take().expect("a draft is open");
        self.swap_with(&mut draft);
        let Draft { batch, commit, .. } = &mut *draft;
        batch.seal(commit, is_plain);
        draft
    }

    /// Returns whether the current command runs on a draft.
    pub fn is_on_draft(&self) -> bool {
        self.draft.is_some()
    }

    /// Returns the bytes that were read for the open draft, and that its operations write.
    pub fn draft_cost(&self) -> usize {
        self.draft.as_ref().map_or(0, |draft| draft.read + self.batch.size as usize)
    }

    /// Makes the changes of a draft those of the next commit. Nothing else may change before it.
    pub fn submit(&mut self, draft: Box<Draft>) {
        self.submitted = Some(draft);
    }

    /// Returns whether the next commit is that of a draft.
    pub fn has_submitted(&self) -> bool {
        self.submitted.is_some()
    }

    /// Copies a key into the draft; without its value, if the command replaces that. The key itself
    /// expires as for all clients.
    pub(super) fn copy_to_draft(&mut self, plain: &[u8]) -> Result<SlotId, Error> {
        let Some(mut draft) = self.draft.take() else { return self.open_plain(plain) };
        self.swap_with(&mut draft);
        let is_replaced = self.is_replaced;
        let copy = self.open_plain(plain).and_then(|id| {
            let slot = self.slot(id);
            draft.read += slot.measure();
            draft.expires = draft.expires.min(slot.expire.unwrap_or(u64::MAX));
            if !is_replaced && slot.measure_parts() > COPIED {
                draft.is_too_large = true;
                return Err(Error::Busy { why: "a key is too large to be copied".into() });
            }
            Ok(slot.copy(is_replaced))
        });
        draft.copied += copy.as_ref().map_or(0, Slot::measure_parts);
        self.open_draft(draft);
        copy.map(|copy| self.cache.insert(copy))
    }

    /// Removes what a command has left that did not come to its end.
    pub fn abandon(&mut self) {
        if self.draft.is_some() {
            self.close_draft(true);
        }
        (self.is_replaced, self.may_stop, self.loading) = (false, false, None);
        self.batch.is_early = false;
        self.roll_back();
    }

    /// Records that a key of a draft no longer expires at a time.
    pub(super) fn lose_deadline(&mut self, expire: Option<u64>, plain: &LogKey) {
        if let (Some(at), Some(draft)) = (expire, &mut self.draft) {
            draft.lost.push((at, plain.clone()));
        }
    }

    /// Returns whether keys of a committed draft are not in the cache yet.
    pub fn is_merging(&self) -> bool {
        self.merging.is_some()
    }

    /// Returns whether keys of a committed draft are not in the cache yet, or memory is not free
    /// yet that nobody needs.
    pub fn is_busy(&self) -> bool {
        self.is_merging() || self.discarded() > 0
    }

    /// Moves up to `most` keys of a committed draft to the cache.
    pub fn merge_some(&mut self, most: usize) {
        for _ in 0..most {
            let Some(merging) = &mut self.merging else { return };
            let Some((id, _)) = merging.touched.get(merging.next).copied() else {
                self.merging = None;
                return;
            };
            merging.next += 1;
            self.merge(id);
        }
    }

    /// Moves a key to the cache, if a committed draft has changed it.
    pub(super) fn merge_key(&mut self, plain: &[u8]) {
        let Some(merging) = &mut self.merging else { return };
        if let Some(id) = merging.cache.find(plain)
            && merging.cache.get(id).is_touched
        {
            self.merge(id);
        }
    }

    fn merge(&mut self, id: SlotId) {
        let Some(merging) = &mut self.merging else { return };
        let Some(mut slot) = merging.cache.take(id) else { return };
        let epoch = merging.epoch;
        (slot.is_touched, slot.is_modified, slot.is_lapsed) = (false, false, false);
        slot.acked_at = merging.acked_at;
        slot.changed_at = if merging.is_in_memory { 0 } else { epoch };
        slot.date(epoch);
        let is_solid = merging.is_in_memory || epoch <= self.durable;
        if is_solid {
            slot.settle(epoch);
        }
        self.note_deadline(slot.expire, &slot.key);
        let id = self.cache.put(slot);
        if !is_solid {
            self.unsettled.push_back((epoch, id));
        }
    }

    /// Returns the keys that the last commit changed, if it was that of a draft.
    pub(super) fn changed_by_draft(&self) -> impl Iterator<Item = Changed<'_>> {
        let merging =
            self.merging.as_ref().filter(|merging| merging.next == 0 && merging.epoch == self.epoch);
        let all =
            merging.into_iter().flat_map(|merging| merging.touched.iter().map(move |(id, _)| (merging, id)));
        all.filter_map(|(merging, id)| {
            let slot = merging.cache.peek(*id)?;
            Some(Changed { key: &slot.key, is_modified: slot.is_modified, is_lapsed: slot.is_lapsed })
        })
    }
}

impl Slot {
    /// Returns a copy that no command has changed. A copy of a value that is to be replaced knows
    /// the logs of the value, and not their entries.
    fn copy(&self, is_replaced: bool) -> Self {
        let key = self.key.clone();
        let value = if is_replaced { self.value.emptied() } else { self.value.clone() };
        let Self { expire, head_entries, head_bytes, changed_at, acked_at, .. } = *self;
        Self { key, value, expire, head_entries, head_bytes, changed_at, acked_at, ..Self::default() }
    }
}
