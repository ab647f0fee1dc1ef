//! Rings written block by block, each then damaged in every block, in its header and in its
//! payload.

use brooklet_io::MemVolume;

use super::*;
use crate::config::Zone;
use crate::format::{Codec, disk_len};
use crate::map::Layout;
use crate::recover::{Start, drive, recover};

const ZONE: Zone = Zone { offset: 0, size: 64 << 10, store: 7 };

/// A ring that is written by hand.
struct Ring {
    zone: Zone,
    image: Vec<u8>,
    from: Cursor,
    next: Cursor,
    blocks: Vec<(u64, Vec<u8>)>,
}

impl Ring {
    /// An empty ring that goes on at this position.
    fn at(position: u64) -> Self {
        Self::of(ZONE.size, position)
    }

    fn of(size: u64, position: u64) -> Self {
        let next = Cursor { position, seq: 1, ..Cursor::default() };
        let zone = Zone { size, ..ZONE };
        Self { zone, image: vec![0; size as usize], from: next, next, blocks: Vec::new() }
    }

    /// Writes a block of an opening whose only record has so many bytes, and returns where it lies.
    fn put(&mut self, epoch: u64, acked: u64, len: usize) -> u64 {
        self.put_as(Codec::Raw, epoch, acked, len)
    }

    fn put_as(&mut self, codec: Codec, epoch: u64, acked: u64, len: usize) -> u64 {
        let Cursor { mut position, seq, lsn, chain: previous } = self.next;
        let mut stored = vec![0x80 | (len & 0x7f) as u8, (len >> 7) as u8];
        stored.extend((0..len).map(|i| (seq as usize * 31 + i) as u8));
        let left = self.zone.size - position % self.zone.size;
        if disk_len(stored.len()) as u64 > left {
            position += left;
        }
        let (raw_len, stored_len) = (stored.len() as u32, stored.len() as u32);
        let payload_sum = checksum(&stored);
        let header = Header {
            codec,
            store: ZONE.store,
            epoch,
            seq,
            position,
            lsn,
            acked,
            previous,
            records: 1,
            raw_len,
            stored_len,
            payload_sum,
        };
        let at = (position % self.zone.size) as usize;
        let chain = header.encode(&mut self.image[at..]);
        self.image[at + HEADER..at + HEADER + stored.len()].copy_from_slice(&stored);
        let end = position + disk_len(stored.len()) as u64;
        self.next = Cursor { position: end, seq: seq + 1, lsn: lsn + u64::from(raw_len), chain };
        self.blocks.push((seq, stored));
        at as u64
    }

    fn start(&self, epoch: u64, acked: u64) -> Start {
        Start { cursor: self.from, acked, clean: false, epoch }
    }

    /// The blocks that are found, and the holes.
    fn around(&self, start: Start, damage: &[u64]) -> (Vec<(u64, Vec<u8>)>, Vec<Hole>) {
        let volume = MemVolume::from_image(self.image.clone(), 1);
        damage.iter().for_each(|&at| volume.flip(at as usize, 3));
        let (mut blocks, mut holes) = (Vec::new(), Vec::new());
        drive(&volume, self.zone.into(), start, &|walk| walk.next_around(), &mut |found| {
            match found {
                Found::Block(block, _) => blocks.push((block.seq(), block.data().to_vec())),
                Found::Hole(hole) => holes.push(hole),
            }
            true
        })
        .unwrap();
        (blocks, holes)
    }

    /// Reads around damage. Returns the number of blocks and of holes, how often the ring was read,
    /// and the most bytes of it that were held.
    fn cost(&self, start: Start, damage: impl Iterator<Item = u64>) -> (usize, usize, u64, usize) {
        let volume = MemVolume::from_image(self.image.clone(), 1);
        damage.for_each(|at| volume.flip(at as usize, 3));
        let layout = Layout::from(self.zone);
        let limit = layout.map.limit(start.cursor.position);
        let mut walk = Walk::new(&volume, layout, start, limit).unwrap();
        let (mut blocks, mut holes, mut held) = (0, 0, 0);
        while let Some(found) = walk.next_around().unwrap() {
            match found {
                Found::Block(..) => blocks += 1,
                Found::Hole(_) => holes += 1,
            }
            held = held.max(walk.read_ahead.held());
        }
        (blocks, holes, walk.read_ahead.bytes_read() / self.zone.size, held)
    }
}

