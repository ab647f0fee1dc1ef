//! Notes read in key order, part by part, past the cache: for checks, which read each note once.

use bytes::Bytes;

use crate::block::Spot;
use crate::error::{Result, damaged};
use crate::filter::Filter;
use crate::format::{NOTES, Ptr};
use crate::notes::{self, Noted};
use crate::reader::Reader;
use crate::source::Source;

/// The notes of a codex for keys in order. Made by
/// [`Reader::ordered_notes`](Reader::ordered_notes).
#[derive(Debug)]
pub struct OrderedNotes<'r, S: Source> {
    reader: &'r Reader<S>,
    /// The parts of the filter with their first keys, in reverse order, as far as no key reached
    /// them; and the byte by which they must end.
    parts: Vec<(Vec<u8>, Ptr)>,
    limit: u64,
    part: Option<Part>,
}

#[derive(Debug)]
struct Part {
    filter: Filter,
    /// The pages with their offsets in the file.
    pages: Vec<(u64, Bytes)>,
}

impl<S: Source> Reader<S> {
    /// Returns the notes of the file for keys in order. It reads each part of the filter, with all
    /// pages of the part, when the first key of the part is asked; and keeps nothing in the cache.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Io`](crate::Error::Io).
    pub fn ordered_notes(&self) -> Result<OrderedNotes<'_, S>> {
        let mut notes = OrderedNotes { reader: self, parts: Vec::new(), limit: 0, part: None };
        let Some(root) = self.footer().filter.some().filter(|_| self.version() >= NOTES) else {
            return Ok(notes);
        };
        let mut spot = Spot::default();
        spot.enter(self.block(root, self.footer_at())?);
        while spot.step()? {
            notes.parts.push((spot.key().to_vec(), spot.ptr()?));
        }
        notes.parts.reverse();
        notes.limit = root.offset;
        Ok(notes)
    }
}

impl<S: Source> OrderedNotes<'_, S> {
    /// Returns the note of an item like [`Reader::note`]. `key` must not be less than the key of
    /// the call before.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Io`](crate::Error::Io).
    pub fn note(&mut self, key: &[u8], item: u64, hash: u128) -> Result<Noted> {
        let mut reached = None;
        while self.parts.last().is_some_and(|(first, _)| first.as_slice() <= key) {
            reached = self.parts.pop();
        }
        if let Some((first, ptr)) = reached {
            match self.load(ptr) {
                Ok(part) => self.part = Some(part),
                Err(error) => {
                    // The part before says nothing of these keys: the next one asks again.
                    self.parts.push((first, ptr));
                    return Err(error);
                }
            }
        }
        let Some(Part { filter, pages }) = &self.part else {
            let has_notes = !self.parts.is_empty();
            return Ok(if has_notes { Noted::Absent { misled: false } } else { Noted::Unknown });
        };
        if !filter.may_contain(item) {
            return Ok(Noted::Absent { misled: false });
        }
        match filter.page_of(hash) {
            Err(answer) => Ok(answer),
            Ok(ptr) => match pages.binary_search_by_key(&ptr.offset, |page| page.0) {
                Ok(index) => Ok(notes::search(&pages[index].1, hash)),
                Err(_) => damaged(ptr.offset, "a page of notes is not where its list says"),
            },
        }
    }

    fn load(&self, ptr: Ptr) -> Result<Part> {
        let filter = self.reader.filter_part(ptr, self.limit)?;
        let pages = filter.pages().map(|page| Ok((page.offset, self.reader.page(page)?)));
        let pages = pages.collect::<Result<_>>()?;
        Ok(Part { filter, pages })
    }
}
