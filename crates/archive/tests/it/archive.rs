//! Backups: what they cost, what comes back, and who may write them.

use crate::common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use brooklet::{Retention, Store};
use brooklet_archive::object_store::ObjectStoreExt;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::{Archive, Bucket, Error, Which};
use common::{archive, back_up, bucket, contents, fill, logs, names, restored, store};
use futures_util::FutureExt;

fn bundles(memory: &InMemory) -> Vec<Path> {
    names(memory).into_iter().filter(|name| name.contains("bundles")).map(Path::from).collect()
}

#[test]
fn what_was_backed_up_comes_back() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    fill(&store, "a", 40, 5000);
    store.set_retention("a/0003", Retention::new().entries(1)).unwrap().wait().unwrap();
    store.trim("a/0004", 1).unwrap().wait().unwrap();
    let mut archive = archive(&memory, &dir.path().join("note"));
    let first = back_up(&mut archive, &store).unwrap();
    assert_eq!((first.number, first.new_parts, first.parts), (0, first.parts, first.parts));
    assert_eq!((first.new_objects, first.new_bytes), (1, first.bytes));
    let then = contents(&store);
    assert!(restored(archive.bucket(), Which::Latest) == then);

    // Of the next one, only what is new is uploaded.
    fill(&store, "b", 4, 5000);
    store.delete("a/0007").unwrap().wait().unwrap();
    let before = archive.bucket().costs();
    let second = back_up(&mut archive, &store).unwrap();
    let costs = archive.bucket().costs();
    assert_eq!((second.number, second.parts), (1, first.parts + second.new_parts));
    assert!(second.new_bytes < first.bytes / 4, "{second:?}");
    assert_eq!((costs.puts - before.puts, costs.gets - before.gets, costs.lists - before.lists), (2, 1, 0));
    assert!(costs.sent - before.sent < second.new_bytes + 10_000);
    let now = contents(&store);
    assert!(now.len() == 43 && restored(archive.bucket(), Which::Latest) == now);
    assert!(restored(archive.bucket(), Which::Number(0)) == then, "the first one is as it was");

    // Where nothing is new, nothing is asked.
    let before = archive.bucket().costs();
    let third = back_up(&mut archive, &store).unwrap();
    assert_eq!((third.number, third.new_parts, archive.bucket().costs()), (1, 0, before));

    // Another process of the same host goes on, and uploads nothing twice.
    drop(archive);
    let mut archive = common::archive(&memory, &dir.path().join("note"));
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 1);
    fill(&store, "c", 4, 5000);
    let plan = archive.plan(&store).unwrap();
    assert_eq!((plan.number, plan.new_objects, names(&memory).len()), (2, 1, 4));
    assert_eq!(back_up(&mut archive, &store).unwrap().new_bytes, plan.new_bytes);

    // Parts of it: a prefix, a log, and a log that is not there.
    let backup = archive.bucket().backup(Which::Latest).unwrap();
    let view = backup.view(1 << 20).unwrap();
    let new = common::store(9);
    assert_eq!(new.import().view(&view, "b/").unwrap().logs, 4);
    assert_eq!(new.import().log(&view, "a/0004").unwrap().logs, 1);
    let error = new.import().log(&view, "a/000").unwrap_err();
    assert!(matches!(error, brooklet::Error::UnknownLog { .. }));
    let mut want = now;
    want.retain(|key, _| key.starts_with(b"b/") || key == b"a/0004");
    assert!(contents(&new) == want);
}

/// Bytes cost requests, and logs do not; looking one log up costs a few.
#[test]
fn requests_are_in_proportion_to_bytes() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = brooklet::Options::new().create_on(Arc::new(brooklet::io::MemVolume::new(1))).unwrap();
    fill(&store, "log", 40_000, 1000);
    let mut archive = archive(&memory, &dir.path().join("note"));
    let archived = back_up(&mut archive, &store).unwrap();
    let costs = archive.bucket().costs();
    assert_eq!(costs.puts, archived.bytes.div_ceil(16 << 20) + 1);
    assert!(costs.puts >= 3 && costs.puts * (1 << 30) < 200 * costs.sent, "{costs:?}");
    let bucket = bucket(&memory);
    let view = bucket.backup(Which::Latest).unwrap().view(8 << 20).unwrap();
    let opened = bucket.costs();
    let entries: Vec<_> = view.read("log/0777", ..).unwrap().map(|entry| entry.unwrap().payload).collect();
    assert_eq!(entries[1], "and more");
    let costs = bucket.costs();
    assert!(
        costs.gets - opened.gets <= 12 && costs.received - opened.received < 2 << 20,
        "{costs:?} {opened:?}"
    );
    // All of it is read once, in large pieces, although it lies in several runs that are read side
    // by side.
    assert!(logs(&view) == contents(&store));
    let all = bucket.costs();
    assert!(all.received - costs.received < archived.bytes * 101 / 100, "{all:?} of {archived:?}");
    assert!(all.gets - costs.gets < 20 + archived.bytes / (1 << 20), "{all:?} of {archived:?}");
}

