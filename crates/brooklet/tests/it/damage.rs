//! One damaged place must not hide everything: what is left of a store can be read, and nothing
//! reads wrong or shorter than it is without an error that names the place.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use brooklet::io::{Completion, Layer, MemVolume, Op, Queue, SECTOR, Volume};
use brooklet::{Bytes, Commit, Create, Entry, Error, Options, Store, WalkItem, check_volume};

fn options() -> Options {
    Options::new().ring_size(256 << 10).max_payload(8 << 10).threads(false)
}

/// What a log holds: its first number, and its entries.
type Log = (u64, Vec<Bytes>);
type Logs = BTreeMap<Vec<u8>, Log>;

/// Where the ring lies on the volume, and its bytes.
const RING: Range<usize> = 64 << 10..320 << 10;

fn contents(store: &Store) -> Logs {
    let log = |key: Vec<u8>| {
        let (bounds, entries) = (store.bounds(&key).unwrap(), store.read(&key, ..).unwrap());
        (key, (bounds.first, entries.map(|entry| entry.unwrap().payload).collect()))
    };
    store.scan("").unwrap().map(|found| log(found.unwrap().key)).collect()
}

/// A store with logs in a run, and in the ring a block for each of many commits. Gives its medium,
/// and what it held before each of those, and at the end.
fn store() -> (MemVolume, Vec<Logs>) {
    let volume = MemVolume::new(3);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for log in ["old", "both", "trimmed", "cut", "goes"] {
        store.append_many(log, (0..9).map(|i| format!("{log} {i}"))).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    let mut states = vec![contents(&store)];
    type Operation<'a> = &'a dyn Fn(&mut Commit);
    let operations: [Operation<'_>; 16] = [
        &|c| _ = c.append("both", b"9"),
        &|c| _ = c.append("new", b"0"),
        &|c| _ = c.append("new", b"1").append("snap", b"0"),
        &|c| _ = c.truncate("cut", 4),
        &|c| _ = c.append("both", b"10"),
        &|c| _ = c.append("cut", b"4 anew"),
        &|c| _ = c.trim("trimmed", 3),
        &|c| _ = c.delete("goes"),
        &|c| _ = c.append("new", b"2").append("both", b"11"),
        &|c| _ = c.append("goes", b"0 anew"),
        &|c| _ = c.snapshot("snap", b"1"),
        &|c| _ = c.append("trimmed", b"9"),
        &|c| _ = c.append("newer", b"0"),
        &|c| _ = c.truncate("new", 1),
        &|c| _ = c.append("new", b"1 anew"),
        &|c| _ = c.append("newer", b"1").append("cut", b"5"),
    ];
    for operation in operations {
        let mut commit = Commit::new();
        operation(&mut commit);
        store.commit(&commit).unwrap().wait().unwrap();
        states.push(contents(&store));
    }
    store.close().unwrap();
    (volume, states)
}

/// Where the blocks of the ring lie, the oldest first.
fn blocks(volume: &MemVolume) -> Vec<usize> {
    let image = volume.image();
    let mut found: Vec<(u64, usize)> = RING
        .step_by(4096)
        .filter(|&at| image[at..at + 4] == *b"BRKB")
        .map(|at| (u64::from_le_bytes(image[at + 24..at + 32].try_into().unwrap()), at))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, at)| at).collect()
}

/// What comes out until the first error, if there is one.
fn until_error(mut entries: impl Iterator<Item = Result<Entry, Error>>) -> (Vec<Entry>, Option<Error>) {
    let mut read = Vec::new();
    loop {
        match entries.next() {
            None => return (read, None),
            Some(Ok(entry)) => read.push(entry),
            Some(Err(error)) => {
                assert!(entries.next().is_none(), "an error ends it");
                assert!(matches!(error, Error::Damaged { .. }), "{error}");
                return (read, Some(error));
            }
        }
    }
}

