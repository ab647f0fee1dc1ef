//! The numbers that a commit gave its entries.

use crate::model::Effect;
use crate::recent::Pending;

/// Sequence numbers; the usual single one needs no memory of its own.
#[derive(Clone, Debug)]
pub(crate) enum Seqs {
    One([u64; 1]),
    Many(Vec<u64>),
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

    pub fn as_slice(&self) -> &[u64] {
        match self {
            Seqs::One(one) => one,
            Seqs::Many(many) => many,
        }
    }
}
