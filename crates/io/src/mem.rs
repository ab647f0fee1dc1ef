//! A volume in memory, on the disk model: it can fail like a disk.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::disk::{Disk, Fault, SilentFaultRecord};
use crate::volume::assert_aligned;
use crate::{Completion, Counts, Op, Persist, Queue, SECTOR, Volume, VolumeInfo};

mod files;

pub use files::MemFiles;

/// A volume in memory. Clones are handles to the same disk.
///
/// ```
/// use brooklet_io::{AlignedBuf, MemVolume, Persist, SECTOR, Volume};
/// let volume = MemVolume::new(7);
/// volume.grow(2 * SECTOR as u64)?;
/// let mut data = AlignedBuf::zeroed(SECTOR);
/// data.fill(1);
/// volume.write_at(0, &data, Persist::Durable)?;
/// volume.write_at(SECTOR as u64, &data, Persist::Cached)?;
/// let after = volume.crash();
/// assert_eq!(&after[..SECTOR], &data[..]); // the second sector may hold anything, torn at 512 bytes
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct MemVolume {
    disk: Arc<Mutex<Disk>>,
}

impl MemVolume {
    /// Creates an empty disk; `seed` seeds its random numbers.
    pub fn new(seed: u64) -> Self {
        Self::from_image(Vec::new(), seed)
    }

    /// Creates a disk that durably holds `image`; `seed` seeds its random numbers.
    pub fn from_image(image: Vec<u8>, seed: u64) -> Self {
        Self { disk: Arc::new(Mutex::new(Disk::new(image, seed))) }
    }

    /// Returns the bytes that reads see.
    pub fn image(&self) -> Vec<u8> {
        self.disk().image()
    }

    /// Returns the length, in bytes.
    pub fn image_len(&self) -> usize {
        self.disk().image_len()
    }

    /// Returns the bytes that a power cut now would leave ([`Disk::crash`]); each call draws
    /// another outcome.
    pub fn crash(&self) -> Vec<u8> {
        self.disk().crash()
    }

    /// Returns the result of a power cut as another disk; `seed` seeds its random numbers. The two
    /// disks share equal bytes.
    pub fn crashed(&self, seed: u64) -> Self {
        Self { disk: Arc::new(Mutex::new(self.disk().crashed(seed))) }
    }

    /// Returns the disk that the next process finds if its user were killed now ([`Disk::killed`]).
    pub fn killed(&self) -> Self {
        Self { disk: Arc::new(Mutex::new(self.disk().killed())) }
    }

    /// Removes all planned faults ([`Disk::heal`]).
    pub fn heal(&self) {
        self.disk().heal();
    }

    /// Returns whether an operation will still fail ([`Disk::is_to_fail`]).
    pub fn is_to_fail(&self) -> bool {
        self.disk().is_to_fail()
    }

    /// Plans a fault from now on.
    pub fn fail(&self, fault: Fault) {
        self.disk().fail(fault);
    }

    /// Returns the number of writes and flushes so far, including failed ones, but not those after
    /// the power went off.
    pub fn operations(&self) -> u64 {
        self.disk().operations()
    }

    /// Returns the bytes that take room: all bytes except those in holes ([`Volume::punch`]).
    pub fn taken(&self) -> u64 {
        self.disk().taken()
    }

    /// Returns the number of reads so far, including failed ones.
    pub fn reads(&self) -> u64 {
        self.disk().reads()
    }

    /// Returns the number of operations that failed because of a fault.
    pub fn failures(&self) -> u64 {
        self.disk().failures()
    }

    /// Returns the number of writes that a power cut now may lose or tear.
    pub fn at_risk(&self) -> usize {
        self.disk().at_risk()
    }

    /// Returns the operations with silent faults.
    pub fn silent_faults(&self) -> Vec<SilentFaultRecord> {
        self.disk().silent_faults().to_vec()
    }

    /// Flips a bit ([`Disk::flip`]).
    ///
    /// # Panics
    /// If the volume has no such byte, or a byte no such bit.
    pub fn flip(&self, byte: usize, bit: u8) {
        self.disk().flip(byte, bit);
    }

    /// Flushes a part of the disk ([`Disk::flush_within`]).
    ///
    /// # Errors
    /// The same errors as [`flush`](Volume::flush).
    pub fn flush_within(&self, range: Range<u64>) -> io::Result<()> {
        self.disk().flush_within(range)
    }

    /// Switches the power off: writes in flight may still arrive, and every later operation fails.
    pub fn power_off(&self) {
        self.disk().power_off();
    }

    /// Returns whether the power is off.
    pub fn is_off(&self) -> bool {
        self.disk().is_off()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemVolume({:?})", *self.disk())
    }
}

