//! The maintenance thread: when maintenance works, and how fast.

use std::cell::Cell;
use std::time::Duration;

use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;
use brooklet_wal::Wal;

use crate::engine::Inner;
use crate::error::{Error, ErrorKind};
use crate::maintenance::Context;
use crate::maintenance::compaction::backlog;
use crate::maintenance::pace::{self, IDLE, Load};
use crate::state::StoreState;
use crate::sync::atomic::Ordering;
use crate::sync::held;

/// The shortest sleep of the maintenance thread while it waits for idleness.
const LEAST_NAP: Duration = Duration::from_millis(10);

/// The longest sleep while the thread waits for entries to become too old; the clock may be set
/// meanwhile.
const LONGEST_NAP: Duration = Duration::from_secs(60);

impl Inner {
    /// Returns the context of maintenance. It must be created before maintenance is locked, so that
    /// it outlives the lock.
    pub fn context(&self) -> Result<Context<'_>, Error> {
        let wal = self.wal()?;
        let (quiet, untold) = (self.quiet(wal), Cell::default());
        let (seed, has_thread) = (self.options.seed, self.options.threads);
        Ok(Context { state: &self.state.state, wal, seed, quiet, has_thread, untold })
    }

    /// Returns the time since the last commit.
    fn quiet(&self, wal: &Wal) -> Duration {
        let commits = wal.stats().records.wrapping_sub(self.own_commits.load(Ordering::Relaxed));
        held(&self.quiet).observe(self.options.clock.now(), commits)
    }

    /// Returns the time without a commit after which the memtable is checkpointed; `None` if the
    /// memtable is empty.
    fn patience(&self, wal: &Wal) -> Option<Duration> {
        let used = wal.stats().used;
        let state = self.state();
        let memory = (state.active.bytes() as u64, self.options.memory_budget as u64);
        state.active.is_changed().then(|| pace::patience([(used, self.ring.full), memory]))
    }

    /// Does a slice of maintenance. Returns `false` if there is nothing to do.
    pub fn maintain(&self) -> Result<bool, Error> {
        // To grow the ring, this thread may write blocks while it holds the lock of maintenance.
        let _hush = self.hush();
        let context = self.context()?;
        if held(&self.ages).pass(self.options.clock.now()) {
            self.table_cache.cache.age();
        }
        let Some(mut maintenance) = self.free_maintenance() else { return Ok(false) };
        if self.patience(context.wal).is_some_and(|patience| context.quiet >= patience) {
            self.wanted.store(true, Ordering::Relaxed);
        }
        self.told.store(false, Ordering::Relaxed);
        if self.grow_ring(&mut maintenance, &context)? {
            return Ok(true);
        }
        let wanted = self.wanted.load(Ordering::Relaxed);
        let checkpointing = maintenance.is_checkpointing();
        let begun = self.options.clock.now();
        // After a panic, the store has stopped, and maintenance does not continue its half-done
        // work.
        let worked = caught("maintenance", || maintenance.step(&context, wanted));
        let worked = worked.unwrap_or_else(|panic| Err(maintenance.stop_after(&context, panic)));
        if !matches!(worked, Ok(false)) {
            self.counters.slices.record(self.options.clock.now().saturating_sub(begun));
        }
        *held(&self.kept) = maintenance.kept();
        if wanted && (maintenance.is_checkpointing() || matches!(worked, Ok(false))) {
            self.wanted.store(false, Ordering::Relaxed);
        }
        // A stuck checkpoint that waits for merging may or may not make progress.
        if worked.is_err() || !maintenance.is_stuck() {
            let stalled = worked.as_ref().err().filter(|_| maintenance.is_checkpointing()).cloned();
            *held(&self.stalled) = stalled;
        }
        self.ration(context.wal, maintenance.progress());
        if checkpointing && !maintenance.is_checkpointing() {
            // The commits since then may suffice for the next checkpoint, and no later commit need
            // arrive to notice.
            self.weigh(&self.state(), context.wal.stats().used);
        }
        let idle = context.quiet >= IDLE;
        drop(maintenance);
        let sweeps = idle && (self.options.sweeps || bug("successor-sweeps"));
        if sweeps && matches!(worked, Ok(false)) { self.expire() } else { worked }
    }

    /// Lets maintenance make progress. If maintenance waits for the log, flushes all appended
    /// commits.
    pub fn get_on(&self) -> Result<(), Error> {
        if self.maintain()? { Ok(()) } else { self.settle() }
    }

    /// Writes the memtable to a run.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.flush()?;
        let target = self.state().generation();
        let done = |state: &StoreState| {
            state.oldest_generation() > target || state.frozen.is_none() && state.active.is_empty()
        };
        while !done(&self.state()) {
            self.wanted.store(true, Ordering::Relaxed);
            self.get_on()?;
        }
        while self.state().releasing > 0 && matches!(self.maintain(), Ok(true)) {}
        self.free_empty_blocks()?;
        // There may now be enough runs for a compaction.
        self.nudge();
        Ok(())
    }

    /// Frees the ring, if runs hold all of its records. A log with a mirror writes empty blocks
    /// while it is idle, and there is no memtable whose checkpoint would free these.
    fn free_empty_blocks(&self) -> Result<(), Error> {
        let context = self.context()?;
        if !self.ring.is_worth_freeing(context.wal.stats().used) || !self.state().is_settled() {
            return Ok(());
        }
        // The mirror may be about to report the last block.
        self.settle()?;
        match self.free_maintenance() {
            Some(mut maintenance) => maintenance.free_empty_blocks(&context),
            None => Ok(()),
        }
    }

    /// Sets how much memory and ring writers may use, and wakes writers that wait for more.
    fn ration(&self, wal: &Wal, done: Option<u64>) {
        let used = wal.stats().used;
        self.used.store(used, Ordering::Relaxed);
        let (memory, most) = {
            let state = self.state();
            (state.memory() as u64, state.most_memory(self.options.memory_budget) as u64)
        };
        // The last eighth of the ring is reserved for commits that free space.
        let sizes = [most, self.ring.limit() / 8 * 7];
        let limits = held(&self.ration).limits(done, [(memory, sizes[0]), (used, sizes[1])]);
        let mut more = false;
        for ((told, limit), size) in self.limits.iter().zip(limits).zip(sizes) {
            let before = told.load(Ordering::Relaxed);
            // A tiny increase wakes no writer. The threshold is so small that a writer waits only
            // some milliseconds for it.
            if limit < before || limit - before >= size / 256 {
                told.store(limit, Ordering::Relaxed);
                more |= limit > before;
            }
        }
        if more && self.held_back.swap(false, Ordering::Relaxed) {
            wal.wake();
        }
    }

    /// Returns whether writers have used up their ration for the current progress of the
    /// checkpoint.
    pub(super) fn is_beyond_ration(&self, memory: usize) -> bool {
        let uses = [memory as u64, self.used.load(Ordering::Relaxed)];
        let mut pairs = self.limits.iter().zip(uses);
        let beyond = pairs.any(|(limit, used)| used > limit.load(Ordering::Relaxed));
        if beyond {
            self.held_back.store(true, Ordering::Relaxed);
        }
        beyond
    }

    /// Requests a larger ring or a checkpoint when the ring is partly full, and a checkpoint when
    /// the memory is partly full. With `u64::MAX` bytes `used`, a checkpoint is needed in any case.
    pub(super) fn weigh(&self, state: &StoreState, used: u64) {
        let grows = used < u64::MAX && self.ring.should_grow(used) && self.ring.is_news();
        let full = used > self.ring.limit() / 2 || state.active.bytes() > self.memory_before_checkpoint();
        let wanted = full && state.frozen.is_none() && !self.wanted.swap(true, Ordering::Relaxed);
        let wanted = wanted || grows;
        let wanted = wanted || state.wants_room() && !self.told.swap(true, Ordering::Relaxed);
        // The state's lock orders this with the check of the maintenance thread before it sleeps.
        let woken = self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed);
        if wanted || woken {
            self.nudge();
        }
    }

    /// Runs the maintenance thread: steps at the pace that the load needs, and sleeps until there
    /// is work.
    pub(super) fn run_maintenance(&self) {
        while !self.closing.load(Ordering::Acquire) {
            let begun = self.options.clock.now();
            match self.maintain() {
                Ok(true) => {
                    let rest = pace::rest(self.options.clock.now().saturating_sub(begun), self.load());
                    if !rest.is_zero() {
                        self.maintenance_sleeper.sleep(Some(rest));
                    }
                }
                Ok(false) if self.maintenance().is_checkpointing() => {
                    // The frozen memtable's last block is being written. The flush pushes it,
                    // because no other thread may be waiting for it.
                    if self.settle().is_err() {
                        self.maintenance_sleeper.sleep(None);
                    }
                }
                Ok(false) => self.sleep(),
                Err(error) if error.kind() == ErrorKind::Stopped => self.maintenance_sleeper.sleep(None),
                Err(error) => {
                    tracing::warn!(%error, "a checkpoint or compaction failed; the store retries it later");
                    self.maintenance_sleeper.sleep(Some(Duration::from_millis(100)));
                }
            }
        }
    }

    /// Returns the load that determines the pace of maintenance.
    fn load(&self) -> Load {
        let Ok(wal) = self.wal() else { return Load::default() };
        let quiet = self.quiet(wal);
        let is_stuck = self.maintenance().is_stuck();
        let used = wal.stats().used;
        let state = self.state();
        // A checkpoint starts when either is half full. Writers are held back when the other half
        // is full, too, or earlier, when they have used up their ration.
        let memory = state.active.bytes() as u64 * 200 / (self.options.memory_budget as u64).max(1);
        let size = self.ring.limit();
        let ring = (used.saturating_sub(size / 2) * 200) / size;
        let [most_memory, most_ring] = [0, 1].map(|i: usize| self.limits[i].load(Ordering::Relaxed));
        let uses = [(state.memory() as u64, most_memory), (used, most_ring)];
        let rationed = held(&self.ration).used(uses);
        let fill =
            if state.frozen.is_some() || state.releasing > 0 { memory.max(ring).max(rationed) } else { 0 };
        let fill = if self.held_back.load(Ordering::Relaxed) { fill.max(100) } else { fill };
        let short_of_room = is_stuck || state.room.is_requested();
        Load { idle: quiet >= IDLE, short_of_room, fill, backlog: backlog(&state.runs) }
    }

    /// Sleeps until there may be work: after a wake-up, or after a time without commits.
    fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        let Nap { most, woken_by_commits } = self.nap();
        self.asleep.store(woken_by_commits, Ordering::Relaxed);
        self.maintenance_sleeper.sleep(most);
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Returns how long to sleep until idleness or the clock brings work; cached blocks age with
    /// the clock.
    fn nap(&self) -> Nap {
        let Ok(wal) = self.wal() else { return Nap { most: None, woken_by_commits: true } };
        let runs = self.state().runs.clone();
        let merge = {
            let maintenance = self.maintenance();
            // The order matters: a read that is not counted below wakes this thread.
            maintenance.await_reads(&runs);
            maintenance.due_after(&runs)
        };
        let patience = self.patience(wal).into_iter().chain(merge).min();
        let wait = patience.map(|patience| patience.saturating_sub(self.quiet(wal)).max(LEAST_NAP));
        // Appended commits that are not durable yet will become durable.
        let wait = wait.or_else(|| (!self.state().is_settled()).then_some(IDLE));
        let expire = held(&self.expiry).next(&runs).filter(|_| self.options.sweeps).map(|at| {
            let idle = IDLE.saturating_sub(self.quiet(wal)).max(LEAST_NAP);
            Duration::from_millis(at.saturating_sub(self.now())).clamp(idle, LONGEST_NAP)
        });
        let now = self.options.clock.now();
        let age = self.table_cache.is_to_age().then(|| held(&self.ages).left(now).max(LEAST_NAP));
        Nap { most: wait.into_iter().chain(expire).chain(age).min(), woken_by_commits: wait.is_none() }
    }
}

