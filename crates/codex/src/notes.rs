//! Notes: four bytes of the caller for each item of the filter, found by the item's hash in one
//! page.
//!
//! Each part of the filter has its own pages, and the list of them. A builder writes the pages of a
//! part when the part is complete, between data blocks. The pages are stored as they are, so a
//! look-up decompresses nothing: it reads a page, checks its checksum, and searches it.
//!
//! A note has no key. A record identifies its item by 88 bits of the hash, and the place of the
//! page by 32 other bits. Two items of a part with the same 120 bits have no note.

use crate::error::{Result, damaged};
use crate::format::{Ptr, sum, u16_at, u32_at, u64_at};

/// Bytes of a record: 11 of the hash, 4 of the note.
const RECORD: usize = 15;
const TAG: usize = RECORD - 4;
/// Maximum records of a page, and therefore 4,095 bytes.
const PAGE: usize = 273;
/// Bytes of a page's entry in the list.
pub(crate) const LISTED: usize = 14;

/// The result of [`Reader::note`](crate::Reader::note).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The file does not have the item. This is certain.
    Absent {
        /// Whether the filter let the item pass, so that a page was read in vain.
        misled: bool,
    },
    /// The note of the item.
    Note(u32),
    /// The file has no notes for this part of the keys, or cannot distinguish the item from
    /// another. Look the key up instead.
    Unknown,
}

/// An item's hash and its note.
pub(crate) type Note = (u128, u32);

/// Returns the part of a hash that finds the page.
fn prefix(hash: u128) -> u32 {
    (hash >> 96) as u32
}

/// Returns the part of a hash that a record holds.
fn tag(hash: u128) -> [u8; TAG] {
    hash.to_be_bytes()[16 - TAG..].try_into().expect("a part of the hash")
}

/// Appends the pages of these notes to `pages`, and the list of the pages to `list`.
pub(crate) fn build(notes: &mut Vec<Note>, pages: &mut Vec<u8>, list: &mut Vec<u8>) {
    notes.sort_unstable();
    let mut rest = &notes[..];
    while let Some(&(first, _)) = rest.first() {
        let (page, after) = rest.split_at(page_len(rest));
        rest = after;
        let mut page: Vec<_> = page.iter().map(|&(hash, note)| (tag(hash), note)).collect();
        page.sort_unstable();
        let start = pages.len();
        for (tag, note) in &page {
            pages.extend_from_slice(tag);
            pages.extend_from_slice(&note.to_le_bytes());
        }
        list.extend_from_slice(&prefix(first).to_le_bytes());
        list.extend_from_slice(&(page.len() as u16).to_le_bytes());
        list.extend_from_slice(&sum(&pages[start..]).to_le_bytes());
    }
    notes.clear();
}

/// Returns the number of notes for the next page. A page ends where the prefix changes, so that a
/// prefix leads to one page. Only if more items have a prefix than a page holds, several pages
/// have it.
fn page_len(notes: &[Note]) -> usize {
    let Some(&(next, _)) = notes.get(PAGE) else { return notes.len() };
    let cut = notes[..PAGE].partition_point(|&(hash, _)| prefix(hash) < prefix(next));
    if cut == 0 { PAGE } else { cut }
}

/// Returns the maximum bytes of the pages and the list of `notes` notes.
pub(crate) fn most(notes: usize) -> u64 {
    // Two pages in a row have more notes than one page holds.
    let pages = 2 * notes.div_ceil(PAGE) + 1;
    if notes == 0 { 0 } else { (notes * RECORD + pages * LISTED) as u64 }
}

fn page_bytes(listed: &[u8]) -> u32 {
    u32::from(u16_at(listed, 4)) * RECORD as u32
}

/// Returns the pointers to the pages of a list. The first page is at byte `start` of the file. The
/// offset of a damaged list saturates, and is then out of any bounds.
pub(crate) fn pages(list: &[u8], start: u64) -> impl Iterator<Item = Ptr> {
    let mut offset = start;
    list.chunks_exact(LISTED).map(move |listed| {
        let ptr = Ptr { offset, len: page_bytes(listed), sum: u64_at(listed, 6) };
        offset = ptr.end();
        ptr
    })
}

