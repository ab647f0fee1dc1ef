//! Reading around damage: finds the blocks before and behind a stretch that does not read back.
//!
//! [`Walk::next`] alone decides that a block is damaged; this module continues the walk after that
//! failure, in one of two places:
//!
//! 1. **Behind the damaged block**, if its header is whole. The header follows the block before, so
//!    it is the missing block's header, and it contains the position of the next block.
//! 2. **At the next block that is proven** to belong to the log. The missing blocks before it must
//!    all have been acknowledged: otherwise a recovery could drop the found block. A block of the
//!    last opening is proven by its position, because an opening writes each position once. An
//!    earlier recovery may have dropped an older block that nothing has overwritten since: so an
//!    older block is proven only if blocks follow each other from it up to a block of the last
//!    opening.
//!
//! Without such a place, the rest of the ring is part of the hole.

use std::sync::Arc;

use bytes::Bytes;

use super::{Recovery, Start, Walk, follow, is_of_later_lap, judge, lap_behind};
use crate::block_handle::Block;
use crate::compress;
use crate::config::LONGEST_PAYLOAD;
use crate::error::WalError;
use crate::format::{HEADER, Header, checksum};
use crate::ring::Cursor;

use brooklet_io::SECTOR;
use brooklet_io::seeded::bug;

/// A stretch of the ring that was acknowledged and does not read back.
#[derive(Clone, Debug)]
pub struct Hole {
    /// The first missing block, and its expected position.
    pub from: Cursor,
    /// Number of the next block of the log; `None` if no later block is proven to be part of the
    /// log.
    pub next: Option<u64>,
    /// Description of the damage.
    pub what: String,
    /// The readable payload of the missing block: some of its bytes are wrong.
    pub remains: Option<Bytes>,
}

/// A finding of a walk around damage.
#[derive(Debug)]
pub enum Found {
    /// A block, and its header.
    Block(Arc<Block>, Header),
    /// A stretch without readable blocks.
    Hole(Hole),
}

/// The most that anything says of acknowledged blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct MostAcked {
    /// The highest number of an acknowledged block.
    pub acked: u64,
    /// Number of the block that says so; `None` for the superblock.
    pub by: Option<u64>,
}

