//! Imports: what comes in is what was to come in, all of it at once or nothing, whatever is going
//! on meanwhile.

use crate::common;
use crate::common::busy;
use crate::common::small;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use brooklet::codex::{Bytes, Reader};
use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Commit, Error, Existing, Import, ImportReport, Options, Retention, Store, WalkItem};
use busy::{Before, Busy};
use common::{Log, Logs, contents, seen};
use small::{check, noise, open, options};

/// Adds logs whose keys begin with `name`: short and long, trimmed, limited, empty, made anew; over
/// several runs.
fn fill(store: &Store, name: &str, seed: u64) {
    let mut rng = Rng::new(seed);
    for round in 0..3 {
        for log in 0..24u64 {
            let key = format!("{name}/{log:02}");
            let payload = noise(&mut rng, 1 + (log * 37) as usize);
            store.append_many(&key, vec![payload; 3]).unwrap().wait().unwrap();
            match (log + round) % 8 {
                0 => drop(store.trim(&key, store.bounds(&key).unwrap().next).unwrap()),
                1 => drop(store.truncate(&key, store.bounds(&key).unwrap().first + 1).unwrap()),
                2 => drop(store.delete(&key).unwrap()),
                3 => drop(store.set_retention(&key, Retention::new().entries(4).bytes(2000)).unwrap()),
                4 => drop(store.set_retention(&key, Retention::new().age(Duration::from_secs(60))).unwrap()),
                _ => {}
            }
        }
        for _ in 0..40 {
            drop(store.append(format!("{name}/long"), noise(&mut rng, 3000)).unwrap());
        }
        drop(store.append(format!("{name}/\0zero\0"), "0").unwrap());
        if round < 2 {
            store.checkpoint().unwrap();
        }
    }
    store.flush().unwrap();
}

/// A store with logs to be imported.
fn source() -> Store {
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    fill(&store, "in", 7);
    store
}

/// What a log keeps, by its key.
fn kept(store: &Store) -> BTreeMap<Vec<u8>, Retention> {
    store.scan("").unwrap().map(|log| log.unwrap()).map(|log| (log.key, log.retention)).collect()
}

#[derive(Clone, Copy, Debug)]
enum Way {
    View,
    Export,
    Unsorted,
}

const WAYS: [Way; 3] = [Way::View, Way::Export, Way::Unsorted];

impl Way {
    fn import(self, import: Import, source: &Store) -> Result<ImportReport, Error> {
        let view = source.view().unwrap();
        match self {
            Way::View => import.view(&view, ""),
            Way::Export => {
                let mut file = Vec::new();
                let exported = view.export("", &mut file).unwrap();
                import.export(&Reader::open(Bytes::from(file), exported.bytes, None).unwrap(), "")
            }
            Way::Unsorted => {
                let dir = tempfile::tempdir().unwrap();
                let mut unsorted = import.unsorted(dir.path()).unwrap();
                // Each log as it is, and among each other as they come.
                let mut rest: Vec<(Vec<u8>, Vec<Bytes>)> = Vec::new();
                for walked in view.walk("").unwrap() {
                    match walked.unwrap() {
                        WalkItem::Log(log) => {
                            unsorted.log(&log.key, log.bounds.first, log.retention).unwrap();
                            rest.push((log.key, Vec::new()));
                        }
                        WalkItem::Entry(entry) => rest.last_mut().unwrap().1.push(entry.payload),
                    }
                }
                rest.iter_mut().for_each(|(_, entries)| entries.reverse());
                let mut rng = Rng::new(3);
                while !rest.is_empty() {
                    let at = rng.below(rest.len() as u64) as usize;
                    match rest[at].1.pop() {
                        Some(payload) => unsorted.append(&rest[at].0, payload).unwrap(),
                        None => drop(rest.swap_remove(at)),
                    }
                }
                let imported = unsorted.finish();
                assert!(dir.path().read_dir().unwrap().next().is_none(), "files at work are gone");
                imported
            }
        }
    }
}

