//! A ring on a volume of its own: what has to hold whatever the two volumes do, and how one without
//! the other is told.

use crate::common;
mod failing;
mod making;
mod moments;
use crate::common::twin;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use brooklet::io::{AlignedBuf, ManualClock, MemVolume, Persist, Rng, Volume};
use brooklet::{Create, Error, Options, Store, check_volume_with_ring};
use common::{Logs, contents};
use tempfile::TempDir;
use twin::{Twin, twins};

const SECTOR: usize = 4096;

fn options(seed: u64) -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).clock(clock).rng_seed(seed)
}

fn small() -> Options {
    Options::new().ring_size(1 << 20).max_payload(64 << 10)
}

/// A log that only grows by what is acknowledged, or may have been done when the power went.
#[derive(Clone, Default)]
struct Known {
    acked: Logs,
    /// What there is if the operation at hand was done.
    maybe: Logs,
}

impl Known {
    fn expect(&self, found: &Logs, when: &str) {
        assert!(*found == self.acked || *found == self.maybe, "{when}: found {found:?}");
    }
}

/// Appends, trims and deletes, with checkpoints and a compaction in between, until the power goes
/// or all is done.
fn script(store: &Store, known: &mut Known) -> Result<(), Error> {
    for n in 0..24u8 {
        let key = format!("log/{}", n % 3);
        let payload = vec![n; 100 + 300 * usize::from(n % 4)];
        let log = known.maybe.entry(key.clone().into_bytes()).or_default();
        log.entries.push(payload.clone());
        store.append(&key, payload)?.wait()?;
        known.acked = known.maybe.clone();
        if n % 5 == 4 {
            let log = known.maybe.get_mut(key.as_bytes()).unwrap();
            let next = log.next();
            log.entries.drain(..log.entries.len() - 1);
            log.first = next - 1;
            store.keep_last(&key, 1)?.wait()?;
            known.acked = known.maybe.clone();
        }
        if n % 4 == 3 {
            store.checkpoint()?;
            while store.step()? {}
        }
    }
    Ok(())
}

fn open(pair: &[Twin; 2], seed: u64) -> Result<Store, Error> {
    let [data, ring] = pair.clone();
    options(seed).open_on_with_ring(Arc::new(data), Arc::new(ring))
}

fn crash(pair: &[Twin; 2]) -> [Vec<u8>; 2] {
    pair.each_ref().map(|twin| twin.disk.crash())
}

/// Opens what a crash left, with the power going off once more after `again` operations, and then
/// for good.
fn survive(pair: &[Twin; 2], known: &Known, seed: u64, again: u64, when: &str) {
    let pair = twins(crash(pair), seed);
    pair[0].blow_after(again);
    let mut known = known.clone();
    match open(&pair, seed) {
        Ok(store) => {
            let found = contents(&store).unwrap_or_else(|error| panic!("{when}: {error}"));
            known.expect(&found, when);
            // What one opening has shown, no later one may miss.
            known = Known { acked: found.clone(), maybe: found };
            let _ = script(&store, &mut known);
            store.abandon();
        }
        Err(error) => assert!(pair[0].has_blown(), "{when}: {error}"),
    }
    let pair = twins(crash(&pair), seed + 1);
    let [data, ring] = pair.clone();
    let report = check_volume_with_ring(Arc::new(data), Arc::new(ring), brooklet::Progress::ignore).unwrap();
    assert!(report.findings.iter().all(|finding| finding.harmless), "{when}, twice: {:?}", report.findings);
    let store = open(&pair, seed).unwrap_or_else(|error| panic!("{when}, twice: {error}"));
    known.expect(&contents(&store).unwrap(), &format!("{when}, twice"));
    store.append("more", "x").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
}

/// The power of both volumes goes off at the same moment, during every operation of a script, and
/// again during the recovery and what follows it.
#[test]
fn no_power_cut_of_both_volumes_loses_anything() {
    let (mut cuts, mut past_the_end) = (0, false);
    for after in 0.. {
        for seed in 0..3 {
            let pair = twins([Vec::new(), Vec::new()], seed);
            let [data, ring] = pair.clone();
            let store = options(seed).create_on_with_ring(Arc::new(data), Arc::new(ring)).unwrap();
            pair[0].blow_after(after);
            let mut known = Known::default();
            let done = script(&store, &mut known);
            past_the_end = done.is_ok();
            store.abandon();
            for again in [0, 1, 2, 3, 5, 8, 13, 40, 1_000] {
                survive(&pair, &known, seed, again, &format!("seed {seed}, cuts after {after} and {again}"));
                cuts += 2;
            }
        }
        if past_the_end {
            break;
        }
    }
    println!("{cuts} power cuts");
    assert!(cuts > 2_000, "the script is too short: {cuts}");
}

