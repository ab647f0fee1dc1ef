//! Reads the blocks of runs ahead, by a thread beside the caller.
//!
//! A walk through all logs reads, checks and decompresses blocks, and merges the logs of all runs.
//! Each half takes about as long as the other. The thread does the first half, and keeps some
//! decoded blocks of each run ready. It decides nothing: a cursor that does not find its block here
//! reads the block itself. So an error of the thread only ends its help, and the cursor meets the
//! error at the right place.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};

use brooklet_codex::{DataBlock, Prefetch};
use brooklet_io::Process;
use brooklet_io::panics::caught;

use crate::run::Run;
use crate::run::cursor::{RunCursor, RunPrefetch};
use crate::sync::{Condvar, Mutex, held, thread};

/// Bytes of decoded blocks of a run that the thread puts into the queue at once, and bytes in the
/// queue from which on the thread adds no more.
const BATCH: usize = 128 << 10;
const ENOUGH: usize = 256 << 10;
/// If a cursor has jumped this number of times more than the thread has added batches, the thread
/// no longer helps it. A cursor jumps over the chunks of long logs.
const JUMPS: u64 = 4;

/// The blocks of all runs.
struct Shared {
    queues: Mutex<Queues>,
    changed: Condvar,
}

#[derive(Default)]
struct Queues {
    runs: Vec<Queue>,
    /// Set when nobody needs more blocks.
    stopped: bool,
}

/// The decoded blocks of a run, in order, each with the index of its table.
#[derive(Default)]
struct Queue {
    blocks: VecDeque<(usize, DataBlock)>,
    bytes: usize,
    /// Table and offset of the last block that was added.
    reached: (usize, u64),
    /// The codex key that the cursor seeks.
    sought: Option<Vec<u8>>,
    /// The codex key at which the thread is to go on, after a jump of the cursor.
    from: Option<Vec<u8>>,
    jumps: u64,
    /// Number of batches that were added.
    added: u64,
    /// Whether the thread adds no more.
    ended: bool,
}

impl Queue {
    /// Takes the block at an offset of a table, and drops the blocks before it. `None` if the queue
    /// does not have the block; the `bool` says whether the block may still come.
    fn take(&mut self, place: (usize, u64)) -> (Option<DataBlock>, bool) {
        while let Some((table, block)) = self.blocks.front() {
            let at = (*table, block.offset());
            if at > place {
                return (None, false);
            }
            let (_, block) = self.blocks.pop_front().expect("it is the front");
            self.bytes -= block.memory();
            if at == place {
                return (Some(block), false);
            }
        }
        (None, !self.ended)
    }

    /// Has the thread go on at the sought key, if the cursor jumps there from the blocks so far.
    fn follow_jump(&mut self, place: (usize, u64)) {
        let (table, offset) = self.reached;
        let jumps = place.0 > table || place.1 > offset + ENOUGH as u64;
        let Some(key) = self.sought.take().filter(|_| jumps && !self.ended) else { return };
        self.jumps += 1;
        self.ended = self.jumps > self.added + JUMPS;
        self.from = Some(key);
    }

    fn wants_more(&self) -> bool {
        !self.ended && self.bytes < ENOUGH
    }
}

/// The thread. It ends when this is dropped.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
    process: Process,
}

impl Ahead {
    /// Starts the thread. For each run it begins at a codex key; an empty key means no block at
    /// all.
    pub fn start(runs: Vec<(Arc<Run>, Vec<u8>)>) -> io::Result<Self> {
        let queue = |(_, from): &(Arc<Run>, Vec<u8>)| {
            let (from, ended) = (Some(from.clone()), from.is_empty());
            Queue { from, ended, ..Queue::default() }
        };
        let queues = Mutex::new(Queues { runs: runs.iter().map(queue).collect(), stopped: false });
        let shared = Arc::new(Shared { queues, changed: Condvar::new() });
        let cursors = runs.into_iter().map(|(run, _)| RunCursor::new(run)).collect();
        let theirs = shared.clone();
        let thread =
            thread::Builder::new().name("brooklet-ahead".into()).spawn(move || theirs.run(cursors))?;
        Ok(Self { shared, thread: Some(thread), process: Process::current() })
    }

    /// Returns the blocks of the run at this index.
    pub fn of(&self, run: usize) -> Box<dyn RunPrefetch> {
        Box::new(RunAhead { shared: self.shared.clone(), run })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.process.is_here() {
            // The thread belongs to the parent process, and so may the lock.
            return std::mem::forget(thread);
        }
        held(&self.shared.queues).stopped = true;
        self.shared.changed.notify_all();
        // The thread catches its panics.
        let _ = thread.join();
    }
}

impl Shared {
    /// Fills the queues until all blocks are read or nobody needs more. Then, and after a panic, no
    /// cursor waits for more.
    fn run(&self, cursors: Vec<RunCursor>) {
        if let Err(panic) = caught("reading ahead", || self.fill(cursors)) {
            tracing::warn!(%panic, "a walk goes on without its thread");
        }
        held(&self.queues).runs.iter_mut().for_each(|queue| queue.ended = true);
        self.changed.notify_all();
    }

    fn fill(&self, mut cursors: Vec<RunCursor>) {
        while let Some((run, from)) = self.next_run() {
            let (blocks, more) = batch(&mut cursors[run], from.as_deref());
            let mut queues = held(&self.queues);
            let queue = &mut queues.runs[run];
            // After a jump, these blocks are of no use.
            if queue.from.is_none() {
                queue.bytes += blocks.iter().map(|(_, block)| block.memory()).sum::<usize>();
                queue.reached =
                    blocks.last().map_or(queue.reached, |(table, block)| (*table, block.offset()));
                queue.blocks.extend(blocks);
                queue.added += 1;
                queue.ended |= !more;
            }
            drop(queues);
            self.changed.notify_all();
        }
    }

