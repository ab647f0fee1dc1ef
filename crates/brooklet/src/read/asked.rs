//! The entries that a caller asks for.

use std::ops::{Bound, Range, RangeBounds};

use crate::error::{Error, KeyText};
use crate::model::Bounds;
use crate::read::Entries;

/// A range of entry numbers, and the result where the log does not have all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    start: Bound<u64>,
    end: Bound<u64>,
    available: bool,
}

impl Asked {
    /// All entries.
    pub const ALL: Self = Self { start: Bound::Unbounded, end: Bound::Unbounded, available: false };

    /// The entries of a range; an error if the log does not have all of them.
    pub fn exactly(range: &impl RangeBounds<u64>) -> Self {
        Self { start: range.start_bound().cloned(), end: range.end_bound().cloned(), available: false }
    }

    /// The entries of a range that the log has.
    pub fn available(range: &impl RangeBounds<u64>) -> Self {
        Self { available: true, ..Self::exactly(range) }
    }

    /// Returns the numbers of the entries in a log with these bounds.
    pub fn within(&self, key: &[u8], bounds: Bounds) -> Result<Range<u64>, Error> {
        let start = if self.start == Bound::Unbounded { bounds.first } else { self.least() };
        let end = match self.end {
            Bound::Included(n) => n.saturating_add(1),
            Bound::Excluded(n) => n,
            Bound::Unbounded => bounds.next,
        };
        if self.available {
            let start = start.clamp(bounds.first, bounds.next);
            return Ok(start..end.clamp(start, bounds.next));
        }
        let outside = |asked| Error::OutOfRange {
            key: KeyText::of(key),
            asked,
            first: bounds.first,
            next: bounds.next,
        };
        if start < bounds.first || start > bounds.next {
            return Err(outside(start));
        }
        if end > bounds.next || end < start {
            return Err(outside(end));
        }
        Ok(start..end)
    }

    /// Returns the least number that is asked for, whether the log has it or not.
    pub fn least(&self) -> u64 {
        match self.start {
            Bound::Included(n) => n,
            Bound::Excluded(n) => n.saturating_add(1),
            Bound::Unbounded => 0,
        }
    }

    /// Returns the entries of a log that does not exist.
    pub fn of_no_log(&self, key: &[u8]) -> Result<Entries, Error> {
        if self.available {
            return Ok(Entries::of_memory(key, 0..0, Vec::new()));
        }
        Err(Error::UnknownLog { key: KeyText::of(key) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { first: 3, next: 7 };

    fn within(asked: Asked) -> Option<Range<u64>> {
        asked.within(b"log", BOUNDS).ok()
    }

    #[test]
    fn a_range_is_within_the_log_or_cut_to_it() {
        assert_eq!(within(Asked::ALL), Some(3..7));
        for (range, exactly, available) in [
            ((Bound::Unbounded, Bound::Unbounded), Some(3..7), 3..7),
            ((Bound::Included(4), Bound::Included(5)), Some(4..6), 4..6),
            ((Bound::Excluded(4), Bound::Excluded(6)), Some(5..6), 5..6),
            ((Bound::Included(7), Bound::Unbounded), Some(7..7), 7..7),
            ((Bound::Included(0), Bound::Unbounded), None, 3..7),
            ((Bound::Included(0), Bound::Excluded(2)), None, 3..3),
            ((Bound::Included(5), Bound::Included(u64::MAX)), None, 5..7),
            ((Bound::Included(9), Bound::Excluded(12)), None, 7..7),
            ((Bound::Excluded(u64::MAX), Bound::Unbounded), None, 7..7),
            ((Bound::Included(6), Bound::Excluded(4)), None, 6..6),
        ] {
            assert_eq!(within(Asked::exactly(&range)), exactly, "{range:?}");
            assert_eq!(within(Asked::available(&range)), Some(available), "{range:?}");
        }
    }
}
