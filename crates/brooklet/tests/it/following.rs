//! Stores that follow the log of another host: they show what the owner shows, and accept no write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brooklet::io::{Fault, MemVolume, Rng};
use brooklet::{
    Bytes, CaughtUp, Commit, Cut, Error, ErrorKind, Kept, Options, Progress, Retention, SealedBlock,
    SpaceConfig, Store, TailEvent,
};

use crate::catch_up::{Owner, opened, options, told};

fn id_of(owner: &Owner) -> u128 {
    owner.store().info().unwrap().id
}

/// Makes the file of a replica, which has the first `blocks` of the owner.
fn made(owner: &Owner, blocks: usize, seed: u64) -> MemVolume {
    let file = MemVolume::new(seed);
    let kept = Kept { store: id_of(owner), backup: None, blocks: owner.blocks()[..blocks].to_vec() };
    options(9).succeed_on(Arc::new(file.clone()), &kept).unwrap().close().unwrap();
    file
}

fn follow(file: &MemVolume, owner: &Owner) -> brooklet::Following {
    options(77).follow_on(Arc::new(file.clone()), id_of(owner)).unwrap()
}

#[test]
pub fn a_store_that_follows_shows_what_the_owner_shows() {
    for seed in 0..40 {
        let (mut owner, mut rng) = (Owner::new(seed), Rng::new(seed + 500));
        owner.work(100);
        let file = match rng.below(2) {
            0 => owner.file_of_a_host_that_left(),
            _ => made(&owner, owner.blocks().len(), seed),
        };
        let mut following = follow(&file, &owner);
        let mut end = owner.blocks().len();
        for _ in 0..12 {
            owner.work(40);
            let blocks = owner.blocks();
            // Some of these blocks are there already.
            let from = end - rng.below(end.min(9) as u64 + 1) as usize;
            let done = following.take(&blocks[from..]).unwrap();
            assert_eq!(done, if from == blocks.len() { CaughtUp::Ahead } else { CaughtUp::Done });
            end = blocks.len();
            assert!(told(following.store()) == told(owner.store()), "seed {seed}");
            match rng.below(6) {
                0 => while following.store().step().unwrap() {},
                1 => following.store().checkpoint().unwrap(),
                2 => following.store().compact().unwrap(),
                3 => {
                    following.close().unwrap();
                    following = follow(&file, &owner);
                    assert_eq!(following.end(), blocks.last().unwrap().end);
                }
                _ => {}
            }
            assert!(told(following.store()) == told(owner.store()), "seed {seed}");
        }
        following.close().unwrap();
        let blocks = owner.blocks();
        let last = blocks.last().unwrap();
        let (store, found) = opened(&file);
        assert_eq!(found, (last.end, last.sum), "seed {seed}");
        assert!(told(&store) == told(owner.store()), "seed {seed}");
        drop(store);
        let report = brooklet::check_volume(Arc::new(file), Progress::ignore).unwrap();
        assert!(report.is_sound(), "seed {seed}: {:?}", report.findings);
    }
}

/// A block is shown from within the caller's function, which has the keys of its logs before.
#[test]
fn a_block_is_shown_from_within_the_function_of_the_caller() {
    let mut owner = Owner::new(3);
    owner.work(50);
    let begin = owner.blocks().len();
    let file = made(&owner, begin, 3);
    let mut following = follow(&file, &owner);
    owner.work(50);
    let (mut commit, mut logs) = (Commit::new(), Vec::new());
    for log in ["z/late", "a/early", "z/late"] {
        commit.append(log, "x");
    }
    owner.store().commit(&commit).unwrap().wait().unwrap();
    owner.store().flush().unwrap();
    let blocks = owner.blocks();
    let store = following.store().clone();
    // The log of the table of spaces has no name.
    let there = |keys: &[Bytes]| -> Vec<_> {
        let named = keys.iter().filter(|key| !key.is_empty());
        named.map(|key| store.get_bounds(key).unwrap()).collect()
    };
    let mut shown = 0;
    let taken = following.take_beside(&blocks[begin - 1..], |keys, show| {
        let before = there(keys);
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
        let appends = keys.iter().any(|key| key == "a/early");
        // Who does not show it has it shown, and a second call changes nothing.
        if shown % 3 != 0 {
            show();
            show();
            assert!(!appends || before != there(keys));
        }
        shown += 1;
        logs = keys.to_vec();
    });
    assert_eq!(taken.unwrap(), CaughtUp::Done);
    assert!(shown > 2 && logs == ["a/early", "z/late"], "{shown} {logs:?}");
    assert!(told(following.store()) == told(owner.store()));
}

