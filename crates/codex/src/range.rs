//! Entries between two keys, from either end.

use std::ops::{Bound, RangeBounds};

use bytes::Bytes;

use crate::cursor::Cursor;
use crate::error::Result;
use crate::reader::Reader;
use crate::source::Source;

/// The entries between two keys, from [`Reader::range`] or [`Reader::prefix`]. An error ends the
/// iteration.
#[derive(Debug)]
pub struct Range<'r, S: Source> {
    front: Cursor<&'r Reader<S>>,
    back: Cursor<&'r Reader<S>>,
    /// The remaining entries lie between these bounds.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    over: bool,
}

impl<S: Source> Reader<S> {
    /// Returns the entries whose keys are in `range`, in ascending order, or from the end with
    /// `.rev()`.
    ///
    /// ```
    /// # use brooklet_codex::*;
    /// # let mut builder = Builder::new(Vec::new(), BuilderOptions::default());
    /// # for key in ["ash", "beech", "elm", "oak"] { builder.add(key.as_bytes(), b"")?; }
    /// # let (summary, file) = builder.finish()?;
    /// # let reader = Reader::open(Bytes::from(file), summary.len, None)?; // of ash, beech, elm, oak
    /// let keys = |range: Range<'_, Bytes>| range.map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>>>();
    /// assert_eq!(keys(reader.range("b".."elm"))?, [b"beech"]);
    /// assert_eq!(keys(reader.range("b"..="elm"))?, [&b"beech"[..], b"elm"]);
    /// assert_eq!(reader.range::<&str>(..).next_back().unwrap()?.0, b"oak");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range<'_, S> {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (from, to) = (own(range.start_bound()), own(range.end_bound()));
        Range { front: self.cursor(), back: self.cursor(), from, to, over: false }
    }

    /// Returns the entries whose keys begin with `prefix`, like [`range`](Self::range).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range<'_, S> {
        let mut after = prefix.as_ref().to_vec();
        while after.last() == Some(&u8::MAX) {
            after.pop();
        }
        let to = match after.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(after)
            }
            None => Bound::Unbounded,
        };
        self.range((Bound::Included(prefix.as_ref().to_vec()), to))
    }
}

impl<S: Source> Range<'_, S> {
    fn step(&mut self) -> Result<Option<(Vec<u8>, Bytes)>> {
        let cursor = &mut self.front;
        let found = match &self.from {
            _ if cursor.valid() => cursor.next()?,
            Bound::Unbounded => cursor.seek_first()?,
            Bound::Included(from) => cursor.seek(from)?,
            Bound::Excluded(from) => cursor.seek(from)? && (cursor.key() != from || cursor.next()?),
        };
        let within = match &self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => cursor.key() <= &to[..],
            Bound::Excluded(to) => cursor.key() < &to[..],
        };
        if !found || !within {
            return Ok(None);
        }
        let entry = (cursor.key().to_vec(), cursor.value()?);
        self.from = Bound::Excluded(entry.0.clone());
        Ok(Some(entry))
    }

    fn step_back(&mut self) -> Result<Option<(Vec<u8>, Bytes)>> {
        let cursor = &mut self.back;
        let found = match &self.to {
            _ if cursor.valid() => cursor.prev()?,
            Bound::Unbounded => cursor.seek_last()?,
            Bound::Included(to) => cursor.seek_le(to)?,
            Bound::Excluded(to) => cursor.seek_le(to)? && (cursor.key() != to || cursor.prev()?),
        };
        let within = match &self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => cursor.key() >= &from[..],
            Bound::Excluded(from) => cursor.key() > &from[..],
        };
        if !found || !within {
            return Ok(None);
        }
        let entry = (cursor.key().to_vec(), cursor.value()?);
        self.to = Bound::Excluded(entry.0.clone());
        Ok(Some(entry))
    }

    fn end(&mut self, step: Result<Option<(Vec<u8>, Bytes)>>) -> Option<Result<(Vec<u8>, Bytes)>> {
        self.over = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

impl<S: Source> Iterator for Range<'_, S> {
    type Item = Result<(Vec<u8>, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let step = self.step();
        self.end(step)
    }
}

impl<S: Source> DoubleEndedIterator for Range<'_, S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let step = self.step_back();
        self.end(step)
    }
}
