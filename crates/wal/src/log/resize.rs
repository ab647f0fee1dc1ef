//! Resizes a log in use. `crate::resize` and `crate::map` describe the change of the ring; this
//! module changes the volume and the label, in this order:
//!
//! 1. Growing: the volume grows and the new space is written, durably. A crash leaves a volume that
//!    is too large.
//! 2. The label stores the new map, in both slots. A crash before the second write leaves different
//!    maps in the slots, but no block exists yet whose place differs between them.
//! 3. Shrinking: once the unneeded space holds no live block, immediately or after a trim, the
//!    label drops the old span, in both slots, and the volume shrinks.

use brooklet_io::seeded::bug;

use super::error::LogError;
use super::label::{Label, RING_OFFSET};
use super::open::allocate;
use super::options::LogOptions;
use super::{Log, Lsn};
use crate::error::WalError;
use crate::resize::NotResized;

impl Log {
    /// Sets the size of the ring to `bytes`: whole sectors (4 KiB) from 64 KiB to 1 TiB. Copies
    /// nothing, and loses nothing. Appends continue, except during two durable writes.
    ///
    /// The new size is permanent; it determines the largest record and the size of blocks. While
    /// the log keeps records from before the resize, new records may find less room than the new
    /// size promises ([`LogStats::settling`](crate::LogStats::settling)). A smaller ring releases
    /// its space after that.
    ///
    /// # Errors
    /// [`LogError::NoRoom`] and [`LogError::Settling`] if something must be trimmed first;
    /// [`LogError::Invalid`] for a size that no ring has; the volume's error if it cannot grow. The
    /// log is then unchanged.
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
        let resized = self.wal.resize_within(bytes, limits, |map, end| {
            let label = Label { map, acked: end.seq - 1, ..old };
            if !bug("log-resize-is-not-recorded") {
                self.record(&mut label_store, &mut pending, label)?;
            }
            label_store.settles = map.before.map(|_| end);
            Ok(())
        })?;
        if let Err(why) = resized {
            // Releases only the space that growing added.
            self.give_back(volume_size.max(old.end()));
            return Err(match why {
                NotResized::NoRoom { free } => LogError::NoRoom { size: bytes, free },
                NotResized::MirrorLags => WalError::Busy.into(),
            });
        }
        let end = label_store.on_volume.label.end();
        if end < old.end() {
            self.give_back(end);
        }
        Ok(())
    }
}