    /// Waits for a run that needs blocks; returns the one with the fewest, and the key at which its
    /// cursor must go on after a jump. `None` if no run will need more.
    fn next_run(&self) -> Option<(usize, Option<Vec<u8>>)> {
        let mut queues = held(&self.queues);
        loop {
            if queues.stopped || queues.runs.iter().all(|queue| queue.ended) {
                return None;
            }
            let needy = queues.runs.iter().enumerate().filter(|(_, queue)| queue.wants_more());
            if let Some((run, _)) = needy.min_by_key(|(_, queue)| queue.bytes) {
                let from = queues.runs[run].from.take();
                return Some((run, from));
            }
            queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Reads the next blocks of a run, from a codex key on or after the current block. Also returns
/// whether more blocks may follow.
fn batch(cursor: &mut RunCursor, from: Option<&[u8]>) -> (Vec<(usize, DataBlock)>, bool) {
    let (mut blocks, mut bytes) = (Vec::new(), 0);
    let mut moved = match from {
        Some(key) => cursor.seek(key),
        None => cursor.skip_block(),
    };
    while let (Ok(true), Some((table, block))) = (&moved, cursor.block()) {
        bytes += block.memory();
        blocks.push((table, block));
        if bytes >= BATCH {
            return (blocks, true);
        }
        moved = cursor.skip_block();
    }
    (blocks, false)
}

/// The blocks of a run that the thread reads ahead.
#[derive(Clone)]
struct RunAhead {
    shared: Arc<Shared>,
    run: usize,
}

impl RunPrefetch for RunAhead {
    fn seek(&self, key: &[u8]) {
        held(&self.shared.queues).runs[self.run].sought = Some(key.to_vec());
    }

    fn of_table(&self, table: usize) -> Box<dyn Prefetch> {
        Box::new(TableAhead { ahead: self.clone(), table })
    }
}

struct TableAhead {
    ahead: RunAhead,
    table: usize,
}

impl Prefetch for TableAhead {
    fn take(&mut self, offset: u64) -> Option<DataBlock> {
        let shared = &self.ahead.shared;
        let mut queues = held(&shared.queues);
        loop {
            let queue = &mut queues.runs[self.ahead.run];
            let wanted_more = queue.wants_more();
            let (found, may_come) = queue.take((self.table, offset));
            if found.is_none() && may_come {
                queue.follow_jump((self.table, offset));
            }
            let waits = found.is_none() && may_come && !queue.ended;
            if waits || !wanted_more && queue.wants_more() {
                shared.changed.notify_all();
            }
            if !waits {
                return found;
            }
            queues = shared.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet_codex::{Builder, BuilderOptions, Bytes, Reader};

    use super::*;

    fn blocks() -> Vec<DataBlock> {
        let options = BuilderOptions { block_size: 512, ..BuilderOptions::default() };
        let mut builder = Builder::new(Vec::new(), options);
        (0..200u32).for_each(|n| builder.add(&n.to_be_bytes(), &n.to_le_bytes()).unwrap());
        let (summary, file) = builder.finish().unwrap();
        let reader = Reader::open(Bytes::from(file), summary.len, None).unwrap();
        let (mut cursor, mut blocks) = (reader.cursor(), Vec::new());
        while cursor.skip_block().unwrap() {
            blocks.extend(cursor.block());
        }
        blocks
    }

    #[test]
    fn a_queue_has_the_blocks_from_the_wanted_one_on() {
        let all = blocks();
        let tables =
            [0, 1].into_iter().flat_map(|table| all.iter().cloned().map(move |block| (table, block)));
        let mut queue = Queue { blocks: tables.collect(), ..Queue::default() };
        queue.bytes = queue.blocks.iter().map(|(_, block)| block.memory()).sum();
        let mut offset = |place: (usize, u64)| {
            let (found, may_come) = queue.take(place);
            (found.map(|block| block.offset()), may_come)
        };
        let at = |index: usize| all[index].offset();
        assert_eq!(offset((0, at(0))), (Some(at(0)), false));
        assert_eq!(offset((0, at(2))), (Some(at(2)), false), "the block between is passed");
        assert_eq!(offset((0, at(1))), (None, false), "what was passed is read again by the cursor");
        assert_eq!(offset((1, at(1))), (Some(at(1)), false), "the next table");
        assert_eq!(offset((1, at(all.len() - 1))), (Some(at(all.len() - 1)), false));
        assert_eq!(offset((1, u64::MAX)), (None, true), "more may come");
        assert!(queue.bytes == 0 && queue.blocks.is_empty());
        queue.ended = true;
        assert!(!queue.take((2, 0)).1);
    }

    #[test]
    fn the_thread_follows_a_far_jump_and_gives_up_after_many() {
        let mut queue = Queue { reached: (1, 1000), added: 2, ..Queue::default() };
        let mut jump = |place, key: Option<&str>| {
            queue.sought = key.map(|key| key.as_bytes().to_vec());
            queue.follow_jump(place);
            (queue.from.take().map(|key| String::from_utf8(key).unwrap()), queue.ended)
        };
        assert_eq!(jump((1, 2000), Some("near")), (None, false));
        assert_eq!(jump((2, 0), None), (None, false), "the next table, without a seek");
        for _ in 0..6 {
            assert_eq!(jump((1, 10 << 20), Some("far")), (Some("far".into()), false));
        }
        assert!(jump((2, 0), Some("far")).1, "two batches for seven jumps");
    }
}
