//! The disk model: what has reached the medium, what only seems to have, and what goes wrong.
//!
//! One model serves everywhere that a disk is to fail: under a [`MemVolume`](crate::MemVolume) in tests and in the
//! simulator, under a file of a FUSE file system, and behind a network block device below a virtual machine.
//!
//! Invariants:
//! - `durable` and `cache` have the same length. `cache` is what reads see, `durable` what surely survives a power cut.
//! - `durable` with `pending` applied in order is `cache`, except where a failed flush has dropped pending writes: as on
//!   Linux, those stay readable and never become durable, however often a later flush succeeds.
//! - No pending write overlaps a later durable write: the durable one has superseded it.
//! - All chance comes from the disk's own generator: the same calls with the same seed end the same way.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;

use bytes::Bytes;

use self::fault::{ErrorPlan, Plan};
pub use self::fault::{Fault, Lie, Lied};
use crate::{Counts, Persist, Rng};

mod fault;

/// What a power cut may tear a write into, in bytes.
pub(crate) const TEAR: usize = 512;

/// A model of a disk with a volatile cache. Offsets and lengths are in bytes, and need no alignment here.
pub struct Disk {
    durable: Vec<u8>,
    cache: Vec<u8>,
    pending: Vec<Pending>,
    /// Writes that were handed over and not answered, by the ticket that [`begin`](Self::begin) gave.
    in_flight: BTreeMap<u64, Pending>,
    tickets: u64,
    pub(crate) rng: Rng,
    counts: Counts,
    failures: u64,
    off: bool,
    plan: Plan,
    lied: Vec<Lied>,
    tearing: Tearing,
}

/// What a power cut does to a write that is pending.
#[derive(Clone, Copy)]
struct Tearing {
    /// Each piece of this many bytes is kept or lost.
    piece: usize,
    /// Whether a piece may become garbage.
    garbage: bool,
}

/// A write that is in the cache only.
#[derive(Clone)]
struct Pending {
    start: usize,
    data: Bytes,
}

impl Pending {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.data.len()
    }
}

/// What becomes of a write or flush.
enum Fate {
    Succeeds,
    Fails(io::ErrorKind),
    PowerOff,
}

impl Disk {
    /// A disk that durably holds `image`, and whose chances come from `seed`.
    pub fn new(image: Vec<u8>, seed: u64) -> Self {
        Self {
            cache: image.clone(),
            durable: image,
            pending: Vec::new(),
            in_flight: BTreeMap::new(),
            tickets: 0,
            rng: Rng::new(seed),
            counts: Counts::default(),
            failures: 0,
            off: false,
            plan: Plan::default(),
            lied: Vec::new(),
            tearing: Tearing { piece: TEAR, garbage: true },
        }
    }

    /// Lets power cuts keep or lose whole pieces of `piece` bytes, and leave no garbage. A store is to stand more than
    /// that; of the file systems it may lie in, each relies on a piece of its own that is never torn.
    pub fn tear_gently(&mut self, piece: usize) {
        self.tearing = Tearing { piece, garbage: false };
    }

    /// Makes something go wrong from now on.
    pub fn fail(&mut self, fault: Fault) {
        self.plan.add(fault);
    }

    /// What reads see.
    pub fn image(&self) -> &[u8] {
        &self.cache
    }

    /// Bytes.
    pub fn size(&self) -> io::Result<u64> {
        self.check_power()?;
        Ok(self.cache.len() as u64)
    }

    /// Writes and flushes so far, failed ones included (but not those after the power went off).
    pub fn operations(&self) -> u64 {
        self.counts.writes + self.counts.flushes
    }

    /// Reads so far, failed ones included.
    pub fn reads(&self) -> u64 {
        self.counts.reads
    }

    /// What the disk was asked for so far; nothing is counted once the power is off.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Operations that failed because a fault said so.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The writes that the disk lied about.
    pub fn lied(&self) -> &[Lied] {
        &self.lied
    }

    /// Writes that a power cut now may lose or tear.
    pub fn at_risk(&self) -> usize {
        self.pending.len() + self.in_flight.len()
    }

    /// Switches the power off: what is in flight may still arrive, and everything later fails.
    pub fn power_off(&mut self) {
        if !std::mem::replace(&mut self.off, true) {
            self.pending.extend(std::mem::take(&mut self.in_flight).into_values());
        }
    }

