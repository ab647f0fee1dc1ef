//! Recovery: the longest run of blocks that follow each other, and an honest word about where it
//! ends.
//!
//! The reader walks from the trim point, block after block ([`crate::format`] says what *follows*
//! means), until none follows. Then it must tell four cases apart:
//!
//! 1. **The end.** A clean close recorded the last block, and it was found.
//! 2. **A torn tail.** The next block was being written when the power went: nothing says that it
//!    was acknowledged. Normal; it is dropped, with whatever later block of the same window reached
//!    the disk before it.
//! 3. **A stale block**, from an earlier lap or an earlier crash. Its position, number, chain or
//!    epoch does not fit, so it does not follow; it is no evidence either, because all it says was
//!    acknowledged was found.
//! 4. **Damage.** Some valid block anywhere in the ring, of this lap or a later one, or the
//!    superblock, says that the missing one had been acknowledged. That is an error with the
//!    block's address, never a silent cut.
//!
//! A trim point that is not the newest, because that one is lost to rot, shows too: by blocks of a
//! later lap where older ones should be, or one that goes on beyond the end of the ring. Nothing is
//! written there before a trim is recorded.
//!
//! To tell 2 from 4 the rest of the ring is read once: recovery costs at most one pass over the
//! ring, but for a torn block behind the skipped end of a lap, which is read again. Such an end
//! itself is skipped unread. What recovery holds is a few megabytes and the blocks at hand,
//! whatever the size of the ring.
//!
//! What stays ambiguous is rot in the blocks that were in flight together when the power went,
//! before any later block said that they were acknowledged: the committer narrows that by writing
//! an empty block when the log falls idle.
//!
//! Who only reads goes on behind damage: `recover/holes.rs` says where.
//!
//! Before a log is opened at the end that was found, every block that was read must be made durable
//! ([`secure`](crate::secure) says how), and the opening's epoch must be recorded.

mod holes;

use std::collections::VecDeque;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{SECTOR, Volume};
use bytes::Bytes;

use crate::block_handle::Block;
use crate::compress;
use crate::config::{Zone, max_record};
use crate::error::WalError;
use crate::format::{HEADER, Header, Records, checksum};
use crate::map::Layout;
use crate::read_ahead::ReadAhead;
use crate::ring::Cursor;
pub use holes::{Found, Hole};

/// What the superblock knows of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The trim point: where the first block that is needed lies.
    pub cursor: Cursor,
    /// Every block up to this number was acknowledged.
    pub acked: u64,
    /// The log was closed cleanly: `acked` is its last block.
    pub clean: bool,
    /// The epoch of the last opening: that of every block behind `acked`.
    pub epoch: u64,
}

/// How the log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was closed, and is all there.
    Clean,
    /// It was not closed; nothing was being written.
    Open,
    /// It was not closed, and this many valid blocks behind the end had not been acknowledged and
    /// were dropped.
    Torn(u64),
}

/// What recovery found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Where the next block goes.
    pub next: Cursor,
    /// The largest epoch met, zero where no block was.
    pub epoch: u64,
    /// Blocks recovered.
    pub blocks: u64,
    /// Their bytes in the ring.
    pub block_bytes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// How the log ended.
    pub end: End,
    /// The first block of which nothing says that it was acknowledged; `next` where there is none.
    /// From there on a power cut could take blocks back until they are made
    /// [`secure`](crate::secure).
    pub witnessed: Cursor,
    /// Blocks behind `next` that an opening for reading only left out, since they are not on the
    /// medium ([`recover_secured`](crate::recover_secured)).
    pub withheld: u64,
    /// Blocks that an opening for reading only shows though it cannot tell whether they are on the
    /// medium.
    pub unproven: u64,
}

/// The header of the next block, with its checksum, or why there is no such block.
type Next = Result<(Header, u64), &'static str>;

/// Places for blocks that were read and wait to be visited.
const READ_AHEAD: usize = 16;
/// A block takes a place, and one more for each so many of its bytes: what waits is bounded in
/// bytes, too.
const PLACE: usize = 1 << 20;
/// Rings up to this size, in bytes, are read in less time than a thread takes to start and be
/// waited for.
const SMALL: u64 = 1 << 20;

