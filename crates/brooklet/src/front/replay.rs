//! Boarding again what recovery found.

use brooklet_wal::{Block, Records};

use super::Front;
use crate::error::Error;
use crate::model::Piece;
use crate::recent::{Limited, Pending};
use crate::record;

impl Front {
    /// Brings a recovered block's effects back, as boarding and showing once did.
    pub fn replay(&mut self, block: &Block) -> Result<(), Error> {
        let malformed =
            || Error::damaged(format!("block {} of the ring", block.seq()), "a record does not make sense");
        let mut effects = std::mem::take(&mut self.effects);
        for record in Records::new(block.data()) {
            let (offset, bytes) = record.ok_or_else(malformed)?;
            let (mut rest, mut key) = (bytes, &b""[..]);
            while !rest.is_empty() {
                let entry = record::decode(&mut rest, key).ok_or_else(malformed)?;
                key = entry.key;
                let slot = match self.active.find(key) {
                    Some(slot) => slot,
                    None => self.active.add(key, entry.before),
                };
                let (is_first, payload) = (!self.active.log(slot).touched, entry.payload.len());
                let claim = self.active.claim_of(slot, entry.effect, payload, is_first);
                self.active.claims(claim);
                self.active.adds(slot, entry.effect, payload);
                let log = self.active.log_mut(slot);
                log.touched = true;
                log.in_flight += 1;
                let mut piece = Piece::on_top_of(log.boarded);
                piece.apply(entry.effect).ok_or_else(malformed)?;
                log.boarded = piece.bounds;
                let len = entry.payload.len() as u32;
                if let Some(limited) = Limited::of(&mut log.limited, entry.effect) {
                    limited.board(entry.effect, piece.bounds, len);
                }
                let offset = (offset + bytes.len() - rest.len()) as u32 - len;
                effects.push(Pending { slot, effect: entry.effect, offset, len });
            }
        }
        self.active.apply(block, &effects).ok_or_else(malformed)?;
        effects.clear();
        self.effects = effects;
        Ok(())
    }
}