/// The power goes during every operation of making a store: there is none then, or a whole one.
#[test]
fn half_a_store_on_two_volumes_is_none() {
    let (mut none, mut whole) = (0, 0);
    for after in 0.. {
        let mut blown = false;
        for seed in 0..8 {
            let pair = twins([Vec::new(), Vec::new()], seed);
            pair[0].blow_after(after);
            let [data, ring] = pair.clone();
            let _ = options(seed).create_on_with_ring(Arc::new(data), Arc::new(ring));
            blown = pair[0].has_blown();
            match open(&twins(crash(&pair), seed), seed) {
                Ok(_) => whole += 1,
                Err(Error::NotAStore { .. } | Error::Damaged { .. }) if blown => none += 1,
                Err(error) => panic!("seed {seed}, cut after {after}: {error}"),
            }
        }
        if !blown {
            break;
        }
    }
    assert!(none > 10 && whole > 10, "{none} none, {whole} whole");
}

/// A store whose last block sits in the cache of the ring's device, as a killed process leaves it.
fn cached(seed: u64) -> [Twin; 2] {
    let [data, ring] = twins([Vec::new(), Vec::new()], seed);
    let create = options(seed).create_on_with_ring(Arc::new(data.clone()), Arc::new(ring.clone()));
    let store = create.unwrap();
    let before = ring.disk.image();
    store.append("log", "cached").unwrap().wait().unwrap();
    store.abandon();
    let after = ring.disk.image();
    let [data, ring] = twins([data.disk.image(), before.clone()], seed);
    for (n, (old, new)) in before.chunks(SECTOR).zip(after.chunks(SECTOR)).enumerate() {
        if old != new {
            let mut sector = AlignedBuf::zeroed(SECTOR);
            sector.copy_from_slice(new);
            ring.disk.write_at((n * SECTOR) as u64, &sector, Persist::Cached).unwrap();
        }
    }
    assert_eq!((data.disk.at_risk(), ring.disk.at_risk()), (0, 1));
    [data, ring]
}

/// Once a block was read it counts, so it must be durable before anything builds on it.
#[test]
fn what_sits_in_the_cache_of_the_ring_is_made_durable_at_opening() {
    for seed in 0..20 {
        let pair = cached(seed);
        let store = open(&pair, seed).unwrap();
        assert_eq!(store.bounds("log").unwrap().next, 1);
        store.append("log", "durable").unwrap().wait().unwrap();
        store.abandon();
        let store = open(&twins(crash(&pair), seed), seed).unwrap();
        assert_eq!(store.bounds("log").unwrap().next, 2, "seed {seed}");
        // The power goes while it is opened: it is there or not, but nothing says that it should be
        // and is not.
        for after in 0..16 {
            let pair = cached(seed);
            pair[0].blow_after(after);
            if let Ok(store) = open(&pair, seed) {
                store.abandon();
            }
            let store =
                open(&twins(crash(&pair), seed), seed).unwrap_or_else(|e| panic!("{seed}, {after}: {e}"));
            assert!(!store.exists("log").unwrap() || store.bounds("log").unwrap().next == 1);
        }
    }
}

