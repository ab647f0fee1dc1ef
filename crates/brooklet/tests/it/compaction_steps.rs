//! Merging in compaction steps: cut anywhere, gone on with, read meanwhile; and runs in a heap of
//! many small holes.

use crate::common;
use crate::common::busy;
use crate::common::small;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brooklet::io::{Fault, ManualClock, MemVolume, Rng, Volume};
use brooklet::{Commit, Entries, Error};
use busy::{Before, Busy};
use common::{Log, Logs, contents, seen};
use small::{check, noise, open, options};

/// A closed store of some runs with all that can be in one: logs in all of them, in some, empty,
/// trimmed, truncated, gone and made anew, one `long` of 20 entries a run, of this many bytes; and
/// what it holds.
fn runs(runs: u64, long: usize) -> (Vec<u8>, Logs) {
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(7);
    for run in 0..runs {
        for log in 0..40 {
            let key = format!("log/{log:02}");
            store.append(&key, noise(&mut rng, 900)).unwrap().wait().unwrap();
            match (log + run) % 8 {
                0 => drop(store.trim(&key, store.bounds(&key).unwrap().next).unwrap()),
                1 => drop(store.truncate(&key, store.bounds(&key).unwrap().first).unwrap()),
                2 => drop(store.delete(&key).unwrap()),
                3 => drop(store.append_many(&key, [[1; 50], [2; 50]]).unwrap()),
                _ => {}
            }
        }
        drop(store.append_many("log/20/long", (0..20).map(|_| noise(&mut rng, long))).unwrap());
        drop(store.append(format!("own/{run}"), b"x").unwrap());
        store.checkpoint().unwrap();
    }
    let logs = contents(&store).unwrap();
    assert_eq!(store.info().unwrap().runs.len() as u64, runs);
    store.close().unwrap();
    (volume.image(), logs)
}

/// A store holds this and no more, said without printing all of it.
#[track_caller]
fn same(found: &Logs, logs: &Logs, when: &str) {
    let text = |key: &[u8]| key.escape_ascii().to_string();
    for key in found.keys().chain(logs.keys()) {
        assert!(found.get(key) == logs.get(key), "{when}: {} is another", text(key));
    }
}

/// Merges all, and gives the compaction steps and the writes that took.
fn compact(volume: &MemVolume) -> (u64, u64) {
    let store = open(volume).unwrap();
    let before = volume.counts().written_bytes;
    store.compact().unwrap();
    let info = store.info().unwrap();
    assert!(info.runs.len() == 1 && !info.runs[0].merging && !info.compacting, "{:?}", info.runs);
    (info.maintenance.compaction_steps, volume.counts().written_bytes - before)
}

/// Wherever a merge is cut, by the power or a kill: nothing is lost, and what was published is not
/// merged again.
#[test]
fn a_merge_that_is_cut_goes_on_where_it_was() {
    let (image, logs) = runs(9, 500);
    let (whole, all_bytes) = compact(&MemVolume::from_image(image.clone(), 1));
    assert!(whole > 3, "{whole} compaction steps");
    let (mut cut, mut resumed, mut least) = (0, 0, whole);
    for operations in 0.. {
        let volume = MemVolume::from_image(image.clone(), operations);
        let store = open(&volume).unwrap();
        volume.fail(Fault::PowerOffAfter(operations));
        let done = store.compact();
        drop(store);
        if done.is_ok() {
            break;
        }
        cut += 1;
        let volume = MemVolume::from_image(volume.crash(), operations);
        check(&volume);
        let store = open(&volume).unwrap();
        same(&contents(&store).unwrap(), &logs, &format!("cut after {operations} operations"));
        // Some of it may lie in what the merge has made so far, and the rest in what it is made of.
        same(&seen(&store.view().unwrap()), &logs, &format!("a view, cut after {operations} operations"));
        // Where the store is only read, what the ring has is a run on top of those.
        let copy = MemVolume::from_image(volume.image(), 1);
        let other = open(&copy).unwrap();
        other.append("more", "x").unwrap().wait().unwrap();
        other.abandon();
        let read = options().read_only(true).open_on(Arc::new(copy)).unwrap();
        let mut more = logs.clone();
        more.insert(b"more".to_vec(), Log { first: 0, entries: vec![b"x".to_vec()] });
        let view = read.view().unwrap();
        same(&seen(&view), &more, &format!("read only, cut after {operations} operations"));
        // Of a table that knows of no merge, the last word but one says so.
        let table = view.table();
        let merges = table[table.len() - 16..table.len() - 8] != [0; 8];
        assert_eq!(merges, read.info().unwrap().compacting);
        let info = store.info().unwrap();
        assert_eq!(info.compacting, info.runs.iter().any(|run| run.merging));
        store.close().unwrap();
        drop(store);
        let (rest, bytes) = compact(&volume);
        if info.compacting {
            resumed += 1;
            assert!(
                rest < whole && bytes < all_bytes,
                "{rest} of {whole} compaction steps, {bytes} of {all_bytes} bytes"
            );
        }
        // The one that was being published when the power went may count or not.
        assert!(rest <= least + 1, "{rest} compaction steps were left, after {least}");
        least = least.min(rest);
        check(&volume);
        same(
            &contents(&open(&volume).unwrap()).unwrap(),
            &logs,
            &format!("cut after {operations} operations, merged"),
        );
    }
    assert!(cut > 20 && resumed > 10 && least < 2, "{resumed} of {cut}");
}

