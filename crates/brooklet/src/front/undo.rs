//! Undoing the effects of a commit that is refused.

use std::sync::Arc;

use super::Tally;
use crate::model::Bounds;
use crate::recent::{Slot, Tier};
use crate::terms::Terms;

/// What a log was before an effect.
pub(super) struct Undo {
    pub slot: Slot,
    pub bounds: Option<Bounds>,
    pub touched: bool,
    pub terms: Option<Arc<Terms>>,
    /// Where the effect takes from it what cannot be worked out again.
    pub tally: Option<Option<Tally>>,
}

impl Undo {
    /// Makes it that again. Effects are undone in reverse.
    pub fn apply(self, tier: &mut Tier) {
        let log = tier.log_mut(self.slot);
        (log.boarded, log.touched) = (self.bounds, self.touched);
        let Some(limited) = &mut log.limited else { return };
        limited.boarded = self.terms;
        if let Some(tally) = self.tally {
            limited.tally = tally;
        } else if let Some(tally) = &mut limited.tally {
            tally.truncate(self.bounds.map_or(0, |bounds| bounds.next));
        }
    }
}
