//! Superblocks, manifests and runs that no store writes: sound by every checksum, wrong by what they say. Opening or the
//! check refuses each by name; none is followed.

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{CheckReport, Error, ErrorKind, Options, Store};
use twox_hash::XxHash3_64;

const SLOT: usize = 4096;
/// Bytes of a run in the manifest, and where the first one starts.
const RUN: usize = 112;
const RUNS: usize = 16;

fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).environment(clock, 3)
}

/// A closed store of three runs that hold ten entries each of the same log; the image.
fn image() -> Vec<u8> {
    let volume = MemVolume::new(3);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for run in 0..3u8 {
        store.append_many("log", (0..10).map(|n| vec![run * 10 + n; 300])).unwrap().wait().unwrap();
        store.append(format!("other/{run}"), b"x").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
    }
    assert_eq!(store.info().unwrap().runs.len(), 3);
    store.close().unwrap();
    volume.image()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Writes all copies of the superblock anew, checksum and all.
fn superblock(image: &mut [u8], forge: impl Fn(&mut [u8])) {
    for copy in 0..3 {
        let slot = &mut image[copy * SLOT..copy * SLOT + 512];
        forge(slot);
        let sum = XxHash3_64::oneshot(&slot[..504]);
        put(slot, 504, sum);
    }
}

/// Writes the manifest anew, with its checksum in all places.
fn manifest(image: &mut [u8], forge: impl FnOnce(&mut Vec<u8>)) {
    let (offset, len) = (word(image, 104) as usize, word(image, 112) as usize);
    let mut bytes = image[offset..offset + len - 8].to_vec();
    forge(&mut bytes);
    let sum = XxHash3_64::oneshot(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    image[offset..offset + bytes.len()].copy_from_slice(&bytes);
    superblock(image, |slot| {
        put(slot, 112, bytes.len() as u64);
        put(slot, 120, sum);
    });
}

fn open(image: Vec<u8>) -> Result<Store, Error> {
    options().open_on(Arc::new(MemVolume::from_image(image, 1)))
}

fn check(image: Vec<u8>) -> CheckReport {
    brooklet::check_volume(Arc::new(MemVolume::from_image(image, 1)), &mut |_, _| {}).unwrap()
}

#[track_caller]
fn refused(forge: impl FnOnce(&mut Vec<u8>), place: &str, because: &str) {
    let mut image = image();
    forge(&mut image);
    let report = check(image.clone());
    assert!(report.findings.iter().any(|finding| finding.what.contains(because)), "{:?}", report.findings);
    let error = open(image).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().starts_with(&format!("damage in {place}")), "{error}");
    assert!(error.to_string().contains(because), "{error}");
}

/// It opens, and the logs may read; the check tells.
#[track_caller]
fn found(forge: impl FnOnce(&mut Vec<u8>), because: &str) {
    let mut image = image();
    forge(&mut image);
    let report = check(image);
    assert!(!report.is_sound());
    assert!(report.findings.iter().any(|finding| finding.what.contains(because)), "{:?}", report.findings);
}

#[test]
fn what_is_not_forged_is_sound() {
    let mut image = image();
    manifest(&mut image, |_| {});
    assert!(check(image.clone()).is_sound());
    assert_eq!(open(image).unwrap().bounds("log").unwrap().next, 30);
}

#[test]
fn numbers_of_a_superblock_that_make_no_sense_are_damage() {
    let senseless = "numbers make no sense";
    for (at, word) in [
        (64, 0),         // the trim point's block number
        (64, 1 << 40),   // beyond what is acknowledged
        (56, 100),       // a position inside a sector
        (48, 1 << 63),   // an epoch that cannot be
        (128, u64::MAX), // and a run number
    ] {
        refused(|image| superblock(image, |slot| put(slot, at, word)), "the superblock", senseless);
    }
    for ring in [0, 65_537, 1 << 41] {
        refused(|image| superblock(image, |slot| put(slot, 40, ring)), "the superblock", "does not fit");
    }
}

#[test]
fn a_manifest_that_lies_elsewhere_or_says_what_cannot_be_is_damage() {
    refused(|image| superblock(image, |slot| put(slot, 104, 1 << 40)), "the manifest", "lies outside");
    refused(|image| superblock(image, |slot| put(slot, 104, 70_000)), "the manifest", "lies outside");
    refused(|image| superblock(image, |slot| put(slot, 112, 1 << 31)), "the manifest", "lies outside");
    refused(|image| manifest(image, |bytes| bytes[8] = 4), "the manifest", "the version or the length");
    refused(|image| manifest(image, |bytes| bytes[12] = 9), "the manifest", "the version or the length");
    refused(|image| manifest(image, |bytes| bytes[0] = 0), "the manifest", "the magic bytes");
    for at in [64, 72, 80] {
        let forge = |image: &mut Vec<u8>| manifest(image, |bytes| put(bytes, RUNS + at, 100));
        refused(forge, "the manifest", "counts more than it holds");
    }
    refused(
        |image| manifest(image, |bytes| put(bytes, RUNS + 24, 1 << 30)),
        "the manifest",
        "longer than its extent",
    );
    refused(
        |image| {
            manifest(image, |bytes| {
                let first = word(bytes, RUNS + 16);
                put(bytes, RUNS + RUN + 16, first);
            });
        },
        "the manifest",
        "overlaps another",
    );
}

#[test]
fn a_run_in_the_place_of_another_is_damage() {
    refused(
        |image| {
            manifest(image, |bytes| {
                let other = bytes[RUNS + RUN + 16..RUNS + RUN + 48].to_vec();
                let mine = bytes[RUNS + 16..RUNS + 48].to_vec();
                bytes[RUNS + 16..RUNS + 48].copy_from_slice(&other);
                bytes[RUNS + RUN + 16..RUNS + RUN + 48].copy_from_slice(&mine);
            });
        },
        "run 3",
        "it says it is run 2",
    );
}

#[test]
fn the_check_knows_the_order_and_the_numbers_of_runs() {
    found(|image| superblock(image, |slot| put(slot, 128, 3)), "run 3 is newer than the superblock knows");
    found(|image| manifest(image, |bytes| put(bytes, RUNS + 8, 2)), "of a lower level than a newer one");
}

#[test]
fn the_check_knows_what_lives() {
    let forge = |image: &mut Vec<u8>| manifest(image, |bytes| put(bytes, RUNS + RUN + 80, 1));
    found(forge, "run 2 is said to hold 10 live entries and holds 11");
}

/// A run that is left out takes entries with it that newer ones build upon: the log says so, wherever it is read.
#[test]
fn a_run_that_is_missing_leaves_a_gap_that_is_told() {
    for missing in [1, 2] {
        let forge = |image: &mut Vec<u8>| {
            manifest(image, |bytes| {
                bytes.drain(RUNS + missing * RUN..RUNS + (missing + 1) * RUN);
                bytes[12] = 2;
            });
        };
        found(forge, "is in no tier");
        let mut image = image();
        forge(&mut image);
        let store = open(image).unwrap();
        let error = store.read("log", ..).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().contains("log \"log\""), "{error}");
        assert_eq!(store.read("log", 20..).unwrap().flatten().count(), 10, "what newer runs hold is read");
        assert_eq!(store.read("other/2", ..).unwrap().flatten().count(), 1);
    }
}
