//! Shipping: commits behind a backup, and the moments that they bring back.

use crate::common;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use brooklet::Lost;
use brooklet_archive::object_store::ObjectStoreExt;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::{Error, Which};
use common::faulty::Faulty;
use common::{archive, back_up, bucket, contents, fill, logs, names, restored, store};
use futures_util::FutureExt;

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn commits_are_shipped_behind_a_backup() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    fill(&store, "a", 20, 1000);
    let mut archive = archive(&memory, &dir.path().join("note"));
    assert_eq!(archive.ship().unwrap(), None, "it is not followed");
    archive.follow(&store).unwrap();
    assert_eq!(archive.ship().unwrap(), None, "there is no backup to ship behind");
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 0);
    let base = contents(&store);
    let mut bytes = 0;
    for round in 0..5u64 {
        fill(&store, &format!("{round}"), 3, 500);
        store.delete(format!("a/{round:04}")).unwrap().wait().unwrap();
        if round == 2 {
            // The maintenance of the store changes nothing here.
            store.compact().unwrap();
        }
        let before = archive.bucket().costs();
        let shipped = archive.ship().unwrap().unwrap();
        let costs = archive.bucket().costs();
        assert_eq!((costs.puts - before.puts, costs.gets - before.gets, costs.lists), (1, 1, before.lists));
        assert!(shipped.objects == 1 && shipped.bytes > 1500 && shipped.sent < shipped.bytes + 100);
        bytes += shipped.bytes;
        assert!(restored(&bucket(&memory), Which::Latest) == contents(&store));
        let before = archive.bucket().costs();
        assert_eq!(archive.ship().unwrap().unwrap().objects, 0);
        assert_eq!(archive.bucket().costs(), before, "where nothing was committed, nothing is asked");
    }
    assert!(bytes > 5 * 1500);
    assert!(restored(&bucket(&memory), Which::Number(0)) == base);
    assert!(
        bucket(&memory).backup(Which::Latest).unwrap().verify(brooklet::Progress::ignore).defects.is_empty()
    );

    // After an import it takes a backup, which has all of it.
    let other = common::store(2);
    fill(&other, "new", 3, 500);
    store.import().view(&other.view().unwrap(), "").unwrap();
    fill(&store, "new", 3, 10);
    for _ in 0..2 {
        let error = archive.ship().unwrap_err();
        assert!(matches!(error, Error::Lost { why: Lost::Unlogged, .. }), "{error}");
    }
    let second = back_up(&mut archive, &store).unwrap();
    assert_eq!((second.number, second.is_covered), (1, false));
    fill(&store, "after", 3, 10);
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
    assert!(restored(&bucket(&memory), Which::Latest) == contents(&store));

    // So it does where the process is another one.
    let shipped = names(&memory).iter().filter(|name| name.contains("commits/")).count();
    // And one that says up to when everything is known before the import.
    assert_eq!(shipped, 7);
    let mut archive = common::archive(&memory, &dir.path().join("note"));
    archive.follow(&store).unwrap();
    assert_eq!(archive.ship().unwrap(), None);
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 2);
    fill(&store, "more", 3, 10);
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1);

    // Also where the commits have left no trace.
    store.append("passing", "x").unwrap().wait().unwrap();
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
    store.delete("passing").unwrap().wait().unwrap();
    let ended = back_up(&mut archive, &store).unwrap();
    store.append("passing", "x").unwrap().wait().unwrap();
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
    store.delete("passing").unwrap().wait().unwrap();
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
    let mut archive = common::archive(&memory, &dir.path().join("note"));
    archive.follow(&store).unwrap();
    let next = back_up(&mut archive, &store).unwrap();
    assert_eq!((next.number, next.is_new), (ended.number + 1, true));
    fill(&store, "behind", 3, 10);
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
    assert!(restored(&bucket(&memory), Which::Latest) == contents(&store));

    // Commits go with the backup that they are behind.
    archive.prune(Duration::ZERO, false).unwrap();
    let left: Vec<_> = names(&memory).into_iter().filter(|name| name.contains("commits/")).collect();
    assert!(left.len() == 1 && left[0].contains(&format!("commits/{:020}", next.number)), "{left:?}");

    // A host that was taken over notices with the next commits.
    let mut other = common::archive(&memory, &dir.path().join("other")).take_over();
    assert_eq!(back_up(&mut other, &store).unwrap().number, next.number + 1);
    fill(&store, "lost", 3, 10);
    assert!(matches!(archive.ship(), Err(Error::Owned { number, .. }) if number == next.number + 1));
}