fn numbered((first, entries): &Log) -> Vec<Entry> {
    entries.iter().zip(*first..).map(|(payload, seq)| Entry { seq, payload: payload.clone() }).collect()
}

/// Whether some of the entries are these, one after another: what is known to have been trimmed
/// later is left out.
fn is_part(read: &[Entry], entries: &[Entry]) -> bool {
    read.is_empty() || entries.windows(read.len()).any(|entries| entries == read)
}

/// Every log of a store of which the block of commit `at` is damaged.
fn every_log_is_right_or_says_so(store: &Store, states: &[Logs], at: usize) {
    let (before, after, now) = (&states[at], &states[at + 1], states.last().unwrap());
    for key in states.iter().flat_map(BTreeMap::keys) {
        let told = |logs: &Logs| logs.get(key).map(numbered).unwrap_or_default();
        let what = || format!("commit {at}, log {}", key.escape_ascii());
        let (read, error) = match store.read(key, ..) {
            Ok(entries) => until_error(entries),
            Err(error @ (Error::UnknownLog { .. } | Error::Damaged { .. })) => (Vec::new(), Some(error)),
            Err(error) => panic!("{}: {error}", what()),
        };
        match &error {
            None => {
                assert_eq!(read, told(now), "{}", what());
                assert_eq!(store.bounds(key).unwrap().first, now[key].0, "{}", what());
            }
            // Nothing is said to be gone but what is.
            Some(Error::UnknownLog { .. }) => assert!(!now.contains_key(key), "{}", what()),
            Some(error) => {
                assert!(error.to_string().contains("the ring, block"), "{}: {error}", what());
                assert!(is_part(&read, &told(before)), "{}: {read:?}", what());
                let bounds = store.bounds(key);
                assert!(matches!(bounds, Err(Error::Damaged { .. })), "{}: {bounds:?}", what());
                // What no commit from then on did anything to is all there.
                if states[at..].iter().all(|logs| logs.get(key) == before.get(key)) {
                    assert_eq!(read, told(now), "{}", what());
                }
                // Nobody is shown an older entry as the newest.
                if before.contains_key(key) {
                    let newest = store.read(key, ..).unwrap().next_back().unwrap();
                    let is_newest = newest.as_ref().is_ok_and(|newest| told(now).last() == Some(newest));
                    assert!(newest.is_err() || is_newest, "{}: {newest:?}", what());
                }
            }
        }
        // What was appended behind the hole is had by its number.
        let gone = after.get(key).map_or(0, |(first, entries)| first + entries.len() as u64);
        for entry in told(now).into_iter().filter(|entry| entry.seq >= gone) {
            let (read, _) = until_error(store.read(key, entry.seq..).unwrap());
            assert_eq!(read.first(), Some(&entry), "{}", what());
        }
    }
}

/// Whatever goes through all logs gives those that are left, and then says what is missing.
fn listings_end_with_an_error(store: &Store, before: &Logs) {
    let listed: Vec<_> = store.scan("").unwrap().collect();
    let (last, logs) = listed.split_last().unwrap();
    assert!(matches!(last, Err(Error::Damaged { .. })), "{listed:?}");
    let keys: Vec<_> = logs.iter().map(|log| log.as_ref().unwrap().key.clone()).collect();
    let view = store.view().unwrap();
    let in_view: Vec<_> = view.scan("").unwrap().map_while(Result::ok).map(|log| log.key).collect();
    assert_eq!(keys, in_view);
    let (mut walked, mut key, mut ended) = (Logs::new(), Vec::new(), false);
    for step in view.walk("").unwrap() {
        assert!(!ended, "an error ends it");
        match step {
            Ok(WalkItem::Log(log)) => {
                key = log.key;
                walked.insert(key.clone(), (log.bounds.first, Vec::new()));
            }
            Ok(WalkItem::Entry(entry)) => walked.get_mut(&key).unwrap().1.push(entry.payload),
            Err(error) => ended = matches!(error, Error::Damaged { .. }),
        }
    }
    assert!(ended);
    assert_eq!(walked.keys().cloned().collect::<Vec<_>>(), keys);
    for (key, log) in &walked {
        let (read, error) = until_error(view.read(key, ..).unwrap());
        let (same, too) = until_error(store.read(key, ..).unwrap());
        assert_eq!((&read, error.is_some()), (&same, too.is_some()));
        if error.is_some() {
            assert_eq!(Some(log), before.get(key));
        } else {
            assert_eq!(read, numbered(log));
        }
    }
    let mut file = Vec::new();
    assert!(matches!(view.export("", &mut file), Err(Error::Damaged { .. })));
    let copied = options().copy_on(Arc::new(MemVolume::new(1)), &view);
    assert!(matches!(copied, Err(Error::Damaged { .. })), "nobody is to take a copy for whole");
}