/// It may be killed, its disk may fail, and its power may go, at any operation of the disk.
#[test]
pub fn a_store_that_is_killed_goes_on_from_its_last_checkpoint() {
    let mut checkpointed = 0;
    for seed in 0..60 {
        let mut owner = Owner::new(seed);
        owner.work(60);
        let begin = owner.blocks().len();
        let file = made(&owner, begin, seed);
        (0..4).for_each(|_| owner.work(60));
        let blocks = owner.blocks();
        let mut following = follow(&file, &owner);
        let is_error = seed % 2 == 0;
        file.fail(match is_error {
            true => Fault::ErrorAfter { operations: seed, kind: std::io::ErrorKind::Other, sticky: true },
            false => Fault::PowerOffAfter(seed),
        });
        for (number, block) in blocks[begin - 1..].iter().enumerate() {
            let done = following.take(std::slice::from_ref(block));
            if number % 9 == 8 {
                drop(following.store().checkpoint());
            }
            if done.is_err() {
                break;
            }
        }
        following.store().clone().abandon();
        drop(following);
        let found = if is_error { file.killed() } else { file.crashed(seed) };
        let (_, end) = opened(&MemVolume::from_image(found.image(), 2));
        let at = blocks.iter().position(|block| (block.end, block.sum) == end).expect("a place in the log");
        checkpointed += usize::from(at + 1 > begin);
        let mut following = follow(&found, &owner);
        assert_eq!(following.take(&blocks).unwrap(), CaughtUp::Done, "seed {seed}");
        assert!(told(following.store()) == told(owner.store()), "seed {seed}");
    }
    assert!(checkpointed > 10, "{checkpointed}");
}

#[test]
pub fn memory_stays_within_its_budget() {
    let owner = Owner::new(1);
    let begin = owner.blocks().len();
    let file = made(&owner, begin, 1);
    let mut following = follow(&file, &owner);
    for n in 0..100_u32 {
        owner.store().append(format!("log/{n}"), vec![n as u8; 8000]).unwrap().wait().unwrap();
    }
    let blocks = owner.blocks();
    for block in &blocks[begin..] {
        following.take(std::slice::from_ref(block)).unwrap();
        // The budget is 64 KiB. A block may come on top of it.
        let memory = following.store().activity().memtable_bytes;
        assert!(memory < 96 << 10, "{memory} bytes");
    }
    assert!(told(following.store()) == told(owner.store()));
}

#[test]
fn a_store_that_follows_accepts_no_write() {
    let mut owner = Owner::new(2);
    owner.work(50);
    let file = made(&owner, owner.blocks().len(), 2);
    let following = follow(&file, &owner);
    let (store, before) = (following.store(), told(following.store()));
    let refused = |error: Error| {
        assert!(matches!(error, Error::ReadOnly), "{error}");
        assert_eq!(error.kind(), ErrorKind::Stopped);
    };
    refused(store.append("log/1", "x").map(drop).unwrap_err());
    refused(store.trim("log/1", 1).map(drop).unwrap_err());
    let mut commit = Commit::new();
    commit.append("a", "x").append("b", "y");
    refused(store.commit(&commit).map(drop).unwrap_err());
    refused(store.try_commit(&commit).map(drop).unwrap_err());
    refused(store.create_space("more", SpaceConfig::new()).map(drop).unwrap_err());
    store.flush().unwrap();
    assert!(told(store) == before);
    // Its records begin at the checkpoints of the owner, and so could not be restored.
    refused(store.subscribe(1 << 20).map(drop).unwrap_err());
}

/// A store without any run freezes its memtable, and the owner goes on with a log of it.
#[test]
pub fn the_states_of_a_frozen_memtable_count_without_runs() {
    for retains in [false, true] {
        let owner = Owner::without_spaces(3);
        let file = made(&owner, 0, 3);
        let mut following = follow(&file, &owner);
        let mut frozen = 0;
        for n in 0..60 {
            let ticket = match retains && n % 2 == 1 {
                true => owner.store().set_retention("log", Retention::new().entries(1000 + n)),
                false => owner.store().append("log", [7; 2000]),
            };
            ticket.unwrap().wait().unwrap();
            owner.store().flush().unwrap();
            following.take(&owner.blocks()).unwrap();
            assert!(told(following.store()) == told(owner.store()), "{n}");
            following.store().step().unwrap();
            let info = following.store().info().unwrap();
            frozen += u64::from(info.checkpointing && info.runs.is_empty());
        }
        assert!(frozen > 0, "no memtable was frozen without runs");
    }
}