#[test]
fn of_two_hosts_one_is_told_so() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let [mine, other, copied] = ["mine", "other", "copied"].map(|name| dir.path().join(name));
    let store = store(1);
    fill(&store, "a", 4, 100);
    let mut here = archive(&memory, &mine);
    back_up(&mut here, &store).unwrap();
    std::fs::copy(&mine, &copied).unwrap();
    fill(&store, "b", 4, 100);

    // Another host, and one that has lost its note.
    let mut there = archive(&memory, &other);
    let error = back_up(&mut there, &store).unwrap_err();
    assert!(matches!(&error, Error::Owned { owner, number: 0 } if owner == "the host of mine"), "{error}");
    assert!(error.to_string().contains("take over the archive"));
    // It takes over; then the first one is told so, at once and after it was opened again.
    let mut there = archive(&memory, &other).take_over();
    assert_eq!(back_up(&mut there, &store).unwrap().number, 1);
    fill(&store, "c", 4, 100);
    let of_other = |error| matches!(error, Error::Owned { owner, number: 1 } if owner == "the host of other");
    assert!(of_other(back_up(&mut here, &store).unwrap_err()));
    assert!(of_other(back_up(&mut here, &store).unwrap_err()), "and again");
    assert!(of_other(back_up(&mut archive(&memory, &mine), &store).unwrap_err()));
    assert!(of_other(back_up(&mut archive(&memory, &copied), &store).unwrap_err()));
    // The other one goes on, and what it wrote is whole.
    assert_eq!(back_up(&mut there, &store).unwrap().number, 2);
    assert!(restored(there.bucket(), Which::Latest) == contents(&store));

    // Two with the same note, as of a machine that was cloned.
    std::fs::copy(&other, &copied).unwrap();
    let mut clone = archive(&memory, &copied);
    fill(&store, "d", 4, 100);
    assert_eq!(back_up(&mut clone, &store).unwrap().number, 3);
    fill(&store, "e", 4, 100);
    assert!(matches!(back_up(&mut there, &store).unwrap_err(), Error::Owned { number: 3, .. }));

    // Another store.
    let error = back_up(&mut archive(&memory, &other).take_over(), &common::store(2)).unwrap_err();
    assert!(
        matches!(error, Error::OtherStore { archive, .. } if archive == store.view().unwrap().store_id())
    );
}

