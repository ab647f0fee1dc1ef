//! The groups of a queue: which writes reach stable media together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brooklet::Ticket;

/// The bit that the tags of groups have, and the tags of callers do not need.
const GROUP: u64 = 1 << 63;

/// The groups of a queue.
#[derive(Default)]
pub(crate) struct Groups {
    /// The group that the next write may join.
    open: Option<Group>,
    /// Number of groups so far.
    made: u64,
    /// The groups of a queue on request, without most of those that are acknowledged.
    kept: BTreeMap<u64, Group>,
}

/// Some writes that reach stable media together.
#[derive(Clone)]
pub(crate) struct Group {
    pub tag: u64,
    /// A write of the group.
    pub ticket: Ticket,
    /// The number of its writes.
    pub writes: Arc<AtomicU64>,
}

impl Groups {
    /// Adds a write to the open group, or to a new one. Returns the tag of the group, and the group
    /// if it is new.
    pub fn join(&mut self, ticket: Ticket) -> (u64, Option<Group>) {
        if let Some(open) = self.open.as_ref().filter(|open| open.ticket.comes_with(&ticket)) {
            open.writes.fetch_add(1, Ordering::Relaxed);
            return (open.tag, None);
        }
        self.made += 1;
        let group = Group { tag: GROUP | self.made, ticket, writes: Arc::new(AtomicU64::new(1)) };
        self.open = Some(group.clone());
        (group.tag, Some(group))
    }

    /// Keeps a new group for a request, and forgets those that are acknowledged.
    pub fn keep(&mut self, group: Group) {
        self.kept.retain(|_, kept| !kept.ticket.is_done());
        self.kept.insert(group.tag, group);
    }

    /// Returns whether no write has joined a group yet.
    pub fn is_new(&self) -> bool {
        self.made == 0
    }

    /// Returns whether a write got this tag.
    pub fn has_made(&self, tag: u64) -> bool {
        tag & GROUP != 0 && (1..=self.made).contains(&(tag & !GROUP))
    }

    /// Returns a group that was kept; `None` if it is acknowledged, and forgotten.
    pub fn kept(&self, tag: u64) -> Option<Group> {
        self.kept.get(&tag).cloned()
    }

    /// Returns the kept groups that are not acknowledged.
    pub fn not_acknowledged(&self) -> Vec<Group> {
        self.kept.values().filter(|group| !group.ticket.is_done()).cloned().collect()
    }

    /// Lets no further write join a group.
    pub fn close(&mut self, tag: u64) {
        self.open.take_if(|open| open.tag == tag);
    }
}
