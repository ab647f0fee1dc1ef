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
//! 3. No other writer writes to the logs of these spaces while they are served. A replica writes
//!    nothing, and drops the keys of each commit that it is shown ([`Keyspace::note_shown`]).

mod batch;
mod body;
mod cache;
mod change;
mod clear;
mod copy;
mod count;
mod discarded;
mod draft;
mod finder;
mod follow;
mod handover;
mod hash;
pub mod head;
mod list;
mod load;
mod loading;
mod named;
pub mod names;
mod pending;
mod scan;
mod shown;
pub mod stream;
mod trace;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use brooklet::{Error, Store, Ticket};
use bytes::Bytes;

use batch::Batch;
pub use cache::SlotId;
use cache::{Cache, Slot};
use clear::Clearings;
pub use copy::Original;
use count::Count;
pub use draft::Draft;
use draft::Merging;
pub use finder::Finder;
pub use follow::Follower;
use follow::Followers;
pub use handover::{Handed, Task, TaskEnd};
pub use hash::NewFields;
pub use list::{End, List, check_rewritten, collect};
pub use loading::Loading;
use names::LogKey;
pub use scan::deadlines;
pub use stream::Stream;
use trace::Trace;
pub use trace::Traced;

use super::notices::{Notice, Notices};
use super::stats::Lookups;

/// A key's value.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// The key does not exist.
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
    /// A value that cannot be read, for a command that deletes or replaces it: its logs.
    Damaged(Vec<LogKey>),
}

impl Value {
    /// Returns whether the key exists.
    pub fn is_there(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// Returns a value of the same logs without their entries, which can only be deleted.
    fn emptied(&self) -> Self {
        match self {
            Self::Absent => Self::Absent,
            Self::Damaged(logs) => Self::Damaged(logs.clone()),
            Self::List(list) => Self::List(list.emptied()),
            Self::String(text) => Self::String(text.clone()),
            Self::Hash(_) => Self::Hash(BTreeMap::new()),
            Self::Stream(stream) => {
                Self::Stream(Box::new(Stream { body: stream.body.emptied(), kept: Default::default() }))
            }
        }
    }

    /// Returns whether memory has all of the value.
    fn is_in_memory(&self) -> bool {
        matches!(self, Self::Absent | Self::String(_) | Self::Hash(_))
    }

    /// Returns the name of the type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Absent | Self::Damaged(_) => "none",
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
    /// Operations of the current command, or transaction, so far.
    batch: Batch,
    /// Keys that it has changed, and whether they existed before.
    touched: Vec<(SlotId, bool)>,
    /// Keys that the last commit changed, each with whether it changed more than groups, and
    /// whether the key has lapsed.
    changed: Vec<(SlotId, bool, bool)>,
    /// Last epoch on which the reply of the current command depends.
    seen: u64,
    epoch: u64,
    acknowledged: u64,
    durable: u64,
    /// The last epoch on stable media, once the store has stopped: later epochs are settled, too,
    /// because nothing of them is left.
    durable_at_stop: Option<u64>,
    /// Commits that are not durable yet; commits of one write share an entry.
    tickets: VecDeque<(u64, Ticket)>,
    unheard: Vec<Ticket>,
    /// The last epoch that is kept elsewhere, and the commits that are not yet; `None` if the store
    /// has no copy elsewhere.
    copy: Option<(u64, VecDeque<(u64, Ticket)>)>,
    /// Keys with changes that are not durable yet.
    unsettled: VecDeque<(u64, SlotId)>,
    /// Expiries of keys. Some of these keys may be deleted, or have another expiry now.
    deadlines: BTreeSet<(u64, LogKey)>,
    /// Number of these in each database.
    expiring: BTreeMap<Vec<u8>, u64>,
    /// What the current command did, if somebody is to be told.
    trace: Option<Box<Trace>>,
    /// Databases whose keys are being deleted.
    clearings: Clearings,
    /// Commands in portions that must know of changed keys.
    followers: Followers,
    /// Numbers of keys of the databases.
    counts: BTreeMap<Vec<u8>, Count>,
    /// Databases that have many keys, and were not counted.
    large: BTreeSet<Vec<u8>>,
    /// The draft that the current command runs on.
    draft: Option<Box<Draft>>,
    /// The draft that the next commit is of.
    submitted: Option<Box<Draft>>,
    /// Whether the store is being handed a draft: no other commit is accepted meanwhile.
    is_handing: bool,
    /// Whether the current command replaces the value of the key that it opens.
    is_replaced: bool,
    /// The committed draft whose keys are being moved to the cache.
    merging: Option<Merging>,
    scratch: Vec<u8>,
    /// Longest head, in bytes, that one commit certainly takes as a whole.
    longest_head: usize,
    /// Whether the current command may stop at a long hash that is not in memory.
    may_stop: bool,
    /// The hash that the current command has stopped at.
    loading: Option<Box<Loading>>,
    /// Keys that were looked for by name since the engine took these numbers.
    pub lookups: Lookups,
    /// Number of keys that expired since the engine took this number.
    pub expired: u64,
    /// Current time, in milliseconds since the Unix epoch.
    pub now: u64,
    /// Whether the store accepts no more writes.
    is_stopped: bool,
    /// Whether another server writes the keys: they come by [`note_shown`](Self::note_shown).
    is_replica: bool,
    /// Events for the log.
    pub notices: Arc<Notices>,
}

/// A key that a commit has changed.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'a> {
    /// Plain log of the key.
    pub key: &'a [u8],
    /// Whether more than the groups of a stream has changed.
    pub is_modified: bool,
    /// Whether the client found the key expired, or deleted by an earlier command: no client has
    /// changed it then.
    pub is_lapsed: bool,
}

