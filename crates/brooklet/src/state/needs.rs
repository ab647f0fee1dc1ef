//! The room that a commit needs: in the heap, where a checkpoint writes it, and in the ring.

use std::collections::{BTreeMap, BTreeSet};

use brooklet_io::seeded::bug;
use brooklet_wal::Wal;

use crate::format::commit_record;
use crate::memtable::{Slot, entry_bytes};
use crate::model::Effect;
use crate::model::commit::{Action, Op};
use crate::model::rehearsal::Needs;
use crate::model::retention_state::RetentionState;
use crate::state::StoreState;
use crate::state::append::Retry;

/// Most bytes of runs that a commit may claim for its entries and limits if it is to count as one
/// that adds little.
const LITTLE: u64 = 4 << 10;

impl StoreState {
    /// Adds the needs of the planned operations, which follow the others of a commit.
    pub(super) fn add_needs(&self, ops: &[Op<'_>], needs: &mut Needs) {
        let Needs { space, record, entries } = needs;
        if space.claim == 0
            && let Some((claim, largest)) = self.table_request(ops)
        {
            space.claim = claim.saturating_sub(self.active.table_claim());
            space.largest = largest;
        }
        space.freeing &= !ops.iter().any(|op| op.action.adds());
        space.freeing =
            space.freeing && (self.creates_no_more_than_it_deletes() || bug("begin-is-always-admitted"));
        let mut previous = None;
        for (planned, undo) in self.plan.iter().zip(&self.undo) {
            let (slot, payload) = (undo.slot, planned.payload(ops));
            space.claim += self.active.claim_of(slot, planned.effect, payload.len(), !undo.touched);
            let entry = entry_bytes(planned.effect, payload.len());
            *entries += entry;
            let is_next = previous.replace(slot) != Some(slot);
            if is_next || entry > 0 {
                space.largest = space.largest.max(self.active.largest_with(slot, *entries, entry));
            }
            let key = if is_next { ops[planned.op].key } else { &[] };
            let terms = undo.terms.as_ref().filter(|_| !undo.touched).map_or(0, |terms| terms.bound());
            let trim = if planned.trims { commit_record::bound(&[], &[]) } else { 0 };
            *record += commit_record::bound(key, payload) + terms + trim;
        }
        // Only where room is short does the difference matter.
        let is_short = || self.is_short_of(space.claim);
        let drops = match space.freeing {
            true => Some(true),
            false if space.little && is_short() => self.drops_beside_little(ops),
            false => None,
        };
        (space.little, space.frees_much) = (drops.is_some(), drops == Some(true));
    }

    /// Returns whether the planned operations free much, if they drop entries or logs, or limit
    /// what logs keep, and add [little](LITTLE) beside that. The deletion of a record with a note
    /// in a journal is such a commit. A log without entries is not little: see
    /// [`creates_no_more_than_it_deletes`](Self::creates_no_more_than_it_deletes). An append to a
    /// log that drops older entries by its limits is not, either.
    ///
    /// Commits that drop as many entries as they add, such as a new state for an old one, do not
    /// free much: a full store would rewrite its runs for a few bytes of garbage, again and again.
    fn drops_beside_little(&self, ops: &[Op<'_>]) -> Option<bool> {
        // The table of spaces seldom changes.
        let mut frees = matches!(ops.first(), Some(Op { key: [], .. }));
        let (mut dropped, mut entries, mut added) = (0, 0, 0);
        for (planned, undo) in self.plan.iter().zip(&self.undo) {
            let (action, len) = (ops[planned.op].action, planned.payload(ops).len());
            let is_append = matches!(action, Action::Append(_));
            let adds_entry = is_append || matches!(action, Action::Snapshot(_));
            match (planned.effect, undo.bounds) {
                (_, None) if !adds_entry => return None,
                (Effect::Append(seq), before) => {
                    entries += 1;
                    let first = before.map_or(seq, |before| before.first);
                    dropped += if planned.trims { seq.saturating_sub(first) } else { 0 };
                }
                (Effect::Delete, Some(_)) => frees = true,
                (Effect::Trim(first), Some(before)) if !is_append => {
                    dropped += first.saturating_sub(before.first);
                }
                (Effect::Truncate(next), Some(before)) => dropped += before.next.saturating_sub(next),
                (Effect::Entries(_), Some(_)) => frees |= !adds_entry,
                _ => {}
            }
            if action.adds() {
                added += self.active.claim_of(undo.slot, planned.effect, len, !undo.touched);
            }
        }
        ((frees || dropped > 0) && added <= LITTLE).then_some(frees || dropped > entries)
    }

    /// Returns whether the planned operations create no more logs than they delete, and logs that
    /// are no larger. Otherwise such commits, one after the other, would use up the room that is
    /// reserved for commits that only free space.
    fn creates_no_more_than_it_deletes(&self) -> bool {
        let created = self.undo.iter().filter(|undo| undo.bounds.is_none());
        if created.clone().next().is_none() {
            return true;
        }
        // The deletion of a log that the commit itself creates frees nothing.
        if created.clone().any(|undo| self.active.log(undo.slot).appended.is_none()) {
            return false;
        }
        let deleted = self.plan.iter().filter(|planned| planned.effect == Effect::Delete).count();
        let slots: BTreeSet<Slot> = created.clone().map(|undo| undo.slot).collect();
        created.count() <= deleted && self.bytes_of(&slots) <= self.bytes_deleted()
    }

    /// Returns the bytes of the keys and terms of logs.
    fn bytes_of(&self, slots: &BTreeSet<Slot>) -> usize {
        let bytes = |slot: &Slot| {
            let log = self.active.log(*slot);
            log.key.len() + log.terms().map_or(0, RetentionState::bound)
        };
        slots.iter().map(bytes).sum()
    }

    /// Returns the bytes of the keys and terms of the logs that the planned operations delete, each
    /// log as it was before the commit. A log with entries frees one byte more at least, so a log
    /// whose key is that much longer may take its place.
    fn bytes_deleted(&self) -> usize {
        let mut before = BTreeMap::new();
        for undo in &self.undo {
            before.entry(undo.slot).or_insert(undo);
        }
        let mut bytes = 0;
        for (planned, undo) in self.plan.iter().zip(&self.undo) {
            if planned.effect == Effect::Delete
                && let Some(undo) = before.remove(&undo.slot)
                && let Some(bounds) = undo.bounds
            {
                let terms = undo.terms.as_ref().map_or(0, |terms| terms.bound());
                bytes += self.active.log(undo.slot).key.len() + terms + usize::from(!bounds.is_empty());
            }
        }
        bytes
    }

    /// Checks whether a commit with these needs finds room now.
    pub fn has_room(&self, wal: &Wal, needs: &Needs) -> Result<(), Retry> {
        self.admit(needs.space)?;
        wal.admits(needs.record, needs.space.freeing).map_err(Retry::from)
    }
}