/// The sleep of the maintenance thread.
#[derive(Debug, PartialEq, Eq)]
struct Nap {
    /// The longest sleep; `None` to sleep until a wake-up.
    most: Option<Duration>,
    /// Whether the next commit wakes the thread, because that commit is the first event that brings
    /// work.
    woken_by_commits: bool,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brooklet_io::{ManualClock, MemVolume};

    use super::*;
    use crate::sync::atomic::{AtomicBool, AtomicU64};
    use crate::sync::{Sleeper, thread};
    use crate::{Options, Retention, Store};

    #[test]
    fn writers_get_a_ration_while_a_checkpoint_goes_on() {
        let options =
            Options::new().threads(false).ring_size(1 << 20).memory_budget(1 << 20).max_payload(64 << 10);
        let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        let (inner, wal) = (store.inner(), store.inner().wal().unwrap());
        let beyond = |memory: usize| inner.is_beyond_ration(memory << 10);
        assert!(!beyond(2000));
        inner.ration(wal, Some(0));
        assert!(!beyond(256) && beyond(257), "a quarter at once");
        inner.ration(wal, Some(4));
        assert!(beyond(257), "a step so small wakes nobody");
        inner.ration(wal, Some(500));
        assert!(!beyond(640) && beyond(641) && inner.held_back.load(Ordering::Relaxed));
        inner.used.store(600 << 10, Ordering::Relaxed);
        assert!(beyond(0), "the ring counts, too");
        inner.ration(wal, None);
        assert!(!beyond(2000) && inner.limits.iter().all(|limit| limit.load(Ordering::Relaxed) == u64::MAX));
    }

