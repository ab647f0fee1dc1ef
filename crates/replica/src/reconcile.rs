//! What an opening does with the local file of a store, once a takeover has found the end of the
//! log.
//!
//! Both sides are compared by links: the end of a block in the store's log, and the checksum that
//! chains the block to all blocks before it. The same link on both sides means the same history.

use crate::place::Drawn;

/// A point in the history of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// End of a block in the store's log.
    pub lsn: u64,
    /// The checksum that chains the block to those before it.
    pub sum: u64,
}

/// When an append counts as acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// When it is durable on the local disk. The log follows later.
    Local,
    /// When it is in the log.
    Remote,
}

/// The history of the local file.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    /// The ends of its blocks, ascending, from one that the log is known to have.
    pub links: &'a [Link],
    /// The number drawn for the last claim by which this file was open, if it ever was.
    pub drawn: Option<Drawn>,
}

/// The findings of the takeover.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    /// The ends of the blocks in the log, ascending, from the newest record on; the first one is
    /// the end of the backup.
    pub links: &'a [Link],
    /// The number drawn by the last owner of the log before this opening, if there was one.
    pub last_writer: Option<Drawn>,
}

/// The next step for the local file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Both sides are the same.
    Same,
    /// The local file lacks blocks: take those after `from` out of the log.
    CatchUp {
        /// The common end, in the store's log.
        from: u64,
    },
    /// The local file has blocks that were never acknowledged: drop those after `to`. Then take the
    /// log's blocks after `to`, if it has any.
    Drop {
        /// The common end, in the store's log.
        to: u64,
    },
    /// The local file has acknowledged blocks that the log lacks, and nobody owned the store
    /// meanwhile: append those after `from` to the log.
    Ship {
        /// The common end, in the store's log.
        from: u64,
    },
    /// The local file has blocks that another history replaced. Keep the blocks after `from` as an
    /// export, and report them. Use nothing of the local file behind `from`. The plan is the same
    /// if both sides have nothing in common, for example if the file is older than the newest
    /// record.
    Diverged {
        /// The last common end, in the store's log; 0 if none is known.
        from: u64,
    },
}

/// Decides the next step for the local file.
///
/// ```
/// use brooklet_replica::{Drawn, Link, Local, Mode, Plan, Remote, reconcile};
/// let [a, b] = [Link { lsn: 10, sum: 77 }, Link { lsn: 20, sum: 88 }];
/// let local = Local { links: &[a, b], drawn: Some(Drawn(5)) };
/// let remote = Remote { links: &[a], last_writer: Some(Drawn(5)) };
/// assert_eq!(reconcile(Mode::Local, local, remote), Plan::Ship { from: 10 });
/// assert_eq!(reconcile(Mode::Remote, local, remote), Plan::Drop { to: 10 });
/// let remote = Remote { links: &[a], last_writer: Some(Drawn(6)) };
/// assert_eq!(reconcile(Mode::Local, local, remote), Plan::Diverged { from: 10 });
/// ```
pub fn reconcile(mode: Mode, local: Local<'_>, remote: Remote<'_>) -> Plan {
    // A file that was never open under a claim acknowledged what it has by itself.
    let mode = if local.drawn.is_none() { Mode::Local } else { mode };
    // Both may have millions of links. Those of empty blocks are at one position, in no order.
    let mut known = remote.links.to_vec();
    known.sort_unstable();
    let common = local.links.iter().rev().find(|link| known.binary_search(link).is_ok());
    let (Some(ours), Some(theirs)) = (local.links.last(), remote.links.last()) else {
        // One side has no history. Whatever the other one has is new to it.
        return match (local.links.is_empty(), remote.links.is_empty()) {
            (true, true) => Plan::Same,
            (true, false) => Plan::CatchUp { from: 0 },
            (false, _) => suffix(mode, local, remote, 0),
        };
    };
    match common {
        None => Plan::Diverged { from: 0 },
        Some(common) if common == ours && common == theirs => Plan::Same,
        Some(common) if common == ours => Plan::CatchUp { from: common.lsn },
        Some(common) if common == theirs => suffix(mode, local, remote, common.lsn),
        Some(common) => match mode {
            Mode::Remote => Plan::Drop { to: common.lsn },
            Mode::Local => Plan::Diverged { from: common.lsn },
        },
    }
}

/// Decides about local blocks behind the end of the log.
fn suffix(mode: Mode, local: Local<'_>, remote: Remote<'_>, from: u64) -> Plan {
    match mode {
        Mode::Remote => Plan::Drop { to: from },
        Mode::Local if local.drawn == remote.last_writer => Plan::Ship { from },
        Mode::Local => Plan::Diverged { from },
    }
}