/// The result of a commit.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    /// Epoch that replies must wait for; 0: none.
    pub epoch: u64,
    /// Number of changed keys; [`Keyspace::changed`] returns the keys.
    pub keys: usize,
    /// Size of the appended entries, in bytes.
    pub bytes: u64,
}

impl Keyspace {
    /// Creates the keys of a store, with `budget` bytes of memory for the recently used keys.
    pub fn new(store: Store, budget: usize, now: u64) -> Self {
        let has_copy = store.activity().mirror.is_some();
        let longest_head = store.info().map_or(usize::MAX, |info| (info.ring_size / 4) as usize);
        Self {
            store,
            copy: has_copy.then(Default::default),
            cache: Cache::new(budget),
            batch: Batch::of(1),
            touched: Vec::new(),
            changed: Vec::new(),
            seen: 0,
            epoch: 0,
            acknowledged: 0,
            durable: 0,
            durable_at_stop: None,
            tickets: VecDeque::new(),
            unheard: Vec::new(),
            unsettled: VecDeque::new(),
            deadlines: BTreeSet::new(),
            expiring: BTreeMap::new(),
            trace: None,
            clearings: Clearings::default(),
            followers: Followers::default(),
            counts: BTreeMap::new(),
            large: BTreeSet::new(),
            draft: None,
            submitted: None,
            is_handing: false,
            is_replaced: false,
            merging: None,
            scratch: Vec::new(),
            longest_head,
            may_stop: false,
            loading: None,
            lookups: Lookups::default(),
            expired: 0,
            now,
            is_stopped: false,
            is_replica: false,
            notices: Arc::default(),
        }
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the last acknowledged epoch.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the last epoch on stable media.
    pub fn durable(&self) -> u64 {
        self.durable_at_stop.unwrap_or(self.durable)
    }

    /// Returns whether the store has a copy elsewhere, such as in a bucket.
    pub fn has_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Returns the last epoch that is kept elsewhere; 0 without a copy.
    pub fn kept(&self) -> u64 {
        self.copy.as_ref().map_or(0, |(kept, _)| *kept)
    }

    /// Returns the place in the log up to which the copy elsewhere has all commits; 0 without one.
    pub fn kept_place(&self) -> u64 {
        if !self.has_copy() {
            return 0;
        }
        self.store.activity().mirror.map_or(0, |mirror| mirror.kept)
    }

    /// Returns the last epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of keys in memory, and their size in bytes.
    pub fn cached(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.bytes())
    }

    /// Returns the epoch that a reply must wait for: the last epoch of all keys that were read
    /// since the last call.
    pub fn take_seen(&mut self) -> u64 {
        std::mem::take(&mut self.seen)
    }

    /// Makes the current reply wait for the changes of a key.
    fn see(&mut self, id: SlotId) {
        let acked_at = self.cache.get(id).acked_at;
        if acked_at > self.acknowledged {
            self.seen = self.seen.max(acked_at);
        }
    }

