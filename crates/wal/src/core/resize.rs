//! The changes of the core when the ring is resized; `crate::resize` has the steps.

use brooklet_io::SECTOR;

use super::open_block::FRAME;
use super::{Core, Setup};
use crate::config::{Config, max_record};
use crate::format::disk_len;
use crate::map::Map;
use crate::ring::Ring;

/// The limits that follow from the size of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub block_size: usize,
    pub max_record: usize,
    pub reserve: u64,
}

impl Limits {
    /// Returns the limits of a log with `config`, in a ring of `size` bytes.
    pub fn new(config: &Config, size: u64) -> Self {
        let block_size = config.block_size.min(size as usize / 8);
        // A record that frees space finds room for a block of the usual size at every position of
        // the ring.
        let reserve = size * u64::from(config.reserve_percent) / 100;
        let least = if config.reserve_percent > 0 { disk_len(block_size) + 2 * SECTOR } else { 0 };
        let reserve = reserve.max(least as u64);
        Self { block_size, max_record: max_record(size), reserve }
    }
}

impl Core {
    pub fn map(&self) -> Map {
        *self.ring.map()
    }

    /// Refuses appends until [`resume`](Self::resume).
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Allows appends again.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Returns the map of an idle log after a resize. If the largest record would then find no
    /// room, returns the bytes of room as the error.
    pub fn resized(&self, limits: &Limits, size: u64) -> Result<Map, u64> {
        let (tail, head) = (self.ring.tail(), self.end().position);
        let map = self.ring.map().resized(tail, head, size);
        let largest = disk_len(limits.max_record + FRAME) as u64;
        let room = map.limit(tail).saturating_sub(head);
        let fits = room > 0 && Ring::new(map, tail, head).has_room(0, largest, largest, limits.reserve);
        if fits { Ok(map) } else { Err(room) }
    }

    /// Continues in a ring of another size, which a durable label records.
    pub fn change(&mut self, limits: Limits, map: Map) {
        assert!(self.is_idle() && self.paused, "a ring changes while nothing is on its way");
        let Limits { block_size, max_record, reserve } = limits;
        self.setup = Setup { max_record, reserve, ..self.setup };
        self.tuner.limit_blocks(block_size);
        self.ring = Ring::new(map, self.ring.tail(), self.ring.head());
    }
}
