//! Stores the label of a log in use: its changes, and trims. On the volume, a trim changes only the
//! label.

use std::io;

use brooklet_io::seeded::bug;

use super::error::LogError;
use super::label::Label;
use super::open::Labelled;
use super::{Log, Lsn};
use crate::error::WalError;
use crate::ring::Cursor;
use crate::shared::PendingNotify;
use crate::sync::MutexGuard;

/// The label, and the state that its changes need.
pub(super) struct LabelStore {
    pub on_volume: Labelled,
    /// Start of the newest span, while blocks of the previous span are live.
    pub settles: Option<Cursor>,
}

impl Log {
    /// Drops the records before `lsn`; they are gone for good when the call returns. Costs one
    /// durable write of 4 KiB, and a [`flush`](Self::flush) if `lsn` is not durable yet.
    ///
    /// Frees the ring up to the block that holds `lsn`; in a ring of more than 16,384 blocks, up to
    /// a block a little before it. A trim to the start of the log, or before it, does nothing. An
    /// `lsn` inside a record drops that record, too.
    ///
    /// # Errors
    /// [`LogError::PastEnd`]: nothing was trimmed.
    pub fn trim(&self, lsn: Lsn) -> Result<(), LogError> {
        self.wal.may_wait()?;
        let _hush = self.wal.hush();
        let mut pending = None;
        let mut label_store = self.label_store();
        self.check()?;
        if lsn <= self.first() {
            return Ok(());
        }
        let end = self.next();
        if lsn > end {
            return Err(LogError::PastEnd { lsn, end });
        }
        if lsn.0 > self.tracker.lock().end().lsn {
            self.flush()?;
        }
        let (mut trim, end) = {
            let index = self.tracker.lock();
            (index.locate(lsn), index.end())
        };
        if let Some(settles) = label_store.settles.filter(|span| span.lsn <= lsn.0 && span.seq > trim.seq) {
            trim = settles;
        }
        let old = label_store.on_volume.label;
        if bug("log-trims-the-next-block") {
            trim = end;
        }
        let mut label = Label { trim, first: lsn.0, acked: end.seq - 1, ..old };
        label.map.settle(trim.position);
        self.record(&mut label_store, &mut pending, label)?;
        self.tracker.lock().trim(trim, lsn);
        self.wal.trim(trim);
        if label.end() < old.end() {
            self.give_back(label.end());
        }
        Ok(())
    }

    /// Makes `label` durable as the next label: in both slots if its map differs, else in one.
    ///
    /// On failure, `pending` holds the notification. It outlives the lock on the label store,
    /// because a callback may need that lock.
    pub(super) fn record<'a>(
        &'a self,
        label_store: &mut LabelStore,
        pending: &mut Option<PendingNotify<'a>>,
        label: Label,
    ) -> Result<(), WalError> {
        let old = label_store.on_volume.label;
        let label = Label { generation: old.generation + 1, ..label };
        let written = if label.map == old.map || bug("log-resizes-one-slot") {
            label_store.on_volume.write_one(&*self.volume, label)
        } else {
            label_store.on_volume.write_both(&*self.volume, label)
        };
        if let Err(error) = written {
            // The valid label is unknown until the next opening.
            *pending = Some(self.wal.fail(error));
            self.check()?;
        }
        label_store.settles = label_store.settles.filter(|_| label.map.before.is_some());
        Ok(())
    }

    /// Releases the volume's space from `end` on.
    pub(super) fn give_back(&self, end: u64) {
        if let Err(error) = self.volume.shrink(end) {
            tracing::warn!(%error, "space behind the ring stays allocated");
        }
    }

    pub(super) fn label_store(&self) -> MutexGuard<'_, LabelStore> {
        self.label_store.lock().unwrap_or_else(|poisoned| {
            // The valid label is unknown.
            drop(self.wal.fail(io::Error::other("a thread panicked while it changed the label")));
            poisoned.into_inner()
        })
    }
}
