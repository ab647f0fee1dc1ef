//! Following a store: what is committed to it, as it becomes durable, for whoever keeps it
//! elsewhere; and views that go on from another one by such commits.
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
//!     24  4  length, and so many bytes of records (`format/commit_record.rs`)
//!   then 8 XXH3-64 of all before
//! ```
//!
//! A block of no bytes, which begins where it ends, is a *mark*: when its time came, the store was
//! at that place of the log, and every commit that was durable by then is before the mark. Where
//! the clock was set, marks tell how far it would have come, and from where it would have come.
//! Readers that know of no marks pass them over.
//!
//! The first record on a log since a checkpoint has the log's bounds and what it keeps, so that
//! blocks from a view's place on are brought back as recovery does it, without a look at the runs.

use std::collections::VecDeque;
use std::fmt;
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
const VERSION: u32 = 1;
/// Bytes before the first block, and before the records of a block.
const HEAD: usize = 28;
const BLOCK: usize = 28;

/// Somebody who follows a store; see [`Store::subscribe`].
pub struct Subscription(Arc<Subscriber>);

impl Store {
    /// Everything that is committed from now on, once it is durable, for whoever keeps it
    /// elsewhere: a [view](Self::view) that is taken afterwards, [and the commits behind
    /// it](View::with_commits), are the store at any later moment.
    ///
    /// What nobody [takes](Subscription::take) is held in memory, up to `most` bytes.
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
        inner.wal()?;
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
    /// Takes what became durable since this was called last.
    ///
    /// # Errors
    /// [`Lost`] where some of that is not to be had. What is committed after this call is there
    /// again; to go on from takes another view.
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

    /// Bytes that wait to be taken.
    pub fn waiting(&self) -> usize {
        if self.0.process.is_here() { self.0.seen().bytes } else { 0 }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Follower({} bytes wait)", self.waiting())
    }
}

/// Commits that followed one another.
#[derive(Clone)]
pub struct Commits {
    store: u128,
    items: VecDeque<Item>,
    bytes: usize,
    taken: u64,
}

impl Commits {
    /// Bytes that were committed.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks().next().is_none()
    }

    /// Up to where in the log they go; see [`View::lsn`].
    pub fn end(&self) -> Option<u64> {
        self.blocks().next_back().map(|block| block.lsns().end)
    }

    fn blocks(&self) -> impl DoubleEndedIterator<Item = &Arc<Block>> {
        self.items.iter().filter_map(|item| match item {
            Item::Block(block, _) => Some(block),
            Item::Mark(_) => None,
        })
    }

    /// When they were [taken](Subscription::take), in milliseconds since the Unix epoch, by the
    /// store's clock.
    pub fn taken_ms(&self) -> u64 {
        self.taken
    }

    /// Marks, behind them, that every commit is among them or before them that was durable at a
    /// moment.
    pub fn mark(&mut self, moment: Moment) {
        self.items.push_back(Item::Mark(moment));
    }

    /// Leaves out what a view of that place in the log has already.
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

    /// Adds those that come next.
    pub fn extend(&mut self, next: Commits) {
        self.items.extend(next.items);
        self.bytes += next.bytes;
        self.taken = next.taken;
    }

    /// The commits as bytes, as [`View::with_commits`] takes them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.bytes + self.items.len() * BLOCK + 8);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        for item in &self.items {
            let (lsns, time, data) = match item {
                Item::Block(block, time) => (block.lsns(), *time, &block.data()[..]),
                Item::Mark(Moment { lsn, time_ms: time }) => (*lsn..*lsn, *time, &[][..]),
            };
            for number in [lsns.start, lsns.end, time] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&(data.len() as u32).to_le_bytes());
            out.extend_from_slice(data);
        }
        let sum = checksum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }
}

impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commits({} bytes in {} blocks)", self.bytes, self.blocks().count())
    }
}

/// A block of such bytes, or a mark.
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

fn damaged(what: &str) -> Error {
    Error::damaged("commits that were kept", what)
}

/// Reads commits of a store.
fn decode(encoded: &[u8], store: u128) -> Result<Vec<Frame<'_>>, Error> {
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
        frames.push(Frame { from: number(0), to: number(8), time: number(16), data });
        rest = after;
    }
    Ok(frames)
}

/// Blocks behind a view, one after the other.
struct Behind {
    /// Where the next one begins.
    lsn: u64,
}

impl Behind {
    /// Whether the view needs a frame, which has to be the next then. Marks are not for the view.
    fn needs(&mut self, frame: &Frame<'_>) -> Result<bool, Error> {
        if frame.to <= self.lsn {
            return Ok(false);
        }
        if frame.from != self.lsn || frame.to - frame.from != frame.data.len() as u64 {
            return Err(damaged("they do not go on where those before end"));
        }
        self.lsn = frame.to;
        Ok(true)
    }
}

impl View {
    /// The store as it was after more commits, which were [taken](Subscription::take) and
    /// [encoded](Commits::encode): after all of them, or after those up to a place in the log, and
    /// as of a time, both of which are a [moment](Self::moments). What the view has already is left
    /// out. Takes memory for all of them.
    ///
    /// # Errors
    /// [`Error::Damaged`] where they are not what was encoded, are of another store, or do not go
    /// on where the view ends; [`Error::NewerFormat`].
    pub fn with_commits<B: AsRef<[u8]>>(
        &self,
        commits: impl IntoIterator<Item = B>,
        until: Option<Moment>,
    ) -> Result<View, Error> {
        self.here()?;
        self.expect_whole()?;
        let (mut memtable, mut effects) = (Memtable::new(self.store as u64), Vec::new());
        let SpaceTable { mut spaces, log } = table_of(&self.runs)?;
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
                    // The clock may have been set back since.
                    now = frame.time;
                }
                if needs {
                    let next = Cursor { lsn: frame.to, seq: cursor.seq + 1, ..cursor };
                    let data = Bytes::copy_from_slice(frame.data);
                    let block = Block::recovered(next, Cursor { seq: next.seq + 1, ..next }, data);
                    memtable
                        .replay(&block, &mut effects, &mut spaces)
                        .ok_or_else(|| damaged("a record does not make sense"))?;
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
        })
    }

    /// The moments that commits behind this view tell of, in the order in which they came: after
    /// each commit, and those that were [marked](Commits::mark). A mark may tell of a place before
    /// the commit that it is behind.
    ///
    /// # Errors
    /// Same errors as [`with_commits`](Self::with_commits).
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
