//! A thread that appends a store's blocks to a log, as its owner.

mod shipping;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use brooklet::MirrorHandle;
use brooklet::io::system_seed;
use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::cutter::{Cuts, Cutter, LENGTH};
use crate::drive::{Failures, Watch, take_over};
use crate::error::Error;
use crate::journal::Journal;
use crate::machine::owner::{Owner, OwnerLimits};
use crate::machine::recorder::Recorder;
use crate::machine::takeover::{Found, Opened, Takeover, TakeoverLimits};
use crate::machine::{Reply, Request};
use crate::place::{Drawn, Epoch, Mark, StoreId};
use crate::standby::while_it;
use shipping::Shipping;

/// Longest time between two looks at the clock.
const TICK: Duration = Duration::from_millis(50);

/// Settings of a [`Shipper`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShipperOptions {
    /// Name of this host, for people.
    pub owner: String,
    /// Address of this host, for clients and followers.
    pub address: String,
    /// When objects are cut.
    pub cuts: Cuts,
    /// Most bytes of blocks that are not kept; above it, [`Shipper::ship`] waits.
    pub waiting: usize,
    /// Bounds of the owner.
    pub limits: OwnerLimits,
    /// Bounds of the takeover.
    pub takeover: TakeoverLimits,
}

impl Default for ShipperOptions {
    fn default() -> Self {
        Self {
            owner: String::new(),
            address: String::new(),
            cuts: Cuts::default(),
            waiting: 64 << 20,
            limits: OwnerLimits::default(),
            takeover: TakeoverLimits::default(),
        }
    }
}

/// The state of a shipper.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShipperStatus {
    /// The end of the kept objects: everything before it survives this host.
    pub kept: Mark,
    /// Number of the shipped blocks that are kept, these with the lowest numbers.
    pub kept_blocks: u64,
    /// Bytes of blocks that are not known to be kept.
    pub waiting: usize,
    /// Whether a read that has ended is linearizable; see [`Shipper::may_serve`].
    pub may_serve: bool,
    /// Number of the newest record that is known.
    pub record: Option<u64>,
    /// Whether a record, or the trim after it, is under way.
    pub is_recording: bool,
    /// Number of objects that were sent, without the retries of the client library.
    pub puts: u64,
    /// Number of payloads that were cut.
    pub cuts: u64,
    /// Bytes of these payloads.
    pub bytes: u64,
    /// Bytes of the payloads that the opening found, behind the newest record.
    pub found: u64,
    /// Number of the objects that the opening found there.
    pub found_objects: u64,
    /// The last point that [`record`](Shipper::record) may name so that a block stays behind it:
    /// the next opening compares the blocks there with those of the local file. `None` until a
    /// block is kept.
    pub recordable: Option<Mark>,
    /// The last failure of a request, as text, until a request succeeds.
    pub failure: Option<String>,
}