    /// Once, writers were held back until all logs were sorted, and maintenance worked faster only
    /// after that.
    #[test]
    fn a_ration_grows_from_the_beginning_and_the_keeper_hurries_before_it_is_used_up() {
        const BUDGET: usize = 8 << 20;
        let options = Options::new().threads(false).memory_budget(BUDGET).ring_size(64 << 20);
        let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        let inner = store.inner();
        let append = |logs: std::ops::Range<u32>| {
            let tickets: Vec<_> = logs.map(|i| store.append(i.to_le_bytes(), [7; 100]).unwrap()).collect();
            tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
        };
        append(0..12_000);
        inner.wanted.store(true, Ordering::Relaxed);
        let limit = || inner.limits[0].load(Ordering::Relaxed);
        while limit() == u64::MAX {
            assert!(inner.maintain().unwrap());
        }
        let at_first = limit();
        assert!(inner.load().fill < 10, "{:?}", inner.load());
        let mut next = 12_000;
        while (inner.state().memory() as u64) < at_first - 1000 {
            append(next..next + 100);
            next += 100;
        }
        assert!(inner.load().fill > 90, "{:?}", inner.load());
        assert!(inner.state().active.bytes() < BUDGET / 4, "though memory is far from full");
        let (mut last, mut grown) = (0, at_first);
        let progress = || inner.maintenance().progress();
        while let Some(done) = progress() {
            assert!(done >= last && done <= 1000, "{done} after {last}");
            last = done;
            // From here on, the run is written.
            if done < 1000 / 8 {
                grown = limit();
            }
            inner.maintain().unwrap();
        }
        assert!(grown > at_first, "{grown} while logs are brought into order, {at_first} before");
        assert!(last > 900, "{last}");
        assert_eq!(limit(), u64::MAX);
    }

