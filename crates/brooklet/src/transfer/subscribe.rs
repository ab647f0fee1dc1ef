//! Subscriptions: a subscription collects the commits of a store as they become durable, so that
//! the caller can store them elsewhere. [`View::with_commits`] applies such commits to a view.
//!
//! ```text
//! commits (little endian)
//!    0  8  "BRKCMMTS"
//!    8  4  version, 2
//!   12 16  id of the store
//!   then blocks, as they lie in its log one after the other:
//!      0  8  where the block begins in the log, in bytes that were ever committed to it
//!      8  8  where it ends
//!     16  8  when it became durable, in milliseconds since the Unix epoch
//!     24  4  length, and so many bytes of records (`format/commit_record.rs`)
//!   then 8 XXH3-64 of all before
//! ```
//!
//! Up to version 1, no record held a begin.
//!
//! An empty block, which begins where it ends, is a *mark*. A mark holds a time and a place in the
//! log. At that time, the store was at that place, and every commit that was durable by then is
//! before the mark. If the clock was set, two marks are written. The first holds the present time
//! by the old setting. The second holds the time of the last look at the clock by the new setting.
//! Readers that do not know marks skip them.
//!
//! The first record on a log since a checkpoint holds the log's bounds and its retention. Blocks
//! after a view's place are therefore replayed as recovery does it, without a look-up in the runs.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use brooklet_io::seeded::bug;
use brooklet_wal::{Block, Cursor, checksum};
use bytes::Bytes;

use crate::engine::recovery::table_of;
use crate::error::Error;
use crate::memtable::Memtable;
use crate::state::spaces::SpaceTable;
use crate::state::subscribers::{Item, Lost, Moment, Seen, Subscriber, millis};
use crate::store::Store;
use crate::store::view::{View, run_of};

const MAGIC: &[u8; 8] = b"BRKCMMTS";
const VERSION: u32 = 2;
/// Bytes before the first block, and before the records of a block.
const HEAD: usize = 28;
const BLOCK: usize = 28;

/// A subscription to the commits of a store; see [`Store::subscribe`].
pub struct Subscription(Arc<Subscriber>);

impl Store {
    /// Collects all commits from now on, as soon as they are durable, so that the caller can store
    /// them elsewhere. With a [view](Self::view) that is taken after this call, and the commits
    /// [after the view](View::with_commits), the caller can rebuild the store as of any later
    /// moment.
    ///
    /// The store holds commits in memory until the caller [takes](Subscription::take) them, at most
    /// `most` bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let subscription = store.subscribe(64 << 20)?;
    /// store.append("doc", "a")?.wait()?;
    /// let view = store.view()?;
    /// store.append_many("doc", ["b", "c"])?.wait()?;
    /// store.append("other", "x")?.wait()?;
    ///
    /// let commits = subscription.take().expect("it is not much");
    /// let later = view.with_commits([commits.encode()], None)?;
    /// assert_eq!((view.bounds("doc")?.next, later.bounds("doc")?.next), (1, 3));
    /// assert_eq!(later.bounds("other")?.next, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn subscribe(&self, most: usize) -> Result<Subscription, Error> {
        let inner = self.inner();
        // The records of a store that follows another begin at the checkpoints of that one.
        inner.writable()?;
        let (store, clock) = (inner.maintenance().superblock.id, inner.options.clock.clone());
        let mut state = inner.state();
        let (at, clocks) = (state.runs.lsn(), (millis(&*clock), clock.now().as_millis() as u64));
        let seen = Seen { items: VecDeque::new(), bytes: 0, lost: None, at, clocks };
        let subscriber =
            Arc::new(Subscriber { store, most, clock, seen: Mutex::new(seen), process: inner.process });
        state.subscribers.add(&subscriber);
        Ok(Subscription(subscriber))
    }
}

impl Subscription {
    /// Takes the commits that became durable since the last call.
    ///
    /// # Errors
    /// [`Lost`] if some of these commits are missing. Later calls return the commits after this
    /// call again. To continue from there, take another view.
    pub fn take(&self) -> Result<Commits, Lost> {
        if !self.0.process.is_here() {
            return Err(Lost::Forked);
        }
        let mut seen = self.0.seen();
        let taken = seen.look(&*self.0.clock);
        let (items, bytes) = (std::mem::take(&mut seen.items), std::mem::take(&mut seen.bytes));
        match seen.lost.take().filter(|_| !bug("lost-follower-says-nothing")) {
            None => Ok(Commits { store: self.0.store, items, bytes, taken }),
            Some(lost) => Err(lost),
        }
    }

