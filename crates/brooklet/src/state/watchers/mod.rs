//! The readers that wait for changes of logs: of one log (a tail), or of all logs whose keys start
//! with a prefix (a watch).
//!
//! Each waiting reader has a [`Watcher`]. A commit that becomes visible sets *marks* in the
//! watchers of its logs, and takes the thread or task out that waits there. The caller wakes these
//! waiters once it has released all locks.
//!
//! Marks are set under the lock under which the commit becomes visible: the lock of the state, or
//! of a memory space. So a reader that first takes a view of a log, and then its marks, has the
//! marks of every change that the view shows. Locks are taken in this order: state or memory space,
//! registry, watcher. No code of users runs under them.

pub mod marks;
mod registry;

use std::sync::Arc;
use std::task::Waker;

use brooklet_io::seeded::bug;
use brooklet_wal::Waiters;

use crate::memtable::{Memtable, Pending};
use crate::model::{Bounds, Effect};
use crate::state::spaces::TABLE;
use crate::state::watchers::marks::{LogMarks, Marks, PrefixMarks};
use crate::state::watchers::registry::Registry;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::thread::Thread;
use crate::sync::{Mutex, MutexGuard, held};

/// A thread that parks, or a task.
pub(crate) enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
    fn join(self, waiters: &mut Waiters) {
        match self {
            Self::Thread(thread) => waiters.threads.push(thread),
            Self::Task(waker) => waiters.tasks.push(waker),
        }
    }
}

/// The state of a reader after it asked to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listening {
    /// The next mark wakes the reader.
    Waits,
    /// A mark was set: the reader looks first.
    Marked,
    /// The store was closed or has stopped: nothing more happens.
    Stopped,
}

/// The marks of one reader, and the reader while it waits.
pub(crate) struct Watcher<M> {
    slot: Mutex<(M, Option<Waiter>)>,
    /// The watcher's place among the watchers of its key; changes under the registry's lock.
    place: AtomicUsize,
}

impl<M: Marks> Watcher<M> {
    fn new(marks: M) -> Self {
        Self { slot: Mutex::new((marks, None)), place: AtomicUsize::new(0) }
    }

    /// Takes the marks since the last call.
    pub fn take(&self) -> M {
        held(&self.slot).0.take()
    }

    /// Changes the marks, for the reader itself.
    pub fn change(&self, how: impl FnOnce(&mut M)) {
        how(&mut held(&self.slot).0);
    }

    /// Sets marks. Returns the waiter, if the marks are to wake it.
    fn mark(&self, set: impl FnOnce(&mut M)) -> Option<Waiter> {
        let mut slot = held(&self.slot);
        set(&mut slot.0);
        if slot.0.is_marked() { slot.1.take() } else { None }
    }

    /// Registers a waiter, unless the reader has to look first.
    pub fn listen(&self, watchers: &Watchers, waiter: Waiter) -> Listening {
        let mut slot = held(&self.slot);
        let listening = if slot.0.is_marked() {
            Listening::Marked
        } else if watchers.stopped.load(Ordering::Acquire) {
            Listening::Stopped
        } else {
            Listening::Waits
        };
        let waits = listening == Listening::Waits;
        let previous = if waits { slot.1.replace(waiter) } else { slot.1.take() };
        drop(slot);
        // Dropping a waker runs code of the user.
        drop(previous);
        listening
    }

    /// Withdraws the waiter.
    pub fn leave(&self) {
        let waiter = held(&self.slot).1.take();
        drop(waiter);
    }
}

/// All watchers of a store.
pub(crate) struct Watchers {
    registry: Mutex<Registry>,
    /// Number of watchers. Most stores have none, and skip the look-ups.
    count: AtomicUsize,
    stopped: AtomicBool,
}

impl Watchers {
    /// `seed` makes the positions of keys in the table unpredictable.
    pub fn new(seed: u64) -> Arc<Self> {
        let (count, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { registry: Mutex::new(Registry::new(seed)), count, stopped })
    }

