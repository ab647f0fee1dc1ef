//! A volume in memory that can fail the way disks do: the disk model of the tests.
//!
//! Invariants:
//! - `durable` and `cache` have the same length. `cache` is what reads see, `durable` what surely survives a power cut.
//! - `durable` with `pending` applied in order is `cache`, except where a failed flush has dropped pending writes: as on
//!   Linux, those stay readable and never become durable, however often a later flush succeeds.
//! - No pending write overlaps a later durable write: the durable one has superseded it.
//! - All chance comes from the volume's own generator: the same calls with the same seed end the same way.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::volume::assert_aligned;
use crate::{Completion, Op, Persist, Queue, Rng, SECTOR, Volume, VolumeInfo};

/// What a power cut may tear a write into.
const TEAR: usize = 512;

/// Something that goes wrong with a [`MemVolume`]. A fault replaces an earlier one of the same variant.
#[derive(Clone, Debug)]
pub enum Fault {
    /// After this many more writes and flushes the power goes off during the next one. That one fails with its effect
    /// left pending, and whatever follows, reads included, fails too.
    PowerOffAfter(u64),
    /// After `operations` more writes and flushes the next one fails. A failed write leaves any number of its sectors
    /// behind; a failed flush drops some of what it should have made durable.
    ErrorAfter {
        /// Writes and flushes that still succeed.
        operations: u64,
        /// The kind of the error.
        kind: io::ErrorKind,
        /// Whether all later writes and flushes fail as well.
        sticky: bool,
    },
    /// Growing beyond this size fails with [`io::ErrorKind::StorageFull`].
    Full(u64),
    /// About every other read and write of more than one sector moves only the first of them.
    ShortWrites,
}

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
    /// An empty disk whose chances come from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::from_image(Vec::new(), seed)
    }

    /// A disk that durably holds `image`.
    pub fn from_image(image: Vec<u8>, seed: u64) -> Self {
        let disk = Disk {
            cache: image.clone(),
            durable: image,
            pending: Vec::new(),
            submitted: Vec::new(),
            queues: 0,
            rng: Rng::new(seed),
            operations: 0,
            off: false,
            power_off: None,
            error: None,
            full: u64::MAX,
            short: false,
        };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// What reads see.
    pub fn image(&self) -> Vec<u8> {
        self.disk().cache.clone()
    }

    /// What a power cut now would leave; each call draws another outcome. The volume itself stays as it is.
    ///
    /// One time in four nothing that is pending persists, one time in four everything does. Otherwise each 512 bytes
    /// of each pending write (those submitted and not reaped included) are kept, lost or, rarely, garbage.
    pub fn crash(&self) -> Vec<u8> {
        self.disk().crash()
    }

    /// Makes something go wrong from now on.
    pub fn fail(&self, fault: Fault) {
        let mut disk = self.disk();
        match fault {
            Fault::PowerOffAfter(operations) => disk.power_off = Some(operations),
            Fault::ErrorAfter { operations, kind, sticky } => {
                disk.error = Some(ErrorPlan { operations, kind, sticky })
            }
            Fault::Full(size) => disk.full = size,
            Fault::ShortWrites => disk.short = true,
        }
    }

    /// Writes and flushes so far, failed ones included (but not those after the power went off).
    pub fn operations(&self) -> u64 {
        self.disk().operations
    }

    /// Flips bit `bit` (0 to 7) of byte `byte`, in the cache, on the medium and in whatever is on its way there.
    ///
    /// # Panics
    /// If the volume has no such byte, or a byte no such bit.
    pub fn flip(&self, byte: usize, bit: u8) {
        assert!(bit < 8, "a byte has no bit {bit}");
        let disk = &mut *self.disk();
        disk.cache[byte] ^= 1 << bit;
        disk.durable[byte] ^= 1 << bit;
        for write in disk.pending.iter_mut().filter(|write| write.range().contains(&byte)) {
            write.data[byte - write.start] ^= 1 << bit;
        }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.disk();
        write!(f, "MemVolume({} bytes, {} writes pending)", disk.cache.len(), disk.pending.len())
    }
}

