//! The log that stands alone: a volume, its label, and records in order.
//!
//! A [`Log`] is the engine ([`Wal`]) and the store of its label. It adds no step to the way of an
//! append.
//!
//! Invariants:
//! - What the label says is durable before anything rests on it: an epoch before its first block, a
//!   trim before the ring is freed, a map before the first block that lies by it.
//! - `label_store` is held over every change of the label, so that trims, resizes and closing
//!   follow one another.
//! - The index knows of a trim before the ring does, so that whoever holds the index finds in the
//!   ring whatever the index names.

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
use crate::secure::secure_in;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Mutex, MutexGuard};
use crate::wal::{Opening, Wal};

/// Log sequence number: names a record, and orders it among the others. LSNs grow with every
/// record, by different steps.
///
/// That of a record that was not acknowledged when the power went may be given to another later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A write-ahead log on a volume of its own.
///
/// A log has its volume to itself: creating, growing and shrinking change what lies behind the
/// ring.
///
/// All methods take `&self`: share it between threads by reference or [`Arc`]. One process at a
/// time may have a volume open; a [`FileVolume`](brooklet_io::FileVolume) sees to that itself.
///
/// Dropping a log makes what was appended durable and ends its thread, but does not
/// [`close`](Self::close) it: the next opening reads its whole ring, as after a crash. So an error
/// of the device is seen by whoever waits for an acknowledgement, and by nobody else.
///
/// Callbacks may use the log as any thread may, close it and drop it: see
/// [`Ack`](crate::Ack#where-code-of-yours-runs). A panic in its thread, or in the volume, stops the
/// log as a failed write does.
///
/// In a process that did not open it, after a `fork`, every call is refused with
/// [`WalError::Forked`], and those that have no error to give panic; nothing is written, and
/// dropping the log does nothing. A child that goes on keeps the file of a
/// [`FileVolume`](brooklet_io::FileVolume) locked, also when its parent has ended, until it ends or
/// runs another program.
pub struct Log {
    wal: Wal,
    volume: Arc<dyn Volume>,
    options: LogOptions,
    id: u128,
    epoch: u64,
    /// Where the ring lies, as it was at the opening.
    base: Layout,
    tracker: Arc<Tracker>,
    label_store: Mutex<LabelStore>,
    driver: Mutex<Driver>,
}

/// Who serves those who do not wait.
enum Driver {
    Thread(JoinHandle<()>),
    Stepped(Box<Committer>),
    Ended,
}

/// What a log has done since it was opened, and how it stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogStats {
    /// The engine's counters, and how full the ring is. Each batch counts as one record.
    pub ring: WalStats,
    /// LSN of the first record that is kept.
    pub first: Lsn,
    /// LSN behind the last record that is durable.
    pub durable: Lsn,
    /// LSN of the next record.
    pub next: Lsn,
    /// Times the log was opened.
    pub epoch: u64,
    /// Whether records from before the last resize still hold the ring's old space.
    pub settling: bool,
    /// What the volume is and how it works.
    pub volume: VolumeInfo,
}

impl Log {
    /// Makes an empty log on a volume, and opens it. The volume grows to what the log needs: 64 KiB
    /// and the ring, which is written once with zeros.
    ///
    /// # Errors
    /// [`LogError::NotBlank`] where there is something already, [`LogError::Invalid`] for options
    /// that no log can have.
    pub fn create(volume: Arc<dyn Volume>, options: LogOptions) -> Result<Self, LogError> {
        open::create(&*volume, &options)?;
        // It has the identity that it was just given.
        Self::open(volume, options)
    }

