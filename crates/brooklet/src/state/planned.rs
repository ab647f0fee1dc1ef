//! The planned effects of a commit, and the record that holds them.

use std::cell::Cell;

use brooklet_io::seeded::bug;

use crate::format::commit_record;
use crate::model::Effect;
use crate::model::commit::Op;
use crate::model::pending::Pending;
use crate::model::retention_state::State;
use crate::state::undo::Undo;

/// An effect that was planned.
pub(super) struct Planned {
    pub(super) op: usize,
    pub(super) effect: Effect,
    /// Whether a trim of all earlier entries follows the effect, an append. See [`Pending::trims`].
    pub(super) trims: bool,
}

impl Planned {
    /// Returns the payload of the effect's entry; empty if the effect adds no entry.
    pub(super) fn payload<'a>(&self, ops: &[Op<'a>]) -> &'a [u8] {
        ops[self.op].action.payload_of(self.effect)
    }

    /// Returns the effect as the record has it, and as it waits for its block.
    pub(super) fn entry<'a>(&self, ops: &[Op<'a>], undo: &Undo) -> (commit_record::Entry<'a>, Pending) {
        let &Self { op, effect, trims } = self;
        let is_first = !undo.touched && !bug("record-forgets-bounds");
        let before = match is_first {
            true => State { bounds: undo.bounds, terms: undo.terms.clone() },
            false => State::default(),
        };
        let (key, payload) = (ops[op].key, self.payload(ops));
        let pending = Pending { slot: undo.slot, effect, offset: 0, len: 0, trims };
        (commit_record::Entry { key, effect, before, payload }, pending)
    }
}

/// Writes effects. Adds them to `effects`, with offsets in the record.
pub(super) fn encode_all<'a>(
    out: &mut dyn FnMut(&[u8]),
    entries: impl Iterator<Item = (commit_record::Entry<'a>, Pending)>,
    effects: &mut Vec<Pending>,
) {
    let written = Cell::new(0);
    let mut counted = |bytes: &[u8]| {
        written.set(written.get() + bytes.len());
        out(bytes);
    };
    let mut previous = None;
    for (entry, mut pending) in entries {
        commit_record::encode(&mut counted, &entry, previous == Some(pending.slot));
        previous = Some(pending.slot);
        let len = entry.payload.len();
        (pending.offset, pending.len) = ((written.get() - len) as u32, len as u32);
        if let Some(effect) = pending.trim() {
            let entry = commit_record::Entry { effect, before: State::default(), payload: &[], ..entry };
            commit_record::encode(&mut counted, &entry, true);
        }
        effects.push(pending);
    }
}
