//! What the fuzz targets need of the private parts: where the checksums of a file are.

use std::ops::Range;

use bytes::Bytes;

use crate::block::{Block, Spot};
use crate::format::{self, Footer, POINTER};

/// Bytes of the footer.
pub const FOOTER: usize = format::FOOTER;
/// Bytes of a frame before its block.
const FRAME_HEAD: usize = 5;

/// Where the pointers of a sound file are, each before the ones that lie in blocks above it: sums
/// made anew in this order hold all together. `None` where an index block is compressed, so that
/// its pointers have no place of their own.
pub fn pointers(file: &[u8]) -> Option<Vec<Range<usize>>> {
    let footer_at = file.len().checked_sub(FOOTER)?;
    let footer = Footer::decode(file[footer_at..].try_into().ok()?, footer_at as u64, None).ok()?;
    let mut found = Vec::new();
    // The filter's directory is an index of one level, over its parts.
    let filter = (1, footer.filter, footer_at + 68);
    let mut blocks =
        vec![(footer.levels, footer.root, footer_at + 48), filter, (0, footer.metadata, footer_at + 88)];
    while let Some((level, ptr, at)) = blocks.pop() {
        let Some(ptr) = ptr.some() else { continue };
        found.push(at..at + POINTER);
        if level == 0 {
            continue;
        }
        let frame = &file[ptr.offset as usize..ptr.end() as usize];
        if frame[0] != 0 {
            return None;
        }
        let raw = Bytes::copy_from_slice(&frame[FRAME_HEAD..]);
        let mut spot = Spot::default();
        spot.enter(Block::new(raw.clone(), ptr.offset).ok()?);
        while spot.step().ok()? {
            let within = spot.stored().bytes.as_ptr() as usize - raw.as_ptr() as usize;
            blocks.push((level - 1, spot.ptr().ok()?, ptr.offset as usize + FRAME_HEAD + within));
        }
    }
    // What was found later lies lower.
    found.reverse();
    Some(found)
}
