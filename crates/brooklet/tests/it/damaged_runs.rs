//! One damaged place in a run: commits, checkpoints and merges go on with the rest, and nothing
//! reads wrong or hides more.

use crate::common::small::{noise, open, options};

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use brooklet::io::{Fault, MemVolume, Rng};
use brooklet::{Entry, Error, Store, WalkItem};

type Logs = BTreeMap<String, Vec<Entry>>;

/// A closed store of so many runs, with logs in all of them and one of its own in each.
fn runs(runs: u64) -> (MemVolume, Logs) {
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(7);
    for run in 0..runs {
        for log in 0..30 {
            let key = format!("log/{log:02}");
            store.append(&key, noise(&mut rng, 900)).unwrap().wait().unwrap();
            if (log + run) % 7 == 0 {
                store.keep_last(&key, 1).unwrap().wait().unwrap();
            }
        }
        store.append(format!("own/{run}"), [run as u8]).unwrap().wait().unwrap();
        store.checkpoint().unwrap();
    }
    let logs = readable(&store, &keys(runs));
    assert_eq!(logs.len() as u64, 30 + runs);
    store.close().unwrap();
    (volume, logs)
}

fn keys(runs: u64) -> Vec<String> {
    (0..30).map(|log| format!("log/{log:02}")).chain((0..runs).map(|run| format!("own/{run}"))).collect()
}

/// Those of some logs that can be read; of all others damage is the reason. A listing has all of
/// them, and ends with an error where it leaves out others.
fn readable(store: &Store, keys: &[String]) -> Logs {
    let read = |key: &String| match store.read(key, ..).and_then(|entries| entries.collect::<Result<_, _>>())
    {
        Ok(entries) => Some((key.clone(), entries)),
        Err(Error::Damaged { .. }) => None,
        Err(error) => panic!("{key}: {error}"),
    };
    let logs: Logs = keys.iter().filter_map(read).collect();
    let (mut listed, mut error) = (BTreeMap::new(), None);
    for log in store.scan("").unwrap() {
        assert!(error.is_none(), "an error ends it");
        match log {
            Ok(log) => _ = listed.insert(log.key, log.bounds),
            Err(Error::Damaged { what, .. }) => error = Some(what),
            Err(error) => panic!("{error}"),
        }
    }
    for (key, entries) in &logs {
        let bounds = listed.get(key.as_bytes()).map(|bounds| (bounds.first, bounds.next));
        let held = entries.first().map(|entry| (entry.seq, entry.seq + entries.len() as u64));
        assert_eq!(bounds, held, "{key}: {error:?}");
    }
    let left_out = keys.iter().any(|key| !listed.contains_key(key.as_bytes()));
    assert!(!left_out || error.as_ref().is_some_and(|what| what.contains("may be missing")), "{error:?}");
    logs
}

