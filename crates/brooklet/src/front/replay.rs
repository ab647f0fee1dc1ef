//! Boarding again what recovery found.

use brooklet_wal::{Block, Records};

use super::Front;
use crate::error::Error;
use crate::model::Piece;
use crate::recent::{Limited, Pending, Tier};
use crate::record;

impl Front {
    /// Brings a recovered block's effects back, as boarding and showing once did.
    pub fn replay(&mut self, block: &Block) -> Result<(), Error> {
        let place = || format!("block {} of the ring", block.seq());
        let malformed = || Error::damaged(place(), "a record does not make sense");
        self.active.replay(block, &mut self.effects).ok_or_else(malformed)
    }
}

impl Tier {
    /// Brings a block's effects back; `effects` is memory to use. `None` where it makes no sense.
    pub fn replay(&mut self, block: &Block, effects: &mut Vec<Pending>) -> Option<()> {
        effects.clear();
        for record in Records::new(block.data()) {
            let (offset, bytes) = record?;
            let (mut rest, mut key) = (bytes, &b""[..]);
            while !rest.is_empty() {
                let entry = record::decode(&mut rest, key)?;
                key = entry.key;
                let slot = match self.find(key) {
                    Some(slot) => slot,
                    None => self.add(key, entry.before),
                };
                let (is_first, payload) = (!self.log(slot).touched, entry.payload.len());
                let claim = self.claim_of(slot, entry.effect, payload, is_first);
                self.claims(claim);
                self.adds(slot, entry.effect, payload);
                let log = self.log_mut(slot);
                log.touched = true;
                log.in_flight += 1;
                let mut piece = Piece::on_top_of(log.boarded);
                piece.apply(entry.effect)?;
                log.boarded = piece.bounds;
                let len = entry.payload.len() as u32;
                if let Some(limited) = Limited::of(&mut log.limited, entry.effect) {
                    limited.board(entry.effect, piece.bounds, len);
                }
                let offset = (offset + bytes.len() - rest.len()) as u32 - len;
                effects.push(Pending { slot, effect: entry.effect, offset, len });
            }
        }
        self.apply(block, effects)?;
        effects.clear();
        Some(())
    }
}