#[test]
fn of_hosts_that_begin_at_once_one_wins() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    fill(&store, "a", 4, 100);
    let view = contents(&store);
    let won: usize = std::thread::scope(|scope| {
        let try_it = |host| {
            let (memory, store, note) = (memory.clone(), store.clone(), dir.path().join(format!("{host}")));
            scope.spawn(move || match back_up(&mut archive(&memory, &note), &store) {
                Ok(archived) => usize::from(archived.number == 0),
                Err(Error::Owned { number: 0, .. }) => 0,
                Err(error) => panic!("{error}"),
            })
        };
        (0..6).map(try_it).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
    assert!(restored(&bucket(&memory), Which::Latest) == view);
}

#[test]
fn backups_are_found_by_number_and_by_time() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let clock = Arc::new(brooklet::io::ManualClock::default());
    let day = Duration::from_secs(24 * 3600);
    let options = brooklet::Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    let store = options
        .clock(clock.clone())
        .rng_seed(5)
        .create_on(Arc::new(brooklet::io::MemVolume::new(1)))
        .unwrap();
    let bucket = bucket(&memory);
    let none = |which| match bucket.backup(which) {
        Err(Error::NoBackup(what)) => what,
        other => panic!("{other:?}"),
    };
    assert!(
        none(Which::Latest).contains("no backups")
            && none(Which::At(UNIX_EPOCH + day)).contains("no backups")
    );
    let mut archive = archive(&memory, &dir.path().join("note"));
    let mut then = Vec::new();
    // The clock is set back on the fourth day. Nothing is shipped: what is between the backups
    // nobody knows.
    for at in [10, 20, 30, 25, 40] {
        clock.set_wall(day * at);
        fill(&store, &format!("{at}"), 2, 100);
        let archived = back_up(&mut archive, &store).unwrap();
        then.push((archived.taken_ms, contents(&store)));
    }
    let days = then.iter().map(|(taken, _)| *taken as u128 / day.as_millis()).collect::<Vec<_>>();
    assert_eq!(days, [10, 20, 30, 25, 40]);
    for (at, number) in [(10, 0), (20, 1), (25, 3), (30, 2), (40, 4), (4000, 4)] {
        let backup = bucket.backup(Which::At(UNIX_EPOCH + day * at)).unwrap();
        assert_eq!(backup.number(), number, "on day {at}");
        assert!(logs(&backup.view(1 << 20).unwrap()) == then[number as usize].1);
        assert_eq!((backup.taken_ms(), backup.owner()), (then[number as usize].0, "the host of note"));
    }
    for (at, from, to) in [(11, 10, 20), (24, 20, 30), (26, 25, 40), (39, 25, 40)] {
        let error =
            bucket.backup(Which::At(UNIX_EPOCH + day * at)).unwrap().view(1 << 20).map(drop).unwrap_err();
        let [from, to] = [from, to].map(|at| (day * at).as_millis() as u64);
        assert!(
            matches!(error, Error::Hole { from_ms: a, to_ms: b } if (a, b) == (from, to)),
            "on day {at}: {error}"
        );
        assert!(at != 11 || error.to_string().contains("between 1970-01-11T00:00:00.000Z and 1970-01-21T"));
    }
    assert!(
        none(Which::At(UNIX_EPOCH + day * 9)).contains("1970-01-11"),
        "{}",
        none(Which::At(UNIX_EPOCH + day * 9))
    );
    assert!(none(Which::Number(5)).contains("no backup 5"));
    assert_eq!(
        bucket.backups().unwrap().iter().map(|backup| backup.number).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
}

/// What is too old goes, with all that only it needs, and nothing else.
#[test]
fn old_backups_go() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    let mut archive = archive(&memory, &dir.path().join("note"));
    assert_eq!(archive.prune(Duration::ZERO, false).unwrap(), Default::default());
    let mut then = Vec::new();
    for round in 0..6 {
        fill(&store, &format!("{round}"), 3, 3000);
        if round > 0 {
            store.delete(format!("{}/0001", round - 1)).unwrap().wait().unwrap();
        }
        if round == 3 {
            // So that most of what was uploaded is not needed any more.
            store.compact().unwrap();
            // Somebody is cut off in the midst of it.
            let cut = archive.backup(&store, |_| ControlFlow::Break(()));
            assert!(matches!(cut, Err(Error::Cancelled { .. })));
            let gone = Path::from(
                "some/where/bundles/00000000000000000003-00000000000000000000000000000001/00000000",
            );
            memory.put(&gone, "left over".into()).now_or_never().unwrap().unwrap();
        }
        back_up(&mut archive, &store).unwrap();
        then.push(contents(&store));
        // By the bucket's clock each must be later than the one before.
        std::thread::scope(|scope| drop(scope.spawn(|| wait(Duration::from_millis(5)))));
    }
    let all = names(&memory);
    assert_eq!(archive.prune(Duration::from_secs(3600), false).unwrap(), Default::default());
    let would = archive.prune(Duration::ZERO, true).unwrap();
    assert!(would.backups == 5 && would.objects >= 3, "{would:?}");
    assert_eq!(names(&memory), all);
    // Up to when the fourth was written.
    let written: Vec<u64> =
        archive.bucket().backups().unwrap().iter().map(|backup| backup.written_ms).collect();
    let cut = archive.prune_while(Duration::ZERO, false, &|| ControlFlow::Break(()));
    assert!(matches!(cut, Err(Error::Cancelled { .. })), "{cut:?}");
    assert_eq!(names(&memory), all);
    let pruned = archive.prune(Duration::from_millis(written[5] - written[3]), false).unwrap();
    // The leftover object went with the backup behind it.
    assert!(pruned.backups == 3 && pruned.objects == 3, "{pruned:?}");
    let bucket = bucket(&memory);
    for number in 3..6u64 {
        assert!(
            bucket
                .backup(Which::Number(number))
                .unwrap()
                .verify(brooklet::Progress::ignore)
                .defects
                .is_empty()
        );
        assert!(restored(&bucket, Which::Number(number)) == then[number as usize]);
    }
    assert!(matches!(bucket.backup(Which::Number(2)), Err(Error::NoBackup(_))));
    // It goes on, and a last one is always kept.
    fill(&store, "new", 3, 3000);
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 6);
    archive.prune(Duration::ZERO, false).unwrap();
    assert!(restored(&bucket, Which::Latest) == contents(&store));
    let left = names(&memory);
    assert_eq!(bucket.backups().unwrap().len(), 1);
    let needed = bucket.backup(Which::Latest).unwrap().objects();
    assert_eq!(left.len(), needed + 1 + 6, "and tombstones");
}