#[test]
fn blocks_that_do_not_continue_what_is_shown_are_refused() {
    let mut owner = Owner::new(3);
    owner.work(50);
    let begin = owner.blocks().len();
    let file = made(&owner, begin, 3);
    owner.work(90);
    let blocks = owner.blocks();
    let mut following = follow(&file, &owner);
    assert_eq!(following.take(&blocks[blocks.len() - 2..]).unwrap(), CaughtUp::Outdated);
    assert_eq!(following.take(&blocks[..1]).unwrap(), CaughtUp::Ahead);
    let hole = [&blocks[..begin + 3], &blocks[begin + 4..]].concat();
    assert!(matches!(following.take(&hole), Err(Error::Damaged { .. })));
    following.take(&blocks).unwrap();
    assert!(told(following.store()) == told(owner.store()));
    following.close().unwrap();
    let error = options(77).follow_on(Arc::new(file), id_of(&owner) + 1).map(drop).unwrap_err();
    assert!(matches!(error, Error::MirrorRefused { .. }), "{error}");
}

#[test]
pub fn tails_hear_of_what_the_log_brings() {
    let mut owner = Owner::new(4);
    owner.work(20);
    let begin = owner.blocks().len();
    let file = made(&owner, begin, 4);
    let mut following = follow(&file, &owner);
    let mut tail = following.store().tail("news", 0).unwrap();
    assert!(tail.try_next().unwrap().is_none(), "there is no news");
    owner.store().append("news", "first").unwrap().wait().unwrap();
    following.take(&owner.blocks()[begin..]).unwrap();
    let event = tail.next_timeout(Duration::ZERO).unwrap().expect("it was told");
    assert!(matches!(event, TailEvent::Entry(entry) if entry.payload == "first"), "no entry");
}

/// Commits to two logs, and returns blocks of them.
fn pairs(owner: &Owner, count: u64) -> Vec<SealedBlock> {
    let begin = owner.blocks().len();
    for n in 0..count {
        let mut commit = Commit::new();
        commit.append("left", n.to_le_bytes()).append("right", [n.to_le_bytes(), [7; 8]].concat());
        commit.append(format!("other/{}", n % 300), vec![n as u8; 200]);
        owner.store().commit(&commit).unwrap().wait().unwrap();
    }
    owner.blocks()[begin..].to_vec()
}

/// Readers look at both logs at one moment, while checkpoints and merges go on.
#[test]
fn readers_see_each_commit_as_a_whole() {
    let owner = Owner::new(5);
    let file = made(&owner, owner.blocks().len(), 5);
    let blocks = pairs(&owner, 3000);
    let with_threads = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10);
    let mut following = with_threads.follow_on(Arc::new(file), id_of(&owner)).unwrap();
    let (store, done): (Store, _) = (following.store().clone(), AtomicBool::new(false));
    let looks = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut looks, mut last) = (0, 0);
            loop {
                let ends = done.load(Ordering::Acquire);
                let view = store.view().unwrap();
                let next = |key| view.bounds(key).map_or(0, |bounds| bounds.next);
                let (left, right) = (next("left"), next("right"));
                assert!(left == right && left >= last, "{left} and {right} after {last}");
                (looks, last) = (looks + 1, left);
                if ends {
                    return (looks, last);
                }
            }
        });
        for block in &blocks {
            following.take(std::slice::from_ref(block)).unwrap();
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap()
    });
    assert_eq!(looks.1, 3000);
    let info = following.store().info().unwrap();
    assert!(looks.0 > 3 && info.maintenance.checkpoints > 3, "{} {:?}", looks.0, info.maintenance);
    assert!(told(following.store()) == told(owner.store()));
}

/// The blocks of the owner do not pass through the ring of the store that follows.
#[test]
fn a_reader_beside_does_not_know_what_a_log_lost() {
    let owner = Owner::new(4);
    let write = |from: u64| {
        owner.store().append_many("log", ["a", "b", "c"]).unwrap().wait().unwrap();
        owner.store().truncate("log", from).unwrap().wait().unwrap();
        owner.store().flush().unwrap();
    };
    write(2);
    let file = made(&owner, owner.blocks().len(), 4);
    let mut following = follow(&file, &owner);
    let look = || options(5).beside_writer(true).open_on(Arc::new(file.clone())).unwrap();
    let before = look();
    write(1);
    following.take(&owner.blocks()).unwrap();
    following.store().checkpoint().unwrap();
    let now = look();
    assert_eq!(now.bounds("log").unwrap().next, 1);
    assert_eq!(now.cut_since(&before, "log").unwrap(), Cut::Unknown);
    assert_eq!(look().cut_since(&now, "log").unwrap(), Cut::Nothing);
}
