//! A log with a mirror: what is acknowledged when, the window, the order, and the ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use brooklet_io::{Clock, Fault, ManualClock, MemVolume, Volume};
use brooklet_wal::{
    Ack, Block, Committer, Config, Cursor, LocalLog, Mirror, MirrorHandle, Opening, Pause, Records,
    SealedBlock, Sink, Start, Waiters, Waits, Wal, WalError, Zone, recover, sealed_blocks,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const ZONE: Zone = Zone { offset: 0, size: 256 << 10, store: 7 };
const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };
const WINDOW: u64 = 8000;

/// Keeps what it is told to keep.
#[derive(Default)]
struct Manual {
    handle: OnceLock<MirrorHandle>,
    taken: Mutex<Vec<SealedBlock>>,
    at_once: bool,
}

impl Mirror for Manual {
    fn open(&self, _: LocalLog) -> Result<(), String> {
        Ok(())
    }

    fn start(&self, handle: MirrorHandle) {
        self.handle.set(handle).unwrap();
    }

    fn take(&self, blocks: Vec<SealedBlock>) {
        self.taken.lock().unwrap().extend(blocks);
        if self.at_once {
            self.keep_all();
        }
    }
}

impl Manual {
    fn keep(&self, blocks: usize) {
        self.handle.get().unwrap().kept(blocks as u64);
    }

    fn keep_all(&self) {
        self.keep(self.taken());
    }

    fn taken(&self) -> usize {
        self.taken.lock().unwrap().len()
    }

    fn end(&self) -> u64 {
        self.taken.lock().unwrap().last().map_or(0, |block| block.end)
    }
}

/// Counts the blocks with records that readers see.
#[derive(Default)]
struct Seen(AtomicUsize);

impl Sink for Seen {
    fn durable(&self, blocks: &[Arc<Block>], _: &mut Waiters) {
        let records = blocks.iter().filter(|block| !block.data().is_empty()).count();
        self.0.fetch_add(records, Ordering::Relaxed);
    }
}

struct World {
    volume: MemVolume,
    clock: Arc<ManualClock>,
    mirror: Arc<Manual>,
    seen: Arc<Seen>,
    wal: Wal,
    committer: Committer,
}

impl World {
    fn new(waits: Waits) -> Self {
        Self::with(waits, Manual::default())
    }

    fn with(waits: Waits, mirror: Manual) -> Self {
        let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
        let (mirror, seen) = (Arc::new(mirror), Arc::new(Seen::default()));
        volume.grow(ZONE.size).unwrap();
        let (config, at) =
            (Config { block_size: 4096, ..Config::default() }, Opening { tail: 0, next: FIRST, epoch: 1 });
        let wal = Wal::open(Arc::new(volume.clone()), ZONE, config, at, clock.clone(), seen.clone());
        wal.attach(mirror.clone(), waits, WINDOW);
        let committer = Committer::new(&wal).unwrap();
        Self { volume, clock, mirror, seen, wal, committer }
    }

    /// Appends a record in a block of its own, and writes the block.
    fn append(&mut self, record: &[u8]) -> Ack {
        let appended = self.wal.try_append(record.len(), false, Duration::ZERO, |out| out(record)).unwrap();
        self.committer.drain();
        self.wal.ack(appended.block)
    }

