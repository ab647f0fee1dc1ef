//! Files that catch up with a log that others have continued: they hold what the owner holds, or
//! what they held before.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{
    CaughtUp, Error, Kept, LocalLog, Mirror, MirrorHandle, MirrorOptions, Options, Progress, Retention,
    SealedBlock, SpaceConfig, Store,
};

use crate::common::busy::{Before, Busy};
use crate::common::{Logs, contents};

/// A mirror that keeps all blocks in memory.
#[derive(Default)]
struct Log {
    handle: OnceLock<MirrorHandle>,
    blocks: Mutex<Vec<SealedBlock>>,
    found: OnceLock<LocalLog>,
    taken: Mutex<u64>,
}

impl Mirror for Log {
    fn open(&self, log: LocalLog) -> Result<(), String> {
        self.found.set(log).map_err(|_| "opened twice".into())
    }

    fn start(&self, handle: MirrorHandle) {
        assert!(self.handle.set(handle).is_ok());
    }

    fn take(&self, blocks: Vec<SealedBlock>) {
        let taken = {
            let mut taken = self.taken.lock().unwrap();
            *taken += blocks.len() as u64;
            *taken
        };
        self.blocks.lock().unwrap().extend(blocks);
        self.handle.get().unwrap().kept(taken);
    }
}

pub fn options(seed: u64) -> Options {
    timed(seed, Arc::default())
}

pub fn timed(seed: u64, clock: Arc<ManualClock>) -> Options {
    clock.set_wall(Duration::from_secs(1000));
    let options = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10);
    options.threads(false).clock(clock).rng_seed(seed)
}

/// The owner of a log, and the blocks of its earlier openings.
pub struct Owner {
    volume: Arc<MemVolume>,
    log: Arc<Log>,
    before: Vec<SealedBlock>,
    store: Option<Store>,
    pub clock: Arc<ManualClock>,
    rng: Rng,
    seed: u64,
}

impl Owner {
    pub fn new(seed: u64) -> Self {
        let owner = Self::without_spaces(seed);
        owner.store().create_space("few", SpaceConfig::new().max_logs(8).max_bytes(1 << 20)).unwrap();
        owner
    }

