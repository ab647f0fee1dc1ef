//! Catching up: brings the file of a store to the end of a log that others have continued, by the
//! blocks that a [mirror](crate::Mirror) kept.
//!
//! The blocks are in the ring of another host, at other places, and each block's checksum chains it
//! to the one before. So they cannot be written to the ring of this file. They are replayed into
//! the memtable instead, as recovery replays the blocks of the ring, and a checkpoint makes them a
//! run. The superblock that ends the checkpoint says that the ring begins behind the last block.
//! Before that moment the file is as it was: a crash takes back nothing and adds nothing.

use std::path::Path;
use std::sync::Arc;

use brooklet_io::Volume;
use brooklet_io::seeded::bug;
use brooklet_wal::{Block, Cursor, SealedBlock};

use crate::engine::Inner;
use crate::engine::recovery::{self, Opened};
use crate::error::Error;
use crate::format::superblock::id_in_ring;
use crate::options::{Create, Options};
use crate::store::Store;
use crate::transfer::subscribe::damaged;
use crate::volume::{self, Volumes};

/// The place of a store's end among the blocks of its log, after [`Options::catch_up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaughtUp {
    /// The store ends with the last block.
    Done,
    /// The store ends behind the last block, or with an empty block there. It did not change. The
    /// next blocks show whether it continues the log.
    Ahead,
    /// The store ends before the first block begins, or has another history there. It did not
    /// change.
    Outdated,
    /// The store has blocks that the log lacks. It did not change.
    Apart,
}

impl CaughtUp {
    /// Compares a store with blocks none of which ends at the end of the store.
    pub(super) fn of(blocks: &[SealedBlock], end: Cursor) -> Self {
        match (blocks.first(), blocks.last()) {
            (Some(first), _) if end.lsn <= first.begin => Self::Outdated,
            (_, Some(last)) if end.lsn < last.end => Self::Apart,
            _ => Self::Ahead,
        }
    }
}

impl Options {
    /// Brings the store at `path` to the end of `blocks`: consecutive blocks of the log of the
    /// store `store`, for example those that a [mirror](Self::mirror) kept. The call skips blocks
    /// that the store has. The store must not be open, and is closed afterwards. The call writes
    /// the new entries as one run, and holds all of them in memory meanwhile: so pass a long log in
    /// parts.
    ///
    /// Each call adds a run, and many runs must be merged. Once the store has the blocks, the call
    /// merges as long as a merge is due and `merges` returns true.
    ///
    /// Only the log's owner may append to the store. A store that catches up stays as it is until
    /// the log has more, or until it is opened with the mirror that kept the blocks.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) and [`Store::checkpoint`]; [`Error::MirrorRefused`] if
    /// the file is one of another store, or a space of the store is kept in memory;
    /// [`Error::Damaged`] if the blocks are of another store, or do not follow one another.
    pub fn catch_up(
        mut self,
        path: impl AsRef<Path>,
        store: u128,
        blocks: &[SealedBlock],
        merges: impl Fn() -> bool,
    ) -> Result<CaughtUp, Error> {
        self.create = Create::Never;
        self.validate()?;
        let (path, options) = self.settled(path.as_ref())?;
        let volumes = volume::open(&path, &options)?;
        options.continue_on(volumes, store, blocks, &merges)
    }

    /// Catches up like [`catch_up`](Self::catch_up), on a volume.
    #[doc(hidden)]
    pub fn catch_up_on(
        self,
        volume: Arc<dyn Volume>,
        store: u128,
        blocks: &[SealedBlock],
    ) -> Result<CaughtUp, Error> {
        self.validate()?;
        self.continue_on(Volumes { data: volume, ring: None }, store, blocks, &|| true)
    }