    /// Returns the number of bytes that wait to be taken.
    pub fn waiting(&self) -> usize {
        if self.0.process.is_here() { self.0.seen().bytes } else { 0 }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Follower({} bytes wait)", self.waiting())
    }
}

/// A sequence of successive commits.
#[derive(Clone)]
pub struct Commits {
    store: u128,
    items: VecDeque<Item>,
    bytes: usize,
    taken: u64,
}

impl Commits {
    /// Returns the size of the commits, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the sequence holds no commit.
    pub fn is_empty(&self) -> bool {
        self.blocks().next().is_none()
    }

    /// Returns the place in the log where the last commit ends; see [`View::lsn`].
    pub fn end(&self) -> Option<u64> {
        self.blocks().next_back().map(|block| block.lsns().end)
    }

    fn blocks(&self) -> impl DoubleEndedIterator<Item = &Arc<Block>> {
        self.items.iter().filter_map(|item| match item {
            Item::Block(block, _) => Some(block),
            Item::Mark(_) => None,
        })
    }

    /// Returns the time at which the commits were [taken](Subscription::take), in milliseconds
    /// since the Unix epoch, by the store's clock.
    pub fn taken_ms(&self) -> u64 {
        self.taken
    }

    /// Appends a mark for `moment`: every commit that was durable at that moment is in this
    /// sequence or before it.
    pub fn mark(&mut self, moment: Moment) {
        self.items.push_back(Item::Mark(moment));
    }

    /// Removes the commits that a view at place `lsn` already contains.
    pub fn skip_to(&mut self, lsn: u64) {
        while let Some(item) = self.items.front() {
            match item {
                Item::Block(block, _) if block.lsns().end <= lsn => self.bytes -= block.data().len(),
                Item::Mark(moment) if moment.lsn < lsn => {}
                _ => return,
            }
            self.items.pop_front();
        }
    }

    /// Appends the commits that follow this sequence.
    pub fn extend(&mut self, next: Commits) {
        self.items.extend(next.items);
        self.bytes += next.bytes;
        self.taken = next.taken;
    }

    /// Encodes the commits as bytes for [`View::with_commits`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(self.store, self.bytes + self.items.len() * BLOCK);
        for item in &self.items {
            match item {
                Item::Block(block, time) => put(&mut out, block.lsns(), *time, block.data()),
                Item::Mark(Moment { lsn, time_ms: time }) => put(&mut out, *lsn..*lsn, *time, &[]),
            }
        }
        end(out)
    }
}

/// Encodes blocks of a store's log, all as of one time.
pub(super) fn encode(store: u128, blocks: &[(Range<u64>, Bytes)], time: u64) -> Vec<u8> {
    let bytes: usize = blocks.iter().map(|(_, data)| data.len() + BLOCK).sum();
    let mut out = begin(store, bytes);
    blocks.iter().for_each(|(lsns, data)| put(&mut out, lsns.clone(), time, data));
    end(out)
}

fn begin(store: u128, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + bytes + 8);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&store.to_le_bytes());
    out
}

fn put(out: &mut Vec<u8>, lsns: Range<u64>, time: u64, data: &[u8]) {
    for number in [lsns.start, lsns.end, time] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&(data.len() as u32).to_le_bytes());
    out.extend_from_slice(data);
}

fn end(mut out: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commits({} bytes in {} blocks)", self.bytes, self.blocks().count())
    }
}

/// A decoded block or mark.
struct Frame<'a> {
    from: u64,
    to: u64,
    time: u64,
    data: &'a [u8],
}

impl Frame<'_> {
    fn is_mark(&self) -> bool {
        self.data.is_empty()
    }
}

pub(super) fn damaged(what: &str) -> Error {
    Error::damaged("the kept commits", what)
}

/// Decodes the commits of a store.
fn decode(encoded: &[u8], store: u128) -> Result<Vec<Frame<'_>>, Error> {
    let (all, sum) = encoded.split_last_chunk::<8>().ok_or_else(|| damaged("they are truncated"))?;
    let (head, mut rest) = all.split_at_checked(HEAD).ok_or_else(|| damaged("they are truncated"))?;
    if head[..8] != *MAGIC {
        return Err(damaged("the magic bytes are missing"));
    }
    let found = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
    if !(1..=VERSION).contains(&found) {
        return Err(Error::NewerFormat { name: "the kept commits".into(), found, known: VERSION });
    }
    if checksum(all) != u64::from_le_bytes(*sum) {
        return Err(damaged("the checksum does not match"));
    }
    if u128::from_le_bytes(head[12..].try_into().expect("sixteen bytes")) != store {
        return Err(damaged("they belong to another store"));
    }
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(BLOCK).ok_or_else(|| damaged("a block is truncated"))?;
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let len = u32::from_le_bytes(head[24..].try_into().expect("four bytes")) as usize;
        let (data, after) = after.split_at_checked(len).ok_or_else(|| damaged("a block is truncated"))?;
        frames.push(Frame { from: number(0), to: number(8), time: number(16), data });
        rest = after;
    }
    Ok(frames)
}