/// A salvage has all that can be read, and an error for all else.
fn salvages(store: &Store, keys: &[String], logs: &Logs) {
    let view = store.view().unwrap();
    let (mut salvaged, mut key, mut errors) = (Logs::new(), String::new(), 0);
    for walked in view.salvage("").unwrap() {
        match walked {
            Ok(WalkItem::Log(log)) => {
                key = String::from_utf8(log.key).unwrap();
                assert!(salvaged.insert(key.clone(), Vec::new()).is_none(), "{key} comes twice");
            }
            Ok(WalkItem::Entry(entry)) => salvaged.get_mut(&key).unwrap().push(entry),
            Err(Error::Damaged { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(logs.iter().all(|(key, log)| salvaged.get(key) == Some(log)), "{errors} errors");
    assert!(errors > 0 || logs.len() == keys.len());
}

/// The same of a closed store; the one that goes on has not met the damage then.
fn seen(volume: &MemVolume, keys: &[String]) -> Logs {
    let volume = MemVolume::from_image(volume.image(), 1);
    let store = options().read_only(true).open_on(Arc::new(volume)).unwrap();
    let logs = readable(&store, keys);
    salvages(&store, keys, &logs);
    logs
}

/// Commits to a store of which a run is damaged, with a checkpoint after each, and lets it merge as
/// it likes; then merges what can be merged. No log that could be read before is lost, or reads
/// otherwise.
fn goes_on(volume: &MemVolume, logs: &Logs, what: &str) {
    let keys: Vec<String> = logs.keys().cloned().collect();
    let before = seen(volume, &keys);
    let store = open(volume).unwrap();
    assert!(before.iter().all(|(key, log)| logs[key] == *log), "{what}");
    for round in 0..20u8 {
        match store.append("later", [round]).and_then(|ticket| ticket.wait()) {
            Ok(()) | Err(Error::Damaged { .. }) => {}
            Err(error) => panic!("{what}: {error}"),
        }
        store.append(format!("new/{round}"), [round]).and_then(|ticket| ticket.wait()).ok();
        store.checkpoint().unwrap();
        while store.step().unwrap() {}
        let newer = store.info().unwrap().runs.iter().take_while(|run| !run.damaged && !run.merging).count();
        assert!(newer <= 12, "{what}: {newer} runs pile up");
    }
    let again = readable(&store, &keys);
    assert!(before == again, "{what}: merging hides more");
    match store.compact() {
        Ok(()) => assert_eq!(store.info().unwrap().runs.len(), 1, "{what}"),
        Err(error @ Error::Damaged { .. }) => {
            let runs = store.info().unwrap().runs;
            let sound = runs.iter().take_while(|run| !run.damaged && !run.merging).count();
            assert!(sound <= 1 && sound < runs.len(), "{what}: {runs:?}");
            assert!(error.to_string().contains("older runs"), "{what}: {error}");
            assert!(store.damage().iter().any(|damage| damage.place.contains("run ")), "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
    assert!(before == readable(&store, &keys), "{what}: merging all hides more");
    let new = store.read("new/19", ..).unwrap().next().unwrap().unwrap();
    assert_eq!(new.payload[..], [19], "{what}");
    store.close().unwrap();
    let store = open(volume).unwrap();
    assert!(before == readable(&store, &keys), "{what}: after opening anew");
    store.close().unwrap();
}

#[test]
pub fn a_damaged_run_stays_and_newer_ones_are_merged() {
    let (volume, logs) = runs(5);
    let image = volume.image();
    let places: Vec<(u64, u64)> = {
        let store = options().read_only(true).open_on(Arc::new(volume)).unwrap();
        store.info().unwrap().runs.iter().map(|run| (run.offset, run.bytes)).collect()
    };
    // The second newest, and the oldest.
    for (offset, bytes) in [places[1], places[4]] {
        for at in (offset..offset + bytes).step_by(2 << 10) {
            let volume = MemVolume::from_image(image.clone(), 1);
            volume.flip(at as usize + 5, 2);
            goes_on(&volume, &logs, &format!("byte {at} of a run at {offset}"));
        }
    }
}

/// A reader beside the writer opens all the same. It reads as much as an opening without a writer.
#[test]
pub fn a_reader_beside_a_writer_names_the_damage_when_it_meets_it() {
    let (volume, logs) = runs(3);
    let image = volume.image();
    let (offset, bytes) = {
        let store = options().read_only(true).open_on(Arc::new(volume)).unwrap();
        let run = store.info().unwrap().runs[1];
        (run.offset, run.bytes)
    };
    let mut met = 0;
    for at in (offset..offset + bytes).step_by(1 << 10) {
        let volume = MemVolume::from_image(image.clone(), 1);
        // So dense that it meets everything that an opening reads, too.
        (at..at + (1 << 10)).step_by(16).for_each(|at| volume.flip(at as usize, 2));
        let alone = seen(&volume, &keys(3));
        let writer = open(&volume).unwrap();
        let reader = options().beside_writer(true).open_on(Arc::new(volume.clone()));
        let reader = reader.unwrap_or_else(|error| panic!("byte {at} of the run: {error}"));
        assert!(alone == readable(&reader, &keys(3)), "byte {at} of the run");
        met += usize::from(alone.len() < logs.len());
        drop(reader);
        writer.append("log/00", "more").unwrap().wait().unwrap();
        writer.close().unwrap();
    }
    assert!(met > 3, "the damage was met {met} times");
}

/// Some of a merge is published, and counts; then comes what cannot be read.
#[test]
fn a_merge_that_meets_damage_late_lets_others_go_on() {
    let (volume, logs) = runs(9);
    let image = volume.image();
    let (offset, bytes) = {
        let store = options().read_only(true).open_on(Arc::new(volume)).unwrap();
        let run = store.info().unwrap().runs[6];
        (run.offset, run.bytes)
    };
    let mut stalled = 0;
    for at in (offset..offset + bytes).step_by(4 << 10) {
        let volume = MemVolume::from_image(image.clone(), 1);
        volume.flip(at as usize + 5, 2);
        let before = seen(&volume, &keys(9));
        let store = open(&volume).unwrap();
        let met = store.compact().is_err();
        let info = store.info().unwrap();
        stalled += u64::from(met && info.runs.iter().any(|run| run.merging));
        assert!(before == readable(&store, &keys(9)), "{at}");
        store.close().unwrap();
        goes_on(&volume, &logs, &format!("byte {at}, merged before"));
    }
    assert!(stalled > 0, "in no case was anything merged before the damage was met");
}

/// What cannot be read at the moment is left out as what is damaged is, until somebody insists.
#[test]
fn a_run_that_cannot_be_read_for_a_while_is_merged_later() {
    let (volume, logs) = runs(5);
    let image = volume.image();
    let mut left_out = 0;
    for reads in 0..40 {
        let volume = MemVolume::from_image(image.clone(), 1);
        let store = open(&volume).unwrap();
        volume.fail(Fault::ReadErrorAfter { reads, kind: ErrorKind::Other, sticky: false });
        match store.compact() {
            // It read less than that.
            Ok(()) => break,
            Err(error @ Error::Io { .. }) if error.to_string().contains("older runs") => left_out += 1,
            // What was just written is not left out.
            Err(Error::Io { .. }) => {}
            Err(error) => panic!("after {reads} reads: {error}"),
        }
        store.compact().unwrap();
        assert_eq!(store.info().unwrap().runs.len(), 1);
        assert!(logs == readable(&store, &keys(5)));
    }
    assert!(left_out > 5, "{left_out} reads of a merge failed");
}
