//! The log in a bucket as the mirror of a store: opening the store claims the log, compares both
//! histories, and appends the blocks that the log lacks.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brooklet::{Kept, LocalLog, Mirror, MirrorHandle, SealedBlock, View};
use bytes::Bytes;

use crate::claim::Claim;
use crate::drive::Watch;
use crate::error::Error;
use crate::followed::{Followed, sealed};
use crate::journal::Journal;
use crate::machine::owner::OwnerLimits;
use crate::machine::takeover::{Found, Opened};
use crate::place::{Drawn, Epoch, Mark, Place, StoreId};
use crate::reconcile::{Link, Local, Mode, Plan, Remote, reconcile};
use crate::shipper::{Shipper, ShipperOptions, ShipperStatus};
use crate::standby::{Standing, block_on_while, claim_of, find, stand_by_to};

/// The log of a store in a bucket, as the [mirror](brooklet::Options::mirror) of the store.
///
/// Each opening of the store claims the log, and ends the last owner. A replica serves one opening.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use brooklet::{MirrorOptions, Options};
/// use brooklet_archive::Bucket;
/// use brooklet_replica::{BucketJournal, Replica, ShipperOptions};
///
/// # let (dir, bucket) = (tempfile::tempdir()?, tempfile::tempdir()?);
/// # let (path, address) = (dir.path().join("store"), bucket.path().to_str().unwrap());
/// let journal = BucketJournal::new(&Bucket::open(address)?);           // such as s3://bucket/path
/// let replica = Replica::new(journal, ShipperOptions::default());
/// let options = Options::new().mirror(MirrorOptions::new(replica.clone()));
/// let store = options.open(&path).map_err(|error| replica.explain(error))?;
/// let ticket = store.append("doc/7", "an edit")?;
/// ticket.wait()?;                                                       // now it survives this host
/// assert!(ticket.is_kept());
/// # Ok(())
/// # }
/// ```
pub struct Replica {
    start: Box<Start>,
    find: Box<Find>,
    stand_by: Box<StandBy>,
    claim: Box<ClaimOf>,
    /// Whether the caller has ended the shipping, maybe before it began.
    given_up: AtomicBool,
    state: Mutex<State>,
}

