//! The numbers of a commit's entries.

use crate::memtable::Pending;
use crate::model::Effect;

/// Sequence numbers. A single number, the usual case, needs no separate memory.
#[derive(Clone, Debug)]
pub(crate) enum Seqs {
    One([u64; 1]),
    Many(Vec<u64>),
}

impl Default for Seqs {
    fn default() -> Self {
        Seqs::Many(Vec::new())
    }
}

impl Seqs {
    pub fn of(effects: &[Pending]) -> Self {
        let mut seqs =
            effects.iter().filter_map(|p| if let Effect::Append(seq) = p.effect { Some(seq) } else { None });
        match (seqs.next(), seqs.next()) {
            (Some(one), None) => Seqs::One([one]),
            (first, second) => Seqs::Many(first.into_iter().chain(second).chain(seqs).collect()),
        }
    }

    /// Adds the number of the next entry.
    pub fn push(&mut self, seq: u64) {
        match self {
            Seqs::One([one]) => *self = Seqs::Many(vec![*one, seq]),
            Seqs::Many(many) if many.is_empty() => *self = Seqs::One([seq]),
            Seqs::Many(many) => many.push(seq),
        }
    }

    pub fn as_slice(&self) -> &[u64] {
        match self {
            Seqs::One(one) => one,
            Seqs::Many(many) => many,
        }
    }
}
