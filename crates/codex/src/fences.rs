//! Fences: the first key of each data block of a file in memory, in one array. A look-up then takes
//! one search in that array, and not one search in an index block of each level, which must be
//! found in the cache, too.
//!
//! A fence keeps eight bytes of its key, after the common prefix. If these are not enough, the
//! index decides.

use crate::block::{Block, Spot, shared_len};
use crate::error::{Result, damaged};
use crate::format::{Ptr, check_bounds};

/// Maximum number of blocks with fences, at 32 bytes each.
const MOST: u64 = 1 << 20;
/// Bytes of first keys that are read in any case. More are read if the file has as many bytes.
const KEYS: u64 = 64 << 20;

/// The fences of a file.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// The common prefix of the first keys. The very first of them may lack the prefix: it is less
    /// than all keys with the prefix.
    common: Vec<u8>,
    /// The eight bytes after the prefix, of each first key in key order, and the blocks.
    words: Vec<u64>,
    blocks: Vec<Ptr>,
}

/// The place of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before all keys.
    Before,
    /// In this block, if the key exists.
    In(Ptr),
    /// Only the index can decide.
    Unclear,
}

impl Fences {
    /// Returns whether a file of `blocks` data blocks may have fences.
    pub fn suit(blocks: u64) -> bool {
        (1..=MOST).contains(&blocks)
    }

    /// Reads the index of a file of `blocks` data blocks. `root` is the pointer to the root, and
    /// the byte by which the root must end. The root is `levels` levels above the data. `load`
    /// reads a block by its pointer and the byte by which the block must end.
    pub fn new(
        root: Option<(Ptr, u64)>,
        levels: usize,
        blocks: u64,
        mut load: impl FnMut(Ptr, u64) -> Result<Block>,
    ) -> Result<Self> {
        let (mut keys, mut found, mut bytes) = (Vec::new(), Vec::new(), 0);
        if let Some((root, limit)) = root {
            let mut take = |key: &[u8], ptr| {
                // The footer limits the number of blocks; a damaged index may lead to more.
                if found.len() as u64 == blocks {
                    return damaged(root.offset, "the index leads to more blocks than there are");
                }
                bytes += key.len() as u64;
                if bytes > limit.max(KEYS) {
                    return damaged(root.offset, "the first keys of the blocks have too many bytes");
                }
                keys.push(key.to_vec());
                found.push(ptr);
                Ok(())
            };
            walk(&mut load, root, limit, levels, &mut take)?;
        }
        let second = keys.get(1).or(keys.first());
        let common = match (second, keys.last()) {
            (Some(second), Some(last)) => last[..shared_len(second, last)].to_vec(),
            _ => Vec::new(),
        };
        let words = keys.iter().map(|key| key.strip_prefix(&common[..]).map_or(0, word)).collect();
        Ok(Self { common, words, blocks: found })
    }

    /// Returns the place of `key`.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Place {
        let Some(rest) = key.strip_prefix(&self.common[..]) else { return Place::Unclear };
        let wanted = word(rest);
        let at = self.place_of(wanted);
        match at.checked_sub(1) {
            _ if self.words.get(at) == Some(&wanted) => Place::Unclear,
            Some(before) => Place::In(self.blocks[before]),
            None => Place::Before,
        }
    }

    /// Returns the number of words that are less than `wanted`. The search begins at the place of
    /// `wanted` among evenly spread words; hashed or counted keys are spread evenly. From there, it
    /// continues in growing steps.
    #[inline]
    fn place_of(&self, wanted: u64) -> usize {
        let words = &self.words[..];
        let (Some(first), Some(last)) = (words.first(), words.last()) else { return 0 };
        let (span, ahead) = (last.saturating_sub(*first), wanted.saturating_sub(*first));
        let share = ahead.min(span) as f64 / span.max(1) as f64;
        let guess = (share * (words.len() - 1) as f64) as usize;
        let (mut low, mut high, mut step) = (guess, guess, 4);
        if words[guess] < wanted {
            while high < words.len() && words[high] < wanted {
                (low, high, step) = (high + 1, (high + step).min(words.len()), step * 4);
            }
        } else {
            while low > 0 && words[low] >= wanted {
                (low, high, step) = (low.saturating_sub(step), low, step * 4);
            }
        }
        low + words[low..high].partition_point(|word| *word < wanted)
    }
}