#[test]
pub fn a_damaged_block_of_the_ring_hides_no_other() {
    let (volume, states) = store();
    let blocks = blocks(&volume);
    let blocks = &blocks[blocks.len() - (states.len() - 1)..];
    for (at, &block) in blocks.iter().enumerate() {
        // In the header, and in the last byte of the payload, which is of no name.
        let image = volume.image();
        let len = u32::from_le_bytes(image[block + 72..block + 76].try_into().unwrap()) as usize;
        for byte in [block + 40, block + 96 + len - 1] {
            volume.flip(byte, 4);
            let reader = options().read_only(true).open_on(Arc::new(volume.clone())).unwrap();
            every_log_is_right_or_says_so(&reader, &states, at);
            listings_end_with_an_error(&reader, &states[at]);
            let beside = options().beside_writer(true).open_on(Arc::new(volume.clone())).unwrap();
            every_log_is_right_or_says_so(&beside, &states, at);
            listings_end_with_an_error(&beside, &states[at]);
            assert_eq!(beside.damage().len(), 1, "the superblock knows the damaged block");
            assert!(!beside.is_outdated().unwrap());
            let [damage] = &reader.damage()[..] else { panic!("one place is damaged") };
            let names = |key: &Vec<u8>| damage.logs.contains(key) && damage.what.contains("affected logs: ");
            let touched = |key: &&Vec<u8>| states[at].get(*key) != states[at + 1].get(*key);
            if byte > block + 96 {
                assert!(states[at + 1].keys().filter(touched).all(names), "{damage}");
            }
            let report = check_volume(Arc::new(volume.clone()), brooklet::Progress::ignore).unwrap();
            assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
            assert!(report.doubtful > 0 && report.entries > 0);
            let writer = options().create(Create::Never).open_on(Arc::new(volume.clone()));
            let refused = writer.unwrap_err().to_string();
            assert!(refused.contains("Options::read_only"), "{refused}");
            volume.flip(byte, 4);
        }
    }
    assert_eq!(contents(&options().open_on(Arc::new(volume)).unwrap()), *states.last().unwrap());
}

#[test]
fn what_lies_between_two_damaged_blocks_is_left_out() {
    let (volume, states) = store();
    let blocks = blocks(&volume);
    let blocks = &blocks[blocks.len() - (states.len() - 1)..];
    for at in 0..blocks.len() - 3 {
        let flip_both = || [blocks[at], blocks[at + 3]].iter().for_each(|block| volume.flip(block + 40, 1));
        flip_both();
        let reader = options().read_only(true).open_on(Arc::new(volume.clone())).unwrap();
        listings_end_with_an_error(&reader, &states[at]);
        for key in states[at].keys() {
            let (read, error) = match reader.read(key, ..) {
                Ok(entries) => until_error(entries),
                Err(error) => (Vec::new(), Some(error)),
            };
            let held = states.last().unwrap().get(key).map(numbered).unwrap_or_default();
            assert!(error.is_some() && is_part(&read, &numbered(&states[at][key])) || read == held);
        }
        flip_both();
    }
}

