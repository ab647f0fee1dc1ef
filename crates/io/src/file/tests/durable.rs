//! How writes become durable: the choice between the ways, and syncs that many share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use tempfile::TempDir;

use super::*;
use crate::file::durable::Calls;
use crate::{ManualClock, Tuning};

const FLUSH: FileOptions =
    FileOptions { direct: true, io_uring: true, durable: Durable::Flush, permissions: 0o600 };

fn calls(volume: &mut FileVolume) -> &mut Calls {
    &mut Arc::get_mut(&mut volume.inner).expect("nobody else has it").durable.calls
}

/// A device whose first sync ends when it is told to; the `failing`th one fails.
fn slow_volume(dir: &TempDir, options: FileOptions, failing: usize) -> (FileVolume, Arc<Gate>) {
    let mut volume = create(dir, options);
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    calls(&mut volume).sync = Box::new(move |_| {
        let nth = 1 + at_gate.syncs.fetch_add(1, Ordering::SeqCst);
        if nth == 1 {
            let open = at_gate.open.lock().unwrap();
            drop(at_gate.opened.wait_while(open, |open| !*open).unwrap());
        }
        if nth == failing { Err(Errno::IO.into()) } else { Ok(()) }
    });
    (volume, gate)
}

#[derive(Default)]
struct Gate {
    syncs: AtomicUsize,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Lets the first sync end once `waiting` callers wait for the next one.
    fn open_for(&self, inner: &FileInner, waiting: usize) {
        while inner.syncs.waiting() < waiting {
            thread::yield_now();
        }
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Writes durably on eight threads, seven of them while the first one's sync runs; how many
/// succeeded and failed.
fn eight_at_once(volume: &FileVolume, gate: &Gate) -> (usize, usize) {
    thread::scope(|scope| {
        let write = |n: u64| volume.write_at(n * SECTOR as u64, &filled(SECTOR, 1), Persist::Durable);
        let writers: Vec<_> = (0..8).map(|n| scope.spawn(move || write(n).is_ok())).collect();
        gate.open_for(&volume.inner, 7);
        let good = writers.into_iter().map(|writer| writer.join().unwrap()).filter(|ok| *ok).count();
        (good, 8 - good)
    })
}

#[test]
fn writers_share_the_next_sync_but_never_the_one_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, gate) = slow_volume(&dir, FLUSH, 0);
    assert_eq!(eight_at_once(&volume, &gate), (8, 0));
    let counts = volume.counts();
    assert_eq!((counts.writes, counts.durable_writes, counts.flushes), (8, 0, 2));
}

#[test]
fn the_workers_of_a_queue_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, gate) = slow_volume(&dir, FileOptions { io_uring: false, ..FLUSH }, 0);
    let mut queue = volume.queue(8).unwrap();
    for token in 0..8 {
        let data = filled(SECTOR, 1).freeze();
        queue.submit(token, Op::Write { offset: token * SECTOR as u64, data, persist: Persist::Durable });
    }
    gate.open_for(&volume.inner, 7);
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done);
    }
    assert!(done.iter().all(|c| c.result.is_ok()));
    assert_eq!(volume.counts().flushes, 2);
}

/// What completes while the ring's driver syncs is not covered by that sync.
#[test]
pub(super) fn each_harvest_of_a_ring_has_a_sync_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FLUSH);
    let mut queue = volume.queue(8).unwrap();
    for token in 0..64 {
        let data = filled(SECTOR, 1).freeze();
        queue.submit(token, Op::Write { offset: token * SECTOR as u64, data, persist: Persist::Durable });
        while queue.in_flight() == 8 || token == 63 && queue.in_flight() > 0 {
            let (mut done, before) = (Vec::new(), volume.counts().flushes);
            queue.reap(true, &mut done);
            if volume.info().backend == "io_uring" {
                assert_eq!(volume.counts().flushes - before, 1, "for {} writes", done.len());
            }
        }
    }
}

