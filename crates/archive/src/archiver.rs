//! The thread that keeps an archive up to date.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brooklet::io::{Clock, SystemClock};
use brooklet::{Offloaded, Store};

use crate::archive::{Archive, Archived};
use crate::error::Error;
use crate::prune::Pruned;
use crate::shipping::Shipped;

/// How long after an error it is tried again, if not later anyway.
const AFTER_ERROR: Duration = Duration::from_secs(60);

/// When an [`Archiver`] does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// A change is in a backup at most so long after it, and as long as that takes to upload; 30 minutes by default.
    pub every: Duration,
    /// How often what was committed is shipped behind the last backup, so that a lost machine costs no more than that; `None`,
    /// as by default: not at all. Each time costs a request or two, where there was anything.
    pub ship: Option<Duration>,
    /// How long backups are kept; `None`, as by default: for good.
    pub keep: Option<Duration>,
    /// How often it is looked for those that are too old; a day by default.
    pub prune_every: Duration,
    /// So many bytes of runs the store's volume holds at most after each backup: older ones are [offloaded](Archive::offload),
    /// and what is written until the next backup comes on top. `None`, as by default: all of them.
    pub offload: Option<u64>,
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

/// What an [`Archiver`] has done so far.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The last backup that the store was found to be in.
    pub last: Option<Archived>,
    /// Times it looked, and all went well.
    pub rounds: u64,
    /// Commits that were shipped, all in all.
    pub shipped: Shipped,
    /// What was removed, all in all.
    pub pruned: Pruned,
    /// What was offloaded, all in all, and what is left.
    pub offloaded: Offloaded,
    /// What went wrong since the last time all went well.
    pub error: Option<Arc<Error>>,
    /// Whether it has ended, because another host owns the archive, or it is one of another store, or the store is closed.
    pub ended: bool,
}

/// A thread that backs a store up, again and again. Dropping it ends the thread; what it was about to upload is given up.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use brooklet_archive::{Archive, Archiver, Bucket, Schedule};
/// # let dir = tempfile::tempdir()?;
/// # let bucket = Bucket::open(dir.path().join("bucket").to_str().unwrap())?;
/// # let store = brooklet::Store::in_memory(1)?;
/// # store.append("doc/1", "a")?.wait()?;
/// let archive = Archive::new(bucket, dir.path().join("note"), "this host")?;
/// let archiver = Archiver::start(archive, store.clone(), Schedule::default());
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
    /// Rounds that were begun, and those that were asked for.
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
    /// Starts one. The first backup is taken at once.
    pub fn start(archive: Archive, store: Store, schedule: Schedule) -> Self {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let work = move || {
            Rounds { archive, store, schedule, shared: of_thread, backed_up: None, pruned: None }.run()
        };
        let thread = std::thread::Builder::new().name("brooklet-archiver".into()).spawn(work);
        Self { shared, thread: Some(thread.expect("the system has room for a thread")) }
    }

    /// What it has done so far.
    pub fn status(&self) -> Status {
        self.shared.state().status.clone()
    }

    /// Has it back up what there is now, or ship it, where it ships, and waits until it has tried.
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
            // If it panicked, that was told.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Archiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archiver").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// What the thread works on.
struct Rounds {
    archive: Archive,
    store: Store,
    schedule: Schedule,
    shared: Arc<Shared>,
    /// When the store was last backed up, and when it was last looked for backups that are too old.
    backed_up: Option<Duration>,
    pruned: Option<Duration>,
}

impl Rounds {
    fn run(mut self) {
        let clock = SystemClock::new();
        let mut following = match self.schedule.ship {
            Some(_) => self.archive.follow(&self.store),
            None => Ok(()),
        };
        loop {
            self.shared.state().begun += 1;
            let done = std::mem::replace(&mut following, Ok(())).and_then(|()| self.round(&clock));
            let mut state = self.shared.state();
            let pause = match done {
                Ok(()) => {
                    state.status.rounds += 1;
                    (state.status.error, state.status.ended) = (None, false);
                    self.schedule.ship.unwrap_or(self.schedule.every)
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

    fn round(&mut self, clock: &SystemClock) -> Result<(), Error> {
        let is_due = |last: Option<Duration>, every| last.is_none_or(|last| clock.now() >= last + every);
        let ships = self.schedule.ship.is_some() && !is_due(self.backed_up, self.schedule.every);
        if let Some(shipped) = if ships { self.archive.ship()? } else { None } {
            let so_far = &mut self.shared.state().status.shipped;
            so_far.objects += shipped.objects;
            so_far.bytes += shipped.bytes;
            so_far.sent += shipped.sent;
            return Ok(());
        }
        let shared = self.shared.clone();
        let go_on = || if shared.state().stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let archived = self.archive.backup(&self.store, |_| go_on())?;
        self.backed_up = Some(clock.now());
        self.shared.state().status.last = Some(archived);
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

/// Whether it is no use trying again.
fn is_final(error: &Error) -> bool {
    use brooklet::Error::{Closed, Stopped};
    matches!(error, Error::Owned { .. } | Error::OtherStore { .. } | Error::Store(Closed | Stopped { .. }))
}
