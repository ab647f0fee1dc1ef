//! The label: what a [`Log`](crate::Log) knows about its ring, and the map of its volume.
//!
//! ```text
//! offset            zone
//!      0            label: slots A and B, one sector (4 KiB) each; then spare sectors, in which each opening tries
//!                   how the device takes durable writes
//! 64 KiB            ring
//!
//! slot, little endian
//!   0   8 magic "BRKRING1"      8   4 format version, 1     12   4 zero
//!  16  16 identity of the log; blocks bear its halves, combined by exclusive or
//!  32   8 generation: 1 more than the label before
//!  40   8 epoch: 1 more at every opening
//!  48   8 acked: every block up to this number is durable
//!  56   8 flags: 1 closed cleanly, `acked` is the last block; 2 there is a span before
//!  64  32 trim point: position, seq, lsn and chain of the first block that is kept
//!  96   8 first: LSN of the first record that is kept, in that block or behind it
//! 104  24 span: from, offset, size. Position p from `from` on lies at (offset + p - from) mod size in the ring
//! 128  24 span before: where the positions before `from` lie (all zero: there is none)
//! 504   8 XXH3-64 of bytes 0..504
//! ```
//!
//! The slot of the larger generation counts. A trim writes one slot, the older; if that one is lost to rot later, the
//! other brings back an older trim point of the same opening and the same spans, and blocks that were written over since
//! show as damage. Opening, closing and every change of the spans write both slots, each durable before the next, so that
//! no single loss brings an older epoch or geometry back. A slot fits in 512 bytes, which the device tears last.

use std::ops::Range;

use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, SECTOR, Volume, write_all_at};

use crate::format::checksum;
use crate::map::{Map, Span};
use crate::recover::Layout;
use crate::ring::Cursor;
use crate::wal::MIN_RING;

/// Newest format this version reads and writes.
pub(crate) const FORMAT: u32 = 1;
/// Bytes before the ring.
pub(crate) const RING_OFFSET: u64 = 64 << 10;
/// Sectors whose contents nobody needs.
pub(crate) const SCRATCH: Range<u64> = 16 << 10..RING_OFFSET;
/// Largest ring, in bytes.
pub(crate) const MAX_RING: u64 = 1 << 40;
/// Slots of the label.
pub(crate) const SLOTS: usize = 2;

const MAGIC: [u8; 8] = *b"BRKRING1";
const SUM: usize = 504;

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

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Valid(Label),
    Blank,
    Newer(u32),
    Damaged(&'static str),
}

impl Label {
    /// The label of a new log.
    pub fn new(id: u128, size: u64) -> Self {
        let trim = Cursor { seq: 1, ..Cursor::default() };
        Self { id, generation: 1, epoch: 0, acked: 0, clean: true, trim, first: 0, map: Map::new(size) }
    }

    /// Where the log's blocks lie on its volume.
    pub fn layout(&self) -> Layout {
        Layout { zone: RING_OFFSET, store: self.id as u64 ^ (self.id >> 64) as u64, map: self.map }
    }

    /// Bytes of the volume that the log needs.
    pub fn end(&self) -> u64 {
        RING_OFFSET + self.map.reach()
    }

