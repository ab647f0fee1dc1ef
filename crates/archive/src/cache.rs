//! Blocks of remote parts on the local disk: repeated look-ups cost no request.
//!
//! The file has no name, and the system removes it when the process ends: the cache uses no data of
//! an earlier process. The cache compares each block that it reads with a checksum in memory. So a
//! block may be overwritten while another thread reads it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use twox_hash::XxHash3_64;

/// Size of a block in bytes: the smallest read of a request, and the size of a slot of the file.
pub(crate) const BLOCK: u64 = 64 << 10;

/// The file and its contents.
pub(crate) struct Cache {
    file: File,
    slots: Mutex<Slots>,
    parts: AtomicU32,
}

/// The number of a part, and the number of a block in it.
type Key = (u32, u64);

struct Held {
    key: Key,
    len: usize,
    sum: u64,
    /// Whether the block was read since the clock hand last passed it.
    wanted: bool,
}

struct Slots {
    at: BTreeMap<Key, usize>,
    /// The contents of each slot of the file.
    slots: Vec<Option<Held>>,
    most: usize,
    hand: usize,
}

impl Cache {
    pub fn new(dir: &Path, bytes: u64) -> io::Result<Self> {
        let most = (bytes / BLOCK).clamp(1, u32::MAX.into()) as usize;
        let slots = Slots { at: BTreeMap::new(), slots: Vec::new(), most, hand: 0 };
        Ok(Self { file: tempfile::tempfile_in(dir)?, slots: Mutex::new(slots), parts: AtomicU32::new(0) })
    }

    /// Returns the cache of a new part.
    pub fn part(self: &Arc<Self>) -> CachedPart {
        CachedPart { cache: self.clone(), part: self.parts.fetch_add(1, Ordering::Relaxed) }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Returns a free slot, or frees a slot that was not read for a whole round. Returns `None`
    /// while all slots are being written.
    fn free(&mut self) -> Option<usize> {
        if self.slots.len() < self.most {
            self.slots.push(None);
            return Some(self.slots.len() - 1);
        }
        for _ in 0..=2 * self.slots.len() {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            match &mut self.slots[at] {
                Some(held) if held.wanted => held.wanted = false,
                Some(Held { key, .. }) => {
                    if self.at.get(key) == Some(&at) {
                        self.at.remove(key);
                    }
                    self.slots[at] = None;
                    return Some(at);
                }
                None => {}
            }
        }
        None
    }
}

/// The blocks of one part.
pub(crate) struct CachedPart {
    cache: Arc<Cache>,
    part: u32,
}

impl CachedPart {
    /// Returns a block, if the cache has it.
    pub fn get(&self, block: u64) -> Option<Bytes> {
        let (slot, len, sum) = {
            let mut slots = self.cache.slots();
            let slot = *slots.at.get(&(self.part, block))?;
            let held = slots.slots[slot].as_mut()?;
            held.wanted = true;
            (slot, held.len, held.sum)
        };
        let mut data = vec![0; len];
        self.cache.file.read_exact_at(&mut data, slot as u64 * BLOCK).ok()?;
        (XxHash3_64::oneshot(&data) == sum).then(|| data.into())
    }

    /// Adds a block, unless the disk fails.
    pub fn put(&self, block: u64, data: &[u8]) {
        let key = (self.part, block);
        let slot = {
            let mut slots = self.cache.slots();
            if slots.at.contains_key(&key) {
                return;
            }
            let Some(slot) = slots.free() else { return };
            slot
        };
        if let Err(error) = self.cache.file.write_all_at(data, slot as u64 * BLOCK) {
            tracing::warn!(%error, "the cache could not store a block");
        }
        // If the write failed, the checksum does not match, and `get` returns `None`.
        let held = Held { key, len: data.len(), sum: XxHash3_64::oneshot(data), wanted: false };
        let mut slots = self.cache.slots();
        slots.slots[slot] = Some(held);
        slots.at.insert(key, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_again_stays_and_no_more_than_there_is_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::new(dir.path(), 4 * BLOCK).unwrap());
        let (a, b) = (cache.part(), cache.part());
        let there = |part: &CachedPart, block: u64| {
            part.get(block).map(|data| assert_eq!(data, vec![block as u8; 100])).is_some()
        };
        assert!(!there(&a, 0));
        for block in 0..4 {
            a.put(block, &[block as u8; 100]);
            assert!(there(&a, block) && !there(&b, block));
        }
        (0..4).for_each(|block| assert!(there(&a, block)));
        for block in 4..40 {
            b.put(block, &[block as u8; 100]);
            assert!(there(&a, 1) && there(&b, block), "block {block}");
        }
        assert_eq!((4..40).filter(|block| there(&b, *block)).count(), 3);
        assert!(cache.file.metadata().unwrap().len() <= 4 * BLOCK);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
        // What is not what was written is not there.
        cache.file.write_all_at(&[7], 30).unwrap();
        assert_eq!(
            [(&a, 1), (&b, 37), (&b, 38), (&b, 39)]
                .iter()
                .filter(|(part, block)| there(part, *block))
                .count(),
            3
        );
        // One slot, for the smallest of budgets.
        let one = Arc::new(Cache::new(dir.path(), 1).unwrap()).part();
        (0..3).for_each(|block| one.put(block, &[block as u8; 100]));
        assert!(there(&one, 2) && !there(&one, 0));
    }
}