/// Returns the page that holds the note of an item, if there is one. The first page is at byte
/// `start` of the file. `Err` is the answer that needs no page.
pub(crate) fn find(list: &[u8], start: u64, hash: u128) -> std::result::Result<Ptr, Noted> {
    let first = |index: usize| u32_at(list, index * LISTED);
    let (mut low, mut high) = (0, list.len() / LISTED);
    if high == 0 {
        return Err(Noted::Unknown);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if first(middle) <= prefix(hash) { low = middle + 1 } else { high = middle }
    }
    let Some(index) = low.checked_sub(1) else { return Err(Noted::Absent { misled: true }) };
    if index > 0 && first(index - 1) == first(index) && first(index) == prefix(hash) {
        return Err(Noted::Unknown);
    }
    Ok(pages(list, start).nth(index).expect("the index is in the list"))
}

/// Checks the checksum of a page.
pub(crate) fn check(page: &[u8], ptr: Ptr) -> Result<()> {
    if page.len() != ptr.len as usize || !page.len().is_multiple_of(RECORD) {
        return damaged(ptr.offset, "the source gave another length than asked for");
    }
    if sum(page) != ptr.sum {
        return damaged(ptr.offset, "the page of notes does not have the checksum that its list says");
    }
    Ok(())
}

/// Checks the order of a checked page, and returns the number of its notes.
pub(crate) fn check_order(page: &[u8], at: u64) -> Result<u64> {
    let tags = || page.chunks_exact(RECORD).map(|record| &record[..TAG]);
    if tags().zip(tags().skip(1)).any(|(a, b)| a > b) {
        return damaged(at, "the notes of a page are not in order");
    }
    Ok((page.len() / RECORD) as u64)
}

