//! The accidents of the store: it is closed or killed, its power is cut, and its disk fails.

use std::io::ErrorKind;
use std::sync::{PoisonError, Weak};

use brooklet::io::{Fault, MemVolume, Rng, SECTOR, SilentFault};
use brooklet::{Error, Store};

use super::space::is_in_memory;
use super::{State, World};
use crate::checker::{End, is_refusal};
use crate::faulty_volume::{Evidence, Interleaver};
use crate::model::Moment;
use crate::oracle::{Expectation, MemorySpaceModel, Seen, Violation, violated};
use crate::plan::Class;

/// Unit of torn writes and of rot, in bytes.
const PIECE: usize = 512;

impl World {
    /// Closes the store and opens it again, on the same disk or on the disk that a power cut
    /// leaves.
    pub(super) fn reopen(&self) -> Result<(), Violation> {
        if !self.close()? {
            return Ok(());
        }
        let expected = self.expectation()?;
        if !expected.unknown.is_empty() {
            return violated("closing cleanly leaves a commit that is not durable");
        }
        let image = self.volume().disk.crash();
        let other = {
            let State { faulty, rng, older, .. } = &mut *self.state();
            *older = Some(image.clone());
            (*faulty || rng.percent(50)).then(|| rng.next())
        };
        if let Some(seed) = other {
            self.set_disk(MemVolume::from_image(image, seed));
        }
        self.open(&expected)
    }

    /// Closes the store. Returns `false` if the closing failed for an expected reason.
    fn close(&self) -> Result<bool, Violation> {
        self.state().let_go();
        {
            let mut state = self.state();
            state.closing = true;
            state.oracle.begin_dump();
        }
        let closed = self.open_store().close();
        let fine = closed.is_ok();
        {
            let mut state = self.state();
            state.closing = false;
            state.oracle.end_dump(fine.then_some(true));
        }
        self.excuse(closed)?;
        if fine {
            drop(self.set_store(None));
        }
        Ok(fine)
    }

    /// Kills the process: its writes exist, but may not be on stable media yet.
    pub(super) fn kill(&self) -> Result<(), Violation> {
        // The disk may still corrupt a write that is in flight when the process dies.
        self.let_go();
        let expected = self.expectation()?;
        if self.plan.class == Class::Violent && self.state().rng.percent(30) {
            let flushes = self.state().rng.below(2);
            let fault = Fault::FlushErrorAfter { flushes, kind: ErrorKind::Other, sticky: false };
            self.tell(|| format!("  the disk will misbehave: {fault:?}"));
            self.fail(fault)?;
        }
        self.open(&expected)
    }

    /// Cuts the power. The next disk has no faults.
    pub(super) fn cut(&self) -> Result<(), Violation> {
        let expected = self.expectation()?;
        let image = self.volume().disk.crash();
        self.let_go();
        let seed = {
            let mut state = self.state();
            state.stats.counts.points[0] += 1;
            state.rng.next()
        };
        self.set_disk(MemVolume::from_image(image, seed));
        self.open(&expected)
    }

    /// Makes a write of a block hang forever. Later blocks are not acknowledged, and all other work
    /// continues, until the process is killed.
    pub(super) fn hang(&self, writes: u64) -> Result<(), Violation> {
        // After a checkpoint, only commits need the log for a while.
        self.excuse(self.open_store().checkpoint())?;
        self.wait()?;
        self.volume().disk.fail(Fault::HangAfter { writes });
        for _ in 0..3 {
            self.commit(1, None, false)?;
            for _ in 0..4 {
                self.work()?;
            }
            let stopped = self.open_store().info().map_or(true, |info| info.stopped.is_some());
            if stopped {
                // Another fault came first. A later hanging write would go unnoticed.
                self.volume().disk.fail(Fault::HangAfter { writes: u64::MAX });
                return Ok(());
            }
        }
        self.take(End::Cut);
        self.kill()?;
        self.volume().disk.heal();
        Ok(())
    }

    fn let_go(&self) {
        self.state().let_go();
        if let Some(store) = self.set_store(None) {
            store.abandon();
        }
    }

    /// Puts the store on another disk, for its next life.
    fn set_disk(&self, disk: MemVolume) {
        let volume = self.plan.shape.volume(disk);
        volume.invite(self.me.clone() as Weak<dyn Interleaver>);
        let old = std::mem::replace(&mut *self.volume.lock().unwrap_or_else(PoisonError::into_inner), volume);
        let mut state = self.state();
        state.stats.trace = state.stats.trace.rotate_left(1) ^ old.trace();
        (state.faulty, state.full) = (false, self.plan.shape.capacity > 0);
        if state.stats.first.0 == 0 {
            state.stats.first = old.history();
        }
        state.damaged |= !old.disk.silent_faults().is_empty();
    }