/// The ring is read for the walk, and once more for what its blocks say of others: not again for
/// each hole. Little of it is held at a time.
#[test]
fn many_holes_cost_little_more_than_one() {
    let mut ring = Ring::of(24 << 20, 0);
    let places: Vec<u64> = (0..2000).map(|acked| ring.put(1, acked, 10_000)).collect();
    let damage = || places.iter().skip(9).step_by(20).copied();
    // In the header, so that the next block is searched for; and in the payload.
    for byte in [24, HEADER as u64 + 20] {
        let (blocks, holes, readings, held) = ring.cost(ring.start(1, 0), damage().map(|at| at + byte));
        assert_eq!((blocks, holes), (1900, 100));
        assert!(readings <= 2 && held <= 4 << 20, "read {readings} times, held {held} bytes");
    }
}

/// Blocks that an earlier recovery dropped follow each other up to no block of the last opening.
/// They are read once, not once from each of them on.
#[test]
fn a_long_chain_of_dropped_blocks_is_read_once() {
    let mut ring = Ring::of(24 << 20, 0);
    let places = [ring.put(1, 0, 100), ring.put(1, 1, 100)];
    let torn = ring.next;
    for _ in 0..1500 {
        ring.put(1, 2, 10_000);
    }
    // The next opening wrote smaller blocks in their place, all of which are damaged.
    ring.next = torn;
    let lost: Vec<u64> = (2..1002).map(|acked| ring.put(2, acked, 100)).collect();
    let damage = lost.iter().map(|at| at + 24);
    let (blocks, holes, readings, held) = ring.cost(ring.start(3, 1002), damage);
    assert_eq!((blocks, holes), (places.len(), 1));
    assert!(readings <= 3 && held <= 4 << 20, "read {readings} times, held {held} bytes");
}

#[test]
fn a_damaged_block_hides_no_other() {
    let mut ring = Ring::at(32 << 10);
    // Three openings; blocks of several sizes; the end of the lap is skipped, and the ring goes on
    // in the next one.
    let lens = [100, 9000, 50, 5000, 11_000, 300, 700, 7000, 60];
    let epochs = [1, 1, 1, 2, 2, 2, 3, 3, 3];
    let places: Vec<u64> = lens
        .iter()
        .zip(epochs)
        .enumerate()
        .map(|(i, (&len, epoch))| ring.put(epoch, i as u64, len))
        .collect();
    let start = ring.start(3, 9);
    assert!(ring.around(start, &[]).0 == ring.blocks);
    for (i, &place) in places.iter().enumerate() {
        // In the header, where it counts; and in the payload.
        for at in [place + 24, place + HEADER as u64 + 20] {
            let (blocks, holes) = ring.around(start, &[at]);
            let mut rest = ring.blocks.clone();
            let missing = rest.remove(i);
            let is_last = i + 1 == places.len();
            assert!(blocks == rest, "block {} of {}: {:?}", i + 1, places.len(), holes);
            let [hole] = &holes[..] else { panic!("{holes:?}") };
            let in_header = at == place + 24;
            assert_eq!(hole.from.seq, missing.0);
            assert_eq!(hole.next, (!(in_header && is_last)).then_some(missing.0 + 1));
            assert_eq!(hole.remains.as_ref().map(|data| data.len()), (!in_header).then_some(missing.1.len()));
        }
    }
    // Who is to go on writing is refused.
    let volume = MemVolume::from_image(ring.image.clone(), 1);
    volume.flip(places[2] as usize, 3);
    let refused = recover(&volume, ZONE, start, |_, _| Ok::<_, WalError>(()));
    assert!(matches!(refused, Err(WalError::Damaged { seq: 3, .. })));
}

#[test]
fn two_damaged_blocks_are_two_holes() {
    let mut ring = Ring::at(0);
    let places: Vec<u64> = (0..8).map(|i| ring.put(1, i, 2000)).collect();
    let (blocks, holes) = ring.around(ring.start(1, 8), &[places[1] + 24, places[2] + 24, places[5] + 200]);
    assert_eq!(blocks.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1, 4, 5, 7, 8]);
    let stretches: Vec<_> = holes.iter().map(|hole| (hole.from.seq, hole.next)).collect();
    assert_eq!(stretches, [(2, Some(4)), (6, Some(7))]);
}

