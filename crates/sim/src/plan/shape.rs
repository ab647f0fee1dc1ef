//! The shape of a simulated store.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{CheckReport, Create, Error, Options, Store};

use crate::faulty_volume::{FaultyVolume, Zones};
use crate::offload_store;

/// Size of the smallest ring, in bytes.
pub(super) const LEAST_RING: u64 = 64 << 10;

/// More operations than a commit has here.
const NONE_LONG: usize = 4_000;

/// The shape of a store. Sizes, in bytes, are so small that all events are frequent.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Size that the ring may grow to.
    pub ring: u64,
    /// Size of the ring at first.
    pub first_ring: u64,
    /// Memory for recent entries.
    pub memory: usize,
    /// Size of a full block.
    pub block: usize,
    /// Most writes in flight.
    pub depth: usize,
    /// Size of the largest payload.
    pub payload: usize,
    /// Whether the ring has a volume of its own.
    pub apart: bool,
    /// Most bytes of the data volume; 0: no limit.
    pub capacity: u64,
    /// Most bytes for the remembered bounds of resting logs: a few logs, or all logs.
    pub remembered: usize,
    /// The least time between two writes to the ring; zero: none.
    pub interval: Duration,
    /// Least number of operations of a long commit.
    pub long: usize,
}

impl Shape {
    /// Draws a shape.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let ring = LEAST_RING << rng.below(3);
        Self {
            ring,
            first_ring: ring,
            memory: (64 << 10) << rng.below(3),
            block: (4 << 10) << rng.below(3),
            depth: 1 + rng.below(4) as usize,
            payload: 9 << 10,
            apart: false,
            capacity: 0,
            remembered: 0,
            interval: Duration::ZERO,
            long: NONE_LONG,
        }
    }

    /// Draws the least number of operations of a long commit.
    pub(super) fn draw_long(rng: &mut Rng) -> usize {
        if rng.percent(30) { 1 + rng.below(3) as usize } else { NONE_LONG }
    }

    /// Returns the options of a store of this shape without its own threads.
    pub fn options(&self, clock: &Arc<ManualClock>, seed: u64) -> Options {
        Options::new()
            .with_long_commits(self.long)
            .ring_size(self.ring)
            .with_first_ring(self.first_ring)
            .memory_budget(self.memory)
            .block_size(self.block)
            .depth(self.depth)
            .max_payload(self.payload)
            .capacity(self.capacity)
            .bounds_cache(self.remembered)
            .write_interval(self.interval)
            .create(Create::Never)
            .offload_reader(offload_store::open)
            .threads(false)
            .clock(clock.clone())
            .rng_seed(seed)
    }

    /// Returns the faulty volume of such a store on a disk.
    pub fn volume(&self, disk: MemVolume) -> FaultyVolume {
        FaultyVolume::new(disk, Zones::new(self.ring, self.apart))
    }

    /// Creates an empty store of this shape.
    pub fn create(&self, volume: &FaultyVolume, clock: &Arc<ManualClock>, seed: u64) -> Result<Store, Error> {
        let options = self.options(clock, seed);
        match volume.volumes() {
            (data, Some(ring)) => options.create_on_with_ring(data, ring),
            (data, None) => options.create_on(data),
        }
    }

    /// Opens a store of this shape.
    pub fn open(&self, volume: &FaultyVolume, clock: &Arc<ManualClock>, seed: u64) -> Result<Store, Error> {
        let options = self.options(clock, seed);
        match volume.volumes() {
            (data, Some(ring)) => options.open_on_with_ring(data, ring),
            (data, None) => options.open_on(data),
        }
    }

    /// Checks all contents of a closed store.
    pub fn check(&self, volume: &FaultyVolume) -> Result<CheckReport, Error> {
        let (data, ring) = volume.volumes();
        Options::new().offload_reader(offload_store::open).check_on(data, ring)
    }
}
