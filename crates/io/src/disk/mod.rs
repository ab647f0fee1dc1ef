//! The disk model: the bytes on the medium, the bytes only in the cache, and the faults.
//!
//! One model serves every place where a disk should fail: under a [`MemVolume`](crate::MemVolume)
//! in tests and in the simulator, under a file of a FUSE file system, and behind a network block
//! device below a virtual machine.
//!
//! `media` holds the bytes, `holes` the space that takes no room, `fault` the planned faults; this
//! module calls them.
//!
//! All random numbers come from the disk's own generator: the same calls with the same seed have
//! the same results.

use std::fmt;
use std::io;
use std::ops::Range;

use bytes::Bytes;

use self::fault::{ErrorPlan, Plan};
pub use self::fault::{Fault, SilentFault, SilentFaultRecord};
use self::holes::Holes;
use self::media::{Media, Tearing};
use self::pages::Pages;
use crate::{Counts, Persist, Rng};

mod fault;
mod holes;
mod media;
mod pages;

/// Size of the pieces into which a power cut may tear a write, in bytes.
pub(crate) const TEAR: usize = 512;

/// A model of a disk with a volatile cache. Offsets and lengths are in bytes, and need no alignment
/// here.
pub struct Disk {
    media: Media,
    /// Number of tickets that [`begin`](Self::begin) returned.
    tickets: u64,
    pub(crate) rng: Rng,
    counts: Counts,
    failures: u64,
    off: bool,
    plan: Plan,
    silent: Vec<SilentFaultRecord>,
    tearing: Tearing,
    holes: Holes,
}

/// The outcome of a write or flush.
enum Fate {
    Succeeds,
    Fails(io::ErrorKind),
    PowerOff,
}

impl Disk {
    /// Creates a disk that durably holds `image`; `seed` seeds its random numbers.
    pub fn new(image: Vec<u8>, seed: u64) -> Self {
        Self { media: Media::new(Pages::new(&image)), ..Self::with(Rng::new(seed)) }
    }

    /// Creates an empty disk.
    fn with(rng: Rng) -> Self {
        Self {
            media: Media::new(Pages::new(&[])),
            tickets: 0,
            rng,
            counts: Counts::default(),
            failures: 0,
            off: false,
            plan: Plan::default(),
            silent: Vec::new(),
            tearing: Tearing { piece: TEAR, garbage: true },
            holes: Holes::default(),
        }
    }

    /// Lets power cuts keep or lose whole pieces of `piece` bytes, without garbage. This is gentler
    /// than the default, which a store must survive: a file system below a store may rely on pieces
    /// of its own size that are never torn.
    pub fn tear_gently(&mut self, piece: usize) {
        self.tearing = Tearing { piece, garbage: false };
    }

    /// Plans a fault from now on.
    pub fn fail(&mut self, fault: Fault) {
        self.plan.add(fault, self.media.image());
    }

    /// Removes all planned faults. Past faults stay: the power stays off, and the room of the disk
    /// stays limited.
    pub fn heal(&mut self) {
        self.plan = Plan { full: self.plan.full, ..Plan::default() };
    }

    /// Returns whether a planned fault will still fail an operation, or the power is off.
    pub fn is_to_fail(&self) -> bool {
        self.off || self.plan.is_to_fail()
    }

    /// Returns the disk that the next process finds if its user were killed now: completed writes
    /// exist there, durable or not as here; each write in flight has arrived, or never does. The
    /// copy has no planned faults. This disk is unchanged.
    pub fn killed(&mut self) -> Self {
        let media = self.media.killed(&mut self.rng);
        let rng = Rng::new(self.rng.next());
        let (silent, holes) = (self.silent.clone(), self.holes.clone());
        Self { media, silent, holes, tearing: self.tearing, ..Self::with(rng) }
    }

    /// Returns the bytes that reads see.
    pub fn image(&self) -> Vec<u8> {
        self.media.image().to_vec()
    }

    /// Returns the length, in bytes, even when the power is off.
    pub fn image_len(&self) -> usize {
        self.media.len()
    }

    /// Returns the size, in bytes.
    pub fn size(&self) -> io::Result<u64> {
        self.check_power()?;
        Ok(self.media.len() as u64)
    }

