//! The archiver: the thread that keeps an archive up to date.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::{Archiver, Error, Schedule, Which};
use common::faulty::Faulty;
use common::{archive, bucket, contents, fill, logs, names, restored, store};

/// The store is written to all the time; a backup is what it was at one moment, with all that was
/// acknowledged before.
#[test]
fn a_store_in_use_is_backed_up() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let options = brooklet::Options::new().ring_size(4 << 20).memory_budget(1 << 20).max_payload(64 << 10);
    let store = options.create_on(Arc::new(brooklet::io::MemVolume::new(1))).unwrap();
    let done = AtomicBool::new(false);
    let write = |writer: u64| {
        let mut n = 0u64;
        while !done.load(Ordering::Relaxed) && n < 20_000 {
            let payload = [n.to_le_bytes(), writer.to_le_bytes()].concat().repeat(20);
            store.append(format!("{writer}/{}", n % 500), payload).unwrap().wait().unwrap();
            n += 1;
        }
    };
    let write = &write;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3).map(|writer| scope.spawn(move || write(writer))).collect();
        let archive = archive(&memory, &dir.path().join("note"));
        let (every, ship) = (Duration::from_millis(200), Some(Duration::from_millis(20)));
        let archiver =
            Archiver::start(archive, store.clone(), Schedule { every, ship, ..Schedule::default() }).unwrap();
        let bucket = bucket(&memory);
        for _ in 0..12 {
            let acked: Vec<_> =
                (0..3).map(|writer| store.append(format!("mark/{writer}"), "x").unwrap()).collect();
            let marks: Vec<_> = acked.iter().map(|ticket| ticket.wait().unwrap()).collect();
            assert_eq!(marks.len(), 3);
            let before = store.bounds("mark/0").unwrap().next;
            let status = archiver.now();
            assert!(status.error.is_none() && !status.ended, "{status:?}");
            let view = bucket.backup(Which::Latest).unwrap().view(1 << 20).unwrap();
            assert!(view.bounds("mark/0").unwrap().next >= before);
            for (key, (first, entries)) in logs(&view) {
                // Later entries come behind these.
                let now = store.read(&key, ..).unwrap().take(entries.len());
                assert_eq!(first, 0);
                assert!(now.map(|entry| entry.unwrap().payload.to_vec()).eq(entries));
            }
        }
        done.store(true, Ordering::Relaxed);
        // The last round comes behind the last write.
        for writer in writers {
            writer.join().unwrap();
        }
        let mut status = archiver.now();
        // Where the machine is busy, a backup may have been due each time.
        for _ in 0..1000 {
            if status.shipped.objects > 0 {
                break;
            }
            store.append("mark/0", "x").unwrap().wait().unwrap();
            status = archiver.now();
        }
        assert!(status.shipped.objects > 0 && status.error.is_none(), "{status:?}");
    });
    assert!(restored(&bucket(&memory), Which::Latest) == contents(&store));
}

#[test]
fn a_schedule_that_cannot_be_kept_is_refused() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let [minute, day] = [60, 24 * 3600].map(Duration::from_secs);
    let base = Schedule { every: minute, ..Schedule::default() };
    let refused = [
        (Schedule { every: Duration::ZERO, ..base }, "`every`"),
        (Schedule { ship: Some(Duration::ZERO), ..base }, "`ship`"),
        (Schedule { ship: Some(minute), ..base }, "make `ship` shorter than `every`"),
        (Schedule { ship: Some(Duration::MAX), ..base }, "make `ship` shorter than `every`"),
        (Schedule { keep: Some(minute), ..base }, "`prune_every`"),
        (Schedule { keep: Some(day), prune_every: Duration::MAX, ..base }, "`prune_every`"),
    ];
    let store = store(1);
    fill(&store, "a", 1, 10);
    let start =
        |schedule| Archiver::start(archive(&memory, &dir.path().join("note")), store.clone(), schedule);
    for (schedule, why) in refused {
        let error = start(schedule).map(drop).unwrap_err();
        assert!(matches!(error, Error::Schedule(_)) && error.to_string().contains(why), "{error}");
    }
    assert!(names(&memory).is_empty());
    // The longest time means for ever.
    let never = Schedule { every: Duration::MAX, ship: Some(day), keep: Some(Duration::MAX), ..base };
    assert_eq!(start(never).unwrap().now().last.unwrap().number, 0);
}

#[test]
fn an_archiver_ends_where_it_must() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    fill(&store, "a", 4, 100);
    let schedule =
        Schedule { keep: Some(Duration::ZERO), prune_every: Duration::ZERO, ..Schedule::default() };
    let here = Archiver::start(archive(&memory, &dir.path().join("here")), store.clone(), schedule).unwrap();
    assert_eq!(here.now().last.unwrap().number, 0);
    fill(&store, "b", 4, 100);
    let status = here.now();
    assert_eq!((status.last.unwrap().number, status.pruned.backups), (1, 1));
    let other = archive(&memory, &dir.path().join("there")).take_over();
    let there = Archiver::start(other, store.clone(), schedule).unwrap();
    assert_eq!(there.now().last.unwrap().number, 1);
    fill(&store, "c", 4, 100);
    assert_eq!(there.now().last.unwrap().number, 2);
    fill(&store, "d", 4, 100);
    let status = here.now();
    assert!(status.ended && matches!(*status.error.unwrap(), Error::Owned { number: 2, .. }));
    assert!(here.now().ended, "it does not wait for what does not come");
    // It cannot get the commits any more that it has not seen yet.
    fill(&store, "e", 4, 100);
    store.close().unwrap();
    let status = there.now();
    assert!(status.ended && matches!(*status.error.unwrap(), Error::Store(brooklet::Error::Closed)));
}

/// The object store may be the user's own. A request in which it panics has failed, and no more.
#[test]
fn a_panic_of_the_object_store_is_an_error_of_the_round() {
    let (faulty, dir) =
        (Arc::new(Faulty::new(Arc::new(InMemory::new()), 1, 0)), tempfile::tempdir().unwrap());
    let store = store(1);
    fill(&store, "a", 4, 100);
    let archive = archive(&faulty, &dir.path().join("note"));
    let archiver = Archiver::start(archive, store.clone(), Schedule::default()).unwrap();
    assert_eq!(archiver.now().last.unwrap().number, 0);
    fill(&store, "b", 4, 100);
    faulty.panics(true);
    let status = archiver.now();
    let error = status.error.unwrap().to_string();
    assert!(error.contains("panicked") && error.contains("a fault of the object store"), "{error}");
    assert!(!status.ended);
    faulty.panics(false);
    let status = archiver.now();
    assert!(status.error.is_none() && status.last.unwrap().number == 1);
}