    /// What a power cut now would leave; each call draws another outcome. The disk itself stays as it is.
    ///
    /// One time in four nothing that is pending persists, one time in four everything does. Otherwise each 512 bytes
    /// of each pending write (those in flight included) are kept, lost or, rarely, garbage, in any order, unless
    /// [`tear_gently`](Self::tear_gently) said otherwise.
    pub fn crash(&mut self) -> Vec<u8> {
        let Tearing { piece, garbage } = self.tearing;
        let mut image = self.durable.clone();
        let mut writes: Vec<Pending> = self.pending.iter().chain(self.in_flight.values()).cloned().collect();
        match self.rng.below(4) {
            0 => {}
            1 => {
                for write in writes {
                    image[write.range()].copy_from_slice(&write.data);
                }
            }
            _ => {
                // Crashes differ in how much is lost, so that both a single loss and a single survivor come up.
                let kept = 10 + self.rng.below(81);
                while !writes.is_empty() {
                    let write = writes.swap_remove(self.rng.below(writes.len() as u64) as usize);
                    for (old, new) in image[write.range()].chunks_mut(piece).zip(write.data.chunks(piece)) {
                        if self.rng.percent(2) && garbage {
                            old.fill_with(|| self.rng.next() as u8);
                        } else if self.rng.percent(kept) {
                            old.copy_from_slice(new);
                        }
                    }
                }
            }
        }
        image
    }

    /// Flips bit `bit` (0 to 7) of byte `byte`, in the cache, on the medium and in whatever is on its way there.
    ///
    /// # Panics
    /// If the disk has no such byte, or a byte no such bit.
    pub fn flip(&mut self, byte: usize, bit: u8) {
        assert!(bit < 8, "a byte has no bit {bit}");
        self.cache[byte] ^= 1 << bit;
        self.durable[byte] ^= 1 << bit;
        for write in self.pending.iter_mut().filter(|write| write.range().contains(&byte)) {
            let mut data = write.data.to_vec();
            data[byte - write.start] ^= 1 << bit;
            write.data = data.into();
        }
    }

    /// Reads at `offset`; fewer bytes than asked for at the end, or where a fault says so. `unit` is the alignment
    /// that a short transfer keeps.
    pub fn read(&mut self, offset: u64, buf: &mut [u8], unit: usize) -> io::Result<usize> {
        self.check_power()?;
        self.counts.reads += 1;
        if let Err(kind) = ErrorPlan::count(&mut self.plan.read_error) {
            self.failures += 1;
            return Err(failure(kind));
        }
        let start = self.cache.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let len = self.transfer(buf.len(), unit).min(self.cache.len() - start);
        buf[..len].copy_from_slice(&self.cache[start..start + len]);
        self.counts.read_bytes += len as u64;
        Ok(len)
    }

