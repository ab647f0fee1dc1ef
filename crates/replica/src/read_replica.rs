//! A read replica: a thread reads the log behind its owner, and shows it in a store of this host.

mod file;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use brooklet::io::Process;
use brooklet::{ErrorKind, Options, Store};
use brooklet_archive::Bucket;
use bytes::Bytes;
use tokio::time::Instant;

use self::file::File;
use crate::claim::Claim;
use crate::drive::{Listener, follow_with};
use crate::error::Error;
use crate::followed::sealed;
use crate::journal::Journal;
use crate::machine::follower::{Follower, FollowerState};
use crate::object::Object;
use crate::place::StoreId;
use crate::probe::expect_none;
use crate::standby::{Begin, begin, block_on_while, find, insist};

/// Time without a sign of the owner after which the replica looks whether it has missed a trim of
/// the log.
const SILENCE: Duration = Duration::from_secs(3);
/// Shortest time between two looks whether the log was trimmed past the replica, which shows all of
/// it only once it has looked: each look is a request.
const DOUBT: Duration = Duration::from_millis(100);
/// Time since the last moment at which the replica was sure of having all of the log, up to which a
/// hole counts without a look: an owner takes longer to append, to make a backup, and to trim.
const GAP: Duration = Duration::from_millis(500);
/// Time since the last look up to which such holes count one after the other: the owner may have
/// trimmed the log between the last two, and each further hole would seem to prove the opposite.
const UNSEEN: Duration = Duration::from_secs(1);
/// The pause between two requests is the time since the last commit, divided by this number.
const IDLE_SHARE: u32 = 16;
/// Longest sleep of a caller that waits for the replica, before it looks whether it is to go on.
const LOOK: Duration = Duration::from_millis(50);
/// The pause after an error that may pass; it doubles with each further error, up to the second.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

/// Settings of a [`ReadReplica`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReadReplicaOptions {
    /// Options of the store that serves the reads. Name no ring of its own
    /// ([`ring_at`](Options::ring_at)): the replica could not make its file anew.
    pub store: Options,
    /// Shortest pause between two requests for the next object of the log. Default: 20 ms.
    pub poll: Duration,
    /// Longest pause, while the owner commits nothing. Default: 200 ms.
    pub rest: Duration,
    backups: Bucket,
}

impl ReadReplicaOptions {
    /// Returns the default settings. `backups` is the place of the backups that shorten the log;
    /// for `brooklet serve --replicate`, the place `backups` below the log.
    pub fn new(backups: Bucket) -> Self {
        let (poll, rest) = (Duration::from_millis(20), Duration::from_millis(200));
        Self { store: Options::new(), poll, rest, backups }
    }
}

/// How far a [`ReadReplica`] is behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lag {
    /// The place in the log up to which readers see all commits, in bytes.
    pub shown: u64,
    /// The place up to which the replica has read the log. It may be more while a file is made.
    pub read: u64,
    /// Time since the replica had all of the log, as far as it knows: since it sent its last
    /// request that found nothing newer. Readers see all that was in the bucket before. `None`
    /// until the replica has had all of the log once.
    pub age: Option<Duration>,
    /// Time since the last object of an owner was read. An owner appends one each second. `None`
    /// before the first.
    pub silence: Option<Duration>,
    /// Name and address of the owner, as its claim says.
    pub owner: Option<(String, String)>,
    /// Number of times that the file was made anew, because the log was trimmed past it, or opened
    /// again, because its store had stopped. The store is another one since.
    pub made_anew: u64,
}

impl Lag {
    /// Returns the bytes of the log that were read, and are not shown yet.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_sub(self.shown)
    }
}

/// A store that follows the log of another host, and serves reads. It never claims the log, and
/// takes nothing over.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use brooklet_archive::Bucket;
/// use brooklet_replica::{BucketJournal, ReadReplica, ReadReplicaOptions};
/// # use brooklet::{MirrorOptions, Options};
/// # use brooklet_replica::{Replica, ShipperOptions};
/// # let (dir, bucket) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// # let (path, address) = (dir.path().join("replica"), bucket.path().to_str().unwrap());
/// # let replica = Replica::new(BucketJournal::new(&Bucket::open(address)?), ShipperOptions::default());
/// # let owner = Options::new().mirror(MirrorOptions::new(replica)).open(dir.path().join("owner"))?;
/// # owner.append("doc/7", "an edit")?.wait()?;
///
/// let journal = BucketJournal::new(&Bucket::open(address)?);             // such as s3://bucket/logs
/// let options = ReadReplicaOptions::new(Bucket::open(&format!("{address}/backups"))?);
/// let replica = ReadReplica::open(&path, journal, options, || true)?;
/// let entry = replica.store().read("doc/7", ..)?.next().unwrap()?;
/// assert_eq!(entry.payload, "an edit");
/// println!("{:?}", replica.lag().age);
/// replica.close()?;
/// # Ok(())
/// # }
/// ```
pub struct ReadReplica {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    process: Process,
}