    /// Returns the number of writes and flushes so far, including failed ones, but not those after
    /// the power went off.
    pub fn operations(&self) -> u64 {
        self.counts.writes + self.counts.flushes
    }

    /// Returns the number of reads so far, including failed ones.
    pub fn reads(&self) -> u64 {
        self.counts.reads
    }

    /// Returns the counts of operations so far; nothing counts once the power is off.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of operations that failed because of a fault.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the operations with silent faults.
    pub fn silent_faults(&self) -> &[SilentFaultRecord] {
        &self.silent
    }

    /// Returns the number of writes that a power cut now may lose or tear.
    pub fn at_risk(&self) -> usize {
        self.media.at_risk()
    }

    /// Returns whether the power is off.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// Switches the power off: writes in flight may still arrive, and every later operation fails.
    pub fn power_off(&mut self) {
        if !std::mem::replace(&mut self.off, true) {
            self.media.pend_in_flight();
        }
    }

    /// Returns the bytes that a power cut now would leave; each call draws another outcome. The
    /// disk itself is unchanged.
    ///
    /// With a chance of one in four, no pending write persists; with one in four, all do. Otherwise
    /// each 512 bytes of each pending write (including those in flight) are kept, lost or, rarely,
    /// garbage, in any order, unless [`tear_gently`](Self::tear_gently) changed this.
    pub fn crash(&mut self) -> Vec<u8> {
        self.media.crash(&mut self.rng, self.tearing).to_vec()
    }

    /// Returns the result of [`crash`](Self::crash) as another disk; `seed` seeds its random
    /// numbers.
    pub fn crashed(&mut self, seed: u64) -> Self {
        let media = Media::new(self.media.crash(&mut self.rng, self.tearing));
        Self { media, ..Self::with(Rng::new(seed)) }
    }

    /// Flips bit `bit` (0 to 7) of byte `byte`, in the cache, on the medium and in every write on
    /// its way there.
    ///
    /// # Panics
    /// If the disk has no such byte, or a byte no such bit.
    pub fn flip(&mut self, byte: usize, bit: u8) {
        assert!(bit < 8, "a byte has no bit {bit}");
        self.media.flip(byte, bit);
    }

    /// Reads at `offset`. Returns fewer bytes than requested at the end, or because of a fault.
    /// `unit` is the alignment of a short transfer, in bytes.
    pub fn read(&mut self, offset: u64, buf: &mut [u8], unit: usize) -> io::Result<usize> {
        let len = self.begin_read(buf.len(), unit)?;
        Ok(self.copy(Media::image, offset, &mut buf[..len]))
    }

    /// Reads like [`read`](Self::read), past the cache: only bytes that surely survive a power cut.
    pub fn read_medium(&mut self, offset: u64, buf: &mut [u8], unit: usize) -> io::Result<usize> {
        let len = self.begin_read(buf.len(), unit)?;
        Ok(self.copy(Media::durable, offset, &mut buf[..len]))
    }

    /// Counts a read; returns the number of bytes, up to `len`, that the read may transfer.
    fn begin_read(&mut self, len: usize, unit: usize) -> io::Result<usize> {
        self.check_power()?;
        self.counts.reads += 1;
        if let Err(kind) = ErrorPlan::count(&mut self.plan.read_error) {
            self.failures += 1;
            return Err(self.failure(kind));
        }
        Ok(self.transfer(len, unit))
    }

    fn copy(&mut self, from: fn(&Media) -> &Pages, offset: u64, buf: &mut [u8]) -> usize {
        let image = from(&self.media);
        let from = image.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let len = buf.len().min(image.len() - from);
        image.read(from, &mut buf[..len]);
        self.counts.read_bytes += len as u64;
        self.read_stale(offset, &mut buf[..len]);
        len
    }

    /// Puts earlier bytes into `buf`, if a fault requires it and they differ.
    fn read_stale(&mut self, offset: u64, buf: &mut [u8]) {
        let Some((left, before)) = &mut self.plan.stale else { return };
        if *left > 0 {
            *left -= 1;
            return;
        }
        let mut old = vec![0; buf.len()];
        let from = before.len().min(offset as usize);
        let known = old.len().min(before.len() - from);
        before.read(from, &mut old[..known]);
        if old != buf {
            buf.copy_from_slice(&old);
            self.plan.stale = None;
            self.silent.push(SilentFaultRecord {
                fault: SilentFault::Stale,
                meant: offset..offset + buf.len() as u64,
                landed: None,
            });
        }
    }

