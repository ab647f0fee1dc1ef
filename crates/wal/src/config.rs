//! How a log works and where its ring lies, as its owner chooses.

use std::time::Duration;

use brooklet_io::SECTOR;

use crate::format::{Codec, HEADER};

/// Where a ring lies on its volume, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Offset of the ring's first byte on the volume; a multiple of the sector size.
    pub offset: u64,
    /// Bytes of the ring; a multiple of the sector size. The space must be allocated and written
    /// before.
    pub size: u64,
    /// Identity of the store: blocks of another are never taken for ours.
    pub store: u64,
}

/// How a log works. The defaults suit a local solid-state disk.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most bytes of a block, before compression. 1 MiB. That is what a log starts with; it finds
    /// out under load whether smaller ones serve better. What waits for a block that fills slowly
    /// is written before it is full.
    pub block_size: usize,
    /// Most writes in flight at once. 16: enough to hide a cloud volume's latency. A log starts
    /// with 4 and finds out.
    pub depth: usize,
    /// The strongest codec in use. [`Codec::Zstd`]. A log starts with [`Codec::Lz4`]; where that
    /// costs more time than it saves it finds out and steps back, and where a stronger one costs no
    /// throughput it steps up.
    pub codec: Codec,
    /// The least time from the start of a write to the start of the next, for a volume that is paid
    /// for by the operation: 1/3000 s, say. None: zero. Where there is a pace, only a
    /// [`Committer`](crate::Committer) writes.
    pub interval: Duration,
    /// Most bytes written in a second, for a volume that is paid for by the byte. No limit: zero.
    pub rate: u64,
    /// How long an append may rest when nobody waits for it. 1 ms.
    pub linger: Duration,
    /// Part of the ring, in percent, that only records which free space may use. 12: trims still
    /// find room when everything else is full.
    pub reserve_percent: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            block_size: 1 << 20,
            depth: 16,
            codec: Codec::Zstd,
            interval: Duration::ZERO,
            rate: 0,
            linger: Duration::from_millis(1),
            reserve_percent: 12,
        }
    }
}

/// Largest record that a ring of `size` bytes takes: with a lap's end before it and the reserve, it
/// fits in an empty one.
pub fn max_record(size: u64) -> usize {
    // Lengths are 32 bits wide in a block; less than a gigabyte leaves room for what is added to a
    // record on its way.
    (size / 3 / SECTOR as u64 * SECTOR as u64)
        .min((1 << 30) - (1 << 20))
        .saturating_sub((SECTOR + HEADER) as u64) as usize
}

/// Bytes of the smallest ring that works: four records of a sector each.
pub const MIN_RING: u64 = 64 << 10;

const _: () = assert!(MIN_RING as usize / 4 > SECTOR + HEADER);
