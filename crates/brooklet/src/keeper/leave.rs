//! A tier that a run holds by now leaves memory, a part at a time: to free tens of megabytes at once keeps a processor for
//! tens of milliseconds, and those who commit wait for it.
//!
//! What is not freed yet counts as memory, so that writers are held back by it; and a tier is frozen only when the one
//! before has left.

use super::{Context, Keeper};
use crate::recent::Tier;

/// What a slice of work frees, in bytes: some tenths of a millisecond.
const AT_ONCE: usize = 256 << 10;

impl Keeper {
    /// Frees a part of the last checkpoint's tier. `false` where there is none.
    pub(super) fn leave(&mut self, context: &Context<'_>) -> bool {
        let Some(tier) = &mut self.leaving else { return false };
        if !tier.shed(AT_ONCE) {
            self.leaving = None;
        }
        context.front().leaving = self.leaving.as_ref().map_or(0, Tier::bytes);
        true
    }
}
