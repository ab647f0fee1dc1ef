//! Successors: makes a store that continues the log of a lost one, from a backup and the blocks
//! that a [mirror](crate::Mirror) kept.

use std::iter;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use brooklet_io::{MemVolume, Volume};
use brooklet_wal::{Cursor, SealedBlock};

use crate::error::Error;
use crate::format::superblock::Superblock;
use crate::model::progress::Progress;
use crate::options::{Create, Options};
use crate::store::Store;
use crate::store::view::View;
use crate::transfer::catch_up::expect_of;
use crate::transfer::copy::{OnProgress, copy};
use crate::transfer::subscribe::{damaged, encode};
use crate::volume::Volumes;
use crate::volume::create;

/// The history of a store, as a mirror kept it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Identity of the store.
    pub store: u128,
    /// The store as of a backup; `None` if the blocks begin with the store.
    pub backup: Option<View>,
    /// Consecutive blocks of its log. Blocks that the backup has are skipped. With a backup, the
    /// list needs at least one block, which may be such a block: the log of the new store is
    /// chained to the last block.
    pub blocks: Vec<SealedBlock>,
}

/// Bytes of records that are decompressed at a time.
const PORTION: usize = 4 << 20;

impl Kept {
    /// Returns the view after the last block, and the cursor of the next block in a new ring.
    fn view(&self) -> Result<(View, Cursor), Error> {
        let begin = match &self.backup {
            Some(backup) if backup.store != self.store => {
                return Err(damaged("the backup is one of another store"));
            }
            Some(backup) => backup.clone(),
            None => {
                let mut options = Options::new().ring_size(64 << 10).max_payload(4 << 10);
                options.threads = false;
                let mut empty = options.create_on(Arc::new(MemVolume::new(0)))?.view()?;
                empty.store = self.store;
                empty
            }
        };
        expect_of(self.store, &self.blocks)?;
        // The log of a store begins with a block that follows no other.
        if self.backup.is_none() && self.blocks.first().is_some_and(|first| first.previous != 0) {
            return Err(damaged("the first blocks are missing"));
        }
        let (end, chain) = match self.blocks.last() {
            Some(last) => (last.end, last.sum),
            // Nobody has kept a block: the store begins.
            None if self.backup.is_none() => (0, 0),
            None => return Err(damaged("they hold no block")),
        };
        let chained = self.blocks.windows(2).all(|pair| pair[1].previous == pair[0].sum);
        if !chained {
            return Err(damaged("a block does not follow the one before it"));
        }
        if end < begin.lsn() {
            return Err(damaged("the backup is newer than the last block"));
        }
        let mut broken = false;
        let mut portions =
            Portions { rest: &self.blocks, store: self.store, from: begin.lsn(), time: begin.now };
        let portions = iter::from_fn(|| {
            portions.next(PORTION).unwrap_or_else(|| {
                broken = true;
                None
            })
        });
        let view = begin.with_commits(portions, None)?;
        if broken {
            return Err(damaged("a block does not decompress"));
        }
        // Empty blocks continue nothing, and would hide what is missing before them.
        if view.lsn() != end {
            return Err(damaged("the blocks do not continue the backup"));
        }
        Ok((view, Cursor { position: 0, seq: 1, lsn: end, chain }))
    }
}

/// Blocks as encoded commits, a few at a time: decompressed, all of them could need much memory.
struct Portions<'a> {
    rest: &'a [SealedBlock],
    store: u128,
    /// The end of the commits that are not needed.
    from: u64,
    time: u64,
}

impl Portions<'_> {
    /// Returns the next blocks, until their records have `most` bytes: `Some(None)` at the end, and
    /// `None` if a block does not decompress.
    fn next(&mut self, most: usize) -> Option<Option<Vec<u8>>> {
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        while let Some((block, rest)) = self.rest.split_first()
            && bytes < most
        {
            self.rest = rest;
            if block.begin < block.end && block.end > self.from {
                let records = block.records()?;
                bytes += records.len();
                blocks.push((block.begin..block.end, records));
            }
        }
        Some((!blocks.is_empty()).then(|| encode(self.store, &blocks, self.time)))
    }
}

impl Options {
    /// Makes a store at `path` that continues the log in `kept`, under the same identity, and opens
    /// the store. No other host may continue this log: open the store with the
    /// [mirror](Self::mirror) that kept the blocks, which ensures this. Reports to `progress` like
    /// [`copy`](Self::copy).
    ///
    /// # Errors
    /// The errors of [`copy`](Self::copy); [`Error::Damaged`] if the blocks are of another store,
    /// do not follow one another, or do not continue the backup; without a backup, also if they do
    /// not begin with the first block of the log.
    pub fn succeed(
        self,
        path: impl AsRef<Path>,
        kept: &Kept,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Store, Error> {
        let (view, next) = kept.view()?;
        let (path, options) = self.create(Create::IfMissing).settled(path.as_ref())?;
        let fill = |volumes: &Volumes, superblock: &mut Superblock| {
            fill(&view, next, volumes, superblock, &options, &mut progress)
        };
        if !create::make(&path, &options, fill)? {
            return Err(Error::exists(path.display().to_string()));
        }
        options.create(Create::Never).still().open(path)
    }

    /// Makes a store like [`succeed`](Self::succeed), on a volume.
    #[doc(hidden)]
    pub fn succeed_on(self, volume: Arc<dyn Volume>, kept: &Kept) -> Result<Store, Error> {
        let (view, next) = kept.view()?;
        let go_on = &mut |_| ControlFlow::Continue(());
        let fill = |volumes: &Volumes, superblock: &mut Superblock| {
            fill(&view, next, volumes, superblock, &self, go_on)
        };
        create::create(&Volumes { data: volume.clone(), ring: None }, &self, fill)?;
        self.still().open_on(volume)
    }

    /// Names no metrics file. For a store that is made beside an open one, which writes that file.
    #[doc(hidden)]
    pub fn without_metrics(mut self) -> Self {
        self.metrics_file = None;
        self
    }

    /// Lets the store commit nothing of its own: its mirror would not have that commit.
    fn still(mut self) -> Self {
        self.sweeps = false;
        self
    }
}

fn fill(
    view: &View,
    next: Cursor,
    volumes: &Volumes,
    superblock: &mut Superblock,
    options: &Options,
    progress: OnProgress<'_>,
) -> Result<(), Error> {
    (superblock.id, superblock.trim, superblock.mirrored) = (view.store, next, true);
    copy(view, volumes, superblock, options, progress)
}