#[test]
pub(super) fn a_sync_that_fails_fails_for_all_it_covers_and_all_that_come_after() {
    for (failing, results) in [(1, (0, 8)), (2, (1, 7))] {
        let dir = tempfile::tempdir().unwrap();
        let (volume, gate) = slow_volume(&dir, FLUSH, failing);
        assert_eq!(eight_at_once(&volume, &gate), results);
        for _ in 0..2 {
            assert_eq!(volume.flush().unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
        }
        assert!(volume.write_at(0, &filled(SECTOR, 1), Persist::Durable).is_err());
        assert!(volume.write_at(0, &filled(SECTOR, 1), Persist::Cached).is_ok());
        assert_eq!(volume.counts().flushes, failing as u64, "nothing is tried again");
    }
}

/// A volume on which a write with the flag and one with a sync take so many microseconds, if both
/// ways are possible.
fn timed_volume(dir: &TempDir, by_flag: u64, by_sync: u64) -> Option<FileVolume> {
    let mut volume = create(dir, FileOptions::default());
    if volume.info().durable_by != "RWF_DSYNC" {
        println!("skipped: {:?}", volume.info());
        return None;
    }
    let clock = Arc::new(ManualClock::default());
    let (flag_clock, sync_clock) = (Arc::clone(&clock), Arc::clone(&clock));
    *calls(&mut volume) = Calls {
        write_flagged: Box::new(move |_, _, data| {
            flag_clock.advance(Duration::from_micros(by_flag));
            Ok(data.len())
        }),
        sync: Box::new(move |_| {
            sync_clock.advance(Duration::from_micros(by_sync));
            Ok(())
        }),
        clock,
    };
    Some(volume)
}

#[test]
fn the_flag_stays_unless_a_sync_is_quicker_by_a_tenth() {
    for (by_flag, by_sync, chosen) in [
        (100, 300, "RWF_DSYNC"),
        (100, 100, "RWF_DSYNC"),
        (100, 91, "RWF_DSYNC"),
        (100, 90, "write + fdatasync"),
        (100, 1, "write + fdatasync"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(volume) = timed_volume(&dir, by_flag, by_sync) else { return };
        volume.tune(0..1 << 20).unwrap();
        let info = volume.info();
        assert_eq!(info.durable_by, chosen, "{info:?}");
        let medians = format!("RWF_DSYNC {by_flag} us, write + fdatasync {by_sync} us: medians of ");
        assert!(info.durable_why.starts_with(&medians), "{info:?}");
        let before = volume.counts();
        volume.write_at(0, &filled(SECTOR, 1), Persist::Durable).unwrap();
        let cost = volume.counts() - before;
        assert_eq!((cost.durable_writes, cost.flushes), if by_sync > 90 { (1, 0) } else { (0, 1) });
    }
}

/// An opening uses the measurement of an earlier one, without a write. A measurement of another
/// device, or of another kernel, does not count; a method that options ask for is not changed.
#[test]
fn a_measurement_serves_later_openings_on_the_same_device() {
    for (by_flag, by_sync) in [(100, 300), (100, 10)] {
        let dir = tempfile::tempdir().unwrap();
        let Some(volume) = timed_volume(&dir, by_flag, by_sync) else { return };
        assert_eq!(volume.tuning(), None, "nothing was measured");
        volume.tune(0..1 << 20).unwrap();
        let tuning = volume.tuning().unwrap();
        assert_eq!(tuning.by_flag, by_flag < by_sync);
        let durable_by = volume.info().durable_by;
        let dir = tempfile::tempdir().unwrap();
        let Some(later) = timed_volume(&dir, 0, 0) else { return };
        let before = later.counts();
        assert!(!later.adopt(Tuning { device: tuning.device ^ 1, ..tuning }), "another device");
        assert_eq!(later.tuning(), None);
        assert!(later.adopt(tuning));
        assert_eq!((later.tuning(), later.info().durable_by), (Some(tuning), durable_by));
        assert!(later.info().durable_why.starts_with("measured here by an earlier opening"));
        assert_eq!(later.counts(), before);
        let dir = tempfile::tempdir().unwrap();
        let volume = create(&dir, FileOptions { durable: Durable::Flush, ..FileOptions::default() });
        assert!(!volume.adopt(Tuning { by_flag: true, ..tuning }), "the options ask for another method");
    }
}

/// Each way has one turn, and then there are 20 ms.
#[test]
fn a_slow_disk_is_not_measured_for_long() {
    for (micros, turns) in [(5_000, 3), (15_000, 2), (1_000_000, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let Some(volume) = timed_volume(&dir, micros, micros) else { return };
        volume.tune(0..4096).unwrap();
        assert!(volume.info().durable_why.contains(&format!("medians of {turns} ")), "{:?}", volume.info());
    }
}

#[test]
fn what_the_options_ask_for_is_not_measured() {
    for durable in [Durable::Dsync, Durable::Flush] {
        let dir = tempfile::tempdir().unwrap();
        let volume = create(&dir, FileOptions { durable, ..FileOptions::default() });
        let before = volume.info();
        volume.tune(0..1 << 20).unwrap();
        assert_eq!(volume.counts(), Counts::default());
        assert_eq!(
            (volume.info().durable_by, volume.info().durable_why),
            (before.durable_by, before.durable_why)
        );
    }
}

#[test]
fn scratch_space_is_whole_sectors_of_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    let end = 1 << 20;
    for scratch in [0..0, 0..100, 512..4608, end - 4096..end + 4096, end..end + 4096] {
        assert_eq!(kind(volume.tune(scratch)), io::ErrorKind::InvalidInput);
    }
    assert_eq!(volume.counts(), Counts::default());
}

/// A kernel or file system that does not know the flag says so at the first use, and so does a
/// filter of system calls.
#[test]
pub(super) fn a_flag_that_is_refused_is_not_used_again() {
    let refusals = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::PERM];
    for (tune, refusal) in refusals.into_iter().flat_map(|refusal| [(true, refusal), (false, refusal)]) {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut volume) = timed_volume(&dir, 1, 1) else { return };
        calls(&mut volume).write_flagged = Box::new(move |_, _, _| Err(refusal.into()));
        if tune {
            volume.tune(0..1 << 20).unwrap();
        } else {
            assert_eq!(volume.write_at(0, &filled(SECTOR, 1), Persist::Durable).unwrap(), SECTOR);
            assert_eq!(volume.counts().flushes, 1, "it is durable all the same");
        }
        let info = volume.info();
        assert!(info.durable_why.starts_with("RWF_DSYNC failed: "), "{info:?}");
        assert_eq!((info.durable_by, info.fallbacks.len()), ("write + fdatasync", 1), "{info:?}");
        volume.tune(0..1 << 20).unwrap();
        assert_eq!(volume.info().durable_why, info.durable_why, "there is no choice any more");
        assert_eq!(volume.counts().durable_writes, 0);
    }
}