    /// Opens the log on a volume: reads and checks its ring once, to find the end, and records the
    /// opening.
    ///
    /// What was acknowledged is there, or it is an error; what was not may be there, in order and
    /// without gaps, or not.
    ///
    /// # Errors
    /// [`WalError::Damaged`] where acknowledged records do not read back; [`LogError::NotALog`],
    /// [`LogError::Foreign`], [`LogError::CutShort`], [`LogError::NewerFormat`] and
    /// [`LogError::DamagedLabel`] for a volume that is not what it should be. Nothing is written
    /// then.
    pub fn open(volume: Arc<dyn Volume>, options: LogOptions) -> Result<Self, LogError> {
        options.check()?;
        // It may be a user's own, and panic.
        let volume: Arc<dyn Volume> = Tether::new(volume);
        // What is read may sit in a volatile cache, written by a process that was killed, or be
        // only there.
        if !bug("log-opens-without-flush") {
            volume.flush()?;
        }
        let mut on_volume = open::read_label(&*volume, &options)?;
        let Found { start, recovery, index, settles } = open::walk(&*volume, &on_volume.label)?;
        open::fill_holes(&*volume, &on_volume.label)?;
        let old = on_volume.label;
        if !bug("log-opens-without-flush") {
            secure_in(&*volume, old.layout(), start, &recovery)?;
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

    /// Appends a record, waiting for room where there is none: until something is
    /// [trimmed](Self::trim), if the ring is full. The record is durable once the [`Ack`] says so,
    /// and within the linger even if nobody asks.
    ///
    /// # Errors
    /// [`WalError::TooLarge`], [`WalError::Stopped`] and [`WalError::Closed`];
    /// [`WalError::WouldWait`] where it would have to wait in a waker. Nothing was taken.
    pub fn append(&self, record: &[u8]) -> Result<(Lsn, Ack), WalError> {
        self.patiently(|| self.try_append(record))
    }

    /// Appends a record where there is room.
    ///
    /// # Errors
    /// [`WalError::Full`] where the ring has no room before something is trimmed,
    /// [`WalError::Busy`] where too much waits to be written, or a resize is under way, and what
    /// [`append`](Self::append) says; nothing was taken.
    pub fn try_append(&self, record: &[u8]) -> Result<(Lsn, Ack), WalError> {
        self.appended(record.len(), self.wal.try_append_slice(&[record::ONE], record))
    }

    /// Appends records that are there together after a crash, or not at all; waits for room as
    /// [`append`](Self::append) does. The first gets the LSN that is returned, and each of the
    /// others one more than the one before it. A batch of none is an acknowledgement of all that
    /// came before it.
    ///
    /// # Errors
    /// As for [`append`](Self::append); the limit holds for the batch as a whole.
    pub fn append_batch(&self, records: &[&[u8]]) -> Result<(Lsn, Ack), WalError> {
        self.patiently(|| self.try_append_batch(records))
    }

    /// Appends a batch where there is room.
    ///
    /// # Errors
    /// As for [`try_append`](Self::try_append); the limit holds for the batch as a whole.
    pub fn try_append_batch(&self, records: &[&[u8]]) -> Result<(Lsn, Ack), WalError> {
        let len = record::batch_len(records).unwrap_or(usize::MAX);
        let linger = self.options.config.linger;
        let appended = self.wal.try_append(len, false, linger, |out| record::encode_batch(out, records));
        self.appended(len - record::KIND, appended)
    }

    /// Makes every record appended before the call durable.
    ///
    /// # Errors
    /// [`WalError::Stopped`] where a write failed.
    pub fn flush(&self) -> Result<(), WalError> {
        self.wal.here()?;
        self.run_committer();
        self.wal.flush()
    }

    /// The records from the trim point to what is durable now, in order. Appends and trims go on
    /// meanwhile; a trim of records that are still to be read may end it with
    /// [`LogError::Trimmed`].
    pub fn recover(&self) -> Reader<'_> {
        if self.wal.here().is_err() {
            return Reader::refusing(self);
        }
        let index = self.tracker.lock();
        let first = index.first();
        Reader::new(self, self.layout(), (index.locate(first), index.end()), first)
    }

    /// As [`recover`](Self::recover), from the first record at or behind `lsn`.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] and [`LogError::PastEnd`] where `lsn` is outside what is kept.
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

    /// Ends the log: makes what was appended durable, refuses what comes later, and records where
    /// the log ended, so that the next opening need not look for more behind. When it returns,
    /// every callback has been called, but for those behind one that this is called in.
    ///
    /// # Errors
    /// [`WalError::Stopped`] where a write failed, [`WalError::Closed`] where the log was closed
    /// already, [`WalError::WouldWait`] in a waker.
    pub fn close(&self) -> Result<(), LogError> {
        // Whoever has the label store may wait for the committer.
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

    /// Ends the log as a killed process would: nothing more is written, and what was not durable
    /// fails.
    pub fn abandon(self) {
        self.wal.abandon();
    }

    /// Does what the committer thread would do now, where the options forbid one, and says what it
    /// would wait for. Call it until it sleeps before waiting for an acknowledgement.
    pub fn step(&self) -> Pause {
        let _hush = self.wal.hush();
        match &mut *self.driver() {
            Driver::Stepped(committer) => committer.step(),
            Driver::Thread(_) | Driver::Ended => Pause::Ended,
        }
    }

    /// LSN of the first record that is kept: where the log was trimmed to.
    pub fn first(&self) -> Lsn {
        self.tracker.lock().first()
    }

    /// LSN of the next record.
    pub fn next(&self) -> Lsn {
        Lsn(self.wal.next_lsn())
    }

    /// Bytes of the largest record that the ring takes now.
    pub fn largest_record(&self) -> usize {
        self.options.limits(self.wal.stats().size).max_record - record::KIND
    }

    /// Identity of the log, drawn when it was created.
    pub fn identity(&self) -> u128 {
        self.id
    }

    /// How the log stands.
    pub fn stats(&self) -> LogStats {
        // Not by the label store, who may be waiting for a device that hangs.
        let (epoch, settling) = (self.epoch, self.wal.map().before.is_some());
        let index = self.tracker.lock();
        let (first, durable) = (index.first(), Lsn(index.end().lsn));
        drop(index);
        let (next, ring) = (self.next(), self.wal.stats());
        LogStats { ring, first, durable, next, epoch, settling, volume: self.volume.info() }
    }

    fn patiently<T>(&self, mut attempt: impl FnMut() -> Result<T, WalError>) -> Result<T, WalError> {
        loop {
            match attempt() {
                Err(WalError::Busy | WalError::Full { .. }) => {
                    // Where it has no thread, nobody else ends what it has begun.
                    self.run_committer();
                    self.wal.wait_for_room()?;
                }
                ended => return ended,
            }
        }
    }

    /// What became of a record of `len` bytes besides its kind.
    fn appended(&self, len: usize, appended: Result<Appended, WalError>) -> Result<(Lsn, Ack), WalError> {
        match appended {
            Ok(appended) => Ok((Lsn(appended.lsn), self.wal.ack(appended.block))),
            Err(WalError::TooLarge { limit, .. }) => {
                Err(WalError::TooLarge { len, limit: limit - record::KIND })
            }
            Err(error) => Err(error),
        }
    }

    /// Where the ring lies now. Call it with the index locked: then it covers whatever the index
    /// names.
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

    /// Ends what a committer without a thread has begun, before this thread waits for it.
    fn run_committer(&self) {
        if !self.options.threads {
            while matches!(self.step(), Pause::None | Pause::Write(_)) {}
        }
    }

    /// Waits for the end of the committer of a log that has ended.
    fn join(&self) {
        let driver = mem::replace(&mut *self.driver(), Driver::Ended);
        if let Driver::Thread(thread) = driver
            && thread.join().is_err()
        {
            tracing::error!("the committer of a log panicked");
        }
    }
}

/// Makes durable what a log took that is dropped.
fn end_dropped(wal: &Wal) {
    if let Err(error) = wal.close() {
        tracing::warn!(%error, "a log stopped while it was dropped");
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        match self.check() {
            Ok(()) if self.wal.is_committer() => {
                // Its last handle went in a waker: the thread that would be waited for is this one.
                let wal = self.wal.clone();
                let closer = Builder::new().name("brooklet-close".into()).spawn(move || end_dropped(&wal));
                drop(closer.inspect_err(|error| tracing::error!(%error, "no thread to close the log on")));
                return;
            }
            Ok(()) => {
                self.run_committer();
                end_dropped(&self.wal);
            }
            Err(WalError::Closed) => {}
            Err(WalError::Forked) => {
                // The thread is not here, and what it shares is as it was in the midst of
                // something: nothing is ended, closed or freed.
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