    /// Plans a fault of the disk.
    pub(super) fn fail(&self, fault: Fault) -> Result<(), Violation> {
        let volume = self.volume();
        let mut state = self.state();
        let fault = match fault {
            Fault::LieAfter { .. } | Fault::StaleReadAfter { .. }
                if state.damaged || !volume.disk.silent_faults().is_empty() =>
            {
                return Ok(());
            }
            Fault::Full(sectors) => {
                state.full = true;
                let size = volume.disk.image_len() as u64;
                Fault::Full(size + sectors * SECTOR as u64)
            }
            fault => fault,
        };
        state.faulty |= matches!(
            fault,
            Fault::PowerOffAfter(_)
                | Fault::ErrorAfter { .. }
                | Fault::FlushErrorAfter { .. }
                | Fault::ReadErrorAfter { .. }
                | Fault::SizeErrorAfter { .. }
        );
        // The volume may be the user's own type, which may panic where it should return an error.
        if state.faulty && state.rng.percent(20) {
            volume.disk.fail(Fault::Panics);
        }
        volume.disk.fail(fault);
        Ok(())
    }

    /// Damages the closed store in one place, once in a run.
    pub(super) fn rot(&self) -> Result<(), Violation> {
        {
            let state = self.state();
            if state.damaged || state.faulty || self.volume().evidence() != Evidence::NotNeeded {
                return Ok(());
            }
        }
        if !self.close()? {
            return Ok(());
        }
        let expected = self.expectation()?;
        let mut image = self.volume().disk.crash();
        let line = {
            let State { rng, older, damaged, .. } = &mut *self.state();
            *damaged = true;
            let at = meaningful(&image, rng);
            let piece = at..at + PIECE;
            match rng.below(4) {
                0 => {
                    let byte = at + rng.below(PIECE as u64) as usize;
                    image[byte] ^= 1 << rng.below(8);
                    format!("  a bit of byte {byte} flips")
                }
                1 => {
                    image[piece].fill(0);
                    format!("  the sector at {at} is zeroed")
                }
                2 => {
                    let from = rng.below((image.len() / PIECE) as u64) as usize * PIECE;
                    image.copy_within(from..from + PIECE, at);
                    format!("  the sector at {at} holds what belongs at {from}")
                }
                _ => {
                    let sector = at / SECTOR * SECTOR..(at / SECTOR + 1) * SECTOR;
                    let old = older.as_deref().and_then(|older| older.get(sector.clone()));
                    match old {
                        Some(old) => image[sector].copy_from_slice(old),
                        None => image[sector].fill(0xff),
                    }
                    format!("  the sector of {at} goes back to what it was")
                }
            }
        };
        self.tell(|| line);
        let seed = self.state().rng.next();
        self.set_disk(MemVolume::from_image(image, seed));
        let tolerance = self.tolerance();
        self.open(&Expectation { tolerance, ..expected })
    }

    /// Opens the store on the current disk, and checks that it shows an allowed state. If the disk
    /// fails meanwhile, tries again on the same disk, and finally once more after a power cut.
    pub(super) fn open(&self, expected: &Expectation) -> Result<(), Violation> {
        let before = self.stale_reads();
        let is_stale = || self.stale_reads() > before;
        for _ in 0..3 {
            if self.open_once(expected, is_stale())? {
                return Ok(());
            }
            self.state().stats.counts.restarts += 1;
        }
        let stale = is_stale();
        let (image, seed) = (self.volume().disk.crash(), self.state().rng.next());
        self.tell(|| "  the power is cut".into());
        self.set_disk(MemVolume::from_image(image, seed));
        self.open_once(expected, stale)?;
        Ok(())
    }

    /// Returns the number of reads of this disk that returned old bytes.
    fn stale_reads(&self) -> usize {
        let silent = self.volume().disk.silent_faults();
        silent.iter().filter(|silent| silent.fault == SilentFault::Stale).count()
    }

    /// Ends the run: after this fault of the disk, the expected state is unknown.
    fn end_story(&self, store: Store) -> bool {
        store.abandon();
        self.state().stats.damaged = 1;
        true
    }

