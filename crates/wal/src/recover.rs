//! Recovery: finds the longest run of blocks that follow each other, and determines how it ends.
//!
//! The reader walks from the trim point, block after block ([`crate::format`] defines *follows*),
//! until none follows. Then it distinguishes four cases:
//!
//! 1. **The end.** A clean close recorded the last block, and the walk found that block.
//! 2. **A torn tail.** The power went off while the next block was being written: nothing says that
//!    the block was acknowledged. This is normal; the block is dropped, with every later block of
//!    the same window that reached the disk before it.
//! 3. **A stale block**, from an earlier lap or an earlier crash. Its position, number, chain or
//!    epoch does not fit, so the block does not follow. A stale block is no evidence either,
//!    because the walk found every block that the stale block reports as acknowledged.
//! 4. **Damage.** A valid block anywhere in the ring, of this lap or a later one, or the
//!    superblock, says that the missing block was acknowledged. That is an error with the block's
//!    address, never a silent cut.
//!
//! A trim point that is not the newest, because rot destroyed the newest, is detected too: blocks
//! of a later lap replace older blocks, or a block continues beyond the end of the ring. Nothing is
//! written there before a trim is recorded.
//!
//! To distinguish case 2 from case 4, the rest of the ring is read once. So recovery costs at most
//! one pass over the ring; only a torn block behind the skipped end of a lap is read again. The
//! skipped end itself is not read. Recovery holds a few megabytes and the current blocks, for any
//! size of the ring.
//!
//! One case stays ambiguous: rot in the blocks that were in flight together at the power cut,
//! before any later block said that they were acknowledged. The committer makes that case rarer: it
//! writes an empty block when the log becomes idle.
//!
//! A reader that writes nothing continues behind damage: see `recover/holes.rs`.
//!
//! Before a log is opened at the found end, every block that was read must be made durable (see
//! [`secure`](crate::secure)), and the opening's epoch must be recorded.

mod holes;

use std::collections::VecDeque;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{SECTOR, Volume};
use bytes::Bytes;

use crate::block_handle::Block;
use crate::compress;
use crate::config::{LONGEST_PAYLOAD, max_record};
use crate::error::WalError;
use crate::format::{HEADER, Header, Records, checksum};
use crate::map::Layout;
use crate::read_ahead::ReadAhead;
use crate::ring::Cursor;
use holes::MostAcked;
pub use holes::{Found, Hole};

/// The superblock's knowledge of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The trim point: the position of the first needed block.
    pub cursor: Cursor,
    /// Every block up to this number was acknowledged.
    pub acked: u64,
    /// Whether the log was closed cleanly: `acked` is then its last block.
    pub clean: bool,
    /// Epoch of the last opening: the epoch of every block behind `acked`.
    pub epoch: u64,
}

/// The end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The log was closed, and is complete.
    Clean,
    /// The log was not closed; no write was in flight.
    Open,
    /// The log was not closed. This many valid blocks behind the end were not acknowledged, and
    /// were dropped.
    Torn(u64),
}

/// The result of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Position of the next block.
    pub next: Cursor,
    /// The largest epoch of all blocks; zero without blocks.
    pub epoch: u64,
    /// Number of recovered blocks.
    pub blocks: u64,
    /// Bytes of the recovered blocks in the ring.
    pub block_bytes: u64,
    /// Number of bytes read.
    pub bytes_read: u64,
    /// The end of the log.
    pub end: End,
    /// The first block for which nothing proves an acknowledgement; `next` if every block is
    /// proven. A power cut could take back the blocks from there on, until they are made
    /// [`secure`](crate::secure).
    pub witnessed: Cursor,
    /// Number of blocks behind `next` that a read-only opening left out, because they are not on
    /// the medium ([`recover_secured`](crate::recover_secured)).
    pub withheld: u64,
    /// Number of blocks that a read-only opening shows although it cannot determine whether they
    /// are on the medium.
    pub unproven: u64,
    /// Whether a read-only opening cannot determine whether the log ends at `next`: the device does
    /// not read the block there, or not all that may prove that this block was acknowledged.
    pub unread: bool,
    /// Number of sectors of the ring that a read-only opening asked for, and that the device did
    /// not read.
    pub unread_sectors: u64,
    /// Offset of the first of these sectors on the volume.
    pub first_unread: Option<u64>,
}