/// Reads the ring from its trim point and gives every recovered block to `visit`, in order.
///
/// Reading, checking and decompressing go on in a thread of their own, a few blocks ahead of
/// `visit`, unless the ring is small.
///
/// # Errors
/// [`WalError::Damaged`] where acknowledged data does not read back; [`WalError::Io`] where the
/// volume fails; and whatever `visit` returns.
pub fn recover<E: From<WalError>>(
    volume: &dyn Volume,
    zone: Zone,
    start: Start,
    visit: impl FnMut(&Arc<Block>, &Header) -> Result<(), E>,
) -> Result<Recovery, E> {
    recover_in(volume, zone.into(), start, visit)
}

/// [`recover`], in a ring that may have been resized.
pub(crate) fn recover_in<E: From<WalError>>(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    mut visit: impl FnMut(&Arc<Block>, &Header) -> Result<(), E>,
) -> Result<Recovery, E> {
    let next = |walk: &mut Walk<'_>| Ok(walk.next()?.map(|(block, header)| Found::Block(block, header)));
    drive(volume, layout, start, next, |found| match found {
        Found::Block(block, header) => visit(block, header),
        Found::Hole(_) => unreachable!("damage ends this walk"),
    })
}

/// The same for who only reads: where acknowledged data does not read back, `visit` gets a
/// [`Hole`], and then the blocks behind it that are proven to be part of the log.
pub(crate) fn recover_around<E: From<WalError>>(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    visit: impl FnMut(&Found) -> Result<(), E>,
) -> Result<Recovery, E> {
    drive(volume, layout, start, |walk| walk.next_around(), visit)
}

/// Gives `visit` what a walk finds that moves on by `next`.
fn drive<E: From<WalError>>(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    next: impl Fn(&mut Walk<'_>) -> Result<Option<Found>, WalError> + Send,
    mut visit: impl FnMut(&Found) -> Result<(), E>,
) -> Result<Recovery, E> {
    if layout.map.reach() <= SMALL {
        let mut refused = None;
        let found = walk(volume, layout, start, next, |found| {
            refused = visit(&found).err();
            refused.is_none()
        });
        return refused.map_or_else(|| Ok(found?), Err);
    }
    std::thread::scope(|scope| {
        let (give, blocks) = std::sync::mpsc::sync_channel(READ_AHEAD);
        let walk = move || {
            walk(volume, layout, start, next, |found| {
                let len = if let Found::Block(block, _) = &found { block.data().len() } else { 0 };
                let more = (len / PLACE).min(READ_AHEAD);
                give.send(Some(found)).is_ok() && (0..more).all(|_| give.send(None).is_ok())
            })
        };
        let walker = std::thread::Builder::new().name("brooklet-recover".into()).spawn_scoped(scope, walk);
        let walker = walker.map_err(WalError::from)?;
        for found in blocks.into_iter().flatten() {
            visit(&found)?;
        }
        Ok(walker.join().expect("the walk does not panic")?)
    })
}

/// Walks along the ring and gives away what it finds, until nobody takes it any more.
fn walk(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    next: impl Fn(&mut Walk<'_>) -> Result<Option<Found>, WalError>,
    mut give: impl FnMut(Found) -> bool,
) -> Result<Recovery, WalError> {
    let limit = layout.map.limit(start.cursor.position);
    let mut walk = Walk::new(volume, layout, start, limit)?;
    while let Some(found) = next(&mut walk)? {
        if !give(found) {
            break;
        }
    }
    Ok(walk.found)
}

/// A walk along the ring, a block at a time.
pub(crate) struct Walk<'a> {
    read_ahead: ReadAhead<'a>,
    layout: Layout,
    start: Start,
    /// What was found so far; how the log ended is known after the last block.
    pub found: Recovery,
    /// The blocks found so far of which nothing says that they were acknowledged.
    unwitnessed: VecDeque<Cursor>,
    /// Damage hides the rest.
    over: bool,
}

impl<'a> Walk<'a> {
    /// A walk from `start`, over what lies before position `limit`.
    pub fn new(volume: &'a dyn Volume, layout: Layout, start: Start, limit: u64) -> Result<Self, WalError> {
        let read_ahead = ReadAhead::new(volume, layout, start.cursor.position, limit)?;
        let (next, end) = (start.cursor, End::Clean);
        let found = Recovery {
            next,
            epoch: 0,
            blocks: 0,
            block_bytes: 0,
            bytes_read: 0,
            end,
            witnessed: next,
            withheld: 0,
            unproven: 0,
        };
        Ok(Self { read_ahead, layout, start, found, unwitnessed: VecDeque::new(), over: false })
    }

    /// The next block; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(Arc<Block>, Header)>, WalError> {
        let Self { read_ahead, layout, start, found, unwitnessed, .. } = self;
        if start.clean && found.next.seq == start.acked + 1 {
            found.bytes_read = read_ahead.bytes_read();
            return Ok(None);
        }
        let (header, chain) = match follow(read_ahead, layout, *start, found)? {
            Ok(next) => next,
            Err(why) => return self.end(why).map(|()| None),
        };
        let data = payload(read_ahead, &header)?.map_err(|what| damaged(found, what.into()))?;
        let end = header.position + header.disk_len() as u64;
        read_ahead.release(end);
        let from = Cursor { position: header.position, ..found.next };
        found.next =
            Cursor { position: end, seq: header.seq + 1, lsn: header.lsn + u64::from(header.raw_len), chain };
        found.epoch = header.epoch;
        found.blocks += 1;
        found.block_bytes += header.disk_len() as u64;
        unwitnessed.push_back(from);
        let acked = start.acked.max(header.acked);
        while unwitnessed.front().is_some_and(|block| block.seq <= acked) {
            unwitnessed.pop_front();
        }
        found.witnessed = *unwitnessed.front().unwrap_or(&found.next);
        Ok(Some((Arc::new(Block::recovered(from, found.next, data)), header)))
    }

    /// Tells the end of the log from damage, where no block follows because of `why`.
    fn end(&mut self, why: &'static str) -> Result<(), WalError> {
        let Self { read_ahead, layout, start, found, .. } = self;
        if start.acked >= found.next.seq && !bug("superblock-is-no-witness") {
            return Err(damaged(found, format!("{why}; the superblock says it was acknowledged")));
        }
        if why == BEYOND {
            return Err(damaged(found, format!("{why}, whose newest trim point is lost")));
        }
        let behind = evidence(read_ahead, layout, *start, found.next)?;
        if let Some(witness) = behind.witness
            && !bug("cut-instead-of-error")
        {
            let what = format!("{why}; block {witness}, written later, says it was acknowledged");
            return Err(damaged(found, what));
        }
        found.end = if behind.dropped > 0 || why != NO_BLOCK { End::Torn(behind.dropped) } else { End::Open };
        found.bytes_read = read_ahead.bytes_read();
        Ok(())
    }
}