impl Volume for MemVolume {
    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            name: "memory".into(),
            backend: "memory",
            direct: true,
            durable_by: "memory",
            fallbacks: Vec::new(),
        }
    }

    fn size(&self) -> io::Result<u64> {
        let disk = self.disk();
        disk.check_power()?;
        Ok(disk.cache.len() as u64)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        assert_aligned(offset, buf.as_ptr() as usize, buf.len());
        self.disk().read(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        assert_aligned(offset, data.as_ptr() as usize, data.len());
        self.disk().write(offset, data, persist)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk().flush()
    }

    /// The new size is durable at once, which is kinder than a file.
    fn grow(&self, size: u64) -> io::Result<()> {
        let disk = &mut *self.disk();
        disk.check_power()?;
        if size <= disk.cache.len() as u64 {
            return Ok(());
        }
        if size > disk.full {
            let message = format!("the disk has room for {} bytes, not for {size}", disk.full);
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        disk.cache.resize(size as usize, 0);
        disk.durable.resize(size as usize, 0);
        Ok(())
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        let disk = &mut *self.disk();
        disk.check_power()?;
        let size = disk.cache.len().min(usize::try_from(size).unwrap_or(usize::MAX));
        disk.supersede(size..usize::MAX);
        disk.cache.truncate(size);
        disk.durable.truncate(size);
        Ok(())
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let mut disk = self.disk();
        disk.queues += 1;
        Ok(Box::new(MemQueue { volume: self.clone(), id: disk.queues, depth, in_flight: 0 }))
    }
}

struct Disk {
    durable: Vec<u8>,
    cache: Vec<u8>,
    pending: Vec<Pending>,
    /// What the queues were given and have not carried out.
    submitted: Vec<Submitted>,
    /// Queues made so far, to name the next one.
    queues: u64,
    rng: Rng,
    operations: u64,
    off: bool,
    /// Operations until the power goes off.
    power_off: Option<u64>,
    error: Option<ErrorPlan>,
    full: u64,
    short: bool,
}

/// A completed write that is in the cache only.
#[derive(Clone)]
struct Pending {
    start: usize,
    data: Vec<u8>,
}

impl Pending {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.data.len()
    }
}

struct Submitted {
    queue: u64,
    token: u64,
    op: Op,
}

struct ErrorPlan {
    operations: u64,
    kind: io::ErrorKind,
    sticky: bool,
}

/// What becomes of a write or flush.
enum Fate {
    Succeeds,
    Fails(io::ErrorKind),
    PowerOff,
}

impl Disk {
    fn check_power(&self) -> io::Result<()> {
        if self.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn holds(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.cache.len() as u64)
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.check_power()?;
        let start = self.cache.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let len = self.transfer(buf.len()).min(self.cache.len() - start);
        buf[..len].copy_from_slice(&self.cache[start..start + len]);
        Ok(len)
    }

