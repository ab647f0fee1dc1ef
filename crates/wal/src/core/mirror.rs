//! The blocks that are durable here and that the mirror has yet to keep: their order, their bytes,
//! and the acknowledgements that wait for them.
//!
//! Invariants:
//! - The mirror gets blocks in order, each once, after they are durable here.
//! - With [`Waits::Kept`], a block is shown, and so acknowledged, only if it and all blocks before
//!   it are kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;

use super::{BlockTimes, Core, InFlight};
use crate::block_handle::{Block, Kept};
use crate::histogram::Histogram;
use crate::mirror::{MirrorStats, SealedBlock, Waits};

/// Blocks that one driver at a time passes to the mirror and shows to the sink.
#[derive(Default)]
pub(crate) struct Released {
    pub given: Vec<SealedBlock>,
    pub shown: Vec<Arc<Block>>,
}

pub(super) struct MirrorWindow {
    waits: Waits,
    /// Bytes of blocks that are not kept, from which on appends wait.
    most: u64,
    /// Number of given blocks that the mirror keeps, the last of them, and its end.
    kept_blocks: u64,
    kept_seq: u64,
    kept: u64,
    given: VecDeque<Given>,
    bytes: u64,
    kept_bytes: u64,
    times: Histogram,
    /// Blocks that are shown once they are kept.
    hidden: VecDeque<(Arc<Block>, Option<BlockTimes>)>,
}

/// A block that the mirror has taken.
struct Given {
    end: u64,
    bytes: u64,
    /// When it became durable here; an empty block has no time.
    written: Option<Duration>,
    block: Arc<Block>,
}

impl MirrorWindow {
    pub fn new(waits: Waits, most: u64, kept: u64) -> Self {
        let (given, hidden) = (VecDeque::new(), VecDeque::new());
        Self {
            waits,
            most,
            kept_blocks: 0,
            kept_seq: 0,
            kept,
            given,
            bytes: 0,
            kept_bytes: 0,
            times: Histogram::default(),
            hidden,
        }
    }

    /// Returns the second end of a new block.
    pub fn end_of(&self, seq: u64) -> Kept {
        match self.waits {
            Waits::Kept => Kept::AtItsEnd,
            Waits::Local => Kept::Later(Arc::new(Block::new(seq, Kept::Never))),
        }
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= self.most
    }

    pub fn is_hiding(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Takes a block that is durable here, as are all blocks before it.
    fn take(&mut self, ended: InFlight, released: &mut Released) {
        let InFlight { block, times, sealed, .. } = ended;
        let sealed = sealed.expect("a log with a mirror keeps what it wrote");
        let bytes = sealed.bytes.len() as u64;
        let written = times.as_ref().map(|times| times.written);
        self.bytes += bytes;
        self.given.push_back(Given { end: sealed.end, bytes, written, block: block.clone() });
        self.hidden.push_back((block, times));
        released.given.push(sealed);
    }

    /// Returns the next block that may be shown.
    fn show(&mut self) -> Option<(Arc<Block>, Option<BlockTimes>)> {
        let (block, _) = self.hidden.front()?;
        let kept = block.seq() <= self.kept_seq || bug("acknowledged-before-the-mirror");
        if self.waits == Waits::Local || kept { self.hidden.pop_front() } else { None }
    }

    /// Returns the second ends that have come.
    fn keep(&mut self, blocks: u64, now: Duration) -> Vec<Arc<Block>> {
        let mut ends = Vec::new();
        while self.kept_blocks < blocks
            && let Some(given) = self.given.pop_front()
        {
            self.kept_blocks += 1;
            (self.kept_seq, self.kept) = (given.block.seq(), given.end);
            self.bytes -= given.bytes;
            self.kept_bytes += given.bytes;
            if let Some(written) = given.written {
                self.times.record(now.saturating_sub(written));
            }
            ends.extend(given.block.later().cloned());
        }
        ends
    }

    /// Returns the blocks that will not be kept, and those that will not be shown. The given blocks
    /// stay: the ring must not be trimmed of them later either.
    pub fn stop(&mut self) -> Vec<Arc<Block>> {
        let later = self.given.iter().filter_map(|given| given.block.later().cloned());
        later.chain(self.hidden.drain(..).map(|(block, _)| block)).collect()
    }

    fn stats(&self, now: Duration) -> MirrorStats {
        let oldest = self.given.iter().find_map(|given| given.written);
        MirrorStats {
            kept: self.kept,
            blocks: self.given.len(),
            bytes: self.bytes,
            kept_bytes: self.kept_bytes,
            lag: oldest.map_or(Duration::ZERO, |oldest| now.saturating_sub(oldest)),
            times: self.times.clone(),
        }
    }
}

impl Core {
    /// Gives every block from now on to a mirror, which keeps the log up to `kept`. Up to `most`
    /// bytes may wait for it.
    pub fn attach(&mut self, waits: Waits, most: u64, kept: u64) {
        assert!(self.is_idle() && self.mirror.is_none(), "a mirror comes before the first record");
        self.mirror = Some(Box::new(MirrorWindow::new(waits, most, kept)));
        self.open = self.new_block(self.open.block.seq());
    }