    /// Once, a store with entries that will become too old slept for up to a minute, despite later
    /// commits.
    #[test]
    fn commits_wake_who_waits_for_entries_to_become_too_old() {
        for aged in [false, true] {
            let clock = Arc::new(ManualClock::default());
            let options = Options::new().threads(false).clock(clock.clone()).rng_seed(1);
            let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
            let kept = Retention::new().age(Duration::from_secs(3600));
            drop(aged.then(|| store.set_retention("log", kept).unwrap()));
            store.append("log", "entry").unwrap().wait().unwrap();
            store.checkpoint().unwrap();
            let nap = || {
                // Blocks that look-ups cached would also wake the thread.
                (0..9).for_each(|_| store.inner().table_cache.cache.age());
                store.inner().nap()
            };
            assert_eq!(nap(), Nap { most: aged.then_some(LONGEST_NAP), woken_by_commits: true });
            // The commit is not durable yet, and no thread makes it durable: the nap is short.
            let ticket = store.append("log", "entry").unwrap();
            assert_eq!(nap(), Nap { most: Some(IDLE), woken_by_commits: false });
            ticket.wait().unwrap();
            assert_eq!(nap(), Nap { most: Some(pace::LONG_IDLE), woken_by_commits: false });
        }
    }

    /// A checkpoint loses its memtable, so that an assertion fails in the middle of a slice.
    fn a_panic_of_the_keeper_stops_the_store() {
        let options = Options::new().threads(false);
        let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        store.append("log", "entry").unwrap().wait().unwrap();
        let inner = store.inner();
        inner.wanted.store(true, Ordering::Relaxed);
        assert!(inner.maintain().unwrap() && inner.maintenance().is_checkpointing());
        inner.state().frozen = None;
        let stopped = |error: Error| {
            let named =
                |why: &str| why.contains("maintenance panicked: a draining checkpoint has its memtable");
            assert!(matches!(&error, Error::Stopped { why } if named(why)), "{error}");
        };
        stopped(inner.maintain().unwrap_err());
        stopped(inner.maintain().unwrap_err());
        stopped(store.append("log", "entry").unwrap_err());
        stopped(store.checkpoint().unwrap_err());
        stopped(store.close().unwrap_err());
    }

