//! Free extents, indexed by offset, to join neighbours, and by size, for best fit.
//!
//! Invariants: extents do not overlap or touch each other; both indexes hold the same ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::volume::allocator::Extent;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Free {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    bytes: u64,
}

impl Free {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the extents, by offset.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Extent> {
        self.by_offset.iter().map(|(&offset, &len)| Extent { offset, len })
    }

    /// Returns the lengths in bytes, the largest first.
    pub fn lens(&self) -> impl Iterator<Item = u64> {
        self.by_size.iter().rev().map(|(len, _)| *len)
    }

    /// Returns the smallest extent that holds `len` bytes.
    pub fn best(&self, len: u64) -> Option<Extent> {
        let &(len, offset) = self.by_size.range((len, 0)..).next()?;
        Some(Extent { offset, len })
    }

    pub fn last(&self) -> Option<Extent> {
        self.iter().next_back()
    }

    fn insert(&mut self, extent: Extent) {
        if extent.len > 0 {
            self.by_offset.insert(extent.offset, extent.len);
            self.by_size.insert((extent.len, extent.offset));
            self.bytes += extent.len;
        }
    }

    fn remove(&mut self, extent: Extent) {
        self.by_offset.remove(&extent.offset);
        self.by_size.remove(&(extent.len, extent.offset));
        self.bytes -= extent.len;
    }

    /// Adds an extent and joins it with its neighbours.
    pub fn add(&mut self, mut extent: Extent) {
        if extent.len == 0 {
            return;
        }
        assert!(self.touching(extent).is_none(), "{extent:?} was free already");
        let before = self.by_offset.range(..extent.offset).next_back();
        if let Some(before) = before.map(|(&offset, &len)| Extent { offset, len })
            && before.end() == extent.offset
        {
            self.remove(before);
            extent = Extent { offset: before.offset, len: before.len + extent.len };
        }
        if let Some(&len) = self.by_offset.get(&extent.end()) {
            self.remove(Extent { offset: extent.end(), len });
            extent.len += len;
        }
        self.insert(extent);
    }

    /// Removes a part of a free extent.
    pub fn cut(&mut self, part: Extent) {
        let within = self.touching(part).expect("only what is free is cut out");
        assert!(
            within.offset <= part.offset && part.end() <= within.end(),
            "{part:?} is not free as a whole"
        );
        self.remove(within);
        self.insert(Extent { offset: within.offset, len: part.offset - within.offset });
        self.insert(Extent { offset: part.end(), len: within.end() - part.end() });
    }

    /// Returns the last extent that shares a byte with this one.
    pub fn touching(&self, extent: Extent) -> Option<Extent> {
        let before = self.by_offset.range(..extent.end()).next_back()?;
        let before = Extent { offset: *before.0, len: *before.1 };
        (before.end() > extent.offset).then_some(before)
    }
}
