//! Following: a store that shows the log of another host while that host writes it.

use std::path::Path;
use std::sync::Arc;

use brooklet_io::Volume;
use brooklet_wal::{Block, Cursor, SealedBlock};
use bytes::Bytes;

use crate::engine::recovery;
use crate::error::Error;
use crate::options::{Create, Options};
use crate::state::replay::logs_in;
use crate::store::Store;
use crate::transfer::catch_up::{CaughtUp, behind, check};
use crate::transfer::subscribe::damaged;
use crate::volume::{self, Volumes};

/// A store that follows the log of another host: a read replica. The [`Store`] serves reads, tails
/// and watches, and refuses writes with [`Error::ReadOnly`]. [`take`](Self::take) shows the next
/// blocks of the log.
///
/// The file has the state of the last checkpoint. The store takes checkpoints as usual, at least
/// one for each 16 MiB of records, and one when it is closed. After a kill, the store needs the
/// blocks behind its last checkpoint once more.
///
/// ```no_run
/// # fn next_blocks() -> Vec<brooklet::SealedBlock> { Vec::new() }
/// # fn main() -> Result<(), brooklet::Error> {
/// let mut following = brooklet::Options::new().follow("replica.brooklet", 0x57e)?;
/// let store = following.store().clone();
/// following.take(&next_blocks())?; // for example, the blocks that a mirror kept
/// println!("{:?}", store.read_available("doc/7", ..)?.next());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Following {
    store: Store,
    /// Identity of the store.
    id: u128,
    /// The end of the shown blocks. The numbers only keep blocks in order.
    end: Cursor,
}

/// See [`Following::take_beside`].
type Beside<'a> = dyn FnMut(&[Bytes], &mut dyn FnMut()) + 'a;

impl Options {
    /// Opens the store at `path`, which follows the log of the store `store`. Blocks of that log,
    /// such as a [mirror](Self::mirror) kept them, come by [`Following::take`].
    /// [`succeed`](Self::succeed) makes such a file. [`catch_up`](Self::catch_up) continues one.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); [`Error::MirrorRefused`] if the file is one of another
    /// store, or a space of the store is kept in memory.
    pub fn follow(mut self, path: impl AsRef<Path>, store: u128) -> Result<Following, Error> {
        self.create = Create::Never;
        self.read_only = false;
        self.validate()?;
        let (path, options) = self.settled(path.as_ref())?;
        let volumes = volume::open(&path, &options)?;
        options.follow_in(volumes, store)
    }

    /// Follows like [`follow`](Self::follow), on a volume.
    #[doc(hidden)]
    pub fn follow_on(self, volume: Arc<dyn Volume>, store: u128) -> Result<Following, Error> {
        self.validate()?;
        self.follow_in(Volumes { data: volume, ring: None }, store)
    }

    fn follow_in(mut self, volumes: Volumes, store: u128) -> Result<Following, Error> {
        // A commit of the store's own would be one that the log lacks.
        (self.sweeps, self.mirror) = (false, None);
        (self.read_only, self.beside_writer) = (false, false);
        let _span = tracing::info_span!("follow", store = volumes.data.info().name).entered();
        let (volumes, tethers) = volumes.tethered();
        let mut opened = recovery::load(&volumes, &self)?;
        check(&opened, store)?;
        // Nothing may bypass the log.
        (opened.superblock.mirrored, opened.follows) = (true, true);
        recovery::claim(&mut opened, &self)?;
        let (id, end) = (store, opened.recovery.next);
        let store = Store::start(opened, self, tethers)?;
        store.shared().publish_metrics()?;
        Ok(Following { store, id, end })
    }
}

impl Following {
    /// Returns the store. Its clones also show the blocks that come later.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the place in the log up to which the store shows all commits.
    pub fn end(&self) -> u64 {
        self.end.lsn
    }

    /// Shows the next blocks of the log, one after the other. Blocks that the store has are
    /// skipped. Waits while memory is full. When the call returns, readers see all commits of the
    /// blocks; they see each commit as a whole.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the blocks are of another store or do not follow one another, or if a
    /// run does not read back; [`Error::Stopped`] if the store has stopped. After an error, the
    /// store shows a part of the blocks, each as a whole, and the caller can make the call again.
    pub fn take(&mut self, blocks: &[SealedBlock]) -> Result<CaughtUp, Error> {
        self.take_in(blocks, None)
    }

    /// Shows blocks like [`take`](Self::take), each from within `beside`. The store calls `beside`
    /// with the keys of the logs that the block changes, and with a function that shows the block.
    /// A caller that caches data of these logs can so hold back its own readers, call the function,
    /// and drop its outdated data.
    ///
    /// # Errors
    /// The errors of [`take`](Self::take).
    pub fn take_beside(
        &mut self,
        blocks: &[SealedBlock],
        mut beside: impl FnMut(&[Bytes], &mut dyn FnMut()),
    ) -> Result<CaughtUp, Error> {
        self.take_in(blocks, Some(&mut beside))
    }

    fn take_in(
        &mut self,
        blocks: &[SealedBlock],
        mut beside: Option<&mut Beside<'_>>,
    ) -> Result<CaughtUp, Error> {
        let Some(rest) = behind(self.id, blocks, self.end)? else {
            return Ok(CaughtUp::of(blocks, self.end));
        };
        for block in rest {
            let next = Cursor { seq: self.end.seq + 1, lsn: block.end, chain: block.sum, ..self.end };
            // An empty block is a sign of its owner.
            let shown = if block.begin < block.end {
                let records = block.records().ok_or_else(|| damaged("a block does not decompress"))?;
                Some(Arc::new(Block::recovered(self.end, next, records)))
            } else {
                None
            };
            let inner = self.store.inner();
            match (&mut beside, &shown) {
                (Some(beside), Some(block)) => {
                    inner.prepare_to_show(block)?;
                    let (logs, mut done) = (logs_in(block)?, None);
                    beside(&logs, &mut || done = done.take().or_else(|| Some(inner.show(Some(block), next))));
                    // Nothing is left out, whatever the caller did.
                    done.unwrap_or_else(|| inner.show(Some(block), next))?;
                }
                (_, shown) => inner.show(shown.as_ref(), next)?,
            }
            self.end = next;
        }
        Ok(CaughtUp::Done)
    }

    /// Closes a store that has stopped, and releases its file, so that the file can be opened
    /// again. Handles of the store, iterators and views may remain. They use the data that they
    /// hold in memory, and then return [`Error::Closed`].
    pub fn release(self) {
        if let Err(error) = self.store.close() {
            tracing::debug!(%error, "the store was closed after it had stopped");
        }
        self.store.inner().release();
    }

    /// Takes a checkpoint, so that the file has all that the store shows, and closes the store.
    ///
    /// # Errors
    /// The errors of [`Store::checkpoint`] and [`Store::close`].
    pub fn close(self) -> Result<(), Error> {
        let inner = self.store.inner();
        let end = Cursor { seq: inner.recovery.next.seq, ..self.end };
        inner.continue_at(end).and(self.store.close())
    }
}