/// Readers go on as they began, whatever of their runs has been merged and freed since; listings,
/// too.
#[test]
fn readers_hold_what_instalments_free() {
    let (image, logs) = runs(13, 500);
    let volume = MemVolume::from_image(image, 1);
    let store = open(&volume).unwrap();
    let mut held: Vec<(Vec<u8>, Entries)> = Vec::new();
    let mut listings = Vec::new();
    let mut seen = u64::MAX;
    loop {
        let info = store.info().unwrap();
        if info.maintenance.compaction_steps != seen {
            seen = info.maintenance.compaction_steps;
            let mut now = contents(&store).unwrap();
            now.remove(&b"other"[..]);
            same(&now, &logs, &format!("after {seen} compaction steps"));
            held.extend(logs.keys().map(|key| (key.clone(), store.read(key, ..).unwrap())));
            listings.push(store.scan("").unwrap());
            // What is free is written over.
            drop(store.snapshot("other", noise(&mut Rng::new(seen), 9000)).unwrap());
            store.checkpoint().unwrap();
        }
        if !store.step().unwrap() {
            break;
        }
    }
    assert!(seen > 5, "{seen} compaction steps");
    for (key, entries) in held {
        let entries: Vec<Vec<u8>> = entries.map(|entry| entry.unwrap().payload.to_vec()).collect();
        assert!(entries == logs[&key].entries);
    }
    for listing in listings {
        let listed: Vec<_> = listing.map(|log| log.unwrap().key).filter(|key| key != b"other").collect();
        assert!(listed.iter().eq(logs.keys()));
    }
}

/// Checkpoints have their turn between two compaction steps, however long somebody waits for all to
/// be merged: so nobody who appends meanwhile is refused for want of room in the ring.
#[test]
fn checkpoints_go_on_beside_a_merge_of_all() {
    let (image, mut logs) = runs(50, 10);
    let volume = Busy::new(MemVolume::from_image(image, 1), Before::CachedWrites);
    let store = options().open_on(Arc::new(volume.clone())).unwrap();
    let appended = Arc::new(AtomicU64::new(0));
    let (other, count) = (store.clone(), appended.clone());
    let deed = move || {
        let n = count.load(Ordering::Relaxed);
        let (key, mut commit) = (format!("log/{:02}", n % 40), Commit::new());
        let payload = noise(&mut Rng::new(n), 4000);
        // Trims what is being merged, on either side of where that has come to.
        commit.append("other", &payload);
        if other.exists(&key).unwrap() {
            commit.keep_last(&key, 1);
        }
        other.try_commit(&commit).unwrap().wait().unwrap();
        count.fetch_add(1, Ordering::Relaxed);
    };
    volume.begin(deed);
    store.compact().unwrap();
    volume.end();
    let appended = appended.load(Ordering::Relaxed);
    for n in 0..appended {
        if let Some(log) = logs.get_mut(format!("log/{:02}", n % 40).as_bytes()) {
            let gone = log.entries.len().saturating_sub(1);
            log.first += gone as u64;
            log.entries.drain(..gone);
        }
    }
    let maintenance = store.info().unwrap().maintenance;
    assert!(appended > 20 && maintenance.checkpoints > 1, "{appended} appends, {maintenance:?}");
    let mut found = contents(&store).unwrap();
    assert_eq!(found.remove(&b"other"[..]).unwrap().entries.len() as u64, appended);
    same(&found, &logs, "merged");
    store.close().unwrap();
    check(&volume.within);
}

