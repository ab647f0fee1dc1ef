//! Superblocks, manifests and runs that no store writes: sound by every checksum, wrong by what
//! they say. Opening or the check refuses each by name; none is followed.

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{CheckReport, Error, ErrorKind, Options, Store};
use twox_hash::XxHash3_64;

const SLOT: usize = 4096;
/// Where the first run starts in the manifest, and bytes of each: its numbers, and those of its
/// only segment, of whose first key a byte is told.
const RUNS: usize = 16;
const RUN: usize = 88 + 40 + 1;
/// In there: of the run, and of its segment.
const LEVEL: usize = 8;
const LOGS: usize = 16;
const TOMBSTONES: usize = 32;
const EMPTIES: usize = 40;
const DEAD: usize = 48;
const SEGMENTS: usize = 80;
const OFFSET: usize = 88;
const LEN: usize = 96;
const FIRST_LEN: usize = 120;
const FIRST: usize = 128;

fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).clock(clock).rng_seed(3)
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
    brooklet::check_volume(Arc::new(MemVolume::from_image(image, 1)), brooklet::Progress::ignore).unwrap()
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
    let senseless = "numbers are invalid";
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
    refused(
        |image| superblock(image, |slot| put(slot, 104, 1 << 40)),
        "the manifest",
        "is outside of the volume",
    );
    refused(
        |image| superblock(image, |slot| put(slot, 104, 70_000)),
        "the manifest",
        "is outside of the volume",
    );
    refused(
        |image| superblock(image, |slot| put(slot, 112, 1 << 31)),
        "the manifest",
        "is outside of the volume",
    );
    refused(|image| manifest(image, |bytes| bytes[8] = 4), "the manifest", "the version or the length");
    refused(|image| manifest(image, |bytes| bytes[12] = 9), "the manifest", "the version or the length");
    refused(|image| manifest(image, |bytes| bytes[0] = 0), "the manifest", "the magic bytes");
    for at in [TOMBSTONES, EMPTIES, DEAD] {
        let forge = |image: &mut Vec<u8>| manifest(image, |bytes| put(bytes, RUNS + at, 100));
        refused(forge, "the manifest", "counts that contradict each other");
    }
    refused(
        |image| manifest(image, |bytes| put(bytes, RUNS + LEN, 1 << 30)),
        "the manifest",
        "longer than its extent",
    );
    refused(
        |image| {
            manifest(image, |bytes| {
                let first = word(bytes, RUNS + OFFSET);
                put(bytes, RUNS + RUN + OFFSET, first);
            });
        },
        "the manifest",
        "overlaps another",
    );
}

/// A segment more than a run has, one before the first, and a first key of another length.
#[test]
fn a_chain_that_cannot_be_is_damage() {
    let segments = |n: u64| move |image: &mut Vec<u8>| manifest(image, |b| put(b, RUNS + SEGMENTS, n));
    for n in [0, 2, 1 << 40, u64::MAX] {
        refused(segments(n), "the manifest", "the version or the length");
    }
    for n in [0, 2, u64::MAX] {
        let forge = |image: &mut Vec<u8>| manifest(image, |b| put(b, RUNS + FIRST_LEN, n));
        refused(forge, "the manifest", "the version or the length");
    }
    let twice = |image: &mut Vec<u8>| {
        manifest(image, |bytes| {
            let again = bytes[RUNS + OFFSET..RUNS + RUN].to_vec();
            put(bytes, RUNS + SEGMENTS, 2);
            bytes.splice(RUNS + RUN..RUNS + RUN, again);
        });
    };
    refused(twice, "the manifest", "segments out of order");
    let beyond = |image: &mut Vec<u8>| manifest(image, |b| b[RUNS + FIRST] = b'm');
    found(beyond, "it has keys before its range");
}

/// Two runs made one whose segments overlap: the check says so, and a listing does not go back.
#[test]
fn segments_that_overlap_are_found() {
    let forge = |image: &mut Vec<u8>| {
        manifest(image, |bytes| {
            // The newest run gets the number and the segment of the next one, behind its own.
            let mut other = bytes[RUNS + RUN + OFFSET..RUNS + 2 * RUN].to_vec();
            other[FIRST - OFFSET] = b'm';
            put(bytes, RUNS + RUN + SEGMENTS, 2);
            bytes.splice(RUNS + RUN + OFFSET..RUNS + RUN + OFFSET, other);
            bytes.drain(RUNS..RUNS + RUN);
            bytes[12] = 2;
            // Extents do not overlap: the other one is that of the run that was left out.
            put(bytes, RUNS + LOGS, 2);
        });
    };
    let mut image = image();
    forge(&mut image);
    let report = check(image);
    assert!(!report.is_sound());
}

/// A merge of runs that are not there, or up to no log; and one that hides what its runs hold.
#[test]
fn a_merge_that_cannot_be_is_damage() {
    let merge = |into: u64, inputs: u64, bottom: u64, from: &'static [u8]| {
        move |image: &mut Vec<u8>| {
            manifest(image, |bytes| {
                bytes.truncate(bytes.len() - 8);
                for word in [inputs, into, bottom, from.len() as u64] {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
                bytes.extend_from_slice(from);
            });
        }
    };
    let merging = |into, inputs, from| merge(into, inputs, 1, from);
    refused(merge(3, 1, 1, b"m"), "the manifest", "merged as the oldest run, and is not the oldest");
    refused(merge(3, 2, 2, b"m"), "the manifest", "the version or the length is wrong");
    for (into, inputs) in [(3, 3), (3, u64::MAX), (2, 2), (1, 1), (9, 1)] {
        refused(merging(into, inputs, b"m"), "the manifest", "merged from runs that do not exist");
    }
    for from in [&b""[..], b"a", &[b'm'; 1025]] {
        refused(merging(3, 2, from), "the manifest", "up to an invalid key");
    }
    // The newest run is taken to have all before "other", and has more.
    found(merging(3, 2, b"other"), "has keys after its range");
}

#[test]
fn a_run_in_the_place_of_another_is_damage() {
    let forge = |image: &mut Vec<u8>| {
        manifest(image, |bytes| {
            let other = bytes[RUNS + RUN + OFFSET..RUNS + RUN + FIRST_LEN].to_vec();
            let mine = bytes[RUNS + OFFSET..RUNS + FIRST_LEN].to_vec();
            bytes[RUNS + OFFSET..RUNS + FIRST_LEN].copy_from_slice(&other);
            bytes[RUNS + RUN + OFFSET..RUNS + RUN + FIRST_LEN].copy_from_slice(&mine);
        });
    };
    found(forge, "it is labelled as run 2");
    let mut image = image();
    forge(&mut image);
    // What does not lie there can be had; who asks for anything else is told.
    let store = open(image).unwrap();
    let error = store.read("log", ..).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("damage in run 3: it is labelled as run 2"), "{error}");
    assert_eq!(store.append("log", "x").unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn the_check_knows_the_order_and_the_numbers_of_runs() {
    found(
        |image| superblock(image, |slot| put(slot, 128, 3)),
        "run 3 has a number that the superblock never assigned",
    );
    found(|image| manifest(image, |bytes| put(bytes, RUNS + LEVEL, 2)), "has a lower level than a newer run");
}

#[test]
fn the_check_knows_what_lives() {
    let forge = |image: &mut Vec<u8>| manifest(image, |bytes| put(bytes, RUNS + RUN + DEAD, 1));
    found(forge, "run 2 holds 11 live entries, and the manifest records 10");
}

/// A run that is left out takes entries with it that newer ones build upon: the log says so,
/// wherever it is read.
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
