//! A second place for the blocks of a log, such as object storage.
//!
//! The log passes each block to its [`Mirror`] once the block and all blocks before it are on
//! stable media here, in their order. So a mirror never has a block that this log lacks. The mirror
//! reports the number of kept blocks by its [`MirrorHandle`]: a log position would not show whether
//! the mirror keeps an empty block there. [`Waits`] decides whether the acknowledgement of a block
//! waits for this report.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use brooklet_io::{AlignedBuf, Volume, read_exact_at};
use bytes::Bytes;

use crate::compress;
use crate::error::WalError;
use crate::format::{HEADER, Header, checksum};
use crate::histogram::Histogram;
use crate::map::Layout;
use crate::recover::{Recovery, Start, Walk};
use crate::ring::Cursor;

/// A receiver of every block of a log.
pub trait Mirror: Send + Sync {
    /// Continues with a log that an opening has found, before anything is appended to it: takes the
    /// blocks that the mirror lacks. Only an owner of the log that uses
    /// [`Wal::attach`](crate::Wal::attach) makes this call, and may wait for it.
    ///
    /// # Errors
    /// The reason why the mirror cannot continue with this log.
    fn open(&self, log: LocalLog) -> Result<(), String>;

    /// Begins to report by `handle`, from any thread: the log is open now.
    fn start(&self, handle: MirrorHandle);

    /// Takes blocks that are on stable media here: in order, without gaps. The call must not wait.
    /// It may report the blocks as kept before it returns.
    fn take(&self, blocks: Vec<SealedBlock>);
}

/// A log as an opening has found it.
#[derive(Clone, Debug)]
pub struct LocalLog {
    /// Identity of the store.
    pub store: u128,
    /// Log position where the blocks begin.
    pub begin: u64,
    /// Checksum of the header of the block before them; 0 if there was none.
    pub sum: u64,
    /// All blocks from there on.
    pub blocks: Vec<SealedBlock>,
    /// Whether the store has data besides these blocks, such as a restored backup.
    pub has_more: bool,
}

/// The event that acknowledges a block of a log with a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The block is on stable media here. The mirror follows.
    Local,
    /// The block is on stable media here, and the mirror keeps it. Readers see it then.
    Kept,
}

/// The state of a log's mirror: how far it is behind, and how long it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MirrorStats {
    /// Log position up to which the mirror keeps the log.
    pub kept: u64,
    /// Number of blocks that the mirror has taken and does not keep yet.
    pub blocks: usize,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Bytes of all blocks that the mirror keeps, since the opening.
    pub kept_bytes: u64,
    /// Time since the oldest of the blocks that are not kept became durable here; zero without one.
    pub lag: Duration,
    /// The time of each block from its end here until the mirror kept it.
    pub times: Histogram,
}

/// A block with its header, as it is in the ring, without the padding.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedBlock {
    /// Begin of its records in the log.
    pub begin: u64,
    /// End of its records in the log.
    pub end: u64,
    /// Checksum of its header, which chains it to all blocks before it.
    pub sum: u64,
    /// That checksum of the block before it.
    pub previous: u64,
    /// Header and stored payload.
    pub bytes: Bytes,
}

impl SealedBlock {
    /// Reads a block from bytes that another log sealed. Returns `None` unless all checksums hold.
    pub fn decode(bytes: Bytes) -> Option<Self> {
        let (header, sum) = Header::decode(&bytes)?;
        let stored = bytes.get(HEADER..)?;
        let whole = stored.len() == header.stored_len as usize && checksum(stored) == header.payload_sum;
        whole.then(|| Self::of(&header, sum, bytes))
    }

    /// Returns the block of a header, whose bytes are whole.
    fn of(header: &Header, sum: u64, bytes: Bytes) -> Self {
        let (begin, previous) = (header.lsn, header.previous);
        Self { begin, end: begin + u64::from(header.raw_len), sum, previous, bytes }
    }

    /// Returns the identity of the log that sealed it, as in [`Zone`](crate::Zone); `None` if its
    /// header is not whole.
    pub fn store(&self) -> Option<u64> {
        Header::decode(&self.bytes).map(|(header, _)| header.store)
    }

    /// Returns the block's records, uncompressed; `None` if they do not decompress, or if this
    /// build lacks their codec.
    pub fn records(&self) -> Option<Bytes> {
        let (header, _) = Header::decode(&self.bytes)?;
        let known = header.codec.is_built_in();
        known.then(|| compress::open(header.codec, &self.bytes[HEADER..], header.raw_len as usize))?
    }

    pub(crate) fn placed(from: Cursor, to: Cursor, bytes: Bytes) -> Self {
        Self { begin: from.lsn, end: to.lsn, sum: to.chain, previous: from.chain, bytes }
    }
}

impl fmt::Debug for SealedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedBlock({}..{}, {} bytes)", self.begin, self.end, self.bytes.len())
    }
}

/// The handle by which a mirror reports. It does not keep the log open.
#[derive(Clone)]
pub struct MirrorHandle(Weak<dyn Mirrored>);

/// A log that has a mirror.
pub(crate) trait Mirrored: Send + Sync {
    /// Learns how many blocks the mirror keeps.
    fn kept(&self, blocks: u64);

    /// Learns that the mirror keeps nothing more.
    fn mirror_ended(&self, why: &str);
}

impl MirrorHandle {
    pub(crate) fn new(log: Weak<dyn Mirrored>) -> Self {
        Self(log)
    }

    /// Reports that the mirror keeps the first `blocks` of all blocks that it has taken. A report
    /// of fewer blocks than an earlier one changes nothing.
    pub fn kept(&self, blocks: u64) {
        if let Some(log) = self.0.upgrade() {
            log.kept(blocks);
        }
    }

    /// Reports that the mirror keeps nothing more. The log stops with [`WalError::MirrorEnded`].
    pub fn end(&self, why: &str) {
        if let Some(log) = self.0.upgrade() {
            log.mirror_ended(why);
        }
    }
}

impl fmt::Debug for MirrorHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MirrorHandle")
    }
}

/// Reads all blocks of a ring that was recovered, and that nothing has written since.
///
/// # Errors
/// [`WalError::Io`]; [`WalError::Damaged`] if the blocks changed since the recovery.
pub fn sealed_blocks(
    volume: &dyn Volume,
    layout: impl Into<Layout>,
    start: Start,
    found: &Recovery,
) -> Result<Vec<SealedBlock>, WalError> {
    let (layout, mut blocks) = (layout.into(), Vec::new());
    if start.cursor.seq == found.next.seq {
        return Ok(blocks);
    }
    let start = Start { acked: found.next.seq - 1, clean: true, ..start };
    let mut walk = Walk::new(volume, layout, start, layout.map.limit(start.cursor.position))?;
    while let Some((block, header)) = walk.next()? {
        let mut buf = AlignedBuf::zeroed(header.disk_len());
        read_exact_at(volume, layout.offset(header.position), &mut buf)?;
        let bytes = Bytes::copy_from_slice(&buf[..HEADER + header.stored_len as usize]);
        let (_, to) = block.cursors();
        blocks.push(SealedBlock::of(&header, to.chain, bytes));
    }
    Ok(blocks)
}