/// All entries of the log are trimmed. A lost commit deletes the log and begins it again, and the
/// next commit goes on with the numbers that the log had before.
#[test]
pub fn a_log_that_was_begun_again_below_its_first_number_shows_what_is_proven() {
    for (before, lost, proven) in [(4, 1, 1), (60, 10, 5)] {
        let volume = MemVolume::new(3);
        let store = options().create_on(Arc::new(volume.clone())).unwrap();
        store.append_many("log", vec!["a"; before as usize]).unwrap().wait().unwrap();
        store.trim("log", before.min(12)).unwrap().wait().unwrap();
        let mut again = Commit::new();
        again.delete("log");
        for _ in 0..lost {
            again.append("log", b"new");
        }
        store.commit(&again).unwrap().wait().unwrap();
        store.append_many("log", vec!["proven"; proven as usize]).unwrap().wait().unwrap();
        store.close().unwrap();
        let blocks = blocks(&volume);
        volume.flip(blocks[blocks.len() - 2] + 40, 4);
        let reader = options().read_only(true).open_on(Arc::new(volume)).unwrap();
        for entries in [reader.read("log", lost..), reader.read_available("log", lost..)] {
            let read: Vec<Entry> = entries.unwrap().collect::<Result<_, _>>().unwrap();
            assert!(read.iter().map(|entry| entry.seq).eq(lost..lost + proven), "{read:?}");
            assert!(read.iter().all(|entry| entry.payload == "proven"), "{read:?}");
        }
        let (_, error) = until_error(reader.read_available("log", lost - 1..).unwrap());
        assert!(matches!(error, Some(Error::Damaged { .. })));
    }
}

#[test]
pub fn a_log_that_a_lost_commit_may_have_begun_again_is_in_doubt() {
    let volume = MemVolume::new(3);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    store.append_many("log", ["a", "b"]).unwrap().wait().unwrap();
    store.trim("log", 2).unwrap().wait().unwrap();
    let mut again = Commit::new();
    again.delete("log").append("log", b"new").append("log", b"newer");
    store.commit(&again).unwrap().wait().unwrap();
    store.append("log", b"newest").unwrap().wait().unwrap();
    store.close().unwrap();
    // A store that was closed has no block behind its last commit.
    let blocks = blocks(&volume);
    let lost = blocks[blocks.len() - 2];
    volume.flip(lost + 40, 4);
    for options in [options().read_only(true), options().beside_writer(true)] {
        let reader = options.open_on(Arc::new(volume.clone())).unwrap();
        let behind = reader.read("log", 2..).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(behind, [Entry { seq: 2, payload: "newest".into() }]);
        for entries in
            [reader.read("log", ..), reader.read_available("log", ..), reader.read_available("log", 1..)]
        {
            let (read, error) = until_error(entries.unwrap());
            assert!(matches!(error, Some(Error::Damaged { .. })), "{read:?} passes for the whole log");
        }
        let (read, error) = until_error(reader.read("log", ..).unwrap().rev());
        assert!(error.is_some() && read == behind, "{read:?}");
        assert!(matches!(reader.bounds("log"), Err(Error::Damaged { .. })));
    }
}

/// A volume that does not read these bytes, and the tokens of such reads in flight.
#[derive(Clone, Debug)]
struct BadSector(MemVolume, Range<u64>, Arc<Mutex<BTreeSet<u64>>>);

impl BadSector {
    fn of(volume: &MemVolume, offset: u64) -> Arc<dyn Volume> {
        Self::all(volume, offset..offset + 1)
    }

    fn all(volume: &MemVolume, bytes: Range<u64>) -> Arc<dyn Volume> {
        Arc::new(Self(volume.clone(), bytes, Arc::default()))
    }

    fn check(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let reads_it = offset < self.1.end && self.1.start < offset + buf.len() as u64;
        if reads_it { Err(io::Error::other("a bad sector")) } else { Ok(()) }
    }
}