/// The function that shows each block; see [`ReadReplica::attach`].
type Beside = Box<dyn Fn(&[Bytes], &mut dyn FnMut()) + Send>;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    beside: Arc<Mutex<Option<Beside>>>,
    changed: Condvar,
    ends: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    store: Option<Store>,
    lag: Lag,
    /// When the replica had all of the log.
    had_all: Option<Instant>,
    /// When the last object was read.
    sign: Option<Instant>,
    /// The end of the thread.
    end: Option<Result<(), Arc<Error>>>,
}

impl ReadReplica {
    /// Opens the file at `path` as a replica of the store whose log `journal` keeps, and makes the
    /// file if there is none. Returns once readers see all that the log had at the call, and once
    /// the log has a commit. Returns [`Error::GivenUp`] if `goes_on` returned false meanwhile.
    ///
    /// While the bucket does not answer, the call waits, with a warning.
    ///
    /// If the bucket fails later, or the disk is full, the replica shows the state that it has,
    /// and tries again: [`lag`](Self::lag) returns the age of this state. If the disk fails a
    /// write, the replica opens its file again, as another store.
    ///
    /// If the log was trimmed past the file, the replica makes the file anew from the backup, with
    /// a warning; also later, at any time.
    ///
    /// # Errors
    /// [`Error::NoLog`], [`Error::NoList`]; [`Error::Diverged`] if the file has commits that the
    /// log lacks, such as one of a former owner: it stays as it is. Also the errors of the backup
    /// and of the store.
    pub fn open(
        path: impl AsRef<Path>,
        journal: impl Journal,
        options: ReadReplicaOptions,
        goes_on: impl Fn() -> bool,
    ) -> Result<Self, Error> {
        let (shared, path) = (Arc::<Shared>::default(), path.as_ref().to_path_buf());
        let (journal, follows, at) = (Arc::new(journal), shared.clone(), path.clone());
        let run = move || {
            let run = AssertUnwindSafe(|| follows.run(&journal, &at, options));
            if catch_unwind(run).is_err() {
                follows.change(|state| state.end = Some(Err(Arc::new(Error::TaskEnded))));
            }
        };
        let thread = thread::Builder::new().name("brooklet-replica".into()).spawn(run);
        let process = Process::current();
        let replica = Self { shared, thread: Some(thread.map_err(Error::Thread)?), path, process };
        let mut state = replica.shared.state();
        while state.had_all.is_none() {
            if let Some(end) = state.end.take() {
                let error = end.err().and_then(Arc::into_inner);
                return Err(error.unwrap_or(Error::GivenUp));
            }
            if !goes_on() {
                return Err(Error::GivenUp);
            }
            state = replica.shared.wait(state);
        }
        drop(state);
        Ok(replica)
    }

    /// Returns the store. It shows the commits of the log, and refuses writes with
    /// [`brooklet::Error::ReadOnly`]. After the file was made anew, the call returns another store.
    /// The earlier store then keeps its last state: so call this again at times. If the file was
    /// opened again after a failed write, the earlier store is closed.
    ///
    /// # Panics
    /// Never: an open replica has a store.
    pub fn store(&self) -> Store {
        self.shared.state().store.clone().expect("an open replica has a store")
    }

    /// Shows each further block from within `beside`, like
    /// [`Following::take_beside`](brooklet::Following::take_beside), and returns the store. For a
    /// program that caches data of logs: it drops outdated data together with the block. `beside`
    /// replaces the function that was attached before. The call of `beside` does not report that
    /// the store is another one: [`Lag::made_anew`] counts this.
    pub fn attach(&self, beside: impl Fn(&[Bytes], &mut dyn FnMut()) + Send + 'static) -> Store {
        let mut attached = self.shared.beside.lock().unwrap_or_else(PoisonError::into_inner);
        *attached = Some(Box::new(beside));
        drop(attached);
        self.store()
    }

