//! The commit of a draft, and the thread that has the store prepare it, and hands it to the store.
//!
//! The store takes a commit of many operations as one, which takes a while. Nothing of it rests on
//! the keys of all clients: so another thread may do it, while commands run that change nothing.
//! The keys are those of before the draft until the end.

use std::collections::BTreeMap;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};

use brooklet::{Commit, Error, Store, Ticket};
use bytes::Bytes;

use super::cache::{Cache, SlotId};
use super::count::Count;
use super::draft::{Draft, Merging};
use super::names::{self, LogKey};
use super::{Committed, Keyspace};

/// Operations and entries from which on another thread hands a commit to the store.
const LONG: usize = 4_000;

/// Most changed keys of a draft that are reported one by one to commands that follow changes.
const REPORTED: usize = 10_000;

/// A task of a helper.
pub enum Task {
    Prepare(Preparation),
    Commit(Box<Handover>),
}

/// The end of a task.
pub enum TaskEnd {
    /// The commit that was prepared; or the reason why the store refuses it.
    Prepared(Result<Commit, Error>),
    Handed(Box<Handed>),
}

/// A commit that the store does not have, and makes room for.
pub struct Preparation {
    store: Store,
    pub commit: Commit,
}

/// A draft that the store does not have yet.
pub struct Handover {
    store: Store,
    commit: Commit,
    /// Words of the command, which are freed with the commit.
    words: Vec<Bytes>,
    changes: Changes,
}

/// A draft that the store has, or has refused.
pub struct Handed {
    ticket: Result<Ticket, Error>,
    changes: Changes,
    garbage: Garbage,
}

/// Memory of a commit that the store has, which takes a while to free.
pub type Garbage = (Commit, Vec<Bytes>);

/// The change of the number of keys of each database.
pub(super) type Counts = BTreeMap<Vec<u8>, i64>;

/// What a draft changes.
pub(super) struct Changes {
    pub cache: Cache,
    /// The changed keys, and whether they existed before.
    pub touched: Vec<(SlotId, bool)>,
    /// Expiries that keys had before.
    pub lost: Vec<(u64, LogKey)>,
    pub counts: Counts,
    /// Size of the appended entries, in bytes.
    pub size: u64,
}

impl Task {
    /// Runs the task, on any thread.
    pub fn run(self) -> TaskEnd {
        match self {
            Self::Prepare(preparation) => TaskEnd::Prepared(preparation.run()),
            Self::Commit(handover) => TaskEnd::Handed(handover.run().into()),
        }
    }
}

impl Preparation {
    fn run(self) -> Result<Commit, Error> {
        let Self { store, mut commit } = self;
        // A client waits for the answer.
        let prepared = catch_unwind(AssertUnwindSafe(|| store.prepare(&mut commit)));
        prepared.unwrap_or(Err(Error::Closed)).map(|()| commit)
    }
}

impl Handover {
    /// Makes the words of the command be freed with the commit.
    pub fn take_words(&mut self, words: Vec<Bytes>) {
        self.words = words;
    }

    /// Hands the commit to the store, beside commands that do not commit.
    fn run(self) -> Handed {
        let Self { store, commit, words, changes } = self;
        // Clients wait for the answer: a panic must not keep it from them.
        let ticket = catch_unwind(AssertUnwindSafe(|| store.commit(&commit)));
        let ticket = ticket.unwrap_or(Err(Error::Closed));
        Handed { ticket, changes, garbage: (commit, words) }
    }
}

impl TaskEnd {
    /// Takes the memory that nobody needs any more. Clients should not wait while it is freed.
    pub fn take_garbage(&mut self) -> Option<Garbage> {
        match self {
            Self::Prepared(_) => None,
            Self::Handed(handed) => Some(take(&mut handed.garbage)),
        }
    }
}

