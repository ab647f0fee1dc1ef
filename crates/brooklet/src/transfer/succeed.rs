//! Successors: makes a store that continues the log of a lost one, from a backup and the blocks
//! that a [mirror](crate::Mirror) kept.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use brooklet_io::{MemVolume, Volume};
use brooklet_wal::{Cursor, SealedBlock};

use crate::error::Error;
use crate::format::superblock::Superblock;
use crate::options::{Create, Options};
use crate::store::Store;
use crate::store::view::View;
use crate::transfer::copy::copy;
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
    /// Blocks of its log, one after the other. Those that the backup has are skipped. At least one,
    /// which may be one of these: the log of the new store is chained to the last one.
    pub blocks: Vec<SealedBlock>,
}

impl Kept {
    /// Returns the view after the last block, and the cursor of the next block in a new ring.
    fn view(&self) -> Result<(View, Cursor), Error> {
        let last = self.blocks.last().ok_or_else(|| damaged("they hold no block"))?;
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
        let chained = self.blocks.windows(2).all(|pair| pair[1].previous == pair[0].sum);
        if !chained {
            return Err(damaged("a block does not follow the one before it"));
        }
        if last.end < begin.lsn() {
            return Err(damaged("the backup is newer than the last block"));
        }
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for block in self.blocks.iter().filter(|block| block.begin < block.end) {
            let records = block.records().ok_or_else(|| damaged("a block does not decompress"))?;
            blocks.push((block.begin..block.end, records));
        }
        let view = begin.with_commits([encode(self.store, &blocks, begin.now)], None)?;
        Ok((view, Cursor { position: 0, seq: 1, lsn: last.end, chain: last.sum }))
    }
}

impl Options {
    /// Makes a store at `path` that continues the log of the store that `kept` tells of, under the
    /// same identity, and opens it. Nobody else may continue it: open it with the
    /// [mirror](Self::mirror) that kept the blocks, which sees to that.
    ///
    /// # Errors
    /// The errors of [`copy`](Self::copy); [`Error::Damaged`] if the blocks do not follow one
    /// another, or do not continue the backup.
    pub fn succeed(self, path: impl AsRef<Path>, kept: &Kept) -> Result<Store, Error> {
        let (view, next) = kept.view()?;
        let (path, options) = self.create(Create::IfMissing).settled(path.as_ref())?;
        let fill =
            |volumes: &Volumes, superblock: &mut Superblock| fill(&view, next, volumes, superblock, &options);
        if !create::make(&path, &options, fill)? {
            return Err(Error::exists(path.display().to_string()));
        }
        options.create(Create::Never).open(path)
    }

    /// Makes a store like [`succeed`](Self::succeed), on a volume.
    #[doc(hidden)]
    pub fn succeed_on(self, volume: Arc<dyn Volume>, kept: &Kept) -> Result<Store, Error> {
        let (view, next) = kept.view()?;
        let fill =
            |volumes: &Volumes, superblock: &mut Superblock| fill(&view, next, volumes, superblock, &self);
        create::create(&Volumes { data: volume.clone(), ring: None }, &self, fill)?;
        self.open_on(volume)
    }
}

fn fill(
    view: &View,
    next: Cursor,
    volumes: &Volumes,
    superblock: &mut Superblock,
    options: &Options,
) -> Result<(), Error> {
    (superblock.id, superblock.trim, superblock.mirrored) = (view.store, next, true);
    copy(view, volumes, superblock, options, &mut |_| ControlFlow::Continue(()))
}