impl Layer for BadSector {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.check(offset, buf)?;
        self.0.read_at(offset, buf)
    }

    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        match self.check(offset, buf) {
            Ok(()) => self.0.read_medium(offset, buf),
            Err(error) => Some(Err(error)),
        }
    }

    fn submit(&self, queue: &mut dyn Queue, token: u64, op: Op) {
        if let Op::Read { offset, buf } = &op
            && self.check(*offset, buf).is_err()
        {
            self.2.lock().unwrap().insert(token);
        }
        queue.submit(token, op);
    }

    fn reap(&self, queue: &mut dyn Queue, wait: bool, out: &mut Vec<Completion>) {
        queue.reap(wait, out);
        for completion in out {
            if self.2.lock().unwrap().remove(&completion.token) {
                completion.result = Err(io::Error::other("a bad sector"));
            }
        }
    }
}

/// The superblock has three copies. In an earlier state, a device that did not read one of them
/// kept the store from opening, although a flipped bit there did not.
#[test]
fn a_copy_of_the_superblock_that_the_device_does_not_read_hides_nothing() {
    for copy in 0..3 {
        let disk = MemVolume::new(1);
        let store = options().create_on(Arc::new(disk.clone())).unwrap();
        store.append("log", b"entry").unwrap().wait().unwrap();
        store.close().unwrap();
        let bad = BadSector::of(&disk, copy * SECTOR as u64);
        for read_only in [true, false] {
            let store = options().read_only(read_only).open_on(bad.clone()).unwrap();
            let entry = store.read("log", ..).unwrap().next().expect("the log has an entry").unwrap();
            assert_eq!(entry.payload, &b"entry"[..], "copy {copy}, read-only: {read_only}");
        }
    }
}

/// In an earlier state, a device that did not read one sector of the ring kept the store from
/// opening, for reading, too, although a flipped bit there did not.
#[test]
fn a_sector_of_the_ring_that_the_device_does_not_read_hides_no_other() {
    let (volume, states) = store();
    let blocks = blocks(&volume);
    let free = *blocks.last().unwrap() + 2 * SECTOR;
    let blocks = &blocks[blocks.len() - (states.len() - 1)..];
    for (at, &block) in blocks.iter().enumerate() {
        let bad = BadSector::of(&volume, block as u64);
        let reader = options().read_only(true).open_on(bad.clone()).unwrap();
        every_log_is_right_or_says_so(&reader, &states, at);
        listings_end_with_an_error(&reader, &states[at]);
        let [damage] = &reader.damage()[..] else { panic!("one place is damaged") };
        assert!(damage.what.contains("the device does not read"), "{damage}");
        let writer = options().create(Create::Never).open_on(bad).unwrap_err();
        let refused = writer.to_string();
        assert!(matches!(writer, Error::Io { .. }) && refused.contains("at offset"), "{refused}");
    }
    // No block needs this sector.
    let reader = options().read_only(true).open_on(BadSector::of(&volume, free as u64)).unwrap();
    assert_eq!(contents(&reader), *states.last().unwrap());
    assert!(reader.damage().is_empty());
}

/// No block needs this sector. In an earlier state, an opening for writing failed all the same,
/// because it reads the sector together with the blocks.
#[test]
fn a_free_sector_that_the_device_does_not_read_keeps_no_closed_store_from_opening() {
    let (volume, states) = store();
    let free = *blocks(&volume).last().unwrap() + 2 * SECTOR;
    let bad = BadSector::of(&volume, free as u64);
    let writer = options().create(Create::Never).open_on(bad).unwrap();
    assert_eq!(contents(&writer), *states.last().unwrap());
}

/// A store that was killed, and the offset of a free sector behind its blocks.
fn killed() -> (MemVolume, u64) {
    let volume = MemVolume::new(3);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for entry in ["first", "last"] {
        store.append("log", entry).unwrap().wait().unwrap();
    }
    let volume = MemVolume::from_image(volume.image(), 3);
    let free = *blocks(&volume).last().unwrap() + 2 * SECTOR;
    (volume, free as u64)
}

