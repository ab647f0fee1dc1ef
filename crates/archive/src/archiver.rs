//! The thread that keeps an archive up to date.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brooklet::io::{Clock, SystemClock};
use brooklet::{OffloadReport, Store};

use crate::archive::{Archive, Archived};
use crate::error::Error;
use crate::prune::Pruned;
use crate::shipping::Shipped;

/// Longest pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(60);

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
    /// or the store is closed.
    pub ended: bool,
}

/// A thread that backs up a store again and again. Dropping the archiver ends the thread, and gives
/// up an upload in progress.
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
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Archiver {
    /// Starts the thread, which takes the first backup at once.
    ///
    /// # Errors
    /// [`Error::Schedule`] where the schedule cannot be kept; [`Error::Store`] where the schedule
    /// ships commits and the store is open for reading only; [`Error::OtherStore`].
    pub fn start(mut archive: Archive, store: Store, schedule: Schedule) -> Result<Self, Error> {
        schedule.expect_sense()?;
        if schedule.ship.is_some() {
            archive.follow(&store)?;
        }
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let work = move || {
            Rounds { archive, store, schedule, shared: of_thread, backed_up: None, pruned: None }.run()
        };
        let thread = std::thread::Builder::new().name("brooklet-archiver".into()).spawn(work);
        Ok(Self { shared, thread: Some(thread.expect("the system has room for a thread")) })
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
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
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
    /// Times of the last backup and of the last search for old backups.
    backed_up: Option<Duration>,
    pruned: Option<Duration>,
}

impl Rounds {
    fn run(mut self) {
        let clock = SystemClock::new();
        loop {
            self.shared.state().begun += 1;
            let done = self.round(&clock);
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
    fn pause(&self, clock: &SystemClock) -> Duration {
        let Schedule { every, ship, .. } = self.schedule;
        let since = self.backed_up.map_or(Duration::ZERO, |backed_up| clock.now().saturating_sub(backed_up));
        every.saturating_sub(since).min(ship.unwrap_or(every))
    }

    fn round(&mut self, clock: &SystemClock) -> Result<(), Error> {
        let is_due =
            |last: Option<Duration>, every| last.is_none_or(|last| clock.now().saturating_sub(last) >= every);
        let ships = self.schedule.ship.is_some() && !is_due(self.backed_up, self.schedule.every);
        let shipped = match if ships { self.archive.ship() } else { Ok(None) } {
            // The new backup has those commits, and reports the hole.
            Err(error @ Error::Lost { .. }) => {
                tracing::warn!(%error, "shipping lost commits; the backup records the hole");
                None
            }
            shipped => shipped?,
        };
        if let Some(shipped) = shipped {
            self.shared.state().status.shipped.add(shipped);
            return Ok(());
        }
        let shared = self.shared.clone();
        let go_on = || if shared.state().stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let archived = self.archive.backup(&self.store, |_| go_on())?;
        self.backed_up = Some(clock.now());
        {
            let status = &mut self.shared.state().status;
            let is_hole = self.schedule.ship.is_some() && archived.is_new && !archived.is_covered;
            status.holes += u64::from(is_hole && archived.number > 0);
            status.last = Some(archived);
        }
        let keep = self.schedule.keep.filter(|_| is_due(self.pruned, self.schedule.prune_every));
        if let Some(keep) = keep {
            let pruned = self.archive.prune(keep, false)?;
            self.pruned = Some(clock.now());
            let so_far = &mut self.shared.state().status.pruned;
            so_far.backups += pruned.backups;
            so_far.objects += pruned.objects;
            so_far.bytes += pruned.bytes;
        }
        if let Some(most) = self.schedule.offload {
            let offloaded = self.archive.offload(&self.store, most, |_| go_on())?;
            let so_far = &mut self.shared.state().status.offloaded;
            so_far.runs += offloaded.runs;
            so_far.parts += offloaded.parts;
            so_far.bytes += offloaded.bytes;
            so_far.left = offloaded.left;
        }
        Ok(())
    }
}

/// Returns whether a retry is useless.
fn is_final(error: &Error) -> bool {
    use brooklet::Error::{Closed, Stopped};
    matches!(error, Error::Owned { .. } | Error::OtherStore { .. } | Error::Store(Closed | Stopped { .. }))
}