impl Volume for MemVolume {
    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            name: "memory".into(),
            backend: "memory",
            direct: true,
            device: None,
            durable_by: "memory",
            durable_why: "there is no other way".into(),
            fallbacks: Vec::new(),
        }
    }

    fn counts(&self) -> Counts {
        self.disk().counts()
    }

    fn size(&self) -> io::Result<u64> {
        self.disk().size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        assert_aligned(offset, buf.as_ptr() as usize, buf.len());
        self.disk().read(offset, buf, SECTOR)
    }

    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        assert_aligned(offset, buf.as_ptr() as usize, buf.len());
        Some(self.disk().read_medium(offset, buf, SECTOR))
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        assert_aligned(offset, data.as_ptr() as usize, data.len());
        self.disk().write(offset, data, persist, SECTOR)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk().flush()
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        self.disk().grow(size)
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        self.disk().shrink(size)
    }

    fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        self.disk().allocate_range(range)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        self.disk().punch(range).map(|()| true)
    }

    fn zero_rest(&self) -> io::Result<()> {
        let size = self.size()?;
        let len = size % SECTOR as u64;
        if len > 0 {
            self.disk().write(size - len, &vec![0; len as usize], Persist::Cached, len as usize)?;
        }
        Ok(())
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(MemQueue { volume: self.clone(), depth, submitted: Vec::new() }))
    }
}

/// A queue that carries operations out when they are reaped, in random order. Operations that hang
/// stay in flight: if no other operation is in flight, a [`reap`](Queue::reap) that waits returns
/// nothing, because nothing could end it.
struct MemQueue {
    volume: MemVolume,
    depth: usize,
    submitted: Vec<Submitted>,
}

struct Submitted {
    token: u64,
    op: Op,
    /// The disk's ticket for a write in flight.
    ticket: Option<u64>,
    hangs: bool,
}

impl MemQueue {
    /// Returns whether an operation in flight will end.
    fn gets_on(&self) -> bool {
        self.submitted.iter().any(|submitted| !submitted.hangs)
    }

    /// Carries out one of the operations that will end.
    fn perform_one(&mut self, disk: &mut Disk) -> Completion {
        let ending = self.submitted.iter().enumerate().filter(|(_, submitted)| !submitted.hangs);
        let ending: Vec<_> = ending.map(|(nth, _)| nth).collect();
        let nth = ending[disk.rng.below(ending.len() as u64) as usize];
        let Submitted { token, mut op, ticket, .. } = self.submitted.remove(nth);
        if let Some(ticket) = ticket {
            disk.end(ticket);
        }
        let result = match &mut op {
            Op::Read { offset, buf } => disk.read(*offset, buf, SECTOR),
            Op::Write { offset, data, persist } => disk.write(*offset, data, *persist, SECTOR),
        };
        op.complete(token, result)
    }
}

impl Queue for MemQueue {
    fn submit(&mut self, token: u64, mut op: Op) {
        assert!(self.submitted.len() < self.depth, "more than {} operations in flight", self.depth);
        op.prepare();
        let mut disk = self.volume.disk();
        let (ticket, hangs) = match &op {
            Op::Read { .. } => (None, false),
            Op::Write { offset, data, .. } => (Some(disk.begin(*offset, data.clone())), disk.hangs()),
        };
        drop(disk);
        self.submitted.push(Submitted { token, op, ticket, hangs });
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        let volume = self.volume.clone();
        let disk = &mut *volume.disk();
        if !self.gets_on() || !wait && disk.rng.percent(50) {
            return;
        }
        out.push(self.perform_one(disk));
        while wait && self.gets_on() && disk.rng.percent(50) {
            out.push(self.perform_one(disk));
        }
    }

    /// Returns immediately: operations end when they are reaped.
    fn wait(&mut self, _: Duration) {}

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn in_flight(&self) -> usize {
        self.submitted.len()
    }
}

impl Drop for MemQueue {
    fn drop(&mut self) {
        let volume = self.volume.clone();
        let disk = &mut *volume.disk();
        // As when a process is killed: the data of normal operations arrives, but not durably. An
        // operation that hung arrives or is lost.
        let mut arrives = |submitted: &Submitted| !submitted.hangs || disk.rng.percent(50);
        let lost: Vec<_> = self.submitted.extract_if(.., |submitted| !arrives(submitted)).collect();
        lost.iter().filter_map(|submitted| submitted.ticket).for_each(|ticket| disk.end(ticket));
        for submitted in &mut self.submitted {
            submitted.hangs = false;
            if let Op::Write { persist, .. } = &mut submitted.op {
                *persist = Persist::Cached;
            }
        }
        while !self.submitted.is_empty() {
            self.perform_one(disk);
        }
    }
}

#[cfg(test)]
mod tests;
