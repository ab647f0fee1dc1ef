//! Effects that are appended and not visible yet.

use crate::memtable::Slot;
use crate::model::Effect;

/// An effect that waits for its block to become durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub slot: Slot,
    pub effect: Effect,
    pub offset: u32,
    pub len: u32,
    /// Whether a trim of all earlier entries follows the effect, an append. A snapshot is such a
    /// pair. As one, the effects of a commit of many snapshots take half the memory and steps.
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

    /// Adds the effect to the others of its record. An append takes a trim of all earlier entries
    /// in.
    pub fn push_to(self, effects: &mut Vec<Self>) {
        if let Effect::Trim(first) = self.effect
            && let Some(last) = effects.last_mut()
            && (last.slot, last.effect, last.trims) == (self.slot, Effect::Append(first), false)
        {
            last.trims = true;
        } else {
            effects.push(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_takes_in_the_trim_of_all_earlier_entries() {
        let append = Pending { slot: 3, effect: Effect::Append(7), offset: 0, len: 1, trims: false };
        for (slot, effect, fits) in [
            (3, Effect::Trim(7), true),
            (3, Effect::Trim(6), false),
            (3, Effect::Trim(8), false),
            (4, Effect::Trim(7), false),
            (3, Effect::Truncate(7), false),
        ] {
            let mut effects = vec![append];
            let next = Pending { slot, effect, ..append };
            next.push_to(&mut effects);
            assert_eq!(effects.len(), if fits { 1 } else { 2 }, "{effect:?}");
            assert_eq!(effects[0].trim(), fits.then_some(effect));
            next.push_to(&mut effects);
            assert_eq!(effects.len(), if fits { 2 } else { 3 }, "an append takes in one trim");
        }
    }
}
