//! The options of a ring log, and the location of its ring.

use std::time::Duration;

use brooklet_io::SECTOR;

use crate::format::{Codec, HEADER};

/// The location of a ring on its volume, and the identity of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Offset of the ring's first byte on the volume; a multiple of the sector size.
    pub offset: u64,
    /// Size of the ring, in bytes; a multiple of the sector size. The space must be allocated and
    /// written before.
    pub size: u64,
    /// Identity of the store: the log never takes blocks of another store for its own.
    pub store: u64,
}

/// The options of a ring log. The defaults suit a local solid-state disk.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most bytes of a block, before compression. Default 1 MiB. A log starts with this size, and
    /// tries under load whether smaller blocks serve better. A block that fills slowly is written
    /// before it is full.
    pub block_size: usize,
    /// Most writes in flight at once. Default 16: enough to hide a cloud volume's latency. A log
    /// starts with 4 and adapts under load.
    pub depth: usize,
    /// The strongest codec in use. Default [`Codec::STRONGEST`], which is also the limit. A log
    /// starts with [`Codec::Lz4`]. It steps down if the codec costs more time than it saves, and
    /// steps up if a stronger codec costs no throughput.
    pub codec: Codec,
    /// The least time from the start of a write to the start of the next, for a volume that is
    /// billed by the operation: for example 1/3000 s. Default zero: no pace. With a pace, only a
    /// [`Committer`](crate::Committer) writes.
    pub interval: Duration,
    /// Most bytes written per second, for a volume that is billed by the byte. Default zero: no
    /// limit.
    pub rate: u64,
    /// The longest time that an append may rest if nobody waits for it. Default 1 ms.
    pub linger: Duration,
    /// Part of the ring, in percent, reserved for records that free space. Default 12: trims still
    /// find room when all else is full.
    pub reserve_percent: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            block_size: 1 << 20,
            depth: 16,
            codec: Codec::STRONGEST,
            interval: Duration::ZERO,
            rate: 0,
            linger: Duration::from_millis(1),
            reserve_percent: 12,
        }
    }
}

/// Returns the size of the largest record that a ring of `size` bytes takes, in bytes: with the
/// unused end of a lap before it, and the reserve, it fits in an empty ring.
pub fn max_record(size: u64) -> usize {
    // Lengths in a block have 32 bits; less than a gigabyte leaves room for the bytes that the log
    // adds to a record.
    (size / 3 / SECTOR as u64 * SECTOR as u64)
        .min((1 << 30) - (1 << 20))
        .saturating_sub((SECTOR + HEADER) as u64) as usize
}

/// More payload bytes before compression than a block of any ring has. A ring may have been larger
/// when a block was written, so only this bounds the lengths that a recovery believes.
pub(crate) const LONGEST_PAYLOAD: u32 = 1 << 30;

/// Bytes of the smallest usable ring: four records of a sector each.
pub const MIN_RING: u64 = 64 << 10;

const _: () = assert!(MIN_RING as usize / 4 > SECTOR + HEADER);
