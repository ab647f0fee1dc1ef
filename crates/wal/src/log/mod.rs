//! The standalone log: a volume, its label, and records in order.
//!
//! A [`Log`] is the engine ([`Wal`]) and the store of its label. A log adds no step to an append.
//!
//! Invariants:
//! - The label is durable before anything depends on it: an epoch before its first block, a trim
//!   before the ring is freed, a map before the first block placed by it.
//! - `label_store` is locked during every change of the label, so that trims, resizes and closing
//!   follow one another.
//! - The index records a trim before the ring does: while the index is locked, the ring holds every
//!   block that the index names.

mod error;
mod index;
mod label;
mod label_store;
mod open;
mod options;
mod reader;
mod record;
mod resize;

use std::fmt;
use std::mem;
use std::sync::{Arc, PoisonError};

use brooklet_io::seeded::bug;
use brooklet_io::tether::Tether;
use brooklet_io::{Volume, VolumeInfo};

pub use error::LogError;
pub use options::LogOptions;
pub use reader::Reader;

use self::index::Tracker;
use self::label::{Label, SCRATCH};
use self::label_store::LabelStore;
use self::open::Found;
use crate::ack::Ack;
use crate::committer::{Committer, Pause};
use crate::core::{Appended, WalStats};
use crate::error::WalError;
use crate::map::Layout;
use crate::seal::Pool;
use crate::secure::secure;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Mutex, MutexGuard};
use crate::wal::{Opening, Wal};

/// Log sequence number: identifies a record, and orders the records. LSNs grow with every record,
/// by different steps.
///
/// After a crash, the log may reuse the LSN of a record that was not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A write-ahead log on its own volume.
///
/// A log owns its volume: creating, growing and shrinking change the space behind the ring.
///
/// All methods take `&self`: threads share a log by reference or [`Arc`]. One process at a time may
/// have a volume open; a [`FileVolume`](brooklet_io::FileVolume) enforces that itself.
///
/// Dropping a log makes all appended records durable and ends the log's thread, but does not
/// [`close`](Self::close) the log: the next opening reads the whole ring, as after a crash. Only
/// callers that wait for an acknowledgement see an error of the device.
///
/// Callbacks may use the log like any thread, and may close and drop it: see
/// [`Ack`](crate::Ack#where-code-of-yours-runs). A panic in the log's thread, or in the volume,
/// stops the log like a failed write.
///
/// In a process that did not open the log, after a `fork`, every call fails with
/// [`WalError::Forked`], and calls without an error type panic. Nothing is written there, and
/// dropping the log does nothing. A child process keeps the file of a
/// [`FileVolume`](brooklet_io::FileVolume) locked, even after its parent has ended, until the child
/// ends or runs another program.
pub struct Log {
    wal: Wal,
    volume: Arc<dyn Volume>,
    options: LogOptions,
    id: u128,
    epoch: u64,
    /// Layout of the ring at the opening.
    base: Layout,
    tracker: Arc<Tracker>,
    label_store: Mutex<LabelStore>,
    driver: Mutex<Driver>,
}

/// The driver of appends that no thread waits for.
enum Driver {
    Thread(JoinHandle<()>),
    Stepped(Box<Committer>),
    Ended,
}

/// The state of a log, and its counters since the opening.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogStats {
    /// The engine's counters, and the use of the ring. Each batch counts as one record.
    pub ring: WalStats,
    /// LSN of the first kept record.
    pub first: Lsn,
    /// LSN behind the last durable record.
    pub durable: Lsn,
    /// LSN of the next record.
    pub next: Lsn,
    /// Number of times the log was opened.
    pub epoch: u64,
    /// Whether records from before the last resize still occupy the ring's old space.
    pub settling: bool,
    /// Description of the volume.
    pub volume: VolumeInfo,
}

impl Log {
    /// Creates an empty log on a volume, and opens it. The volume grows to the size that the log
    /// needs: 64 KiB and the ring, which is written once with zeros.
    ///
    /// # Errors
    /// [`LogError::NotBlank`] if the volume is not blank, [`LogError::Invalid`] for options that no
    /// log can have.
    pub fn create(volume: Arc<dyn Volume>, options: LogOptions) -> Result<Self, LogError> {
        open::create(&*volume, &options)?;
        // `create` has just set the identity.
        Self::open(volume, options)
    }

