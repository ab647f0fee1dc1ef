//! A list: two logs, back to back.
//!
//! ```text
//!    left log, read from its end       right log
//!   ┌───────────────────────────┐┌────────────────────┐
//!   │ next-1   …   first+1 first ││ first   …   next-1 │
//!   └───────────────────────────┘└────────────────────┘
//!    ◀─ LPUSH appends here                RPUSH appends here ─▶
//! ```
//!
//! Either end grows by appends. An end shrinks by truncating its log or, if that log is empty, by
//! trimming the other. A change in the middle rewrites the shorter of its two sides.

use std::ops::Range;

use brooklet::{Error, Store};
use bytes::Bytes;

use super::batch::Batch;
use super::body::Body;
use super::names::{self, LogKey};

/// The logs of a list.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub(super) right: Body,
    /// Log of elements pushed to the left; most lists have none.
    left: Option<Box<Body>>,
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The beginning.
    Left,
    /// The end.
    Right,
}

/// Most bytes that one change writes again.
pub const MAX_REWRITTEN: usize = 256 << 20;

/// Returns an error if one change writes more than the limit of bytes again.
pub fn check_rewritten(len: usize) -> Result<(), Error> {
    let limit = MAX_REWRITTEN;
    if len > limit { Err(Error::CommitTooLarge { len, limit }) } else { Ok(()) }
}

/// Collects what one change writes again, within the limit of bytes.
pub fn collect(all: impl Iterator<Item = Result<Bytes, Error>>) -> Result<Vec<Bytes>, Error> {
    let mut len = 0;
    all.map(|bytes| {
        let bytes = bytes?;
        len += bytes.len();
        check_rewritten(len).map(|()| bytes)
    })
    .collect()
}

impl List {
    /// Creates a list from its logs.
    pub fn of(right: Body, left: Body) -> Self {
        Self { right, left: left.is_there().then(|| Box::new(left)) }
    }

    /// Returns a list of the same logs without their elements.
    pub fn emptied(&self) -> Self {
        let left = self.left.as_ref().map(|left| Box::new(left.emptied()));
        Self { right: self.right.emptied(), left }
    }

    /// Returns the log of elements pushed to the left.
    pub fn left(&self) -> &Body {
        static NONE: Body = Body::NONE;
        self.left.as_deref().unwrap_or(&NONE)
    }

    /// Drops the entries that the store shows now.
    pub fn settle(&mut self, durable: u64) {
        self.right.settle(durable);
        if let Some(left) = &mut self.left {
            left.settle(durable);
        }
    }

    /// Sets the epoch of the entries that were not committed.
    pub fn date(&mut self, epoch: u64) {
        self.right.date(epoch);
        if let Some(left) = &mut self.left {
            left.date(epoch);
        }
    }

    /// Returns the allocated memory, in bytes.
    pub fn memory(&self) -> usize {
        self.right.memory() + self.left.as_ref().map_or(0, |left| size_of::<Body>() + left.memory())
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        (self.left().len() + self.right.len()) as usize
    }

    /// Returns whether the list has no elements.
    pub fn is_empty(&self) -> bool {
        self.left().is_empty() && self.right.is_empty()
    }

    /// Returns an existing element.
    pub fn get(&self, store: &Store, plain: &[u8], at: usize) -> Result<Bytes, Error> {
        let at = at as u64;
        match at.checked_sub(self.left().len()) {
            Some(beyond) => self.right.get(store, plain, self.right.first() + beyond),
            None => self.left().get(store, &names::left(plain), self.left().next() - 1 - at),
        }
    }

    /// Returns the elements of an existing range.
    pub fn iter(
        &self,
        store: &Store,
        plain: &[u8],
        range: Range<usize>,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Bytes, Error>> + use<'_>, Error> {
        let (start, end, lefts) = (range.start as u64, range.end as u64, self.left().len());
        let (upper, first) = (self.left().next(), self.right.first());
        let left = if start < lefts { upper - end.min(lefts)..upper - start } else { 0..0 };
        let right = if end > lefts { first + start.max(lefts) - lefts..first + end - lefts } else { 0..0 };
        let left = if left.is_empty() {
            None
        } else {
            Some(self.left().iter(store, &names::left(plain), left)?.rev())
        };
        let right = if right.is_empty() { None } else { Some(self.right.iter(store, plain, right)?) };
        Ok(left.into_iter().flatten().chain(right.into_iter().flatten()))
    }

    /// Returns the elements of an existing range that a change writes again.
    fn rewritten(&self, store: &Store, plain: &[u8], range: Range<usize>) -> Result<Vec<Bytes>, Error> {
        collect(self.iter(store, plain, range)?)
    }

    /// Adds elements at an end, one after the other.
    pub fn push(
        &mut self,
        batch: &mut Batch,
        plain: &LogKey,
        end: End,
        elements: impl IntoIterator<Item = Bytes>,
    ) {
        match end {
            End::Right => self.right.push(batch, plain.clone(), elements),
            End::Left => self.left.get_or_insert_default().push(batch, names::left(plain), elements),
        }
    }

    /// Replaces an existing element, if this takes no other element to be written; returns whether
    /// it did.
    pub fn replace(&mut self, batch: &mut Batch, plain: &LogKey, at: usize, new: &Bytes) -> bool {
        let at = at as u64;
        match (at.checked_sub(self.left().len()), &mut self.left) {
            (Some(beyond), _) => {
                let seq = self.right.first() + beyond;
                self.right.replace(batch, plain, seq, new)
            }
            (None, Some(left)) => {
                let seq = left.next() - 1 - at;
                left.replace(batch, &names::left(plain), seq, new)
            }
            (None, None) => false,
        }
    }

    /// Removes `n` existing elements at an end.
    pub fn drop(&mut self, batch: &mut Batch, plain: &LogKey, end: End, n: usize) {
        let n = n as u64;
        match end {
            End::Left => {
                let near = n.min(self.left().len());
                if let Some(left) = &mut self.left {
                    left.truncate(batch, names::left(plain), left.next() - near);
                }
                self.right.trim(batch, plain.clone(), self.right.first() + n - near);
            }
            End::Right => {
                let near = n.min(self.right.len());
                self.right.truncate(batch, plain.clone(), self.right.next() - near);
                if let Some(left) = &mut self.left {
                    left.trim(batch, names::left(plain), left.first() + n - near);
                }
            }
        }
    }

    /// Replaces the elements of a range by `new`, and rewrites the shorter side of the range.
    pub fn splice(
        &mut self,
        batch: &mut Batch,
        store: &Store,
        plain: &LogKey,
        range: Range<usize>,
        new: &[Bytes],
    ) -> Result<(), Error> {
        if let [element] = new
            && range.len() == 1
            && self.replace(batch, plain, range.start, element)
        {
            return Ok(());
        }
        let (before, after) = (range.start, self.len() - range.end);
        if before < after {
            let kept = self.rewritten(store, plain, 0..before)?;
            self.drop(batch, plain, End::Left, range.end);
            self.push(batch, plain, End::Left, kept.iter().chain(new).rev().cloned());
        } else {
            let kept = self.rewritten(store, plain, range.end..self.len())?;
            self.drop(batch, plain, End::Right, self.len() - range.start);
            self.push(batch, plain, End::Right, new.iter().chain(&kept).cloned());
        }
        Ok(())
    }

    /// Deletes the logs.
    pub fn delete(&mut self, batch: &mut Batch, plain: &LogKey) {
        self.right.delete(batch, plain.clone());
        if let Some(left) = &mut self.left {
            left.delete(batch, names::left(plain));
        }
    }
}
