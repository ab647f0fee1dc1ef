//! The disk model as a served drive: shared by the threads that serve it, and by the harness that
//! cuts its power.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use brooklet::io::{Disk, Fault, Persist, Rng};
use bytes::Bytes;

/// Unit of short transfers. Direct I/O requires whole sectors.
const UNIT: usize = 4096;

/// A [`Disk`] under a lock. A write is in flight for a while before it is carried out, so that a
/// power cut meets several writes.
pub struct Drive {
    disk: Mutex<Disk>,
    delays: Mutex<Rng>,
}

impl Drive {
    /// Creates a drive that durably holds `image`; `seed` seeds its random numbers.
    pub fn new(image: Vec<u8>, seed: u64) -> Self {
        Self { disk: Mutex::new(Disk::new(image, seed)), delays: Mutex::new(Rng::new(!seed)) }
    }

    /// Creates a drive below a file system that relies on pieces of `piece` bytes that are never
    /// torn, and on the absence of garbage.
    pub fn gentle(image: Vec<u8>, seed: u64, piece: usize) -> Self {
        let drive = Self::new(image, seed);
        drive.disk().tear_gently(piece);
        drive
    }

    /// Reads at `offset`; returns fewer bytes than requested at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.disk().read(offset, buf, UNIT)
    }

    /// Writes at `offset`.
    pub fn write(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        let ticket = self.disk().begin(offset, Bytes::copy_from_slice(data));
        self.dawdle();
        let mut disk = self.disk();
        disk.end(ticket);
        disk.write(offset, data, persist, UNIT)
    }

    /// Makes every completed write durable.
    pub fn flush(&self) -> io::Result<()> {
        self.disk().flush()
    }

    /// Makes the drive at least `size` bytes long.
    pub fn grow(&self, size: u64) -> io::Result<()> {
        self.disk().grow(size)
    }

    /// Sets the size of the drive to `size` bytes.
    pub fn resize(&self, size: u64) -> io::Result<()> {
        let mut disk = self.disk();
        disk.shrink(size)?;
        disk.grow(size)
    }

    /// Returns the size, in bytes, even when the power is off.
    pub fn size(&self) -> u64 {
        self.disk().image_len() as u64
    }

    /// Returns whether the power is off.
    pub fn is_off(&self) -> bool {
        self.disk().size().is_err()
    }

    /// Switches the power off.
    pub fn power_off(&self) {
        self.disk().power_off();
    }

    /// Plans a fault from now on.
    pub fn fail(&self, fault: Fault) {
        self.disk().fail(fault);
    }

    /// Returns the number of writes and flushes so far.
    pub fn operations(&self) -> u64 {
        self.disk().operations()
    }

    /// Returns the bytes that a power cut now would leave; each call draws another outcome.
    pub fn crash(&self) -> Vec<u8> {
        self.disk().crash()
    }

    /// Sometimes delays a request, so that other requests overtake it.
    fn dawdle(&self) {
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = delays.percent(5).then(|| Duration::from_micros(delays.below(300)));
        drop(delays);
        delay.into_iter().for_each(thread::sleep);
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