/// No backup can ever need them. In the old state they stayed for as long as the first backup that
/// was made after them, and without a removal of old backups for ever.
#[test]
fn uploads_that_were_given_up_go_with_the_next_backup() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let (store, note) = (store(1), dir.path().join("note"));
    let mut archive = archive(&memory, &note);
    fill(&store, "a", 3, 3000);
    back_up(&mut archive, &store).unwrap();
    fill(&store, "b", 3, 3000);
    // All is uploaded, and no record is created.
    let mut ends = 0;
    let cut = archive.backup(&store, |progress| {
        ends += u32::from(Some(progress.bytes) == progress.total_bytes);
        if ends == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(cut, Err(Error::Cancelled { .. })));
    assert_eq!(bundles(&memory).len(), 2);
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 1);
    assert_eq!(bundles(&memory).len(), 2);
    // A process was killed, and another one goes on. Of a later number nobody knows yet.
    let [killed, later] = [2, 9].map(|number| {
        let name = format!("some/where/bundles/{number:020}-00000000000000000000000000000001/00000000");
        memory.put(&Path::from(name.clone()), "left over".into()).now_or_never().unwrap().unwrap();
        name
    });
    let mut archive = common::archive(&memory, &note);
    fill(&store, "c", 3, 3000);
    // The record is there when the caller stops, so that the backup is, too.
    let stop = |_| match names(&memory).iter().any(|name| name.contains("backups/00000000000000000002")) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    assert_eq!(archive.backup(&store, stop).unwrap().number, 2);
    assert!(names(&memory).contains(&killed), "a later backup removes it");
    fill(&store, "d", 3, 3000);
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 3);
    let left = names(&memory);
    assert!(!left.contains(&killed) && left.contains(&later), "{left:?}");
    assert!(restored(archive.bucket(), Which::Latest) == contents(&store));
    assert!(restored(archive.bucket(), Which::Number(0)).len() == 3);
}

#[expect(clippy::disallowed_methods, reason = "the bucket's clock goes by itself")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn what_is_missing_or_damaged_is_named() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    let mut archive = archive(&memory, &dir.path().join("note"));
    for round in 0..3 {
        fill(&store, &format!("{round}"), 30, 3000);
        back_up(&mut archive, &store).unwrap();
    }
    let all = contents(&store);
    let sound = names(&memory);
    for object in bundles(&memory) {
        let whole =
            memory.get(&object).now_or_never().unwrap().unwrap().bytes().now_or_never().unwrap().unwrap();
        for step in 0..40 {
            let what = match step {
                0 => None,
                1 => Some(whole.slice(..whole.len() - 1)),
                _ => {
                    let mut data = whole.to_vec();
                    let at = data.len() * (step - 2) / 38;
                    data[at] ^= 4;
                    Some(data.into())
                }
            };
            match what {
                Some(data) => drop(memory.put(&object, data.into()).now_or_never().unwrap().unwrap()),
                None => memory.delete(&object).now_or_never().unwrap().unwrap(),
            }
            let bucket = bucket(&memory);
            let backup = bucket.backup(Which::Latest).unwrap();
            let verified = backup.verify(brooklet::Progress::ignore);
            assert!(verified.defects.len() == 1 && verified.defects[0].to_string().contains(object.as_ref()));
            let new = common::store(3);
            match backup.view(1 << 20).map(|view| new.import().view(&view, "")) {
                // The tail of a part is in the record, and some is not read for this.
                Ok(Ok(_)) => assert!(step > 0 && contents(&new) == all),
                Ok(Err(error)) => {
                    let named = error.to_string().contains(object.as_ref());
                    assert!(named || matches!(error, brooklet::Error::Damaged { .. }), "{error}");
                    assert!(named || step > 0, "{error}");
                    assert!(contents(&new).is_empty());
                }
                Err(error) => panic!("{error}"),
            }
        }
        memory.put(&object, whole.into()).now_or_never().unwrap().unwrap();
    }
    assert_eq!(names(&memory), sound);
    let record = Path::from("some/where/backups/00000000000000000002");
    memory.put(&record, "nonsense".into()).now_or_never().unwrap().unwrap();
    let error = bucket(&memory).backup(Which::Latest).unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { object, .. } if object.ends_with("backups/00000000000000000002"))
    );
    assert!(restored(&bucket(&memory), Which::Number(1)).len() == 60);
    let error = back_up(&mut common::archive(&memory, &dir.path().join("note")), &store).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// Also where nothing is in the bucket yet, and for each thing that one may do with it.
