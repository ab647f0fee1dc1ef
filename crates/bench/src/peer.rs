//! What a measured store has to do.

use crate::outcome::{Awaited, Done, Result};
use crate::promise::awaited;

/// Adds an entry to a log, and drops those from `first` up to it.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The log's number.
    pub log: u64,
    /// The entry's number in the log: the one after the last.
    pub seq: u64,
    /// The oldest entry that goes; `seq` where none does.
    pub first: u64,
    /// What is added.
    pub payload: &'static [u8],
}

impl Op {
    /// Whether it drops what was there.
    pub fn is_snapshot(&self) -> bool {
        self.first < self.seq
    }
}

/// A store as the workloads see it. Operations on one log are handed in one after another.
pub trait Peer: Send + Sync {
    /// Carries out an operation; returns once it is durable.
    fn wait(&self, op: Op) -> Result<()>;

    /// Takes an operation; `done` is called once it is durable.
    fn submit(&self, op: Op, done: Done) -> Result<()>;

    /// Takes an operation, for a task that awaits when it is durable.
    fn begin(&self, op: Op) -> Result<Awaited> {
        awaited(|done| self.submit(op, done))
    }

    /// Carries out operations in whatever way is quickest; returns once all are durable.
    fn all(&self, ops: &[Op]) -> Result<()>;

    /// Visits a log's entries in order, with their numbers.
    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()>;

    /// Brings to its place what waits in memory or in a write-ahead log, where the store has a call
    /// for it.
    fn settle(&self) -> Result<()>;

    /// Settles it, and merges all that it has in several places, so that it is read best.
    fn compact(&self) -> Result<()> {
        self.settle()
    }

    /// Closes the store as its users should.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A store that takes many operations in one durable transaction; [`Batched`] makes a [`Peer`] of
/// it.
pub trait Transactions: Send + Sync + 'static {
    /// Whether it merges the commits of several threads by itself.
    const GROUPS: bool = false;

    /// Carries out operations in one transaction; returns once it is durable.
    fn commit(&self, ops: &[Op]) -> Result<()>;

    /// See [`Peer::read`].
    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()>;

    /// See [`Peer::settle`].
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// See [`Peer::compact`].
    fn compact(&self) -> Result<()> {
        self.settle()
    }

    /// See [`Peer::close`].
    fn close(self) -> Result<()>
    where
        Self: Sized,
    {
        Ok(())
    }
}