/// Returns how the number of keys of each database changes.
pub(super) fn count(cache: &Cache, touched: &[(SlotId, bool)]) -> Counts {
    let mut counts = Counts::new();
    for (id, was_there) in touched {
        let slot = cache.get(*id);
        let change = i64::from(slot.value.is_there()) - i64::from(*was_there);
        let database = names::database(&slot.key);
        match counts.get_mut(database) {
            _ if change == 0 => {}
            Some(count) => *count += change,
            None => drop(counts.insert(database.to_vec(), change)),
        }
    }
    counts
}

impl Draft {
    /// Returns whether the commit takes the store long.
    pub fn is_long(&self) -> bool {
        self.count() >= LONG
    }
}

impl Keyspace {
    /// Returns the task that prepares the commit of a draft. The commit must be [put
    /// back](Draft::put_back) before the draft is submitted.
    pub fn preparation(&self, draft: &mut Draft) -> Task {
        Task::Prepare(Preparation { store: self.store.clone(), commit: draft.take_commit() })
    }

    /// Takes the submitted draft, if its commit takes the store long. No other commit is accepted
    /// until [`end_handover`](Self::end_handover).
    pub fn begin_handover(&mut self) -> Option<Handover> {
        let is_long = self.submitted.as_ref().is_some_and(|draft| draft.is_long());
        if !is_long || self.is_handing || self.is_stopped || !self.batch.is_empty() {
            return None;
        }
        let draft = self.submitted.take()?;
        self.forget_untouched();
        self.note_cleared();
        self.is_handing = true;
        Some(self.handover(*draft))
    }

    fn handover(&self, draft: Draft) -> Handover {
        let (commit, changes) = draft.into_commit();
        Handover { store: self.store.clone(), commit, words: Vec::new(), changes }
    }

    /// Commits a draft.
    ///
    /// # Errors
    /// The error of the store; no change took effect.
    pub(super) fn commit_draft(&mut self, draft: Draft) -> Result<Committed, Error> {
        let handover = self.handover(draft);
        if handover.commit.is_empty() {
            return Ok(Committed::default());
        }
        self.end_handover(handover.run())
    }

    /// Makes the changes of a draft those of all clients, if the store has accepted them.
    ///
    /// # Errors
    /// The error of the store; no change took effect.
    pub fn end_handover(&mut self, handed: Handed) -> Result<Committed, Error> {
        let Handed { ticket, changes: Changes { cache, touched, lost, counts, size }, .. } = handed;
        self.is_handing = false;
        self.merge_some(usize::MAX);
        if self.is_stopped {
            // The store shows all that took effect; keys in memory may be older.
            for (id, _) in &touched {
                if let Some(old) = self.cache.find(&cache.get(*id).key) {
                    self.cache.remove(old);
                }
            }
            self.store.flush()?;
        }
        let ticket = ticket?;
        let done = self.note_committed(&ticket, touched.len(), size);
        if touched.len() > REPORTED {
            self.followers.note_all();
        } else {
            touched.iter().for_each(|(id, _)| self.followers.note(&cache.get(*id).key));
        }
        for (database, change) in counts {
            Count::of(&mut self.counts, &database).change(change);
        }
        for (at, key) in lost {
            self.forget_deadline(Some(at), &key);
        }
        let is_in_memory = ticket.is_in_memory();
        self.merging = Some(Merging::new(cache, touched, self.epoch, done.epoch, is_in_memory));
        self.note_ticket(ticket);
        Ok(done)
    }

    /// Returns whether a key is in memory with all of its value, so that to read it takes nothing
    /// from the store, and changes nothing.
    pub fn is_at_hand(&mut self, database: &[u8], name: &[u8]) -> bool {
        let mut plain = take(&mut self.scratch);
        names::write_plain(database, name, &mut plain);
        self.merge_key(&plain);
        let id = self.cache.find(&plain);
        self.scratch = plain;
        let Some(slot) = id.map(|id| self.cache.get(id)).filter(|_| !self.is_clearing_any()) else {
            return false;
        };
        slot.value.is_in_memory() && slot.expire.is_none_or(|at| at > self.now)
    }
}
