//! `cut_since`: a reader beside the writer opens the store again and again, and learns from where a
//! log lost its end in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Bytes, Class, Commit, Cut, MemoryConfig, SpaceConfig, Store};

use crate::common::small;

/// Opens a reader that shows all that the writer has committed: the next blocks prove that the
/// blocks before them are durable.
fn look(writer: &Store, volume: &MemVolume) -> Store {
    for _ in 0..2 {
        writer.append("tick", "x").unwrap().wait().unwrap();
    }
    small::options().beside_writer(true).open_on(Arc::new(volume.clone())).unwrap()
}

fn commit(writer: &Store, add: impl FnOnce(&mut Commit) -> &mut Commit) {
    let mut commit = Commit::new();
    add(&mut commit);
    writer.commit(&commit).unwrap().wait().unwrap();
}

#[test]
pub fn a_reader_learns_from_where_a_log_lost_its_end() {
    let volume = MemVolume::new(1);
    let writer = small::open_new(&volume);
    let space = writer.create_space("space", SpaceConfig::new()).unwrap();
    for key in ["log", "log/2", "gone", "space/log"] {
        writer.append_many(key, ["a", "b", "c", "d"]).unwrap().wait().unwrap();
    }
    let start = look(&writer, &volume);
    // What adds entries, or drops the oldest, cuts off nothing.
    writer.append("log", "e").unwrap().wait().unwrap();
    writer.trim("log", 1).unwrap().wait().unwrap();
    commit(&writer, |commit| commit.snapshot("log/2", "whole").begin_at("gone", 9));
    let second = look(&writer, &volume);
    for key in ["log", "log/2", "gone", "none"] {
        assert_eq!(second.cut_since(&start, key).unwrap(), Cut::Nothing, "{key}");
    }
    commit(&writer, |commit| commit.append("a", "x").truncate("log", 3).append("log", "D").delete("gone"));
    let third = look(&writer, &volume);
    assert_eq!(third.cut_since(&start, "log").unwrap(), Cut::From(3));
    assert_eq!(third.cut_since(&second, "log").unwrap(), Cut::From(3));
    assert_eq!(third.cut_since(&second, "gone").unwrap(), Cut::From(0));
    assert_eq!(third.cut_since(&second, "log/2").unwrap(), Cut::Nothing);
    // A later cut at a larger number leaves the least one; a log made again is another log.
    writer.truncate("log", 4).unwrap().wait().unwrap();
    writer.append_many("gone", ["1", "2"]).unwrap().wait().unwrap();
    space.truncate("log", 2).unwrap().wait().unwrap();
    writer.checkpoint().unwrap();
    let fourth = look(&writer, &volume);
    assert_eq!(fourth.cut_since(&start, "log").unwrap(), Cut::From(3));
    assert_eq!(fourth.cut_since(&third, "log").unwrap(), Cut::From(4));
    assert_eq!(fourth.cut_since(&second, "gone").unwrap(), Cut::From(0));
    assert_eq!(fourth.cut_since(&third, "gone").unwrap(), Cut::Nothing);
    let [before, now] = [&third, &fourth].map(|reader| reader.space("space").unwrap());
    assert_eq!(now.cut_since(&before, "log").unwrap(), Cut::From(2));
    assert_eq!(now.cut_since(&now, "log").unwrap(), Cut::Nothing);
    // Not backwards, and not of a writer.
    assert_eq!(start.cut_since(&fourth, "log").unwrap(), Cut::Unknown);
    assert_eq!(writer.cut_since(&start, "log").unwrap(), Cut::Unknown);
    assert_eq!(start.cut_since(&writer, "log").unwrap(), Cut::Unknown);
    // The ring no longer has the truncation.
    for _ in 0..100 {
        writer.append("fill", [7; 8000]).unwrap().wait().unwrap();
        while writer.step().unwrap() {}
    }
    let last = look(&writer, &volume);
    assert_eq!(last.cut_since(&start, "log").unwrap(), Cut::Unknown);
    let other = MemVolume::new(2);
    let another = small::options().rng_seed(6).create_on(Arc::new(other.clone())).unwrap();
    let other = look(&another, &other);
    assert_eq!(other.cut_since(&start, "log").unwrap(), Cut::From(0), "another store");
}

/// Commits in memory are in no ring, and readers beside the writer see them in dumps.
#[test]
fn what_was_cut_in_memory_is_not_known() {
    let volume = MemVolume::new(1);
    let writer = small::open_new(&volume);
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    let space = writer.create_space("space", memory.clone()).unwrap();
    space.append_many("log", ["a", "b", "c"]).unwrap().wait().unwrap();
    space.dump().unwrap();
    let first = look(&writer, &volume);
    space.truncate("log", 1).unwrap().wait().unwrap();
    space.append("log", "B").unwrap().wait().unwrap();
    let second = look(&writer, &volume);
    assert_eq!(second.cut_since(&first, "space/log").unwrap(), Cut::Nothing, "there was no dump");
    space.dump().unwrap();
    let third = look(&writer, &volume);
    assert_eq!(third.bounds("space/log").unwrap().next, 2);
    assert_eq!(third.cut_since(&second, "space/log").unwrap(), Cut::Unknown);
    assert_eq!(third.cut_since(&second, "tick").unwrap(), Cut::Nothing);
    // The log is in memory between two readers, and not when they open.
    space.configure(SpaceConfig::new()).unwrap();
    let fourth = look(&writer, &volume);
    space.configure(memory).unwrap();
    space.truncate("log", 0).unwrap().wait().unwrap();
    space.configure(SpaceConfig::new()).unwrap();
    let fifth = look(&writer, &volume);
    assert_eq!(fifth.cut_since(&fourth, "space/log").unwrap(), Cut::Unknown);
    assert_eq!(fifth.cut_since(&fourth, "tick").unwrap(), Cut::Nothing);
}