#[test]
fn logs_come_in_as_they_are_into_stores_of_all_kinds() {
    let source = source();
    let logs = contents(&source).unwrap();
    for way in WAYS {
        for full in [false, true] {
            let volume = MemVolume::new(2);
            let store = options().create_on(Arc::new(volume.clone())).unwrap();
            if full {
                fill(&store, "here", 8);
            }
            let mut expected = contents(&store).unwrap();
            let mut keeps = kept(&store);
            let imported = way.import(store.import(), &source).unwrap();
            assert_eq!(imported.logs, logs.len() as u64, "{way:?}");
            assert_eq!(imported.entries, logs.values().map(|log| log.entries.len() as u64).sum::<u64>());
            assert!(imported.bytes > 0 && imported.skipped == 0);
            expected.extend(logs.clone());
            keeps.extend(kept(&source));
            let same = |store: &Store, when: &str| {
                assert!(contents(store).unwrap() == expected, "{way:?} {full} {when}");
                assert!(kept(store) == keeps, "{way:?} {full} {when}");
            };
            same(&store, "at once");
            assert!(seen(&store.view().unwrap()) == expected);
            store.close().unwrap();
            drop(store);
            check(&volume);
            let store = open(&volume).unwrap();
            same(&store, "opened again");
            store.compact().unwrap();
            same(&store, "merged");
            // They go on as any log does.
            let next = logs[&b"in/long"[..]].next();
            assert_eq!(store.append("in/long", "more").unwrap().seq(), next);
            store.trim("in/long", next).unwrap().wait().unwrap();
            store.append_many("in/01", ["x"; 9]).unwrap().wait().unwrap();
            let limited = store.bounds("in/01").unwrap();
            assert_eq!(limited.next - limited.first, 4, "{way:?}: a limit that came along holds");
            store.delete("in/05").unwrap().wait().unwrap();
            store.checkpoint().unwrap();
            store.compact().unwrap();
            assert_eq!(store.read("in/long", ..).unwrap().count(), 1);
            assert!(matches!(store.bounds("in/05"), Err(Error::UnknownLog { .. })));
            store.close().unwrap();
            drop(store);
            check(&volume);
        }
    }
}

/// The power goes at each operation on the disk: afterwards all of it is there, or nothing, and all
/// where that was told.
#[test]
fn a_power_cut_leaves_all_or_nothing() {
    let source = source();
    let logs = contents(&source).unwrap();
    let volume = MemVolume::new(2);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, "here", 8);
    store.append("late", "entry").unwrap().wait().unwrap();
    let before = contents(&store).unwrap();
    store.close().unwrap();
    drop(store);
    let (image, mut after) = (volume.image(), before.clone());
    after.extend(logs.clone());
    let mut outcomes = [0; 3];
    for cut in 0.. {
        let volume = MemVolume::from_image(image.clone(), cut);
        let store = open(&volume).unwrap();
        // Something is in memory only, too.
        store.append("recent", "entry").unwrap().wait().unwrap();
        let [mut before, mut after] = [before.clone(), after.clone()];
        for logs in [&mut before, &mut after] {
            logs.insert(b"recent".to_vec(), Log { first: 0, entries: vec![b"entry".to_vec()] });
        }
        volume.fail(Fault::PowerOffAfter(cut));
        let imported = store.import().view(&source.view().unwrap(), "");
        let is_over = imported.is_ok() && store.append("x", "y").is_ok_and(|ticket| ticket.wait().is_ok());
        let left = volume.crash();
        store.abandon();
        if is_over {
            break;
        }
        let volume = MemVolume::from_image(left, cut + 1);
        let store = open(&volume).unwrap();
        let mut found = contents(&store).unwrap();
        found.remove(&b"x"[..]);
        let all = found == after;
        assert!(all || found == before, "cut at {cut}: some of it is there");
        assert!(all || imported.is_err(), "cut at {cut}: it was told, and is not there");
        outcomes[usize::from(all) + usize::from(imported.is_ok())] += 1;
        if !all {
            assert_eq!(store.import().view(&source.view().unwrap(), "").unwrap().logs, logs.len() as u64);
            store.delete("x").ok();
            store.flush().unwrap();
            assert!(contents(&store).unwrap() == after, "cut at {cut}: imported again");
        }
        store.close().unwrap();
        drop(store);
        check(&volume);
    }
    assert!(outcomes.iter().all(|n| *n > 0), "{outcomes:?}");
}

