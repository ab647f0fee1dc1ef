//! The label: the state that a [`Log`](crate::Log) stores about its ring, and the map of its
//! volume.
//!
//! ```text
//! offset            zone
//!      0            label: slots A and B, one sector (4 KiB) each; then spare sectors, in which each opening tries
//!                   how the device takes durable writes
//! 64 KiB            ring
//!
//! in a slot (see `slot.rs`) of magic "BRKRING1" and version 1
//!  16  16 identity of the log; blocks bear its halves, combined by exclusive or
//!  32   8 generation: 1 more than the label before
//!  40   8 epoch: 1 more at every opening
//!  48   8 acked: every block up to this number is durable
//!  56   8 flags: 1 closed cleanly, `acked` is the last block; 2 there is a span before
//!  64  32 trim point: position, seq, lsn and chain of the first block that is kept
//!  96   8 first: LSN of the first record that is kept, in that block or behind it
//! 104  24 span: from, offset, size. Position p from `from` on lies at (offset + p - from) mod size in the ring
//! 128  24 span before: where the positions before `from` lie (all zero: there is none)
//! ```
//!
//! The slot of the larger generation counts. A trim writes only the older slot. If rot later
//! destroys that slot, the other slot holds an older trim point of the same opening and the same
//! spans, and overwritten blocks are reported as damage. Opening, closing and every change of the
//! spans write both slots, each durable before the next, so that no single loss restores an older
//! epoch or geometry.

use std::ops::Range;

use brooklet_io::seeded::bug;
use brooklet_io::{Persist, SECTOR, Volume};

use crate::config::MIN_RING;
use crate::map::Layout;
use crate::map::{Map, Span};
use crate::ring::Cursor;
use crate::slot::{self, Fields, SlotContent};

/// Bytes before the ring: the label and the spare sectors.
pub(crate) const RING_OFFSET: u64 = 64 << 10;
/// Sectors whose contents are unused.
pub(crate) const SCRATCH: Range<u64> = 16 << 10..RING_OFFSET;
/// Size of the largest ring, in bytes.
pub(crate) const MAX_RING: u64 = 1 << 40;
/// Number of slots of the label.
pub(crate) const SLOTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub id: u128,
    pub generation: u64,
    pub epoch: u64,
    pub acked: u64,
    pub clean: bool,
    pub trim: Cursor,
    pub first: u64,
    pub map: Map,
}

impl Label {
    /// Creates the label of a new log.
    pub fn new(id: u128, size: u64) -> Self {
        let trim = Cursor { seq: 1, ..Cursor::default() };
        Self { id, generation: 1, epoch: 0, acked: 0, clean: true, trim, first: 0, map: Map::new(size) }
    }

    /// Returns the layout of the log's blocks on its volume.
    pub fn layout(&self) -> Layout {
        Layout { zone: RING_OFFSET, store: self.id as u64 ^ (self.id >> 64) as u64, map: self.map }
    }

    /// Returns the number of bytes of the volume that the log needs.
    pub fn end(&self) -> u64 {
        RING_OFFSET + self.map.reach()
    }

    /// Returns whether a log could have written this label.
    fn is_sound(&self) -> bool {
        let Self { trim, map, .. } = self;
        let numbers =
            [trim.position, trim.seq, trim.lsn, self.acked, self.epoch, self.generation, self.first];
        let size = MIN_RING..=MAX_RING;
        // Every number counts past events; no real log reaches this bound.
        numbers.iter().all(|n| *n < 1 << 62)
            && trim.position % SECTOR as u64 == 0
            && trim.seq > 0
            && self.acked + 1 >= trim.seq
            && self.first >= trim.lsn
            && size.contains(&map.current.size)
            && map.before.is_none_or(|before| size.contains(&before.size))
            && map.is_sound(trim.position)
    }

    /// Writes the label into one slot, durably.
    pub fn write(&self, volume: &dyn Volume, slot: usize) -> std::io::Result<()> {
        let persist = if bug("log-label-is-cached") { Persist::Cached } else { Persist::Durable };
        slot::write(volume, std::iter::once(slot), self, persist)
    }
}

impl SlotContent for Label {
    const MAGIC: [u8; 8] = *b"BRKRING1";
    const FORMAT: u32 = 1;

    fn rank(&self) -> u64 {
        self.generation
    }

    fn put(&self, fields: &mut Fields) {
        let Map { current, before } = self.map;
        let flags = u64::from(self.clean) | u64::from(before.is_some()) << 1;
        fields.put_id(16, self.id);
        fields.put(32, &[self.generation, self.epoch, self.acked, flags]);
        fields.put_cursor(64, self.trim);
        fields.put(96, &[self.first, current.from, current.offset, current.size]);
        if let Some(before) = before {
            fields.put(128, &[before.from, before.offset, before.size]);
        }
    }

    fn take(fields: &Fields, _: u32) -> Result<Self, &'static str> {
        let word = |at| fields.word(at);
        let span = |at| Span { from: word(at), offset: word(at + 8), size: word(at + 16) };
        let label = Self {
            id: fields.id(16),
            generation: word(32),
            epoch: word(40),
            acked: word(48),
            clean: word(56) & 1 != 0,
            trim: fields.cursor(64),
            first: word(96),
            map: Map { current: span(104), before: (word(56) & 2 != 0).then(|| span(128)) },
        };
        if label.is_sound() { Ok(label) } else { Err("its numbers make no sense") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::{Slot, seal};

    fn sample() -> Label {
        Label {
            id: 0x1234 << 70 | 5,
            generation: 5,
            epoch: 3,
            acked: 12,
            clean: true,
            trim: Cursor { position: 4096, seq: 9, lsn: 100, chain: 8 },
            first: 130,
            map: Map {
                current: Span { from: 20 << 12, offset: 64 << 10, size: 128 << 10 },
                before: Some(Span { from: 0, offset: 0, size: 64 << 10 }),
            },
        }
    }

    #[test]
    fn a_slot_survives_the_round_trip() {
        // Live blocks of the old span must leave the new one room: 4096..20 * 4096 wraps in 64 KiB.
        let trim = Cursor { position: 5 << 12, ..sample().trim };
        for label in [
            Label { trim, ..sample() },
            Label { map: Map::new(64 << 10), clean: false, ..sample() },
            Label::new(7, 64 << 10),
        ] {
            assert_eq!(Label::decode(&label.encode()), Slot::Valid(label));
        }
    }

    /// Numbers under a sound checksum that no log writes: refused here, so that nothing behind
    /// divides by zero, overflows, or takes memory for them.
    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let mut rng = brooklet_io::Rng::new(3);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes =
                Label { trim: Cursor { position: 5 << 12, ..sample().trim }, ..sample() }.encode();
            for _ in 0..1 + rng.below(3) {
                let at = 32 + 8 * rng.below(15) as usize;
                let word = match rng.below(4) {
                    0 => rng.next(),
                    1 => rng.below(40) << 12,
                    2 => 1 << rng.below(64),
                    _ => 0,
                };
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            seal(&mut bytes);
            match Label::decode(&bytes) {
                Slot::Valid(label) => {
                    let tail = label.trim.position;
                    let limit = label.map.limit(tail);
                    assert!(limit > tail && label.map.at(tail) < label.map.reach());
                }
                slot => {
                    assert_eq!(slot, Slot::Damaged("its numbers make no sense"));
                    refused += 1;
                }
            }
        }
        assert!(refused > 5000, "{refused}");
    }
}
