//! Undoing the effects of a commit that is refused.

use std::sync::Arc;

use crate::memtable::entry_sizes::Cut;
use crate::memtable::{Memtable, Slot};
use crate::model::Bounds;
use crate::model::retention_state::RetentionState;

/// What a log was before an effect.
pub(super) struct Undo {
    pub slot: Slot,
    pub bounds: Option<Bounds>,
    pub touched: bool,
    pub terms: Option<Arc<RetentionState>>,
    /// What the effect cut off its tally.
    pub cut: Option<Cut>,
}

impl Undo {
    /// Makes it that again. Effects are undone in reverse.
    pub fn apply(self, tier: &mut Memtable) {
        let log = tier.log_mut(self.slot);
        (log.boarded, log.touched) = (self.bounds, self.touched);
        let Some(limited) = &mut log.limited else { return };
        limited.boarded = self.terms;
        let Some(tally) = limited.tally_mut() else { return };
        match self.cut {
            Some(cut) => tally.restore(cut),
            // What joined goes.
            None => drop(tally.truncate(self.bounds.map_or(0, |bounds| bounds.next))),
        }
    }
}