    /// Writes at `offset`, inside the disk. `unit` is the alignment of a short transfer, in bytes.
    pub fn write(&mut self, offset: u64, data: &[u8], persist: Persist, unit: usize) -> io::Result<usize> {
        self.check_power()?;
        if !self.media.holds(offset, data.len()) {
            let size = self.media.len();
            let message = format!("a write of {} bytes at {offset} passes the end, {size}", data.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.allocate_range(offset..offset + data.len() as u64)?;
        let start = offset as usize;
        self.counts.writes += 1;
        self.counts.durable_writes += u64::from(persist == Persist::Durable);
        match self.next_fate() {
            Fate::Succeeds => {}
            Fate::Fails(kind) => {
                self.failures += 1;
                let units = self.rng.below((data.len() / unit) as u64 + 1) as usize;
                self.media.pend(start, &data[..units * unit]);
                return Err(self.failure(kind));
            }
            Fate::PowerOff => {
                self.media.pend(start, data);
                return Err(power_is_off());
            }
        }
        let data = &data[..self.transfer(data.len(), unit)];
        match &mut self.plan.fault {
            Some((0, fault)) => {
                let fault = *fault;
                self.plan.fault = None;
                self.fault(fault, start, data, persist);
            }
            Some((left, _)) => {
                *left -= 1;
                self.media.land(start, data, persist);
            }
            None => self.media.land(start, data, persist),
        }
        self.counts.written_bytes += data.len() as u64;
        Ok(data.len())
    }

    /// Makes all earlier writes durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flush_within(0..u64::MAX)
    }

    /// Flushes like [`flush`](Self::flush), but only the writes that start in `range`. One disk can
    /// so stand for several disks, whose power goes off at once.
    pub fn flush_within(&mut self, range: Range<u64>) -> io::Result<()> {
        self.check_power()?;
        self.counts.flushes += 1;
        let fate = match self.next_fate() {
            Fate::Succeeds => {
                ErrorPlan::count(&mut self.plan.flush_error).map_or_else(Fate::Fails, |()| Fate::Succeeds)
            }
            fate => fate,
        };
        match fate {
            Fate::Succeeds => {
                self.media.flush(&range);
                Ok(())
            }
            Fate::Fails(kind) => {
                self.failures += 1;
                self.media.fail_flush(&range, &mut self.rng);
                Err(self.failure(kind))
            }
            Fate::PowerOff => Err(power_is_off()),
        }
    }

    /// Makes the disk at least `size` bytes long. A power cut before the next flush may undo the
    /// growth, in part or whole, unless durable bytes lie behind it.
    pub fn grow(&mut self, size: u64) -> io::Result<()> {
        self.check_power()?;
        let Some(more) = size.checked_sub(self.media.len() as u64).filter(|more| *more > 0) else {
            return Ok(());
        };
        self.check_room(more)?;
        self.begin_change()?;
        self.media.grow(size as usize);
        Ok(())
    }

    /// Fills the holes in `range`.
    pub fn allocate_range(&mut self, range: Range<u64>) -> io::Result<()> {
        self.check_power()?;
        let missing = self.holes.within(&range);
        if missing > 0 {
            self.check_room(missing)?;
            self.begin_change()?;
            self.holes.fill(range);
        }
        Ok(())
    }

    /// Makes a hole: `range`, whole sectors of the disk, reads as zero, and takes no room until it
    /// is written to. A power cut before the next flush may undo the change.
    pub fn punch(&mut self, range: Range<u64>) -> io::Result<()> {
        self.check_power()?;
        assert!(self.media.holds(range.start, (range.end - range.start) as usize), "a hole lies inside");
        self.begin_change()?;
        self.media.pend(range.start as usize, &vec![0; (range.end - range.start) as usize]);
        self.holes.add(range);
        Ok(())
    }

    /// Returns the bytes that take room: all bytes except those in holes.
    pub fn taken(&self) -> u64 {
        self.media.len() as u64 - self.holes.bytes()
    }

    fn check_room(&self, more: u64) -> io::Result<()> {
        let needed = self.taken() + more;
        let Some(full) = self.plan.full.filter(|full| needed > *full) else { return Ok(()) };
        let message = format!("the disk has room for {full} bytes, not for {needed}");
        Err(io::Error::new(io::ErrorKind::StorageFull, message))
    }

    /// Cuts the disk to at most `size` bytes. The new size is durable immediately, which is kinder
    /// than a file.
    pub fn shrink(&mut self, size: u64) -> io::Result<()> {
        self.check_power()?;
        self.begin_change()?;
        self.holes.fill(size..u64::MAX);
        self.media.truncate(self.media.len().min(usize::try_from(size).unwrap_or(usize::MAX)));
        Ok(())
    }

    /// Registers a write in flight, and returns its ticket. If the power goes off, a part of the
    /// write may arrive. Call [`end`](Self::end) before [`write`](Self::write) carries it out.
    pub fn begin(&mut self, offset: u64, data: Bytes) -> u64 {
        self.tickets += 1;
        // Without power, the write goes nowhere.
        if !self.off {
            self.media.begin(self.tickets, offset, data);
        }
        self.tickets
    }

    /// Returns whether the write that was last begun never ends, because of a fault.
    pub fn hangs(&mut self) -> bool {
        let hangs = self.plan.hangs();
        self.failures += u64::from(hangs);
        hangs
    }

    /// Forgets a write in flight.
    pub fn end(&mut self, ticket: u64) {
        self.media.end(ticket);
    }

    /// Counts a change of the size or of the holes, which may fail without an effect.
    fn begin_change(&mut self) -> io::Result<()> {
        ErrorPlan::count(&mut self.plan.size_error).map_err(|kind| {
            self.failures += 1;
            self.failure(kind)
        })
    }

    fn check_power(&self) -> io::Result<()> {
        if self.off { Err(power_is_off()) } else { Ok(()) }
    }

    /// Returns the error of an operation that fails; the caller has already applied the effects.
    fn failure(&self, kind: io::ErrorKind) -> io::Error {
        assert!(!self.plan.panics, "a planned panic");
        io::Error::new(kind, "a planned fault")
    }

    fn next_fate(&mut self) -> Fate {
        match &mut self.plan.power_off {
            Some(0) => {
                self.power_off();
                self.failures += 1;
                return Fate::PowerOff;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        ErrorPlan::count(&mut self.plan.error).map_or_else(Fate::Fails, |()| Fate::Succeeds)
    }

    /// Returns the number of bytes that a transfer of `len` bytes moves.
    fn transfer(&mut self, len: usize, unit: usize) -> usize {
        if self.plan.short && len / unit > 1 && self.rng.percent(50) {
            return (1 + self.rng.below((len / unit) as u64 - 1) as usize) * unit;
        }
        len
    }

    /// Carries a write out with the given fault.
    fn fault(&mut self, fault: SilentFault, start: usize, data: &[u8], persist: Persist) {
        let mut landed = None;
        match fault {
            // The earlier bytes stay.
            SilentFault::Lost | SilentFault::Stale => {}
            SilentFault::Shorn => {
                let part = self.rng.below((data.len() / TEAR) as u64) as usize * TEAR;
                self.media.land(start, &data[..part], persist);
            }
            SilentFault::Misdirected => {
                let places = (self.media.len() - data.len()) / TEAR + 1;
                let at = self.rng.below(places as u64) as usize * TEAR;
                self.media.land(at, data, persist);
                landed = Some(at as u64..(at + data.len()) as u64);
            }
            SilentFault::Flipped => {
                let mut data = data.to_vec();
                let at = self.rng.below(data.len() as u64) as usize;
                data[at] ^= 1 << self.rng.below(8);
                self.media.land(start, &data, persist);
            }
        }
        self.silent.push(SilentFaultRecord {
            fault,
            meant: start as u64..(start + data.len()) as u64,
            landed,
        });
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({} bytes, {} writes at risk)", self.media.len(), self.at_risk())
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("power is off")
}

#[cfg(test)]
mod tests;
