//! Commits: operations on any number of logs, applied all or none.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Expected;
use crate::model::Effect;
use crate::model::rehearsal::Rehearsal;
use crate::model::retention::Retention;

/// One operation of a commit, as the caller passes it.
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
    Begin(u64),
    Truncate(u64),
    Delete,
    Retain(Retention),
    /// Drops the entries that are too old, if any. Only the store itself uses this action.
    ExpiryPass,
    /// Counts the log in the totals of its space, if the space counts its logs, and may set the
    /// retention of the space on the log.
    Enroll(EnrollScope),
    Expect(Expected),
}

/// The existing logs on which the retention of their space is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnrollScope {
    None,
    /// Logs without a limit.
    Unlimited,
    All,
}

impl<'a> Action<'a> {
    /// Returns whether the action may make a log larger, or create a log. [`Begin`](Self::Begin)
    /// may create one, but also drops entries: the caller has to look at the log.
    pub fn adds(&self) -> bool {
        matches!(self, Action::Append(_) | Action::Snapshot(_) | Action::Retain(_) | Action::Enroll(_))
    }

    /// Returns the number of payload bytes of the action.
    pub fn payload_len(&self) -> usize {
        match self {
            Action::Append(payload) | Action::Snapshot(payload) => payload.len(),
            _ => 0,
        }
    }

    /// Returns the payload of the entry that an effect of the action adds; empty if the effect adds
    /// no entry.
    pub fn payload_of(&self, effect: Effect) -> &'a [u8] {
        match (effect, *self) {
            (Effect::Append(_), Action::Append(payload) | Action::Snapshot(payload)) => payload,
            _ => &[],
        }
    }
}

/// The durability of a commit: the moment when the store acknowledges the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The store acknowledges the commit when the commit is on stable media. The commit survives a
    /// power cut.
    #[default]
    Durable,
    /// The store acknowledges the commit at once, and begins within half of the bound to write the
    /// commit to stable media. A power cut or a kill may lose the last acknowledged commits, from a
    /// stretch of time no longer than the bound. Every commit older than a surviving one survives.
    /// If the device has owed an acknowledged commit for longer than the bound, the store
    /// acknowledges the next commits when they are durable. Readers see a deferred commit at once:
    /// a read makes the commit durable first.
    Deferred(Duration),
}

impl Durability {
    /// Returns the stricter of both.
    pub(crate) fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Deferred(a), Self::Deferred(b)) => Self::Deferred(a.min(b)),
            _ => Self::Durable,
        }
    }

    /// Returns the time within which the ring should begin to write a commit. `linger` is the time
    /// for durable commits.
    pub(crate) fn within(self, linger: Duration) -> Duration {
        match self {
            Self::Durable => linger,
            // The device gets the other half of the time.
            Self::Deferred(bound) => bound / 2,
        }
    }
}

/// An atomic set of operations on any number of logs. A commit copies the keys and payloads of its
/// operations, one after the other, so that these need not outlive the call.
///
/// Operations take effect in the order in which they were added. The store checks all expectations
/// against the logs as they are before the first operation. Either all operations take effect,
/// visible and durable at one instant, or none does.
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
    /// The rehearsal of the operations, if the store has prepared the commit.
    rehearsal: Option<Arc<Rehearsal>>,
}

/// An operation whose key is in the bytes of its commit.
#[derive(Clone, Copy)]
struct OwnedOp {
    key: (usize, usize),
    action: OwnedAction,
}

#[derive(Clone, Copy)]
enum OwnedAction {
    /// The start and the end of the payload in the bytes of the commit.
    Append(usize, usize),
    Snapshot(usize, usize),
    /// An operation without a payload.
    Other(Action<'static>),
}

/// Maximum number of operations of a commit that is passed on without an allocation.
const FEW: usize = 4;

impl Commit {
    /// Creates an empty commit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all operations and the durability, and keeps the memory for the next operations.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ops.clear();
        (self.durability, self.rehearsal) = (None, None);
    }