/// Appends blocks to the log of a store, in a thread of its own; see [`open`](Self::open).
#[derive(Debug)]
pub struct Shipper {
    inputs: UnboundedSender<Input>,
    shared: Arc<Shared>,
    waiting: usize,
    /// The runtime, if it is the shipper's own, until this is dropped.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
enum Input {
    Block { begin: u64, end: u64, block: Bytes },
    Flush,
    Record { mark: Mark, backup: u64 },
    HandOver(Bytes),
    GiveUp,
    Reply(Request<Bytes>, Result<Reply<Bytes>, String>),
    Fatal(Error),
}

#[derive(Debug)]
struct Shared {
    status: Mutex<Status>,
    changed: Condvar,
    /// The log to notify of kept blocks, besides the callers that wait here.
    mirror: OnceLock<Mirrored>,
    watch: Watch,
    /// End of the owner's lease, in nanoseconds of the watch. 0: there is no lease.
    lease: AtomicU64,
}

/// A log that takes reports.
#[derive(Debug)]
struct Mirrored {
    handle: MirrorHandle,
    /// Number of blocks that were shipped before the log passed its first one.
    before: u64,
}

#[derive(Debug)]
struct Status {
    told: ShipperStatus,
    /// End of the last block that was shipped, and its number.
    next: u64,
    shipped: u64,
    /// Number of calls of [`Shipper::record`].
    records: u64,
    end: Option<Ended>,
}

#[derive(Clone, Debug)]
enum Ended {
    Fenced(Epoch),
    HandedOver(String),
    Failed(Arc<Error>),
}

/// Draws a number that nobody else draws.
pub(crate) fn draw() -> Drawn {
    Drawn((u128::from(system_seed()) << 64) | u128::from(system_seed()))
}

impl Shipper {
    /// Claims a store's log, fences its last owner, hands over all blocks that were found, and
    /// begins to append. After a [`Found::Begin`], drop all blocks that were handed over before it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use brooklet_archive::Bucket;
    /// use brooklet_replica::{BucketJournal, Found, Shipper, ShipperOptions, StoreId, blocks};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let address = dir.path().to_str().unwrap();
    /// let journal = BucketJournal::new(&Bucket::open(address)?);           // such as s3://bucket/path
    /// let (shipper, _) = Shipper::open(journal.clone(), StoreId(7), ShipperOptions::default(), |_| Ok(()))?;
    /// let number = shipper.ship(0, 5, b"block")?;
    /// shipper.wait(number)?;                                                // now it survives this host
    ///
    /// // Another host takes over. The first one can append no more.
    /// let mut found = Vec::new();
    /// let (_other, opened) = Shipper::open(journal, StoreId(7), ShipperOptions::default(), |it| {
    ///     match it {
    ///         Found::Begin(_) => found.clear(),
    ///         Found::Object(object) => found.extend(blocks(&object.payload).unwrap()),
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!((opened.end.lsn, &found[0][..]), (5, &b"block"[..]));
    /// let late = shipper.ship(5, 9, b"late").and_then(|number| shipper.wait(number));
    /// assert!(late.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`take_over`]; [`Error::Thread`].
    pub fn open<J: Journal>(
        journal: J,
        store: StoreId,
        options: ShipperOptions,
        found: impl FnMut(Found<Bytes>) -> Result<(), Error>,
    ) -> Result<(Self, Opened), Error> {
        Self::open_while(journal, store, options, found, &|| true)
    }