    fn seen(&self) -> usize {
        self.seen.0.load(Ordering::Relaxed)
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut rng = brooklet_io::Rng::new(3);
    (0..len).map(|_| rng.next() as u8).collect()
}

pub fn an_acknowledgement_waits_for_the_mirror() {
    let mut world = World::new(Waits::Kept);
    let first = world.append(b"first");
    let taken = world.mirror.taken();
    let second = world.append(b"second");
    assert!(!first.is_done() && !second.is_done() && world.seen() == 0);
    assert!(!first.kept().unwrap().is_done());
    world.mirror.keep(taken - 1);
    assert!(!first.is_done());
    world.mirror.keep(taken);
    assert!(first.is_done() && first.kept().unwrap().is_done() && !second.is_done());
    assert_eq!(world.seen(), 1);
    // A late report of fewer blocks takes nothing back.
    world.mirror.keep(1);
    world.mirror.keep_all();
    assert!(second.is_done() && world.seen() == 2);
}

#[test]
fn a_block_is_acknowledged_and_shown_when_it_is_kept() {
    an_acknowledgement_waits_for_the_mirror();
}

/// A mirror keeps many blocks at once. The waiters of the first one go on before the next one is
/// shown.
#[test]
fn blocks_that_are_kept_at_once_end_one_after_the_other() {
    let mut world = World::new(Waits::Kept);
    let told = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..3 {
        let ack = world.append(b"record");
        let (tells, seen) = (told.clone(), world.seen.clone());
        ack.on_done(move |result| {
            let shown = seen.0.load(Ordering::Relaxed);
            tells.lock().unwrap().push((result.is_ok(), shown));
        });
    }
    assert!(told.lock().unwrap().is_empty());
    world.mirror.keep_all();
    assert_eq!(*told.lock().unwrap(), [(true, 1), (true, 2), (true, 3)]);
}

#[test]
fn a_local_acknowledgement_waits_for_nobody_and_the_second_one_can_be_had() {
    let mut world = World::new(Waits::Local);
    let ack = world.append(b"record");
    let kept = ack.kept().unwrap();
    assert!(ack.is_done() && !kept.is_done() && world.seen() == 1);
    let told = Arc::new(Mutex::new(None));
    let tells = told.clone();
    kept.on_done(move |result| *tells.lock().unwrap() = Some(result.is_ok()));
    assert!(!kept.wait_timeout(Duration::ZERO).unwrap());
    world.clock.advance(Duration::from_millis(7));
    assert_eq!(world.wal.mirror_stats().unwrap().lag, Duration::from_millis(7));
    world.mirror.keep_all();
    assert!(kept.is_done() && kept.wait().is_ok());
    assert_eq!(*told.lock().unwrap(), Some(true));
    let stats = world.wal.mirror_stats().unwrap();
    assert_eq!((stats.blocks, stats.bytes, stats.lag), (0, 0, Duration::ZERO));
    assert_eq!((stats.kept, stats.times.count()), (world.mirror.end(), 1));
    assert_eq!(stats.kept_bytes, world.mirror.taken.lock().unwrap()[0].bytes.len() as u64);
    assert_eq!(world.clock.now(), stats.times.sum());
}

/// A store that does not wait for its mirror writes and wakes as one without.
#[test]
fn a_mirror_that_nobody_waits_for_costs_no_write_and_no_wake_up() {
    let run = |wal: &Wal| {
        for n in 0..30u64 {
            wal.append(&n.to_le_bytes()).unwrap().1.wait().unwrap();
        }
        let stats = wal.stats();
        (stats.records, stats.blocks, stats.written_bytes, stats.wakes, wal.stages().whole.count())
    };
    let world = World::with(Waits::Local, Manual { at_once: true, ..Manual::default() });
    assert_eq!(run(&world.wal), run(&plain()));
    assert_eq!(world.mirror.taken.lock().unwrap().len(), 30);
}

/// An empty block ends where the block before it ends, and is another block all the same.
#[test]
fn an_empty_block_is_kept_when_the_mirror_keeps_it() {
    for waits in [Waits::Local, Waits::Kept] {
        let mut world = World::new(waits);
        world.append(b"record");
        if waits == Waits::Kept {
            world.mirror.keep(1);
        }
        while world.mirror.taken() < 2 {
            world.committer.step();
        }
        let empty = world.mirror.taken.lock().unwrap()[1].clone();
        assert_eq!(empty.begin, empty.end);
        world.mirror.keep(1);
        assert_eq!((world.wal.settled(), world.wal.mirror_stats().unwrap().blocks), (1, 1));
        world.mirror.keep(2);
        assert_eq!((world.wal.settled(), world.wal.mirror_stats().unwrap().blocks), (2, 0));
    }
}

/// In an earlier state, the committer woke up each millisecond while a block waited for the mirror.
#[test]
fn the_committer_sleeps_while_the_mirror_is_away() {
    let mut world = World::new(Waits::Kept);
    let ack = world.append(b"record");
    // The clock stands still: a rest without an end lasts for the longest time.
    let sleeps = (0..100).any(|_| world.committer.step() == Pause::Sleep(Duration::MAX));
    assert!(sleeps && !ack.is_done());
    world.mirror.keep_all();
    assert!(ack.is_done());
    // An empty block records that the mirror keeps the record.
    (0..100).for_each(|_| _ = world.committer.step());
    assert_eq!(world.mirror.taken(), 2);
}

/// The log has nothing to say by it, so the committer would not write one.
#[test]
fn an_empty_block_is_written_whenever_nothing_else_is_on_its_way() {
    let mut world = World::new(Waits::Local);
    world.append(b"record");
    while world.mirror.taken() < 2 {
        world.committer.step();
    }
    for _ in 0..100 {
        world.committer.step();
    }
    assert_eq!(world.mirror.taken(), 2);
    for taken in 3..5 {
        assert!(world.wal.write_empty().unwrap());
        assert_eq!((world.mirror.taken(), world.wal.durable()), (taken, taken as u64));
    }
    drop(world.wal.try_append(1, false, Duration::ZERO, |out| out(b"x")).unwrap());
    assert!(!world.wal.write_empty().unwrap(), "a record is on its way");
    world.wal.flush().unwrap();
    assert_eq!(world.mirror.taken(), 5);
    world.volume.fail(Fault::PowerOffAfter(0));
    assert!(world.wal.write_empty().is_err());
}

/// A log that has ended does not call what its mirror lacks settled: the ring still needs it.
#[test]
fn the_end_of_the_mirror_settles_nothing() {
    let mut world = World::new(Waits::Local);
    world.append(b"record");
    assert_eq!((world.wal.settled(), world.wal.durable()), (0, 1));
    world.mirror.handle.get().unwrap().end("another host has come");
    assert_eq!((world.wal.settled(), world.wal.durable()), (0, 1));
}

/// Nothing that the mirror is behind with makes a log forget it: appends wait instead.
#[test]
fn appends_wait_while_too_much_is_not_kept() {
    for waits in [Waits::Local, Waits::Kept] {
        let mut world = World::new(waits);
        let record = noise(3000);
        let append = |wal: &Wal| wal.try_append(3000, false, Duration::ZERO, |out| out(&record));
        let mut appended = 0;
        while append(&world.wal).is_ok() {
            world.committer.drain();
            appended += 1;
        }
        assert_eq!(appended, WINDOW.div_ceil(3000));
        assert!(matches!(append(&world.wal), Err(WalError::Busy)));
        world.mirror.keep(1);
        append(&world.wal).unwrap();
    }
}

#[test]
fn the_mirror_gets_the_ring_block_by_block() {
    let mut world = World::with(Waits::Kept, Manual { at_once: true, ..Manual::default() });
    for len in [10, 0, 3000, 20_000] {
        assert!(world.append(&noise(len)).is_done());
        assert!(world.append(&vec![7; len]).is_done());
    }
    world.wal.close().unwrap();
    let taken = world.mirror.taken.lock().unwrap().clone();
    assert_eq!((taken[0].begin, taken[0].previous), (0, 0));
    for pair in taken.windows(2) {
        assert_eq!((pair[0].end, pair[0].sum), (pair[1].begin, pair[1].previous));
    }
    let start = Start { cursor: FIRST, acked: 0, clean: false, epoch: 1 };
    let mut records = Vec::new();
    let found = recover(&world.volume, ZONE, start, |block, _| {
        records.push(block.data().clone());
        Ok::<_, WalError>(())
    });
    assert_eq!(sealed_blocks(&world.volume, ZONE, start, &found.unwrap()).unwrap(), taken);
    for (block, records) in taken.iter().zip(&records) {
        assert_eq!(SealedBlock::decode(block.bytes.clone()).as_ref(), Some(block));
        assert_eq!(block.records().as_ref(), Some(records));
        assert_eq!(Records::new(records).count() as u64, u64::from(!records.is_empty()));
        for at in 0..block.bytes.len() {
            let mut damaged = block.bytes.to_vec();
            damaged[at] ^= 1;
            assert_eq!(SealedBlock::decode(damaged.into()), None);
        }
        assert_eq!(SealedBlock::decode(block.bytes.slice(..block.bytes.len() - 1)), None);
    }
}

/// A subscriber that keeps the levels of events.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<Vec<Level>>>);

impl Subscriber for Levels {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An owner that leaves its log to another host closes the log first.
#[test]
fn the_end_of_the_mirror_is_no_error_of_a_closed_log() {
    let levels = |closes: bool| {
        let mut world = World::with(Waits::Kept, Manual { at_once: true, ..Manual::default() });
        assert!(world.append(b"record").is_done());
        if closes {
            world.wal.close().unwrap();
        }
        let levels = Levels::default();
        let end = || world.mirror.handle.get().unwrap().end("it was left to another host");
        tracing::subscriber::with_default(levels.clone(), end);
        let more = world.wal.append(b"more").map(drop);
        assert!(matches!(more, Err(WalError::Closed)) == closes);
        std::mem::take(&mut *levels.0.lock().unwrap())
    };
    assert_eq!(levels(false), [Level::ERROR]);
    assert_eq!(levels(true), [Level::INFO]);
}

#[test]
fn whoever_waits_learns_that_the_mirror_has_ended() {
    for waits in [Waits::Local, Waits::Kept] {
        let mut world = World::new(waits);
        let ack = world.append(b"record");
        world.mirror.handle.get().unwrap().end("another host has come");
        let ended =
            |result| matches!(result, Err(WalError::MirrorEnded { why }) if &*why == "another host has come");
        assert!(ended(ack.kept().unwrap().wait()));
        assert_eq!(ack.wait().is_ok(), waits == Waits::Local);
        assert!(ended(world.wal.append(b"more").map(drop)));
        assert_eq!(world.wal.flush().is_ok(), waits == Waits::Local);
        // What comes late changes nothing.
        world.mirror.keep_all();
        assert!(ended(ack.kept().unwrap().wait()));
    }
}

/// Closing waits for the mirror if acknowledgements do, and otherwise says that it does not know.
#[test]
fn closing_leaves_nobody_waiting() {
    let mut world = World::new(Waits::Local);
    let ack = world.append(b"record");
    world.wal.close().unwrap();
    assert!(ack.is_done() && matches!(ack.kept().unwrap().wait(), Err(WalError::Closed)));

    let mut world = World::new(Waits::Kept);
    let ack = world.append(b"record");
    let (wal, mirror, keeps) = (&world.wal, &world.mirror, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            wal.close().unwrap();
            assert_eq!(keeps.load(Ordering::Acquire), 1, "closing does not wait for the mirror");
        });
        while !matches!(wal.append(b"late"), Err(WalError::Closed)) {
            std::thread::yield_now();
        }
        // A close that does not wait ends meanwhile.
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!closing.is_finished() && !ack.is_done());
        keeps.store(1, Ordering::Release);
        mirror.keep_all();
        closing.join().unwrap();
    });
    assert!(ack.is_done() && ack.kept().unwrap().is_done());
}

#[test]
fn a_log_without_a_mirror_has_no_second_acknowledgement() {
    let wal = plain();
    let (_, ack) = wal.append(b"record").unwrap();
    ack.wait().unwrap();
    assert!(ack.kept().is_none() && wal.mirror_stats().is_none());
}

fn plain() -> Wal {
    let volume = MemVolume::new(1);
    volume.grow(ZONE.size).unwrap();
    let at = Opening { tail: 0, next: FIRST, epoch: 1 };
    let clock = Arc::new(ManualClock::default());
    Wal::open(Arc::new(volume), ZONE, Config::default(), at, clock, Arc::new(()))
}
