//! Commits: any operations over any number of logs, done whole or not at all.

use std::fmt;
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

/// An atomic set of operations on any number of logs. It copies the keys and payloads that it is
/// given, one behind the other, so that they need not outlive the call.
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
/// for order in 7..9 {
///     let key = format!("order/{order}");
///     commit.expect_absent(&key).append(&key, "created").append("outbox", format!("{key} created"));
/// }
/// let ticket = store.commit(&commit)?;
/// assert_eq!(ticket.seqs(), [0, 0, 0, 1]); // numbers are known at once
/// ticket.wait()?; // on stable media
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Commit {
    /// The keys and payloads of all operations.
    bytes: Vec<u8>,
    ops: Vec<OwnedOp>,
    pub(crate) durability: Option<Durability>,
}

/// An operation whose key lies in the bytes of its commit.
#[derive(Clone, Copy)]
struct OwnedOp {
    key: (usize, usize),
    action: OwnedAction,
}

#[derive(Clone, Copy)]
enum OwnedAction {
    /// The payload lies between here and there.
    Append(usize, usize),
    Snapshot(usize, usize),
    /// It has no payload.
    Other(Action<'static>),
}

/// Commits of so few operations are handed on without an allocation.
const FEW: usize = 4;

impl Commit {
    /// Creates an empty commit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all operations, and keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ops.clear();
        self.durability = None;
    }

    /// Returns whether it holds no operation.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Calls `f` with the operations, which borrow their keys and payloads from the commit.
    pub(crate) fn with_ops<T>(&self, f: impl FnOnce(&[Op<'_>]) -> T) -> T {
        let ops = self.ops.iter().map(|op| self.borrow(op));
        if self.ops.len() > FEW {
            return f(&ops.collect::<Vec<_>>());
        }
        let mut few = [Op { key: &[], action: Action::Delete }; FEW];
        few.iter_mut().zip(ops).for_each(|(place, op)| *place = op);
        f(&few[..self.ops.len()])
    }

    fn borrow(&self, op: &OwnedOp) -> Op<'_> {
        let action = match op.action {
            OwnedAction::Append(from, to) => Action::Append(&self.bytes[from..to]),
            OwnedAction::Snapshot(from, to) => Action::Snapshot(&self.bytes[from..to]),
            OwnedAction::Other(action) => action,
        };
        Op { key: &self.bytes[op.key.0..op.key.1], action }
    }

    fn copy(&mut self, bytes: &[u8]) -> (usize, usize) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        (from, self.bytes.len())
    }

    fn push(&mut self, key: impl AsRef<[u8]>, action: Action<'static>) -> &mut Self {
        let key = self.copy(key.as_ref());
        self.ops.push(OwnedOp { key, action: OwnedAction::Other(action) });
        self
    }

    /// Adds an entry to a log, creating the log if need be.
    pub fn append(&mut self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> &mut Self {
        let (key, (from, to)) = (self.copy(key.as_ref()), self.copy(payload.as_ref()));
        self.ops.push(OwnedOp { key, action: OwnedAction::Append(from, to) });
        self
    }

    /// Adds an entry and drops all before it.
    pub fn snapshot(&mut self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> &mut Self {
        let (key, (from, to)) = (self.copy(key.as_ref()), self.copy(payload.as_ref()));
        self.ops.push(OwnedOp { key, action: OwnedAction::Snapshot(from, to) });
        self
    }

    /// Drops the entries before `before`, which may be at most the log's next number.
    pub fn trim(&mut self, key: impl AsRef<[u8]>, before: u64) -> &mut Self {
        self.push(key, Action::Trim(before))
    }

    /// Drops all but the last `n` entries.
    pub fn keep_last(&mut self, key: impl AsRef<[u8]>, n: u64) -> &mut Self {
        self.push(key, Action::KeepLast(n))
    }

    /// Drops the entries from `from` on; the next entry gets that number.
    pub fn truncate(&mut self, key: impl AsRef<[u8]>, from: u64) -> &mut Self {
        self.push(key, Action::Truncate(from))
    }

    /// Drops the log. A log created later under the same key starts at 0 again.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(key, Action::Delete)
    }

    /// Sets what a log keeps from now on, creating the log if need be; see
    /// [`Store::set_retention`](crate::Store::set_retention).
    pub fn set_retention(&mut self, key: impl AsRef<[u8]>, retention: Retention) -> &mut Self {
        self.push(key, Action::Retain(retention))
    }

    /// Fails the commit unless the log's next number is `next`; 0 also fits a log that does not
    /// exist.
    pub fn expect_next(&mut self, key: impl AsRef<[u8]>, next: u64) -> &mut Self {
        self.push(key, Action::Expect(Expected::Next(next)))
    }

    /// Fails the commit if the log exists.
    pub fn expect_absent(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(key, Action::Expect(Expected::Absent))
    }

    /// Sets when the commit counts as acknowledged: by default as the [spaces](crate::Space) of its
    /// logs say, the strictest of them, and [`Durability::Durable`] for logs of no space. A space's
    /// own durability stays the least.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = Some(durability);
        self
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops: Vec<_> = self.ops.iter().map(|op| self.borrow(op)).collect();
        f.debug_struct("Commit").field("ops", &ops).field("durability", &self.durability).finish()
    }
}