#[test]
pub fn an_archive_is_of_one_store() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let [mine, other] = [1, 2].map(|seed| {
        let store = store(seed);
        fill(&store, "a", 4, 100);
        store
    });
    let ids = [&mine, &other].map(|store| store.info().unwrap().id);
    let is_refused = |error: Option<Error>| match error {
        Some(Error::OtherStore { archive, store }) => [archive, store] == ids,
        _ => false,
    };
    let mut archive = archive(&memory, &dir.path().join("note"));
    archive.follow(&mine).unwrap();
    for round in 0..3u64 {
        assert!(is_refused(archive.follow(&other).err()), "round {round}");
        assert!(is_refused(back_up(&mut archive, &other).err()), "round {round}");
        assert!(is_refused(archive.plan(&other).err()), "round {round}");
        let offloaded = archive.offload(&other, 0, brooklet::Progress::ignore);
        assert!(is_refused(offloaded.err()), "round {round}");
        fill(&mine, &format!("{round}"), 2, 100);
        assert_eq!(back_up(&mut archive, &mine).unwrap().number, round);
        assert!(restored(archive.bucket(), Which::Latest) == contents(&mine));
    }
}

#[test]
fn a_folder_is_a_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("there");
    let bucket = Bucket::open(place.to_str().unwrap()).unwrap();
    let store = Store::in_memory(1).unwrap();
    fill(&store, "a", 4, 100);
    let mut archive = Archive::new(bucket, dir.path().join("note"), "a host").unwrap();
    back_up(&mut archive, &store).unwrap();
    let again = Bucket::open(&format!("file://{}", place.display())).unwrap();
    assert!(restored(&again, Which::Latest) == contents(&store));
    let mut other = Archive::new(again, dir.path().join("other"), "another").unwrap();
    assert!(matches!(back_up(&mut other, &store), Err(Error::Owned { .. })));
}

/// A process was killed while it wrote into the folder. Lists do not show such files.
#[test]
fn files_that_a_killed_process_was_writing_go() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("there");
    let bucket = Bucket::open(place.to_str().unwrap()).unwrap();
    let written = |name: &str, age: Duration| {
        let path = place.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        file.set_modified(file.metadata().unwrap().modified().unwrap() - age).unwrap();
        path
    };
    let upload = "bundles/00000000000000000000-00000000000000000000000000000001";
    let week = Duration::from_secs(7 * 24 * 3600);
    let record = "backups/00000000000000000000";
    let old = [format!("{upload}/00000000#1"), format!("{record}#12")].map(|name| written(&name, week));
    let young = written(&format!("{record}#2"), Duration::ZERO);
    let other = written("other#7", week);
    let store = Store::in_memory(1).unwrap();
    fill(&store, "a", 4, 100);
    let mut archive = Archive::new(bucket, dir.path().join("note"), "a host").unwrap();
    back_up(&mut archive, &store).unwrap();
    old.iter().for_each(|path| assert!(!path.exists(), "{}", path.display()));
    assert!(!place.join(upload).exists(), "an empty folder");
    assert!(young.exists() && other.exists());
    assert!(restored(archive.bucket(), Which::Latest) == contents(&store));
}