    /// Returns whether the commit holds no operation.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Returns the keys of the operations.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.ops.iter().map(|op| &self.bytes[op.key.0..op.key.1])
    }

    /// Remembers that a store has prepared all operations.
    pub(crate) fn set_rehearsal(&mut self, rehearsal: Arc<Rehearsal>) {
        self.rehearsal = Some(rehearsal);
    }

    /// Returns the rehearsal of all operations, if a store has prepared them.
    pub(crate) fn rehearsal(&self) -> Option<&Rehearsal> {
        self.rehearsal.as_deref().filter(|rehearsal| rehearsal.ops == self.ops.len())
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

    /// Returns the same operations on logs whose keys begin with `prefix`.
    pub(crate) fn below(&self, prefix: &[u8]) -> Self {
        let longer = self.bytes.len() + self.ops.len() * prefix.len();
        let ops = Vec::with_capacity(self.ops.len());
        let (durability, rehearsal) = (self.durability, self.rehearsal.clone());
        let mut all = Self { bytes: Vec::with_capacity(longer), ops, durability, rehearsal };
        for op in &self.ops {
            let Op { key, action } = self.borrow(op);
            let key = (all.copy(prefix).0, all.copy(key).1);
            let action = match action {
                Action::Append(payload) => {
                    let (from, to) = all.copy(payload);
                    OwnedAction::Append(from, to)
                }
                Action::Snapshot(payload) => {
                    let (from, to) = all.copy(payload);
                    OwnedAction::Snapshot(from, to)
                }
                _ => op.action,
            };
            all.ops.push(OwnedOp { key, action });
        }
        all
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

    /// Appends an entry to a log. Creates the log if it does not exist.
    pub fn append(&mut self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> &mut Self {
        let (key, (from, to)) = (self.copy(key.as_ref()), self.copy(payload.as_ref()));
        self.ops.push(OwnedOp { key, action: OwnedAction::Append(from, to) });
        self
    }

    /// Appends an entry and drops all entries before it.
    pub fn snapshot(&mut self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> &mut Self {
        let (key, (from, to)) = (self.copy(key.as_ref()), self.copy(payload.as_ref()));
        self.ops.push(OwnedOp { key, action: OwnedAction::Snapshot(from, to) });
        self
    }

    /// Drops the entries with numbers below `before`. `before` may be at most the log's next
    /// number.
    pub fn trim(&mut self, key: impl AsRef<[u8]>, before: u64) -> &mut Self {
        self.push(key, Action::Trim(before))
    }

    /// Drops all entries except the last `n`.
    pub fn keep_last(&mut self, key: impl AsRef<[u8]>, n: u64) -> &mut Self {
        self.push(key, Action::KeepLast(n))
    }

    /// Makes a log begin at number `first`, which may be past the log's end. Creates the log if it
    /// does not exist; see [`Store::begin_at`](crate::Store::begin_at).
    pub fn begin_at(&mut self, key: impl AsRef<[u8]>, first: u64) -> &mut Self {
        self.push(key, Action::Begin(first))
    }

    /// Drops the entries from number `from` on. The next entry gets the number `from`.
    pub fn truncate(&mut self, key: impl AsRef<[u8]>, from: u64) -> &mut Self {
        self.push(key, Action::Truncate(from))
    }

    /// Deletes the log. A log created later under the same key starts at 0 again.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(key, Action::Delete)
    }

    /// Sets the retention of a log. Creates the log if it does not exist; see
    /// [`Store::set_retention`](crate::Store::set_retention).
    pub fn set_retention(&mut self, key: impl AsRef<[u8]>, retention: Retention) -> &mut Self {
        self.push(key, Action::Retain(retention))
    }

    /// Fails the commit unless the log's next number is `next`. 0 also fits a log that does not
    /// exist.
    pub fn expect_next(&mut self, key: impl AsRef<[u8]>, next: u64) -> &mut Self {
        self.push(key, Action::Expect(Expected::Next(next)))
    }

    /// Fails the commit if the log exists.
    pub fn expect_absent(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(key, Action::Expect(Expected::Absent))
    }

    /// Sets the durability of the commit. Default: the strictest durability of the
    /// [spaces](crate::Space) of its logs, and [`Durability::Durable`] for logs outside of spaces.
    /// A space's own durability stays the minimum.
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
