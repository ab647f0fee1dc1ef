//! Every byte of a small closed store, one bit of it flipped: harmless, or reported by the check and by the read that
//! meets it. Never a wrong byte, never a panic. `BROOKLET_ALL_BITS=1` tries all eight bits of each.

mod common;

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume, Rng, Volume};
use brooklet::{Commit, Error, Options, Store};
use common::Logs;

fn options() -> Options {
    Options::new()
        .ring_size(64 << 10)
        .max_payload(8 << 10)
        .threads(false)
        .environment(Arc::new(ManualClock::default()), 5)
}

/// A closed store with several runs of two levels, a tombstone, a large log, and a ring that holds blocks.
fn small_store() -> (MemVolume, Logs) {
    let volume = MemVolume::new(5);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(5);
    for round in 0..6 {
        for log in 0..8 {
            let payload: Vec<u8> = (0..40).map(|_| rng.next() as u8).collect();
            store.append(format!("log/{log}"), payload).unwrap().wait().unwrap();
        }
        let noise: Vec<u8> = (0..5000).map(|_| rng.next() as u8).collect();
        store.append("large", noise).unwrap().wait().unwrap();
        match round {
            2 => store.delete("log/3").unwrap().wait().unwrap(),
            4 => store.trim("log/4", 2).unwrap().wait().unwrap(),
            _ => {}
        }
        if round < 5 {
            store.checkpoint().unwrap();
            while store.step().unwrap() {}
        }
    }
    let mut commit = Commit::new();
    commit.append("log/1", b"both").append("log/2", b"or none").truncate("log/5", 3);
    store.commit(&commit).unwrap().wait().unwrap();
    assert!(store.info().unwrap().runs.len() == 2, "a merged run and a fresh one");
    let contents = common::contents(&store).unwrap();
    store.close().unwrap();
    (volume, contents)
}

/// Reads every log of the undamaged contents; each gives the right bytes or an error.
fn reads(volume: &MemVolume, expected: &Logs) -> Result<(), Error> {
    let store = options().read_only(true).open_on(Arc::new(volume.clone()))?;
    let mut worst = Ok(());
    for (key, log) in expected {
        let read = || -> Result<Vec<Vec<u8>>, Error> {
            store.read(key, ..)?.map(|entry| Ok(entry?.payload.to_vec())).collect()
        };
        match read() {
            Ok(entries) => assert!(entries == log.entries, "wrong bytes of {}", key.escape_ascii()),
            Err(error @ Error::Damaged { .. }) => worst = Err(error),
            Err(error) => panic!("damage shows as {error}"),
        }
    }
    listing(&store, expected).and(worst)
}

fn listing(store: &Store, expected: &Logs) -> Result<(), Error> {
    let keys = store.scan("")?.map(|log| Ok(log?.key)).collect::<Result<Vec<_>, Error>>()?;
    assert!(keys.iter().eq(expected.keys()), "the listing is wrong");
    Ok(())
}

/// How many flips were in unused space, met by the check alone, and met by a read; and how many of the second kind
/// were real damage, not that of a copy: in a filter, which only saves reads a look at the index.
fn flip_range(range: std::ops::Range<usize>, bits: &[u8]) -> [u64; 4] {
    let (volume, expected) = small_store();
    let mut counts = [0; 4];
    for byte in range {
        for &bit in bits {
            let bit = if bits.len() == 1 { (byte % 8) as u8 } else { bit };
            volume.flip(byte, bit);
            let report = brooklet::check_volume(Arc::new(volume.clone()), &mut |_, _| {});
            let sound = match &report {
                Ok(report) => report.is_sound(),
                Err(Error::NewerFormat { .. } | Error::NotAStore { .. }) => false,
                Err(error) => panic!("byte {byte}: the check itself fails: {error}"),
            };
            match reads(&volume, &expected) {
                Ok(()) if sound => counts[0] += 1,
                Ok(()) => {
                    counts[1] += 1;
                    let real = report.is_ok_and(|r| r.findings.iter().any(|f| !f.harmless));
                    counts[3] += u64::from(real);
                }
                Err(error) => {
                    assert!(!sound, "byte {byte}, bit {bit}: a read says {error}, the check nothing");
                    counts[2] += 1;
                }
            }
            volume.flip(byte, bit);
        }
    }
    counts
}

#[test]
fn no_flipped_bit_goes_unnoticed_or_gives_a_wrong_byte() {
    let size = small_store().0.size().unwrap() as usize;
    let all = std::env::var_os("BROOKLET_ALL_BITS").is_some();
    let bits: &[u8] = if all { &[0, 1, 2, 3, 4, 5, 6, 7] } else { &[0] };
    let counts = std::thread::scope(|scope| {
        let halves = [0..size / 2, size / 2..size];
        let threads = halves.map(|half| scope.spawn(move || flip_range(half, bits)));
        threads
            .map(|t| t.join().expect("no panics"))
            .into_iter()
            .fold([0; 4], |a, b| std::array::from_fn(|i| a[i] + b[i]))
    });
    println!(
        "{size} bytes: {} flips in unused space, {} met by the check alone, {} by a read",
        counts[0], counts[1], counts[2]
    );
    assert!(counts[3] > 0, "a damaged filter is no reason to fail a read");
    assert!(
        counts[1] > 500 && counts[2] > 10_000,
        "the store is too small for the test to say much: {counts:?}"
    );
}

/// What a torn write or a lost one leaves: whole sectors of zeros or of older bytes.
#[test]
fn no_zeroed_or_stale_sector_goes_unnoticed() {
    let (volume, expected) = small_store();
    let whole = volume.image();
    let mut seen = 0;
    for sector in 0..whole.len() / 512 {
        let mut image = whole.clone();
        let range = sector * 512..sector * 512 + 512;
        if image[range.clone()].iter().all(|&b| b == 0) {
            continue;
        }
        image[range].fill(0);
        let volume = MemVolume::from_image(image, 0);
        let sound =
            brooklet::check_volume(Arc::new(volume.clone()), &mut |_, _| {}).is_ok_and(|r| r.is_sound());
        if let Err(error) = reads(&volume, &expected) {
            assert!(!sound, "sector {sector}: {error}");
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}
