//! Pins every on-disk format: a small store, written with a fixed seed and clock, has exactly these
//! bytes, and a store written by any released version of each format opens and reads the same; and
//! what leaves a store, exports and views in parts. Versions from 2 on are written with a capacity,
//! and the ring on a volume of its own; versions from 4 on with logs that keep a part of their
//! entries, versions from 5 on with spaces; since version 6, runs have notes; since version 7, logs
//! begin at other numbers than 0; since version 8, the ring has grown.
//!
//! A difference means that the format changed: then its version is bumped, and a new golden file
//! joins this one. `BROOKLET_WRITE_GOLDEN=1 cargo test -p brooklet --test it golden` writes the
//! files anew.
//!
//! A file holds the sectors that are not all zero, each behind its number (4 bytes, little endian),
//! and, first, the number of sectors of the volume.

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brooklet::codex::{Bytes, Reader};
use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{
    Class, Commit, Error, Moment, Options, Part, PartName, Retention, SpaceConfig, Store, View,
    check_volume_with_ring,
};
use common::Logs;
use common::small::noise;

const SECTOR: usize = 4096;
/// The age in a rule of the golden store's space: longer than anybody keeps the store.
const RULE_AGE: Duration = Duration::from_secs(31_557_600 * 900);

fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).clock(clock).rng_seed(42)
}

/// Sets rules on the space: those of the checkpoint, or those of the ring.
fn give_rules(store: &Store, checkpointed: bool) -> brooklet::Space {
    let games = store.space("games").unwrap();
    let mut config = games.info().unwrap().config;
    config.rules.clear();
    let doc = Retention::new().entries(2).bytes(1 << 10);
    let config = config.retention_for("doc/*", if checkpointed { Retention::new() } else { doc });
    games.configure(config.retention_for("*/feed", Retention::new().age(RULE_AGE))).unwrap();
    games
}

/// Fills the ring by half, so that it grows.
fn grow_ring(store: &Store) {
    let mut rng = Rng::new(8);
    for _ in 0..10 {
        store.append("grown", noise(&mut rng, 4000)).unwrap().wait().unwrap();
        store.step().unwrap();
    }
}

/// Exercises every kind of record, run entry and superblock field.
fn fill(store: &Store, format: u32) -> Logs {
    let wait = |ticket: Result<brooklet::Ticket, Error>| ticket.unwrap().wait().unwrap();
    for n in 0..5u8 {
        wait(store.append(b"doc/\x00\xff", [n; 100]));
        wait(store.append_many("large", (0..10u8).map(|i| vec![n ^ i; 700])));
        wait(store.snapshot("state", format!("state {n}")));
        wait(store.append("gone", "soon"));
        if n < 4 {
            store.checkpoint().unwrap();
            while store.step().unwrap() {}
        }
    }
    wait(store.delete("gone"));
    store.checkpoint().unwrap();
    let mut commit = Commit::new();
    commit.trim("large", 12).truncate("large", 40).append("large", b"again").keep_last("state", 0);
    wait(store.commit(&commit));
    wait(store.append("compressed", vec![7; 7000]));
    if format >= 4 {
        let all = Retention::new().entries(7).bytes(30).age(Duration::from_secs(100));
        for checkpointed in [true, false] {
            wait(store.set_retention("limited", all));
            wait(
                store
                    .append_many("limited", ["one", "two", "three", "four", "five", "six", "seven", "eight"]),
            );
            wait(store.set_retention("few", Retention::new().entries(1)));
            wait(store.append("few", "x"));
            if checkpointed {
                store.checkpoint().unwrap();
            }
        }
    }
    if format >= 5 {
        for checkpointed in [true, false] {
            let quota = SpaceConfig::new().max_logs(9).max_bytes(1 << 20);
            let games = match store.space("games") {
                Ok(games) => games,
                Err(_) => store.create_space("games", quota.clone()).unwrap(),
            };
            wait(games.append_many("7", ["e4", "e5"]));
            let soon = Class::Deferred(Duration::from_millis(20));
            games.configure(quota.class(soon).retention(Retention::new().entries(3))).unwrap();
            wait(games.append_many("8", ["d4", "d5"]));
            if checkpointed {
                store.create_space("chat", SpaceConfig::new()).unwrap();
                store.checkpoint().unwrap();
            }
        }
        store.remove_space("chat").unwrap();
    }
    if format >= 7 {
        for checkpointed in [true, false] {
            wait(store.begin_at("begun/empty", 1_000));
            wait(store.begin_at("begun", if checkpointed { 7 } else { 70_000 }));
            wait(store.append_many("begun", ["one", "two"]));
            wait(store.begin_at("limited", if checkpointed { 20 } else { 30 }));
            wait(store.append_many("limited", ["nine", "ten"]));
            let games = give_rules(store, checkpointed);
            wait(games.append_many("doc/1", ["a", "b", "c"]));
            if checkpointed {
                store.checkpoint().unwrap();
            }
        }
    }
    if format >= 8 {
        grow_ring(store);
    }
    let contents = common::contents(store).unwrap();
    store.close().unwrap();
    contents
}