    /// Takes the completed blocks at the front of the window for the mirror, and the blocks that
    /// may be shown; one of these, if they waited for the mirror. Only one driver releases at a
    /// time: returns `None` if another driver does so, or if there is nothing to do.
    pub fn release(&mut self) -> Option<Released> {
        if self.releasing || self.failure.is_some() {
            return None;
        }
        let mut released = Released::default();
        let mut early = false;
        while self.in_flight.front().is_some_and(|flight| flight.done || early)
            && let Some(ended) = self.in_flight.pop_front()
        {
            early = bug("acknowledged-in-flight");
            match &mut self.mirror {
                Some(mirror) => mirror.take(ended, &mut released),
                None => {
                    self.ending.extend(ended.times);
                    released.shown.push(ended.block);
                }
            }
        }
        while let Some((block, times)) = self.mirror.as_mut().and_then(|mirror| mirror.show()) {
            self.ending.extend(times);
            released.shown.push(block);
            // A mirror keeps many blocks at once. The waiters of the first one go on while the next
            // one is shown, and writers get the sink's lock in between.
            if self.may_hide() {
                break;
            }
        }
        self.releasing = !released.given.is_empty() || !released.shown.is_empty();
        self.releasing.then_some(released)
    }

    /// Records that the mirror has the given blocks and the sink has seen the shown ones.
    pub fn released(&mut self, shown: &[Arc<Block>], now: Duration) {
        self.releasing = false;
        let Some(last) = shown.last() else { return };
        assert!(last.seq() == self.durable + shown.len() as u64, "the window slides without gaps");
        self.durable = last.seq();
        self.ending.drain(..).for_each(|times| self.stages.record(&times, now));
    }

    /// Records how many blocks the mirror keeps. Returns the blocks that end by this.
    pub fn kept(&mut self, blocks: u64, now: Duration) -> Vec<Arc<Block>> {
        match &mut self.mirror {
            Some(mirror) if self.failure.is_none() => mirror.keep(blocks, now),
            _ => Vec::new(),
        }
    }

    /// Returns the number of the last block that needs this ring no more once its records are
    /// elsewhere: it and all blocks before it are shown, and the mirror keeps them.
    pub fn settled(&self) -> u64 {
        let unkept = self.mirror.as_ref().and_then(|mirror| mirror.given.front());
        let kept = unkept.filter(|_| !bug("trimmed-before-the-mirror")).map(|given| given.block.seq() - 1);
        kept.map_or(self.durable, |kept| kept.min(self.durable))
    }

    /// Returns whether acknowledgements wait for a mirror.
    pub fn may_hide(&self) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.waits == Waits::Kept)
    }

    /// Returns whether blocks that are durable here wait for the mirror.
    pub fn hides(&self) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.is_hiding())
    }

    /// Returns how long the oldest block waits for the mirror to be shown; `None` if none does.
    pub fn hides_since(&self, now: Duration) -> Option<Duration> {
        let mirror = self.mirror.as_ref().filter(|mirror| mirror.is_hiding() && self.may_hide())?;
        Some(mirror.stats(now).lag)
    }

    pub fn mirror_stats(&self, now: Duration) -> Option<MirrorStats> {
        self.mirror.as_ref().map(|mirror| mirror.stats(now))
    }
}
