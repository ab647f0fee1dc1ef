//! The file of a standby: it follows the log, so that a takeover copies no backup.

use std::ops::ControlFlow;

use brooklet::{CaughtUp, Kept, Options, SealedBlock};
use brooklet_replica::{Error, Followed, StoreId};

use super::{OUTDATED, Replication};

/// Bytes of blocks from which on the file catches up. A takeover replays at most so many.
pub(super) const PORTION: usize = 16 << 20;

/// The file of a host that stands by.
pub(super) struct Warm<'a> {
    host: &'a Replication,
    options: &'a Options,
    /// The log's store, and the backup behind which the blocks begin.
    log: Option<(StoreId, Option<u64>)>,
    /// What the file may lack.
    blocks: Vec<SealedBlock>,
    bytes: usize,
    portion: usize,
    /// Set once the file cannot follow: the takeover looks at it, and makes it anew.
    is_cold: bool,
}

impl<'a> Warm<'a> {
    pub fn new(host: &'a Replication, options: &'a Options, portion: usize) -> Self {
        Self { host, options, log: None, blocks: Vec::new(), bytes: 0, portion, is_cold: false }
    }

    /// Takes what the log has next.
    pub fn take(&mut self, followed: Followed) {
        match followed {
            Followed::Begin { store, backup } => {
                (self.log, self.is_cold) = (Some((store, backup)), false);
                self.forget();
            }
            Followed::Blocks(_) if self.is_cold => {}
            Followed::Blocks(blocks) => {
                self.bytes += blocks.iter().map(|block| block.bytes.len()).sum::<usize>();
                self.blocks.extend(blocks);
                if self.bytes >= self.portion || !self.host.path.exists() {
                    self.catch_up();
                }
            }
        }
    }

    /// Brings the file to the end of what was read. If that fails, the file stays as it is.
    pub fn catch_up(&mut self) {
        let Some(log) = self.log.filter(|_| !self.blocks.is_empty()) else { return };
        match self.follow(log) {
            Ok(CaughtUp::Ahead) => {}
            Ok(CaughtUp::Apart) => {
                tracing::warn!(
                    "the file of the store does not continue in the log: a takeover looks at it, and may make it anew"
                );
                self.is_cold = true;
            }
            Ok(_) => {
                tracing::debug!(bytes = self.bytes, "the file of the store has caught up with the log");
            }
            Err(error) => {
                tracing::warn!(%error, "the file of the store does not follow the log: a takeover takes longer");
                self.is_cold = true;
            }
        }
        self.forget();
    }

    fn follow(&self, (store, backup): (StoreId, Option<u64>)) -> Result<CaughtUp, Error> {
        let path = &self.host.path;
        if path.exists() {
            let file = self.options.clone();
            let done = file.catch_up(path, store.0, &self.blocks).map_err(Error::Store)?;
            if done != CaughtUp::Outdated {
                return Ok(done);
            }
            self.host.move_aside(OUTDATED).map_err(Error::Store)?;
        }
        self.make(store, backup).map(|()| CaughtUp::Done)
    }

    /// Makes the file from the backup and the blocks behind it.
    fn make(&self, store: StoreId, backup: Option<u64>) -> Result<(), Error> {
        let backup = backup.map(|number| self.host.backup(number)).transpose()?;
        let kept = Kept { store: store.0, backup, blocks: self.blocks.clone() };
        let goes_on = |_| match self.host.stop.is_cancelled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let made = self.options.clone().succeed(&self.host.path, &kept, goes_on);
        made.and_then(|store| store.close()).map_err(Error::Store)
    }

    /// Returns whether the file does not follow the log.
    #[cfg(test)]
    pub fn is_cold(&self) -> bool {
        self.is_cold
    }

    fn forget(&mut self) {
        (self.blocks, self.bytes) = (Vec::new(), 0);
    }
}
