//! The end of the ring after a crash: the blocks that a power cut could still take back, and the
//! remedy.
//!
//! A block reads back as soon as a cache holds it. A block survives a power cut only once it is on
//! the medium. The two differ after a failed write or flush: the system drops the pending bytes,
//! the cache still returns them, and no later flush writes them. If an opening trusts such a block,
//! and acknowledges blocks behind it, a power cut loses the block and all blocks behind it.
//!
//! Blocks up to the last *witness* are safe: a later block, or the superblock, records that they
//! were acknowledged. At most the blocks that were in flight together are behind the witness.
//!
//! - An opening for writing makes the other blocks safe ([`secure`]): after a flush it compares
//!   each block with the medium, and writes the block again if the medium holds other bytes. An
//!   acknowledged block is on the medium, so it is not written again, and a power cut cannot tear
//!   it. If the volume cannot distinguish the medium from a cache ([`Volume::read_medium`]), each
//!   block is written again.
//! - An opening for reading only writes nothing. It leaves out the blocks that are not on the
//!   medium ([`recover_secured`]), and reports their number. If the volume cannot determine whether
//!   a block is on the medium, the opening shows the block, and reports that.

use std::collections::VecDeque;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, Volume, read_exact_at, read_medium_exact_at, write_all_at};

use crate::block_handle::Block;
use crate::error::WalError;
use crate::format::{HEADER, Header, checksum};
use crate::map::Layout;
use crate::recover::{Found, Hole, Recovery, Start, Walk, drive, stoppable};

/// Makes every recovered block safe from a power cut. Call it after a flush of `volume`, before the
/// opening is recorded; `start` and `found` are the start and the result of the recovery.
///
/// Returns the number of blocks that it wrote again.
///
/// # Errors
/// [`WalError::Io`] if the volume fails, or if a block reads back differently than before.
/// Acknowledge nothing then.
pub fn secure(
    volume: &dyn Volume,
    layout: impl Into<Layout>,
    start: Start,
    found: &Recovery,
) -> Result<u64, WalError> {
    let layout = layout.into();
    if bug("window-is-not-written-again") {
        return Ok(0);
    }
    let mut written = 0;
    for place in places(volume, layout, start, found)? {
        if place.on_medium(volume) == Some(true) {
            continue;
        }
        let bytes = place.read(volume)?;
        write_all_at(volume, place.offset, &bytes, Persist::Cached)?;
        written += 1;
    }
    if written > 0 && !bug("window-is-written-without-flush") {
        volume.flush()?;
    }
    Ok(written)
}

/// Recovers like [`recover`](crate::recover), for an opening that writes nothing: `visit` gets no
/// block that is known not to be on the medium. [`Recovery::withheld`] counts these blocks, and
/// [`Recovery::next`] is the first of them. If the volume cannot determine whether a block is on
/// the medium, `visit` gets that block, and [`Recovery::unproven`] counts it.
///
/// If acknowledged data does not read back, `visit` gets a [`Hole`](crate::Hole), and then the
/// blocks behind it that are proven to be part of the log. A sector that the device does not read
/// counts as damaged. If the next block may be there, `visit` gets a hole, although nothing proves
/// that the block was acknowledged. It also gets one if the next block does not read back, and such
/// a sector behind it may have the proof.
///
/// # Errors
/// [`WalError::Io`] if the volume fails, reads no sector, or does not read many; and the errors
/// that `visit` returns.
pub fn recover_secured<E: From<WalError>>(
    volume: &dyn Volume,
    layout: impl Into<Layout>,
    start: Start,
    mut visit: impl FnMut(&Found) -> Result<(), E>,
) -> Result<Recovery, E> {
    stoppable(|stop| walk_secured(volume, layout.into(), start, &mut |found| stop(visit(found))))
}