    /// Returns how far the replica is behind.
    pub fn lag(&self) -> Lag {
        let state = self.shared.state();
        let (age, silence) = (state.had_all, state.sign);
        let since = |at: Option<Instant>| at.map(|at| at.elapsed());
        Lag { age: since(age), silence: since(silence), ..state.lag.clone() }
    }

    /// Returns the error that ended the following, if it ended. The store then keeps its last
    /// state.
    pub fn error(&self) -> Option<Arc<Error>> {
        self.shared.state().end.clone()?.err()
    }

    /// Waits until readers see all commits before a place in the log, such as
    /// [`View::lsn`](brooklet::View::lsn) of the owner's store, or until the timeout. Returns
    /// whether they do.
    pub fn wait_for(&self, place: u64, timeout: Duration) -> bool {
        let begin = Instant::now();
        let mut state = self.shared.state();
        while state.lag.shown < place {
            if state.end.is_some() || begin.elapsed() >= timeout {
                return false;
            }
            state = self.shared.wait(state);
        }
        true
    }

    /// Ends the following, and closes the store. The file keeps the last state of the store.
    ///
    /// # Errors
    /// The error that ended the following before, or that of the closing.
    pub fn close(mut self) -> Result<(), Error> {
        self.end();
        match self.shared.state().end.take() {
            Some(Err(error)) => Err(Arc::try_unwrap(error).unwrap_or_else(Error::Ended)),
            Some(Ok(())) => Ok(()),
            None => Err(Error::TaskEnded),
        }
    }

    fn end(&mut self) {
        let thread = self.thread.take();
        if !self.process.is_here() {
            // The thread belongs to the parent process, and so may the lock.
            return std::mem::forget(thread);
        }
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            self.shared.state().end = Some(Err(Arc::new(Error::TaskEnded)));
        }
    }
}

impl Drop for ReadReplica {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for ReadReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadReplica({}, {:?})", self.path.display(), self.lag())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, for a moment at most.
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.state());
        self.changed.notify_all();
    }

    fn is_ended(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Follows the log until the replica is closed, or an error.
    fn run<J: Journal>(&self, journal: &Arc<J>, path: &Path, options: ReadReplicaOptions) {
        let (poll, rest, ends) = (options.poll, options.rest, self.ends.clone());
        let mut following = Following {
            file: File::new(path, options, ends, self.beside.clone()),
            shared: self,
            poll,
            rest,
            last: None,
            none: None,
            sure: None,
            proved: None,
            looked: None,
            again: AGAIN[0],
        };
        let followed = block_on_while(following.follow(journal), &|| !self.is_ended());
        let followed = match followed {
            // The replica was closed while it made its file.
            Err(Error::Store(error)) if self.is_ended() && error.kind() == ErrorKind::Cancelled => Ok(()),
            followed => followed.map(drop),
        };
        let ended = followed.and(following.file.close());
        if let Err(error) = &ended {
            tracing::error!(%error, "the replica follows the log no more");
        }
        self.change(|state| state.end = Some(ended.map_err(Arc::new)));
    }
}

/// What the thread of a replica holds.
struct Following<'a> {
    file: File,
    shared: &'a Shared,
    poll: Duration,
    rest: Duration,
    /// When the last commits were read.
    last: Option<Instant>,
    /// When the log had nothing more, last.
    none: Option<Instant>,
    /// When that was sure, last, unless an object was read since: a log that was trimmed past the
    /// replica looks as one without a next object.
    sure: Option<Instant>,
    /// When the log had nothing more, last, before a look that found it not trimmed.
    proved: Option<Instant>,
    /// When the replica last looked whether it was trimmed.
    looked: Option<Instant>,
    /// The pause after the next error that may pass.
    again: Duration,
}