/// An opening for writing reads this sector, because a block in it may prove that an earlier block
/// was acknowledged. In an earlier state, a check called the store sound.
#[test]
fn a_check_names_a_free_sector_that_the_device_does_not_read() {
    let (volume, free) = killed();
    let bad = BadSector::of(&volume, free);
    let reader = options().read_only(true).open_on(bad.clone()).unwrap();
    assert_eq!(contents(&reader)[&b"log"[..]].1, ["first", "last"]);
    assert!(reader.damage().is_empty());
    let refused = options().create(Create::Never).open_on(bad.clone()).unwrap_err().to_string();
    assert!(refused.contains(&format!("at offset {free} ")), "{refused}");
    let report = check_volume(bad, brooklet::Progress::ignore).unwrap();
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert!(!finding.harmless && finding.what.contains(&format!("at offset {free} ")), "{finding:?}");
    assert_eq!((report.logs, report.entries), (1, 2));
}

#[test]
fn a_free_sector_that_the_device_does_not_read_keeps_no_reader_beside_a_writer_from_opening() {
    let (volume, free) = killed();
    let reader = options().beside_writer(true).open_on(BadSector::of(&volume, free)).unwrap();
    assert!(contents(&reader)[&b"log"[..]].1.starts_with(&["first".into()]));
}

/// As without a writer: the superblock knows the block. In an earlier state, the opening failed.
#[test]
fn beside_a_writer_a_sector_that_the_device_does_not_read_hides_no_other() {
    let (volume, states) = store();
    let blocks = blocks(&volume);
    let blocks = &blocks[blocks.len() - (states.len() - 1)..];
    for (at, &block) in blocks.iter().enumerate().step_by(5) {
        let bad = BadSector::of(&volume, block as u64);
        let beside = options().beside_writer(true).open_on(bad).unwrap();
        every_log_is_right_or_says_so(&beside, &states, at);
        listings_end_with_an_error(&beside, &states[at]);
        let [damage] = &beside.damage()[..] else { panic!("one place is damaged") };
        assert!(damage.what.contains("the device does not read"), "{damage}");
    }
}

/// Nothing behind the last block shows where the log goes on. In an earlier state, a reader that
/// had opened over this damage could not be asked whether there is anything newer.
#[test]
fn a_reader_beside_a_writer_whose_last_block_is_not_read_is_not_outdated() {
    let (volume, _) = store();
    let last = *blocks(&volume).last().unwrap();
    let beside = options().beside_writer(true).open_on(BadSector::of(&volume, last as u64)).unwrap();
    assert_eq!(beside.damage().len(), 1);
    assert!(!beside.is_outdated().unwrap());
}

/// The device may be gone. In an earlier state, such a store opened without all commits of its
/// ring.
#[test]
fn a_store_opens_on_no_device_that_reads_nothing_of_the_ring() {
    let (volume, _) = store();
    let bad = BadSector::all(&volume, RING.start as u64..RING.end as u64);
    for options in [options().read_only(true), options().beside_writer(true)] {
        let refused = options.open_on(bad.clone()).unwrap_err();
        let told = refused.to_string();
        assert!(matches!(refused, Error::Io { .. }) && told.contains("reads no sector"), "{told}");
    }
}

/// Nothing proves that this block was acknowledged, but there may be a block: no log passes for
/// whole without it.
#[test]
fn a_last_block_that_the_device_does_not_read_leaves_its_log_in_doubt() {
    let volume = MemVolume::new(3);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for entry in ["first", "last"] {
        store.append("log", entry).unwrap().wait().unwrap();
    }
    // The store was killed: neither its close nor another block records the last block.
    let volume = MemVolume::from_image(volume.image(), 3);
    let last = *blocks(&volume).last().unwrap();
    let reader = options().read_only(true).open_on(BadSector::of(&volume, last as u64)).unwrap();
    let (read, error) = until_error(reader.read("log", ..).unwrap());
    assert_eq!(read, [Entry { seq: 0, payload: "first".into() }]);
    assert!(error.expect("an entry may be missing").to_string().contains("the device does not read"));
}

