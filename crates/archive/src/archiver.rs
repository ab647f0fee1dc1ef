//! The thread that keeps an archive up to date.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brooklet::io::panics::caught;
use brooklet::io::{Clock, SystemClock};
use brooklet::{OffloadReport, Store};

use crate::archive::{Archive, Archived};
use crate::error::Error;
use crate::prune::Pruned;
use crate::shipping::Shipped;

/// Longest pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(60);

/// Longest time that the drop of an archiver waits for a request.
const LAST_REQUEST: Duration = Duration::from_secs(5);

/// The schedule of an [`Archiver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Longest time from a change to the start of the backup that has it; the upload adds to it.
    /// The default is 30 minutes.
    pub every: Duration,
    /// Time between two shipments of commits behind the last backup: a lost machine costs no more
    /// than this time. `None`, the default, ships nothing. A shipment costs a request or two, if
    /// anything was committed.
    pub ship: Option<Duration>,
    /// Time for which backups are kept; `None`, the default, keeps all of them.
    pub keep: Option<Duration>,
    /// Time between two searches for old backups; a day by default.
    pub prune_every: Duration,
    /// Most bytes of runs that the store's volume holds after each backup. Older runs are
    /// [offloaded](Archive::offload). The writes until the next backup add to it. `None`, the
    /// default, offloads nothing.
    pub offload: Option<u64>,
}

impl Schedule {
    /// Refuses a schedule that no archiver can keep.
    fn expect_sense(&self) -> Result<(), Error> {
        let Self { every, ship, keep, prune_every, offload: _ } = *self;
        let refused = |why| Err(Error::Schedule(why));
        if every.is_zero() {
            return refused("`every` is 0: use a longer interval between backups");
        }
        if ship.is_some_and(|ship| ship.is_zero()) {
            return refused("`ship` is 0: use a longer interval between objects");
        }
        if ship.is_some_and(|ship| ship >= every) {
            return refused("a backup is due before the first shipping: make `ship` shorter than `every`");
        }
        if keep.is_some_and(|keep| prune_every > keep.max(every)) {
            return refused(
                "the archiver would remove backups later than `keep` allows: make `prune_every` no longer than `keep`",
            );
        }
        Ok(())
    }
}

impl Default for Schedule {
    fn default() -> Self {
        let (minute, hour) = (60, 3600);
        Self {
            every: Duration::from_secs(30 * minute),
            ship: None,
            keep: None,
            prune_every: Duration::from_secs(24 * hour),
            offload: None,
        }
    }
}

/// The state of an [`Archiver`] so far.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The last backup that has the store's contents.
    pub last: Option<Archived>,
    /// Number of rounds that ended without an error.
    pub rounds: u64,
    /// Total of the shipped commits, without those that a backup shipped.
    pub shipped: Shipped,
    /// Number of new backups that came after commits were lost to shipping, where the archiver
    /// ships. Some moments before such a backup cannot be restored.
    pub holes: u64,
    /// Total of the removed backups and objects.
    pub pruned: Pruned,
    /// Total of the offloaded runs, and the bytes that are left on the volume.
    pub offloaded: OffloadReport,
    /// The error of the last round, if it failed.
    pub error: Option<Arc<Error>>,
    /// Whether the thread has ended: another host owns the archive, the archive is another store's,
    /// the store is closed, or the thread has panicked.
    pub ended: bool,
}

