//! The ring of a store, read from the bytes of a disk by the formats alone: which blocks the newest
//! superblock knows, and where they are. (The formats: `format.rs` and `slot.rs` of brooklet-wal,
//! `format/superblock.rs` of brooklet.)

use std::ops::Range;

use brooklet::io::SECTOR;
use twox_hash::XxHash3_64;

/// Number of copies of the superblock, and the length of a copy and of a block's header, in bytes.
const COPIES: usize = 3;
const SLOT: usize = 512;
const HEADER: usize = 96;

/// A block of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of the block.
    pub seq: u64,
    /// Its header and its payload on the disk, without padding.
    pub bytes: Range<usize>,
    epoch: u64,
}

/// The ring of a store, and the superblock's knowledge of it.
#[derive(Debug)]
pub struct RingImage {
    /// The blocks of the log, one after the other, from the first one that is still needed.
    pub blocks: Vec<Block>,
    /// The last block that the superblock knows to be durable.
    pub acked: u64,
    /// All blocks on the disk.
    found: Vec<Block>,
    /// Offset of the superblock.
    superblock: usize,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Returns the slot at `at` if it holds a superblock.
fn slot(image: &[u8], at: usize) -> Option<&[u8]> {
    let slot = image.get(at..at + SLOT)?;
    let sound = XxHash3_64::oneshot(&slot[..SLOT - 8]) == word(slot, SLOT - 8);
    (slot.starts_with(b"BROOKLET") && sound).then_some(slot)
}

/// Returns the block whose header is at `at`.
fn block(image: &[u8], at: usize) -> Option<Block> {
    let header = image.get(at..at + HEADER)?;
    let sound = XxHash3_64::oneshot(&header[..88]) == word(header, 88);
    let stored = (word(header, 72) & u64::from(u32::MAX)) as usize;
    let block = Block { seq: word(header, 24), bytes: at..at + HEADER + stored, epoch: word(header, 16) };
    (header.starts_with(b"BRKB") && sound && block.bytes.end <= image.len()).then_some(block)
}

impl RingImage {
    /// Reads the zone of the ring, and the superblock at `superblock`, both offsets on the disk.
    /// Returns `None` without a superblock.
    pub fn of(image: &[u8], ring: Range<usize>, superblock: usize) -> Option<Self> {
        let slots = (0..COPIES).filter_map(|copy| slot(image, superblock + copy * SECTOR));
        let newest = slots.max_by_key(|slot| word(slot, 32))?;
        let (epoch, mut next, acked) = (word(newest, 48), word(newest, 64), word(newest, 88));
        let mut found: Vec<Block> = ring.step_by(SECTOR).filter_map(|at| block(image, at)).collect();
        found.sort_by_key(|block| (block.seq, block.epoch));
        let mut blocks = Vec::new();
        // An opening numbers its blocks from the recovered end on: the newest of two counts.
        for same in found.chunk_by(|a, b| a.seq == b.seq) {
            let newest = same.last().expect("a chunk has a block");
            if newest.seq == next && (newest.epoch == epoch || newest.seq <= acked) {
                blocks.push(newest.clone());
                next += 1;
            }
        }
        Some(Self { blocks, acked, found, superblock })
    }

    /// Returns the disk as if block `seq` and the later ones had never been written, and, if the
    /// superblock knows them, as if it did not.
    pub fn without(&self, image: &[u8], seq: u64) -> Vec<u8> {
        let mut image = image.to_vec();
        for block in self.found.iter().filter(|block| block.seq >= seq) {
            image[block.bytes.start..block.bytes.start + HEADER].fill(0);
        }
        for copy in 0..COPIES {
            let at = self.superblock + copy * SECTOR;
            if slot(&image, at).is_some_and(|slot| word(slot, 88) >= seq) {
                image[at + 88..at + 96].copy_from_slice(&(seq - 1).to_le_bytes());
                let sum = XxHash3_64::oneshot(&image[at..at + SLOT - 8]);
                image[at + SLOT - 8..at + SLOT].copy_from_slice(&sum.to_le_bytes());
            }
        }
        image
    }
}