/// The payload of a block whose checksum held. If it makes no sense all the same, it is not torn:
/// it is not what was written.
fn payload(read_ahead: &mut ReadAhead<'_>, header: &Header) -> std::io::Result<Result<Bytes, &'static str>> {
    let bytes = read_ahead.at(header.position, header.disk_len())?.expect("just read");
    let stored = &bytes[HEADER..HEADER + header.stored_len as usize];
    let Some(data) = compress::open(header.codec, stored, header.raw_len as usize) else {
        return Ok(Err("the payload does not decompress"));
    };
    let sound = Records::new(&data).all(|record| record.is_some());
    Ok(if sound { Ok(data) } else { Err("the records are malformed") })
}

fn damaged(found: &Recovery, what: String) -> WalError {
    WalError::Damaged { seq: found.next.seq, position: found.next.position, lsn: found.next.lsn, what }
}

const NO_BLOCK: &str = "no block of this lap is there";
const LATER_LAP: &str = "a block of a later lap is there";
const BEYOND: &str = "a block there goes on beyond the end of the ring";

/// Whether a block of ours lies at `position` that was written there after it had been trimmed: in
/// this opening, since an opening records its trim point for good, and a block of an earlier one
/// may be what a crash dropped.
fn is_of_later_lap(layout: &Layout, start: Start, header: &Header, position: u64) -> bool {
    let later = header.store == layout.store && (position + 1..1 << 62).contains(&header.position);
    later && header.epoch >= start.epoch && layout.map.at(header.position) == layout.map.at(position)
}

/// Looks for the next block where it should be: right behind, or at the start of the next lap if it
/// did not fit.
///
/// The start of the lap is peeked at: the reader goes there only for what may be the next block,
/// and comes back if that is torn.
fn follow(
    read_ahead: &mut ReadAhead<'_>,
    layout: &Layout,
    start: Start,
    found: &Recovery,
) -> std::io::Result<Next> {
    let position = found.next.position;
    let here = judge(read_ahead.at(position, SECTOR)?, layout, start, found, position);
    let here = whole(read_ahead, here)?;
    let (left, size) = (layout.map.lap_left(position), layout.map.size_at(position));
    let gap_possible = left < size && left <= (max_record(size) + 2 * SECTOR) as u64;
    if gap_possible && here.is_err_and(|why| why != LATER_LAP) {
        let lap = position + left;
        let there = judge(read_ahead.peek(lap)?, layout, start, found, lap);
        if there.is_ok_and(|(header, _)| header.disk_len() as u64 > left) {
            read_ahead.seek(lap);
            let there = whole(read_ahead, there)?;
            if there.is_ok() {
                return Ok(there);
            }
            read_ahead.seek(position);
        }
    }
    Ok(here)
}

/// Whether the sector at `position` begins the next block.
fn judge(sector: Option<&[u8]>, layout: &Layout, start: Start, found: &Recovery, position: u64) -> Next {
    let Some(bytes) = sector else { return Err(NO_BLOCK) };
    let Some((header, sum)) = Header::decode(bytes) else {
        return Err(if bytes[..4] == *b"BRKB" { "the header is damaged" } else { NO_BLOCK });
    };
    if header.store != layout.store || header.position != position {
        let later = is_of_later_lap(layout, start, &header, position);
        return Err(if later { LATER_LAP } else { NO_BLOCK });
    }
    let follows = header.previous == found.next.chain && header.lsn == found.next.lsn;
    if header.seq != found.next.seq || !(follows || bug("stale-blocks-are-believed")) {
        return Err("a block is there that does not follow");
    }
    let fits =
        if header.seq > start.acked { header.epoch == start.epoch } else { header.epoch <= start.epoch };
    if (!fits || header.epoch < found.epoch) && !bug("stale-blocks-are-believed") {
        return Err("a block of an earlier opening is there");
    }
    let map = &layout.map;
    if header.disk_len() as u64 > map.piece(position) || u64::from(header.raw_len) > map.size_at(position) {
        return Err("the block is longer than the ring has room for");
    }
    Ok((header, sum))
}

/// Reads the block whose header is the next one's: the next block is only what is there whole.
fn whole(read_ahead: &mut ReadAhead<'_>, next: Next) -> std::io::Result<Next> {
    let Ok((header, _)) = next else { return Ok(next) };
    let Some(bytes) = read_ahead.at(header.position, header.disk_len())? else { return Ok(Err(BEYOND)) };
    let stored = &bytes[HEADER..HEADER + header.stored_len as usize];
    let damaged = checksum(stored) != header.payload_sum && !bug("payload-sum-is-ignored");
    Ok(if damaged { Err("the payload is damaged") } else { next })
}

struct Behind {
    /// A block that says the missing one was acknowledged.
    witness: Option<u64>,
    /// Valid blocks that say nothing of the kind.
    dropped: u64,
}

/// Reads the rest of the ring for blocks that were written after the missing one: of this lap, or
/// of a later one, which is there if the trim point is not the newest.
fn evidence(
    read_ahead: &mut ReadAhead<'_>,
    layout: &Layout,
    start: Start,
    missing: Cursor,
) -> std::io::Result<Behind> {
    let mut behind = Behind { witness: None, dropped: 0 };
    let mut position = missing.position;
    while position < read_ahead.limit() {
        read_ahead.release(position);
        let bytes = read_ahead.at(position, SECTOR)?.expect("within the tape");
        if let Some((header, _)) = Header::decode(bytes)
            && (header.position == position || is_of_later_lap(layout, start, &header, position))
            && header.store == layout.store
            && header.seq >= missing.seq
        {
            if header.acked >= missing.seq {
                behind.witness = Some(header.seq);
                break;
            }
            // The torn block itself, if its header is whole, is not behind the end.
            let this_lap = header.position == position;
            behind.dropped += u64::from(this_lap && position > missing.position);
        }
        position += SECTOR as u64;
    }
    Ok(behind)
}