/// The header of the next block, with its checksum, or the reason why no next block exists.
type Next = Result<(Header, u64), &'static str>;

/// The next block and its header, or the reason why no next block exists; without a reason at the
/// end of a log that was closed.
type Step = Result<(Arc<Block>, Header), Option<&'static str>>;

/// Number of places for blocks that were read and wait to be visited.
const READ_AHEAD: usize = 16;
/// A block takes one place, and one more for each `PLACE` bytes: so the waiting blocks are bounded
/// in bytes, too.
const PLACE: usize = 1 << 20;
/// Rings up to this size, in bytes, are read faster than a thread starts and ends.
const SMALL: u64 = 1 << 20;

/// Reads the ring from its trim point and passes every recovered block to `visit`, in order.
///
/// Unless the ring is small, a separate thread reads, checks and decompresses blocks, a few blocks
/// ahead of `visit`.
///
/// # Errors
/// [`WalError::Damaged`] if acknowledged data does not read back; [`WalError::Io`] if the volume
/// fails; and the errors of `visit`.
pub fn recover<E: From<WalError>>(
    volume: &dyn Volume,
    layout: impl Into<Layout>,
    start: Start,
    mut visit: impl FnMut(&Arc<Block>, &Header) -> Result<(), E>,
) -> Result<Recovery, E> {
    let layout = layout.into();
    let next = |walk: &mut Walk<'_>| Ok(walk.next()?.map(|(block, header)| Found::Block(block, header)));
    stoppable(|stop| {
        drive(volume, layout, start, &next, &mut |found| match &found {
            Found::Block(block, header) => stop(visit(block, header)),
            Found::Hole(_) => unreachable!("damage ends this walk"),
        })
    })
}

/// Runs a walk whose visitor ends by `stop` at the first error, and returns that error.
///
/// Only this much knows the error of the caller: what is generic is compiled again by each crate
/// that recovers a ring.
pub(crate) fn stoppable<E: From<WalError>>(
    walk: impl FnOnce(&mut dyn FnMut(Result<(), E>) -> bool) -> Result<Recovery, WalError>,
) -> Result<Recovery, E> {
    let mut refused = None;
    let found = walk(&mut |visited| {
        refused = visited.err();
        refused.is_none()
    });
    refused.map_or_else(|| Ok(found?), Err)
}