    /// Makes the current reply wait for all changes.
    pub fn see_all(&mut self) {
        if self.epoch > self.acknowledged {
            self.seen = self.epoch;
        }
    }

    /// Returns whether changes exist that are not committed.
    pub fn is_changed(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Returns the budget for the keys in memory, in bytes.
    pub fn cache_budget(&self) -> usize {
        self.cache.budget()
    }

    /// Returns the number of changes since the last commit.
    pub fn changes(&self) -> usize {
        self.batch.count()
    }

    /// Returns the size of the entries that are not committed, in bytes.
    pub fn pending_bytes(&self) -> u64 {
        self.batch.size
    }

    /// Commits the changes since the last call as one commit.
    ///
    /// # Errors
    /// The error of the store; no change took effect.
    pub fn commit(&mut self) -> Result<Committed, Error> {
        let submitted = self.submitted.take();
        if self.is_handing && (submitted.is_some() || !self.batch.is_empty()) {
            debug_assert!(false, "a commit while the store is handed another");
            self.roll_back();
            return Err(Error::Busy { why: "the store takes a long commit".into() });
        }
        if self.batch.is_empty() {
            self.forget_untouched();
            self.note_cleared();
            return submitted.map_or_else(|| Ok(Committed::default()), |draft| self.commit_draft(*draft));
        }
        if submitted.is_some() {
            // Neither of the two may take effect without the other.
            debug_assert!(false, "changes besides a draft");
            self.roll_back();
            return Err(Error::Busy { why: "a long command changed keys in the same commit".into() });
        }
        // The keys are then not in the state on which the store would apply this commit: return
        // only the reason of the stop.
        let refused = if self.is_stopped { self.store.flush().err() } else { None };
        let ticket = match refused.map_or_else(|| self.batch.commit(&self.store), Err) {
            Ok(ticket) => ticket,
            Err(error) => {
                self.roll_back();
                return Err(error);
            }
        };
        let done = self.note_committed(&ticket, self.touched.len(), self.batch.size);
        self.batch.clear();
        let (epoch, in_memory) = (self.epoch, ticket.is_in_memory());
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
            let is_modified = std::mem::take(&mut slot.is_modified);
            self.changed.push((id, is_modified, std::mem::take(&mut slot.is_lapsed)));
            self.followers.note(&slot.key);
            if is_there != was_there {
                let change = if is_there { 1 } else { -1 };
                Count::of(&mut self.counts, names::database(&slot.key)).change(change);
            }
        }
        self.note_cleared();
        self.note_ticket(ticket);
        Ok(done)
    }

    /// Counts a commit of so many keys and bytes.
    fn note_committed(&mut self, ticket: &Ticket, keys: usize, bytes: u64) -> Committed {
        self.epoch = self.batch.epoch;
        self.batch.epoch += 1;
        self.changed.clear();
        // Deferred commits, and commits in memory, are acknowledged immediately.
        Committed { epoch: if ticket.is_done() { 0 } else { self.epoch }, keys, bytes }
    }

    /// Records the ticket of the last epoch.
    fn note_ticket(&mut self, ticket: Ticket) {
        if ticket.is_in_memory() {
            return self.durable_up_to_without_tickets();
        }
        if let Some((_, tickets)) = &mut self.copy {
            match tickets.back_mut() {
                Some((last, with)) if with.comes_with(&ticket) => *last = self.epoch,
                _ => tickets.push_back((self.epoch, ticket.clone())),
            }
        }
        match self.tickets.back_mut() {
            Some((last, with)) if with.comes_with(&ticket) => {
                *last = self.epoch;
                // Deferred commits are acknowledged immediately; other commits must not be
                // acknowledged with them.
                if with.is_done() {
                    self.unheard.push(ticket.clone());
                    *with = ticket;
                }
            }
            _ => {
                self.unheard.push(ticket.clone());
                self.tickets.push_back((self.epoch, ticket));
            }
        }
    }

