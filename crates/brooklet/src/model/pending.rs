//! Effects that are appended and not visible yet.

use crate::model::Effect;

/// Index of a log in the storage of its owner.
pub(crate) type Slot = u32;

/// An effect that waits for its block to become durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub slot: Slot,
    pub effect: Effect,
    pub offset: u32,
    pub len: u32,
    /// Whether a trim of all earlier entries follows the effect, an append. A snapshot of a log
    /// without limits is such a pair. As one, the effects of a commit of many snapshots take half
    /// the memory and half the steps. The ring has two effects.
    pub trims: bool,
}

const _: () = assert!(size_of::<Pending>() == 32);

impl Pending {
    /// Returns the trim that follows the effect.
    pub fn trim(&self) -> Option<Effect> {
        match self.effect {
            Effect::Append(seq) if self.trims => Some(Effect::Trim(seq)),
            _ => None,
        }
    }
}