/// A thread that backs up a store again and again. Dropping the archiver ends the thread, and
/// aborts an upload or a removal of old backups in progress. The drop waits at most 5 seconds for a
/// request that has no answer: the thread then ends, and drops its handle of the store, once that
/// request has ended.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use brooklet_archive::{Archive, Archiver, Bucket, Schedule};
/// # let dir = tempfile::tempdir()?;
/// # let bucket = Bucket::open(dir.path().join("bucket").to_str().unwrap())?;
/// # let store = brooklet::Store::in_memory(1)?;
/// # store.append("doc/1", "a")?.wait()?;
/// let archive = Archive::new(bucket, dir.path().join("note"), "this host")?;
/// let archiver = Archiver::start(archive, store.clone(), Schedule::default())?;
/// let status = archiver.now();                        // or in half an hour
/// assert_eq!(status.last.unwrap().parts, 1);
/// # Ok(())
/// # }
/// ```
pub struct Archiver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    status: Status,
    /// Number of rounds that began, number that ended, and number of the last requested round.
    begun: u64,
    ended: u64,
    asked: u64,
    stop: bool,
    /// Whether the thread has dropped the archive and the store.
    gone: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the thread's work. A panic ends the archiver, and leaves nobody waiting.
    fn run(&self, work: impl FnOnce()) {
        let done = caught("the archiver", work);
        if let Err(panic) = &done {
            tracing::error!(%panic, "the store is not backed up any more");
        }
        let mut state = self.state();
        state.gone = true;
        if let Err(panic) = done {
            state.status.ended = true;
            state.status.error = Some(Arc::new(Error::Ended(panic)));
            state.ended = state.begun;
        }
        self.changed.notify_all();
    }
}

impl Archiver {
    /// Starts the thread, which takes the first backup at once.
    ///
    /// # Errors
    /// [`Error::Schedule`] where the schedule cannot be kept; [`Error::Store`] where the schedule
    /// ships commits and the store is open for reading only; [`Error::OtherStore`];
    /// [`Error::Ended`] where the thread cannot start.
    pub fn start(mut archive: Archive, store: Store, schedule: Schedule) -> Result<Self, Error> {
        schedule.expect_sense()?;
        if schedule.ship.is_some() {
            archive.follow(&store)?;
        }
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let work = move || of_thread.run(|| Rounds::new(archive, store, schedule, of_thread.clone()).run());
        let thread = std::thread::Builder::new().name("brooklet-archiver".into()).spawn(work);
        Ok(Self { shared, thread: Some(thread.map_err(Error::Ended)?) })
    }

    /// Returns the archiver's state so far.
    pub fn status(&self) -> Status {
        self.shared.state().status.clone()
    }

    /// Starts a round at once, to ship commits or to take a backup, and waits until the round has
    /// ended.
    pub fn now(&self) -> Status {
        let mut state = self.shared.state();
        state.asked = state.begun + 1;
        let asked = state.asked;
        self.shared.changed.notify_all();
        while state.ended < asked && !state.status.ended {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.status.clone()
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        let changed = &self.shared.changed;
        let mut state = self.shared.state();
        state.stop = true;
        changed.notify_all();
        let waited = changed.wait_timeout_while(state, LAST_REQUEST, |state| !state.gone);
        let is_gone = waited.unwrap_or_else(PoisonError::into_inner).0.gone;
        let Some(thread) = self.thread.take() else { return };
        if is_gone {
            // The thread catches its panics.
            let _ = thread.join();
        } else {
            tracing::warn!("a request of the archiver has no answer yet; its thread ends with that request");
        }
    }
}

impl fmt::Debug for Archiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archiver").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// The state of the thread.
struct Rounds {
    archive: Archive,
    store: Store,
    schedule: Schedule,
    shared: Arc<Shared>,
    /// Time of the last backup; `None` until one has succeeded, and after one that failed.
    backed_up: Option<Duration>,
    /// Time of the last search for old backups.
    pruned: Option<Duration>,
    /// Time of the next attempt of the work that follows a backup; `None` once it has succeeded.
    follow_up: Option<Duration>,
}

impl Rounds {
    fn new(archive: Archive, store: Store, schedule: Schedule, shared: Arc<Shared>) -> Self {
        Self { archive, store, schedule, shared, backed_up: None, pruned: None, follow_up: None }
    }