/// The readers cannot read which spaces there are, so that any may be in memory.
#[test]
fn without_a_table_of_spaces_no_log_of_a_space_is_known() {
    let volume = MemVolume::new(1);
    let writer = small::open_new(&volume);
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    let space = writer.create_space("space", memory).unwrap();
    writer.checkpoint().unwrap();
    writer.append("tick", "x").unwrap().wait().unwrap();
    // The run begins with the log that holds the table.
    let run = writer.info().unwrap().runs[0];
    volume.flip(run.offset as usize + 8, 1);
    space.append_many("log", ["a", "b", "c"]).unwrap().wait().unwrap();
    space.dump().unwrap();
    let first = look(&writer, &volume);
    assert!(first.spaces_error().is_some());
    space.truncate("log", 1).unwrap().wait().unwrap();
    space.dump().unwrap();
    let second = look(&writer, &volume);
    assert_eq!(second.cut_since(&first, "space/log").unwrap(), Cut::Unknown);
    assert_eq!(second.cut_since(&first, "tick").unwrap(), Cut::Nothing);
}

/// The ring of the later reader begins behind the place of the earlier one.
#[test]
fn a_ring_that_has_grown_since_does_not_tell() {
    let volume = MemVolume::new(1);
    let options = small::options().ring_size(1 << 20).with_first_ring(64 << 10).memory_budget(4 << 20);
    let writer = options.create_on(Arc::new(volume.clone())).unwrap();
    writer.append_many("log", ["a", "b", "c"]).unwrap().wait().unwrap();
    // The ring has wrapped around, so that it does not grow in place.
    for _ in 0..12 {
        writer.append("fill", [7; 8000]).unwrap().wait().unwrap();
        writer.checkpoint().unwrap();
    }
    let start = look(&writer, &volume);
    let ring = writer.info().unwrap().ring_in_use;
    writer.truncate("log", 1).unwrap().wait().unwrap();
    while writer.info().unwrap().ring_in_use == ring {
        writer.append("fill", [7; 8000]).unwrap().wait().unwrap();
        writer.step().unwrap();
    }
    writer.checkpoint().unwrap();
    assert_eq!(look(&writer, &volume).cut_since(&start, "log").unwrap(), Cut::Unknown);
}

/// No block follows the cut, so the ring itself does not prove it.
#[test]
fn a_cut_counts_that_only_the_superblock_proves() {
    let volume = MemVolume::new(1);
    let writer = small::open_new(&volume);
    writer.append_many("log", ["a", "b", "c"]).unwrap().wait().unwrap();
    let start = look(&writer, &volume);
    writer.truncate("log", 1).unwrap().wait().unwrap();
    writer.checkpoint().unwrap();
    let now = small::options().beside_writer(true).open_on(Arc::new(volume.clone())).unwrap();
    assert_eq!(now.bounds("log").unwrap().next, 1);
    assert_eq!(now.cut_since(&start, "log").unwrap(), Cut::From(1));
}

/// Copies of logs, kept as the documentation of `cut_since` says.
#[test]
pub fn a_copy_that_heeds_the_cuts_is_the_log() {
    const KEYS: [&str; 3] = ["log", "log/1", "other"];
    let volume = MemVolume::new(1);
    let writer = small::open_new(&volume);
    let mut rng = Rng::new(7);
    let mut earlier = look(&writer, &volume);
    let mut copies: [BTreeMap<u64, Bytes>; 3] = Default::default();
    let (mut n, mut cuts) = (0, 0);
    for round in 0..300 {
        for _ in 0..rng.below(8) {
            let mut commit = Commit::new();
            for _ in 0..1 + rng.below(4) {
                let key = KEYS[rng.below(3) as usize];
                n += 1;
                match rng.below(12) {
                    0 => commit.delete(key).append(key, format!("{n} of a new log")),
                    1 => commit.keep_last(key, 3),
                    2..5 => {
                        let bounds = writer.get_bounds(key).unwrap().unwrap_or_default();
                        let from = bounds.first + rng.below(bounds.next - bounds.first + 1);
                        commit.truncate(key, from)
                    }
                    _ => commit.append(key, format!("{n}")),
                };
            }
            // Some name entries that an operation before them dropped.
            if let Ok(ticket) = writer.commit(&commit) {
                ticket.wait().unwrap();
            }
        }
        if rng.percent(10) {
            writer.checkpoint().unwrap();
        }
        let now = look(&writer, &volume);
        for (key, copy) in KEYS.iter().zip(&mut copies) {
            match now.cut_since(&earlier, key).unwrap() {
                Cut::Nothing => {}
                Cut::From(cut) => {
                    drop(copy.split_off(&cut));
                    cuts += 1;
                }
                Cut::Unknown => panic!("the ring is larger than what a round writes"),
            }
            let next = copy.last_key_value().map_or(0, |(seq, _)| seq + 1);
            for entry in now.read_available(key, next..).unwrap() {
                let entry = entry.unwrap();
                copy.insert(entry.seq, entry.payload);
            }
            let bounds = now.get_bounds(key).unwrap().unwrap_or_default();
            *copy = copy.split_off(&bounds.first);
            let log = now.read_available(key, ..).unwrap().map(|entry| entry.unwrap());
            let log: BTreeMap<_, _> = log.map(|entry| (entry.seq, entry.payload)).collect();
            assert_eq!(*copy, log, "{key} in round {round}");
        }
        earlier = now;
    }
    assert!(cuts > 100, "the test cuts off too little: {cuts} times");
}
