//! Following a store: what is committed to it, as it becomes durable, for whoever keeps it elsewhere; and views that go on from
//! another one by such commits.
//!
//! ```text
//! commits (little endian)
//!    0  8  "BRKCMMTS"
//!    8  4  version, 1
//!   12 16  id of the store
//!   then blocks, as they lie in its log one after the other:
//!      0  8  where the block begins in the log, in bytes that were ever committed to it
//!      8  8  where it ends
//!     16  8  when it became durable, in milliseconds since the Unix epoch
//!     24  4  length, and so many bytes of records (`record.rs`)
//!   then 8 XXH3-64 of all before
//! ```
//!
//! The first record on a log since a checkpoint has the log's bounds and what it keeps, so that blocks from a view's place on are
//! brought back as recovery does it, without a look at the runs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use brooklet_io::Clock;
use brooklet_wal::{Block, Cursor, checksum};
use bytes::Bytes;

use crate::error::Error;
use crate::recent::Tier;
use crate::spaces::Table;
use crate::store::Store;
use crate::view::{View, run_of};

const MAGIC: &[u8; 8] = b"BRKCMMTS";
const VERSION: u32 = 1;
/// Bytes before the first block, and before the records of a block.
const HEAD: usize = 28;
const BLOCK: usize = 28;

/// What the store's side and a follower share.
pub(crate) struct Following {
    store: u128,
    most: usize,
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    blocks: VecDeque<(Arc<Block>, u64)>,
    bytes: usize,
    /// Whether something is missing before what comes next.
    lost: bool,
}

impl Following {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, blocks: &[Arc<Block>]) {
        let now = self.clock.wall().as_millis() as u64;
        let mut seen = self.seen();
        for block in blocks.iter().filter(|block| !block.data().is_empty()) {
            seen.bytes += block.data().len();
            if seen.bytes > self.most {
                seen.lose();
            }
            if !seen.lost {
                seen.blocks.push_back((block.clone(), now));
            }
        }
    }
}

impl Seen {
    fn lose(&mut self) {
        *self = Seen { lost: true, ..Seen::default() };
    }
}

/// Those who follow a store.
#[derive(Default)]
pub(crate) struct Followers(Vec<Weak<Following>>);

impl Followers {
    /// Blocks are durable, in order.
    pub fn show(&mut self, blocks: &[Arc<Block>]) {
        self.0.retain(|follower| follower.upgrade().inspect(|follower| follower.show(blocks)).is_some());
    }

    /// Something came into the store past its log.
    pub fn lose(&mut self) {
        self.0.iter().filter_map(Weak::upgrade).for_each(|follower| follower.seen().lose());
    }
}

/// Somebody who follows a store; see [`Store::follow`].
pub struct Follower(Arc<Following>);

impl Store {
    /// Everything that is committed from now on, once it is durable, for whoever keeps it elsewhere: a [view](Self::view) that is
    /// taken afterwards, [and the commits behind it](View::with_commits), are the store at any later moment.
    ///
    /// What nobody [takes](Follower::take) is held in memory, up to `most` bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let follower = store.follow(64 << 20)?;
    /// store.append("doc", "a")?.wait()?;
    /// let view = store.view()?;
    /// store.append_many("doc", ["b", "c"])?.wait()?;
    /// store.append("other", "x")?.wait()?;
    ///
    /// let commits = follower.take().expect("nobody waited for long");
    /// let later = view.with_commits([commits.encode()], None)?;
    /// assert_eq!((view.bounds("doc")?.next, later.bounds("doc")?.next), (1, 3));
    /// assert_eq!(later.bounds("other")?.next, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn follow(&self, most: usize) -> Result<Follower, Error> {
        let inner = self.inner();
        inner.wal()?;
        let (store, clock) = (inner.keeper().superblock.id, inner.options.clock.clone());
        let following = Arc::new(Following { store, most, clock, seen: Mutex::default() });
        inner.front().followers.0.push(Arc::downgrade(&following));
        Ok(Follower(following))
    }
}

impl Follower {
    /// What became durable since this was called last. `None` where some of it is not to be had: it was more than is held, or an
    /// [import](Store::import) brought logs in, which are in no commit. Then another view is needed to go on from.
    pub fn take(&self) -> Option<Commits> {
        let Seen { blocks, bytes, lost } = std::mem::take(&mut *self.0.seen());
        (!lost).then_some(Commits { store: self.0.store, blocks, bytes })
    }

    /// Bytes that wait to be taken.
    pub fn waiting(&self) -> usize {
        self.0.seen().bytes
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Follower({} bytes wait)", self.waiting())
    }
}

/// Commits that followed one another.
#[derive(Clone)]
pub struct Commits {
    store: u128,
    blocks: VecDeque<(Arc<Block>, u64)>,
    bytes: usize,
}