/// Formatting over a store, by force: wherever the power goes, the old store is there whole, or
/// none, or the new one.
#[test]
fn half_done_formatting_never_opens_over_anothers_data() {
    let (mut old, mut none, mut new) = (0, 0, 0);
    for apart in [false, true] {
        for after in 0.. {
            let pair = twins([Vec::new(), Vec::new()], after);
            let volumes = |pair: &[Twin; 2]| -> (Arc<dyn Volume>, Option<Arc<dyn Volume>>) {
                let [data, ring] = pair.clone();
                (Arc::new(data), apart.then(|| Arc::new(ring) as Arc<dyn Volume>))
            };
            let start = |pair: &[Twin; 2]| match volumes(pair) {
                (data, None) => options(7).open_on(data),
                (data, Some(ring)) => options(7).open_on_with_ring(data, ring),
            };
            let made = options(5).format_on(volumes(&pair).0, volumes(&pair).1, false).unwrap();
            let store = start(&pair).unwrap();
            for n in 0..4u8 {
                store.append("log", [n; 2000]).unwrap().wait().unwrap();
                if n == 1 {
                    store.checkpoint().unwrap();
                }
            }
            // Nothing but the ring tells of the last entries.
            store.abandon();
            let refused = options(6).format_on(volumes(&pair).0, volumes(&pair).1, false).unwrap_err();
            assert!(
                matches!(&refused, Error::NotBlank { found, .. } if found.contains("Brooklet")),
                "{refused}"
            );
            pair[0].blow_after(after);
            let done = options(6).format_on(volumes(&pair).0, volumes(&pair).1, true);
            for seed in 0..8 {
                match start(&twins(crash(&pair), seed)) {
                    Ok(store) if store.info().unwrap().id == made.id => {
                        assert_eq!(
                            store.bounds("log").unwrap().next,
                            4,
                            "{after}: the old store lost entries"
                        );
                        assert_eq!(store.read("log", ..).unwrap().flatten().count(), 4);
                        old += 1;
                    }
                    Ok(store) => {
                        assert!(!store.exists("log").unwrap());
                        store.append("log", "new").unwrap().wait().unwrap();
                        new += 1;
                    }
                    Err(Error::NotAStore { .. } | Error::Damaged { .. }) => none += 1,
                    Err(error) => panic!("{after}: {error}"),
                }
            }
            if done.is_ok() {
                break;
            }
        }
    }
    assert!(old > 0 && none > 0 && new > 0, "{old} old, {none} none, {new} new");
}

/// A directory with a store whose ring is a file of its own.
fn place() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (data, ring) = (dir.path().join("data"), dir.path().join("ring"));
    let store = small().ring_at(&ring).open(&data).unwrap();
    store.append("log", b"entry").unwrap().wait().unwrap();
    store.close().unwrap();
    (dir, data, ring)
}

#[test]
fn the_ring_in_a_file_of_its_own() {
    let (dir, data, ring) = place();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no draft is left");
    assert_eq!(fs::metadata(&ring).unwrap().len(), (64 << 10) + (1 << 20));
    let options = || small().ring_at(&ring).create(Create::Never);
    let store = options().open(&data).unwrap();
    let info = store.info().unwrap();
    assert_eq!((info.format, info.heap_offset, info.ring_size), (8, 64 << 10, 1 << 20));
    assert_eq!(info.ring_volume.unwrap().name, ring.display().to_string());
    for n in 0..2_000u32 {
        drop(store.append(format!("log/{}", n % 7), vec![n as u8; 1000]).unwrap());
    }
    store.checkpoint().unwrap();
    store.append("log", b"last").unwrap().wait().unwrap();
    let locked = small().ring_at(&ring).open(dir.path().join("other")).unwrap_err();
    assert!(matches!(&locked, Error::Exists { .. }), "{locked}");
    let locked = options().open(&data).unwrap_err();
    assert!(matches!(&locked, Error::Locked { .. }), "{locked}");
    store.abandon();
    let reader = options().read_only(true).open(&data).unwrap();
    assert_eq!(reader.bounds("log").unwrap().next, 2);
    assert_eq!(reader.scan("").unwrap().count(), 8);
    drop(reader);
    assert!(options().check(&data, brooklet::Progress::ignore).unwrap().is_sound());
    options().open(&data).unwrap().compact().unwrap();
}

/// What is written to a ring without a name is acknowledged for nothing: the store stops at the
/// next write or checkpoint, or says so when it is closed.
#[test]
fn a_ring_that_others_delete_stops_the_store() {
    for way in ["append", "checkpoint", "close"] {
        let (_dir, data, ring) = place();
        let store = small().ring_at(&ring).open(&data).unwrap();
        let append = || store.append("log", "x").and_then(|ticket| ticket.wait().map(drop));
        append().unwrap();
        fs::remove_file(&ring).unwrap();
        let error = match way {
            "append" => append().unwrap_err(),
            "checkpoint" => store.checkpoint().unwrap_err(),
            _ => store.close().unwrap_err(),
        };
        let words = format!("{} was deleted", ring.display());
        assert!(error.to_string().contains(&words), "{error}");
        assert_eq!(matches!(error, Error::Stopped { .. }), way != "close", "{error}");
    }
}

