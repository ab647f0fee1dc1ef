//! Backups that shorten the log.

use std::ops::ControlFlow;

use brooklet::Store;
use brooklet_archive::{Archive, Archived, Which};

use crate::error::Error;
use crate::replica::Replica;
use crate::shipper::ShipperStatus;

/// Objects behind the last recorded mark from which on a store without commits is backed up anew.
/// An owner appends a beat each second, and each takeover reads all of them.
const BEATS: u64 = 300;

impl Replica {
    /// Backs the store up to an archive, and lets the log begin behind the backup: a host that
    /// takes the store over then reads this backup, and less of the log. Goes on while `goes_on`
    /// returns true and this host owns the log. Returns `None` if the log has nothing new since the
    /// last call. If it has nothing but hundreds of beats, the store writes an empty block, so that
    /// the log can begin behind the beats.
    ///
    /// A backup begins with a checkpoint, and a checkpoint waits until the bucket keeps its blocks,
    /// in each mode. So the backup has no commit that a takeover could lose. While the bucket does
    /// not answer, the call waits; [`give_up`](Self::give_up) ends that.
    ///
    /// # Errors
    /// [`Error::NoLog`] before an opening has claimed the log; [`Error::DamagedBackup`],
    /// [`Error::LostBackup`]; the errors of [`Archive::backup`], which include the end that
    /// `goes_on` asked for; the reason why the shipping ended. After an error the log is as it was.
    pub fn back_up(
        &self,
        store: &Store,
        archive: &mut Archive,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Archived>, Error> {
        let shipper = self.shipper().ok_or(Error::NoLog)?;
        let goes_on = || goes_on() && shipper.error().is_none();
        // The backup that follows has everything before a mark that is known now.
        let recordable = || shipper.status().recordable.filter(|mark| !self.is_recorded(*mark));
        let mark = match recordable() {
            None if self.has_beats(&shipper.status()) => {
                if store.write_empty_block().map_err(Error::Store)? {
                    shipper.drain(goes_on)?;
                }
                recordable()
            }
            mark => mark,
        };
        let Some(mark) = mark else { return Ok(None) };
        let progress = |_| if goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let archived = archive.backup(store, progress)?;
        if archived.damaged_parts > 0 {
            // The log may have the only sound copy.
            return Err(Error::DamagedBackup { number: archived.number, parts: archived.damaged_parts });
        }
        // The backup refers to objects of earlier ones.
        let missing = archive.bucket().backup(Which::Number(archived.number))?.missing()?;
        if let Some(first) = missing.first() {
            let (number, first) = (archived.number, format!("{}/{first}", archive.bucket()));
            return Err(Error::LostBackup { number, objects: missing.len(), first });
        }
        debug_assert!(shipper.status().kept.lsn >= archived.lsn, "a checkpoint waits for the bucket");
        shipper.record(mark, archived.number);
        self.note_recorded(mark);
        Ok(Some(archived))
    }

    /// Returns whether many objects of this owner are behind the last mark that it recorded.
    fn has_beats(&self, status: &ShipperStatus) -> bool {
        let kept = status.kept.place;
        let recorded = self.recorded().filter(|mark| mark.place.epoch == kept.epoch);
        kept.number > recorded.map_or(0, |mark| mark.place.number) + BEATS
    }
}