    /// Writes at `offset`, inside what the disk has. `unit` is the alignment that a short transfer keeps.
    pub fn write(&mut self, offset: u64, data: &[u8], persist: Persist, unit: usize) -> io::Result<usize> {
        self.check_power()?;
        if !self.holds(offset, data.len()) {
            let size = self.cache.len();
            let message = format!("a write of {} bytes at {offset} passes the end, {size}", data.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let start = offset as usize;
        self.counts.writes += 1;
        self.counts.durable_writes += u64::from(persist == Persist::Durable);
        match self.next_fate() {
            Fate::Succeeds => {}
            Fate::Fails(kind) => {
                self.failures += 1;
                let units = self.rng.below((data.len() / unit) as u64 + 1) as usize;
                self.pend(start, &data[..units * unit]);
                return Err(failure(kind));
            }
            Fate::PowerOff => {
                self.pend(start, data);
                return Err(power_is_off());
            }
        }
        let data = &data[..self.transfer(data.len(), unit)];
        match &mut self.plan.lie {
            Some((0, lie)) => {
                let lie = *lie;
                self.plan.lie = None;
                self.lie(lie, start, data, persist);
            }
            Some((left, _)) => {
                *left -= 1;
                self.land(start, data, persist);
            }
            None => self.land(start, data, persist),
        }
        self.counts.written_bytes += data.len() as u64;
        Ok(data.len())
    }

    /// Makes everything written before durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flush_within(0..u64::MAX)
    }

    /// As [`flush`](Self::flush), for the writes that start in `range`: that of one of several disks which this one stands
    /// for, so that the power of all goes off at once.
    pub fn flush_within(&mut self, range: Range<u64>) -> io::Result<()> {
        self.check_power()?;
        let concerned = |write: &Pending| range.contains(&(write.start as u64));
        self.counts.flushes += 1;
        let fate = match self.next_fate() {
            Fate::Succeeds => {
                ErrorPlan::count(&mut self.plan.flush_error).map_or_else(Fate::Fails, |()| Fate::Succeeds)
            }
            fate => fate,
        };
        match fate {
            Fate::Succeeds => {
                for write in self.pending.extract_if(.., |write| concerned(write)) {
                    self.durable[write.range()].copy_from_slice(&write.data);
                }
                Ok(())
            }
            Fate::Fails(kind) => {
                self.failures += 1;
                self.pending.retain(|write| !concerned(write) || self.rng.percent(50));
                Err(failure(kind))
            }
            Fate::PowerOff => Err(power_is_off()),
        }
    }

    /// Makes the disk at least `size` bytes long. The new size is durable at once, which is kinder than a file.
    pub fn grow(&mut self, size: u64) -> io::Result<()> {
        self.check_power()?;
        if size <= self.cache.len() as u64 {
            return Ok(());
        }
        if let Some(full) = self.plan.full.filter(|full| size > *full) {
            let message = format!("the disk has room for {full} bytes, not for {size}");
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        self.cache.resize(size as usize, 0);
        self.durable.resize(size as usize, 0);
        Ok(())
    }

    /// Cuts the disk to at most `size` bytes.
    pub fn shrink(&mut self, size: u64) -> io::Result<()> {
        self.check_power()?;
        let size = self.cache.len().min(usize::try_from(size).unwrap_or(usize::MAX));
        self.supersede(size..usize::MAX);
        self.in_flight.retain(|_, write| write.range().end <= size);
        self.cache.truncate(size);
        self.durable.truncate(size);
        Ok(())
    }

    /// Takes note of a write that the disk has been handed, and may carry out in part if the power goes off.
    /// [`end`](Self::end) it before [`write`](Self::write) carries it out.
    pub fn begin(&mut self, offset: u64, data: Bytes) -> u64 {
        self.tickets += 1;
        // A write past the end is an error that has not been told yet, and one without power goes nowhere.
        if !self.off && self.holds(offset, data.len()) {
            self.in_flight.insert(self.tickets, Pending { start: offset as usize, data });
        }
        self.tickets
    }

    /// Forgets a write in flight.
    pub fn end(&mut self, ticket: u64) {
        self.in_flight.remove(&ticket);
    }

    fn check_power(&self) -> io::Result<()> {
        if self.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn holds(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.cache.len() as u64)
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

    /// How much of a transfer of `len` bytes takes place.
    fn transfer(&mut self, len: usize, unit: usize) -> usize {
        if self.plan.short && len / unit > 1 && self.rng.percent(50) {
            return (1 + self.rng.below((len / unit) as u64 - 1) as usize) * unit;
        }
        len
    }

    /// Carries a write out.
    fn land(&mut self, start: usize, data: &[u8], persist: Persist) {
        match persist {
            Persist::Cached => self.pend(start, data),
            Persist::Durable => {
                let range = start..start + data.len();
                self.supersede(range.clone());
                self.cache[range.clone()].copy_from_slice(data);
                self.durable[range].copy_from_slice(data);
            }
        }
    }

    /// Carries a write out in another way than it was asked for.
    fn lie(&mut self, lie: Lie, start: usize, data: &[u8], persist: Persist) {
        let mut landed = None;
        match lie {
            Lie::Lost => {}
            Lie::Shorn => {
                let part = self.rng.below((data.len() / TEAR) as u64) as usize * TEAR;
                self.land(start, &data[..part], persist);
            }
            Lie::Misdirected => {
                let places = (self.cache.len() - data.len()) / TEAR + 1;
                let at = self.rng.below(places as u64) as usize * TEAR;
                self.land(at, data, persist);
                landed = Some(at as u64..(at + data.len()) as u64);
            }
            Lie::Flipped => {
                let mut data = data.to_vec();
                let at = self.rng.below(data.len() as u64) as usize;
                data[at] ^= 1 << self.rng.below(8);
                self.land(start, &data, persist);
            }
        }
        self.lied.push(Lied { lie, meant: start as u64..(start + data.len()) as u64, landed });
    }

    fn pend(&mut self, start: usize, data: &[u8]) {
        if !data.is_empty() {
            self.cache[start..start + data.len()].copy_from_slice(data);
            self.pending.push(Pending { start, data: Bytes::copy_from_slice(data) });
        }
    }

    /// Takes `range` out of the pending writes.
    fn supersede(&mut self, range: Range<usize>) {
        let overlaps = |write: &Pending| write.start < range.end && range.start < write.range().end;
        if !self.pending.iter().any(overlaps) {
            return;
        }
        for write in std::mem::take(&mut self.pending) {
            if !overlaps(&write) {
                self.pending.push(write);
                continue;
            }
            let Range { start, end } = write.range();
            if start < range.start {
                self.pending.push(Pending { start, data: write.data.slice(..range.start - start) });
            }
            if range.end < end {
                self.pending.push(Pending { start: range.end, data: write.data.slice(range.end - start..) });
            }
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({} bytes, {} writes at risk)", self.cache.len(), self.at_risk())
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("power is off")
}

fn failure(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "a planned fault")
}

#[cfg(test)]
mod tests;
