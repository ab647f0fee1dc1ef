//! What is looked up of sizes, for limits of bytes: beside writers who are faster, and where it
//! does not read back.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Bounds, Error, Retention, Store, Ticket};

use crate::common::busy::{Before, Busy};
use crate::retention::limits::bounds;
use crate::retention::random::options;

type Change<'a> = &'a dyn Fn(&Store) -> Result<Ticket, Error>;

fn payload(seq: u64) -> Vec<u8> {
    let mut rng = Rng::new(seq);
    (0..100).map(|_| rng.next() as u8).collect()
}

fn append(store: &Store, seqs: Range<u64>) {
    for from in seqs.clone().step_by(100) {
        store.append_many("log", (from..seqs.end.min(from + 100)).map(payload)).unwrap().wait().unwrap();
    }
}

/// A store with a log of so many entries of a hundred bytes, all of them in a run.
fn filled(entries: u64, kept: Option<u64>) -> Vec<u8> {
    let volume = Arc::new(MemVolume::new(1));
    let store = options(&Arc::default(), 1).create_on(volume.clone()).unwrap();
    if let Some(kept) = kept {
        store.set_retention("log", Retention::new().bytes(kept)).unwrap().wait().unwrap();
    }
    append(&store, 0..entries);
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    volume.crash()
}

/// A checkpoint came between looking up and learning, or the log was appended to, again and again:
/// what was learned was lost, and whoever had much to look up never got on.
#[test]
fn whoever_looks_sizes_up_gets_on_beside_busy_writers() {
    let narrower = |store: &Store| store.set_retention("log", Retention::new().bytes(500_000));
    let trim = |store: &Store| store.trim("log", 4_000);
    let large = |store: &Store| store.append("log", [7; 10_000]);
    let changes: [(Option<u64>, Change<'_>, u64); 4] = [
        (None, &narrower, 3_000),
        (Some(1 << 20), &narrower, 3_000),
        (Some(1 << 20), &trim, 4_000),
        (Some(800_000), &large, 100),
    ];
    for (i, (kept, change, first)) in changes.into_iter().enumerate() {
        let volume = Busy::new(MemVolume::from_image(filled(8_000, kept), 1), Before::Reads);
        let store =
            options(&Arc::default(), 1).cache_budget(256 << 10).open_on(Arc::new(volume.clone())).unwrap();
        let done = Arc::new(AtomicU64::new(0));
        let (other, count) = (store.clone(), done.clone());
        volume.begin(move || {
            let n = count.fetch_add(1, Ordering::Relaxed);
            assert!(n < 5_000, "change {i} does not get on");
            // What takes a read or two, such as bounds, is not overtaken each time.
            if n % 8 > 0 {
                return;
            }
            drop(other.append("log", "").unwrap());
            other.append("other", [1; 100]).unwrap().wait().unwrap();
            other.checkpoint().unwrap();
        });
        let ticket = change(&store).unwrap();
        volume.end();
        ticket.wait().unwrap();
        let (reads, found) = (done.load(Ordering::Relaxed), store.bounds("log").unwrap());
        println!("change {i}: {reads} reads, {found:?}");
        assert!(reads > 3, "change {i}: nobody was busy");
        assert_eq!(found.first, first, "change {i}");
    }
}

/// Appends to a log were refused for ever once a chunk that was about to go did not read back.
#[test]
fn what_does_not_read_back_goes_as_anything_else() {
    let image = filled(1_000, Some(100_000));
    let open = |image: Vec<u8>| {
        options(&Arc::<ManualClock>::default(), 1).open_on(Arc::new(MemVolume::from_image(image, 1)))
    };
    let run = open(image.clone()).unwrap().info().unwrap().runs[0];
    let mut damages = 0;
    for at in (run.offset..run.offset + run.bytes).step_by(1_500) {
        let mut image = image.clone();
        image[at as usize] ^= 1;
        let Ok(store) = open(image) else { continue };
        if store.bounds("log").is_err() {
            let refused = store.append("log", "x").map(|_| ()).unwrap_err();
            assert!(matches!(refused, Error::Damaged { .. }), "nothing is known of the log: {refused}");
            continue;
        }
        let is_damaged = |store: &Store| {
            let read = |seq: u64| store.read("log", seq..=seq)?.next().expect("it is there");
            let bounds = store.bounds("log").unwrap();
            let damaged = (bounds.first..bounds.next).filter(|&seq| match read(seq) {
                Ok(entry) => {
                    assert!(entry.payload == payload(seq), "damage at {at}: other bytes");
                    false
                }
                Err(error) => {
                    assert!(matches!(error, Error::Damaged { .. }), "damage at {at}: {error}");
                    true
                }
            });
            damaged.count() > 0
        };
        damages += u64::from(is_damaged(&store));
        for n in 1..=1_500 {
            store.append("log", payload(999 + n)).unwrap().wait().unwrap();
            assert_eq!(store.bounds("log").unwrap(), bounds(n, 1_000 + n), "damage at {at}");
            if n % 400 == 0 {
                store.checkpoint().unwrap();
            }
        }
        assert!(!is_damaged(&store), "damage at {at}: it has gone");
    }
    assert!(damages > 10, "{damages} damages");
}

/// The limit of a log of a thousand entries, what has its sizes looked up, and what that leaves.
type Case<'a> = (Option<u64>, Change<'a>, Bounds);

