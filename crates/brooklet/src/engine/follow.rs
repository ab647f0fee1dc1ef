//! Following: shows the commits of a log that another host writes, block by block, while the store
//! is read.
//!
//! A block is replayed into the active memtable, as recovery replays the blocks of the ring, under
//! the lock of the state: readers see all of it or nothing. The ring takes no part: its log only
//! moves its end, so that checkpoints know the place up to which their runs hold all commits. A
//! store that is killed goes back to its last checkpoint, and the other host's log has the rest.

use std::io;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_wal::{Block, Cursor, Waiters, Wal};

use crate::engine::Inner;
use crate::error::Error;
use crate::state::StoreState;
use crate::sync::atomic::Ordering;

/// Bytes of records after which a checkpoint is taken: a store that is killed gets them once more.
const PORTION: u64 = 16 << 20;

impl Inner {
    /// Shows the next block of the log, which ends at `next`. A block without records is `None`.
    ///
    /// One thread calls this, so that the states of logs stay as they are between the look-up and
    /// the replay.
    pub fn show(&self, block: Option<&Arc<Block>>, next: Cursor) -> Result<(), Error> {
        let wal = self.wal()?;
        self.room_to_follow(wal)?;
        let mut waiters = Waiters::default();
        loop {
            let mut state = self.sound_state()?;
            if let Some(why) = wal.failure() {
                return Err(why.into());
            }
            let unknown = block.map_or(Ok(Vec::new()), |block| state.unknown_in(block))?;
            if !unknown.is_empty() && !bug("follower-asks-no-run") {
                drop(state);
                self.look_up(unknown)?;
                continue;
            }
            let shown = block.map_or(Ok(()), |block| state.replay_and_show(block, &mut waiters));
            if let Err(error) = shown {
                drop(state);
                // A part of the block may be in the state.
                self.stop(io::Error::other(error.to_string()));
                return Err(error);
            }
            if !bug("follower-keeps-its-place") {
                wal.skip(next.lsn, next.chain);
            }
            self.ask_for_checkpoint(&state, next);
            drop(state);
            wal.wake_waiters(waiters);
            return Ok(());
        }
    }

    /// Waits for room, and looks up the logs of the next block, so that [`show`](Self::show) takes
    /// little time.
    pub fn prepare_to_show(&self, block: &Block) -> Result<(), Error> {
        self.room_to_follow(self.wal()?)?;
        let unknown = self.sound_state()?.unknown_in(block)?;
        if unknown.is_empty() { Ok(()) } else { self.look_up(unknown) }
    }

    /// Takes the states of logs from the runs into the active memtable.
    fn look_up(&self, unknown: Vec<Box<[u8]>>) -> Result<(), Error> {
        let runs = self.state().runs.clone();
        let clock = &*self.options.clock;
        let look = |key: Box<[u8]>| {
            let found = self.counters.run_lookups.time(clock, || runs.state(&key))?;
            Ok((key, found))
        };
        let found: Vec<_> = unknown.into_iter().map(look).collect::<Result<_, Error>>()?;
        let mut state = self.state();
        for (key, log) in found {
            state.learn(&runs, &key, log);
        }
        Ok(())
    }

    fn ask_for_checkpoint(&self, state: &StoreState, next: Cursor) {
        self.weigh(state, 0);
        let is_due = next.lsn - state.runs.lsn() >= PORTION && state.frozen.is_none();
        if is_due && !self.wanted.swap(true, Ordering::Relaxed) {
            self.nudge();
        }
    }

    /// Waits until the memtables have room.
    fn room_to_follow(&self, wal: &Wal) -> Result<(), Error> {
        loop {
            let (used, most) = {
                let state = self.sound_state()?;
                (state.memory(), state.most_memory(self.options.memory_budget))
            };
            if used <= most || bug("follower-waits-for-no-room") {
                return Ok(());
            }
            if !self.options.threads {
                self.checkpoint()?;
                continue;
            }
            self.wanted.store(true, Ordering::Relaxed);
            self.nudge();
            self.wait_for_room(wal)?;
        }
    }
}