/// Returns the first record of a page that is not below `tag`.
///
/// The tags of a page are parts of hashes, so the value of a tag says about where its record is. A
/// search from there touches one to three cache lines; a search from the middle touches five. The
/// distance doubles with each step, so tags that somebody chose cost twice as many steps at most.
fn first_from(page: &[u8], tag: &[u8; TAG]) -> usize {
    let records = page.len() / RECORD;
    let is_below = |index: usize| page[index * RECORD..][..TAG] < tag[..];
    let value = u64::from_be_bytes(tag[..8].try_into().expect("a tag has 11 bytes"));
    let guess = ((u128::from(value) * records as u128) >> 64) as usize;
    let (mut low, mut high, mut step) = (guess, guess, 4);
    while low > 0 && !is_below(low - 1) {
        high = low - 1;
        low = low.saturating_sub(step);
        step *= 2;
    }
    step = 4;
    while high < records && is_below(high) {
        low = high + 1;
        high = (high + step).min(records);
        step *= 2;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_below(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Looks an item up in its checked page.
pub(crate) fn search(page: &[u8], hash: u128) -> Noted {
    let tag = tag(hash);
    let record = |index: usize| &page[index * RECORD..][..RECORD];
    let from = first_from(page, &tag);
    let mut found = (from..page.len() / RECORD).map(record).take_while(|record| record[..TAG] == tag);
    match (found.next(), found.next()) {
        (None, _) => Noted::Absent { misled: true },
        (Some(record), None) => Noted::Note(u32_at(record, TAG)),
        (Some(_), Some(_)) => Noted::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::mix;

    fn hash(n: u64) -> u128 {
        u128::from(mix(n)) << 64 | u128::from(mix(!n))
    }

    /// Notes in memory, as they are in a file that begins with their pages.
    struct Built {
        pages: Vec<u8>,
        list: Vec<u8>,
    }

    impl Built {
        fn new(mut notes: Vec<Note>) -> Self {
            let (mut pages, mut list) = (Vec::new(), Vec::new());
            let most = most(notes.len());
            build(&mut notes, &mut pages, &mut list);
            assert!((pages.len() + list.len()) as u64 <= most);
            Self { pages, list }
        }

        fn look(&self, hash: u128) -> Noted {
            match find(&self.list, 0, hash) {
                Err(answer) => answer,
                Ok(ptr) => {
                    let page = &self.pages[ptr.offset as usize..ptr.end() as usize];
                    check(page, ptr).expect("the pointer is the page's");
                    search(page, hash)
                }
            }
        }
    }

    #[test]
    fn each_item_has_its_note_and_others_have_none() {
        for count in [1, 2, PAGE as u64, PAGE as u64 + 1, 10_922] {
            let built = Built::new((0..count).map(|n| (hash(n), n as u32)).collect());
            for n in 0..count {
                assert_eq!(built.look(hash(n)), Noted::Note(n as u32));
                assert_eq!(built.look(hash(count + n)), Noted::Absent { misled: true });
            }
            let all: u64 = pages(&built.list, 0)
                .map(|ptr| {
                    check_order(&built.pages[ptr.offset as usize..ptr.end() as usize], ptr.offset).unwrap()
                })
                .sum();
            assert_eq!(all, count);
            assert!(count < 1_000 || built.pages.len() + built.list.len() <= 16 * count as usize);
        }
        assert_eq!(Built::new(Vec::new()).look(hash(1)), Noted::Unknown);
    }

    /// Also tags that are not spread like those of hashes.
    #[test]
    fn the_first_record_from_a_tag_on_is_found_as_by_looking_at_all() {
        let tag = |n: u64, skew: u32| -> [u8; TAG] {
            let value = mix(n) >> skew | if n.is_multiple_of(3) { u64::MAX << 40 } else { 0 };
            [&value.to_be_bytes()[..], &(mix(!n) as u32).to_be_bytes()[1..]].concat().try_into().unwrap()
        };
        for count in [0, 1, 2, 5, 100, PAGE as u64] {
            for skew in [0, 3, 40, 60] {
                let mut tags: Vec<_> = (0..count).map(|n| tag(n / 2, skew)).collect();
                tags.sort_unstable();
                let page: Vec<u8> = tags.iter().flat_map(|tag| [&tag[..], &[0; 4]].concat()).collect();
                for n in 0..1_000 {
                    let wanted = if n == 999 { [0xff; TAG] } else { tag(n, skew) };
                    let first = tags.iter().position(|tag| *tag >= wanted).unwrap_or(tags.len());
                    assert_eq!(first_from(&page, &wanted), first, "{count} tags, {skew}");
                }
            }
        }
    }

    /// Hashes chosen so that all items, or two neighbours, cannot be told apart.
    #[test]
    fn items_that_cannot_be_distinguished_are_unknown() {
        // The same prefix: more than a page has place for.
        let same: Vec<Note> = (0..1_000).map(|n| (7 << 96 | u128::from(mix(n)), n as u32)).collect();
        let others = (0..1_000).map(|n| (hash(n), 5));
        let built = Built::new(same.iter().copied().chain(others).collect());
        let told = |n: usize| built.look(same[n].0);
        assert!((0..1_000).all(|n| [Noted::Unknown, Noted::Note(n as u32)].contains(&told(n))));
        assert!((0..1_000).all(|n| built.look(hash(n)) == Noted::Note(5)));
        // The same hash twice, with different notes.
        let built = Built::new(vec![(hash(1), 1), (hash(1), 2), (hash(2), 3)]);
        assert_eq!((built.look(hash(1)), built.look(hash(2))), (Noted::Unknown, Noted::Note(3)));
    }

    #[test]
    fn damage_of_a_page_is_noticed() {
        let built = Built::new((0..100).map(|n| (hash(n), 1)).collect());
        let ptr = find(&built.list, 0, hash(3)).unwrap();
        for at in 0..built.pages.len() {
            let mut pages = built.pages.clone();
            pages[at] ^= 1;
            assert!(check(&pages, ptr).is_err());
        }
        assert!(check(&built.pages[1..], ptr).is_err());
        let mut records = built.pages.clone();
        records[..RECORD].copy_from_slice(&[0xff; RECORD]);
        assert!(check_order(&records, 0).is_err());
        // A list whose pages would lie past the end of all offsets.
        let beyond = find(&built.list, u64::MAX, hash(3)).unwrap();
        assert!(pages(&built.list, u64::MAX).all(|ptr| ptr == beyond && ptr.end() == u64::MAX));
    }
}