/// A log in the midst of a merge is longer than all the room there is: what was merged before it
/// stays merged, also for the next opening, which goes on once the log is shorter.
#[test]
fn a_merge_that_finds_no_room_keeps_what_it_has_done() {
    let volume = MemVolume::new(1);
    let small = || options().capacity(1728 << 10);
    let store = small().create_on(Arc::new(volume.clone())).unwrap();
    let (mut rng, mut logs) = (Rng::new(3), Logs::new());
    for _ in 0..8 {
        for (key, entries, len) in
            [("a", 2, 2000), ("b", 3, 6000), ("m", 9, 8000), ("x", 1, 100), ("z", 2, 9000)]
        {
            let entries: Vec<_> = (0..entries).map(|_| noise(&mut rng, len)).collect();
            store.append_many(key, &entries).unwrap().wait().unwrap();
            logs.entry(key.as_bytes().to_vec()).or_default().entries.extend(entries);
            if key == "m" {
                store.checkpoint().unwrap();
            }
        }
    }
    let error = store.compact().unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    let info = store.info().unwrap();
    assert!(info.compacting && info.maintenance.compaction_steps > 0, "{:?}", info.maintenance);
    let made = info.runs.iter().find(|run| run.merging).unwrap();
    assert!(made.logs == 2 && made.entries % 5 == 0 && made.entries > 10, "{made:?}");
    assert!(store.compact().is_err(), "and again");
    same(&contents(&store).unwrap(), &logs, "without room");
    store.close().unwrap();
    drop(store);
    check(&volume);
    let store = small().open_on(Arc::new(volume.clone())).unwrap();
    same(&contents(&store).unwrap(), &logs, "opened");
    store.keep_last("m", 10).unwrap().wait().unwrap();
    let log = logs.get_mut(&b"m"[..]).unwrap();
    log.first = log.entries.len() as u64 - 10;
    log.entries.drain(..log.first as usize);
    let before = store.info().unwrap().maintenance;
    store.compact().unwrap();
    same(&contents(&store).unwrap(), &logs, "merged");
    assert_eq!(
        store.info().unwrap().maintenance.compactions - before.compactions,
        2,
        "what was begun, and all"
    );
    store.close().unwrap();
    check(&volume);
}

/// A store so small, and so full of holes of which some are held open by readers, that no run lies
/// in one piece.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_heap_of_small_holes_holds_the_same() {
    let mut most = 0;
    let mut refused = 0;
    for seed in 0..8 {
        let (volume, mut rng) = (MemVolume::new(seed), Rng::new(seed));
        let capacity = (1 << 20) + (384 << 10) + (rng.below(40) << 12);
        let small = || options().capacity(capacity);
        let mut store = small().create_on(Arc::new(volume.clone())).unwrap();
        let mut model = Logs::new();
        let mut held = Vec::new();
        for step in 0..1500 {
            let key = format!("log/{}", rng.below(60)).into_bytes();
            let len = [20, 200, 2000, 9000][rng.below(4) as usize];
            let payload = noise(&mut rng, len);
            let log = model.get(&key).cloned();
            let mut next = log.clone().unwrap_or_default();
            let ticket = match (rng.below(10), &log) {
                (0 | 1, Some(_)) => {
                    next = Log::default();
                    store.delete(&key)
                }
                (2 | 3, Some(log)) => {
                    let gone = rng.below(log.entries.len() as u64 + 1);
                    next.first += gone;
                    next.entries.drain(..gone as usize);
                    store.trim(&key, next.first)
                }
                _ => {
                    next.entries.push(payload.clone());
                    store.append(&key, &payload)
                }
            };
            match ticket {
                Ok(_) if next == Log::default() => drop(model.remove(&key)),
                Ok(_) => drop(model.insert(key, next)),
                Err(Error::Full { .. }) => refused += 1,
                Err(error) => panic!("seed {seed}, step {step}: {error}"),
            }
            if rng.percent(3) && !model.is_empty() {
                store.flush().unwrap();
                let key = model.keys().nth(rng.below(model.len() as u64) as usize).unwrap().clone();
                held.push((model[&key].entries.clone(), store.read(&key, ..).unwrap()));
            }
            if held.len() > 3 {
                let (entries, reader) = held.swap_remove(rng.below(4) as usize);
                let read: Vec<_> = reader.map(|entry| entry.unwrap().payload.to_vec()).collect();
                assert!(read == entries, "seed {seed}, step {step}");
            }
            for _ in 0..rng.below(4) {
                let _ = store.step();
            }
            if rng.percent(2) {
                let runs = store.info().unwrap().runs;
                most = most.max(runs.iter().map(|run| run.tables).max().unwrap_or_default());
                store.flush().unwrap();
                same(&contents(&store).unwrap(), &model, &format!("seed {seed}, step {step}"));
            }
            if rng.percent(1) {
                held.clear();
                if rng.percent(50) {
                    store.close().unwrap();
                    check(&volume);
                } else {
                    store.flush().unwrap();
                    store.abandon();
                }
                store = small().open_on(Arc::new(volume.clone())).unwrap();
            }
        }
        store.flush().unwrap();
        same(&contents(&store).unwrap(), &model, &format!("seed {seed}"));
    }
    assert!(most > 3, "at most {most} segments in a run; {refused} refused");
}