    /// Opens the log on a volume: reads and checks its ring once, to find the end, and records the
    /// opening.
    ///
    /// Recovers every acknowledged record, or returns an error. Unacknowledged records may be
    /// recovered, in order and without gaps, or not.
    ///
    /// # Errors
    /// [`WalError::Damaged`] if acknowledged records do not read back; [`LogError::NotALog`],
    /// [`LogError::Foreign`], [`LogError::CutShort`], [`LogError::NewerFormat`] and
    /// [`LogError::DamagedLabel`] for a wrong or damaged volume. Nothing is written then.
    pub fn open(volume: Arc<dyn Volume>, options: LogOptions) -> Result<Self, LogError> {
        options.check()?;
        // The volume may be the user's own type, and may panic.
        let volume: Arc<dyn Volume> = Tether::new(volume);
        // A killed process may have left bytes in a volatile cache: they read back, but may not be
        // on the medium.
        if !bug("log-opens-without-flush") {
            volume.flush()?;
        }
        let mut on_volume = open::read_label(&*volume, &options)?;
        let Found { start, recovery, index, settles } = open::walk(&*volume, &on_volume.label)?;
        open::fill_holes(&*volume, &on_volume.label)?;
        let old = on_volume.label;
        if !bug("log-opens-without-flush") {
            secure(&*volume, old.layout(), start, &recovery)?;
        }
        let (acked, epoch) = (recovery.next.seq - 1, old.epoch + u64::from(!bug("log-epoch-stays")));
        let clean = bug("open-log-says-clean");
        let label = Label { generation: old.generation + 1, epoch, acked, clean, ..old };
        on_volume.write_both(&*volume, label)?;
        volume.tune(SCRATCH)?;

        let limits = options.limits(label.map.current.size);
        let pool = Pool::new(limits.block_size);
        let tracker = Arc::new(Tracker::new(index));
        let wal = Wal::open_in(
            volume.clone(),
            label.layout(),
            (options.config, limits, pool),
            Opening { tail: label.trim.position, next: recovery.next, epoch: label.epoch },
            options.clock.clone(),
            tracker.clone(),
        );
        let committer = Committer::new(&wal)?;
        let driver = if options.threads {
            let thread = Builder::new().name("brooklet-log".into());
            Driver::Thread(thread.spawn(move || committer.run())?)
        } else {
            Driver::Stepped(Box::new(committer))
        };
        let label_store = Mutex::new(LabelStore { on_volume, settles });
        let (id, epoch, base, driver) = (label.id, label.epoch, label.layout(), Mutex::new(driver));
        Ok(Self { wal, volume, options, id, epoch, base, tracker, label_store, driver })
    }

    /// Appends a record. If the ring is full, waits until something is [trimmed](Self::trim). The
    /// [`Ack`] resolves when the record is durable; that happens within the linger even if nobody
    /// waits.
    ///
    /// # Errors
    /// [`WalError::TooLarge`], [`WalError::Stopped`] and [`WalError::Closed`];
    /// [`WalError::WouldWait`] if the call would have to wait in a waker. Nothing was appended.
    pub fn append(&self, record: &[u8]) -> Result<(Lsn, Ack), WalError> {
        self.patiently(|| self.try_append(record))
    }

    /// Appends a record if there is room now.
    ///
    /// # Errors
    /// [`WalError::Full`] if the ring has no room before a trim; [`WalError::Busy`] if too many
    /// blocks wait to be written, or during a resize; and the errors of [`append`](Self::append).
    /// Nothing was appended.
    pub fn try_append(&self, record: &[u8]) -> Result<(Lsn, Ack), WalError> {
        self.appended(record.len(), self.wal.try_append_slice(&[record::ONE], record))
    }

