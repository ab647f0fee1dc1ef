//! The cache: the documents that are in memory, within a budget.
//!
//! A slot is the place of one document. A thread that uses a document locks its slot: patches of
//! one document run one after the other, and patches of different documents run in parallel. A slot
//! leaves the cache only while nobody has it, and while all that it wrote is acknowledged. So
//! there is one slot for a document at any time, and a document that is read from the store
//! again lacks nothing. The store makes deferred writes durable before it shows them, and a slot
//! keeps the last one until it is durable, so that its readers do the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brooklet::Ticket;

use crate::head::Head;
use crate::model::Model;

/// Number of slots in use that an eviction passes over before it gives up.
const BUSY: usize = 16;

/// Bytes that a slot takes besides the document, about.
const SLOT: usize = 256;

/// A document in memory.
pub(crate) struct Open<M: Model> {
    pub head: Head,
    /// The state, at the version of the head; `None` if no call needed it.
    pub state: Option<Arc<M::State>>,
}

/// The content of a slot.
pub(crate) struct Slot<M: Model> {
    /// The document; `None` if it has to be read from the store.
    pub open: Option<Open<M>>,
    /// The last write of the document, until readers may see it: until it is acknowledged and
    /// durable. A deferred write is acknowledged before it is durable.
    pub last: Option<Ticket>,
}

/// A slot that others may have, too.
pub(crate) struct SharedSlot<M: Model>(Mutex<Slot<M>>);

impl<M: Model> SharedSlot<M> {
    pub fn lock(&self) -> MutexGuard<'_, Slot<M>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.last.take_if(|last| is_shown(last) && last.wait().is_ok());
        slot
    }
}

/// Returns whether readers may see a write. Does not wait.
fn is_shown(last: &Ticket) -> bool {
    (last.is_durable() || last.is_in_memory()) && last.is_done()
}

struct Held<M: Model> {
    slot: Arc<SharedSlot<M>>,
    used: u64,
    bytes: usize,
}

struct Slots<M: Model> {
    by_name: BTreeMap<Arc<[u8]>, Held<M>>,
    /// The names by their last use.
    by_use: BTreeMap<u64, Arc<[u8]>>,
    uses: u64,
    bytes: usize,
}

pub(crate) struct Cache<M: Model> {
    slots: Mutex<Slots<M>>,
    budget: usize,
}

impl<M: Model> Cache<M> {
    pub fn new(budget: usize) -> Self {
        let slots = Slots { by_name: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0, bytes: 0 };
        Self { slots: Mutex::new(slots), budget }
    }

    fn lock(&self) -> MutexGuard<'_, Slots<M>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slot of a document.
    pub fn slot(&self, name: &[u8]) -> Arc<SharedSlot<M>> {
        let mut slots = self.lock();
        let Slots { by_name, by_use, uses, .. } = &mut *slots;
        *uses += 1;
        if let Some(held) = by_name.get_mut(name) {
            if let Some(name) = by_use.remove(&held.used) {
                by_use.insert(*uses, name);
            }
            held.used = *uses;
            return held.slot.clone();
        }
        let name: Arc<[u8]> = name.into();
        let slot = Arc::new(SharedSlot(Mutex::new(Slot { open: None, last: None })));
        by_use.insert(*uses, name.clone());
        by_name.insert(name, Held { slot: slot.clone(), used: *uses, bytes: 0 });
        slot
    }

    /// Returns the slot of a document that is in memory.
    pub fn find(&self, name: &[u8]) -> Option<Arc<SharedSlot<M>>> {
        self.lock().by_name.get(name).map(|held| held.slot.clone())
    }

    /// Notes the size of a document after a use, and drops documents until the rest is within the
    /// budget. The caller no longer has the slot.
    pub fn used(&self, name: &[u8], bytes: usize) {
        // Freed behind the lock: a large state takes long.
        let mut dropped = Vec::new();
        let mut slots = self.lock();
        let Slots { by_name, bytes: all, .. } = &mut *slots;
        let Some(held) = by_name.get_mut(name) else { return };
        let bytes = if bytes == 0 { 0 } else { bytes + name.len() };
        *all = *all - held.bytes + bytes;
        held.bytes = bytes;
        if bytes == 0 {
            dropped.extend(slots.evict(name));
        }
        slots.shrink(self.budget, &mut dropped);
    }

    /// Returns whether the state of a document is in memory, or its slot is in use.
    pub fn has_state(&self, name: &[u8]) -> bool {
        let slots = self.lock();
        let Some(held) = slots.by_name.get(name) else { return false };
        let slot = held.slot.0.try_lock();
        slot.map_or(true, |slot| slot.open.as_ref().is_some_and(|open| open.state.is_some()))
    }

    /// Returns whether a call has a document in use, or readers may not see its last write yet.
    pub fn is_busy(&self, name: &[u8]) -> bool {
        let slots = self.lock();
        let Some(held) = slots.by_name.get(name) else { return false };
        let slot = held.slot.0.try_lock();
        slot.map_or(true, |slot| slot.last.as_ref().is_some_and(|last| !is_shown(last)))
    }