impl Commits {
    /// Bytes that were committed.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Up to where in the log they go; see [`View::lsn`].
    pub fn end(&self) -> Option<u64> {
        self.blocks.back().map(|(block, _)| block.lsns().end)
    }

    /// Leaves out what a view of that place in the log has already.
    pub fn skip_to(&mut self, lsn: u64) {
        while let Some((block, _)) = self.blocks.front().filter(|(block, _)| block.lsns().end <= lsn) {
            self.bytes -= block.data().len();
            self.blocks.pop_front();
        }
    }

    /// Adds those that come next.
    pub fn extend(&mut self, next: Commits) {
        self.blocks.extend(next.blocks);
        self.bytes += next.bytes;
    }

    /// The commits as bytes, as [`View::with_commits`] takes them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.bytes + self.blocks.len() * BLOCK + 8);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        for (block, time) in &self.blocks {
            let lsns = block.lsns();
            for number in [lsns.start, lsns.end, *time] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&(block.data().len() as u32).to_le_bytes());
            out.extend_from_slice(block.data());
        }
        let sum = checksum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }
}

impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commits({} bytes in {} blocks)", self.bytes, self.blocks.len())
    }
}

/// A block of such bytes.
struct Frame {
    from: u64,
    to: u64,
    time: u64,
    data: Bytes,
}

fn damaged(what: &str) -> Error {
    Error::damaged("commits that were kept", what)
}

/// Reads commits of a store.
fn decode(encoded: &[u8], store: u128) -> Result<Vec<Frame>, Error> {
    let (all, sum) = encoded.split_last_chunk::<8>().ok_or_else(|| damaged("they are cut short"))?;
    let (head, mut rest) = all.split_at_checked(HEAD).ok_or_else(|| damaged("they are cut short"))?;
    if head[..8] != *MAGIC {
        return Err(damaged("the magic bytes are missing"));
    }
    let found = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
    if found != VERSION {
        return Err(Error::NewerFormat { name: "commits that were kept".into(), found, known: VERSION });
    }
    if checksum(all) != u64::from_le_bytes(*sum) {
        return Err(damaged("the checksum does not fit"));
    }
    if u128::from_le_bytes(head[12..].try_into().expect("sixteen bytes")) != store {
        return Err(damaged("they are of another store"));
    }
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(BLOCK).ok_or_else(|| damaged("a block is cut short"))?;
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let len = u32::from_le_bytes(head[24..].try_into().expect("four bytes")) as usize;
        let (data, after) = after.split_at_checked(len).ok_or_else(|| damaged("a block is cut short"))?;
        let data = Bytes::copy_from_slice(data);
        frames.push(Frame { from: number(0), to: number(8), time: number(16), data });
        rest = after;
    }
    Ok(frames)
}

impl View {
    /// The store as it was after more commits, which were [taken](Follower::take) and [encoded](Commits::encode); of those that
    /// became durable later than `until`, in milliseconds since the Unix epoch, none. What the view has already is left out.
    /// Takes memory for all of them, and about as much again.
    ///
    /// # Errors
    /// [`Error::Damaged`] where they are not what was encoded, are of another store, or do not go on where the view ends;
    /// [`Error::NewerFormat`].
    pub fn with_commits<B: AsRef<[u8]>>(
        &self,
        commits: impl IntoIterator<Item = B>,
        until: Option<u64>,
    ) -> Result<View, Error> {
        self.expect_whole()?;
        let (mut tier, mut effects) = (Tier::new(self.store as u64), Vec::new());
        let Table { mut spaces, log } = Table::of(&self.runs)?;
        let (mut cursor, mut now) = (Cursor { lsn: self.lsn(), ..Cursor::default() }, self.now);
        'all: for commits in commits {
            for Frame { from, to, time, data } in decode(commits.as_ref(), self.store)? {
                if to <= cursor.lsn {
                    continue;
                }
                if from != cursor.lsn || to - from != data.len() as u64 {
                    return Err(damaged("they do not go on where those before end"));
                }
                if until.is_some_and(|until| time > until) {
                    break 'all;
                }
                let next = Cursor { lsn: to, seq: cursor.seq + 1, ..cursor };
                let block = Block::recovered(next, Cursor { seq: next.seq + 1, ..next }, data);
                tier.replay(&block, &mut effects, &mut spaces)
                    .ok_or_else(|| damaged("a record does not make sense"))?;
                (cursor, now) = (next, now.max(time));
            }
        }
        let mut runs = self.runs.clone();
        if spaces.is_kept() && !tier.is_empty() {
            let slot = tier.expect_table(log);
            tier.put_table(slot, spaces.encode().into());
        }
        if !tier.is_empty() {
            let id = runs.iter().map(|run| run.meta.id).max().unwrap_or(0) + 1;
            runs = Arc::new(runs.with(Arc::new(run_of(Arc::new(tier), id, &self.builder)?), cursor.lsn));
        }
        Ok(View { runs, store: self.store, builder: self.builder.clone(), now, lost: None })
    }
}