fn cases() -> [Case<'static>; 4] {
    [
        (Some(100_000), &|store| store.append("log", payload(1_000)), bounds(1, 1_001)),
        (Some(100_000), &|store| store.trim("log", 400), bounds(400, 1_000)),
        (Some(100_000), &|store| store.truncate("log", 600), bounds(0, 600)),
        (None, &|store| store.set_retention("log", Retention::new().bytes(20_000)), bounds(800, 1_000)),
    ]
}

/// So much more fits in as the log's sum leaves, if that is right.
fn check_sum(store: &Store, next: u64, when: &str) {
    store.set_retention("log", Retention::new().bytes(100_000)).unwrap().wait().unwrap();
    append(store, 0..1_000);
    assert_eq!(store.bounds("log").unwrap(), bounds(next, next + 1_000), "{when}");
}

/// A read that the device failed was taken for damage: the log kept what a guess left, for good.
#[test]
fn nothing_is_guessed_where_reads_fail() {
    let fails = |reads, sticky| Fault::ReadErrorAfter { reads, kind: ErrorKind::Other, sticky };
    for (i, (kept, change, after)) in cases().into_iter().enumerate() {
        let image = filled(1_000, kept);
        let mut failed = 0;
        for (reads, sticky) in (0..20).flat_map(|reads| [(reads, false), (reads, true)]) {
            let when = format!("change {i}, read {reads} fails");
            let volume = Arc::new(MemVolume::from_image(image.clone(), 1));
            let store = options(&Arc::default(), 1).open_on(volume.clone()).unwrap();
            volume.fail(fails(reads, sticky));
            let first = change(&store).map(|ticket| ticket.wait().unwrap());
            volume.fail(fails(u64::MAX, false));
            if let Err(refused) = first {
                failed += 1;
                assert!(matches!(refused, Error::Io { .. }), "{when}: {refused}");
                assert_eq!(store.bounds("log").unwrap(), bounds(0, 1_000), "{when}");
                change(&store).unwrap().wait().unwrap();
            }
            assert_eq!(store.bounds("log").unwrap(), after, "{when}");
            check_sum(&store, after.next, &when);
        }
        assert!(failed > 1, "change {i}: no read failed");
    }
}

/// The store in the image; some of the reads from one on find its only run damaged.
fn damaged_on_the_way(image: &[u8], from: u64, reads: u64) -> (Busy, Store) {
    let volume = Busy::new(MemVolume::from_image(image.to_vec(), 1), Before::Reads);
    let store = options(&Arc::default(), 1).open_on(Arc::new(volume.clone())).unwrap();
    let (run, disk, mut n) = (store.info().unwrap().runs[0], volume.within.clone(), 0);
    volume.begin(move || {
        if n == from || n == from + reads {
            (run.offset..run.offset + run.bytes).step_by(512).for_each(|at| disk.flip(at as usize, 0));
        }
        n += 1;
    });
    (volume, store)
}

/// What came damaged from a device that has it whole was guessed, too; and where it was whole at
/// the next look, entries of none at all were.
#[test]
fn damage_on_the_way_is_none() {
    for (i, (kept, change, after)) in cases().into_iter().enumerate() {
        let image = filled(1_000, kept);
        for (from, reads) in (0..20).flat_map(|from| (1..4).map(move |reads| (from, reads))) {
            let when = format!("change {i}, reads from {from} on are damaged, {reads} of them");
            let (volume, store) = damaged_on_the_way(&image, from, reads);
            let done = change(&store).map(|ticket| ticket.wait().unwrap());
            volume.end();
            match done {
                Ok(()) if reads == 1 => {
                    assert_eq!(store.bounds("log").unwrap(), after, "{when}");
                    check_sum(&store, after.next, &when);
                }
                Ok(()) => append(&store, 0..1_000),
                Err(refused) => assert!(matches!(refused, Error::Damaged { .. }), "{when}: {refused}"),
            }
        }
    }
}