    /// Returns the number of documents, how many of them have a state, and the bytes of all.
    pub fn totals(&self) -> (usize, usize, usize) {
        let slots = self.lock();
        let has_state = |held: &&Held<M>| {
            let slot = held.slot.0.try_lock();
            slot.is_ok_and(|slot| slot.open.as_ref().is_some_and(|open| open.state.is_some()))
        };
        let states = slots.by_name.values().filter(has_state).count();
        (slots.by_name.len(), states, slots.bytes)
    }
}

impl<M: Model> Slots<M> {
    /// Moves documents to `dropped` until the rest is within the budget.
    fn shrink(&mut self, budget: usize, dropped: &mut Vec<Held<M>>) {
        let mut after = 0;
        let mut busy = 0;
        while self.bytes > budget && busy < BUSY {
            let Some((used, name)) = self.by_use.range(after..).next() else { return };
            (after, busy) = (used + 1, busy + 1);
            let name = name.clone();
            if let Some(held) = self.evict(&name) {
                dropped.push(held);
                busy -= 1;
            }
        }
    }

    /// Takes out a slot, if nobody has it and all its writes are acknowledged.
    fn evict(&mut self, name: &[u8]) -> Option<Held<M>> {
        let held = self.by_name.get(name)?;
        // Slots are handed out under the lock of the cache only.
        if Arc::strong_count(&held.slot) > 1 || held.slot.lock().is_awaited() {
            return None;
        }
        let held = self.by_name.remove(name)?;
        self.by_use.remove(&held.used);
        self.bytes -= held.bytes;
        Some(held)
    }
}

impl<M: Model> Slot<M> {
    /// Waits until the last write is acknowledged, so that a read of the store has it.
    pub fn settle(&mut self) -> Result<(), brooklet::Error> {
        let Some(last) = &self.last else { return Ok(()) };
        let ended = last.wait();
        self.forget_ended();
        ended
    }

    /// Forgets the last write, if it has ended. A write goes on after a wait that was refused, as
    /// in a waker.
    pub fn forget_ended(&mut self) {
        self.last.take_if(|last| last.has_ended());
    }

    /// Returns whether the last write is not acknowledged yet.
    fn is_awaited(&self) -> bool {
        self.last.as_ref().is_some_and(|last| !last.is_done())
    }

    /// Returns the bytes of memory that the document takes, about; 0 if the slot can go.
    pub fn size(&self, state_size: impl FnOnce(&M::State) -> usize) -> usize {
        match &self.open {
            Some(open) => SLOT + open.head.size() + open.state.as_deref().map_or(0, state_size),
            None if self.is_awaited() => SLOT,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use brooklet::Bytes;

    use super::*;
    use crate::format::{Meta, SnapshotEntry};
    use crate::refusal::Refusal;

    /// A state that calls a function when it is freed.
    #[derive(Clone)]
    struct Large(Arc<dyn Fn() + Send + Sync>);

    impl Drop for Large {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    struct OfLarge;

    impl Model for OfLarge {
        type State = Large;
        type Change = ();

        fn name(&self) -> &str {
            "large"
        }

        fn version(&self) -> u32 {
            1
        }

        fn snapshot(&self, _: &Large) -> Result<Vec<u8>, Refusal> {
            Ok(Vec::new())
        }

        fn load(&self, _: u32, _: &Bytes) -> Result<Large, Refusal> {
            unreachable!("nothing is loaded")
        }

        fn encode(&self, (): &()) -> Result<Vec<u8>, Refusal> {
            Ok(Vec::new())
        }

        fn decode(&self, _: &Bytes) -> Result<(), Refusal> {
            Ok(())
        }

        fn apply(&self, _: &mut Large, (): &()) -> Result<Option<()>, Refusal> {
            Ok(None)
        }

        fn size(&self, _: &Large) -> usize {
            1000
        }
    }

    fn head() -> Head {
        let meta = Meta { version: 1, time_ms: 0, author: Bytes::new(), request: None };
        let snapshot = SnapshotEntry {
            meta,
            is_creation: true,
            created: 1,
            model: Bytes::new(),
            model_version: 1,
            history: 0,
            marks: Vec::new(),
            ids: Vec::new(),
            state: Bytes::new(),
        };
        Head::new(&snapshot, 0, 0)
    }

    /// In an earlier state, all patches waited while the memory of a large document was freed.
    #[test]
    fn the_cache_is_free_for_others_while_a_state_is_freed() {
        let cache = Arc::new(Cache::<OfLarge>::new(1500));
        let (sender, freed) = channel();
        for name in [b"a", b"b"] {
            let slot = cache.slot(name);
            let (of, sender) = (Arc::downgrade(&cache), sender.clone());
            let report = move || {
                let is_free = of.upgrade().is_some_and(|cache| cache.slots.try_lock().is_ok());
                _ = sender.send(is_free);
            };
            let state = Arc::new(Large(Arc::new(report)));
            slot.lock().open = Some(Open { head: head(), state: Some(state) });
            drop(slot);
            cache.used(name, 1000);
        }
        assert_eq!(freed.try_recv(), Ok(true));
        assert_eq!(cache.totals().0, 1);
    }
}
