//! A span: consecutive entries of a log with a known total size.

use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub range: Range<u64>,
    pub bytes: u64,
    sizes: Sizes,
}

/// The known sizes of single entries.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sizes {
    Each(VecDeque<u32>),
    /// Only the sum is known.
    Sum,
    /// The entries are damaged. Each is counted with an equal share of the bytes.
    Even,
}

impl Span {
    pub fn each(from: u64, sizes: VecDeque<u32>) -> Self {
        let bytes = sizes.iter().copied().map(u64::from).sum();
        Self { range: from..from + sizes.len() as u64, bytes, sizes: Sizes::Each(sizes) }
    }

    pub fn sum(range: Range<u64>, bytes: u64) -> Self {
        Self { range, bytes, sizes: Sizes::Sum }
    }

    /// Creates a span of damaged entries. [`take_share`](Self::take_share) sets their bytes later.
    pub fn damaged(range: Range<u64>) -> Self {
        Self { range, bytes: 0, sizes: Sizes::Even }
    }

    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns whether only the sum is known.
    pub fn is_sum(&self) -> bool {
        self.sizes == Sizes::Sum
    }

    pub fn is_damaged(&self) -> bool {
        self.sizes == Sizes::Even
    }

    /// Returns the memory of the span, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + if let Sizes::Each(sizes) = &self.sizes { sizes.len() * size_of::<u32>() } else { 0 }
    }

    /// Drops the sizes of single entries, but keeps their sum.
    pub fn forget_sizes(&mut self) {
        self.sizes = Sizes::Sum;
    }

    /// Returns the size of an entry in bytes, if that size is known.
    pub fn size(&self, seq: u64) -> Option<u64> {
        let at = seq - self.range.start;
        match &self.sizes {
            Sizes::Each(sizes) => Some(sizes[at as usize].into()),
            Sizes::Sum => None,
            Sizes::Even => Some(self.share(at + 1) - self.share(at)),
        }
    }

    /// Sets the bytes of damaged entries to their share of `bytes`, the total of `entries` entries.
    pub fn take_share(&mut self, bytes: u64, entries: u64) {
        let share = u128::from(bytes) * u128::from(self.len()) / u128::from(entries.max(1));
        self.bytes = share.min(bytes.into()) as u64;
    }

    /// Returns the bytes of the first `entries` entries.
    fn share(&self, entries: u64) -> u64 {
        (u128::from(self.bytes) * u128::from(entries) / u128::from(self.len().max(1))) as u64
    }

    /// Adds the next entry with its size. All sizes in this span must be known.
    pub fn push(&mut self, size: u32) {
        let Sizes::Each(sizes) = &mut self.sizes else {
            unreachable!("an entry joins those that memory holds")
        };
        sizes.push_back(size);
        self.range.end += 1;
        self.bytes += u64::from(size);
    }

    /// Adds the span that directly follows. Returns `Err` with that span if one of the two spans
    /// does not know each size.
    pub fn append(&mut self, other: Self) -> Result<(), Self> {
        match (&mut self.sizes, other) {
            (Sizes::Each(sizes), Self { range, bytes, sizes: Sizes::Each(more) }) => {
                sizes.extend(more);
                self.range.end = range.end;
                self.bytes += bytes;
                Ok(())
            }
            (_, other) => Err(other),
        }
    }

    /// Removes the entries before `first`. Returns `false` if the rest would have an unknown size.
    pub fn prune(&mut self, first: u64) -> bool {
        let first = first.clamp(self.range.start, self.range.end);
        let gone = first - self.range.start;
        self.bytes -= match &mut self.sizes {
            _ if gone == 0 => return true,
            Sizes::Each(sizes) => sizes.drain(..gone as usize).map(u64::from).sum(),
            Sizes::Sum => return false,
            Sizes::Even => self.share(gone),
        };
        self.range.start = first;
        true
    }

    /// Splits the span before `next`, and returns both parts. Returns `Err` with the whole span if
    /// the parts would have unknown sizes.
    pub fn split_off(mut self, next: u64) -> Result<(Self, Self), Self> {
        let kept = next - self.range.start;
        let sizes = match &mut self.sizes {
            Sizes::Each(sizes) => Sizes::Each(sizes.split_off(kept as usize)),
            Sizes::Sum => return Err(self),
            Sizes::Even => Sizes::Even,
        };
        let bytes = match &sizes {
            Sizes::Each(sizes) => sizes.iter().copied().map(u64::from).sum(),
            _ => self.bytes - self.share(kept),
        };
        let gone = Self { range: next..self.range.end, bytes, sizes };
        self.range.end = next;
        self.bytes -= bytes;
        Ok((self, gone))
    }
}