/// So it was where each block holds one entry, and nothing beside it reads back.
#[test]
fn large_entries_damaged_on_the_way_are_not_guessed() {
    let entry = |size: u64| payload(size).repeat(size as usize / 100);
    let volume = Arc::new(MemVolume::new(1));
    let store = options(&Arc::default(), 1).create_on(volume.clone()).unwrap();
    store.set_retention("log", Retention::new().bytes(216_000)).unwrap().wait().unwrap();
    for seq in 0..24 {
        store.append("log", entry([6_000, 12_000][seq % 2])).unwrap().wait().unwrap();
    }
    store.compact().unwrap();
    store.close().unwrap();
    let mut taken = 0;
    for from in 0..10 {
        let (volume, store) = damaged_on_the_way(&volume.crash(), from, 1);
        let done = store.trim("log", 6).map(|ticket| ticket.wait().unwrap());
        volume.end();
        if done.is_ok() {
            taken += 1;
            for _ in 0..9 {
                store.append("log", entry(6_000)).unwrap().wait().unwrap();
            }
            assert_eq!(store.bounds("log").unwrap(), bounds(6, 33), "from {from}");
            store.append("log", entry(3_000)).unwrap().wait().unwrap();
            assert_eq!(store.bounds("log").unwrap(), bounds(7, 34), "from {from}");
        }
    }
    assert!(taken > 5, "{taken} were taken");
}

/// A log that the device will not read any more takes what needs no sizes, though entries are to go
/// for their age.
#[test]
fn a_limit_is_lifted_where_nothing_can_be_read() {
    let clock = Arc::new(ManualClock::default());
    let volume = Arc::new(MemVolume::new(1));
    let store = options(&clock, 1).create_on(volume.clone()).unwrap();
    let age = Duration::from_secs(1_000);
    store.set_retention("log", Retention::new().bytes(100_000).age(age)).unwrap().wait().unwrap();
    append(&store, 0..300);
    clock.advance(age / 2);
    append(&store, 300..1_000);
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    clock.advance(age * 3 / 4);
    let open = || {
        let volume = Arc::new(MemVolume::from_image(volume.crash(), 1));
        let store = options(&clock, 1).open_on(volume.clone()).unwrap();
        assert_eq!(store.bounds("log").unwrap(), bounds(300, 1_000));
        volume.fail(Fault::ReadErrorAfter { reads: 0, kind: ErrorKind::Other, sticky: true });
        let refused = store.append("log", "x").map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::Io { .. }), "{refused}");
        store
    };
    let store = open();
    store.set_retention("log", Retention::new().entries(900)).unwrap().wait().unwrap();
    store.append("log", "x").unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(300, 1_001));
    let store = open();
    store.delete("log").unwrap().wait().unwrap();
    store.append("log", "x").unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(0, 1));
}

/// Other commits that have to know sizes get on beside damage, too.
#[test]
fn whatever_drops_entries_passes_over_damage() {
    let image = filled(1_000, Some(100_000));
    let open =
        |image: Vec<u8>| options(&Arc::default(), 1).open_on(Arc::new(MemVolume::from_image(image, 1)));
    let run = open(image.clone()).unwrap().info().unwrap().runs[0];
    for at in (run.offset..run.offset + run.bytes).step_by(4_000) {
        let damaged = || {
            let mut image = image.clone();
            image[at as usize] ^= 1;
            open(image).ok().filter(|store| store.bounds("log").is_ok())
        };
        let Some(store) = damaged() else { continue };
        store.trim("log", 400).unwrap().wait().unwrap();
        store.truncate("log", 900).unwrap().wait().unwrap();
        append(&store, 900..1_500);
        assert_eq!(store.bounds("log").unwrap(), bounds(500, 1_500), "damage at {at}");
        let Some(store) = damaged() else { continue };
        // Counted anew, what cannot be read counts for its share, as far as there is a sum that it
        // has a share of.
        store.set_retention("log", Retention::new().bytes(40_000)).unwrap().wait().unwrap();
        let first = store.bounds("log").unwrap().first;
        assert_eq!(first, 600, "damage at {at}");
        store.set_retention("log", Retention::new()).unwrap().wait().unwrap();
        store.set_retention("log", Retention::new().bytes(30_000)).unwrap().wait().unwrap();
        let first = store.bounds("log").unwrap().first;
        assert!((600..=700).contains(&first), "damage at {at}: {first}");
        store.append("log", "x").unwrap().wait().unwrap();
    }
}
