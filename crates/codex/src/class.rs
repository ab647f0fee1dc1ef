//! The time that each class of entry stays in the cache.

use std::sync::atomic::{AtomicU8, Ordering};

/// The class of an entry; a higher class stays longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Data,
    Value,
    /// An index block of the lowest level.
    Leaf,
    /// Part of a filter.
    Filter,
    /// An index block above the lowest level.
    Index,
    /// The directory of a filter.
    Directory,
}

/// Sets the laps of a used entry to one more than its class starts with.
pub(crate) fn stays(laps: &AtomicU8, class: Class) {
    let most = class.laps() + 1;
    if laps.load(Ordering::Relaxed) != most {
        laps.store(most, Ordering::Relaxed);
    }
}

impl Class {
    pub fn is_data(self) -> bool {
        matches!(self, Class::Data | Class::Value)
    }

    /// Returns the number of laps that an unused entry stays.
    pub fn laps(self) -> u8 {
        match self {
            Class::Data => 0,
            Class::Value | Class::Leaf => 4,
            Class::Filter => 6,
            Class::Index | Class::Directory => 7,
        }
    }
}
