//! Undoes the effects of a refused commit.

use std::sync::Arc;

use crate::memtable::entry_sizes::Cut;
use crate::memtable::{Memtable, Slot};
use crate::model::Bounds;
use crate::model::retention_state::RetentionState;

/// The state of a log before an effect.
pub(super) struct Undo {
    pub slot: Slot,
    pub bounds: Option<Bounds>,
    pub touched: bool,
    pub terms: Option<Arc<RetentionState>>,
    /// The entry sizes that the effect cut off.
    pub cut: Option<Box<Cut>>,
}

impl Undo {
    /// Restores the state. Effects must be undone in reverse.
    pub fn apply(self, memtable: &mut Memtable) {
        let log = memtable.log_mut(self.slot);
        (log.appended, log.touched) = (self.bounds, self.touched);
        let Some(limited) = &mut log.limited else { return };
        limited.appended = self.terms;
        let Some(sizes) = limited.sizes_mut() else { return };
        match self.cut {
            Some(cut) => sizes.restore(*cut),
            // Removes the sizes that the effect added.
            None => drop(sizes.truncate(self.bounds.map_or(0, |bounds| bounds.next))),
        }
    }
}