impl Walk<'_> {
    /// Returns the next block, or the hole in its place; `None` at the end. From now on, the walk
    /// passes over sectors that the device does not read.
    pub fn next_around(&mut self) -> Result<Option<Found>, WalError> {
        if self.over {
            return Ok(None);
        }
        self.read_ahead.pass_over_errors();
        match self.next() {
            Ok(next) => Ok(next.map(|(block, header)| Found::Block(block, header))),
            Err(WalError::Damaged { what, .. }) => Ok(Some(Found::Hole(self.hole(what)?))),
            Err(error) => Err(error),
        }
    }

    /// Finds the place where the log continues behind a missing block.
    pub(super) fn hole(&mut self, what: String) -> std::io::Result<Hole> {
        let from = self.found.next;
        // A witness for a block is also a witness for all blocks before it.
        self.unwitnessed.clear();
        let mut hole = Hole { from, next: None, what, remains: None };
        if let Some((header, chain)) = self.header_of_missing()? {
            hole.remains = self.remains(&header)?;
            let position = header.position + header.disk_len() as u64;
            let lsn = header.lsn + u64::from(header.raw_len);
            (self.found.next, self.found.epoch) =
                (Cursor { position, seq: header.seq + 1, lsn, chain }, header.epoch);
        } else if let Some(header) = self.search()?.filter(|_| !bug("a-hole-hides-the-rest")) {
            let Header { position, seq, lsn, previous: chain, .. } = header;
            self.found.next = Cursor { position, seq, lsn, chain };
        } else {
            self.over = true;
            self.found.bytes_read = self.read_ahead.bytes_read();
            return Ok(hole);
        }
        self.found.witnessed = self.found.next;
        hole.next = Some(self.found.next.seq);
        Ok(hole)
    }

    /// Returns the missing block's header, if it is whole: right behind the block before, or at the
    /// start of the next lap.
    fn header_of_missing(&mut self) -> std::io::Result<Option<(Header, u64)>> {
        let Self { read_ahead, layout, start, found, .. } = self;
        let position = found.next.position;
        let lap = lap_behind(layout, position);
        let limit = read_ahead.limit();
        for at in [position].into_iter().chain(lap).filter(|at| *at < limit) {
            read_ahead.seek(at);
            if let Ok((header, sum)) = judge(read_ahead.at(at, SECTOR)?, layout, *start, found, at)
                && header.position + header.disk_len() as u64 <= limit
            {
                return Ok(Some((header, sum)));
            }
        }
        Ok(None)
    }

    /// Returns the possible payload of a damaged block.
    fn remains(&mut self, header: &Header) -> std::io::Result<Option<Bytes>> {
        let bytes = self.read_ahead.at(header.position, header.disk_len())?;
        let stored = bytes.map(|bytes| &bytes[HEADER..HEADER + header.stored_len as usize]);
        Ok(stored.and_then(|stored| compress::open(header.codec, stored, header.raw_len as usize)))
    }

    /// Returns the header of the first block behind the missing block that is proven to be part of
    /// the log.
    fn search(&mut self) -> std::io::Result<Option<Header>> {
        let acked = self.most_acked()?.acked;
        let mut position = self.found.next.position;
        while position < self.read_ahead.limit() {
            self.read_ahead.seek(position);
            let mut next = position + SECTOR as u64;
            if let Some(header) = self.candidate(position, acked)? {
                match self.prove(&header)? {
                    Ok(()) => {
                        self.read_ahead.seek(position);
                        return Ok(Some(header));
                    }
                    Err(end) => next = next.max(end),
                }
            }
            position = next;
        }
        Ok(None)
    }

    /// Returns the highest number of an acknowledged block that the ring or the superblock records.
    /// Only the first hole of a walk reads the rest of the ring for it.
    fn most_acked(&mut self) -> std::io::Result<MostAcked> {
        if let Some(known) = self.most_acked {
            return Ok(known);
        }
        let Self { read_ahead, layout, start, found, .. } = self;
        let mut most = MostAcked { acked: start.acked, by: None };
        let mut position = found.next.position;
        read_ahead.seek(position);
        while position < read_ahead.limit() {
            let header = Header::decode(read_ahead.at(position, SECTOR)?.expect("within the tape"));
            read_ahead.release(position);
            if let Some((header, _)) = header
                && (header.position == position || is_of_later_lap(layout, *start, &header, position))
                && header.store == layout.store
                && header.acked > most.acked
            {
                most = MostAcked { acked: header.acked, by: Some(header.seq) };
            }
            position += SECTOR as u64;
        }
        self.most_acked = Some(most);
        Ok(most)
    }

    /// Returns the header of a whole block at `position` that may be part of the log, if all
    /// missing blocks before it were acknowledged.
    fn candidate(&mut self, position: u64, acked: u64) -> std::io::Result<Option<Header>> {
        let Self { read_ahead, layout, start, found, .. } = self;
        let Start { epoch, acked: known, .. } = *start;
        let header = Header::decode(read_ahead.at(position, SECTOR)?.expect("within the tape"));
        read_ahead.release(position);
        let Some((header, _)) = header else { return Ok(None) };
        let ours = header.store == layout.store && header.position == position;
        let behind = header.seq > found.next.seq
            && header.seq <= acked.saturating_add(1)
            && header.lsn >= found.next.lsn;
        let timely = header.epoch == epoch || header.seq <= known && header.epoch < epoch;
        let fits =
            header.disk_len() as u64 <= layout.map.piece(position) && header.raw_len <= LONGEST_PAYLOAD;
        if !(ours && behind && timely && fits) || header.epoch < found.epoch {
            return Ok(None);
        }
        let Some(bytes) = read_ahead.at(position, header.disk_len())? else { return Ok(None) };
        let stored = &bytes[HEADER..HEADER + header.stored_len as usize];
        Ok((checksum(stored) == header.payload_sum).then_some(header))
    }

    /// Proves a candidate: the last opening wrote it, or blocks follow each other from the
    /// candidate up to a block of the last opening.
    ///
    /// A failure returns the end of the blocks that follow each other from the candidate in one
    /// piece. None of these is proven either: so the search reads them once, not once for each.
    fn prove(&mut self, header: &Header) -> std::io::Result<Result<(), u64>> {
        let Self { read_ahead, layout, start, .. } = self;
        let &Header { position, seq, lsn, previous: chain, mut epoch, .. } = header;
        let next = Cursor { position, seq, lsn, chain };
        let mut found = Recovery { next, epoch, ..self.found };
        let mut piece = position;
        while epoch < start.epoch {
            read_ahead.seek(found.next.position);
            let Ok((header, chain)) = follow(read_ahead, layout, *start, &found)? else {
                return Ok(Err(piece));
            };
            let position = header.position + header.disk_len() as u64;
            read_ahead.release(position);
            if header.position == piece {
                piece = position;
            }
            let lsn = header.lsn + u64::from(header.raw_len);
            found.next = Cursor { position, seq: header.seq + 1, lsn, chain };
            epoch = header.epoch;
            found.epoch = epoch;
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests;