    /// Appends records as one batch: after a crash, all of them are recovered, or none. Waits for
    /// room as [`append`](Self::append) does. The returned LSN is that of the first record; each
    /// further record has an LSN one greater than the record before. The [`Ack`] of an empty batch
    /// acknowledges all earlier records.
    ///
    /// # Errors
    /// The same errors as [`append`](Self::append); the size limit applies to the whole batch.
    pub fn append_batch(&self, records: &[&[u8]]) -> Result<(Lsn, Ack), WalError> {
        self.patiently(|| self.try_append_batch(records))
    }

    /// Appends a batch if there is room now.
    ///
    /// # Errors
    /// The same errors as [`try_append`](Self::try_append); the size limit applies to the whole
    /// batch.
    pub fn try_append_batch(&self, records: &[&[u8]]) -> Result<(Lsn, Ack), WalError> {
        let len = record::batch_len(records).unwrap_or(usize::MAX);
        let linger = self.options.config.linger;
        let appended = self.wal.try_append(len, false, linger, |out| record::encode_batch(out, records));
        self.appended(len - record::KIND, appended)
    }

    /// Makes every record appended before the call durable.
    ///
    /// # Errors
    /// [`WalError::Stopped`] if a write failed.
    pub fn flush(&self) -> Result<(), WalError> {
        self.wal.here()?;
        self.run_committer();
        self.wal.flush()
    }