#[test]
fn logs_that_are_there_refuse_an_import_or_are_left_out() {
    let source = source();
    let logs = contents(&source).unwrap();
    for way in WAYS {
        // In a run, and in memory; and one that was there and is gone again.
        let store = options().create_on(Arc::new(MemVolume::new(2))).unwrap();
        drop(store.append("in/07", "mine").unwrap());
        drop(store.append("in/06", "gone").unwrap());
        store.checkpoint().unwrap();
        drop(store.append("in/long", "mine").unwrap());
        drop(store.append("in/15", "gone").unwrap());
        drop(store.delete("in/15").unwrap());
        drop(store.delete("in/06").unwrap());
        store.flush().unwrap();
        let before = contents(&store).unwrap();
        let error = way.import(store.import(), &source).unwrap_err();
        assert!(matches!(error, Error::LogExists { next: 1, .. }), "{way:?}: {error}");
        assert!(contents(&store).unwrap() == before, "{way:?}");
        let imported = way.import(store.import().existing(Existing::Skip), &source).unwrap();
        assert_eq!((imported.skipped, imported.logs), (2, logs.len() as u64 - 2), "{way:?}");
        let mut expected = logs.clone();
        expected.extend(before);
        assert!(contents(&store).unwrap() == expected, "{way:?}");
    }
}

/// Others commit whenever there is a write in the midst of the import, to logs of it, too: either
/// they come first, and it is refused, or it does, and they go on behind it.
#[test]
fn whoever_makes_a_log_of_it_meanwhile_comes_first_or_second() {
    let source = source();
    let logs = contents(&source).unwrap();
    let keys: Vec<Vec<u8>> = logs.keys().cloned().collect();
    let (mut refused, mut held) = (0, 0);
    for nth in 0..180 {
        let (volume, mode) =
            (MemVolume::new(nth), [Mode::Busy, Mode::Deletes, Mode::Empty][nth as usize % 3]);
        let busy = Busy::new(volume.clone(), Before::CachedWrites);
        let store = options().create_on(Arc::new(busy.clone())).unwrap();
        if mode != Mode::Empty {
            fill(&store, "here", 8);
        }
        let expected: Arc<Mutex<Logs>> = Arc::new(Mutex::new(contents(&store).unwrap()));
        let key = keys[nth as usize % keys.len()].clone();
        let (mut writes, mut made, refusals) = (0, false, Arc::new(Mutex::new(0)));
        let (other, wanted) = (store.clone(), key.clone());
        let (shared, counted) = (expected.clone(), refusals.clone());
        busy.begin(move || {
            writes += 1;
            let mut logs = shared.lock().unwrap();
            if mode != Mode::Empty {
                // Somebody else's log goes on all the time.
                drop(other.append("here/long", "more").unwrap());
                logs.get_mut(&b"here/long"[..]).unwrap().entries.push(b"more".to_vec());
            }
            let mut commit = Commit::new();
            commit.expect_absent(&wanted).append(&wanted, b"mine");
            if made || writes <= nth / 3 && mode != Mode::Deletes {
                return;
            }
            let stays = writes > nth / 3;
            if !stays {
                commit.delete(&wanted);
            }
            match other.try_commit(&commit) {
                Ok(_) if stays => {
                    made = true;
                    logs.insert(wanted.clone(), Log { first: 0, entries: vec![b"mine".to_vec()] });
                }
                Ok(_) => {}
                Err(Error::Busy { .. }) => *counted.lock().unwrap() += 1,
                Err(Error::Conflict { .. }) => made = true,
                Err(error) => panic!("{error}"),
            }
        });
        let imported = store.import().view(&source.view().unwrap(), "");
        busy.end();
        store.flush().unwrap();
        let mut expected = expected.lock().unwrap().clone();
        match imported {
            Ok(_) => {
                let first = expected.remove(&key).is_none();
                assert!(first, "{nth}: a log that was made before the import is gone");
                expected.extend(logs.clone());
            }
            Err(Error::LogExists { .. }) => {
                refused += 1;
                assert!(expected.contains_key(&key), "{nth}: refused for nothing");
            }
            Err(error) => panic!("{nth}: {error}"),
        }
        held += *refusals.lock().unwrap();
        assert!(contents(&store).unwrap() == expected, "{nth}: at once");
        store.compact().unwrap();
        assert!(contents(&store).unwrap() == expected, "{nth}: merged");
        store.close().unwrap();
        drop(store);
        check(&volume);
        assert!(contents(&open(&volume).unwrap()).unwrap() == expected, "{nth}: opened again");
    }
    assert!(refused > 0 && held > 0, "{refused} imports refused, {held} commits held back");
}