/// Claims the log of a store, and hands over its findings, while a function returns true.
type Start = dyn Fn(StoreId, GoesOn<'_>, &mut OnFound<'_>) -> Result<(Shipper, Opened), Error> + Send + Sync;
/// Finds the store of the log, while a function returns true.
type Find = dyn Fn(GoesOn<'_>) -> Result<Option<StoreId>, Error> + Send + Sync;
/// Reads the claim of an epoch.
type ClaimOf = dyn Fn(Epoch, GoesOn<'_>) -> Result<Option<Claim>, Error> + Send + Sync;
/// Waits until the log needs another owner, and returns where the last one left it; `None` if the
/// wait was given up.
type StandBy = dyn Fn(Duration, GoesOn<'_>, &mut dyn Standing) -> Result<Option<Left>, Error> + Send + Sync;
/// The place behind the last object of an owner, if there was an owner.
type Left = Option<Place>;
type GoesOn<'a> = &'a dyn Fn() -> bool;
type OnFound<'a> = dyn FnMut(Found<Bytes>) -> Result<(), Error> + 'a;

#[derive(Default)]
struct State {
    shipper: Option<Arc<Shipper>>,
    refusal: Option<Error>,
    /// The last mark behind which a backup lets the log begin.
    recorded: Option<Mark>,
    /// Where a standby found that the owner is silent, or has left.
    left: Left,
    /// The first and the last of the epochs that were claimed here, with none by others in between.
    first: Option<Epoch>,
    claimed: Option<Epoch>,
    /// The moment from which on no earlier owner has a new lease, if one may have had it then.
    fenced: Option<Watch>,
}

impl Replica {
    /// Returns the log that a journal keeps. Makes no request.
    ///
    /// Opening a store with it makes requests, and waits for them on the caller's thread, which
    /// must not be a thread of a tokio runtime.
    pub fn new(journal: impl Journal + Clone, options: ShipperOptions) -> Arc<Self> {
        let (claims, log) = (journal.clone(), Arc::new(journal.clone()));
        let named = journal.clone();
        let claim = move |epoch, goes_on: GoesOn<'_>| {
            block_on_while(claim_of(&named, epoch), goes_on)?.ok_or(Error::GivenUp)
        };
        let find = move |goes_on: GoesOn<'_>| block_on_while(find(&claims), goes_on)?.ok_or(Error::GivenUp);
        let stand_by = move |silence, goes_on: GoesOn<'_>, on: &mut dyn Standing| {
            block_on_while(stand_by_to(&log, silence, on), goes_on)
        };
        let start = move |store, goes_on: GoesOn<'_>, found: &mut OnFound<'_>| {
            Shipper::open_while(journal.clone(), store, options.clone(), found, goes_on)
        };
        let (start, find, stand_by) = (Box::new(start), Box::new(find), Box::new(stand_by));
        let claim = Box::new(claim);
        Arc::new(Self {
            start,
            find,
            stand_by,
            claim,
            given_up: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Takes the log over, and returns the history that it keeps, for a host that lacks the store's
    /// file, or whose file another history has replaced: [`Options::succeed`] makes a store of it.
    /// `backup` opens the recorded backup of a number, if there is one. Then open that store with
    /// this log.
    ///
    /// The shipper owns the log until that opening. Keep the shipper until then: it writes the
    /// signs for which [standbys](Self::stand_by) wait. If another host takes the log over
    /// meanwhile, the shipper [ends](Shipper::error), and the opening is refused: begin again.
    ///
    /// [`Options::succeed`]: brooklet::Options::succeed
    ///
    /// # Errors
    /// [`Error::NoLog`] if nobody has claimed the log; the errors of [`Shipper::open`] and of
    /// `backup`.
    pub fn kept(&self, backup: impl FnOnce(u64) -> Result<View, Error>) -> Result<(Kept, Shipper), Error> {
        let goes_on = || !self.is_given_up();
        let store = (self.find)(&goes_on)?.ok_or(Error::NoLog)?;
        let mut history = History::with_blocks();
        let (shipper, opened) = (self.start)(store, &goes_on, &mut |found| history.find(found))?;
        self.note_takeover(&opened);
        let blocks = history.blocks.unwrap_or_default();
        let backup = history.backup.map(backup).transpose()?;
        Ok((Kept { store: store.0, backup, blocks }, shipper))
    }

    /// Waits until the store needs another owner: until the log has nothing new for `silence`, or
    /// the owner has handed the store over. Then [`kept`](Self::kept) takes the log over. Without a
    /// log, waits for the first owner. Returns `false` if `goes_on` returned `false` meanwhile.
    ///
    /// Passes all that it reads to `on`, on the caller's thread: so a file can
    /// [catch up](brooklet::Options::catch_up) while its host waits. The wait lasts at least as
    /// long as the calls of `on`.
    ///
    /// An owner without commits appends a beat each second, or as
    /// [`OwnerLimits`](crate::OwnerLimits) say. So use a silence of 3 seconds or more.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NewerFormat`]; [`Error::Bucket`] if the bucket refuses a
    /// request for good. While the bucket does not answer, the call repeats its requests.
    pub fn stand_by(
        &self,
        silence: Duration,
        goes_on: impl Fn() -> bool,
        mut on: impl FnMut(Followed),
    ) -> Result<bool, Error> {
        self.stand_by_as(silence, goes_on, &mut on)
    }

    /// Waits like [`stand_by`](Self::stand_by), for a host that decides more by itself.
    ///
    /// # Errors
    /// The errors of [`stand_by`](Self::stand_by).
    pub fn stand_by_as(
        &self,
        silence: Duration,
        goes_on: impl Fn() -> bool,
        standing: &mut dyn Standing,
    ) -> Result<bool, Error> {
        let left = (self.stand_by)(silence, &goes_on, standing)?;
        let is_long = silence >= OwnerLimits::default().lease;
        self.state().left = left.flatten().filter(|_| is_long);
        Ok(left.is_some())
    }

    /// Returns the time until no earlier owner of the log answers reads any more; see
    /// [`Shipper::may_serve`]. A host that serves linearizable reads lets it pass before it serves.
    ///
    /// It is zero if the last owner was silent for long enough, or had left, and has appended
    /// nothing since.
    pub fn former_lease(&self) -> Duration {
        let fenced = self.state().fenced;
        fenced.map_or(Duration::ZERO, |fenced| OwnerLimits::default().lease.saturating_sub(fenced.now()))
    }

    /// Notes that this host has fenced the earlier owners.
    fn note_takeover(&self, opened: &Opened) {
        let mut state = self.state();
        let epoch = opened.writer.epoch;
        let follows = |before: Epoch| before.next() == epoch;
        // The fence is where the standby found nothing: so nothing was appended in between.
        let is_silent =
            |left: Place| follows(left.epoch) && opened.ends.get(&left.epoch) == Some(&left.number);
        let was_silent = state.left.take().is_some_and(is_silent);
        let was_here = state.claimed.replace(epoch).is_some_and(follows);
        if !was_here {
            state.first = Some(epoch);
        }
        if epoch > Epoch::FIRST && !was_silent && !was_here {
            state.fenced = Some(Watch::start());
        }
    }

    /// Returns the claim of an epoch; `None` if nobody has claimed it.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NewerFormat`]; those of the bucket; [`Error::GivenUp`] once
    /// `goes_on` returned false.
    pub fn claim(&self, epoch: Epoch, goes_on: &dyn Fn() -> bool) -> Result<Option<Claim>, Error> {
        (self.claim)(epoch, goes_on)
    }

    /// Returns the first of the epochs that were claimed here, with none by others in between. A
    /// host may claim the log to make its file, and again to open it. `None` before the first
    /// claim.
    pub fn first_claimed(&self) -> Option<Epoch> {
        self.state().first
    }

    /// Returns the state of the shipping; `None` before an opening has claimed the log.
    pub fn status(&self) -> Option<ShipperStatus> {
        self.state().shipper.as_ref().map(|shipper| shipper.status())
    }

    /// Returns the shipper; `None` before an opening has claimed the log.
    pub fn shipper(&self) -> Option<Arc<Shipper>> {
        self.state().shipper.clone()
    }

    /// Returns the cause of an error of the store, if this log is the cause.
    pub fn explain(&self, error: brooklet::Error) -> Error {
        let mut state = self.state();
        match error {
            brooklet::Error::MirrorRefused { .. } if state.refusal.is_some() => {
                state.refusal.take().unwrap_or(Error::Store(error))
            }
            brooklet::Error::MirrorEnded { .. } => {
                let ended = state.shipper.as_ref().and_then(|shipper| shipper.error());
                ended.unwrap_or(Error::Store(error))
            }
            error => Error::Store(error),
        }
    }

    /// Stops shipping, as the loss of this host would. The store then acknowledges nothing more.
    /// Use it to close a store whose bucket does not answer. It also ends an opening and a
    /// [takeover](Self::kept) that wait for the bucket, and later ones.
    pub fn give_up(&self) {
        let state = self.state();
        self.given_up.store(true, Ordering::Relaxed);
        if let Some(shipper) = &state.shipper {
            shipper.give_up();
        }
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Returns the last place behind which a backup of this opening lets the log begin.
    pub fn trimmed(&self) -> Option<Place> {
        self.state().recorded.map(|mark| mark.place)
    }

    pub(crate) fn is_recorded(&self, mark: Mark) -> bool {
        self.recorded() == Some(mark)
    }

    /// Returns the last mark that a backup was recorded with.
    pub(crate) fn recorded(&self) -> Option<Mark> {
        self.state().recorded
    }

    pub(crate) fn note_recorded(&self, mark: Mark) {
        let mut state = self.state();
        // Another backup may have ended meanwhile, and the log then begins behind that one.
        if state.recorded.is_none_or(|last| last.place <= mark.place) {
            state.recorded = Some(mark);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn continue_with(&self, log: LocalLog) -> Result<(), Error> {
        // A restored or imported store has runs, though its log begins at 0.
        let is_restored = log.has_more && log.begin == 0 && log.blocks.is_empty();
        let goes_on = || !self.is_given_up();
        // Before the claim: a standby would continue the claimed log, which is empty, as the store.
        if is_restored || ((log.has_more || log.begin > 0) && (self.find)(&goes_on)?.is_none()) {
            return Err(Error::NeedsBackup);
        }
        let mut history = History::default();
        let (shipper, opened) = (self.start)(StoreId(log.store), &goes_on, &mut |found| history.find(found))?;
        let shipper = Arc::new(shipper);
        self.note_takeover(&opened);
        let here = links(Link { lsn: log.begin, sum: log.sum }, &log.blocks);
        let missing = missing(&log, &here, &history)?;
        let mut state = self.state();
        state.shipper = Some(shipper.clone());
        if self.is_given_up() {
            return Err(Error::GivenUp);
        }
        drop(state);
        let mut last = 0;
        for block in &log.blocks[missing..] {
            last = shipper.ship(block.begin, block.end, &block.bytes)?;
        }
        shipper.flush();
        shipper.wait(last)
    }
}

impl Mirror for Replica {
    fn open(&self, log: LocalLog) -> Result<(), String> {
        self.continue_with(log).map_err(|error| {
            let (mut state, why) = (self.state(), error.to_string());
            (state.shipper, state.refusal) = (None, Some(error));
            why
        })
    }

    fn start(&self, handle: MirrorHandle) {
        self.shipper().expect("the store was opened").report_to(handle);
    }

    fn take(&self, blocks: Vec<SealedBlock>) {
        let Some(shipper) = self.shipper() else { return };
        for SealedBlock { begin, end, bytes, .. } in blocks {
            if shipper.ship_now(begin, end, bytes).is_err() {
                // The shipper reports its end by itself.
                return;
            }
        }
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replica({:?})", self.status())
    }
}

/// What a takeover found of the store's history.
#[derive(Default)]
struct History {
    /// The links of its blocks, from the begin of the first one on.
    links: Vec<Link>,
    /// The backup that precedes the blocks.
    backup: Option<u64>,
    /// The blocks, if they are wanted: they may need much memory.
    blocks: Option<Vec<SealedBlock>>,
}

impl History {
    fn with_blocks() -> Self {
        Self { blocks: Some(Vec::new()), ..Self::default() }
    }

    fn find(&mut self, found: Found<Bytes>) -> Result<(), Error> {
        match found {
            Found::Begin(record) => {
                (self.links, self.backup) = (Vec::new(), record.map(|record| record.backup));
                self.blocks.iter_mut().for_each(Vec::clear);
            }
            Found::Object(object) => {
                for block in sealed(&object)? {
                    if self.links.is_empty() {
                        self.links.push(Link { lsn: block.begin, sum: block.previous });
                    }
                    self.links.push(Link { lsn: block.end, sum: block.sum });
                    self.blocks.iter_mut().for_each(|blocks| blocks.push(block.clone()));
                }
            }
        }
        Ok(())
    }
}

fn links(begin: Link, blocks: &[SealedBlock]) -> Vec<Link> {
    let ends = blocks.iter().map(|block| Link { lsn: block.end, sum: block.sum });
    [begin].into_iter().chain(ends).collect()
}

/// Returns the number of the first local block that the log lacks.
///
/// A link stands for all of the history before it. So if the end of the log is a link of the local
/// file, no other owner has left a block in the log since this file was open, and its blocks behind
/// that end may follow, in whatever mode it was open: a commit that nobody was told about may still
/// count.
fn missing(log: &LocalLog, here: &[Link], history: &History) -> Result<usize, Error> {
    let there = &history.links;
    let nobody_else = Some(Drawn(0));
    let local = Local { links: here, drawn: nobody_else };
    let remote = Remote { links: there, last_writer: nobody_else };
    let end = here.last().expect("a log has a begin").lsn;
    let begin = there.first().map_or(0, |first| first.lsn);
    match reconcile(Mode::Local, local, remote) {
        // What was appended without the log is trimmed from the ring.
        Plan::Diverged { from: 0 } if there.last().is_some_and(|last| last.lsn < log.begin) => {
            Err(Error::NeedsBackup)
        }
        Plan::Diverged { from: 0 } if history.backup.is_some() && end <= begin => {
            Err(Error::Outdated { end, begin })
        }
        _ if there.is_empty() && (log.begin > 0 || log.has_more || history.backup.is_some()) => {
            Err(Error::NeedsBackup)
        }
        Plan::CatchUp { .. } => Err(Error::Behind { end, log: there.last().map_or(0, |last| last.lsn) }),
        Plan::Diverged { from } | Plan::Drop { to: from } => Err(Error::Diverged { from, end }),
        Plan::Same | Plan::Ship { .. } => {
            let common = here.iter().rposition(|link| Some(link) == there.last());
            Ok(common.unwrap_or_default())
        }
    }
}
