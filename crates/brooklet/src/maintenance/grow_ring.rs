//! Grows the ring. A new store has a small ring, which grows under load up to its full size: so a
//! small store takes little space.
//!
//! The steps of a growth: the new space is allocated, written with zeros and flushed; the log
//! pauses, and all its blocks become durable; the superblock stores the new map of the ring's
//! positions; the log continues. After a crash before the superblock, the ring does not use the new
//! space. After a crash while the copies of the superblock are written, either map locates every
//! block, because no block was written since.
//!
//! If there is no room for a larger ring, the ring keeps its size, and checkpoints keep it in use.
//! The next checkpoint makes another attempt possible.

use std::io;
use std::ops::Range;

use brooklet_io::Volume;
use brooklet_io::seeded::bug;
use brooklet_wal::{NotResized, WalError};

use crate::error::{Error, described, is_full};
use crate::format::superblock::{RING_OFFSET, Superblock};
use crate::maintenance::{Context, Maintenance};
use crate::run::writer::BuildError;
use crate::volume::create::zero;

/// The reason why the ring does not grow.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    why: String,
    /// Whether a checkpoint makes room for the growth.
    until_checkpoint: bool,
    /// Number of checkpoints before.
    checkpoints: u64,
}

const MIRROR_LAGS: &str = "the mirror of the log is far behind";

impl Maintenance {
    /// Returns the size of the ring, and the size that the ring may grow to now, in bytes.
    pub fn ring_sizes(&self) -> (u64, u64) {
        let Superblock { map, ring_size, .. } = self.superblock;
        let size = map.current.size;
        let waits = map.before.is_some() || self.ring_refusal().is_some();
        (size, if waits { size } else { ring_size })
    }

    /// Returns the reason why the ring does not grow before the next checkpoint, if there is one.
    pub fn ring_refusal(&self) -> Option<&str> {
        let refused = self.ring_refused.as_ref().filter(|it| it.checkpoints == self.stats.checkpoints);
        refused.map(|refused| &*refused.why)
    }

    /// Returns the reason why the ring does not grow before or after the next checkpoint, if there
    /// is one.
    pub fn lasting_ring_refusal(&self) -> Option<&str> {
        let lasts = self.ring_refused.as_ref().is_some_and(|it| !it.until_checkpoint);
        self.ring_refusal().filter(|_| lasts)
    }

    /// Grows the ring to `size` bytes. Returns `false` if the ring cannot grow now.
    pub fn grow_ring(&mut self, context: &Context<'_>, size: u64) -> Result<bool, Error> {
        if context.wal.mirror_lags() {
            return Ok(self.refuse_ring(MIRROR_LAGS.into(), true));
        }
        let ring = self.volumes.ring().clone();
        let new = self.superblock.ring_reach()..RING_OFFSET + size;
        match allocate(&*ring, new.clone()) {
            Ok(()) => {}
            Err(error) if is_full(&error) => {
                self.give_back(&*ring, new);
                return Ok(self.refuse_ring(error.to_string(), false));
            }
            Err(error) => {
                return Err(self.fatal(context, BuildError::Fatal(described("writing", &*ring)(error))));
            }
        }
        // The flush is that of a running checkpoint's tables, too: if it fails for lack of room,
        // they may be lost.
        if let Err(error) = ring.flush() {
            return Err(self.fatal(context, BuildError::Fatal(described("flushing", &*ring)(error))));
        }
        let resized = context.wal.resize(size, |map, end| {
            let generation = self.superblock.generation + 1;
            let next = Superblock { generation, acked: end.seq - 1, map, ..self.superblock };
            if !bug("ring-growth-is-not-recorded")
                && let Err(error) = next.write(&*self.volumes.data)
            {
                let error = described("writing the superblock of", &*self.volumes.data)(error);
                self.fatal(context, BuildError::Fatal(error));
                return Err(context.wal.failure().unwrap_or(WalError::Closed));
            }
            self.superblock = next;
            Ok(())
        })?;
        match resized {
            Ok(()) => {
                tracing::info!(size, "the ring grew");
                Ok(true)
            }
            Err(NotResized::NoRoom { free }) => {
                self.give_back(&*ring, new);
                let why = format!("the ring in use leaves {free} bytes for new commits");
                Ok(self.refuse_ring(why, true))
            }
            Err(NotResized::MirrorLags) => {
                self.give_back(&*ring, new);
                Ok(self.refuse_ring(MIRROR_LAGS.into(), true))
            }
        }
    }

    fn refuse_ring(&mut self, why: String, until_checkpoint: bool) -> bool {
        tracing::info!(why, "the ring keeps its size until the next checkpoint");
        self.ring_refused = Some(Refused { why, until_checkpoint, checkpoints: self.stats.checkpoints });
        false
    }

    /// Returns the space of a larger ring to the file system. If that fails, the space stays
    /// allocated until the ring grows.
    fn give_back(&self, ring: &dyn Volume, space: Range<u64>) {
        if let Err(error) = ring.punch(space) {
            tracing::debug!(%error, "the space of a larger ring stays allocated");
        }
    }
}

/// Allocates the space of a larger ring, and writes it.
fn allocate(ring: &dyn Volume, space: Range<u64>) -> io::Result<()> {
    ring.allocate_range(space.clone())?;
    zero(ring, space)
}