#[test]
fn what_was_shipped_goes_up_to_a_moment() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let clock = Arc::new(brooklet::io::ManualClock::default());
    let options = brooklet::Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    let volume = Arc::new(brooklet::io::MemVolume::new(1));
    let store = options.clock(clock.clone()).rng_seed(5).create_on(volume).unwrap();
    let mut archive = archive(&memory, &dir.path().join("note"));
    archive.follow(&store).unwrap();
    let mut then = Vec::new();
    for second in 0..12u64 {
        clock.set_wall(Duration::from_secs(1000 + second));
        fill(&store, &format!("{second}"), 1, 10);
        then.push(contents(&store));
        match second % 4 {
            0 => assert_eq!(back_up(&mut archive, &store).unwrap().number, second / 4),
            // Two commits in one object.
            1 => {}
            _ => assert_eq!(archive.ship().unwrap().unwrap().objects, 1),
        }
    }
    let bucket = bucket(&memory);
    for (second, then) in then.iter().enumerate() {
        let at = Duration::from_millis(1000 * (1000 + second as u64) + 500);
        let view = bucket.backup(Which::At(UNIX_EPOCH + at)).unwrap().view(1 << 20).unwrap();
        assert!(logs(&view) == *then, "at second {second}");
        assert_eq!(view.taken_ms() / 1000, 1000 + second as u64);
    }
    // A part of the chain is missing, or is another one.
    let shipped: Vec<Path> =
        names(&memory).into_iter().filter(|name| name.contains("commits/")).map(Path::from).collect();
    // Each backup but the first has what is missing shipped behind the one before.
    assert_eq!(shipped.len(), 8);
    let [first, second] = [&shipped[6], &shipped[7]];
    let get =
        |path| memory.get(path).now_or_never().unwrap().unwrap().bytes().now_or_never().unwrap().unwrap();
    let whole = get(first);
    let refused = |what: &str| {
        let backup = bucket.backup(Which::Latest).unwrap();
        let error = backup.view(1 << 20).map(drop).unwrap_err();
        assert!(matches!(error, Error::Missing { .. } | Error::Damaged { .. }), "{what}: {error}");
        assert!(error.to_string().contains("commits/00000000000000000002"), "{what}: {error}");
        assert_eq!(backup.verify(brooklet::Progress::ignore).defects.len(), 1, "{what}");
        assert!(logs(&bucket.backup(Which::Number(2)).unwrap().view(1 << 20).unwrap()) == then[8]);
    };
    memory.delete(first).now_or_never().unwrap().unwrap();
    refused("missing");
    for (what, data) in
        [("cut", whole.slice(..whole.len() - 1)), ("empty", whole.slice(..0)), ("other", get(second))]
    {
        memory.put(first, data.into()).now_or_never().unwrap().unwrap();
        refused(what);
    }
    memory.put(first, whole.into()).now_or_never().unwrap().unwrap();
    assert!(logs(&bucket.backup(Which::Latest).unwrap().view(1 << 20).unwrap()) == then[11]);
}

/// The bucket is out of reach, and each backup fails: the commits since then are lost to shipping
/// once they are too many.
#[test]
pub fn an_outage_fills_no_memory_and_no_object() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let faulty = Arc::new(Faulty::new(memory.clone(), 1, 0));
    let clock = Arc::new(brooklet::io::ManualClock::default());
    let options = brooklet::Options::new().ring_size(8 << 20).max_payload(1 << 20).threads(false);
    let volume = Arc::new(brooklet::io::MemVolume::new(1));
    let store = options.clock(clock.clone()).rng_seed(5).create_on(volume).unwrap();
    let at = |second: u64| {
        clock.set_wall(Duration::from_secs(second));
        Which::At(UNIX_EPOCH + Duration::from_secs(second))
    };
    let mut archive = archive(&faulty, &dir.path().join("note"));
    archive.follow(&store).unwrap();
    at(100);
    fill(&store, "a", 2, 10);
    back_up(&mut archive, &store).unwrap();
    let shipped = at(200);
    let then = contents(&store);
    archive.ship().unwrap();
    // The bucket is out of reach, and each backup is tried again.
    faulty.live(Some(0));
    let mut lost = at(300);
    for second in 0..40 {
        lost = at(301 + second);
        for _ in 0..4 {
            store.append("much", vec![7; 1 << 20]).unwrap().wait().unwrap();
        }
        assert!(back_up(&mut archive, &store).is_err());
    }
    faulty.live(None);
    let next = at(500);
    let archived = back_up(&mut archive, &store).unwrap();
    assert!(!archived.is_covered, "the moments of the outage are not known");
    let bucket = bucket(&memory);
    let view = |which| bucket.backup(which).unwrap().view(1 << 20);
    assert!(logs(&view(shipped).unwrap()) == then);
    assert!(matches!(view(lost).unwrap_err(), Error::Hole { .. }));
    assert_eq!(view(next).unwrap().bounds("much").unwrap().next, 160);
    at(600);
    fill(&store, "c", 2, 10);
    archive.ship().unwrap().unwrap();
    assert!(logs(&view(Which::Latest).unwrap()) == contents(&store));
}

