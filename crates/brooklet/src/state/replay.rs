//! Replays the recovered blocks into the state.

use std::collections::BTreeSet;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_wal::{Block, Found, Records, Waiters};
use bytes::Bytes;

use crate::error::Error;
use crate::format::commit_record::{self, Entry};
use crate::memtable::{Limited, Memtable, Pending};
use crate::model::retention_state::State;
use crate::model::{Effect, Piece};
use crate::state::StoreState;
use crate::state::lost::Lost;
use crate::state::spaces::{Share, Spaces};

impl StoreState {
    /// Replays a recovered block: applies its effects as the append and the publication did.
    pub fn replay(&mut self, block: &Block) -> Result<(), Error> {
        let place = || format!("block {} of the ring", block.seq());
        let malformed = || Error::damaged(place(), "a record is malformed");
        let (active, effects, spaces) = (&mut self.active, &mut self.effects, &mut self.spaces);
        let done = match &mut self.lost {
            None => active.replay(block, effects, spaces),
            Some(lost) => Arc::make_mut(lost).replay(block, active, effects, spaces),
        };
        done.ok_or_else(malformed)
    }

    /// Replays a block that another host has written behind the end of this store's ring. That host
    /// took its checkpoints at other moments, so that the record of a log's first effect since this
    /// store's checkpoint may lack the log's state before it: the runs have it.
    pub fn replay_continued(&mut self, block: &Block) -> Result<(), Error> {
        let (runs, mut failed) = (self.runs.clone(), None);
        let begin = |entry: &Entry<'_>| {
            if entry.before.bounds.is_some() || bug("successor-asks-no-run") {
                return Some(entry.before.clone());
            }
            runs.state(entry.key).map_err(|error| failed = Some(error)).ok()
        };
        let done = self.active.replay_with(block, &mut self.effects, &mut self.spaces, begin);
        failed.filter(|_| !bug("successor-passes-damage-over")).map_or(Ok(()), Err)?;
        done.ok_or_else(malformed)
    }

    /// Returns the logs of a block whose states only the runs know.
    pub fn unknown_in(&mut self, block: &Block) -> Result<Vec<Box<[u8]>>, Error> {
        let mut unknown: Vec<Box<[u8]>> = Vec::new();
        // Without a run, no log is in one. But the active memtable gets the states of logs that the
        // frozen one knows.
        if self.runs.is_empty() && (self.frozen.is_none() || bug("follower-forgets-the-frozen")) {
            return Ok(unknown);
        }
        for record in Records::new(block.data()) {
            let (mut rest, mut previous) = (record.ok_or_else(malformed)?.1, None);
            while !rest.is_empty() {
                let entry = commit_record::decode(&mut rest, previous).ok_or_else(malformed)?;
                previous = Some(entry.key);
                let is_known = self.slot(entry.key).is_some() || entry.before.bounds.is_some();
                if !is_known && unknown.last().is_none_or(|last| **last != *entry.key) {
                    unknown.push(entry.key.into());
                }
            }
        }
        Ok(unknown)
    }

    /// Replays the next block of another host's log into a store that is read meanwhile, and shows
    /// its commits. The memtables know the logs of the block. Adds the readers that wait for them
    /// to `waiters`.
    pub fn replay_and_show(&mut self, block: &Arc<Block>, waiters: &mut Waiters) -> Result<(), Error> {
        self.active.replay(block, &mut self.effects, &mut self.spaces).ok_or_else(malformed)?;
        self.claim_table();
        if let Some(mut marking) =
            self.watchers.marking(waiters).filter(|_| !bug("follower-tells-no-watcher"))
        {
            self.active.mark(&self.effects, &mut marking);
        }
        Ok(())
    }

    /// Replays a block that recovery around damage found, or records a hole.
    pub fn replay_around(&mut self, found: &Found, seed: u64) -> Result<(), Error> {
        match (found, &mut self.lost) {
            (Found::Block(block, _), _) => return self.replay(block),
            (Found::Hole(hole), None) => self.lost = Some(Arc::new(Lost::new(hole, seed))),
            (Found::Hole(hole), Some(lost)) => Arc::make_mut(lost).again(hole, seed),
        }
        Ok(())
    }
}

/// Returns the keys of the logs that a block changes, each once.
pub fn logs_in(block: &Block) -> Result<Vec<Bytes>, Error> {
    let mut logs = BTreeSet::new();
    for record in Records::new(block.data()) {
        let (mut rest, mut previous) = (record.ok_or_else(malformed)?.1, None);
        while !rest.is_empty() {
            let entry = commit_record::decode(&mut rest, previous).ok_or_else(malformed)?;
            if previous != Some(entry.key) {
                logs.insert(entry.key);
            }
            previous = Some(entry.key);
        }
    }
    Ok(logs.into_iter().map(Bytes::copy_from_slice).collect())
}

/// Returns the error of a block of another host that has a record without a meaning.
fn malformed() -> Error {
    Error::damaged("the log of another host", "a record is malformed")
}

impl Memtable {
    /// Replays a block's effects in the memtable and in `spaces`. Leaves them in `effects`. Returns
    /// `None` if the block is malformed.
    pub fn replay(&mut self, block: &Block, effects: &mut Vec<Pending>, spaces: &mut Spaces) -> Option<()> {
        self.replay_with(block, effects, spaces, |entry| Some(entry.before.clone()))
    }

    /// Does the same as [`replay`](Self::replay), but `begin` returns the earlier state of a log
    /// that the memtable does not know. If `begin` returns `None`, the effect is skipped.
    pub fn replay_with(
        &mut self,
        block: &Block,
        effects: &mut Vec<Pending>,
        spaces: &mut Spaces,
        mut begin: impl FnMut(&Entry<'_>) -> Option<State>,
    ) -> Option<()> {
        effects.clear();
        for record in Records::new(block.data()) {
            let (offset, bytes) = record?;
            let (mut rest, mut previous) = (bytes, None);
            while !rest.is_empty() {
                let entry = commit_record::decode(&mut rest, previous)?;
                let key = entry.key;
                previous = Some(key);
                if let ([], Effect::Append(_)) = (key, entry.effect) {
                    spaces.apply(entry.payload)?;
                }
                let slot = match self.find(key) {
                    Some(slot) => slot,
                    None => match begin(&entry) {
                        Some(before) => self.add(key, before),
                        None => continue,
                    },
                };
                let (is_first, payload) = (!self.log(slot).touched, entry.payload.len());
                let claim = self.claim_of(slot, entry.effect, payload, is_first);
                self.claims(claim, 0);
                self.adds(slot, entry.effect, payload);
                let log = self.log_mut(slot);
                let share = Share::of(log.appended, log.terms());
                log.touched = true;
                log.in_flight += 1;
                let mut piece = Piece::on_top_of(log.appended);
                piece.apply(entry.effect)?;
                log.appended = piece.bounds;
                let len = entry.payload.len() as u32;
                if let Some(limited) = Limited::of(&mut log.limited, entry.effect) {
                    limited.append(entry.effect, piece.bounds, len);
                    spaces.shift(key, share, Share::of(log.appended, log.terms()));
                }
                let offset = (offset + bytes.len() - rest.len()) as u32 - len;
                effects.push(Pending { slot, effect: entry.effect, offset, len, trims: false });
            }
        }
        self.apply(block, effects)
    }
}
