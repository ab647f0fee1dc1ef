//! The volumes of a simulated store: the disk model, a count of its operations, and a hook through
//! which the world acts between two operations.
//!
//! A separate ring volume is on the same disk model, before the data. So the power of both goes off
//! at once, faults meet the volume that is at work, and a flush covers only one volume.
//!
//! By the hook, one thread plays many: where a real store would be in the middle of a checkpoint
//! while others write, the simulated store is in the middle of an operation on its volume, and the
//! volume lets the others act.

use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use brooklet::io::{
    AlignedBuf, Completion, Counts, MemVolume, Op, Persist, Queue, SECTOR, Volume, VolumeInfo,
};
use twox_hash::XxHash3_64;

use crate::interrupt::{Interrupt, Meanwhile, Place};

/// A receiver of the hook's calls.
pub trait Interleaver: Send + Sync {
    /// Acts between two operations. `in_ring`: the next operation is on the ring, so a caller may
    /// be waiting for it; the receiver must not wait for the log then.
    fn enter(&self, what: Meanwhile, in_ring: bool);
}

/// Offset of the ring on its volume, in bytes.
pub const RING_OFFSET: u64 = 64 << 10;

/// Most operations of a step; far more than any step needs. A store with more operations waits for
/// an event that never happens.
const TOO_MANY: u64 = 10_000_000;

/// The places of a store on its disk.
#[derive(Clone, Debug)]
pub struct Zones {
    ring: Range<u64>,
    /// Start of the data volume.
    data: u64,
}

impl Zones {
    /// Returns the zones of a store with a ring of `size` bytes, on a separate volume or not.
    pub fn new(size: u64, apart: bool) -> Self {
        let ring = RING_OFFSET..RING_OFFSET + size;
        Self { data: if apart { ring.end } else { 0 }, ring }
    }

    /// Returns whether `at` is in the zone of the superblock.
    fn is_superblock(&self, at: u64) -> bool {
        (self.data..self.data + RING_OFFSET).contains(&at)
    }

    /// Returns whether `at` is the place of the note that names the store's holder.
    fn is_note(&self, at: u64) -> bool {
        [0, self.data].iter().any(|start| at == start + RING_OFFSET - SECTOR as u64)
    }
}

/// A volume with a hook, or one of two such volumes. Clones are handles to the same volume.
#[derive(Clone)]
pub struct FaultyVolume {
    /// The disk.
    pub disk: MemVolume,
    shared: Arc<Shared>,
    /// The part of the disk that belongs to this volume.
    part: Range<u64>,
}

struct Shared {
    state: Mutex<State>,
    zones: Zones,
}

#[derive(Default)]
struct State {
    interleaver: Option<Weak<dyn Interleaver>>,
    /// Interruptions of the current step, and the number of operations since its beginning.
    interrupts: Vec<Interrupt>,
    operations: u64,
    /// Number of cached reads so far.
    cached: u64,
    /// Whether a hook call is running.
    busy: bool,
    /// Whether a hook call has run since the beginning of the step.
    disturbed: bool,
    trace: u64,
    /// Number of submitted writes to the ring that have not ended.
    in_flight: u64,
    evidence: Evidence,
}

/// Whether the medium holds evidence of the data that a silent fault destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evidence {
    /// The disk had no silent fault.
    #[default]
    NotNeeded,
    /// The newest blocks of the ring may be damaged, and no later write records that they were
    /// acknowledged.
    None,
    /// A later block of the ring records that, or the ring is not affected.
    There,
}

impl FaultyVolume {
    /// Creates a volume on `disk`, for a store with these zones.
    pub fn new(disk: MemVolume, zones: Zones) -> Self {
        let part = zones.data..u64::MAX;
        let shared = Shared { state: Mutex::default(), zones };
        Self { disk, shared: Arc::new(shared), part }
    }

    /// Returns the data volume, and the ring volume if it is separate.
    pub fn volumes(&self) -> (Arc<dyn Volume>, Option<Arc<dyn Volume>>) {
        let data = self.shared.zones.data;
        let ring = (data > 0).then(|| Arc::new(Self { part: 0..data, ..self.clone() }) as _);
        (Arc::new(self.clone()), ring)
    }

    /// Returns the size of the data volume, in bytes.
    pub fn data_size(&self) -> u64 {
        (self.disk.image_len() as u64).saturating_sub(self.shared.zones.data)
    }

    /// Returns the zone of the ring, and the offset of the superblock, both on the disk.
    pub fn ring_zone(&self) -> (Range<usize>, usize) {
        let Zones { ring, data } = &self.shared.zones;
        (ring.start as usize..ring.end as usize, *data as usize)
    }

