//! Look-ups in the filter of a codex, and in the notes of its items.

use bytes::Bytes;

use crate::block::Block;
use crate::cache::Kept;
use crate::class::Class;
use crate::directory::{Answer, Directory, Held, Piece};
use crate::error::Result;
use crate::filter::Filter;
use crate::format::{NOTES, Ptr, check_bounds};
use crate::notes::{self, Noted};
use crate::reader::Reader;
use crate::source::Source;

impl<S: Source> Reader<S> {
    /// Returns whether [`Builder::add_filter`](crate::Builder::add_filter) may have received `hash`
    /// for `key`: `false` is certain, `true` is not. Without a filter, the answer is always `true`.
    /// Reads at most the filter's directory (a few bytes per ten thousand items) and one part of
    /// the filter (16 KiB).
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Io`](crate::Error::Io).
    pub fn may_contain(&self, key: &[u8], hash: u64) -> Result<bool> {
        let Some(root) = self.footer.filter.some() else { return Ok(true) };
        if self.footer.version == 1 && !self.cache.has_room(root.len as usize) {
            // The filter is one piece: if the cache cannot keep it, reading it each time costs more
            // than it saves.
            return Ok(true);
        }
        Ok(self.ask(root, key, |filter| filter.may_contain(hash))?.unwrap_or(false))
    }

    /// Returns the note that [`Builder::add_note`](crate::Builder::add_note) received with `item`
    /// and the hash for `key`. Computes the hash only if the filter lets the item pass. Reads no
    /// more than [`may_contain`](Self::may_contain), and one page of 4 KiB if the filter lets the
    /// item pass. Decompresses nothing.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Io`](crate::Error::Io).
    pub fn note(&self, key: &[u8], item: u64, hash: impl Fn() -> u128) -> Result<Noted> {
        let Some(root) = self.footer.filter.some().filter(|_| self.footer.version >= NOTES) else {
            return Ok(Noted::Unknown);
        };
        match self.ask(root, key, |filter| page_of(filter, item, &hash))? {
            Some(Ok((page, hash))) => self.search_page(page, hash),
            Some(Err(answer)) => Ok(answer),
            None => Ok(Noted::Absent { misled: false }),
        }
    }

    /// Returns the same as [`note`](Self::note) without a read of the source: `None` if the answer
    /// needs a read.
    pub fn note_in_memory(&self, key: &[u8], item: u64, hash: impl Fn() -> u128) -> Option<Noted> {
        if self.footer.filter.some().is_none() || self.footer.version < NOTES {
            return Some(Noted::Unknown);
        }
        match self.filter.ask(key, |filter: &Filter| page_of(filter, item, &hash)) {
            Answer::Known(Ok((page, hash))) => self.search_kept_page(page, hash),
            Answer::Known(Err(answer)) => Some(answer),
            Answer::Outside => Some(Noted::Absent { misled: false }),
            Answer::NoDirectory | Answer::NoPart(..) => None,
        }
    }

    /// Looks an item up in a page of notes that the cache keeps.
    fn search_kept_page(&self, ptr: Ptr, hash: u128) -> Option<Noted> {
        self.cache.look(self.key(ptr), |kept| match kept {
            Kept::Notes(page) => Some(notes::search(page, hash)),
            _ => None,
        })
    }

    /// Looks an item up in a page of notes.
    fn search_page(&self, ptr: Ptr, hash: u128) -> Result<Noted> {
        if let Some(answer) = self.search_kept_page(ptr, hash) {
            return Ok(answer);
        }
        check_bounds(ptr, self.footer_at)?;
        self.cache.missed(ptr.len);
        let cached = self.source.read_cached(ptr.offset, ptr.len as usize);
        let page = match cached.filter(|page| notes::check(page, ptr).is_ok()) {
            Some(page) => page,
            None => Bytes::copy_from_slice(&self.page(ptr)?),
        };
        let answer = notes::search(&page, hash);
        self.cache.keep_reread(self.key(ptr), Kept::Notes(page));
        Ok(answer)
    }

    /// Reads a page of notes from the source.
    pub(crate) fn page(&self, ptr: Ptr) -> Result<Bytes> {
        let page = self.frame(ptr, self.footer_at)?;
        notes::check(&page, ptr)?;
        Ok(page)
    }

    /// Asks the part of the filter at `root` that has the items of a key; `None` if no item has the
    /// key.
    fn ask<T>(&self, root: Ptr, key: &[u8], ask: impl Fn(&Filter) -> T) -> Result<Option<T>> {
        let (index, ptr, limit) = match self.filter.ask(key, &ask) {
            Answer::Known(answer) => {
                self.cache.found(self.number, 2);
                return Ok(Some(answer));
            }
            Answer::Outside => {
                self.cache.found(self.number, 2);
                return Ok(None);
            }
            Answer::NoPart(index, ptr, limit) => {
                self.cache.found(self.number, 1);
                (index, ptr, limit)
            }
            Answer::NoDirectory => {
                let block = Block::new(self.load_own(root, self.footer_at)?, root.offset)?;
                let directory = Directory::new(block)?;
                let part = directory.part_of(key);
                self.keep_piece(root, Piece::Directory, Class::Directory, directory.memory(), |held| {
                    held.put_directory(directory);
                });
                let Some(part) = part else { return Ok(None) };
                part
            }
        };
        let filter = Filter::new(self.load_own(ptr, limit)?, ptr.offset)?;
        let answer = ask(&filter);
        self.keep_piece(ptr, Piece::Part(index), Class::Filter, filter.memory(), |held| {
            held.put_part(index, filter);
        });
        Ok(Some(answer))
    }

    /// Keeps the piece of the filter that was read from `ptr`.
    fn keep_piece(&self, ptr: Ptr, piece: Piece, class: Class, bytes: usize, put: impl FnOnce(&Held)) {
        let kept = Kept::Filter(self.filter.clone(), piece, bytes);
        self.cache.keep_with(self.key(ptr), class, kept, || put(&self.filter));
    }

    /// Reads a part of the filter from the source.
    pub(crate) fn filter_part(&self, ptr: Ptr, limit: u64) -> Result<Filter> {
        Filter::new(self.load(ptr, limit)?, ptr.offset)
    }
}

/// Returns the page that holds the note of an item, with the item's hash. `Err` is the answer that
/// needs no page. Computes the hash only if the filter lets the item pass.
fn page_of(filter: &Filter, item: u64, hash: &impl Fn() -> u128) -> std::result::Result<(Ptr, u128), Noted> {
    if !filter.may_contain(item) {
        return Err(Noted::Absent { misled: false });
    }
    let hash = hash();
    filter.page_of(hash).map(|page| (page, hash))
}