    /// Opens the store once. Returns `false` if the disk failed. `stale`: an earlier try read old
    /// bytes, and may have recorded them before it failed.
    fn open_once(&self, expected: &Expectation, stale: bool) -> Result<bool, Violation> {
        let volume = self.volume();
        // Earlier failures are over: from now on only planned faults excuse an error.
        self.state().faulty = volume.disk.is_to_fail();
        let seed = self.state().rng.next();
        let before = self.stale_reads();
        let opened = self.plan.shape.open(&volume, &self.clock, seed);
        // The disk may also corrupt a write while the store is being opened.
        let sound = volume.disk.silent_faults().is_empty() && !stale;
        let tolerance = if sound { expected.tolerance } else { self.tolerance() };
        let expected = &Expectation { tolerance, ..expected.clone() };
        // An opening that reads old bytes of the ring mistakes them for the end of the ring, and
        // nothing shows the mistake.
        let was_stale = || stale || self.stale_reads() > before;
        let is_failure = |error: &Error| {
            self.state().faulty
                && matches!(error, Error::Io { .. } | Error::Stopped { .. } | Error::Full { .. })
        };
        let failed = |error: &Error| {
            self.tell(|| format!("  the store does not open: {error}"));
            Ok(false)
        };
        let store = match opened {
            Ok(store) => store,
            Err(error) if is_refusal(&error, expected.tolerance) => {
                self.tell(|| format!("  -> {error}"));
                self.state().stats.damaged = 1;
                return Ok(true);
            }
            Err(error) if is_failure(&error) => return failed(&error),
            // A block read differently a second time, or a run read differently right after it was
            // written. The next opening may read the right bytes.
            Err(error @ (Error::Io { .. } | Error::Stopped { .. })) if was_stale() => return failed(&error),
            Err(error) => return violated(format!("the store does not open: {error}")),
        };
        let info =
            store.info().or_else(|error| violated(format!("it does not tell about itself: {error}")))?;
        if info.epoch <= expected.epoch {
            return violated(format!("epoch {} was there before", info.epoch));
        }
        if info.capacity != self.plan.shape.capacity {
            return violated(format!("the capacity is {}, not what it was", info.capacity));
        }
        let seen = match Seen::of(&store, expected.tolerance.damaged, true)? {
            Ok(seen) => seen.at(Moment::at(expected.now)),
            Err(error) if is_failure(&error) => {
                store.abandon();
                return failed(&error);
            }
            Err(Error::Damaged { .. }) if was_stale() => return Ok(self.end_story(store)),
            Err(error) => return violated(format!("what was recovered does not read: {error}")),
        };
        let known = match expected.admit(&seen) {
            Err(_) if was_stale() => return Ok(self.end_story(store)),
            admitted => admitted?,
        };
        if !seen.is_whole() && (!expected.unknown.is_empty() || expected.import.is_some()) {
            // The number of recovered unknown commits cannot be determined: the run ends here.
            store.abandon();
            return Ok(true);
        }
        let in_memory = is_in_memory(&store);
        if !seen.is_whole() && in_memory {
            // Unreadable logs of the space start empty when they are written to, so their state
            // cannot be determined either: the run ends here.
            store.abandon();
            return Ok(true);
        }
        let mut state = self.state();
        let oracle = &mut state.oracle;
        oracle.memory_space = in_memory.then(|| MemorySpaceModel::of(&known));
        oracle.epoch = info.epoch;
        oracle.land();
        (oracle.import, oracle.imported) = (None, false);
        oracle.stopped = false;
        oracle.recent = [known.clone()].into();
        (oracle.durable, oracle.appended) = (known.clone(), known);
        drop(state);
        self.set_store(Some(store));
        Ok(true)
    }
}

/// Returns the offset of a sector with data; half of the time, of a sector that begins with a known
/// magic.
fn meaningful(image: &[u8], rng: &mut Rng) -> usize {
    const HEADS: [&[u8]; 4] = [b"BROOKLET", b"BRKMANIF", b"BRKCODEX", b"BRKB"];
    let head = HEADS[rng.below(4) as usize];
    let used = |at: &usize| image[*at..at + PIECE].iter().any(|&byte| byte != 0);
    let is_head = |at: &usize| image[*at..].starts_with(head);
    let sectors = || (0..image.len()).step_by(PIECE);
    let mut places: Vec<usize> = sectors().filter(is_head).collect();
    if places.is_empty() || rng.percent(50) {
        places = sectors().filter(used).collect();
    }
    places[rng.below(places.len() as u64) as usize]
}
