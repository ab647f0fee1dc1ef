//! Commits: any operations over any number of logs, done whole or not at all.

use std::time::Duration;

use crate::error::Expected;
use crate::model::retention::Retention;

/// One operation of a commit, as the caller gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<'a> {
    pub key: &'a [u8],
    pub action: Action<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action<'a> {
    Append(&'a [u8]),
    Snapshot(&'a [u8]),
    Trim(u64),
    KeepLast(u64),
    Truncate(u64),
    Delete,
    Retain(Retention),
    /// Entries that are too old go, if there are any: what the store does by itself.
    ExpiryPass,
    /// The log counts in its space, if that counts, and may be given what logs of that keep.
    Enroll(EnrollScope),
    Expect(Expected),
}

/// Which logs that are there are given what their space lets logs keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnrollScope {
    None,
    /// Those without a limit.
    Unlimited,
    All,
}

impl Action<'_> {
    /// Whether it may make a log larger, or a new one.
    pub fn adds(&self) -> bool {
        matches!(self, Action::Append(_) | Action::Snapshot(_) | Action::Retain(_) | Action::Enroll(_))
    }
}

/// When a commit counts as acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on stable media: it survives a power cut.
    #[default]
    Durable,
    /// At once; it is on its way to stable media within half of the bound. A power cut or a kill
    /// may lose what was acknowledged last, in a stretch of time no longer than the bound, and
    /// never something older than what it keeps: once the device has owed an acknowledged commit
    /// for longer than that, the next ones are acknowledged when they are durable. Readers see it
    /// at once: a read makes it durable first.
    Deferred(Duration),
}

impl Durability {
    /// The one that promises more.
    pub(crate) fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Deferred(a), Self::Deferred(b)) => Self::Deferred(a.min(b)),
            _ => Self::Durable,
        }
    }
}

/// An atomic set of operations on any number of logs.
///
/// Operations take effect in the order they were added; all expectations are checked against the
/// logs as they stand before the first of them. Either everything happens, visible and durable at
/// one instant, or nothing does.
///
/// ```
/// # fn main() -> Result<(), brooklet::Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// use brooklet::Commit;
/// let mut commit = Commit::new();
/// commit.expect_absent("order/7").append("order/7", b"created").append("outbox", b"order 7 created");
/// let ticket = store.commit(&commit)?;
/// assert_eq!(ticket.seqs(), [0, 0]); // numbers are known at once
/// ticket.wait()?; // on stable media
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Commit<'a> {
    pub(crate) ops: Vec<Op<'a>>,
    pub(crate) durability: Option<Durability>,
}

impl<'a> Commit<'a> {
    /// An empty commit.
    pub fn new() -> Self {
        Self::default()
    }

    fn push<K: AsRef<[u8]> + ?Sized>(&mut self, key: &'a K, action: Action<'a>) -> &mut Self {
        self.ops.push(Op { key: key.as_ref(), action });
        self
    }

    /// Adds an entry to a log, creating the log if need be.
    pub fn append<K, P>(&mut self, key: &'a K, payload: &'a P) -> &mut Self
    where
        K: AsRef<[u8]> + ?Sized,
        P: AsRef<[u8]> + ?Sized,
    {
        self.push(key, Action::Append(payload.as_ref()))
    }

    /// Adds an entry and drops all before it.
    pub fn snapshot<K, P>(&mut self, key: &'a K, payload: &'a P) -> &mut Self
    where
        K: AsRef<[u8]> + ?Sized,
        P: AsRef<[u8]> + ?Sized,
    {
        self.push(key, Action::Snapshot(payload.as_ref()))
    }

    /// Drops the entries before `before`, which may be at most the log's next number.
    pub fn trim<K: AsRef<[u8]> + ?Sized>(&mut self, key: &'a K, before: u64) -> &mut Self {
        self.push(key, Action::Trim(before))
    }

    /// Drops all but the last `n` entries.
    pub fn keep_last<K: AsRef<[u8]> + ?Sized>(&mut self, key: &'a K, n: u64) -> &mut Self {
        self.push(key, Action::KeepLast(n))
    }

    /// Drops the entries from `from` on; the next entry gets that number.
    pub fn truncate<K: AsRef<[u8]> + ?Sized>(&mut self, key: &'a K, from: u64) -> &mut Self {
        self.push(key, Action::Truncate(from))
    }

    /// Drops the log. A log created later under the same key starts at 0 again.
    pub fn delete<K: AsRef<[u8]> + ?Sized>(&mut self, key: &'a K) -> &mut Self {
        self.push(key, Action::Delete)
    }

    /// Sets what a log keeps from now on, creating the log if need be; see
    /// [`Store::retain`](crate::Store::retain).
    pub fn retain<K: AsRef<[u8]> + ?Sized>(&mut self, key: &'a K, retention: Retention) -> &mut Self {
        self.push(key, Action::Retain(retention))
    }

    /// Fails the commit unless the log's next number is `next`; 0 also fits a log that does not
    /// exist.
    pub fn expect_next<K: AsRef<[u8]> + ?Sized>(&mut self, key: &'a K, next: u64) -> &mut Self {
        self.push(key, Action::Expect(Expected::Next(next)))
    }

    /// Fails the commit if the log exists.
    pub fn expect_absent<K: AsRef<[u8]> + ?Sized>(&mut self, key: &'a K) -> &mut Self {
        self.push(key, Action::Expect(Expected::Absent))
    }

    /// Sets when the commit counts as acknowledged: by default as the [spaces](crate::Space) of its
    /// logs say, the strictest of them, and [`Durability::Durable`] for logs of no space. Less than
    /// what a space says is not to be had.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = Some(durability);
        self
    }
}