/// What an earlier recovery dropped is still there behind the end, and fits in every way but that
/// nothing leads from it to a block of the last opening.
#[test]
fn a_block_that_was_dropped_once_does_not_fill_a_hole() {
    let mut ring = Ring::at(0);
    ring.put(1, 0, 100);
    ring.put(1, 1, 100);
    let torn = ring.next;
    // Blocks 3 to 5 were in flight as the power went, 3 did not get there, and nobody heard of any.
    for len in [9000, 100, 100] {
        ring.put(1, 2, len);
    }
    ring.next = torn;
    ring.blocks.truncate(2);
    let first = ring.put(2, 2, 3000);
    ring.put(2, 3, 3000);
    let (blocks, holes) = ring.around(ring.start(2, 4), &[]);
    assert!(blocks == ring.blocks && holes.is_empty());
    // Both blocks of the later opening go. The store was opened again since then, and nothing was
    // written.
    let (blocks, holes) = ring.around(ring.start(3, 4), &[first + 24, first + 4096 + 24]);
    assert!(blocks == ring.blocks[..2]);
    assert_eq!((holes.len(), holes[0].next), (1, None));
}

/// Nobody knows of block 4 that it was acknowledged: a recovery may drop it, and what is behind
/// with it.
#[test]
fn what_a_recovery_may_drop_does_not_fill_a_hole() {
    let mut ring = Ring::at(0);
    let places: Vec<u64> = (0..5).map(|i| ring.put(1, [0, 1, 2, 3, 3][i], 2000)).collect();
    let (blocks, holes) = ring.around(ring.start(1, 0), &[places[2] + 24, places[3] + 24]);
    assert!(blocks == ring.blocks[..2]);
    assert_eq!((holes.len(), holes[0].next), (1, None));
    let (blocks, _) = ring.around(ring.start(1, 0), &[places[1] + 24, places[3] + 24]);
    assert_eq!(blocks.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1, 3]);
}

/// A block that this build cannot decompress is neither torn nor damaged: all openings refuse it.
#[cfg(not(feature = "zstd"))]
#[test]
fn a_block_of_a_codec_that_is_not_built_in_is_refused() {
    use crate::error::WalError;

    for acked in [0, 3] {
        let mut ring = Ring::at(0);
        ring.put(1, 0, 100);
        ring.put_as(Codec::Zstd, 1, 0, 100);
        ring.put(1, 0, 100);
        let volume = MemVolume::from_image(ring.image.clone(), 1);
        let start = ring.start(1, acked);
        let strict = recover(&volume, ZONE, start, |_, _| Ok(())).map(drop);
        let around = drive(&volume, ZONE.into(), start, &|walk| walk.next_around(), &mut |_| true).map(drop);
        for refused in [strict, around] {
            assert!(matches!(refused, Err(WalError::NoCodec { seq: 2, .. })), "{refused:?}");
        }
    }
}

/// Beside a writer, later blocks prove nothing about a missing block: they may be newer than the
/// read that missed it.
#[test]
fn beside_a_writer_only_the_superblock_proves_a_hole() {
    let mut ring = Ring::at(32 << 10);
    let places: Vec<u64> =
        (0..7).map(|acked| ring.put(1, acked, 100 + 5_000 * (acked as usize % 2))).collect();
    for (before, &place) in (0..).zip(&places[..6]) {
        for byte in [place + 40, place + HEADER as u64 + 7] {
            let volume = MemVolume::from_image(ring.image.clone(), 1);
            volume.flip(byte as usize, 3);
            let found = |acked| {
                let (mut blocks, mut holes) = (Vec::new(), Vec::new());
                let visit = |found: &Found| {
                    match found {
                        Found::Block(block, _) => blocks.push(block.seq()),
                        Found::Hole(hole) => holes.push(hole.from.seq),
                    }
                    Ok::<_, WalError>(())
                };
                crate::recover_beside(&volume, ZONE, ring.start(1, acked), visit).unwrap();
                (blocks, holes)
            };
            let missing = before + 1;
            let acknowledged = (1..=6).filter(|&seq| seq != missing).collect();
            assert_eq!(found(missing), (acknowledged, vec![missing]), "the superblock knows the block");
            let proven = (1..missing.saturating_sub(1)).collect();
            assert_eq!(found(0), (proven, vec![]), "a writer may be about to write the block");
        }
    }
}
