//! Access of the fuzz targets to private parts: the places of the checksums of a file.

use std::ops::Range;

use bytes::Bytes;

use crate::block::{Block, Spot};
use crate::filter::Filter;
use crate::format::{self, Footer, POINTER, Ptr};
use crate::notes::LISTED;

/// Bytes of the footer.
pub const FOOTER: usize = format::FOOTER;
/// Bytes of a frame before its block.
const FRAME_HEAD: usize = 5;

/// Returns the places of the pointers of a valid file. Each pointer precedes the pointers in the
/// blocks above it, so that checksums recomputed in this order are all correct. Returns `None` if
/// an index block is compressed, because its pointers then have no place of their own.
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
    // Pointers found later are in lower blocks.
    found.reverse();
    Some(found)
}

/// Returns the places of the pages of notes of a valid file, each with the place of its checksum.
pub fn pages(file: &[u8]) -> Option<Vec<(Range<usize>, usize)>> {
    let footer_at = file.len().checked_sub(FOOTER)?;
    let footer = Footer::decode(file[footer_at..].try_into().ok()?, footer_at as u64, None).ok()?;
    let mut found = Vec::new();
    let Some(directory) = footer.filter.some() else { return Some(found) };
    let raw = |ptr: Ptr| Bytes::copy_from_slice(&file[ptr.offset as usize + FRAME_HEAD..ptr.end() as usize]);
    let mut spot = Spot::default();
    spot.enter(Block::new(raw(directory), directory.offset).ok()?);
    while spot.step().ok()? {
        let part = spot.ptr().ok()?;
        let pages: Vec<Ptr> = Filter::new(raw(part), part.offset).ok()?.pages().collect();
        let sum_of = |index: usize| part.end() as usize - 8 - (pages.len() - index) * LISTED + 6;
        found.extend(
            pages.iter().enumerate().map(|(i, page)| (page.offset as usize..page.end() as usize, sum_of(i))),
        );
    }
    Some(found)
}