#[test]
fn a_store_without_its_ring_is_told() {
    let (dir, data, ring) = place();
    let (other_data, other_ring) = (dir.path().join("data-2"), dir.path().join("ring-2"));
    drop(small().ring_at(&other_ring).open(&other_data).unwrap());
    let at = |name: &str| dir.path().join(name);
    fs::write(at("blank"), vec![0; 2 << 20]).unwrap();
    fs::write(at("empty"), b"").unwrap();
    let image = fs::read(&ring).unwrap();
    let mut damaged = image.clone();
    (0..3).for_each(|copy| damaged[copy * SECTOR + 40] ^= 1);
    fs::write(at("damaged"), &damaged).unwrap();
    fs::write(at("short"), &image[..image.len() - SECTOR]).unwrap();
    let open = |ring: Option<&str>| {
        let options = small().create(Create::Never);
        let options = ring.map_or(options.clone(), |ring| options.ring_at(at(ring)));
        options.open(&data).unwrap_err()
    };
    assert!(matches!(open(None), Error::RingNeeded { .. }));
    for (name, words) in [
        ("blank", "does not start with the label of a ring"),
        ("empty", "it has 0 bytes"),
        (other_ring.to_str().unwrap(), "the ring of another store"),
        (other_data.to_str().unwrap(), "does not start with the label"),
    ] {
        let error = open(Some(name));
        assert!(matches!(&error, Error::WrongRing { .. }) && error.to_string().contains(words), "{error}");
        assert!(error.to_string().contains("name the ring volume that"), "{error}");
    }
    assert!(matches!(open(Some("damaged")), Error::Damaged { .. }));
    let error = open(Some("short"));
    assert!(matches!(error, Error::Shrunk { needed: 0x11_0000, size: 0x10_f000, .. }), "{error}");
    assert!(matches!(open(Some("none")), Error::Io { .. }));
    let plain = dir.path().join("plain");
    drop(small().open(&plain).unwrap());
    let error = small().ring_at(&other_ring).create(Create::Never).open(&plain).unwrap_err();
    assert!(error.to_string().contains("keeps its ring in its own volume"), "{error}");
    // None of all that has harmed it; one copy of the label is enough, and the check tells of the
    // others.
    damaged[SECTOR + 40] ^= 1;
    fs::write(&ring, &damaged).unwrap();
    let report = small().ring_at(&ring).check(&data, brooklet::Progress::ignore).unwrap();
    let harmless = report.findings.iter().filter(|f| f.harmless && f.what.contains("the ring's label"));
    assert_eq!((harmless.count(), report.findings.len()), (2, 2), "{:?}", report.findings);
    assert_eq!(small().ring_at(&ring).open(&data).unwrap().bounds("log").unwrap().next, 1);
}

#[test]
fn the_same_path_cannot_be_both() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let error = small().ring_at(&path).open(&path).unwrap_err();
    assert!(matches!(error, Error::InvalidOptions(_)), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// For a file the capacity is what it may grow to. Appends are refused then, and what frees space
/// is not.
#[test]
fn a_file_grows_to_its_capacity_and_no_further() {
    let capacity = 3 << 20;
    let volume = MemVolume::new(3);
    let store = options(3).capacity(capacity).create_on(Arc::new(volume.clone())).unwrap();
    assert!(volume.size().unwrap() < capacity, "it is not there before it is needed");
    let mut appended = 0;
    let full = loop {
        let payload: Vec<u8> = noise(appended);
        match store.append(format!("log/{}", appended % 5), payload).and_then(|ticket| ticket.wait()) {
            Ok(()) => appended += 1,
            Err(error) => break error,
        }
        assert!(appended < 10_000, "it was never full");
    };
    assert!(matches!(full, Error::Full { .. }), "{full}");
    assert!(full.to_string().contains("capacity"), "{full}");
    let size = volume.size().unwrap();
    assert!(size <= capacity && size > capacity / 2, "{size}");
    let entries = |store: &Store| {
        store
            .scan("")
            .unwrap()
            .map(|log| store.read(log.unwrap().key, ..).unwrap().flatten().count())
            .sum::<usize>()
    };
    assert_eq!(entries(&store), appended as usize);
    for n in 0..5 {
        store.delete(format!("log/{n}")).unwrap().wait().unwrap();
    }
    store.abandon();
    let store = options(3).open_on(Arc::new(volume.clone())).unwrap();
    store.compact().unwrap();
    assert_eq!(entries(&store), 0);
    for n in 0..100 {
        store.append("again", vec![n; 4000]).unwrap().wait().unwrap();
    }
    store.close().unwrap();
    drop(store);
    let store = options(3).open_on(Arc::new(volume.clone())).unwrap();
    assert_eq!(store.bounds("again").unwrap().next, 100);
    assert_eq!(store.info().unwrap().capacity, capacity);
    for (bytes, words) in [((64 << 10) + 1, "use a multiple"), (64 << 10, "needs at least 1179648")] {
        let error = options(3).capacity(bytes).create_on(Arc::new(MemVolume::new(1))).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// What does not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..500).flat_map(|_| rng.next().to_le_bytes()).collect()
}