    /// Sets the receiver of hook calls.
    pub fn invite(&self, interleaver: Weak<dyn Interleaver>) {
        self.state().interleaver = Some(interleaver);
    }

    /// Begins a step with its interruptions.
    pub fn begin(&self, interrupts: &[Interrupt]) {
        let mut state = self.state();
        state.interrupts = interrupts.to_vec();
        state.operations = 0;
        state.disturbed = false;
    }

    /// Returns a hash of all operations so far: equal runs have equal hashes.
    pub fn trace(&self) -> u64 {
        self.state().trace
    }

    /// Returns the disk's numbers of writes and flushes, of reads, and of failures so far.
    pub fn history(&self) -> (u64, u64, u64) {
        (self.disk.operations(), self.disk.reads(), self.disk.failures())
    }

    /// Returns whether the medium can distinguish a lost tail of the log from a tail that never
    /// existed.
    pub fn evidence(&self) -> Evidence {
        match self.state().evidence {
            // A silent fault hit a write whose driver no longer existed.
            Evidence::NotNeeded if !self.disk.silent_faults().is_empty() => self.evidence_after_a_lie(),
            evidence => evidence,
        }
    }

    /// Returns whether no hook call has run since the beginning of the step.
    pub fn was_undisturbed(&self) -> bool {
        !self.state().disturbed
    }

    /// Returns whether a hook call is running.
    pub fn is_entered(&self) -> bool {
        self.state().busy
    }

    /// Returns the remaining evidence after a silent fault: none if the fault hit the ring.
    fn evidence_after_a_lie(&self) -> Evidence {
        let ring = &self.shared.zones.ring;
        let touches = |range: &Range<u64>| range.start < ring.end && ring.start < range.end;
        let silent = self.disk.silent_faults();
        let concerned =
            silent.iter().any(|fault| touches(&fault.meant) || fault.landed.as_ref().is_some_and(touches));
        if concerned { Evidence::None } else { Evidence::There }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the evidence if silent faults were added to the first `silent_before`.
    fn notice(&self, silent_before: usize) {
        if self.disk.silent_faults().len() > silent_before {
            self.state().evidence = self.evidence_after_a_lie();
        }
    }

    fn in_ring(&self, at: u64) -> bool {
        self.shared.zones.ring.contains(&at)
    }

    /// Records an operation, and first runs the interruptions that are due.
    fn knock(&self, kind: u8, at: u64, data: &[u8]) {
        loop {
            let mut state = self.state();
            let fits = |place| place == Place::Anywhere || self.shared.zones.is_superblock(at);
            let due = |i: &Interrupt| i.after <= state.operations && fits(i.place) && !state.busy;
            let Some(due) = state.interrupts.iter().position(due) else { break };
            let Interrupt { what, .. } = state.interrupts.remove(due);
            let Some(interleaver) = state.interleaver.as_ref().and_then(Weak::upgrade) else { continue };
            (state.busy, state.disturbed) = (true, true);
            drop(state);
            interleaver.enter(what, self.in_ring(at));
            self.state().busy = false;
        }
        // The note of the store's holder names a process, which differs from run to run.
        let data = if self.shared.zones.is_note(at) { &[] } else { data };
        let mut state = self.state();
        state.operations += 1;
        assert!(state.operations < TOO_MANY, "a step does not end: it has done {TOO_MANY} operations");
        let sum = XxHash3_64::oneshot_with_seed(state.trace ^ at.rotate_left(8) ^ u64::from(kind), data);
        state.trace = sum.wrapping_add(data.len() as u64);
    }

    /// Registers a write; returns whether it records the blocks that were acknowledged at the
    /// silent fault.
    fn write_began(&self, at: u64) -> bool {
        let mut state = self.state();
        let alone = self.in_ring(at) && state.in_flight == 0 && state.evidence == Evidence::None;
        state.in_flight += u64::from(self.in_ring(at));
        alone
    }

    fn write_ended(&self, at: u64, tells: bool, silent_before: usize) {
        let mut state = self.state();
        state.in_flight -= u64::from(self.in_ring(at));
        if self.disk.silent_faults().len() > silent_before {
            state.evidence = self.evidence_after_a_lie();
        } else if tells {
            state.evidence = Evidence::There;
        }
    }
}

impl fmt::Debug for FaultyVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stage({:?})", self.disk)
    }
}

impl Volume for FaultyVolume {
    fn info(&self) -> VolumeInfo {
        self.disk.info()
    }

