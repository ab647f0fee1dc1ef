//! Reading a ring beside the process that writes it.

use std::collections::VecDeque;
use std::sync::Arc;

use brooklet_io::Volume;
use brooklet_io::seeded::bug;

use crate::block_handle::Block;
use crate::error::WalError;
use crate::format::Header;
use crate::map::Layout;
use crate::recover::{Found, Recovery, Start, Walk, stoppable};

/// Recovers like [`recover`](crate::recover), beside the process that has the ring open for
/// writing: `visit` gets the blocks that were acknowledged, as later blocks or the superblock
/// prove. [`Recovery::next`] is behind the last of them. Every block whose acknowledgement was
/// recorded before the call is among them.
///
/// The writer records an acknowledgement with the next block, or a moment later if it rests.
///
/// If a block that the superblock knows does not read back, `visit` gets a [`Hole`](crate::Hole),
/// and then the blocks behind it that are proven to be part of the log. The writer may have trimmed
/// the block meanwhile: read the superblock again, and recover again if it has changed. Other
/// damage looks like the end of the log.
///
/// # Errors
/// [`WalError::Io`] if the volume fails, reads no sector, does not read many, or does not read a
/// place where the next block may be that the superblock does not know; and the errors that `visit`
/// returns.
pub fn recover_beside<E: From<WalError>>(
    volume: &dyn Volume,
    layout: impl Into<Layout>,
    start: Start,
    mut visit: impl FnMut(&Found) -> Result<(), E>,
) -> Result<Recovery, E> {
    stoppable(|stop| walk_beside(volume, layout.into(), start, &mut |found| stop(visit(found))))
}

/// Passes the acknowledged blocks and the holes to `visit`, until `visit` returns `false`.
fn walk_beside(
    volume: &dyn Volume,
    layout: Layout,
    start: Start,
    visit: &mut dyn FnMut(&Found) -> bool,
) -> Result<Recovery, WalError> {
    let limit = layout.map.limit(start.cursor.position);
    let mut walk = Walk::new(volume, layout, start, limit)?;
    let mut held: VecDeque<(Arc<Block>, Header)> = VecDeque::new();
    let mut acked = start.acked;
    while let Some(found) = walk.next_beside()? {
        let hole = match found {
            Found::Block(block, header) => {
                acked = acked.max(header.acked);
                held.push_back((block, header));
                None
            }
            // The superblock proves the missing block, and all blocks before it.
            hole @ Found::Hole(_) => Some(hole),
        };
        while held.front().is_some_and(|(_, header)| header.seq <= acked || bug("reader-beside-shows-all")) {
            let (block, header) = held.pop_front().expect("just seen");
            if !visit(&Found::Block(block, header)) {
                return Ok(walk.found);
            }
        }
        if hole.is_some_and(|hole| !visit(&hole)) {
            return Ok(walk.found);
        }
    }
    let mut found = walk.found;
    if let Some((first, _)) = held.front() {
        found.next = first.cursors().0;
        found.withheld = held.len() as u64;
        found.blocks -= found.withheld;
        found.block_bytes -= held.iter().map(|(_, header)| header.disk_len() as u64).sum::<u64>();
    }
    Ok(found)
}