/// Once a write was refused the flag, a measurement that was under way does not bring it back.
#[test]
fn a_flag_that_is_refused_while_it_is_measured_is_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut volume) = timed_volume(&dir, 1, 100) else { return };
    let other_writer = Arc::new(OnceLock::<Weak<FileInner>>::new());
    let (writer, calls_made) = (Arc::clone(&other_writer), AtomicUsize::new(0));
    calls(&mut volume).write_flagged = Box::new(move |_, offset, data| {
        if offset >= 1 << 19 {
            return Err(Errno::OPNOTSUPP.into());
        }
        if calls_made.fetch_add(1, Ordering::SeqCst) == 1 {
            let inner = writer.get().unwrap().upgrade().unwrap();
            inner.write_at(1 << 19, &filled(SECTOR, 1), Persist::Durable).unwrap();
        }
        Ok(data.len())
    });
    other_writer.set(Arc::downgrade(&volume.inner)).unwrap();
    volume.tune(0..1 << 19).unwrap();
    let info = volume.info();
    assert_eq!((info.durable_by, info.fallbacks.len()), ("write + fdatasync", 1), "{info:?}");
    assert!(info.durable_why.starts_with("RWF_DSYNC failed: "), "{info:?}");
}

#[test]
fn an_error_while_tuning_is_passed_on() {
    for flag_fails in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut volume) = timed_volume(&dir, 1, 1) else { return };
        if flag_fails {
            calls(&mut volume).write_flagged = Box::new(|_, _, _| Err(Errno::IO.into()));
        } else {
            calls(&mut volume).sync = Box::new(|_| Err(Errno::INVAL.into()));
        }
        let error = volume.tune(0..1 << 20).unwrap_err();
        let expected = if flag_fails { Errno::IO } else { Errno::INVAL };
        assert_eq!(error.raw_os_error(), Some(expected.raw_os_error()));
    }
}