    fn run(mut self) {
        let clock = SystemClock::new();
        loop {
            let asked = {
                let mut state = self.shared.state();
                state.begun += 1;
                state.asked >= state.begun
            };
            let done = self.round(&clock, asked);
            let due = self.pause(&clock);
            let mut state = self.shared.state();
            let pause = match done {
                Ok(()) => {
                    state.status.rounds += 1;
                    (state.status.error, state.status.ended) = (None, false);
                    due
                }
                Err(error) => {
                    tracing::warn!(%error, "the store was not backed up");
                    state.status.ended = is_final(&error);
                    state.status.error = Some(Arc::new(error));
                    self.schedule.ship.unwrap_or(self.schedule.every).min(AFTER_ERROR)
                }
            };
            state.ended = state.begun;
            self.shared.changed.notify_all();
            let waits = |state: &mut State| !state.stop && state.asked <= state.begun;
            let waited = self.shared.changed.wait_timeout_while(state, pause, waits);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.stop || state.status.ended {
                return;
            }
        }
    }

    /// Returns the time until the next round is due.
    fn pause(&self, clock: &dyn Clock) -> Duration {
        let (Schedule { every, ship, .. }, now) = (self.schedule, clock.now());
        let since = self.backed_up.map_or(Duration::ZERO, |backed_up| now.saturating_sub(backed_up));
        let backup = every.saturating_sub(since).min(ship.unwrap_or(every));
        self.follow_up.map_or(backup, |follow_up| backup.min(follow_up.saturating_sub(now)))
    }

    /// Does what is due: ships commits, or takes a backup; then the work that follows a backup.
    /// `asked`: a caller waits for this round.
    fn round(&mut self, clock: &dyn Clock, asked: bool) -> Result<(), Error> {
        if self.needs_backup(clock, asked)? {
            self.back_up(clock)?;
        }
        if self.follow_up.is_some_and(|due| asked || due <= clock.now()) {
            // A failure does not make the backup worth less: only this part is tried again, and not
            // in each of many rounds.
            self.follow_up = Some(clock.now() + self.schedule.every.min(AFTER_ERROR));
            // A bucket that forbids removals is no reason for a full disk.
            let pruned = self.prune(clock);
            self.offload().and(pruned)?;
            self.follow_up = None;
        }
        Ok(())
    }

    /// Returns whether a backup is due. Otherwise ships commits, if the schedule says so.
    fn needs_backup(&mut self, clock: &dyn Clock, asked: bool) -> Result<bool, Error> {
        if is_due(self.backed_up, self.schedule.every, clock) {
            return Ok(true);
        }
        if self.schedule.ship.is_none() {
            return Ok(asked);
        }
        match self.archive.ship() {
            // The new backup has those commits, and reports the hole.
            Err(error @ Error::Lost { .. }) => {
                tracing::warn!(%error, "shipping lost commits; the backup records the hole");
                Ok(true)
            }
            shipped => {
                let shipped = shipped?;
                shipped.into_iter().for_each(|shipped| self.shared.state().status.shipped.add(shipped));
                Ok(shipped.is_none())
            }
        }
    }

    fn back_up(&mut self, clock: &dyn Clock) -> Result<(), Error> {
        self.backed_up = None;
        let go_on = go_on(&self.shared);
        let archived = self.archive.backup(&self.store, |_| go_on())?;
        let now = clock.now();
        (self.backed_up, self.follow_up) = (Some(now), Some(now));
        let status = &mut self.shared.state().status;
        let is_hole = self.schedule.ship.is_some() && archived.is_new && !archived.is_covered;
        status.holes += u64::from(is_hole && archived.number > 0);
        status.last = Some(archived);
        Ok(())
    }