/// What there is besides an import, and somebody who makes a log of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Other logs, which go on.
    Busy,
    /// The same, and the log is made and deleted all the time before it is made to stay.
    Deletes,
    /// Nothing.
    Empty,
}

/// With threads, and several at once: what each was told holds.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn threads_that_make_logs_and_imports_of_the_same_ones_agree() {
    const ROUNDS: u64 = 30;
    const LOGS: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let store = Options::new().ring_size(1 << 20).memory_budget(256 << 10).max_payload(9 << 10);
    let store = store.open(dir.path().join("store")).unwrap();
    let mut outcomes = [0; 3];
    for round in 0..ROUNDS {
        let key = |log: u64| format!("{round}/{log:02}");
        let over = AtomicBool::new(false);
        let (imports, made) = thread::scope(|scope| {
            let importers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let scratch = tempfile::tempdir().unwrap();
                        let mut import = store.import().unsorted(scratch.path()).unwrap();
                        for n in 0..3 * LOGS {
                            import.append(key(n % LOGS), "imported").unwrap();
                        }
                        let imported = import.finish();
                        over.store(true, Ordering::Release);
                        imported
                    })
                })
                .collect();
            let maker = scope.spawn(|| {
                let (mut rng, mut made) = (Rng::new(round), BTreeMap::new());
                let patience = round * round * 100;
                for n in 0.. {
                    drop(store.append("other", "entry").unwrap());
                    let log = key(rng.below(LOGS));
                    if n < patience || made.contains_key(&log) {
                        if over.load(Ordering::Acquire) {
                            break;
                        }
                        continue;
                    }
                    let mut commit = Commit::new();
                    commit.expect_absent(&log).append(&log, b"made");
                    let came_first = match store.commit(&commit) {
                        Ok(ticket) => ticket.wait().map(|()| true).unwrap(),
                        Err(Error::Conflict { .. }) => false,
                        Err(error) => panic!("{error}"),
                    };
                    made.insert(log, came_first);
                    if made.len() as u64 == LOGS / 2 {
                        break;
                    }
                }
                made
            });
            let imports: Vec<_> = importers.into_iter().map(|importer| importer.join().unwrap()).collect();
            (imports, maker.join().unwrap())
        });
        let done = imports.iter().filter(|imported| imported.is_ok()).count();
        for imported in &imports {
            assert!(matches!(imported, Ok(_) | Err(Error::LogExists { .. })), "{imported:?}");
        }
        let firsts = made.values().filter(|first| **first).count();
        assert!(done <= 1 && (done == 0 || firsts == 0), "{done} imports, and {firsts} logs made before");
        outcomes[if done == 1 { 0 } else { 1 }] += 1;
        outcomes[2] += usize::from(made.len() > firsts);
        for log in (0..LOGS).map(key) {
            let found: Vec<_> = store
                .read(&log, ..)
                .map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().payload).collect());
            let expected = match (done, made.get(&log)) {
                (1, _) => vec!["imported"; 3],
                (_, Some(true)) => vec!["made"],
                _ => vec![],
            };
            assert!(found == expected, "{log}: {found:?}, not {expected:?}");
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn what_is_given_up_leaves_nothing_and_takes_no_space() {
    let source = source();
    let volume = MemVolume::new(2);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, "here", 8);
    store.checkpoint().unwrap();
    let before = contents(&store).unwrap();
    let used = |store: &Store| {
        let info = store.info().unwrap();
        info.size - info.heap_free
    };
    let at_first = used(&store);
    for way in WAYS {
        for after in [0, 1, 2] {
            let mut told = 0;
            let import = store.import().on_progress(move |_| {
                told += 1;
                if told > after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let imported = way.import(import, &source);
            assert!(after == 2 || matches!(imported, Err(Error::Cancelled { .. })), "{imported:?}");
            if imported.is_ok() {
                for log in contents(&source).unwrap().keys() {
                    drop(store.delete(log).unwrap());
                }
                store.compact().unwrap();
            }
            assert!(contents(&store).unwrap() == before);
            assert!(used(&store) <= at_first + (8 << 10), "{way:?}: {} and {at_first}", used(&store));
        }
    }
    let scratch = tempfile::tempdir().unwrap();
    let mut import = store.import().unsorted(scratch.path()).unwrap();
    import.append("in", "x").unwrap();
    drop(import);
    assert!(scratch.path().read_dir().unwrap().next().is_none());
    assert!(contents(&store).unwrap() == before);
}

/// There is no room for all of it: nothing comes in, what is there stays, and appends and deletes
/// go on as before.
#[test]
fn an_import_without_room_is_refused_and_costs_nobody_theirs() {
    let source = source();
    for capacity in (14..30).map(|n| n * (100 << 10)) {
        let volume = MemVolume::new(2);
        let create = options().capacity(capacity);
        let store = create.create_on(Arc::new(volume.clone())).unwrap();
        for _ in 0..4 {
            drop(store.append_many("here", [[7; 5000]; 10]).unwrap());
        }
        store.checkpoint().unwrap();
        let mut expected = contents(&store).unwrap();
        let imported = store.import().view(&source.view().unwrap(), "");
        let logs = contents(&source).unwrap();
        match imported {
            Ok(_) => expected.extend(logs),
            Err(Error::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(contents(&store).unwrap() == expected, "{capacity}");
        drop(store.append("here", "more").unwrap());
        expected.get_mut(&b"here"[..]).unwrap().entries.push(b"more".to_vec());
        store.compact().unwrap();
        assert!(contents(&store).unwrap() == expected, "{capacity}");
        store.close().unwrap();
        drop(store);
        check(&volume);
    }
}

/// A device that fails in the midst of it: the store stops, and nothing is there afterwards, or
/// all.
#[test]
fn a_failing_device_stops_the_store_and_nothing_is_half_there() {
    let source = source();
    let logs = contents(&source).unwrap();
    for flush in [false, true] {
        for after in 0..if flush { 6 } else { 60 } {
            let volume = MemVolume::new(2);
            let store = options().create_on(Arc::new(volume.clone())).unwrap();
            fill(&store, "here", 8);
            let before = contents(&store).unwrap();
            let kind = std::io::ErrorKind::Other;
            volume.fail(match flush {
                true => Fault::FlushErrorAfter { flushes: after, kind, sticky: false },
                false => Fault::ErrorAfter { operations: after, kind, sticky: false },
            });
            let imported = store.import().view(&source.view().unwrap(), "");
            let failed = imported.is_err();
            assert!(
                !failed || store.append("here/x", "x").is_err(),
                "{after}: it goes on after a failed write"
            );
            let left = volume.crash();
            store.abandon();
            let volume = MemVolume::from_image(left, 3);
            let found = contents(&open(&volume).unwrap()).unwrap();
            let mut all = before.clone();
            all.extend(logs.clone());
            assert!(found == all || failed && found == before, "{after}");
        }
    }
}

/// Whatever is done to a file, what comes in is what was in it, or nothing.
#[test]
fn a_damaged_export_is_refused_as_a_whole() {
    let source = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    for log in 0..5 {
        drop(source.append_many(format!("in/{log}"), [[log; 700], [log + 1; 700]]).unwrap());
    }
    let mut file = Vec::new();
    source.view().unwrap().export("", &mut file).unwrap();
    let logs = contents(&source).unwrap();
    let store = options().create_on(Arc::new(MemVolume::new(2))).unwrap();
    let import = |file: Vec<u8>| {
        let len = file.len() as u64;
        let reader = Reader::open(Bytes::from(file), len, None).ok()?;
        store.import().export(&reader, "").ok()
    };
    for bit in (0..file.len() * 8).step_by(13) {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if import(damaged).is_some() {
            assert!(contents(&store).unwrap() == logs, "bit {bit}");
            logs.keys().for_each(|key| store.delete(key).unwrap().wait().unwrap());
        }
        assert!(contents(&store).unwrap().is_empty(), "bit {bit}");
    }
    for cut in (0..file.len()).step_by(97) {
        assert_eq!(import(file[..cut].to_vec()), None, "cut to {cut}");
    }
    assert!(import(file).is_some());
    assert!(contents(&store).unwrap() == logs);
}

#[test]
fn limits_and_first_numbers_are_taken_as_said() {
    let clock = Arc::new(ManualClock::default());
    let store = options().clock(clock.clone()).rng_seed(1).create_on(Arc::new(MemVolume::new(2))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut import = store.import().memory(1 << 20).unsorted(dir.path()).unwrap();
    let hour = Duration::from_secs(3600);
    import.log("few", 100, Retention::new().entries(3)).unwrap();
    import.log("both", 0, Retention::new().entries(3).bytes(25)).unwrap();
    import.log("old", 5, Retention::new().age(hour)).unwrap();
    import.log("empty", 9, Retention::new()).unwrap();
    import.log("said twice", 1, Retention::new()).unwrap();
    import.log("said twice", 2, Retention::new()).unwrap();
    // Longer than what is held in memory.
    for n in 0..300_000u32 {
        import.append("long", format!("{n:060}")).unwrap();
        if n < 10 {
            import.append("few", format!("{n}")).unwrap();
            import.append("old", format!("{n}")).unwrap();
            import.append("both", [7; 10]).unwrap();
        }
    }
    assert!(matches!(import.append("", "x"), Err(Error::InvalidKey { .. })));
    assert!(matches!(import.append("x", [0; 10 << 10]), Err(Error::PayloadTooLarge { .. })));
    assert!(matches!(import.log("x", 0, Retention::new().bytes(u64::MAX)), Err(Error::InvalidRetention(_))));
    let imported = import.finish().unwrap();
    assert_eq!((imported.logs, imported.entries), (6, 300_000 + 3 + 3 + 10));
    let bounds = |key: &str| store.bounds(key).map(|bounds| (bounds.first, bounds.next)).unwrap();
    assert_eq!([bounds("few"), bounds("old"), bounds("empty")], [(107, 110), (5, 15), (9, 9)]);
    assert_eq!(bounds("said twice"), (2, 2));
    let payloads = |key: &str| -> Vec<Bytes> {
        store.read(key, ..).unwrap().map(|entry| entry.unwrap().payload).collect()
    };
    assert_eq!(payloads("few"), ["7", "8", "9"]);
    let long: Vec<Bytes> = (0..300_000).map(|n| format!("{n:060}").into()).collect();
    assert!(payloads("long") == long);
    store.append("few", "10").unwrap().wait().unwrap();
    assert_eq!(bounds("few"), (108, 111));
    // Three entries of ten bytes came in; the next commit finds that these are too many.
    assert_eq!(bounds("both"), (7, 10));
    store.append("both", "x").unwrap().wait().unwrap();
    assert_eq!(bounds("both"), (8, 11));
    clock.advance(2 * hour);
    assert_eq!(bounds("old"), (15, 15));
}
