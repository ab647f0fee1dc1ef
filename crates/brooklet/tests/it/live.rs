//! Reading a store beside the process that writes it: what is read was acknowledged, and is never
//! another log's.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use brooklet::io::{Layer, MemVolume, Rng, Volume};
use brooklet::{Error, ErrorKind, Options, Store};

use crate::common::{contents, small};

fn options() -> Options {
    Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10)
}

/// Opens a reader, as soon as it sees everything that was acknowledged.
fn up_to_date(open: impl Fn() -> Store, is_there: impl Fn(&Store) -> bool) -> Store {
    loop {
        let reader = open();
        if is_there(&reader) {
            return reader;
        }
        thread::yield_now();
    }
}

#[test]
pub fn a_reader_sees_what_was_acknowledged_and_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = options().open(&path).unwrap();
    store.append_many("log", ["a", "b"]).unwrap().wait().unwrap();
    store.append("other", "x").unwrap().wait().unwrap();
    assert!(matches!(options().read_only(true).open(&path), Err(Error::Locked { .. })));
    let open = || options().beside_writer(true).open(&path).unwrap();
    let reader = up_to_date(open, |reader| reader.exists("other").unwrap());
    assert_eq!(contents(&reader).unwrap(), contents(&store).unwrap());
    assert!(!reader.is_outdated().unwrap() && !store.is_outdated().unwrap());
    assert!(matches!(reader.append("log", "x"), Err(Error::ReadOnly)));
    assert!(matches!(reader.tail("log", 0), Err(Error::ReadOnly)));
    store.append("log", "c").unwrap().wait().unwrap();
    while !reader.is_outdated().unwrap() {
        thread::yield_now();
    }
    assert_eq!(reader.bounds("log").unwrap().next, 2, "it shows the moment of its opening");
    let again = open();
    assert_eq!(again.bounds("log").unwrap().next, 3);
    store.checkpoint().unwrap();
    assert!(again.is_outdated().unwrap() && !open().is_outdated().unwrap());
    assert_eq!(contents(&open()).unwrap(), contents(&store).unwrap());
    // The writer closes, and goes on in its next life; nobody is in its way.
    let before = contents(&store).unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(contents(&open()).unwrap(), before);
    // A thread of the store would soon record what was acknowledged last.
    let store = options().threads(false).open(&path).unwrap();
    assert_eq!(contents(&again).unwrap(), before);
    store.append("log", "d").unwrap().wait().unwrap();
    store.abandon();
    let reader = open();
    assert_eq!(reader.bounds("log").unwrap().next, 3, "nothing records that the last one is safe");
    drop(reader);
    drop(options().open(&path).unwrap());
    assert_eq!(open().bounds("log").unwrap().next, 4);
}

