//! The room that a commit needs: in the heap, where a checkpoint writes it, and in the ring.

use brooklet_io::seeded::bug;
use brooklet_wal::Wal;

use crate::format::commit_record;
use crate::memtable::entry_bytes;
use crate::model::Effect;
use crate::model::commit::Op;
use crate::model::rehearsal::Needs;
use crate::state::StoreState;
use crate::state::append::Retry;

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
        space.freeing &= self.creates_no_more_than_it_deletes() || bug("begin-is-always-admitted");
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
            *record += commit_record::bound(key, payload) + terms;
        }
    }

    /// Returns whether the planned operations create no more logs than they delete. A log that is
    /// created empty takes no more room than a log that goes.
    fn creates_no_more_than_it_deletes(&self) -> bool {
        let deleted = self.plan.iter().filter(|planned| planned.effect == Effect::Delete).count();
        let created = self.undo.iter().filter(|undo| undo.bounds.is_none());
        // The deletion of a log that the commit itself creates frees nothing.
        let all_stay = created.clone().all(|undo| self.active.log(undo.slot).appended.is_some());
        all_stay && created.count() <= deleted
    }

    /// Checks whether a commit with these needs finds room now.
    pub fn has_room(&self, wal: &Wal, needs: &Needs) -> Result<(), Retry> {
        self.admit(needs.space)?;
        wal.admits(needs.record, needs.space.freeing).map_err(Retry::from)
    }
}