    fn continue_on(
        mut self,
        volumes: Volumes,
        store: u128,
        blocks: &[SealedBlock],
        merges: &dyn Fn() -> bool,
    ) -> Result<CaughtUp, Error> {
        // A commit of the store's own would be one that the log lacks.
        (self.threads, self.sweeps) = (false, false);
        (self.read_only, self.beside_writer) = (false, false);
        (self.mirror, self.metrics_file) = (None, None);
        let _span = tracing::info_span!("catch_up", store = volumes.data.info().name).entered();
        let (volumes, tethers) = volumes.tethered();
        let mut opened = recovery::load(&volumes, &self)?;
        check(&opened, store)?;
        let end = opened.recovery.next;
        let Some(rest) = behind(store, blocks, end)? else {
            return Ok(CaughtUp::of(blocks, end));
        };
        let Some(last) = rest.last() else { return Ok(CaughtUp::Done) };
        // Nothing may bypass the log.
        opened.superblock.mirrored = true;
        recovery::claim(&mut opened, &self)?;
        replay(&mut opened, rest)?;
        let next = Cursor { lsn: last.end, chain: last.sum, ..opened.recovery.next };
        opened.recovery.next = next;
        let store = Store::start(opened, self, tethers)?;
        store.inner().continue_at(next)?;
        // What was to be in the store is in it, whatever becomes of a merge.
        while merges()
            && store.inner().maintain().unwrap_or_else(|error| {
                tracing::warn!(%error, "a merge failed; a later one may do its work");
                false
            })
        {}
        store.close()?;
        Ok(CaughtUp::Done)
    }
}

/// Refuses a file that cannot continue the log of the store.
pub(super) fn check(opened: &Opened, store: u128) -> Result<(), Error> {
    if opened.superblock.id != store {
        // Neither the file nor the log is damaged.
        let (found, why) = (opened.superblock.id, "choose another file, or the place of its log");
        let why = format!("the file is of store {found:032x}, and the log is of store {store:032x}: {why}");
        return Err(Error::MirrorRefused { why });
    }
    if !opened.state.spaces.in_memory().is_empty() {
        let why = "a space is kept in memory: configure it with another class first".into();
        return Err(Error::MirrorRefused { why });
    }
    Ok(())
}

/// Refuses blocks of another log than that of the store: the first block of each log begins at the
/// same place, and follows no other.
pub(super) fn expect_of(store: u128, blocks: &[SealedBlock]) -> Result<(), Error> {
    let store = id_in_ring(store);
    if !blocks.iter().all(|block| block.store() == Some(store)) {
        return Err(damaged("they are blocks of another store"));
    }
    Ok(())
}

/// Returns the blocks behind the end of a store's log; `None` if that end is not among their ends.
pub(super) fn behind(
    store: u128,
    blocks: &[SealedBlock],
    end: Cursor,
) -> Result<Option<&[SealedBlock]>, Error> {
    expect_of(store, blocks)?;
    if !blocks.windows(2).all(|pair| pair[1].previous == pair[0].sum && pair[1].begin == pair[0].end) {
        return Err(damaged("a block does not follow the one before it"));
    }
    let is_end = |block: &SealedBlock| (block.end, block.sum) == (end.lsn, end.chain);
    let begins = |block: &SealedBlock| (block.begin, block.previous) == (end.lsn, end.chain);
    let at = match blocks.iter().rposition(is_end) {
        Some(last) => Some(last + 1),
        None => blocks.first().is_some_and(begins).then_some(0),
    };
    Ok(at.map(|at| &blocks[at..]))
}

/// Replays blocks of the log into the memtable. They are in no place of the ring: their numbers
/// only keep them in order.
fn replay(opened: &mut Opened, blocks: &[SealedBlock]) -> Result<(), Error> {
    let mut at = opened.recovery.next;
    for block in blocks {
        let next = Cursor { seq: at.seq + 1, lsn: block.end, chain: block.sum, ..at };
        if block.begin < block.end {
            let records = block.records().ok_or_else(|| damaged("a block does not decompress"))?;
            opened.state.replay_continued(&Block::recovered(at, next, records))?;
        }
        at = next;
    }
    opened.state.claim_table();
    Ok(())
}

impl Inner {
    /// Makes the memtable a run, and lets the ring begin at `next`, both in one step.
    pub(crate) fn continue_at(&self, next: Cursor) -> Result<(), Error> {
        self.checkpoint()?;
        let mut maintenance = self.maintenance();
        // The blocks may have no record: an idle log ends with an empty block.
        if maintenance.superblock.trim != next && !bug("empty-blocks-do-not-count") {
            // A superblock that is half written is followed by no other.
            maintenance.skip_ring(next).map_err(|failed| self.stop(failed))?;
            self.wal()?.trim(next);
        }
        Ok(())
    }
}