/// One bad place of a disk may be two such faults: a block is damaged, and the device does not read
/// the block behind it, which alone proves that the damaged one was acknowledged.
#[test]
fn a_damaged_block_whose_proof_the_device_does_not_read_leaves_its_log_in_doubt() {
    let volume = MemVolume::new(3);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for entry in ["first", "second", "last"] {
        store.append("log", entry).unwrap().wait().unwrap();
    }
    let volume = MemVolume::from_image(volume.image(), 3);
    let blocks = blocks(&volume);
    let [.., second, last] = &blocks[..] else { panic!("each entry has a block") };
    volume.flip(*second + 96, 4);
    let reader = options().read_only(true).open_on(BadSector::of(&volume, *last as u64)).unwrap();
    let (read, error) = until_error(reader.read("log", ..).unwrap());
    assert_eq!(read, [Entry { seq: 0, payload: "first".into() }]);
    assert!(error.expect("an entry is missing").to_string().contains("the device does not read"));
}

/// In an earlier state, a device that did not read the footer of a run kept the store from opening,
/// for reading, too, although a flipped bit there did not.
#[test]
fn a_run_that_the_device_does_not_read_hides_no_other_log() {
    let (volume, states) = store();
    let end = {
        let store = options().read_only(true).open_on(Arc::new(volume.clone())).unwrap();
        let run = &store.info().unwrap().runs[0];
        run.offset + run.bytes
    };
    let bad = BadSector::of(&volume, end - SECTOR as u64);
    let reader = options().read_only(true).open_on(bad.clone()).unwrap();
    let (read, error) = until_error(reader.read("newer", ..).unwrap());
    assert!(error.is_none() && read == numbered(&states.last().unwrap()[&b"newer"[..]]), "{error:?}");
    let old = reader.read("old", ..).and_then(|mut entries| entries.next().transpose());
    assert!(matches!(old, Err(Error::Damaged { .. })), "{old:?}");
    let [damage] = &reader.damage()[..] else { panic!("one place is damaged") };
    assert!(damage.place.contains("run ") && damage.what.contains("the device does not read"), "{damage}");
    let refused = options().create(Create::Never).open_on(bad).unwrap_err();
    assert!(matches!(refused, Error::Io { .. }) && refused.to_string().contains("at offset"), "{refused}");
}

/// A volume whose first reads of the sector at this offset fail: so many of them.
#[derive(Clone, Debug)]
struct Flaky(MemVolume, u64, Arc<AtomicU64>);

impl Layer for Flaky {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let reads_it = (offset..offset + buf.len() as u64).contains(&self.1);
        let one_less = |left: u64| left.checked_sub(1);
        if reads_it && self.2.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Err(io::Error::other("a read that fails"));
        }
        self.0.read_at(offset, buf)
    }
}

/// An opening beside a writer starts over after a failed read. In between, one failed read of a run
/// hid the logs of this run for as long as the reader was open.
#[test]
fn beside_a_writer_a_run_that_reads_the_next_time_is_whole() {
    let (volume, states) = store();
    let run = options().read_only(true).open_on(Arc::new(volume.clone())).unwrap().info().unwrap().runs[0];
    let failures = Arc::new(AtomicU64::new(1));
    let flaky = Flaky(volume, run.offset + run.bytes - SECTOR as u64, failures.clone());
    let reader = options().beside_writer(true).open_on(Arc::new(flaky)).unwrap();
    assert_eq!(failures.load(Ordering::Relaxed), 0);
    assert_eq!(contents(&reader), *states.last().unwrap());
    assert!(reader.damage().is_empty());
}
