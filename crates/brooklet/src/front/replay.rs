//! Boarding again what recovery found.

use brooklet_wal::{Block, Records};

use super::Front;
use crate::error::Error;
use crate::model::{Effect, Piece};
use crate::recent::{Limited, Pending, Tier};
use crate::record;
use crate::spaces::{Share, Spaces};

impl Front {
    /// Brings a recovered block's effects back, as boarding and showing once did.
    pub fn replay(&mut self, block: &Block) -> Result<(), Error> {
        let place = || format!("block {} of the ring", block.seq());
        let malformed = || Error::damaged(place(), "a record does not make sense");
        self.active.replay(block, &mut self.effects, &mut self.spaces).ok_or_else(malformed)
    }
}

impl Tier {
    /// Brings a block's effects back, and what they do to `spaces`; `effects` is memory to use. `None` where it makes no sense.
    pub fn replay(&mut self, block: &Block, effects: &mut Vec<Pending>, spaces: &mut Spaces) -> Option<()> {
        effects.clear();
        for record in Records::new(block.data()) {
            let (offset, bytes) = record?;
            let (mut rest, mut previous) = (bytes, None);
            while !rest.is_empty() {
                let entry = record::decode(&mut rest, previous)?;
                let key = entry.key;
                previous = Some(key);
                let slot = match self.find(key) {
                    Some(slot) => slot,
                    None => self.add(key, entry.before),
                };
                if let ([], Effect::Append(_)) = (key, entry.effect) {
                    spaces.take_on(entry.payload)?;
                }
                let (is_first, payload) = (!self.log(slot).touched, entry.payload.len());
                let claim = self.claim_of(slot, entry.effect, payload, is_first);
                self.claims(claim, 0);
                self.adds(slot, entry.effect, payload);
                let log = self.log_mut(slot);
                let share = Share::of(log.boarded, log.terms());
                log.touched = true;
                log.in_flight += 1;
                let mut piece = Piece::on_top_of(log.boarded);
                piece.apply(entry.effect)?;
                log.boarded = piece.bounds;
                let len = entry.payload.len() as u32;
                if let Some(limited) = Limited::of(&mut log.limited, entry.effect) {
                    limited.board(entry.effect, piece.bounds, len);
                    spaces.shift(key, share, Share::of(log.boarded, log.terms()));
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