#[test]
pub fn replaced_data_is_refused_by_name() {
    let volume = MemVolume::new(3);
    let store = small::open_new(&volume);
    let mut rng = Rng::new(1);
    let mut fill = |round: u64| {
        for log in 0..20 {
            let payload = small::noise(&mut rng, 2000);
            store.append(format!("log/{log:02}"), payload).unwrap().wait().unwrap();
        }
        store.append(format!("round/{round}"), "x").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
    };
    (0..3).for_each(&mut fill);
    let reader = small::options().beside_writer(true).open_on(Arc::new(volume.clone())).unwrap();
    let first = reader.read("log/00", ..).unwrap().next().unwrap().unwrap();
    store.compact().unwrap();
    (3..9).for_each(&mut fill);
    store.compact().unwrap();
    // What was read stays as it is, and what is gone is refused.
    let results: Vec<_> = (0..20)
        .map(|log| {
            reader
                .read(format!("log/{log:02}"), ..)
                .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
        })
        .collect();
    for result in &results {
        match result {
            Ok(entries) => assert_eq!(entries.len(), 3),
            Err(error @ Error::Replaced { .. }) => {
                assert!(
                    error.kind() == ErrorKind::Busy && error.to_string().contains("open the store again")
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(results.iter().any(Result::is_err), "the test replaces too little");
    assert!(reader.is_outdated().unwrap());
    assert_eq!(first.seq, 0);
}

/// A volume of a reader, which lets the writer come in after so many reads.
#[derive(Clone)]
struct Shared {
    volume: MemVolume,
    left: Arc<AtomicU64>,
    writer: Arc<dyn Fn() + Send + Sync>,
}

impl Layer for Shared {
    fn below(&self) -> &dyn Volume {
        &self.volume
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.volume.read_at(offset, buf);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            (self.writer)();
        }
        read
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.volume)
    }
}

/// Whenever the writer replaces all runs and the whole ring: the opening shows everything that was
/// recorded before it, and nothing that is not there.
#[test]
fn the_writer_comes_in_between_any_two_reads_of_an_opening() {
    let volume = MemVolume::new(3);
    let store = small::open_new(&volume);
    let mut rng = Rng::new(1);
    let mut fill = |store: &Store, logs: std::ops::Range<u64>| {
        for log in logs {
            let payload = small::noise(&mut rng, 3000);
            store.snapshot(format!("log/{log:02}"), payload).unwrap().wait().unwrap();
        }
    };
    fill(&store, 0..25);
    store.checkpoint().unwrap();
    fill(&store, 0..25);
    store.append("end", "0").unwrap().wait().unwrap();
    let (mut reads, mut interrupted) = (0, 0);
    loop {
        reads += 1;
        // Nothing records yet that the last commit is acknowledged.
        let logs = |store: &Store| {
            let mut logs = contents(store)?;
            logs.remove(&b"end"[..]);
            Ok::<_, Error>(logs)
        };
        let before = logs(&store).unwrap();
        let (writer, came) = (store.clone(), Arc::new(AtomicBool::new(false)));
        let noted = came.clone();
        let rounds = AtomicU64::new(0);
        let shared = Shared {
            volume: volume.clone(),
            left: Arc::new(AtomicU64::new(reads)),
            writer: Arc::new(move || {
                noted.store(true, Ordering::SeqCst);
                let mut rng = Rng::new(reads << 8 | rounds.fetch_add(1, Ordering::SeqCst));
                for n in 0..300u64 {
                    let payload = small::noise(&mut rng, 3000);
                    writer.snapshot(format!("log/{:02}", n % 25), payload).unwrap().wait().unwrap();
                    if n % 40 == 39 {
                        writer.checkpoint().unwrap();
                    }
                }
                writer.compact().unwrap();
                // The next two record that all before them are acknowledged.
                for _ in 0..2 {
                    writer.snapshot("end", reads.to_le_bytes()).unwrap().wait().unwrap();
                }
            }),
        };
        let reader = small::options().beside_writer(true).open_on(Arc::new(shared)).unwrap();
        let met = came.load(Ordering::SeqCst);
        interrupted += u64::from(met);
        match logs(&reader) {
            Ok(seen) if met => {
                for (key, log) in &before {
                    assert!(seen.get(key).is_some_and(|now| now.next() >= log.next()));
                }
            }
            Ok(seen) => assert_eq!(seen, before),
            Err(Error::Replaced { .. }) if met || came.load(Ordering::SeqCst) => {}
            Err(error) => panic!("after {reads} reads: {error}"),
        }
        if !came.load(Ordering::SeqCst) {
            break;
        }
        drop(reader);
    }
    assert!(interrupted > 3 && reads > 20, "{interrupted} of {reads}");
}

/// The payload of an entry: who it is, and noise.
fn payload(log: u64, life: u64, seq: u64) -> Vec<u8> {
    let mut rng = Rng::new(log << 40 | life << 20 | seq);
    let len = 8 + rng.below(600) as usize;
    let mut payload = life.to_le_bytes().to_vec();
    payload.extend((0..len).map(|_| rng.next() as u8));
    payload
}

/// Writes, trims, deletes and makes logs anew, with all checkpoints and merges that this brings.
fn write(store: &Store, done: &AtomicBool, acked: &AtomicU64) {
    let mut rng = Rng::new(7);
    let mut lives = [0u64; 30];
    for n in 0..4_000u64 {
        let log = rng.below(30);
        let key = format!("log/{log:02}");
        let bounds = store.get_bounds(&key).unwrap();
        match (rng.below(40), bounds) {
            (0, Some(_)) => {
                lives[log as usize] += 1;
                store.delete(&key).unwrap().wait().unwrap();
            }
            (1, Some(bounds)) => {
                store.trim(&key, bounds.first + rng.below(bounds.len() + 1)).unwrap().wait().unwrap();
            }
            (_, bounds) => {
                let seq = bounds.map_or(0, |bounds| bounds.next);
                store.append(&key, payload(log, lives[log as usize], seq)).unwrap().wait().unwrap();
            }
        }
        store.append("count", n.to_le_bytes()).unwrap().wait().unwrap();
        store.keep_last("count", 1).unwrap().wait().unwrap();
        acked.store(n, Ordering::SeqCst);
    }
    done.store(true, Ordering::SeqCst);
}

/// Opens again and again, and reads everything: returns how often the writer came in between.
fn read(open: impl Fn() -> Result<Store, Error>, done: &AtomicBool, acked: &AtomicU64) -> (u64, u64) {
    let (mut whole, mut replaced, mut last) = (0, 0, 0);
    // A busy machine may let no reading end while the writer merges.
    while !done.load(Ordering::SeqCst) || whole < 4 {
        // The acknowledgement of the commit before is recorded by the next one.
        let least = acked.load(Ordering::SeqCst).saturating_sub(1);
        let seen = open().and_then(|reader| {
            let count = reader
                .last("count")?
                .map_or(0, |entry| u64::from_le_bytes(entry.payload[..].try_into().expect("eight bytes")));
            assert!(count >= least && count >= last, "{count} is older than {least} and {last}");
            last = count;
            for listed in reader.scan("log/")? {
                let listed = listed?;
                let log: u64 = std::str::from_utf8(&listed.key[4..]).unwrap().parse().unwrap();
                let mut life = None;
                for entry in reader.read(&listed.key, ..)? {
                    let entry = entry?;
                    let of = u64::from_le_bytes(entry.payload[..8].try_into().unwrap());
                    assert_eq!(*life.get_or_insert(of), of, "a log is of one life");
                    assert!(entry.payload == payload(log, of, entry.seq), "entry {} of {log}", entry.seq);
                }
            }
            Ok(())
        });
        match seen {
            Ok(()) => whole += 1,
            Err(Error::Replaced { .. }) => replaced += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (whole, replaced)
}

fn two_readers_beside(store: &Store, open: impl Fn() -> Result<Store, Error> + Sync) {
    let (done, acked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let readers = [0, 1].map(|_| scope.spawn(|| read(&open, &done, &acked)));
        write(store, &done, &acked);
        for reader in readers {
            let (whole, replaced) = reader.join().unwrap();
            println!("{whole} times read, {replaced} times replaced");
        }
    });
    let stats = store.info().unwrap().maintenance;
    assert!(stats.checkpoints > 10 && stats.compactions > 3, "{stats:?}");
    let all = contents(store).unwrap();
    // The writer still merges.
    up_to_date(|| open().unwrap(), |reader| contents(reader).is_ok_and(|seen| seen == all));
}

#[test]
fn two_readers_beside_a_writer_that_checkpoints_and_merges() {
    let volume = MemVolume::new(3);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    two_readers_beside(&store, || options().beside_writer(true).open_on(Arc::new(volume.clone())));
    store.close().unwrap();
}

#[test]
fn two_readers_of_a_file_beside_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let open = |path: &Path| options().beside_writer(true).open(path);
    let store = options().open(&path).unwrap();
    two_readers_beside(&store, || open(&path));
    store.close().unwrap();
}