/// The run below those that are being merged dies meanwhile, since all of it was trimmed: the
/// merge, which knows that it is not of the oldest ones, does not miss what it held.
#[test]
fn an_older_run_may_die_beside_a_merge() {
    let volume = MemVolume::new(1);
    let larger = || options().ring_size(1 << 20).memory_budget(256 << 10);
    let store = larger().create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(1);
    let mut round = |len: usize| {
        for log in 0..100 {
            drop(store.append(format!("log/{log:03}"), noise(&mut rng, len)).unwrap());
        }
        store.checkpoint().unwrap();
    };
    (0..13).for_each(|_| round(100));
    while store.step().unwrap() {}
    (0..12).for_each(|_| round(500));
    let oldest = store.info().unwrap().runs.last().unwrap().id;
    let begun = store.info().unwrap().maintenance.compaction_steps;
    while store.info().unwrap().maintenance.compaction_steps == begun {
        assert!(store.step().unwrap());
    }
    for log in 0..100 {
        drop(store.trim(format!("log/{log:03}"), 13).unwrap());
    }
    store.checkpoint().unwrap();
    let info = store.info().unwrap();
    assert!(info.compacting && info.runs.iter().all(|run| run.id != oldest), "{:?}", info.runs);
    let logs = contents(&store).unwrap();
    store.close().unwrap();
    drop(store);
    check(&volume);
    let store = larger().open_on(Arc::new(volume.clone())).unwrap();
    while store.step().unwrap() {}
    store.compact().unwrap();
    same(&contents(&store).unwrap(), &logs, "merged");
    store.close().unwrap();
    check(&volume);
}

/// However little room there is: merging ends, with all merged or with an error, and having written
/// little for it.
#[test]
fn merging_in_whatever_room_ends() {
    let (mut merged, mut refused) = (0, 0);
    for capacity in (4500..7500).step_by(252) {
        let volume = MemVolume::new(1);
        let clock = Arc::new(ManualClock::default());
        let options = options().ring_size(1 << 20).memory_budget(4 << 20).clock(clock.clone()).rng_seed(1);
        let store = options.capacity(capacity << 10).create_on(Arc::new(volume.clone())).unwrap();
        let mut rng = Rng::new(1);
        for _ in 0..6 {
            // Every run has the same logs.
            (0..200).for_each(|log| {
                let _ = store.append(format!("log/{log:03}"), noise(&mut rng, 3000));
            });
            store.checkpoint().unwrap();
        }
        for log in 0..200 {
            let _ = store.trim(format!("log/{log:03}"), 1);
        }
        store.checkpoint().unwrap();
        let logs = contents(&store).unwrap();
        let before = volume.counts().written_bytes;
        clock.advance(std::time::Duration::from_secs(100));
        let steps = (0..2000).take_while(|_| !matches!(store.step(), Ok(false))).count();
        assert!(steps < 2000, "{capacity} KiB: it never rests");
        match store.compact() {
            Ok(()) => merged += 1,
            Err(Error::Full { .. }) => refused += 1,
            Err(error) => panic!("{capacity} KiB: {error}"),
        }
        let written = volume.counts().written_bytes - before;
        assert!(written < 12 << 20, "{capacity} KiB: {written} bytes written");
        same(&contents(&store).unwrap(), &logs, "merged or not");
        store.checkpoint().unwrap();
        store.close().unwrap();
        check(&volume);
    }
    assert!(merged > 5, "{merged} merged, {refused} refused");
}