    /// Removes old backups, if that is due.
    fn prune(&mut self, clock: &dyn Clock) -> Result<(), Error> {
        let is_due = is_due(self.pruned, self.schedule.prune_every, clock);
        let Some(keep) = self.schedule.keep.filter(|_| is_due) else { return Ok(()) };
        let pruned = self.archive.prune_while(keep, false, &go_on(&self.shared))?;
        self.pruned = Some(clock.now());
        let so_far = &mut self.shared.state().status.pruned;
        so_far.backups += pruned.backups;
        so_far.objects += pruned.objects;
        so_far.bytes += pruned.bytes;
        Ok(())
    }

    /// Offloads old runs, if the schedule says so.
    fn offload(&mut self) -> Result<(), Error> {
        let Some(most) = self.schedule.offload else { return Ok(()) };
        let go_on = go_on(&self.shared);
        if go_on().is_break() {
            return Err(Error::Cancelled { what: "the offload" });
        }
        let offloaded = self.archive.offload(&self.store, most, |_| go_on())?;
        let so_far = &mut self.shared.state().status.offloaded;
        so_far.runs += offloaded.runs;
        so_far.parts += offloaded.parts;
        so_far.bytes += offloaded.bytes;
        so_far.left = offloaded.left;
        Ok(())
    }
}

/// Returns whether something that was last done at `last` is due.
fn is_due(last: Option<Duration>, every: Duration, clock: &dyn Clock) -> bool {
    last.is_none_or(|last| clock.now().saturating_sub(last) >= every)
}

/// Returns a function that returns whether an archiver's work goes on.
fn go_on(shared: &Arc<Shared>) -> impl Fn() -> ControlFlow<()> + use<> {
    let shared = shared.clone();
    move || if shared.state().stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Returns whether a retry is useless.
fn is_final(error: &Error) -> bool {
    use brooklet::Error::{Closed, Stopped};
    matches!(error, Error::Owned { .. } | Error::OtherStore { .. } | Error::Store(Closed | Stopped { .. }))
}

#[cfg(test)]
mod tests {
    use brooklet::Options;
    use brooklet::io::{ManualClock, MemVolume};
    use object_store::memory::InMemory;

    use super::*;
    use crate::bucket::Bucket;
    use crate::record::{BUNDLES, name_of};

    /// An object that offloading reads is missing for a while. The backups go on as the schedule
    /// says, and not with each attempt to offload.
    #[test]
    fn a_failure_behind_a_backup_takes_no_further_backup() {
        let dir = tempfile::tempdir().unwrap();
        let store = Options::new().threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let append = || store.append("log", vec![7; 1000]).unwrap().wait().unwrap();
        let bucket = Bucket::of(Arc::new(InMemory::new()), "").unwrap();
        let archive = Archive::new(bucket.clone(), dir.path().join("note"), "a host").unwrap();
        let hour = Duration::from_secs(3600);
        let schedule = Schedule { every: hour, offload: Some(0), ..Schedule::default() };
        let mut rounds = Rounds::new(archive, store.clone(), schedule, Arc::default());
        let clock = ManualClock::default();
        rounds.schedule.offload = None;
        append();
        rounds.round(&clock, false).unwrap();
        rounds.schedule.offload = Some(0);
        let hidden: Vec<_> = bucket.list(BUNDLES).unwrap().into_iter().map(|object| object.name).collect();
        let kept = hidden.iter().map(|name| bucket.get(name, None).unwrap().unwrap());
        let kept: Vec<_> = kept.collect();
        bucket.delete(&hidden).unwrap();

        append();
        clock.advance(hour);
        let last = |rounds: &Rounds| rounds.shared.state().status.last.unwrap().number;
        for minute in 0..5 {
            // Without the commit, the backup would not be a new one.
            append();
            rounds.round(&clock, false).unwrap_err();
            assert_eq!((minute, last(&rounds)), (minute, 1));
            assert_eq!(rounds.pause(&clock), AFTER_ERROR);
            clock.advance(AFTER_ERROR);
        }
        rounds.round(&clock, true).unwrap_err();
        assert_eq!(last(&rounds), 2, "a caller asked for a backup");

        hidden.iter().zip(kept).try_for_each(|(name, data)| bucket.put(name, data).wait()).unwrap();
        clock.advance(AFTER_ERROR);
        append();
        rounds.round(&clock, false).unwrap();
        assert_eq!(last(&rounds), 2);
        assert!(rounds.shared.state().status.offloaded.runs > 0);
        assert_eq!(rounds.pause(&clock), hour - AFTER_ERROR);
    }

    /// No old backup can be removed, as where a record is damaged or the bucket forbids it. The
    /// disk does not fill for that reason.
    #[test]
    fn old_runs_leave_the_disk_although_old_backups_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = Options::new().threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let append = || store.append("log", vec![7; 1000]).unwrap().wait().unwrap();
        let bucket = Bucket::of(Arc::new(InMemory::new()), "").unwrap();
        let archive = Archive::new(bucket.clone(), dir.path().join("note"), "a host").unwrap();
        let (hour, always) = (Duration::from_secs(3600), Duration::ZERO);
        let keep = Some(always);
        let schedule = Schedule { every: hour, keep, prune_every: always, ..Schedule::default() };
        let mut rounds = Rounds::new(archive, store.clone(), schedule, Arc::default());
        let clock = ManualClock::default();
        append();
        rounds.round(&clock, false).unwrap();
        rounds.schedule.offload = Some(0);
        bucket.put(&name_of(99), "this is no record".into()).wait().unwrap();
        append();
        clock.advance(hour);
        let error = rounds.round(&clock, false).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        let offloaded = rounds.shared.state().status.offloaded;
        assert!(offloaded.runs > 0 && offloaded.left == 0, "{offloaded:?}");
        assert_eq!(rounds.pause(&clock), AFTER_ERROR, "old backups are looked for again");
    }

    /// A first search finds hundreds of old backups, whose removal takes minutes.
    #[test]
    fn a_removal_of_old_backups_ends_with_the_archiver() {
        let dir = tempfile::tempdir().unwrap();
        let store = Options::new().threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let bucket = Bucket::of(Arc::new(InMemory::new()), "").unwrap();
        let archive = Archive::new(bucket.clone(), dir.path().join("note"), "a host").unwrap();
        let (hour, always) = (Duration::from_secs(3600), Duration::ZERO);
        let schedule = Schedule { every: hour, prune_every: always, ..Schedule::default() };
        let mut rounds = Rounds::new(archive, store.clone(), schedule, Arc::default());
        let clock = ManualClock::default();
        for _ in 0..3 {
            store.append("log", vec![7; 1000]).unwrap().wait().unwrap();
            rounds.round(&clock, false).unwrap();
            clock.advance(hour);
        }
        rounds.schedule.keep = Some(always);
        rounds.shared.state().stop = true;
        let before = bucket.costs();
        let error = rounds.prune(&clock).unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        assert_eq!(bucket.backups().unwrap().len(), 3);
        // Nor does the archive look for runs to offload.
        rounds.schedule.offload = Some(0);
        let between = bucket.costs();
        rounds.offload().unwrap_err();
        let after = bucket.costs();
        assert_eq!((after.gets, after.lists), (between.gets, between.lists));
        assert_eq!((after.puts, after.deletes), (before.puts, before.deletes));

        rounds.shared.state().stop = false;
        rounds.prune(&clock).unwrap();
        assert_eq!(bucket.backups().unwrap().len(), 1);
    }

    #[test]
    fn a_panic_of_the_thread_leaves_nobody_waiting() {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let work = move || of_thread.run(|| panic!("no such round"));
        let thread = std::thread::Builder::new().spawn(work).unwrap();
        let archiver = Archiver { shared, thread: Some(thread) };
        let status = archiver.now();
        assert!(status.ended);
        let error = status.error.unwrap().to_string();
        assert_eq!(error, "no more backups are taken: the archiver panicked: no such round");
    }
}