    /// Adds a reader of one log, or of all logs whose keys start with `key`: as its marks say.
    pub fn add<M: Marks>(&self, key: &[u8], marks: M) -> Arc<Watcher<M>> {
        let watcher = Arc::new(Watcher::new(marks));
        let mut registry = held(&self.registry);
        M::watchers(&mut registry).add(key, watcher.clone());
        self.count.fetch_add(1, Ordering::Release);
        watcher
    }

    pub fn remove<M: Marks>(&self, key: &[u8], watcher: &Arc<Watcher<M>>) {
        let mut registry = held(&self.registry);
        M::watchers(&mut registry).remove(key, watcher);
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// Returns the means to set marks; `None` if nobody watches. The caller holds the lock under
    /// which the changes become visible.
    pub fn marking<'a>(&'a self, waiters: &'a mut Waiters) -> Option<Marking<'a>> {
        if self.count.load(Ordering::Acquire) == 0 || bug("watchers-are-not-told") {
            return None;
        }
        Some(Marking { registry: held(&self.registry), waiters })
    }

    /// Marks every log as changed in an unknown way, because logs entered the store beside its
    /// ring.
    pub fn mark_all(&self, waiters: &mut Waiters) {
        self.each(
            waiters,
            |logs| logs.mark(LogMarks::mark_unknown),
            |prefix| prefix.mark(PrefixMarks::mark_unknown),
        );
    }

    /// Ends all waiting for good, because the store was closed or has stopped.
    pub fn stop(&self, waiters: &mut Waiters) {
        self.stopped.store(true, Ordering::Release);
        self.each(waiters, |log| held(&log.slot).1.take(), |prefix| held(&prefix.slot).1.take());
    }

    fn each(
        &self,
        waiters: &mut Waiters,
        log: impl Fn(&Watcher<LogMarks>) -> Option<Waiter>,
        prefix: impl Fn(&Watcher<PrefixMarks>) -> Option<Waiter>,
    ) {
        let registry = held(&self.registry);
        let logs = registry.logs.all().filter_map(|watcher| log(watcher));
        let prefixes = registry.prefixes.all().filter_map(|watcher| prefix(watcher));
        logs.chain(prefixes).for_each(|waiter| waiter.join(waiters));
    }
}

impl Memtable {
    /// Marks the effects of a visible block.
    pub fn mark(&self, effects: &[Pending], marking: &mut Marking<'_>) {
        for pending in effects {
            let log = self.log(pending.slot);
            let bounds = log.piece().and_then(|piece| piece.bounds);
            if *log.key != *TABLE {
                marking.mark(&log.key, pending.effect, bounds);
                if let Some(trim) = pending.trim() {
                    marking.mark(&log.key, trim, bounds);
                }
            }
        }
    }
}

/// Sets marks, under the registry's lock.
pub(crate) struct Marking<'a> {
    registry: MutexGuard<'a, Registry>,
    waiters: &'a mut Waiters,
}

impl Marking<'_> {
    /// Marks an effect on a log, whose visible bounds are now `bounds`.
    pub fn mark(&mut self, key: &[u8], effect: Effect, bounds: Option<Bounds>) {
        if bug("tails-wake-for-other-logs") {
            let waiters = self.registry.logs.all().filter_map(|watcher| held(&watcher.slot).1.take());
            waiters.for_each(|waiter| waiter.join(self.waiters));
        }
        for watcher in self.registry.logs.get(key) {
            if let Some(waiter) = watcher.mark(|marks| marks.mark(effect)) {
                waiter.join(self.waiters);
            }
        }
        if !PrefixMarks::counts(effect) {
            return;
        }
        for len in self.registry.prefixes.lens().take_while(|len| *len <= key.len()) {
            for watcher in self.registry.prefixes.get(&key[..len]) {
                if let Some(waiter) = watcher.mark(|marks| marks.mark(key, bounds)) {
                    waiter.join(self.waiters);
                }
            }
        }
    }
}
