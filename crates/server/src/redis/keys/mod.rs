//! The keys of all databases, as commands see them: each command sees all changes of the earlier
//! ones.
//!
//! Commands run on one thread at a time, against a cache of the store's keys. A command's change of
//! a key takes effect here at once, and is collected as operations on logs. They become one commit
//! at the end of the command, or of its transaction. Commits are numbered: an *epoch* each. A reply
//! waits until the epochs that it depends on are acknowledged; so no client sees a state that a
//! crash could undo.
//!
//! Invariants:
//! 1. A key that is not in the cache is durable: only keys whose last epoch is durable leave the
//!    cache.
//! 2. A refused commit has no effect: its keys leave the cache, after all earlier commits are
//!    durable, and are read from the store again.
//! 3. No other writer writes to the logs of these spaces while they are served.

mod batch;
mod body;
mod cache;
mod change;
pub mod head;
mod list;
mod load;
pub mod names;
mod scan;
pub mod stream;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brooklet::{Error, Store, Ticket};
use bytes::Bytes;

use batch::Batch;
pub use cache::SlotId;
use cache::{Cache, Slot};
pub use list::{End, List};
use names::LogKey;
pub use scan::{Keys, deadlines};
pub use stream::Stream;

/// A key's value.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// There is no such key.
    #[default]
    Absent,
    /// A list.
    List(List),
    /// A string.
    String(Bytes),
    /// A hash.
    Hash(BTreeMap<Bytes, Bytes>),
    /// A stream.
    Stream(Box<Stream>),
}

impl Value {
    /// Whether there is such a key.
    pub fn is_there(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Absent => "none",
            Self::List(_) => "list",
            Self::String(_) => "string",
            Self::Hash(_) => "hash",
            Self::Stream(_) => "stream",
        }
    }
}

/// The keys of all databases.
pub struct Keyspace {
    store: Store,
    cache: Cache,
    /// What the command at hand, or the transaction, has done so far.
    batch: Batch,
    /// Keys that it has changed, and whether they were there before.
    touched: Vec<(SlotId, bool)>,
    /// Keys that the last commit changed.
    changed: Vec<SlotId>,
    /// The last epoch that the command at hand has seen something of.
    seen: u64,
    epoch: u64,
    acknowledged: u64,
    durable: u64,
    /// Commits that are not durable yet; those of one write are one.
    tickets: VecDeque<(u64, Ticket)>,
    unheard: Vec<Ticket>,
    /// Keys with what is not durable yet.
    unsettled: VecDeque<(u64, SlotId)>,
    /// When keys expire. Some of these keys may be gone, or expire at another time by now.
    deadlines: BTreeSet<(u64, LogKey)>,
    /// Keys of each database, of those that were counted once.
    counts: BTreeMap<Vec<u8>, i64>,
    scratch: Vec<u8>,
    /// The time, in milliseconds since the Unix epoch.
    pub now: u64,
    /// Whether the store takes nothing any more.
    is_stopped: bool,
}

/// What became of a commit.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    /// The epoch that replies have to wait for; 0: none.
    pub epoch: u64,
    /// Keys that were changed; [`Keyspace::changed`] tells which.
    pub keys: usize,
    /// Bytes of the entries that were added.
    pub bytes: u64,
}

impl Keyspace {
    /// Those of a store, with so many bytes of memory for what was looked at last.
    pub fn new(store: Store, budget: usize, now: u64) -> Self {
        Self {
            store,
            cache: Cache::new(budget),
            batch: Batch { epoch: 1, ops: Vec::new() },
            touched: Vec::new(),
            changed: Vec::new(),
            seen: 0,
            epoch: 0,
            acknowledged: 0,
            durable: 0,
            tickets: VecDeque::new(),
            unheard: Vec::new(),
            unsettled: VecDeque::new(),
            deadlines: BTreeSet::new(),
            counts: BTreeMap::new(),
            scratch: Vec::new(),
            now,
            is_stopped: false,
        }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The last epoch that is acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The last epoch that is on stable media.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The last epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Keys that are in memory, and the bytes that they take.
    pub fn cached(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.bytes())
    }

    /// The epoch that a reply has to wait for which tells of what was looked at since the last
    /// call.
    pub fn take_seen(&mut self) -> u64 {
        std::mem::take(&mut self.seen)
    }

    /// Has what is said of a key wait for what was done to it.
    fn see(&mut self, id: SlotId) {
        let acked_at = self.cache.get(id).acked_at;
        if acked_at > self.acknowledged {
            self.seen = self.seen.max(acked_at);
        }
    }

    /// Has what is said wait for everything that was done.
    pub fn see_all(&mut self) {
        if self.epoch > self.acknowledged {
            self.seen = self.epoch;
        }
    }

    /// Whether something was done that is not committed.
    pub fn is_changed(&self) -> bool {
        !self.batch.ops.is_empty()
    }