    fn counts(&self) -> Counts {
        self.disk.counts()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.size()?.min(self.part.end).saturating_sub(self.part.start))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let offset = self.part.start + offset;
        self.knock(0, offset, &[]);
        let len = (buf.len() as u64).min(self.part.end.saturating_sub(offset));
        let lies = self.disk.silent_faults().len();
        let read = self.disk.read_at(offset, &mut buf[..len as usize]);
        self.notice(lies);
        read
    }

    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        let offset = self.part.start + offset;
        self.knock(0, offset, &[]);
        let len = (buf.len() as u64).min(self.part.end.saturating_sub(offset));
        let lies = self.disk.silent_faults().len();
        let read = self.disk.read_medium(offset, &mut buf[..len as usize]);
        self.notice(lies);
        read
    }

    /// Models a page cache: in turn it has nothing, is right, or still holds the bytes from before
    /// any write.
    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let nth = {
            let mut state = self.state();
            state.cached += 1;
            state.cached
        };
        match nth % 3 {
            0 => false,
            1 => {
                let sector = SECTOR as u64;
                let start = offset / sector * sector;
                let mut sectors = AlignedBuf::zeroed(
                    (offset + buf.len() as u64).next_multiple_of(sector).saturating_sub(start) as usize,
                );
                let skip = (offset - start) as usize;
                let read = self.read_at(start, &mut sectors).is_ok_and(|n| n >= skip + buf.len());
                buf.copy_from_slice(&sectors[skip..skip + buf.len()]);
                read
            }
            _ => {
                buf.fill(0);
                true
            }
        }
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        let offset = self.part.start + offset;
        assert!(offset + data.len() as u64 <= self.part.end, "a write passes the end of the ring's volume");
        self.knock(1 + persist as u8, offset, data);
        let tells = self.write_began(offset);
        let lies = self.disk.silent_faults().len();
        let result = panic::catch_unwind(AssertUnwindSafe(|| self.disk.write_at(offset, data, persist)));
        let whole = matches!(&result, Ok(Ok(n)) if *n == data.len());
        self.write_ended(offset, tells && whole, lies);
        result.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    }

    fn flush(&self) -> io::Result<()> {
        self.knock(3, u64::MAX, &[]);
        self.disk.flush_within(self.part.clone())
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        self.knock(4, u64::MAX, &size.to_le_bytes());
        self.disk.grow((self.part.start + size).min(self.part.end))
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        self.knock(5, u64::MAX, &size.to_le_bytes());
        assert!(self.part.end == u64::MAX, "a ring's volume keeps its size");
        self.disk.shrink(self.part.start + size)
    }

    fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        self.disk.allocate_range(self.part.start + range.start..self.part.start + range.end)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        self.knock(9, self.part.start + range.start, &range.end.to_le_bytes());
        self.disk.punch(self.part.start + range.start..self.part.start + range.end)
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.queue(depth)?;
        Ok(Box::new(StageQueue { volume: self.clone(), queue, writes: Vec::new() }))
    }
}

struct StageQueue {
    volume: FaultyVolume,
    queue: Box<dyn Queue>,
    /// Token and offset of each write in flight, and whether it records the blocks before it.
    writes: Vec<(u64, u64, bool)>,
}

impl Queue for StageQueue {
    fn submit(&mut self, token: u64, mut op: Op) {
        match &mut op {
            Op::Read { offset, .. } | Op::Write { offset, .. } => *offset += self.volume.part.start,
        }
        if let Op::Write { offset, data, persist } = &op {
            self.volume.knock(6 + *persist as u8, *offset, data);
            let tells = self.volume.write_began(*offset);
            self.writes.push((token, *offset, tells));
        }
        self.queue.submit(token, op);
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        if self.queue.in_flight() > 0 {
            self.volume.knock(8, self.volume.shared.zones.ring.start, &[]);
        }
        let lies = self.volume.disk.silent_faults().len();
        let before = out.len();
        self.queue.reap(wait, out);
        self.volume.notice(lies);
        for completion in &out[before..] {
            if let Some(at) = self.writes.iter().position(|(token, ..)| *token == completion.token) {
                let (_, offset, tells) = self.writes.swap_remove(at);
                self.volume.write_ended(offset, tells && completion.result.is_ok(), lies);
            }
        }
    }

    fn wait(&mut self, patience: Duration) {
        self.queue.wait(patience);
    }

    fn waker(&self) -> Waker {
        self.queue.waker()
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
}

impl Drop for StageQueue {
    fn drop(&mut self) {
        self.volume.state().in_flight -= self.writes.len() as u64;
    }
}
