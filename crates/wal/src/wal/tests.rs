//! Long records, which are copied outside the lock: code of the user's own panics, or is asked,
//! while a record has its place and is not copied yet. And the rests of a committer that only one
//! event ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use brooklet_io::{ManualClock, MemVolume};

use super::*;
use crate::Committer;
use crate::config::Zone;
use crate::core::WriteReason;
use crate::shared::CommitterHandle;

fn open(config: Config, clock: Arc<dyn Clock>) -> Wal {
    let volume = MemVolume::new(1);
    volume.grow(1 << 20).unwrap();
    let zone = Zone { offset: 0, size: 1 << 20, store: 1 };
    let opening = Opening { tail: 0, next: Cursor { seq: 1, ..Cursor::default() }, epoch: 1 };
    Wal::open(Arc::new(volume), zone, config, opening, clock, Arc::new(()))
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of a volume's queue")
    }
}

/// The record is in the log by then, and another thread writes it.
#[test]
fn a_panic_of_a_waker_leaves_the_record_whole() {
    let hour = Duration::from_secs(3600);
    let wal =
        open(Config { interval: hour, linger: hour, ..Config::default() }, Arc::<ManualClock>::default());
    let handle = CommitterHandle { thread: thread::current(), flying: Arc::new(Panics).into() };
    assert!(wal.shared.committer.set(handle).is_ok());
    wal.shared.lock().rest = Some(CommitterWait::Flying { until: Duration::MAX });
    let record = vec![7; LONG];
    let appended = catch_unwind(AssertUnwindSafe(|| wal.try_append_slice(&[], &record)));
    assert!(appended.is_err(), "the waker was called");
    let core = wal.shared.lock();
    let block = core.last_appended().unwrap();
    assert!(core.records(&block).unwrap().ends_with(&record));
}

/// A clock that looks whether a thread still copies its record into a block.
#[derive(Debug, Default)]
struct Looks {
    block: Mutex<Option<Arc<Block>>>,
    was_being_filled: AtomicBool,
}

impl Clock for Looks {
    fn now(&self) -> Duration {
        if self.block.lock().unwrap().as_ref().is_some_and(|block| block.is_being_filled()) {
            self.was_being_filled.store(true, Ordering::Relaxed);
        }
        Duration::ZERO
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) {}
}

/// A clock may be the user's own, and may panic: the block's memory would be freed then.
#[test]
fn no_clock_is_asked_while_a_taken_block_is_filled() {
    let clock = Arc::<Looks>::default();
    let wal = open(Config::default(), clock.clone());
    let (record, mut reservation) = (vec![7; LONG], None);
    let reserve = |open: &mut OpenBlock| {
        let (offset, room) = open.push_reserved(&[], LONG);
        reservation = Some(room);
        offset
    };
    let (appended, _) = wal.append_quietly(LONG, false, Duration::ZERO, reserve).unwrap();
    let taken = wal.shared.lock().take(WriteReason::Wanted).unwrap();
    *clock.block.lock().unwrap() = Some(appended.block.clone());
    let reservation = reservation.unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..1000).for_each(|_| thread::yield_now());
            reservation.fill(&record);
        });
        wal.shared.carry_out(taken);
    });
    assert!(!clock.was_being_filled.load(Ordering::Relaxed));
    assert!(appended.block.data().ends_with(&record));
}

/// Nothing else would wake the committer's thread: it sleeps until there is room for its empty
/// block.
#[test]
fn a_trim_ends_the_rest_of_a_committer_without_room() {
    let wal = open(Config { block_size: 4096, ..Config::default() }, Arc::<ManualClock>::default());
    while wal.try_append(3000, false, Duration::ZERO, |out| out(&[7; 3000])).is_ok() {
        wal.flush().unwrap();
    }
    let mut committer = Committer::new(&wal).unwrap();
    (0..100).for_each(|_| _ = committer.step());
    let asleep = Some(CommitterWait::Parked { until: Duration::MAX });
    let cut = wal.cut();
    assert_eq!(wal.shared.lock().rest, asleep);
    wal.trim(wal.cut_cursor(cut).unwrap());
    assert_eq!(wal.shared.lock().rest, None);
}

/// A clock may be the user's own, and may panic under the lock. Nothing else would wake the
/// committer's thread of an idle log, and its owner waits for this thread.
#[test]
fn a_panic_under_the_lock_ends_the_rest_of_the_committer() {
    let wal = open(Config::default(), Arc::<ManualClock>::default());
    let mut committer = Committer::new(&wal).unwrap();
    (0..100).for_each(|_| _ = committer.step());
    assert_eq!(wal.shared.lock().rest, Some(CommitterWait::Parked { until: Duration::MAX }));
    let append = || wal.try_append(1, false, Duration::ZERO, |_| panic!("a planned panic"));
    assert!(catch_unwind(AssertUnwindSafe(append)).is_err());
    assert!(wal.failure().is_some(), "the log has stopped");
    assert_eq!(wal.shared.lock().rest, None);
}

struct Wakes(AtomicBool);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The mirror may be away for hours, and until it reports, no other call comes: only the committer
/// can notify the threads that wait for their blocks.
#[test]
fn a_panic_under_the_lock_wakes_the_committer_at_once() {
    let wal = open(Config::default(), Arc::<ManualClock>::default());
    let woken = Arc::new(Wakes(AtomicBool::new(false)));
    let handle = CommitterHandle { thread: thread::current(), flying: woken.clone().into() };
    assert!(wal.shared.committer.set(handle).is_ok());
    let append = || wal.try_append(1, false, Duration::ZERO, |_| panic!("a planned panic"));
    assert!(catch_unwind(AssertUnwindSafe(append)).is_err());
    assert!(woken.0.load(Ordering::Relaxed));
}