    /// Does what [`open`](Self::open) does, while `goes_on` returns true. Ends with
    /// [`Error::GivenUp`] after that.
    pub(crate) fn open_while<J: Journal>(
        journal: J,
        store: StoreId,
        options: ShipperOptions,
        found: impl FnMut(Found<Bytes>) -> Result<(), Error>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(Self, Opened), Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("brooklet-replica")
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        let opening = while_it(Self::start(journal, store, options, found), goes_on);
        match runtime.block_on(opening).unwrap_or(Err(Error::GivenUp)) {
            Ok((mut shipper, opened)) => {
                shipper.runtime = Some(runtime);
                Ok((shipper, opened))
            }
            Err(error) => {
                // A request may hang.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Does what [`open`](Self::open) does, in the tokio runtime of the caller.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub async fn start<J: Journal>(
        journal: J,
        store: StoreId,
        options: ShipperOptions,
        mut found: impl FnMut(Found<Bytes>) -> Result<(), Error>,
    ) -> Result<(Self, Opened), Error> {
        let journal = Arc::new(journal);
        let takeover = Takeover::new(store, draw(), &options.owner, &options.address, options.takeover);
        let (mut found_bytes, mut found_objects) = (0, 0);
        let counted = |it: Found<Bytes>| {
            match &it {
                Found::Begin(_) => (found_bytes, found_objects) = (0, 0),
                Found::Object(object) => {
                    found_bytes += object.payload.len() as u64;
                    found_objects += 1;
                }
            }
            found(it)
        };
        let opened = take_over(&journal, store, takeover, counted).await?;
        let (inputs, received) = unbounded_channel();
        let watch = Watch::start();
        let owner = Owner::new(opened.writer, opened.end, options.limits, watch.now());
        let told = ShipperStatus {
            kept: owner.kept(),
            kept_blocks: 0,
            waiting: 0,
            may_serve: false,
            record: opened.record,
            is_recording: false,
            puts: 0,
            cuts: 0,
            bytes: 0,
            found: found_bytes,
            found_objects,
            recordable: None,
            failure: None,
        };
        let shared = Arc::new(Shared {
            status: Mutex::new(Status { told, next: opened.end.lsn, shipped: 0, records: 0, end: None }),
            changed: Condvar::new(),
            mirror: OnceLock::new(),
            watch,
            lease: AtomicU64::new(0),
        });
        let shipping = Shipping {
            journal,
            store,
            owner,
            recorder: Recorder::new(&opened),
            cutter: Cutter::new(options.cuts),
            records: None,
            records_taken: 0,
            failures: Failures::of("the owner of the log"),
            removals: Failures::of("the trim of the log"),
            replies: inputs.clone(),
            shared: shared.clone(),
            watch,
        };
        tokio::spawn(shipping.run(received));
        Ok((Self { inputs, shared, waiting: options.waiting, runtime: None }, opened))
    }

    /// Appends a sealed block, from `begin` to `end` of the store's log. Waits while too many bytes
    /// are not kept. Returns the number of the block: the first block of a shipper has number 1.
    ///
    /// # Panics
    /// Panics if the block begins before the end of the last one, or ends before it begins.
    ///
    /// # Errors
    /// [`Error::Fenced`], or the error that ended the shipping.
    pub fn ship(&self, begin: u64, end: u64, block: &[u8]) -> Result<u64, Error> {
        let bytes = block.len() + LENGTH;
        let full = |status: &Status| status.told.waiting > 0 && status.told.waiting + bytes > self.waiting;
        let status = self.wait_while(full)?;
        self.push(status, begin, end, Bytes::copy_from_slice(block))
    }

    /// Appends a sealed block like [`ship`](Self::ship), without waiting: the caller bounds the
    /// bytes that are not kept.
    ///
    /// # Panics
    /// As for [`ship`](Self::ship).
    ///
    /// # Errors
    /// As for [`ship`](Self::ship).
    pub fn ship_now(&self, begin: u64, end: u64, block: Bytes) -> Result<u64, Error> {
        self.push(self.lock(), begin, end, block)
    }

    fn push(
        &self,
        mut status: MutexGuard<'_, Status>,
        begin: u64,
        end: u64,
        block: Bytes,
    ) -> Result<u64, Error> {
        if let Some(end) = &status.end {
            return Err(end.error());
        }
        assert!(status.next <= begin && begin <= end, "block {begin}..{end} comes after {}", status.next);
        (status.next, status.shipped) = (end, status.shipped + 1);
        let number = status.shipped;
        status.told.waiting += block.len() + LENGTH;
        self.input(Input::Block { begin, end, block });
        Ok(number)
    }

    /// Reports from now on to the log of a store how many of its blocks are kept, and why the
    /// shipping ended. The blocks of that log are those that are shipped from now on.
    pub(crate) fn report_to(&self, handle: MirrorHandle) {
        let mirror = Mirrored { handle, before: self.lock().shipped };
        assert!(self.shared.mirror.set(mirror).is_ok(), "a shipper reports to one log");
        self.shared.report();
    }

    /// Cuts objects of the blocks so far, without waiting for the next cut.
    pub fn flush(&self) {
        self.input(Input::Flush);
    }

    /// Waits until the block of a number, as [`ship`](Self::ship) returned it, and all blocks
    /// before it are kept. An empty block ends where the block before it ends: so a position in the
    /// log would not do.
    ///
    /// # Errors
    /// [`Error::Fenced`], [`Error::HandedOver`], or the error that ended the shipping. Then the
    /// blocks may be in the log, or not: the next takeover finds out.
    pub fn wait(&self, number: u64) -> Result<(), Error> {
        self.wait_while(|status| status.told.kept_blocks < number).map(drop)
    }

    /// Waits until all blocks that were shipped are kept, without waiting for the next cut. Returns
    /// `false` if `goes_on` returned false meanwhile.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn drain(&self, goes_on: impl Fn() -> bool) -> Result<bool, Error> {
        loop {
            // The caller may ask for the status.
            let goes_on = goes_on();
            self.flush();
            let status = self.lock();
            match &status.end {
                _ if status.told.kept_blocks >= status.shipped => return Ok(true),
                Some(end) => return Err(end.error()),
                None if !goes_on => return Ok(false),
                None => drop(self.shared.changed.wait_timeout(status, TICK)),
            }
        }
    }

    /// Returns the state of the shipper.
    pub fn status(&self) -> ShipperStatus {
        let mut status = self.lock().told.clone();
        status.may_serve = self.may_serve();
        status
    }

    /// Returns whether a read of the store that ended before this call is linearizable: whether no
    /// other owner can have acknowledged a commit before the read began. If not, ask again before
    /// you answer: an answer of `true` counts for all reads that ended before it.
    ///
    /// An owner has this lease for [`OwnerLimits::lease`] from the begin of the last request that
    /// the bucket confirmed. Standbys wait longer than that before they take the store over. A host
    /// that takes it over without such a wait must let the lease end before it serves. The lease
    /// needs a clock that goes on while the process sleeps.
    pub fn may_serve(&self) -> bool {
        let lease = Duration::from_nanos(self.shared.lease.load(Ordering::Acquire));
        self.shared.watch.now() < lease
    }

    /// Returns why the shipping ended, or `None` while it goes on.
    pub fn error(&self) -> Option<Error> {
        self.lock().end.as_ref().map(Ended::error)
    }

    /// Records that the durable backup `backup` has everything before `mark`, and trims the log
    /// below. Returns at once; while an earlier record is under way, only the call with the latest
    /// mark counts. A call has no effect if the log begins behind `mark` already.
    ///
    /// `mark` is one that [`status`](Self::status) returned: for the log of a store,
    /// [`recordable`](ShipperStatus::recordable). [`kept`](ShipperStatus::kept) leaves no block
    /// behind it until the next one is appended: meanwhile an opening of the store cannot compare
    /// the two histories, and ends with [`Error::NeedsBackup`].
    pub fn record(&self, mark: Mark, backup: u64) {
        let mut status = self.lock();
        (status.told.is_recording, status.records) = (true, status.records + 1);
        drop(status);
        self.input(Input::Record { mark, backup });
    }

    /// Leaves the store to another host: appends all blocks so far, then a handover. Once the
    /// handover is kept, the shipping ends with [`Error::HandedOver`], for later blocks, too.
    ///
    /// A store whose log this is acknowledges nothing more then. So close the store first: the log
    /// then ends with the store's last block, and the other host continues there.
    pub fn hand_over(&self, to: &str) {
        self.input(Input::HandOver(Bytes::copy_from_slice(to.as_bytes())));
    }

    /// Ends the shipping. Requests that were sent may still have their effect.
    pub fn give_up(&self) {
        self.input(Input::GiveUp);
    }

    fn input(&self, input: Input) {
        // If the shipping has ended, nobody needs it.
        let _ = self.inputs.send(input);
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, wait: impl Fn(&Status) -> bool) -> Result<MutexGuard<'_, Status>, Error> {
        let waits = |status: &mut Status| status.end.is_none() && wait(status);
        let status =
            self.shared.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        match &status.end {
            Some(end) if wait(&status) => Err(end.error()),
            _ => Ok(status),
        }
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        // The store whose log this is has gone, too: nobody needs to learn of this end.
        self.lock().end.get_or_insert_with(|| Ended::Failed(Arc::new(Error::GivenUp)));
        self.give_up();
        // It may be dropped where blocking is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Ended {
    fn error(&self) -> Error {
        match self {
            Self::Fenced(by) => Error::Fenced { by: *by },
            Self::HandedOver(to) => Error::HandedOver { to: to.clone() },
            Self::Failed(error) => Error::Ended(error.clone()),
        }
    }
}

impl Shared {
    /// Reports the state of the shipping to the log that it serves, if any.
    fn report(&self) {
        let Some(Mirrored { handle, before }) = self.mirror.get() else { return };
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, end) = (status.told.kept_blocks, status.end.as_ref().map(Ended::error));
        drop(status);
        handle.kept(kept.saturating_sub(*before));
        if let Some(end) = end {
            handle.end(&end.to_string());
        }
    }

    /// Records how the shipping ended, unless it has ended before, and leaves nobody waiting.
    fn end(&self, end: Ended) {
        self.lease.store(0, Ordering::Release);
        let mut first = false;
        self.update(|status| {
            first = status.end.is_none();
            status.end.get_or_insert(end);
        });
        if first {
            self.report();
        }
    }

    fn update(&self, update: impl FnOnce(&mut Status)) {
        update(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}
