//! Writes recent changes from memory to the logs: appends them to the sets of their tags.
//!
//! Readers and writers continue meanwhile. Blocks are written first, in commits of some hundred
//! tags; the last commit marks the end. After a crash at any point, the journal still has all
//! changes. A block that is appended twice does no harm, because sets ignore duplicates.

use std::collections::BTreeSet;

use brooklet::Commit;
use roaring::RoaringTreemap;

use crate::error::Result;
use crate::format::{WINDOW, encode_block, encode_dead, encode_watermark, of_window};
use crate::index::Pair;
use crate::tags::{Shared, Tags};

/// Number of tags of one commit.
const AT_ONCE: usize = 256;

/// Size of one commit in bytes, about.
const BYTES: usize = 256 << 10;

impl Tags {
    /// Writes the changes in memory to the logs, so that the next opening is quick. Runs by itself
    /// when the tags in memory reach [`Options::recent`](crate::Options::recent); no data is lost
    /// without it.
    ///
    /// # Errors
    /// The errors of a commit. The finished part counts; the next call does the rest.
    pub fn settle(&self) -> Result<()> {
        let _alone = self.shared.settling.lock().expect("no panics");
        self.shared.settle()
    }
}

impl Shared {
    /// Settles once the index is large, unless another thread does so. If the index is far too
    /// large, waits for that thread. A failure does not concern the caller, whose change is
    /// written: a later change tries again.
    pub fn settle_if_much(&self) {
        if let Err(error) = self.try_to_settle() {
            tracing::warn!(%error, "the store could not write tags from memory to their logs");
        }
    }

    fn try_to_settle(&self) -> Result<()> {
        let is_due = || {
            let index = &self.state().index;
            let entries = index.recent.entries;
            (entries >= self.options.recent.max(index.patience)).then_some(entries)
        };
        let Some(entries) = is_due() else { return Ok(()) };
        let alone = match self.settling.try_lock() {
            Ok(alone) => alone,
            Err(_) if entries < 4 * self.options.recent => return Ok(()),
            Err(_) => self.settling.lock().expect("no panics"),
        };
        // The other thread may have settled meanwhile, or failed to.
        let settled = if is_due().is_some() { self.settle() } else { Ok(()) };
        drop(alone);
        settled
    }

    fn settle(&self) -> Result<()> {
        let (runs, upto, dead, changed) = {
            let index = &mut self.state().index;
            let runs = index.settle();
            (runs, index.upto, index.dead.clone(), std::mem::take(&mut index.changed))
        };
        // Each run is sorted, so this sort is quick.
        let mut pairs: Vec<&Pair> = runs.iter().flat_map(|run| run.iter()).collect();
        pairs.sort();
        let settled = self.write_sets(&pairs, upto, &dead, &changed);
        let index = &mut self.state().index;
        match &settled {
            Ok(()) => {
                index.settling.clear();
                index.patience = 0;
            }
            Err(_) => {
                index.changed.extend(changed);
                index.take_back();
                // On a full store, each try takes a while.
                index.patience = index.recent.entries + (self.options.recent / 8).max(1);
            }
        }
        settled
    }

    fn write_sets(
        &self,
        pairs: &[&Pair],
        upto: u64,
        dead: &RoaringTreemap,
        changed: &BTreeSet<u64>,
    ) -> Result<()> {
        let mut blocks = Vec::new();
        let mut bytes = 0;
        for group in pairs.chunk_by(|(tag, _), (other, _)| tag == other) {
            let tag = &group[0].0;
            let block = encode_block(group.iter().map(|(_, ordinal)| *ordinal));
            bytes += block.len();
            blocks.push((self.keys.tag(tag), block));
            if blocks.len() >= AT_ONCE || bytes >= BYTES {
                self.append(&std::mem::take(&mut blocks))?;
                bytes = 0;
            }
        }
        self.append(&blocks)?;
        let windows: Vec<_> =
            changed.iter().map(|&window| (self.keys.dead(window), encode_dead(dead, window))).collect();
        for some in windows.chunks(BYTES / 8192) {
            let mut commit = Commit::new();
            for (key, set) in some {
                commit.snapshot(key, set);
            }
            drop(self.store.commit(&commit)?);
        }
        // Once this entry is durable, all commits before it are durable.
        let (key, watermark) = (self.keys.watermark(), encode_watermark(upto));
        self.store.snapshot(key, watermark)?.wait()?;
        self.drop_journals(upto, dead, changed)
    }

    fn append(&self, blocks: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut commit = Commit::new();
        for (key, block) in blocks {
            commit.append(key, block);
        }
        if !blocks.is_empty() {
            drop(self.store.commit(&commit)?);
        }
        Ok(())
    }

    /// Deletes the journals of windows whose ordinals are all dead.
    fn drop_journals(&self, upto: u64, dead: &RoaringTreemap, changed: &BTreeSet<u64>) -> Result<()> {
        for &window in changed {
            let key = self.keys.journal(window);
            let is_over = (window + 1) * WINDOW <= upto && of_window(dead, window).len() == WINDOW;
            if is_over && self.store.exists(&key)? {
                drop(self.store.delete(&key)?);
            }
        }
        Ok(())
    }
}