    fn write(&mut self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        self.check_power()?;
        if !self.holds(offset, data.len()) {
            let size = self.cache.len();
            let message = format!("a write of {} bytes at {offset} passes the end, {size}", data.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let start = offset as usize;
        match self.next_fate() {
            Fate::Succeeds => {}
            Fate::Fails(kind) => {
                let sectors = self.rng.below((data.len() / SECTOR) as u64 + 1) as usize;
                self.pend(start, &data[..sectors * SECTOR]);
                return Err(failure(kind));
            }
            Fate::PowerOff => {
                self.pend(start, data);
                return Err(power_is_off());
            }
        }
        let data = &data[..self.transfer(data.len())];
        match persist {
            Persist::Cached => self.pend(start, data),
            Persist::Durable => {
                let range = start..start + data.len();
                self.supersede(range.clone());
                self.cache[range.clone()].copy_from_slice(data);
                self.durable[range].copy_from_slice(data);
            }
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check_power()?;
        match self.next_fate() {
            Fate::Succeeds => {
                for write in std::mem::take(&mut self.pending) {
                    self.durable[write.range()].copy_from_slice(&write.data);
                }
                Ok(())
            }
            Fate::Fails(kind) => {
                self.pending.retain(|_| self.rng.percent(50));
                Err(failure(kind))
            }
            Fate::PowerOff => Err(power_is_off()),
        }
    }

    fn perform(&mut self, op: &mut Op) -> io::Result<usize> {
        match op {
            Op::Read { offset, buf } => self.read(*offset, buf),
            Op::Write { offset, data, persist } => self.write(*offset, data, *persist),
        }
    }

    fn next_fate(&mut self) -> Fate {
        self.operations += 1;
        match &mut self.power_off {
            Some(0) => {
                self.off = true;
                // From now on they can only fail, but the disk has had them.
                self.pending.extend(self.submitted_writes());
                return Fate::PowerOff;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match &mut self.error {
            Some(plan) if plan.operations == 0 => {
                let kind = plan.kind;
                if !plan.sticky {
                    self.error = None;
                }
                Fate::Fails(kind)
            }
            Some(plan) => {
                plan.operations -= 1;
                Fate::Succeeds
            }
            None => Fate::Succeeds,
        }
    }

    /// How much of a transfer of `len` bytes takes place.
    fn transfer(&mut self, len: usize) -> usize {
        if self.short && len > SECTOR && self.rng.percent(50) {
            return (1 + self.rng.below((len / SECTOR) as u64 - 1) as usize) * SECTOR;
        }
        len
    }

    fn pend(&mut self, start: usize, data: &[u8]) {
        if !data.is_empty() {
            self.cache[start..start + data.len()].copy_from_slice(data);
            self.pending.push(Pending { start, data: data.to_vec() });
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
                self.pending.push(Pending { start, data: write.data[..range.start - start].to_vec() });
            }
            if range.end < end {
                let data = write.data[range.end - start..].to_vec();
                self.pending.push(Pending { start: range.end, data });
            }
        }
    }

    /// What the disk was given and has not answered. Writes past the end are errors that have not been told yet.
    fn submitted_writes(&self) -> Vec<Pending> {
        let pending = |submitted: &Submitted| match &submitted.op {
            Op::Write { offset, data, .. } if self.holds(*offset, data.len()) => {
                Some(Pending { start: *offset as usize, data: data.to_vec() })
            }
            _ => None,
        };
        self.submitted.iter().filter_map(pending).collect()
    }

    fn crash(&mut self) -> Vec<u8> {
        let mut image = self.durable.clone();
        let mut writes = self.pending.clone();
        if !self.off {
            writes.extend(self.submitted_writes());
        }
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
                    for (old, new) in image[write.range()].chunks_mut(TEAR).zip(write.data.chunks(TEAR)) {
                        if self.rng.percent(2) {
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
}

fn power_is_off() -> io::Error {
    io::Error::other("power is off")
}

fn failure(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "a planned fault")
}

/// Carries operations out when they are reaped, in random order.
struct MemQueue {
    volume: MemVolume,
    id: u64,
    depth: usize,
    in_flight: usize,
}

impl MemQueue {
    /// Carries out one of the operations in flight.
    fn perform_one(&mut self, disk: &mut Disk) -> Completion {
        let nth = disk.rng.below(self.in_flight as u64) as usize;
        let mut mine = disk.submitted.iter().enumerate().filter(|(_, s)| s.queue == self.id);
        let (index, _) = mine.nth(nth).expect("what is in flight was submitted");
        let Submitted { token, mut op, .. } = disk.submitted.remove(index);
        self.in_flight -= 1;
        let result = disk.perform(&mut op);
        op.complete(token, result)
    }
}

impl Queue for MemQueue {
    fn submit(&mut self, token: u64, mut op: Op) {
        assert!(self.in_flight < self.depth, "more than {} operations in flight", self.depth);
        op.prepare();
        self.in_flight += 1;
        self.volume.disk().submitted.push(Submitted { queue: self.id, token, op });
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        let volume = self.volume.clone();
        let disk = &mut *volume.disk();
        if self.in_flight == 0 || !wait && disk.rng.percent(50) {
            return;
        }
        out.push(self.perform_one(disk));
        while wait && self.in_flight > 0 && disk.rng.percent(50) {
            out.push(self.perform_one(disk));
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for MemQueue {
    fn drop(&mut self) {
        let volume = self.volume.clone();
        let disk = &mut *volume.disk();
        // As when a process is killed: the data still arrives, but nobody was promised that it is durable.
        for submitted in disk.submitted.iter_mut().filter(|s| s.queue == self.id) {
            if let Op::Write { persist, .. } = &mut submitted.op {
                *persist = Persist::Cached;
            }
        }
        while self.in_flight > 0 {
            self.perform_one(disk);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{AlignedBuf, read_exact_at, write_all_at};

    const S: u64 = SECTOR as u64;

    fn filled(sectors: usize, byte: u8) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(sectors * SECTOR);
        buf.fill(byte);
        buf
    }

    fn disk(sectors: u64) -> MemVolume {
        let volume = MemVolume::new(42);
        volume.grow(sectors * S).unwrap();
        volume
    }

    fn write(volume: &MemVolume, sector: u64, sectors: usize, byte: u8, persist: Persist) {
        assert_eq!(volume.write_at(sector * S, &filled(sectors, byte), persist).unwrap(), sectors * SECTOR);
    }

    /// Which first bytes each sector shows over many crashes, garbage (a sector that is not uniform) left out.
    fn outcomes(volume: &MemVolume) -> Vec<BTreeSet<u8>> {
        let mut seen = vec![BTreeSet::new(); volume.image().len() / SECTOR];
        for _ in 0..200 {
            for (sector, seen) in volume.crash().chunks(SECTOR).zip(&mut seen) {
                if sector.iter().all(|&b| b == sector[0]) {
                    seen.insert(sector[0]);
                }
            }
        }
        seen
    }

    fn message<T: fmt::Debug>(result: io::Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn reads_see_the_newest_and_crashes_what_may_have_persisted() {
        let volume = disk(4);
        write(&volume, 0, 1, 1, Persist::Cached);
        volume.flush().unwrap();
        write(&volume, 1, 1, 2, Persist::Cached);
        write(&volume, 1, 1, 3, Persist::Cached);
        write(&volume, 2, 1, 4, Persist::Durable);
        let mut buf = filled(4, 9);
        read_exact_at(&volume, 0, &mut buf).unwrap();
        assert_eq!(buf.chunks(SECTOR).map(|s| s[0]).collect::<Vec<_>>(), [1, 3, 4, 0]);
        assert_eq!(&volume.image()[..], &buf[..]);
        let expected = [&[1][..], &[0, 2, 3], &[4], &[0]].map(|s| s.iter().copied().collect());
        assert_eq!(outcomes(&volume), expected);
        volume.flush().unwrap();
        assert_eq!(volume.crash(), volume.image());
        assert_eq!(volume.operations(), 6);
    }

    #[test]
    fn a_durable_write_supersedes_only_what_it_covers() {
        let volume = disk(5);
        write(&volume, 0, 5, 1, Persist::Cached);
        write(&volume, 2, 1, 2, Persist::Durable);
        let either: BTreeSet<u8> = [0, 1].into();
        let seen = outcomes(&volume);
        assert_eq!(seen[2], [2].into());
        assert!([0, 1, 3, 4].iter().all(|&i| seen[i] == either), "{seen:?}");
        volume.flush().unwrap();
        assert_eq!(volume.crash(), volume.image());
        assert_eq!(volume.image()[2 * SECTOR], 2);
    }

    #[test]
    fn crashes_tear_at_512_bytes_and_leave_garbage_rarely() {
        let volume = disk(8);
        write(&volume, 0, 8, 7, Persist::Cached);
        let (mut nothing, mut everything, mut torn, mut garbage) = (0, 0, 0, 0);
        for _ in 0..400 {
            let image = volume.crash();
            let whole = |byte| image.iter().all(|&b| b == byte);
            let pieces = |byte| image.chunks(TEAR).filter(|p| p.iter().all(|&b| b == byte)).count();
            nothing += usize::from(whole(0));
            everything += usize::from(whole(7));
            torn += usize::from(pieces(0) > 0 && pieces(7) > 0);
            garbage += 64 - pieces(0) - pieces(7);
        }
        assert!((60..140).contains(&nothing) && (60..140).contains(&everything), "{nothing} {everything}");
        assert!(torn > 150 && (100..500).contains(&garbage), "{torn} {garbage}");
    }

    #[test]
    fn the_same_seed_ends_the_same_way() {
        let run = |seed| {
            let volume = MemVolume::from_image(vec![0; 16 * SECTOR], seed);
            write(&volume, 0, 16, 1, Persist::Cached);
            (0..10).map(|_| volume.crash()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn queued_operations_complete_in_any_order_and_are_pending_until_then() {
        let volume = disk(16);
        let mut queue = volume.queue(16).unwrap();
        for token in 0..16 {
            let data = filled(1, 1 + token as u8).freeze();
            queue.submit(token, Op::Write { offset: token * S, data, persist: Persist::Durable });
        }
        assert!(volume.image().iter().all(|&b| b == 0), "nothing is carried out before it is reaped");
        let seen = outcomes(&volume);
        assert!((0..16).all(|i| seen[i] == [0, 1 + i as u8].into()), "{seen:?}");

        let mut done = Vec::new();
        let empty = (0..8).filter(|_| {
            let before = done.len();
            queue.reap(false, &mut done);
            done.len() == before
        });
        assert!((1..8).contains(&empty.count()), "polling sometimes finds something");
        while queue.in_flight() > 0 {
            let before = done.len();
            queue.reap(true, &mut done);
            assert!(done.len() > before);
        }
        assert!(!done.is_sorted_by_key(|c| c.token));
        assert!(done.iter().all(|c| matches!(c.result, Ok(SECTOR))));
        assert_eq!(volume.crash(), volume.image());

        queue.submit(0, Op::Read { offset: 15 * S, buf: AlignedBuf::zeroed(2 * SECTOR) });
        done.clear();
        queue.reap(true, &mut done);
        assert_eq!(done[0].buf.as_ref().unwrap()[..], filled(1, 16)[..], "cut to what was read");

        queue.submit(1, Op::Write { offset: 0, data: filled(1, 99).freeze(), persist: Persist::Cached });
        drop(queue);
        assert_eq!(volume.image()[0], 99, "dropping finishes");
    }

    #[test]
    fn power_goes_off_in_the_middle() {
        let volume = disk(4);
        let mut queue = volume.queue(4).unwrap();
        queue.submit(0, Op::Write { offset: 3 * S, data: filled(1, 4).freeze(), persist: Persist::Durable });
        queue.submit(9, Op::Write { offset: 4 * S, data: filled(1, 4).freeze(), persist: Persist::Durable });
        volume.fail(Fault::PowerOffAfter(2));
        write(&volume, 0, 1, 1, Persist::Durable);
        volume.flush().unwrap();
        let half_done = volume.write_at(S, &filled(1, 2), Persist::Durable);
        assert_eq!(message(half_done), "power is off");
        assert_eq!(volume.operations(), 3);
        assert_eq!(message(volume.write_at(2 * S, &filled(1, 3), Persist::Durable)), "power is off");
        assert_eq!(message(volume.read_at(0, &mut filled(1, 0))), "power is off");
        assert_eq!(message(volume.flush()), "power is off");
        assert_eq!(message(volume.grow(8 * S)), "power is off");
        queue.submit(1, Op::Write { offset: 2 * S, data: filled(1, 5).freeze(), persist: Persist::Durable });
        let expected = [&[1][..], &[0, 2], &[0], &[0, 4]].map(|s| s.iter().copied().collect());
        assert_eq!(outcomes(&volume), expected);
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.reap(true, &mut done);
        }
        assert!(done.into_iter().all(|c| message(c.result) == "power is off"));
        assert_eq!(outcomes(&volume), expected, "what was in flight may have persisted, the rest not");
    }

    #[test]
    fn errors_come_once_or_for_good() {
        let error = |sticky| Fault::ErrorAfter { operations: 1, kind: io::ErrorKind::StorageFull, sticky };
        let volume = disk(4);
        volume.fail(error(false));
        write(&volume, 0, 1, 1, Persist::Cached);
        assert_eq!(volume.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
        volume.flush().unwrap();
        volume.fail(error(true));
        write(&volume, 0, 1, 1, Persist::Cached);
        for _ in 0..3 {
            let failed = volume.write_at(0, &filled(1, 2), Persist::Cached);
            assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        assert!(volume.flush().is_err());
        assert_eq!(volume.read_at(0, &mut filled(1, 0)).unwrap(), SECTOR, "reads go on");
    }

    #[test]
    fn a_flush_after_a_failed_flush_promises_nothing() {
        let volume = disk(32);
        for sector in 0..32 {
            write(&volume, sector, 1, 1, Persist::Cached);
        }
        volume.fail(Fault::ErrorAfter { operations: 0, kind: io::ErrorKind::Other, sticky: false });
        volume.flush().unwrap_err();
        volume.flush().unwrap();
        assert!(volume.image().iter().all(|&b| b == 1), "the cache still shows what was lost");
        let kept = volume.crash().chunks(SECTOR).filter(|s| s[0] == 1).count();
        assert!((1..32).contains(&kept), "{kept}");
    }

    #[test]
    fn the_disk_fills_up() {
        let volume = disk(1);
        volume.fail(Fault::Full(4 * S));
        volume.grow(4 * S).unwrap();
        assert_eq!(volume.grow(5 * S).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(volume.size().unwrap(), 4 * S);
    }

    #[test]
    fn short_transfers_are_whole_sectors() {
        let volume = disk(64);
        volume.fail(Fault::ShortWrites);
        let counts: BTreeSet<usize> =
            (0..50).map(|_| volume.write_at(0, &filled(4, 1), Persist::Cached).unwrap() / SECTOR).collect();
        assert_eq!(counts, [1, 2, 3, 4].into());
        assert_eq!(volume.write_at(0, &filled(1, 1), Persist::Cached).unwrap(), SECTOR);
        write_all_at(&volume, 0, &filled(64, 5), Persist::Durable).unwrap();
        let mut buf = filled(64, 0);
        read_exact_at(&volume, 0, &mut buf).unwrap();
        assert!(buf.iter().all(|&b| b == 5));
        assert_eq!(&volume.crash()[..], &buf[..]);
    }

    #[test]
    fn a_flipped_bit_stays_flipped() {
        let volume = disk(2);
        write(&volume, 0, 2, 0, Persist::Cached);
        volume.flip(5000, 3);
        assert_eq!(volume.image()[5000], 8);
        volume.flush().unwrap();
        assert_eq!(volume.crash()[5000], 8);
    }

    #[test]
    fn size_changes_keep_the_rest() {
        let volume = disk(4);
        write(&volume, 0, 4, 1, Persist::Cached);
        volume.shrink(2 * S).unwrap();
        volume.grow(3 * S).unwrap();
        volume.flush().unwrap();
        let bytes = volume.crash().chunks(SECTOR).map(|s| s[0]).collect::<Vec<_>>();
        assert_eq!(bytes, [1, 1, 0], "what was cut off does not come back");
        let past = volume.write_at(2 * S, &filled(2, 1), Persist::Cached);
        assert_eq!(past.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(volume.read_at(2 * S, &mut filled(2, 1)).unwrap(), SECTOR);
        assert_eq!(volume.read_at(9 * S, &mut filled(1, 1)).unwrap(), 0);
    }

    #[test]
    #[should_panic(expected = "is not a multiple")]
    fn alignment_is_asserted() {
        let _ = disk(1).write_at(0, &filled(1, 1)[..512], Persist::Cached);
    }
}