    /// Commits what was done since the last call, as one.
    ///
    /// # Errors
    /// Nothing of it was done.
    pub fn commit(&mut self) -> Result<Committed, Error> {
        let mut done = Committed::default();
        if self.batch.ops.is_empty() {
            self.forget_untouched();
            return Ok(done);
        }
        // What keys are then is not what the store would put this upon: it is to say why it
        // stopped, and nothing else.
        let refused = if self.is_stopped { self.store.flush().err() } else { None };
        let ticket = match refused.map_or_else(|| self.batch.commit(&self.store), Err) {
            Ok(ticket) => ticket,
            Err(error) => {
                self.roll_back();
                return Err(error);
            }
        };
        done.bytes = self.batch.bytes();
        self.batch.ops.clear();
        self.epoch = self.batch.epoch;
        self.batch.epoch += 1;
        let epoch = self.epoch;
        // What is deferred, or in memory, is acknowledged at once.
        done.epoch = if ticket.is_done() { 0 } else { epoch };
        let in_memory = ticket.is_in_memory();
        done.keys = self.touched.len();
        self.changed.clear();
        for (id, was_there) in self.touched.drain(..) {
            let slot = self.cache.get_mut(id);
            slot.is_touched = false;
            slot.acked_at = done.epoch;
            slot.changed_at = if in_memory { 0 } else { epoch };
            let is_there = slot.value.is_there();
            if in_memory {
                slot.settle(u64::MAX);
            } else {
                self.unsettled.push_back((epoch, id));
            }
            self.changed.push(id);
            if is_there != was_there
                && let Some(count) = self.counts.get_mut(names::database(&slot.key))
            {
                *count += if is_there { 1 } else { -1 };
            }
        }
        if in_memory {
            self.durable_up_to_without_tickets();
        } else {
            match self.tickets.back_mut() {
                Some((last, with)) if with.comes_with(&ticket) => {
                    *last = epoch;
                    // What is deferred is told at once, what is not must not be told with it.
                    if with.is_done() {
                        self.unheard.push(ticket.clone());
                        *with = ticket;
                    }
                }
                _ => {
                    self.unheard.push(ticket.clone());
                    self.tickets.push_back((epoch, ticket));
                }
            }
        }
        Ok(done)
    }

    /// The plain logs of the keys that the last commit changed.
    pub fn changed(&self) -> impl Iterator<Item = &[u8]> {
        self.changed.iter().map(|id| &self.cache.get(*id).key[..])
    }

    fn durable_up_to_without_tickets(&mut self) {
        if self.tickets.is_empty() {
            (self.acknowledged, self.durable) = (self.epoch, self.epoch);
        }
    }

    /// Undoes what was done since the last commit.
    pub fn roll_back(&mut self) {
        self.batch.ops.clear();
        if self.touched.is_empty() {
            return;
        }
        // The store shows durable entries only, and the keys are to be read from it again. Where it
        // has stopped, nothing becomes durable any more, and what it shows is all there is.
        if let Err(error) = self.store.flush() {
            tracing::warn!(%error, "the server reverts a refused commit, but the store cannot write");
        }
        for (id, _) in std::mem::take(&mut self.touched) {
            let key = self.cache.get(id).key.clone();
            self.counts.remove(names::database(&key));
            self.cache.remove(id);
            // It expires as it did; nobody may ask for it until then.
            if let Ok(Some((head, _))) = load::read_head(&self.store, &key) {
                self.note_deadline((head.expire > 0).then_some(head.expire), &key);
            }
        }
    }

    /// Nothing was done to logs, so that keys that were touched are as they were.
    fn forget_untouched(&mut self) {
        for (id, _) in std::mem::take(&mut self.touched) {
            self.cache.get_mut(id).is_touched = false;
        }
    }

    /// Tickets of writes that nobody has listened to yet.
    pub fn take_unheard(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.unheard)
    }

    /// Takes note of what is acknowledged and durable by now.
    pub fn note_durable(&mut self) {
        while let Some((epoch, ticket)) = self.tickets.front() {
            if !ticket.is_durable() {
                break;
            }
            self.durable = *epoch;
            self.tickets.pop_front();
        }
        self.acknowledged = self.acknowledged.max(self.durable);
        for (epoch, ticket) in &self.tickets {
            if !ticket.is_done() {
                break;
            }
            self.acknowledged = self.acknowledged.max(*epoch);
        }
        self.durable_up_to_without_tickets();
        while let Some((epoch, id)) = self.unsettled.front().copied() {
            if epoch > self.durable {
                break;
            }
            self.unsettled.pop_front();
            let durable = self.durable;
            if let Some(slot) = self.cache.find_by_id(id) {
                slot.settle(durable);
            }
        }
    }

    /// Nothing becomes durable any more: keys are what the store shows from now on.
    pub fn note_stopped(&mut self) {
        self.is_stopped = true;
        self.note_durable();
        self.roll_back();
        for (_, id) in std::mem::take(&mut self.unsettled) {
            if self.cache.find_by_id(id).is_some() {
                self.cache.remove(id);
            }
        }
        self.tickets.clear();
        self.counts.clear();
        (self.acknowledged, self.durable) = (self.epoch, self.epoch);
    }

    /// Lets go of what was looked at longest ago, as far as memory is short. Keys of the command at
    /// hand stay where they are until then.
    pub fn trim_cache(&mut self) {
        self.cache.trim(self.durable);
    }

    /// Lets go of what nobody asked for since the last call.
    pub fn age_cache(&mut self) {
        self.cache.age(self.durable);
    }

    fn slot(&self, id: SlotId) -> &Slot {
        self.cache.get(id)
    }
}