    /// Returns the keys that the last commit changed.
    pub fn changed(&self) -> impl Iterator<Item = Changed<'_>> {
        let changed = self.changed.iter().map(|&(id, is_modified, is_lapsed)| Changed {
            key: &self.cache.get(id).key,
            is_modified,
            is_lapsed,
        });
        changed.chain(self.changed_by_draft())
    }

    fn durable_up_to_without_tickets(&mut self) {
        if self.tickets.is_empty() {
            (self.acknowledged, self.durable) = (self.epoch, self.epoch);
        }
    }

    /// Begins to record the keys that commits change, while the result exists.
    pub fn follow(&mut self) -> Follower {
        self.followers.add()
    }

    /// Undoes the changes since the last commit.
    pub fn roll_back(&mut self) {
        self.submitted = None;
        self.batch.clear();
        self.undo_cleared();
        self.take_trace();
        if self.touched.is_empty() {
            return;
        }
        // The store shows only durable entries, and the keys are read from it again. After a stop,
        // nothing becomes durable any more, and the store shows all that exists.
        if let Err(error) = self.store.flush() {
            let what = "the server reverts a refused commit, but the store cannot write";
            self.notices.push(Notice::Trouble { what, error: error.to_string() });
        }
        for (id, _) in std::mem::take(&mut self.touched) {
            let key = self.cache.get(id).key.clone();
            Count::of(&mut self.counts, names::database(&key)).forget();
            self.cache.remove(id);
            // The key keeps its old expiry, and may get no request until then.
            if let Ok(Some(head)) = load::read_head(&self.store, &key) {
                self.note_deadline((head.expire > 0).then_some(head.expire), &key);
            }
        }
    }

    /// Resets the touched keys: no log changed, so the keys are unchanged.
    fn forget_untouched(&mut self) {
        for (id, _) in std::mem::take(&mut self.touched) {
            let slot = self.cache.get_mut(id);
            (slot.is_touched, slot.is_modified, slot.is_lapsed) = (false, false, false);
        }
    }

    /// Takes the tickets of writes that no task listens to yet.
    pub fn take_unheard(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.unheard)
    }

    /// Records the epochs that are acknowledged and durable now.
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
        self.note_kept();
        while let Some((epoch, id)) = self.unsettled.front().copied() {
            if epoch > self.durable {
                break;
            }
            self.unsettled.pop_front();
            let durable = self.durable;
            if let Some(slot) = self.cache.find_by_id(id) {
                slot.settle(durable);
                if matches!(slot.value, Value::List(_)) {
                    self.cache.measure(id);
                }
            }
        }
    }

    /// Records the epochs that are kept elsewhere now. What is in memory only has no copy.
    fn note_kept(&mut self) {
        let Some((kept, tickets)) = &mut self.copy else { return };
        while let Some((epoch, ticket)) = tickets.front()
            && ticket.is_kept()
        {
            *kept = *epoch;
            tickets.pop_front();
        }
    }

    /// Records the stop of the store: keys are as the store shows them from now on.
    pub fn note_stopped(&mut self) {
        self.is_stopped = true;
        self.note_durable();
        self.durable_at_stop.get_or_insert(self.durable);
        // Keys of a commit that is not durable leave the cache below, and the others stay.
        self.merge_some(usize::MAX);
        self.roll_back();
        for (_, id) in std::mem::take(&mut self.unsettled) {
            if self.cache.find_by_id(id).is_some() {
                self.cache.remove(id);
            }
        }
        self.tickets.clear();
        self.counts.values_mut().for_each(Count::forget);
        (self.acknowledged, self.durable) = (self.epoch, self.epoch);
    }

    /// Removes keys between two keys of one command, if they take much more memory than the budget.
    /// Slots from before the call are no longer valid, except slots of changed keys.
    pub fn make_room(&mut self) {
        const EXCESS: usize = 16 << 20;
        // Beside a long commit, a command's keys were seen in memory, and must stay until its end:
        // the store may have new values of them.
        if self.is_handing {
            return;
        }
        if self.cache.bytes() > self.cache.budget().saturating_add(EXCESS) {
            self.trim_cache();
        }
    }

    /// Removes the least recently used keys if memory is short. The current command's keys stay
    /// until its end.
    pub fn trim_cache(&mut self) {
        self.cache.trim(self.durable);
    }

    /// Looks at up to `most` keys of a round, or begins the next round: removes keys that were
    /// unused for two rounds. Returns whether the round is over.
    pub fn age_cache(&mut self, most: usize) -> bool {
        self.cache.age(self.durable, most)
    }

    fn slot(&self, id: SlotId) -> &Slot {
        self.cache.get(id)
    }
}