/// Passes the blocks that count to `visit`, until `visit` returns `false`.
fn walk_secured(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    visit: &mut dyn FnMut(&Found) -> bool,
) -> Result<Recovery, WalError> {
    let mut held: VecDeque<(Arc<Block>, Header)> = VecDeque::new();
    let mut acked = start.acked;
    let mut stopped = false;
    let mut found = drive(volume, layout, start, &|walk| walk.next_around(), &mut |found| {
        match &found {
            Found::Block(block, header) => {
                acked = acked.max(header.acked);
                held.push_back((block.clone(), *header));
            }
            // A missing block was acknowledged, and so were all blocks before it.
            Found::Hole(hole) => acked = acked.max(hole.from.seq),
        }
        while let Some((block, header)) = held.pop_front() {
            if header.seq > acked && !bug("read-only-shows-the-window") {
                held.push_front((block, header));
                break;
            }
            if !visit(&Found::Block(block, header)) {
                stopped = true;
                return false;
            }
        }
        stopped = matches!(found, Found::Hole(_)) && !visit(&found);
        !stopped
    })?;
    if stopped {
        return Ok(found);
    }
    let flushed = held.is_empty() || volume.flush().is_ok();
    while let Some((block, header)) = held.pop_front() {
        match Place::of(layout, &block, &header).on_medium(volume) {
            Some(false) => {
                held.push_front((block, header));
                break;
            }
            // If the flush fails, the contents of the medium are unknown.
            known => found.unproven += u64::from(known.is_none() || !flushed),
        }
        if !visit(&Found::Block(block, header)) {
            return Ok(found);
        }
    }
    if let Some((first, _)) = held.front() {
        found.next = first.cursors().0;
        found.withheld = held.len() as u64;
        found.blocks -= found.withheld;
        found.block_bytes -= held.iter().map(|(_, header)| header.disk_len() as u64).sum::<u64>();
    } else if found.unread {
        let what =
            "the device does not read a part of the ring; whether this block was acknowledged is not known";
        visit(&Found::Hole(Hole { from: found.next, next: None, what: what.into(), remains: None }));
    }
    Ok(found)
}

/// The location of a block on the volume, and the checksum that identifies the block.
struct Place {
    offset: u64,
    len: usize,
    sum: u64,
}

impl Place {
    fn of(layout: Layout, block: &Block, header: &Header) -> Self {
        let (_, next) = block.cursors();
        Self { offset: layout.offset(header.position), len: header.disk_len(), sum: next.chain }
    }

    /// Returns whether `bytes` are the whole block.
    fn holds(&self, bytes: &[u8]) -> bool {
        let Some((header, sum)) = Header::decode(bytes) else { return false };
        let stored = bytes[HEADER..].get(..header.stored_len as usize);
        sum == self.sum && stored.is_some_and(|stored| checksum(stored) == header.payload_sum)
    }

    /// Returns whether the medium holds the block; `None` if the volume cannot determine that.
    fn on_medium(&self, volume: &dyn Volume) -> Option<bool> {
        let mut buf = AlignedBuf::zeroed(self.len);
        read_medium_exact_at(volume, self.offset, &mut buf).then(|| self.holds(&buf))
    }

    /// Reads the block again; returns an error if its bytes differ from those that recovery read.
    fn read(&self, volume: &dyn Volume) -> Result<AlignedBuf, WalError> {
        let mut buf = AlignedBuf::zeroed(self.len);
        read_exact_at(volume, self.offset, &mut buf)?;
        if !self.holds(&buf) {
            let message = format!("the block at offset {} changed between two reads", self.offset);
            return Err(std::io::Error::other(message).into());
        }
        Ok(buf)
    }
}

/// Returns the places of the blocks behind the last witness.
fn places(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    found: &Recovery,
) -> Result<Vec<Place>, WalError> {
    // The walk must meet all blocks that recovery found, and stops behind the last of them.
    let start = Start { cursor: found.witnessed, acked: found.next.seq - 1, clean: true, ..start };
    let mut places = Vec::new();
    if found.witnessed.seq < found.next.seq {
        let limit = layout.map.limit(start.cursor.position);
        let mut walk = Walk::new(volume, layout, start, limit)?;
        // Recovery has just read these blocks: a missing block means that the volume returns other
        // bytes.
        let changed = |error| match error {
            WalError::Damaged { .. } => {
                std::io::Error::other(format!("the ring changed between two reads: {error}")).into()
            }
            error => error,
        };
        while let Some((block, header)) = walk.next().map_err(changed)? {
            places.push(Place::of(layout, &block, &header));
        }
    }
    Ok(places)
}