fn pack(image: &[u8]) -> Vec<u8> {
    let sectors = image.chunks(SECTOR).enumerate();
    let mut out = ((image.len() / SECTOR) as u32).to_le_bytes().to_vec();
    for (number, sector) in sectors.filter(|(_, sector)| sector.iter().any(|&b| b != 0)) {
        out.extend_from_slice(&(number as u32).to_le_bytes());
        out.extend_from_slice(sector);
    }
    out
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let mut image = vec![0; number(packed) * SECTOR];
    for record in packed[4..].chunks(4 + SECTOR) {
        let at = number(record) * SECTOR;
        image[at..at + SECTOR].copy_from_slice(&record[4..]);
    }
    image
}

/// The note of the holder names a process; it is no part of the format.
fn without_note(mut image: Vec<u8>) -> Vec<u8> {
    image[60 << 10..64 << 10].fill(0);
    image
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// What a golden file holds.
fn golden(name: &str) -> Arc<MemVolume> {
    Arc::new(MemVolume::from_image(unpack(&std::fs::read(path(name)).unwrap()), 1))
}

/// Compares a volume with its golden file, byte for byte; gives what that file holds.
fn compare(name: &str, image: Vec<u8>) -> Arc<MemVolume> {
    let packed = pack(&without_note(image));
    if std::env::var_os("BROOKLET_WRITE_GOLDEN").is_some() {
        std::fs::write(path(name), &packed).unwrap();
    }
    let bytes = std::fs::read(path(name)).unwrap();
    let differs = unpack(&bytes).chunks(SECTOR).zip(unpack(&packed).chunks(SECTOR)).position(|(a, b)| a != b);
    let same = (differs, bytes.len()) == (None, packed.len());
    assert!(same, "{name}: sector {differs:?} is the first that is written differently");
    golden(name)
}

/// Compares bytes with a golden file; gives what that holds.
fn compare_bytes(name: &str, bytes: &[u8]) -> Vec<u8> {
    if std::env::var_os("BROOKLET_WRITE_GOLDEN").is_some() {
        std::fs::write(path(name), bytes).unwrap();
    }
    let golden = std::fs::read(path(name)).unwrap();
    let differs = golden.iter().zip(bytes).position(|(a, b)| a != b);
    assert!(golden == bytes, "{name}: byte {differs:?} is the first that is written differently");
    golden
}

/// What a store gives away: an export, and a view in parts. The parts are as runs are, one after
/// the other: in `v1.parts` without notes, as up to format 5 of the store.
#[test]
fn what_leaves_a_store_is_as_it_was() {
    let volume = Arc::new(MemVolume::new(42));
    let contents = fill(&options().create_on(volume.clone()).unwrap(), 4);
    let view = options().open_on(volume).unwrap().view().unwrap();
    let mut export = Vec::new();
    view.export("", &mut export).unwrap();
    let export = compare_bytes("v1.export", &export);
    let table = compare_bytes("v6.table", &view.table());
    let all: Vec<u8> =
        view.parts().iter().flat_map(|part| part.read(0, part.name().len as usize).unwrap()).collect();
    let parts = compare_bytes("v6.parts", &all);
    let before = [std::fs::read(path("v1.table")).unwrap(), std::fs::read(path("v1.parts")).unwrap()];
    for [table, parts] in [[table, parts], before] {
        let mut parts = Bytes::from(parts);
        let kept = View::from_parts(&table, 1 << 20, |name| Ok(Arc::new(parts.split_to(name.len as usize))))
            .unwrap();
        assert!(common::seen(&kept) == contents);
    }
    let other = Store::in_memory(1).unwrap();
    let reader =
        Reader::open(Bytes::from(export), view.export("", std::io::sink()).unwrap().bytes, None).unwrap();
    other.import().export(&reader, "").unwrap();
    let limited = Retention::new().entries(7).bytes(30).age(Duration::from_secs(100));
    assert_eq!(other.retention("limited").unwrap(), limited);
    assert_eq!(common::contents(&other).unwrap().len(), contents.len());
}

/// A store whose runs lie elsewhere: where they do, `v1.parts` tells, and since format 6
/// `v6.parts`.
#[test]
fn what_was_offloaded_is_named_as_it_was() {
    let volume = MemVolume::new(42);
    let contents = fill(&options().create_on(Arc::new(volume.clone())).unwrap(), 4);
    let store = options().open_on(Arc::new(volume.clone())).unwrap();
    let kept = parts_of(&store.view().unwrap(), "v6.parts");
    store.offload(0, |name| kept.get(&name).cloned(), brooklet::Progress::ignore).unwrap();
    store.close().unwrap();
    drop(store);
    let table = std::fs::read(path("v1.table")).unwrap();
    let mut parts = Bytes::from(std::fs::read(path("v1.parts")).unwrap());
    let before =
        View::from_parts(&table, 1 << 20, |name| Ok(Arc::new(parts.split_to(name.len as usize)))).unwrap();
    let before = parts_of(&before, "v1.parts");
    for (golden, kept) in [
        (compare("v8.offloaded", volume.image()), kept.clone()),
        (golden("v7.offloaded"), kept.clone()),
        (golden("v6.offloaded"), kept),
        (golden("v5.offloaded"), before.clone()),
        (golden("v4.offloaded"), before),
    ] {
        assert!(matches!(options().open_on(golden.clone()), Err(Error::PartsNeeded { .. })));
        let kept = kept.clone();
        let store = options().offload_reader(move |name| Ok(kept[&name].clone())).open_on(golden).unwrap();
        assert_eq!(common::contents(&store).unwrap(), contents, "the golden store reads as it always did");
        assert!(store.info().unwrap().runs.iter().all(|run| run.offloaded));
    }
}

/// The parts of a view by their names, from a golden file.
fn parts_of(view: &View, name: &str) -> BTreeMap<PartName, Arc<Bytes>> {
    let mut parts = Bytes::from(std::fs::read(path(name)).unwrap());
    let mut cut = |part: &Part| (part.name(), Arc::new(parts.split_to(part.name().len as usize)));
    view.parts().iter().map(&mut cut).collect()
}

/// What whoever follows a store keeps of it.
#[test]
fn commits_are_told_as_they_were() {
    let store = options().create_on(Arc::new(MemVolume::new(42))).unwrap();
    let (subscription, empty) = (store.subscribe(1 << 20).unwrap(), store.view().unwrap());
    let contents = fill(&store, 4);
    let mut commits = subscription.take().unwrap();
    let plain = compare_bytes("v2.commits", &commits.encode());
    commits.mark(Moment { lsn: commits.end().unwrap(), time_ms: commits.taken_ms() });
    let marked = compare_bytes("v2-marked.commits", &commits.encode());
    let before = ["v1.commits", "v1-marked.commits"].map(|name| std::fs::read(path(name)).unwrap());
    for commits in before.into_iter().chain([plain, marked]) {
        assert!(common::seen(&empty.with_commits([commits], None).unwrap()) == contents);
    }
}

#[test]
fn format_1_still_opens() {
    let contents = fill(&options().create_on(Arc::new(MemVolume::new(42))).unwrap(), 1);
    let golden = golden("v1.store");
    let report = brooklet::check_volume(golden.clone(), brooklet::Progress::ignore).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    let store = options().read_only(true).open_on(golden.clone()).unwrap();
    assert_eq!(common::contents(&store).unwrap(), contents, "the golden store reads as it always did");
    drop(store);
    grows_up(&options().open_on(golden).unwrap(), &contents);
}

#[test]
fn format_2_still_opens() {
    still_opens(2);
}

#[test]
fn format_3_still_opens() {
    still_opens(3);
}

#[test]
fn format_4_still_opens() {
    still_opens(4);
}

#[test]
fn format_5_still_opens() {
    still_opens(5);
}

#[test]
fn format_6_still_opens() {
    still_opens(6);
}

#[test]
fn format_7_still_opens() {
    still_opens(7);
}

/// What a release wrote with a capacity, and the ring on a volume of its own.
fn still_opens(format: u32) {
    let options = || options().capacity(2 << 20);
    let blank = || Arc::new(MemVolume::new(42));
    let contents = fill(&options().create_on_with_ring(blank(), blank()).unwrap(), format);
    let golden = (golden(&format!("v{format}.store")), golden(&format!("v{format}.ring")));
    let report =
        check_volume_with_ring(golden.0.clone(), golden.1.clone(), brooklet::Progress::ignore).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    let store = options().read_only(true).open_on_with_ring(golden.0.clone(), golden.1.clone()).unwrap();
    assert_eq!(common::contents(&store).unwrap(), contents, "the golden store reads as it always did");
    let info = store.info().unwrap();
    assert_eq!((info.format, info.capacity), (format, 2 << 20));
    if format >= 4 {
        let all = Retention::new().entries(7).bytes(30).age(Duration::from_secs(100));
        assert_eq!(store.retention("limited").unwrap(), all);
        assert_eq!(store.bounds("limited").unwrap().len(), if format < 7 { 7 } else { 2 });
    }
    drop(store);
    let store = options().open_on_with_ring(golden.0, golden.1).unwrap();
    grows_up(&store, &contents);
    // It knows as little of its old runs as that version told.
    for log in contents.keys().map(|log| &log[..]).chain([&b"new"[..]]) {
        store.delete(log).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    assert_eq!(common::contents(&store).unwrap(), Logs::new());
}

/// Written to, a store becomes what whoever knows only its version refuses by name; runs of both
/// versions serve.
fn grows_up(store: &Store, contents: &Logs) {
    store.append("new", "x").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.info().unwrap().format, 8);
    for merged in [false, true] {
        let mut now = common::contents(store).unwrap();
        assert!(now.remove(&b"new"[..]).is_some());
        assert_eq!(&now, contents, "merged: {merged}");
        assert!(matches!(store.bounds("none"), Err(Error::UnknownLog { .. })));
        store.compact().unwrap();
    }
}

#[test]
fn format_8_is_what_it_was() {
    let (data, ring) = (MemVolume::new(42), MemVolume::new(42));
    let options = || options().ring_size(128 << 10).with_first_ring(64 << 10).capacity(2 << 20);
    let create = options().create_on_with_ring(Arc::new(data.clone()), Arc::new(ring.clone()));
    let contents = fill(&create.unwrap(), 8);
    let golden = (compare("v8.store", data.image()), compare("v8.ring", ring.image()));
    let report =
        check_volume_with_ring(golden.0.clone(), golden.1.clone(), brooklet::Progress::ignore).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    let store = options().read_only(true).open_on_with_ring(golden.0, golden.1).unwrap();
    assert_eq!(common::contents(&store).unwrap(), contents, "the golden store reads as it always did");
    let info = store.info().unwrap();
    assert_eq!((info.format, info.capacity), (8, 2 << 20));
    assert_eq!((info.ring_size, info.ring_in_use), (128 << 10, 128 << 10));
    let [games] = &store.spaces()[..] else { panic!("one space") };
    let (class, kept) = (Class::Deferred(Duration::from_millis(20)), Retention::new().entries(3));
    let config = SpaceConfig::new().max_logs(9).max_bytes(1 << 20).class(class).retention(kept);
    let config = config
        .retention_for("doc/*", Retention::new().entries(2).bytes(1 << 10))
        .retention_for("*/feed", Retention::new().age(RULE_AGE));
    assert_eq!((&games.name[..], &games.config), ("games", &config));
    assert_eq!((games.logs, games.bytes), (Some(3), Some(14)));
}
