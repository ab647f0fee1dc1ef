//! Reading a ring beside the process that writes it.

use std::collections::VecDeque;
use std::sync::Arc;

use brooklet_io::Volume;
use brooklet_io::seeded::bug;

use crate::block_handle::Block;
use crate::error::WalError;
use crate::format::Header;
use crate::map::Layout;
use crate::recover::{Recovery, Start, Walk};

/// Recovers like [`recover`](crate::recover), beside the process that has the ring open for
/// writing: `visit` gets the blocks that were acknowledged, as later blocks or the superblock
/// prove.
/// [`Recovery::next`] is behind the last of them. Every block whose acknowledgement was recorded
/// before the call is among them.
///
/// The writer records an acknowledgement with the next block, or a moment later if it rests.
///
/// # Errors
/// [`WalError::Damaged`] if a block that the superblock knows does not read back: the writer may
/// have trimmed the block meanwhile. Read the superblock again, and try again if it has changed.
/// [`WalError::Io`] if the volume fails, and the errors that `visit` returns.
pub fn recover_beside<E: From<WalError>>(
    volume: &dyn Volume,
    layout: impl Into<Layout>,
    start: Start,
    mut visit: impl FnMut(&Arc<Block>) -> Result<(), E>,
) -> Result<Recovery, E> {
    let layout = layout.into();
    let limit = layout.map.limit(start.cursor.position);
    let mut walk = Walk::new(volume, layout, start, limit)?;
    let mut held: VecDeque<(Arc<Block>, Header)> = VecDeque::new();
    let mut acked = start.acked;
    while let Some((block, header)) = walk.next_beside()? {
        acked = acked.max(header.acked);
        held.push_back((block, header));
        while held.front().is_some_and(|(_, header)| header.seq <= acked || bug("reader-beside-shows-all")) {
            let (block, _) = held.pop_front().expect("just seen");
            visit(&block)?;
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
