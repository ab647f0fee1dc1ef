//! What is looked up of sizes, for limits of bytes: beside writers who are faster, and where it does not read back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Error, Retention, Store};

use crate::busy::{Before, Busy};
use crate::limits::bounds;
use crate::random::options;

fn payload(seq: u64) -> Vec<u8> {
    let mut rng = Rng::new(seq);
    (0..100).map(|_| rng.next() as u8).collect()
}

/// A store with a log of so many entries of a hundred bytes, all of them in a run.
fn filled(entries: u64, kept: Option<u64>) -> Vec<u8> {
    let volume = Arc::new(MemVolume::new(1));
    let store = options(&Arc::default(), 1).create_on(volume.clone()).unwrap();
    if let Some(kept) = kept {
        store.retain("log", Retention::new().bytes(kept)).unwrap().wait().unwrap();
    }
    for from in (0..entries).step_by(100) {
        store.append_many("log", (from..entries.min(from + 100)).map(payload)).unwrap().wait().unwrap();
    }
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    volume.crash()
}

/// A checkpoint came between looking up and learning, or the log was appended to, again and again: what was learned was
/// lost, and whoever had much to look up never got on.
#[test]
fn whoever_looks_sizes_up_gets_on_beside_busy_writers() {
    let narrower = |store: &Store| store.retain("log", Retention::new().bytes(500_000));
    let trim = |store: &Store| store.trim("log", 4_000);
    let large = |store: &Store| store.append("log", [7; 10_000]);
    type Change<'a> = &'a dyn Fn(&Store) -> Result<brooklet::Ticket, Error>;
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
        let (deeds, found) = (done.load(Ordering::Relaxed), store.bounds("log").unwrap());
        println!("change {i}: {deeds} reads, {found:?}");
        assert!(deeds > 3, "change {i}: nobody was busy");
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
        for from in (900..1_500).step_by(100) {
            store.append_many("log", (from..from + 100).map(payload)).unwrap().wait().unwrap();
        }
        assert_eq!(store.bounds("log").unwrap(), bounds(500, 1_500), "damage at {at}");
        let Some(store) = damaged() else { continue };
        // Counted anew, what cannot be read counts for its share, as far as there is a sum that it has a share of.
        store.retain("log", Retention::new().bytes(40_000)).unwrap().wait().unwrap();
        let first = store.bounds("log").unwrap().first;
        assert_eq!(first, 600, "damage at {at}");
        store.retain("log", Retention::new()).unwrap().wait().unwrap();
        store.retain("log", Retention::new().bytes(30_000)).unwrap().wait().unwrap();
        let first = store.bounds("log").unwrap().first;
        assert!((600..=700).contains(&first), "damage at {at}: {first}");
        store.append("log", "x").unwrap().wait().unwrap();
    }
}
