//! A span: consecutive entries of a log with a known total size.

use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub range: Range<u64>,
    pub bytes: u64,
    sizes: Sizes,
}

/// What is known of the entries one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sizes {
    Each(VecDeque<u32>),
    /// Nothing.
    Sum,
    /// They are damaged. All are held to have the same share.
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

    /// Entries that are damaged; what their share is, is not said yet.
    pub fn damaged(range: Range<u64>) -> Self {
        Self { range, bytes: 0, sizes: Sizes::Even }
    }

    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether only the sum is known.
    pub fn is_sum(&self) -> bool {
        self.sizes == Sizes::Sum
    }

    pub fn is_damaged(&self) -> bool {
        self.sizes == Sizes::Even
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + if let Sizes::Each(sizes) = &self.sizes { sizes.len() * size_of::<u32>() } else { 0 }
    }

    /// Forgets the sizes of its entries, but not their sum.
    pub fn forget_sizes(&mut self) {
        self.sizes = Sizes::Sum;
    }

    /// The size of an entry, where that is known.
    pub fn size(&self, seq: u64) -> Option<u64> {
        let at = seq - self.range.start;
        match &self.sizes {
            Sizes::Each(sizes) => Some(sizes[at as usize].into()),
            Sizes::Sum => None,
            Sizes::Even => Some(self.share(at + 1) - self.share(at)),
        }
    }

    /// Gives entries that are damaged their share of what so many have together.
    pub fn take_share(&mut self, bytes: u64, entries: u64) {
        let share = u128::from(bytes) * u128::from(self.len()) / u128::from(entries.max(1));
        self.bytes = share.min(bytes.into()) as u64;
    }

    /// The bytes of its first entries, as many as are said.
    fn share(&self, entries: u64) -> u64 {
        (u128::from(self.bytes) * u128::from(entries) / u128::from(self.len().max(1))) as u64
    }

    /// The next entry joins; its size is known, as those of all others here must be.
    pub fn push(&mut self, size: u32) {
        let Sizes::Each(sizes) = &mut self.sizes else {
            unreachable!("an entry joins those that memory holds")
        };
        sizes.push_back(size);
        self.range.end += 1;
        self.bytes += u64::from(size);
    }

    /// What comes right behind joins; `Err` gives it back where one of them does not know each
    /// size.
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

    /// Takes off what is before `first`. `false` where it is not known what is left then.
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

    /// Takes off what is from `next` on, and gives that. `Err` gives the whole where it is not
    /// known what is left then.
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