/// Returns the first eight bytes of a key as a number in the same order. Missing bytes count as
/// zero.
#[inline]
fn word(key: &[u8]) -> u64 {
    if let Some(whole) = key.first_chunk() {
        return u64::from_be_bytes(*whole);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// Walks through the index from the block at `ptr`, which is `level` levels above the data.
fn walk(
    load: &mut impl FnMut(Ptr, u64) -> Result<Block>,
    ptr: Ptr,
    limit: u64,
    level: usize,
    take: &mut impl FnMut(&[u8], Ptr) -> Result<()>,
) -> Result<()> {
    if level == 0 {
        // A single data block has no index.
        check_bounds(ptr, limit)?;
        return take(&[], ptr);
    }
    let mut spot = Spot::default();
    spot.enter(load(ptr, limit)?);
    while spot.step()? {
        let child = spot.ptr()?;
        check_bounds(child, ptr.offset)?;
        if level == 1 { take(spot.key(), child)? } else { walk(load, child, ptr.offset, level - 1, take)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::block::BlockBuilder;
    use crate::limits::MAX_KEY;
    use crate::{Builder, BuilderOptions, Reader};

    fn reader(keys: &[Vec<u8>]) -> Reader<Bytes> {
        let options = BuilderOptions { block_size: 64, bits_per_item: 0, ..BuilderOptions::default() };
        let mut builder = Builder::new(Vec::new(), options);
        keys.iter().for_each(|key| builder.add(key, b"value").unwrap());
        let (summary, file) = builder.finish().unwrap();
        Reader::open(Bytes::from(file), summary.len, None).unwrap()
    }

    /// For any keys, the fences agree with the index or return [`Place::Unclear`].
    #[test]
    fn fences_tell_what_the_index_tells() {
        let numbers = |text: &str, by: usize| -> Vec<Vec<u8>> {
            (0..3000).map(|n| format!("{text}{:06}", n * by).into_bytes()).collect()
        };
        let short: Vec<Vec<u8>> = (0..=255u8).flat_map(|a| (0..=12).map(move |b| vec![a; b])).collect();
        let mut short: Vec<Vec<u8>> = short.into_iter().filter(|key| !key.is_empty()).collect();
        short.sort();
        short.dedup();
        let one = vec![b"alone".to_vec()];
        let mut apart = numbers("long/", 1);
        apart.insert(0, b"a".to_vec());
        let mut told = 0;
        for keys in [numbers("", 3), numbers("a/long/beginning/of/all/", 7), short, one, apart, Vec::new()] {
            let reader = reader(&keys);
            let fences = Fences::new(reader.root(), reader.levels(), reader.blocks(), |ptr, limit| {
                reader.block(ptr, limit)
            });
            let fences = fences.unwrap();
            let near = keys.iter().flat_map(|key| {
                let (mut less, mut more) = (key.clone(), key.clone());
                less.pop();
                more.push(0);
                [key.clone(), less, more]
            });
            for key in near.chain([vec![], vec![0], vec![255; 40], b"b".to_vec()]) {
                let by_index = reader.descend_by_index(&key).unwrap().map(|(block, _)| block.at());
                match fences.find(&key) {
                    Place::Unclear => continue,
                    Place::Before => assert_eq!(by_index, None, "{key:?}"),
                    Place::In(ptr) => assert_eq!(by_index, Some(ptr.offset), "{key:?}"),
                }
                told += 1;
            }
        }
        assert!(told > 12_000, "{told}");
    }

    /// Long keys that differ in their last bytes take few bytes of a hostile file.
    #[test]
    fn fences_take_no_memory_out_of_proportion() {
        let (data, root) = (Ptr { offset: 0, len: 1, sum: 1 }, Ptr { offset: 1, len: 1, sum: 1 });
        let (mut index, mut key) = (BlockBuilder::default(), vec![7; MAX_KEY]);
        for n in 0..2000u16 {
            key[MAX_KEY - 2..].copy_from_slice(&n.to_be_bytes());
            index.add(&key, &data.encode());
        }
        let block = Block::new(index.finish().to_vec().into(), root.offset).unwrap();
        let made = |blocks| Fences::new(Some((root, root.end())), 1, blocks, |_, _| Ok(block.clone()));
        assert!(made(2000).is_err());
    }
}