    /// Returns the records from the trim point to the current durable end, in order. Appends and
    /// trims continue meanwhile; a trim of unread records may end the reader with
    /// [`LogError::Trimmed`].
    pub fn recover(&self) -> Reader<'_> {
        if self.wal.here().is_err() {
            return Reader::refusing(self);
        }
        let index = self.tracker.lock();
        let first = index.first();
        Reader::new(self, self.layout(), (index.locate(first), index.end()), first)
    }

    /// Returns the records like [`recover`](Self::recover), from the first record at or behind
    /// `lsn`.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] and [`LogError::PastEnd`] if `lsn` is outside the kept records.
    pub fn read_from(&self, lsn: Lsn) -> Result<Reader<'_>, LogError> {
        self.wal.here()?;
        let next = self.next();
        let index = self.tracker.lock();
        let first = index.first();
        if lsn < first {
            return Err(LogError::Trimmed { lsn, first });
        }
        if lsn > next {
            return Err(LogError::PastEnd { lsn, end: next });
        }
        Ok(Reader::new(self, self.layout(), (index.locate(lsn), index.end()), lsn))
    }

    /// Closes the log: makes all appended records durable, refuses later ones, and records the end
    /// of the log, so that the next opening need not search behind it. When the call returns, every
    /// callback has been called. If a callback makes this call, the callbacks behind that one are
    /// called later.
    ///
    /// # Errors
    /// [`WalError::Stopped`] if a write failed, [`WalError::Closed`] if the log was closed already,
    /// [`WalError::WouldWait`] in a waker.
    pub fn close(&self) -> Result<(), LogError> {
        // A thread that holds the label store may be waiting for the committer.
        self.wal.may_wait()?;
        let closed = self.end();
        self.wal.join_callbacks();
        closed
    }

    fn end(&self) -> Result<(), LogError> {
        let _hush = self.wal.hush();
        let mut label_store = self.label_store();
        self.run_committer();
        let end = self.wal.end()?;
        self.join();
        let old = label_store.on_volume.label;
        let label = Label { generation: old.generation + 1, acked: end.seq - 1, clean: true, ..old };
        label_store.on_volume.write_both(&*self.volume, label)?;
        Ok(())
    }

    /// Ends the log as a killed process would: nothing more is written, and records that are not
    /// durable fail.
    pub fn abandon(self) {
        self.wal.abandon();
    }

    /// Does the work that the committer thread would do now, if the options forbid that thread.
    /// Returns the event that it would wait for. Before waiting for an acknowledgement, call this
    /// until it returns [`Pause::Sleep`].
    pub fn step(&self) -> Pause {
        let _hush = self.wal.hush();
        match &mut *self.driver() {
            Driver::Stepped(committer) => committer.step(),
            Driver::Thread(_) | Driver::Ended => Pause::Ended,
        }
    }

    /// Returns the LSN of the first kept record: the trim point of the log.
    pub fn first(&self) -> Lsn {
        self.tracker.lock().first()
    }

    /// Returns the LSN of the next record.
    pub fn next(&self) -> Lsn {
        Lsn(self.wal.next_lsn())
    }

    /// Returns the size of the largest record that the ring takes now, in bytes.
    pub fn largest_record(&self) -> usize {
        self.options.limits(self.wal.stats().size).max_record - record::KIND
    }

    /// Returns the identity of the log, drawn when it was created.
    pub fn identity(&self) -> u128 {
        self.id
    }

    /// Returns the state and the counters of the log.
    pub fn stats(&self) -> LogStats {
        // The label store is not locked here: its holder may be waiting for a device that hangs.
        let (epoch, settling) = (self.epoch, self.wal.map().before.is_some());
        let index = self.tracker.lock();
        let (first, durable) = (index.first(), Lsn(index.end().lsn));
        drop(index);
        let (next, ring) = (self.next(), self.wal.stats());
        LogStats { ring, first, durable, next, epoch, settling, volume: self.volume.info() }
    }

    fn patiently<T>(&self, attempt: impl FnMut() -> Result<T, WalError>) -> Result<T, WalError> {
        // Without a committer thread, only this thread can complete the work that the committer has
        // begun.
        self.wal.patiently(|| self.run_committer(), attempt)
    }

    /// Returns the result of appending a record of `len` bytes, without its kind byte.
    fn appended(&self, len: usize, appended: Result<Appended, WalError>) -> Result<(Lsn, Ack), WalError> {
        match appended {
            Ok(appended) => Ok((Lsn(appended.lsn), self.wal.ack(appended.block))),
            Err(WalError::TooLarge { limit, .. }) => {
                Err(WalError::TooLarge { len, limit: limit - record::KIND })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the current layout of the ring. Call it with the index locked: then the layout
    /// covers every block that the index names.
    fn layout(&self) -> Layout {
        let map = self.wal.map();
        Layout { map, ..self.base }
    }

    fn volume(&self) -> &dyn Volume {
        &*self.volume
    }

    fn check(&self) -> Result<(), WalError> {
        self.wal.failure().map_or(Ok(()), Err)
    }

    fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the work of a committer without a thread, before this thread waits for it.
    fn run_committer(&self) {
        if !self.options.threads {
            while matches!(self.step(), Pause::None | Pause::Write(_)) {}
        }
    }

    /// Waits until the committer of an ended log ends.
    fn join(&self) {
        let driver = mem::replace(&mut *self.driver(), Driver::Ended);
        if let Driver::Thread(thread) = driver
            && thread.join().is_err()
        {
            tracing::error!("the committer of a log panicked");
        }
    }
}

/// Makes the records of a dropped log durable.
fn end_dropped(wal: &Wal) {
    if let Err(error) = wal.close() {
        tracing::warn!(%error, "a log stopped while it was dropped");
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        match self.check() {
            Ok(()) if self.wal.is_committer() => {
                // The last handle was dropped in a waker, which may not wait: another thread closes
                // the log.
                let wal = self.wal.clone();
                let closer = Builder::new().name("brooklet-close".into()).spawn(move || end_dropped(&wal));
                drop(closer.inspect_err(
                    |error| tracing::error!(%error, "the log could not start a thread to close itself"),
                ));
                return;
            }
            Ok(()) => {
                self.run_committer();
                end_dropped(&self.wal);
            }
            Err(WalError::Closed) => {}
            Err(WalError::Forked) => {
                // The thread does not exist in this process, and shared state is as it was at the
                // fork: so nothing is ended, closed or freed.
                let driver = self.driver.get_mut().unwrap_or_else(PoisonError::into_inner);
                mem::forget(mem::replace(driver, Driver::Ended));
                mem::forget((self.wal.clone(), self.volume.clone(), self.tracker.clone()));
                return;
            }
            Err(error) => tracing::warn!(%error, "a log was dropped after it had stopped"),
        }
        self.join();
        self.wal.join_callbacks();
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({:?})", self.wal)
    }
}