/// The sequence of blocks after a view.
struct Behind {
    /// The place in the log where the next block begins.
    lsn: u64,
}

impl Behind {
    /// Returns whether the view needs a frame. If it does, the frame must be the next one. The view
    /// does not need marks.
    fn needs(&mut self, frame: &Frame<'_>) -> Result<bool, Error> {
        if frame.to <= self.lsn {
            return Ok(false);
        }
        if frame.from != self.lsn || frame.to - frame.from != frame.data.len() as u64 {
            return Err(damaged("they do not continue at the end of the previous commits"));
        }
        self.lsn = frame.to;
        Ok(true)
    }
}

impl View {
    /// Returns a view of the store after more commits, which were [taken](Subscription::take) and
    /// [encoded](Commits::encode). With `until`, the new view has the commits up to the place of
    /// that [moment](Self::moments), and the age of entries is as of its time. Commits that this
    /// view already contains are skipped. All new commits are held in memory.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the commits are not as encoded, are from another store, or do not
    /// continue where the view ends; [`Error::NewerFormat`].
    pub fn with_commits<B: AsRef<[u8]>>(
        &self,
        commits: impl IntoIterator<Item = B>,
        until: Option<Moment>,
    ) -> Result<View, Error> {
        self.here()?;
        self.expect_whole()?;
        let (mut memtable, mut effects) = (Memtable::new(self.store as u64), Vec::new());
        let SpaceTable { mut spaces, log } = table_of(&self.runs, self.store as u64)?;
        let mut cursor = Cursor { lsn: self.lsn(), ..Cursor::default() };
        let (mut behind, mut now) = (Behind { lsn: cursor.lsn }, self.now);
        let is_later = |frame: &Frame<'_>| until.is_some_and(|until| frame.to > until.lsn);
        'all: for commits in commits {
            for frame in decode(commits.as_ref(), self.store)? {
                if is_later(&frame) {
                    break 'all;
                }
                let needs = behind.needs(&frame)?;
                if needs || frame.is_mark() {
                    // The clock may have been set back since then.
                    now = frame.time;
                }
                if needs {
                    let next = Cursor { lsn: frame.to, seq: cursor.seq + 1, ..cursor };
                    let data = Bytes::copy_from_slice(frame.data);
                    let block = Block::recovered(next, Cursor { seq: next.seq + 1, ..next }, data);
                    memtable
                        .replay(&block, &mut effects, &mut spaces)
                        .ok_or_else(|| damaged("a record is malformed"))?;
                    cursor = next;
                }
            }
        }
        let now = until.map_or(now, |until| until.time_ms);
        let mut runs = self.runs.clone();
        if spaces.is_kept() && !memtable.is_empty() {
            let slot = memtable.expect_table(log);
            memtable.put_table(slot, spaces.encode().into());
        }
        if !memtable.is_empty() {
            let id = runs.iter().map(|run| run.meta.id).max().unwrap_or(0) + 1;
            runs = Arc::new(runs.with(Arc::new(run_of(Arc::new(memtable), id, &self.builder)?), cursor.lsn));
        }
        Ok(View {
            runs,
            store: self.store,
            builder: self.builder.clone(),
            now,
            process: self.process,
            lost: None,
            threads: self.threads,
        })
    }

    /// Returns the moments that the commits after this view record, in order: one after each
    /// commit, and one for each [mark](Commits::mark). A mark can refer to a place before the
    /// commit that precedes the mark.
    ///
    /// # Errors
    /// The same errors as [`with_commits`](Self::with_commits).
    pub fn moments<B: AsRef<[u8]>>(
        &self,
        commits: impl IntoIterator<Item = B>,
    ) -> Result<Vec<Moment>, Error> {
        let (mut behind, mut moments) = (Behind { lsn: self.lsn() }, Vec::new());
        for commits in commits {
            for frame in decode(commits.as_ref(), self.store)? {
                if behind.needs(&frame)? || frame.is_mark() {
                    moments.push(Moment { lsn: frame.to, time_ms: frame.time });
                }
            }
        }
        Ok(moments)
    }
}