/// More is committed than waits to be shipped: shipping says so until a backup has it, and
/// restoring says what is not known.
#[test]
pub fn who_ships_too_late_is_told() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let clock = Arc::new(brooklet::io::ManualClock::default());
    let options = brooklet::Options::new().ring_size(8 << 20).max_payload(1 << 20).threads(false);
    let volume = Arc::new(brooklet::io::MemVolume::new(1));
    let store = options.clock(clock.clone()).rng_seed(5).create_on(volume).unwrap();
    let at = |second: u64| {
        clock.set_wall(Duration::from_secs(second));
        Which::At(UNIX_EPOCH + Duration::from_secs(second))
    };
    let mut archive = archive(&memory, &dir.path().join("note"));
    archive.follow(&store).unwrap();
    at(100);
    fill(&store, "a", 2, 10);
    back_up(&mut archive, &store).unwrap();
    let shipped = at(200);
    fill(&store, "b", 2, 10);
    archive.ship().unwrap().unwrap();
    let then = contents(&store);
    let lost = at(300);
    for _ in 0..70 {
        store.append("much", vec![7; 1 << 20]).unwrap().wait().unwrap();
    }
    at(400);
    for _ in 0..2 {
        let error = archive.ship().unwrap_err();
        let is_late = matches!(error, Error::Lost { since_ms: 200_000, why: Lost::Behind { .. } });
        assert!(is_late && error.to_string().contains("back up the store"), "{error}");
    }
    let next = at(500);
    let archived = back_up(&mut archive, &store).unwrap();
    assert_eq!((archived.number, archived.is_covered), (1, false));
    at(600);
    fill(&store, "c", 2, 10);
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1, "it goes on");

    let bucket = bucket(&memory);
    let view = |which| bucket.backup(which).unwrap().view(1 << 20);
    assert!(logs(&view(shipped).unwrap()) == then);
    let error = view(lost).unwrap_err();
    assert!(matches!(error, Error::Hole { from_ms: 200_000, to_ms: 500_000 }), "{error}");
    assert_eq!(view(next).unwrap().bounds("much").unwrap().next, 70);
    assert!(view(next).unwrap().bounds("c/0000").is_err());
    assert!(logs(&view(Which::Latest).unwrap()) == contents(&store));
}

/// The record of a backup is damaged. The moments behind the backup before it do not need it.
#[test]
fn a_damaged_record_hides_no_moment_before_it() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let clock = Arc::new(brooklet::io::ManualClock::default());
    let options = brooklet::Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    let volume = Arc::new(brooklet::io::MemVolume::new(1));
    let store = options.clock(clock.clone()).rng_seed(5).create_on(volume).unwrap();
    let mut archive = archive(&memory, &dir.path().join("note"));
    archive.follow(&store).unwrap();
    let mut then = Vec::new();
    for round in 1..4 {
        clock.set_wall(Duration::from_secs(100 * round));
        fill(&store, &format!("{round}"), 2, 10);
        back_up(&mut archive, &store).unwrap();
        clock.set_wall(Duration::from_secs(100 * round + 50));
        fill(&store, &format!("{round}/more"), 2, 10);
        archive.ship().unwrap().unwrap();
        then.push(contents(&store));
    }
    let record = Path::from(format!("some/where/backups/{:020}", 1));
    let data = memory.get(&record).now_or_never().unwrap().unwrap().bytes().now_or_never().unwrap().unwrap();
    let mut data = data.to_vec();
    *data.last_mut().unwrap() ^= 1;
    memory.put(&record, data.into()).now_or_never().unwrap().unwrap();
    let bucket = bucket(&memory);
    let view = |second| {
        let at = Which::At(UNIX_EPOCH + Duration::from_secs(second));
        bucket.backup(at).and_then(|backup| backup.view(1 << 20))
    };
    for (second, round) in [(150, 0), (199, 0), (350, 2)] {
        assert!(logs(&view(second).unwrap()) == then[round], "at {second}");
    }
    assert!(matches!(view(250).map(drop), Err(Error::Damaged { .. })));
}

/// Much was committed before a backup, and much is committed after it. The commits that the backup
/// has take no room from those that wait to be shipped behind it.
#[test]
fn what_a_backup_has_does_not_wait_to_be_shipped() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let options = brooklet::Options::new().ring_size(8 << 20).max_payload(1 << 20).threads(false);
    let store = options.create_on(Arc::new(brooklet::io::MemVolume::new(1))).unwrap();
    let commit = |much: u64| {
        for _ in 0..much {
            store.append("much", vec![7; 1 << 20]).unwrap().wait().unwrap();
        }
    };
    let mut archive = archive(&memory, &dir.path().join("note"));
    archive.follow(&store).unwrap();
    commit(1);
    back_up(&mut archive, &store).unwrap();
    for round in 1..3u64 {
        commit(40);
        let archived = back_up(&mut archive, &store).unwrap();
        assert_eq!((archived.number, archived.is_covered), (round, true));
        commit(40);
        assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
        let view = archive.bucket().backup(Which::Latest).unwrap().view(1 << 20).unwrap();
        assert_eq!(view.bounds("much").unwrap().next, 1 + 80 * round);
    }
}