impl Following<'_> {
    async fn follow<J: Journal>(&mut self, journal: &Arc<J>) -> Result<(), Error> {
        insist(|| expect_none(&**journal)).await?;
        let store: StoreId = insist(|| find(&**journal)).await?.ok_or(Error::NoLog)?;
        loop {
            match self.follow_from_begin(journal, store).await {
                Err(error) if self.is_open() && may_pass(&error) => {
                    tracing::warn!(%error, "the replica could not go on; it begins again with the log");
                    tokio::time::sleep(self.again).await;
                    self.again = (2 * self.again).min(AGAIN[1]);
                }
                done => done?,
            }
        }
    }

    /// Follows the log from its begin, until it was trimmed past the replica.
    async fn follow_from_begin<J: Journal>(&mut self, journal: &Arc<J>, store: StoreId) -> Result<(), Error> {
        let Begin { mut at, mut record, backup, claim } = begin(&**journal, store).await?;
        self.file.begin(store, backup, at.lsn)?;
        self.sure = None;
        claim.iter().for_each(|claim| self.claimed(claim));
        loop {
            let mut follower = Follower::new(store, at, record, SILENCE, Duration::ZERO);
            match follow_with(journal, store, &mut follower, self).await? {
                // The next round begins behind the newest backup.
                FollowerState::Behind => return Ok(()),
                FollowerState::Broken(place) => {
                    let what = "it does not follow the object before it";
                    return Err(Error::Damaged { object: place.to_string(), what });
                }
                // It looked: the log was not trimmed past this place.
                FollowerState::Silent => {
                    record = follower.record();
                    self.none.map_or(Ok(()), |then| self.sure(then))?;
                }
                _ => {}
            }
            at = follower.at();
        }
    }

    /// Returns whether the replica has had all of the log once. Before, an error ends the opening.
    fn is_open(&self) -> bool {
        self.shared.state().had_all.is_some()
    }

    /// Notes that the log had nothing more at a moment.
    fn had_all(&mut self, then: Instant) -> Result<(), Error> {
        self.file.read_all()?;
        self.show();
        if self.file.is_current() {
            self.shared.change(|state| state.had_all = Some(then));
            self.again = AGAIN[0];
        }
        Ok(())
    }

    fn show(&self) {
        let (file, store) = (&self.file, self.file.store());
        self.shared.change(|state| {
            let lag = &mut state.lag;
            (lag.shown, lag.read) = (file.shown(), file.read());
            // Both change at once: the number shows that the store is another one.
            if let Some(store) = store {
                (state.store, lag.made_anew) = (Some(store), file.made_anew());
            }
        });
    }
}

/// Returns whether the same work may succeed later: the bucket answers again, or there is room.
fn may_pass(error: &Error) -> bool {
    match error {
        // The owner removes old backups: the log begins behind a later one, or will.
        Error::Archive(error) => {
            matches!(error, brooklet_archive::Error::Bucket { .. } | brooklet_archive::Error::NoBackup(_))
        }
        // The file can be opened again, once nobody reads in it any more.
        Error::Store(brooklet::Error::Stopped { .. } | brooklet::Error::Locked { .. }) => true,
        Error::Store(error) => matches!(error.kind(), ErrorKind::Full | ErrorKind::Io),
        error => error.is_temporary(),
    }
}

impl Listener for Following<'_> {
    fn found(&mut self, object: Object<Bytes>) -> Result<(), Error> {
        let blocks = sealed(&object)?;
        self.sure = None;
        let now = Instant::now();
        if blocks.iter().any(|block| block.begin < block.end) {
            self.last = Some(now);
        }
        self.file.take(blocks)?;
        self.show();
        self.shared.change(|state| state.sign = Some(now));
        Ok(())
    }

    fn claimed(&mut self, claim: &Claim) {
        let owner = (claim.owner.clone(), claim.address.clone());
        self.shared.change(|state| state.lag.owner = Some(owner));
    }

    fn pause(&mut self, none: Option<Instant>) -> Result<Duration, Error> {
        self.none = none.or(self.none);
        if let (Some(then), Some(sure), Some(proved)) = (none, self.sure, self.proved)
            && sure.elapsed() < GAP
            && then.saturating_duration_since(proved) < UNSEEN
        {
            self.sure = Some(then);
            self.had_all(then)?;
        }
        let idle = self.last.map_or(self.rest, |last| last.elapsed() / IDLE_SHARE);
        Ok(idle.min(self.rest).max(self.poll))
    }

    fn doubt(&mut self) -> Option<Instant> {
        let none = self.none.filter(|none| self.sure.is_none_or(|sure| sure < *none))?;
        let is_soon = self.looked.is_some_and(|looked| none.saturating_duration_since(looked) < DOUBT);
        if is_soon && self.is_open() {
            return None;
        }
        self.looked = Some(none);
        Some(none)
    }

    fn sure(&mut self, none: Instant) -> Result<(), Error> {
        (self.sure, self.proved) = (Some(none), Some(none));
        self.had_all(none)
    }
}