    pub fn without_spaces(seed: u64) -> Self {
        let volume = Arc::new(MemVolume::new(seed));
        let (log, clock) = (Arc::new(Log::default()), Arc::<ManualClock>::default());
        let mirrored = timed(seed, clock.clone()).mirror(MirrorOptions::new(log.clone()));
        let store = mirrored.create_on(volume.clone()).unwrap();
        Self { volume, log, before: Vec::new(), store: Some(store), clock, rng: Rng::new(seed), seed }
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    pub fn blocks(&self) -> Vec<SealedBlock> {
        [&self.before[..], &self.log.blocks.lock().unwrap()].concat()
    }

    /// Closes the store, or kills it, or takes its power, and returns its file as a host would keep
    /// it. Then goes on.
    pub fn file_of_a_host_that_left(&mut self) -> MemVolume {
        let store = self.store.take().unwrap();
        match self.rng.below(3) {
            0 => store.close().unwrap(),
            1 => {
                store.flush().unwrap();
                store.abandon();
            }
            _ => {
                // A torn block stays behind the end.
                self.volume.fail(Fault::PowerOffAfter(0));
                let lost = store.append("log/1", vec![7; 6000]).and_then(|ticket| ticket.wait());
                assert!(lost.is_err());
                store.abandon();
                self.volume = Arc::new(self.volume.crashed(self.seed));
            }
        }
        self.before = self.blocks();
        let image = self.volume.image();
        self.log = Arc::new(Log::default());
        let mirrored = timed(self.seed, self.clock.clone()).mirror(MirrorOptions::new(self.log.clone()));
        self.store = Some(mirrored.open_on(self.volume.clone()).unwrap());
        // The mirror takes what it lacks. The last block may be durable all the same.
        let known = self.before.last().map(|block| block.sum);
        let found = &self.log.found.get().unwrap().blocks;
        let from = found.iter().rposition(|block| Some(block.sum) == known).map_or(0, |at| at + 1);
        let is_new = found.get(from).is_some_and(|block| Some(block.previous) == known);
        self.before.extend_from_slice(if is_new { &found[from..] } else { &[] });
        MemVolume::from_image(image, self.seed)
    }

    pub fn work(&mut self, most: u64) {
        let store = self.store.clone().unwrap();
        for _ in 0..self.rng.below(most) {
            let key = format!("{}/{}", ["log", "few"][self.rng.below(2) as usize], self.rng.below(12));
            let len = if self.rng.below(8) == 0 { 3000 } else { 40 };
            let payload: Vec<u8> = (0..self.rng.below(len)).map(|_| self.rng.next() as u8).collect();
            let bounds = store.get_bounds(&key).unwrap();
            let (first, next) = bounds.map_or((0, 0), |bounds| (bounds.first, bounds.next));
            let within = first + self.rng.below(next - first + 1);
            let done = match self.rng.below(25) {
                8 => store.set_retention(&key, Retention::new().age(Duration::from_secs(60))),
                0 => store.snapshot(&key, payload),
                1 if bounds.is_some() => store.delete(&key),
                2 if bounds.is_some() => store.trim(&key, within),
                3 if bounds.is_some() => store.truncate(&key, within),
                4 => store.set_retention(&key, Retention::new().entries(4).bytes(5000)),
                5 if bounds.is_none() => store.begin_at(&key, self.rng.below(9)),
                6 => {
                    store.checkpoint().unwrap();
                    continue;
                }
                7 => {
                    while store.step().unwrap() {}
                    continue;
                }
                _ => store.append(&key, payload),
            };
            match done {
                Ok(ticket) => ticket.wait().unwrap(),
                Err(Error::QuotaReached { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        store.flush().unwrap();
    }
}

/// Everything that a store tells of itself.
pub fn told(store: &Store) -> (Logs, Vec<String>) {
    let logs = contents(store).unwrap();
    let terms = logs.keys().map(|key| format!("{:?}", store.retention(key).unwrap()));
    let spaces = store
        .spaces()
        .into_iter()
        .map(|it| format!("{} {:?} {:?} {:?}", it.name, it.config, it.logs, it.bytes));
    let more = terms.chain(spaces).collect();
    (logs, more)
}

fn catch_up(volume: &MemVolume, id: u128, blocks: &[SealedBlock]) -> Result<CaughtUp, Error> {
    options(77).catch_up_on(Arc::new(volume.clone()), id, blocks)
}

/// Opens a file as the next owner of the log would, and returns its end.
pub fn opened(volume: &MemVolume) -> (Store, (u64, u64)) {
    let log = Arc::new(Log::default());
    let store = options(5).mirror(MirrorOptions::new(log.clone())).open_on(Arc::new(volume.clone())).unwrap();
    let found = log.found.get().unwrap();
    let end = found.blocks.last().map_or((found.begin, found.sum), |last| (last.end, last.sum));
    (store, end)
}

#[test]
pub fn a_file_that_caught_up_holds_what_the_owner_holds() {
    for seed in 0..60 {
        let mut owner = Owner::new(seed);
        let mut rng = Rng::new(seed + 1000);
        owner.work(120);
        let id = owner.store().info().unwrap().id;
        let file = if rng.below(2) == 0 {
            owner.file_of_a_host_that_left()
        } else {
            let file = MemVolume::new(seed);
            let kept = Kept { store: id, backup: None, blocks: owner.blocks() };
            options(9).succeed_on(Arc::new(file.clone()), &kept).unwrap().close().unwrap();
            file
        };
        let mut end = owner.blocks().len();
        for _ in 0..rng.below(6) {
            owner.work(60);
            if rng.below(4) == 0 {
                drop(owner.file_of_a_host_that_left());
            }
            let blocks = owner.blocks();
            // Some of these blocks are in the file, and not all new ones are given at once.
            let from = end - rng.below(end.min(9) as u64 + 1) as usize;
            let to = from + rng.below((blocks.len() - from) as u64 + 1) as usize;
            let done = catch_up(&file, id, &blocks[from..to]).unwrap();
            assert_eq!(
                done,
                if from == to || to < end { CaughtUp::Ahead } else { CaughtUp::Done },
                "seed {seed}"
            );
            end = end.max(to);
        }
        let blocks = owner.blocks();
        assert_eq!(catch_up(&file, id, &blocks).unwrap(), CaughtUp::Done);
        let (store, found) = opened(&file);
        let last = blocks.last().unwrap();
        assert_eq!(found, (last.end, last.sum), "seed {seed}");
        assert!(told(&store) == told(owner.store()), "seed {seed}");
        store.append("log/1", "more").unwrap().wait().unwrap();
        store.compact().unwrap();
        let now = told(&store);
        store.close().unwrap();
        drop(store);
        let report = brooklet::check_volume(Arc::new(file.clone()), Progress::ignore).unwrap();
        assert!(report.is_sound(), "seed {seed}: {:?}", report.findings);
        assert!(told(&opened(&file).0) == now, "seed {seed}");
    }
}

/// Whenever the power goes off, or a write fails, the file is as before, or has caught up.
#[test]
pub fn a_file_catches_up_in_one_step() {
    for seed in 0..8 {
        let mut owner = Owner::new(seed);
        owner.work(60);
        let file = owner.file_of_a_host_that_left();
        let id = owner.store().info().unwrap().id;
        let (before, begin) = {
            let (store, end) = opened(&MemVolume::from_image(file.image(), 1));
            (told(&store), end)
        };
        owner.work(60);
        let blocks = owner.blocks();
        let last = blocks.last().unwrap();
        let after = told(owner.store());
        let mut outcomes = [0, 0];
        for operations in 0.. {
            let copy = MemVolume::from_image(file.image(), operations);
            let is_error = (operations + seed) % 2 == 0;
            copy.fail(match is_error {
                true => {
                    Fault::ErrorAfter { operations, kind: std::io::ErrorKind::Other, sticky: seed % 4 < 2 }
                }
                false => Fault::PowerOffAfter(operations),
            });
            let done = catch_up(&copy, id, &blocks);
            if done.is_ok() && operations > 200 {
                break;
            }
            let found = if is_error { copy.killed() } else { copy.crashed(seed) };
            let (store, end) = opened(&MemVolume::from_image(found.image(), 2));
            let is_done = end == (last.end, last.sum);
            assert!(is_done || end == begin && done.is_err(), "seed {seed}, {operations} operations");
            assert!(told(&store) == if is_done { after.clone() } else { before.clone() });
            outcomes[usize::from(is_done)] += 1;
            drop(store);
            assert_eq!(catch_up(&found, id, &blocks).unwrap(), CaughtUp::Done);
            assert!(told(&opened(&found).0) == after, "seed {seed}, {operations} operations");
        }
        assert!(outcomes[0] > 3 && outcomes[1] > 0, "{outcomes:?}");
    }
}

#[test]
pub fn a_file_whose_end_is_not_in_the_log_stays_as_it_is() {
    let mut owner = Owner::new(3);
    owner.work(50);
    let id = owner.store().info().unwrap().id;
    let file = owner.file_of_a_host_that_left();
    owner.work(90);
    let blocks = owner.blocks();
    let image = file.image();
    let refused = |blocks: &[SealedBlock]| {
        let copy = MemVolume::from_image(image.clone(), 1);
        let result = catch_up(&copy, id, blocks);
        assert!(copy.image() == image);
        result
    };
    // The log was trimmed past the end of the file.
    assert_eq!(refused(&blocks[blocks.len() - 2..]).unwrap(), CaughtUp::Outdated);
    assert_eq!(refused(&[]).unwrap(), CaughtUp::Ahead);
    assert_eq!(refused(&blocks[..1]).unwrap(), CaughtUp::Ahead);
    // A block is missing, and one belongs to another store.
    let hole = [&blocks[..3], &blocks[4..]].concat();
    assert!(matches!(refused(&hole), Err(Error::Damaged { .. })));
    assert!(matches!(catch_up(&file, id + 1, &blocks), Err(Error::MirrorRefused { .. })));
    // The file goes on by itself.
    let (store, _) = opened(&file);
    store.append("log/1", "alone").unwrap().wait().unwrap();
    let alone = told(&store);
    store.close().unwrap();
    drop(store);
    assert_eq!(catch_up(&file, id, &blocks).unwrap(), CaughtUp::Apart);
    assert!(told(&opened(&file).0) == alone);
}

/// An idle log ends with an empty block, which is a part of its history.
#[test]
pub fn empty_blocks_count() {
    let mut owner = Owner::new(4);
    owner.work(50);
    let file = owner.file_of_a_host_that_left();
    let id = owner.store().info().unwrap().id;
    let before = owner.blocks().len();
    for _ in 0..2 {
        owner.store().append("log/1", "entry").unwrap().wait().unwrap();
        for _ in 0..20 {
            owner.clock.advance(Duration::from_secs(1));
            while owner.store().step().unwrap() {}
        }
    }
    let blocks = owner.blocks();
    let empty = blocks[before..].iter().position(|block| block.begin == block.end).expect("the log is idle");
    for end in [before + empty, before + empty + 1] {
        assert_eq!(catch_up(&file, id, &blocks[..end]).unwrap(), CaughtUp::Done);
        let last = &blocks[end - 1];
        assert_eq!(opened(&MemVolume::from_image(file.image(), 1)).1, (last.end, last.sum));
    }
}

/// A log's state that cannot be read is not taken for none.
#[test]
pub fn a_damaged_run_ends_the_catching_up() {
    let mut owner = Owner::new(5);
    while owner.store().info().unwrap().runs.len() < 3 {
        owner.work(60);
    }
    let id = owner.store().info().unwrap().id;
    let file = owner.file_of_a_host_that_left();
    let end = opened(&MemVolume::from_image(file.image(), 1)).1;
    owner.work(120);
    let (blocks, after) = (owner.blocks(), contents(owner.store()).unwrap());
    let (mut refused, mut done) = (0, 0);
    let runs = {
        let store =
            options(1).read_only(true).open_on(Arc::new(MemVolume::from_image(file.image(), 1))).unwrap();
        store.info().unwrap().runs
    };
    for at in runs.iter().flat_map(|run| (run.offset..run.offset + run.bytes).step_by(1 << 10)) {
        let copy = MemVolume::from_image(file.image(), 1);
        (at..at + (1 << 10)).step_by(16).for_each(|at| copy.flip(at as usize, 2));
        match catch_up(&copy, id, &blocks) {
            Ok(how) => {
                assert_eq!(how, CaughtUp::Done);
                done += 1;
                let store = options(5).read_only(true).open_on(Arc::new(copy)).unwrap();
                for (key, log) in &after {
                    let entries = store.read(key, ..).and_then(|read| read.collect::<Result<Vec<_>, _>>());
                    match entries {
                        Ok(entries) => {
                            assert!(entries.iter().map(|entry| &entry.payload[..]).eq(&log.entries))
                        }
                        Err(Error::Damaged { .. }) => {}
                        Err(error) => panic!("byte {at}: {error}"),
                    }
                }
            }
            Err(Error::Damaged { .. }) => {
                refused += 1;
                let found = options(5).read_only(true).open_on(Arc::new(copy)).unwrap();
                assert!(!found.damage().is_empty() || found.info().is_ok());
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    assert!(refused > 3 && done > 3, "{refused} {done}");
    assert_eq!(opened(&file).1, end);
}

/// A file may take long to catch up. Its store must not trim by itself what is too old meanwhile:
/// the log would not have that commit.
#[test]
pub fn a_file_that_catches_up_commits_nothing() {
    let mut owner = Owner::new(6);
    for log in 0..200 {
        let key = format!("old/{log}");
        drop(owner.store().set_retention(&key, Retention::new().age(Duration::from_secs(1))).unwrap());
        owner.store().append(&key, vec![1; 500]).unwrap().wait().unwrap();
    }
    owner.store().checkpoint().unwrap();
    let id = owner.store().info().unwrap().id;
    let file = owner.file_of_a_host_that_left();
    owner.work(60);
    let blocks = owner.blocks();
    let clock = Arc::<ManualClock>::default();
    let slow = Busy::new(file.clone(), Before::CachedWrites);
    let options = timed(7, clock.clone());
    clock.set_wall(Duration::from_secs(1_000_000));
    slow.begin(move || clock.advance(Duration::from_secs(7200)));
    assert_eq!(options.catch_up_on(Arc::new(slow), id, &blocks).unwrap(), CaughtUp::Done);
    let last = blocks.last().unwrap();
    assert_eq!(opened(&file).1, (last.end, last.sum));
}

/// Empty blocks continue nothing: a gap before them is a gap.
#[test]
pub fn a_successor_has_no_gap() {
    let mut owner = Owner::new(8);
    owner.work(50);
    let backup = owner.store().view().unwrap();
    let id = owner.store().info().unwrap().id;
    let lsn = backup.lsn();
    owner.work(50);
    for _ in 0..40 {
        owner.clock.advance(Duration::from_secs(1));
        while owner.store().step().unwrap() {}
    }
    let blocks = owner.blocks();
    let last = blocks.last().unwrap().clone();
    assert!(last.begin == last.end && last.end > lsn, "the log is idle");
    let make = |blocks: Vec<SealedBlock>| {
        let kept = Kept { store: id, backup: Some(backup.clone()), blocks };
        options(9).succeed_on(Arc::new(MemVolume::new(1)), &kept)
    };
    assert!(matches!(make(vec![last]), Err(Error::Damaged { .. })));
    assert!(told(&make(blocks).unwrap()) == told(owner.store()));
}

/// The first block of each log begins at the same place, and follows no other. So only its identity
/// shows that a caller mixed up two logs.
#[test]
pub fn the_blocks_of_another_store_are_refused() {
    let [mut mine, mut other] = [11, 12].map(Owner::without_spaces);
    let made = |owner: &Owner, blocks: Vec<SealedBlock>| {
        let kept = Kept { store: owner.store().info().unwrap().id, backup: None, blocks };
        let file = MemVolume::new(3);
        options(9).succeed_on(Arc::new(file.clone()), &kept).map(|store| store.close().map(|()| file))
    };
    let is_damaged = |result: Result<(), Error>| matches!(result, Err(Error::Damaged { .. }));
    let new = made(&mine, Vec::new()).unwrap().unwrap();
    [&mut mine, &mut other].into_iter().for_each(|owner| owner.work(40));
    let [one, another] = [&mine, &other].map(|owner| owner.blocks()[0].clone());
    assert_eq!((one.begin, one.previous), (another.begin, another.previous));
    let id = mine.store().info().unwrap().id;
    let image = new.image();
    assert!(is_damaged(catch_up(&new, id, &other.blocks()).map(drop)));
    assert!(new.image() == image);
    let mut following = options(77).follow_on(Arc::new(MemVolume::from_image(image, 1)), id).unwrap();
    assert!(is_damaged(following.take(&other.blocks()).map(drop)));
    assert_eq!(following.take(&mine.blocks()).unwrap(), CaughtUp::Done);
    assert!(is_damaged(made(&mine, other.blocks()).map(drop)));
    assert!(made(&mine, mine.blocks()).is_ok());
    assert_eq!(catch_up(&new, id, &mine.blocks()).unwrap(), CaughtUp::Done);
}

/// An empty block before the first records is a part of the log, although it adds nothing.
#[test]
pub fn a_successor_without_a_backup_begins_with_the_first_block() {
    let mut owner = Owner::without_spaces(13);
    let id = owner.store().info().unwrap().id;
    owner.work(40);
    let make = |blocks: &[SealedBlock]| {
        let kept = Kept { store: id, backup: None, blocks: blocks.to_vec() };
        options(9).succeed_on(Arc::new(MemVolume::new(1)), &kept).map(drop)
    };
    let blocks = owner.blocks();
    make(&blocks).unwrap();
    let mut apart = blocks[0].clone();
    apart.previous = 7;
    assert!(matches!(make(&[&[apart], &blocks[1..]].concat()), Err(Error::Damaged { .. })));
}