    pub fn encode(&self) -> [u8; 512] {
        let mut out = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &FORMAT.to_le_bytes());
        put(16, &self.id.to_le_bytes());
        let Self { trim, map, .. } = self;
        let before = map.before.unwrap_or(Span { from: 0, offset: 0, size: 0 });
        let flags = u64::from(self.clean) | u64::from(map.before.is_some()) << 1;
        let (state, cursor) = (
            [self.generation, self.epoch, self.acked, flags],
            [trim.position, trim.seq, trim.lsn, trim.chain],
        );
        let spans = [map.current, before].map(|span| [span.from, span.offset, span.size]);
        let words = state.iter().chain(&cursor).chain([&self.first]).chain(spans.as_flattened());
        for (i, word) in words.enumerate() {
            put(32 + 8 * i, &word.to_le_bytes());
        }
        let sum = checksum(&out[..SUM]);
        out[SUM..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Slot {
        if bytes.iter().all(|&byte| byte == 0) {
            return Slot::Blank;
        }
        if bytes.len() < 512 || bytes[..8] != MAGIC {
            return Slot::Damaged("the magic bytes are missing");
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if checksum(&bytes[..SUM]) != word(SUM) {
            return Slot::Damaged("the checksum does not hold");
        }
        match u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")) {
            FORMAT => {}
            version if version > FORMAT => return Slot::Newer(version),
            _ => return Slot::Damaged("the version never was"),
        }
        let span = |at| Span { from: word(at), offset: word(at + 8), size: word(at + 16) };
        let before = (word(56) & 2 != 0).then(|| span(128));
        let label = Label {
            id: u128::from_le_bytes(bytes[16..32].try_into().expect("sixteen bytes")),
            generation: word(32),
            epoch: word(40),
            acked: word(48),
            clean: word(56) & 1 != 0,
            trim: Cursor { position: word(64), seq: word(72), lsn: word(80), chain: word(88) },
            first: word(96),
            map: Map { current: span(104), before },
        };
        if label.is_sound() { Slot::Valid(label) } else { Slot::Damaged("its numbers make no sense") }
    }

    /// Whether a log could have written it.
    fn is_sound(&self) -> bool {
        let Self { trim, map, .. } = self;
        let numbers =
            [trim.position, trim.seq, trim.lsn, self.acked, self.epoch, self.generation, self.first];
        let size = MIN_RING..=MAX_RING;
        // Every number counts something that happened; none can have come near this.
        numbers.iter().all(|n| *n < 1 << 62)
            && trim.position % SECTOR as u64 == 0
            && trim.seq > 0
            && self.acked + 1 >= trim.seq
            && self.first >= trim.lsn
            && size.contains(&map.current.size)
            && map.before.is_none_or(|before| size.contains(&before.size))
            && map.is_sound(trim.position)
    }

    /// Writes one slot, durably.
    pub fn write(&self, volume: &dyn Volume, slot: usize) -> std::io::Result<()> {
        let mut buf = AlignedBuf::zeroed(SECTOR);
        buf[..512].copy_from_slice(&self.encode());
        let persist = if bug("log-label-is-cached") { Persist::Cached } else { Persist::Durable };
        write_all_at(volume, (slot * SECTOR) as u64, &buf, persist)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn resum(bytes: &mut [u8; 512]) {
        let sum = checksum(&bytes[..SUM]);
        bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
    }

    #[test]
    fn a_slot_survives_the_round_trip_and_no_flipped_bit() {
        // Live blocks of the old span must leave the new one room: 4096..20 * 4096 wraps in 64 KiB.
        let trim = Cursor { position: 5 << 12, ..sample().trim };
        for label in [
            Label { trim, ..sample() },
            Label { map: Map::new(64 << 10), clean: false, ..sample() },
            Label::new(7, 64 << 10),
        ] {
            let mut bytes = label.encode();
            assert_eq!(Label::decode(&bytes), Slot::Valid(label));
            for bit in 0..512 * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(matches!(Label::decode(&bytes), Slot::Damaged(_)), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(Label::decode(&[0; 512]), Slot::Blank);
    }

    #[test]
    fn versions_that_are_newer_or_never_were_are_told_apart() {
        let mut bytes = Label::new(7, 64 << 10).encode();
        for (version, expected) in [(0, Slot::Damaged("the version never was")), (2, Slot::Newer(2))] {
            bytes[8] = version;
            resum(&mut bytes);
            assert_eq!(Label::decode(&bytes), expected);
        }
    }

    /// Numbers under a sound checksum that no log writes: refused here, so that nothing behind divides by zero,
    /// overflows, or takes memory for them.
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
            resum(&mut bytes);
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