    /// Once, the panic poisoned the lock of maintenance, and closing panicked.
    #[test]
    fn a_panic_in_the_midst_of_a_slice_is_told_to_all() {
        a_panic_of_the_keeper_stops_the_store();
    }

    #[cfg(feature = "seeded-bugs")]
    #[test]
    fn a_keeper_that_goes_on_after_a_panic_is_caught() {
        use brooklet_io::seeded::{met, plant};
        plant(Some("maintenance-goes-on-after-a-panic"));
        let passed = std::panic::catch_unwind(a_panic_of_the_keeper_stops_the_store).is_ok();
        let met = met();
        plant(None);
        assert!(met > 0 && !passed, "it was met {met} times, and goes unnoticed");
    }

    /// A thread of the caller panics while it holds the lock of maintenance.
    #[test]
    fn a_panic_under_the_keepers_lock_stops_the_store() {
        let options = Options::new().threads(false);
        let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        // Without this entry, the checkpoint would have nothing to do.
        store.append("log", "entry").unwrap().wait().unwrap();
        let inner = store.inner();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _keeper = inner.maintenance();
            panic!("a planned panic");
        }));
        assert!(panicked.is_err());
        let stopped = |error: Error| {
            let named = |why: &str| why.contains("a thread panicked while it held the lock of maintenance");
            assert!(matches!(&error, Error::Stopped { why } if named(why)), "{error}");
        };
        stopped(store.checkpoint().unwrap_err());
        stopped(store.append("log", "entry").unwrap_err());
        stopped(store.close().unwrap_err());
    }

    /// After recovery, memory exceeds its budget until the next checkpoint. Commits need not wait
    /// for that checkpoint.
    #[test]
    fn whoever_opens_a_store_need_not_wait_for_a_checkpoint() {
        const BUDGET: usize = 256 << 10;
        let volume = MemVolume::new(1);
        let options = Options::new().threads(false).ring_size(2 << 20).max_payload(64 << 10);
        let options = options.clock(Arc::new(ManualClock::default())).rng_seed(1);
        let fill = |store: &Store| drop(store.append("log", [7; 1000]).unwrap());
        let store = options.clone().memory_budget(1 << 20).create_on(Arc::new(volume.clone())).unwrap();
        (0..600).for_each(|_| fill(&store));
        store.flush().unwrap();
        store.abandon();
        let store = options.memory_budget(BUDGET).open_on(Arc::new(volume)).unwrap();
        let memory = || store.inner().state().memory();
        let checkpoints = || store.info().unwrap().maintenance.checkpoints;
        let found = memory();
        assert!(found > 2 * BUDGET);
        let mut most = 0;
        while checkpoints() == 0 {
            most = memory();
            fill(&store);
            store.flush().unwrap();
        }
        assert!((BUDGET / 4..BUDGET * 3 / 4).contains(&(most - found)), "{most} after {found}");
        while store.step().unwrap() {}
        assert_eq!(store.inner().state().most_memory(BUDGET), BUDGET);
    }

    /// The ring grows, for which the log writes all blocks. In an earlier state, their callbacks
    /// ran under the lock of maintenance: one that asked for a checkpoint never ended.
    #[test]
    fn no_callback_runs_under_the_lock_of_maintenance() {
        let options = Options::new().ring_size(4 << 20).with_first_ring(128 << 10).max_payload(9 << 10);
        let store: Store = options.threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let inner = store.inner();
        let size = || inner.maintenance().ring_sizes().0;
        let (first, called, locked) = (size(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let append = || {
            let (inner, called, locked) = (store.shared(), called.clone(), locked.clone());
            store.append("log", [7; 8_000]).unwrap().on_done(move |done| {
                done.unwrap();
                called.fetch_add(1, Ordering::Relaxed);
                locked.fetch_or(inner.maintenance.try_lock().is_err(), Ordering::Relaxed);
            });
        };
        while inner.wal().unwrap().stats().used <= first / 2 {
            append();
            store.flush().unwrap();
        }
        let before = called.load(Ordering::Relaxed);
        append();
        assert!(inner.maintain().unwrap());
        assert!(size() > first);
        assert_eq!(called.load(Ordering::Relaxed), before + 1);
        assert!(!locked.load(Ordering::Relaxed));
    }

    /// Once, an idle store that was only read kept all read blocks in memory forever.
    #[test]
    fn what_nobody_looks_up_any_more_leaves_memory_and_then_the_store_rests() {
        let clock = Arc::new(ManualClock::default());
        let options = Options::new().threads(false).clock(clock.clone()).rng_seed(1);
        let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        drop(store.append("log", "entry").unwrap());
        store.checkpoint().unwrap();
        let (inner, rests) = (store.inner(), Nap { most: None, woken_by_commits: true });
        let step = |by: Duration| {
            clock.advance(by);
            assert!(!store.step().unwrap());
            inner.table_cache.cache.stats()
        };
        let woken = Arc::<Sleeper>::default();
        woken.set_thread(&thread::current());
        for _ in 0..2 {
            while inner.nap() != rests {
                step(pace::AGE);
            }
            assert_eq!(inner.table_cache.cache.stats().bytes(), 0);
            inner.table_cache.watched_by(&woken);
            assert_eq!(store.read("log", ..).unwrap().count(), 1);
            // A look-up wakes the sleeping thread, so this call returns.
            woken.sleep(None);
            let Nap { most, woken_by_commits } = inner.nap();
            assert!(most.is_some_and(|most| most <= pace::AGE) && woken_by_commits);
            let read = step(Duration::ZERO);
            let aged = [(); 6].map(|()| step(pace::AGE))[5];
            assert!(aged.data_bytes < read.data_bytes && aged.filter_bytes == read.filter_bytes, "{aged:?}");
        }
    }
}