/// How a walk advances.
type Advance<'n> = &'n (dyn Fn(&mut Walk<'_>) -> Result<Option<Found>, WalError> + Sync);

/// Passes the findings of a walk to `visit`, until `visit` returns `false`; `next` advances the
/// walk.
pub(crate) fn drive(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    next: Advance<'_>,
    visit: &mut dyn FnMut(Found) -> bool,
) -> Result<Recovery, WalError> {
    if layout.map.reach() <= SMALL {
        return walk(volume, layout, start, next, visit);
    }
    std::thread::scope(|scope| {
        let (give, blocks) = std::sync::mpsc::sync_channel(READ_AHEAD);
        let walk = move || {
            walk(volume, layout, start, next, &mut |found| {
                let len = if let Found::Block(block, _) = &found { block.data().len() } else { 0 };
                let more = (len / PLACE).min(READ_AHEAD);
                give.send(Some(found)).is_ok() && (0..more).all(|_| give.send(None).is_ok())
            })
        };
        let walker = std::thread::Builder::new().name("brooklet-recover".into()).spawn_scoped(scope, walk)?;
        for found in blocks.into_iter().flatten() {
            if !visit(found) {
                break;
            }
        }
        walker.join().expect("the walk does not panic")
    })
}

/// Walks along the ring and passes on its findings, until the receiver stops.
fn walk(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    next: Advance<'_>,
    give: &mut dyn FnMut(Found) -> bool,
) -> Result<Recovery, WalError> {
    let limit = layout.map.limit(start.cursor.position);
    let mut walk = Walk::new(volume, layout, start, limit)?;
    while let Some(found) = next(&mut walk)? {
        if !give(found) {
            break;
        }
    }
    walk.read_ahead.expect_reads()?;
    (walk.found.unread_sectors, walk.found.first_unread) = walk.read_ahead.passed_over();
    Ok(walk.found)
}

/// A walk along the ring, a block at a time.
pub(crate) struct Walk<'a> {
    read_ahead: ReadAhead<'a>,
    layout: Layout,
    start: Start,
    /// The findings so far; the end of the log is known after the last block.
    pub found: Recovery,
    /// The blocks found so far for which nothing proves an acknowledgement.
    unwitnessed: VecDeque<Cursor>,
    /// The most that the rest of the ring says of acknowledged blocks, once a hole was found.
    most_acked: Option<MostAcked>,
    /// Whether damage hides the rest.
    over: bool,
}

impl<'a> Walk<'a> {
    /// Creates a walk from `start` to position `limit`.
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
            unread: false,
            unread_sectors: 0,
            first_unread: None,
        };
        let unwitnessed = VecDeque::new();
        Ok(Self { read_ahead, layout, start, found, unwitnessed, most_acked: None, over: false })
    }

    /// Returns the next block; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(Arc<Block>, Header)>, WalError> {
        match self.step()? {
            Ok(found) => Ok(Some(found)),
            Err(None) => Ok(None),
            Err(Some(why)) => self.end(why).map(|()| None),
        }
    }

    /// Returns the next block of a ring that another process may be writing, or the hole in its
    /// place; `None` at the end. That process may have written later blocks meanwhile, so these
    /// prove nothing about a missing block: only the superblock proves a hole. From now on, the
    /// walk passes over sectors that the device does not read. A sector of an unproven block is an
    /// error.
    pub fn next_beside(&mut self) -> Result<Option<Found>, WalError> {
        if self.over {
            self.read_ahead.expect_reads()?;
            return Ok(None);
        }
        self.read_ahead.pass_over_errors();
        let why = match self.step()? {
            Ok((block, header)) => return Ok(Some(Found::Block(block, header))),
            Err(None) => return Ok(None),
            Err(Some(why)) => why,
        };
        let unread = self.read_ahead.passed_over().0 > 0 && self.next_is_unread()?;
        if self.start.acked >= self.found.next.seq && !bug("reader-beside-ends-at-damage") {
            let why = if unread { UNREAD } else { why };
            let what = format!("{why}; the superblock says it was acknowledged");
            // An acknowledged block may have been written after it was read.
            self.read_ahead.restart(self.found.next.position);
            return Ok(Some(Found::Hole(self.hole(what)?)));
        }
        // The device may read the block the next time: the log must not end before it.
        if unread { Err(self.read_ahead.unread_at(self.found.next.position).into()) } else { Ok(None) }
    }

    /// Returns the next block, or the reason why there is none; no reason at the end of a log that
    /// was closed.
    fn step(&mut self) -> Result<Step, WalError> {
        let Self { read_ahead, layout, start, found, unwitnessed, .. } = self;
        if start.clean && found.next.seq == start.acked + 1 {
            found.bytes_read = read_ahead.bytes_read();
            return Ok(Err(None));
        }
        let (header, chain) = match follow(read_ahead, layout, *start, found)? {
            Ok(next) => next,
            Err(why) => return Ok(Err(Some(why))),
        };
        if !header.codec.is_built_in() {
            return Err(WalError::NoCodec { seq: header.seq, position: header.position });
        }
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
        Ok(Ok((Arc::new(Block::recovered(from, found.next, data)), header)))
    }

    /// Returns whether the device did not read the next block, or a place where it may begin.
    fn next_is_unread(&mut self) -> std::io::Result<bool> {
        let Self { read_ahead, layout, start, found, .. } = self;
        let position = found.next.position;
        for at in [position].into_iter().chain(lap_behind(layout, position)) {
            let header = judge(read_ahead.peek(at)?, layout, *start, found, at);
            let len = header.map_or(SECTOR, |(header, _)| header.disk_len());
            if read_ahead.has_passed_over(at..at + len as u64) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Distinguishes the end of the log from damage; no block follows because of `why`.
    fn end(&mut self, why: &'static str) -> Result<(), WalError> {
        let unread = self.read_ahead.passes_over_errors() && self.next_is_unread()?;
        let why = if unread && why != BEYOND { UNREAD } else { why };
        let Self { read_ahead, layout, start, found, most_acked, .. } = self;
        if start.acked >= found.next.seq && !bug("superblock-is-no-witness") {
            return Err(damaged(found, format!("{why}; the superblock says it was acknowledged")));
        }
        if why == BEYOND {
            return Err(damaged(found, format!("{why}, whose newest trim point is lost")));
        }
        // Once a hole was found, the rest of the ring is known.
        let known = most_acked.and_then(|most| most.by.filter(|_| most.acked >= found.next.seq));
        let behind = match known {
            Some(_) => Behind { witness: known, dropped: 0 },
            None => evidence(read_ahead, layout, *start, found.next)?,
        };
        if let Some(witness) = behind.witness
            && !bug("cut-instead-of-error")
        {
            let what = format!("{why}; block {witness}, written later, says it was acknowledged");
            return Err(damaged(found, what));
        }
        found.end = if behind.dropped > 0 || why != NO_BLOCK { End::Torn(behind.dropped) } else { End::Open };
        // A torn or damaged block is there. What is not read may prove that it was acknowledged.
        let may_be_proven =
            why != NO_BLOCK && read_ahead.has_passed_over(found.next.position..read_ahead.limit());
        found.unread = unread || may_be_proven;
        found.bytes_read = read_ahead.bytes_read();
        Ok(())
    }
}

/// Returns the payload of a block whose checksum is right. A malformed payload is not torn: the
/// payload differs from the written payload.
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
const BEYOND: &str = "a block there ends past the end of the ring";
const UNREAD: &str = "the device does not read it";

/// Returns whether a block of this log at `position` was written there after a trim. The block must
/// be of this opening, because an opening's trim points are final, but a crash may have dropped a
/// block of an earlier opening.
fn is_of_later_lap(layout: &Layout, start: Start, header: &Header, position: u64) -> bool {
    let later = header.store == layout.store && (position + 1..1 << 62).contains(&header.position);
    later && header.epoch >= start.epoch && layout.map.at(header.position) == layout.map.at(position)
}

/// Looks for the next block in both possible places: right behind, or at the start of the next lap
/// if it did not fit.
///
/// The function only peeks at the start of the lap: the reader goes there only for a possible next
/// block, and comes back if that block is torn.
fn follow(
    read_ahead: &mut ReadAhead<'_>,
    layout: &Layout,
    start: Start,
    found: &Recovery,
) -> std::io::Result<Next> {
    let position = found.next.position;
    let here = judge(read_ahead.at(position, SECTOR)?, layout, start, found, position);
    let here = whole(read_ahead, here)?;
    if let Some(lap) = lap_behind(layout, position)
        && here.is_err_and(|why| why != LATER_LAP)
    {
        let left = lap - position;
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

/// Returns the start of the next lap, if the block behind `position` may be there because it did
/// not fit before.
fn lap_behind(layout: &Layout, position: u64) -> Option<u64> {
    let (left, size) = (layout.map.lap_left(position), layout.map.size_at(position));
    let may_be = left < size && left <= (max_record(size) + 2 * SECTOR) as u64;
    may_be.then_some(position + left)
}

/// Returns the header of the next block if the sector at `position` begins it.
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
    if header.disk_len() as u64 > layout.map.piece(position) || header.raw_len > LONGEST_PAYLOAD {
        return Err("the block is longer than the ring has room for");
    }
    Ok((header, sum))
}

/// Reads the block of a found header: only a whole block is the next block.
fn whole(read_ahead: &mut ReadAhead<'_>, next: Next) -> std::io::Result<Next> {
    let Ok((header, _)) = next else { return Ok(next) };
    let Some(bytes) = read_ahead.at(header.position, header.disk_len())? else { return Ok(Err(BEYOND)) };
    let stored = &bytes[HEADER..HEADER + header.stored_len as usize];
    let damaged = checksum(stored) != header.payload_sum && !bug("payload-sum-is-ignored");
    Ok(if damaged { Err("the payload is damaged") } else { next })
}

struct Behind {
    /// A block that proves that the missing block was acknowledged.
    witness: Option<u64>,
    /// Number of valid blocks that do not prove that.
    dropped: u64,
}

/// Reads the rest of the ring for blocks written after the missing block: of this lap, or of a
/// later one, which exists if the trim point is not the newest.
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
            // If the header of the torn block itself is whole, that block is not behind the end.
            let this_lap = header.position == position;
            behind.dropped += u64::from(this_lap && position > missing.position);
        }
        position += SECTOR as u64;
    }
    Ok(behind)
}
