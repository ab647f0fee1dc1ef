//! The size of the ring: when it grows. `maintenance/grow_ring.rs` describes how.
//!
//! The ring grows to twice its size when it is more than half full, and for a commit that a ring of
//! its size does not take. Once it has its full size, or cannot grow, a ring that is half full
//! makes a checkpoint due.

use brooklet_wal::{Wal, WalError, max_record};

use crate::engine::Inner;
use crate::error::Error;
use crate::maintenance::{Context, Maintenance};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, held};

/// The sizes of the ring, as maintenance reported them last.
pub(super) struct RingSizes {
    /// The size of the ring at its largest, in bytes.
    pub full: u64,
    size: AtomicU64,
    /// The size that the ring may grow to now.
    limit: AtomicU64,
    /// Length of the largest record that waits for a larger ring, in bytes.
    record: AtomicUsize,
    /// Set when maintenance is asked to grow the ring, until its next slice. A commit may find no
    /// room although the ring is only half full: the end of a lap is too short for its block.
    told: AtomicBool,
    /// The reason why the ring cannot grow now.
    refused: Mutex<Option<String>>,
}

impl RingSizes {
    pub fn new(maintenance: &Maintenance) -> Self {
        let (size, limit) = maintenance.ring_sizes();
        Self {
            full: maintenance.superblock.ring_size,
            size: AtomicU64::new(size),
            limit: AtomicU64::new(limit),
            record: AtomicUsize::new(0),
            told: AtomicBool::new(false),
            refused: Mutex::default(),
        }
    }

    /// Returns the size that the ring may grow to now, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns whether a ring with `used` bytes should grow.
    pub fn should_grow(&self, used: u64) -> bool {
        let size = self.size.load(Ordering::Relaxed);
        used > size / 2 && size < self.limit()
    }

    /// Returns whether so many bytes of empty blocks are worth a write of the superblock.
    pub fn is_worth_freeing(&self, used: u64) -> bool {
        used > self.size.load(Ordering::Relaxed) / 8
    }

    /// Returns whether the request to grow is the first since the last slice of maintenance.
    pub fn is_news(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}

impl Inner {
    /// Grows the ring, if that is due. Returns whether the ring grew.
    pub(super) fn grow_ring(
        &self,
        maintenance: &mut Maintenance,
        context: &Context<'_>,
    ) -> Result<bool, Error> {
        let ring = &self.ring;
        let asked = ring.told.swap(false, Ordering::Relaxed);
        let (size, limit) = maintenance.ring_sizes();
        let used = context.wal.stats().used;
        let mut wanted = if asked || used > size / 2 { 2 * size } else { size };
        let record = ring.record.load(Ordering::Relaxed);
        while wanted < limit && max_record(wanted) < record {
            wanted *= 2;
        }
        let wanted = wanted.min(limit);
        if wanted > size {
            // The log pauses until nothing is on its way.
            self.step_committer(true);
        }
        let grew = wanted > size && maintenance.grow_ring(context, wanted)?;
        if wanted > size {
            ring.record.store(0, Ordering::Relaxed);
        }
        let settles = max_record(size) < record && maintenance.ring_refusal().is_none();
        if !grew && (wanted > size || settles) {
            // A checkpoint makes room in the ring as it is, and ends the older span.
            self.wanted.store(true, Ordering::Relaxed);
        }
        let (size, limit) = maintenance.ring_sizes();
        ring.size.store(size, Ordering::Relaxed);
        ring.limit.store(limit, Ordering::Relaxed);
        *held(&ring.refused) = maintenance.lasting_ring_refusal().map(str::to_owned);
        Ok(grew)
    }

    /// Converts the refusal of a commit of `len` bytes that is too large for the ring: into no
    /// room, if the ring may be larger.
    pub(super) fn too_large(&self, len: usize) -> Result<WalError, Error> {
        let limit = max_record(self.ring.full);
        if len > limit {
            return Err(Error::CommitTooLarge { len, limit });
        }
        self.ring.record.fetch_max(len, Ordering::Relaxed);
        Ok(WalError::TooLarge { len, limit })
    }

    /// Returns the error of a commit that needs a larger ring, and must not wait for it.
    pub(super) fn needs_larger_ring(&self) -> Error {
        match held(&self.ring.refused).take() {
            Some(why) => no_larger_ring(why),
            None => Error::Busy { why: "the ring has to grow for this commit".into() },
        }
    }

    /// Grows the ring for a commit that a ring of its size does not take.
    pub(super) fn grow_ring_for_commit(&self, wal: &Wal) -> Result<(), Error> {
        wal.may_wait()?;
        let _hush = self.hush();
        let context = self.context()?;
        let Some(mut maintenance) = self.free_maintenance() else {
            return Err(self.needs_larger_ring());
        };
        if self.grow_ring(&mut maintenance, &context)? {
            return Ok(());
        }
        if let Some(why) = maintenance.lasting_ring_refusal() {
            return Err(no_larger_ring(why.into()));
        }
        // Blocks in the ring bar another growth.
        drop(maintenance);
        self.checkpoint()
    }
}

fn no_larger_ring(why: String) -> Error {
    Error::Full { what: "the larger ring that this commit needs", why }
}
