//! Resizing a log while it is in use. How the ring changes is told in `crate::resize` and
//! `crate::map`; here is what the volume and the label see, in order:
//!
//! 1. Growing: the volume is grown and the new space written, durably. A crash leaves a volume that
//!    is too large.
//! 2. The label names the new map, in both slots. A crash before the second leaves the one or the
//!    other, and no block yet about which they would disagree.
//! 3. Shrinking: once no block lives in the space that is not needed any more, at once or after a
//!    trim, the label drops the old span, in both slots, and the volume shrinks.

use brooklet_io::seeded::bug;

use super::error::LogError;
use super::label::{Label, RING_OFFSET};
use super::open::allocate;
use super::options::LogOptions;
use super::{Log, Lsn};

impl Log {
    /// Makes the ring `bytes` large, in whole sectors (4 KiB) from 64 KiB to 1 TiB. Nothing is
    /// copied, and nothing lost. Appends go on, but for a moment in which they wait for two durable
    /// writes.
    ///
    /// The new size is the log's from now on; the largest record and the blocks are what it allows.
    /// While records from before the resize are kept, new ones may find less room than the new size
    /// promises ([`LogStats::settling`](crate::LogStats::settling)); a smaller ring gives its space
    /// back after that.
    ///
    /// # Errors
    /// [`LogError::NoRoom`] and [`LogError::Settling`] where something must be trimmed first,
    /// [`LogError::Invalid`] for a size that no ring has, and what the volume says if it cannot
    /// grow. Nothing has changed then.
    pub fn resize(&self, bytes: u64) -> Result<(), LogError> {
        self.wal.may_wait()?;
        LogOptions::check_size(bytes)?;
        let _hush = self.wal.hush();
        let mut pending = None;
        let mut label_store = self.label_store();
        self.check()?;
        if let Some(span) = label_store.settles {
            return Err(LogError::Settling { until: Lsn(span.lsn) });
        }
        let old = label_store.on_volume.label;
        if bytes == old.map.current.size {
            return Ok(());
        }
        let volume_size = self.volume().size()?;
        if bytes > old.map.current.size {
            allocate(self.volume(), old.end(), RING_OFFSET + bytes)
                .inspect_err(|_| self.give_back(volume_size.max(old.end())))?;
        }
        self.run_committer();
        let limits = self.options.limits(bytes);
        let resized = self.wal.resize(bytes, limits, |map, end| {
            let label = Label { map, acked: end.seq - 1, ..old };
            if !bug("log-resize-is-not-recorded") {
                self.record(&mut label_store, &mut pending, label)?;
            }
            label_store.settles = map.before.map(|_| end);
            Ok(())
        })?;
        if let Err(free) = resized {
            // What growing had added, and no more.
            self.give_back(volume_size.max(old.end()));
            return Err(LogError::NoRoom { size: bytes, free });
        }
        let end = label_store.on_volume.label.end();
        if end < old.end() {
            self.give_back(end);
        }
        Ok(())
    }
}
