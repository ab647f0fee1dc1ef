//! Buckets that fail in every way, and processes that are gone at every request.

use crate::common;

use std::collections::BTreeMap;
use std::fs::{DirEntry, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use brooklet::Store;
use brooklet::io::Rng;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::{Archive, Bucket, Error, Which};
use common::faulty::Faulty;
use common::{Logs, archive, back_up, bucket, contents, fill, logs, restored, store};

/// Everything that is listed can be read, and is whole.
fn all(memory: &Arc<InMemory>) -> BTreeMap<u64, Logs> {
    let bucket = bucket(memory);
    let read = |number| {
        let backup = bucket.backup(Which::Number(number)).unwrap();
        assert!(backup.verify(brooklet::Progress::ignore).defects.is_empty());
        (number, logs(&backup.view(1 << 20).unwrap()))
    };
    bucket.backups().unwrap().iter().map(|backup| read(backup.number)).collect()
}

#[test]
fn a_process_may_be_gone_at_any_request() {
    for unheard in [false, true] {
        let mut died = 0;
        for requests in 0.. {
            let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
            let note = dir.path().join("note");
            let store = store(1);
            fill(&store, "a", 30, 1000);
            back_up(&mut archive(&memory, &note), &store).unwrap();
            let first = contents(&store);
            fill(&store, "b", 30, 1000);
            let second = contents(&store);

            let faulty = Arc::new(Faulty::new(memory.clone(), 1, 0));
            faulty.live(Some(requests));
            faulty.dies_unheard(unheard);
            let done = back_up(&mut archive(&faulty, &note), &store);
            let whole = all(&memory);
            assert!(whole[&0] == first && whole.get(&1).is_none_or(|logs| *logs == second));
            assert!(done.is_err() || whole.len() == 2);

            // The next process goes on, whatever became of it.
            fill(&store, "c", 30, 1000);
            let third = contents(&store);
            let number = back_up(&mut archive(&memory, &note), &store).unwrap().number;
            assert_eq!(number, whole.len() as u64);
            assert!(all(&memory)[&number] == third);
            // And so does one that removes what is too old.
            let faulty = Arc::new(Faulty::new(memory.clone(), 1, 0));
            faulty.live(Some(requests));
            faulty.dies_unheard(unheard);
            let _ = archive(&faulty, &note).prune(Duration::ZERO, false);
            assert!(all(&memory)[&number] == third);
            archive(&memory, &note).prune(Duration::ZERO, false).unwrap();
            assert!(restored(&bucket(&memory), Which::Latest) == third);
            if done.is_ok() {
                break;
            }
            died += 1;
        }
        assert!(died >= 4, "{died}");
    }
}

/// S3 refuses the second of two creates before it shows the object of the first.
#[test]
fn a_backup_that_another_host_may_be_making_is_refused_and_tried_again() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    fill(&store, "a", 30, 1000);
    let faulty = Arc::new(Faulty::new(memory.clone(), 1, 0));
    let mut archive = archive(&faulty, &dir.path().join("note"));
    faulty.races(true);
    let error = back_up(&mut archive, &store).unwrap_err();
    assert!(matches!(&error, Error::Bucket { doing, .. } if doing.starts_with("creating ")), "{error}");
    assert!(error.to_string().contains("under way"), "{error}");
    faulty.races(false);
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 0);
    assert!(all(&memory)[&0] == contents(&store));
}

/// An archive of whose second backup the creation was refused, and takes effect some time later.
fn with_a_late_backup(memory: &Arc<InMemory>, note: &Path, store: &Store) -> (Arc<Faulty>, Archive) {
    let faulty = Arc::new(Faulty::new(memory.clone(), 1, 0));
    let mut archive = archive(&faulty, note);
    archive.follow(store).unwrap();
    fill(store, "a", 3, 300);
    back_up(&mut archive, store).unwrap();
    fill(store, "b", 3, 300);
    faulty.holds(true);
    let error = back_up(&mut archive, store).unwrap_err();
    assert!(matches!(error, Error::Bucket { .. }), "{error}");
    faulty.holds(false);
    fill(store, "c", 3, 300);
    (faulty, archive)
}

/// A backup takes effect while this host uploads the next one: nobody else owns the archive.
#[test]
fn a_backup_that_takes_effect_late_is_this_hosts_own() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    let (faulty, mut archive) = with_a_late_backup(&memory, &dir.path().join("note"), &store);
    let error = archive.backup(&store, |_| {
        faulty.release(0);
        ControlFlow::Continue(())
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Bucket { .. }), "{error}");
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 2);
    assert!(all(&memory)[&2] == contents(&store));
    fill(&store, "d", 3, 300);
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
    assert!(restored(&bucket(&memory), Which::Latest) == contents(&store));
}

/// The same before each request of the other calls.
#[test]
fn a_backup_that_takes_effect_late_ends_no_other_call() {
    let ends = |offloads: bool, after: u64| {
        let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
        let store = store(1);
        let (faulty, mut archive) = with_a_late_backup(&memory, &dir.path().join("note"), &store);
        faulty.release(after);
        let done = if offloads {
            archive.offload(&store, 0, brooklet::Progress::ignore).map(drop)
        } else {
            archive.ship().map(drop)
        };
        assert!(matches!(done, Ok(()) | Err(Error::Bucket { .. })), "after {after} requests: {done:?}");
        let mut backed_up = back_up(&mut archive, &store);
        if matches!(backed_up, Err(Error::Bucket { .. })) {
            backed_up = back_up(&mut archive, &store);
        }
        assert_eq!(backed_up.unwrap().number, 2, "after {after} requests");
        assert!(restored(&bucket(&memory), Which::Latest) == contents(&store));
    };
    // Most of the time is spent in waiting before the next try.
    std::thread::scope(|scope| {
        for after in 0..8 {
            scope.spawn(move || ends(false, after));
            scope.spawn(move || ends(true, after));
        }
    });
}

/// The last uploads may take long, and this host may not be the owner any more after them.
#[test]
fn a_backup_that_is_to_end_while_its_last_objects_are_sent_is_not_made() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    fill(&store, "log", 3, 3000);
    let mut archive = archive(&memory, &dir.path().join("note"));
    let bucket = archive.bucket().clone();
    let ended = archive.backup(&store, |_| match bucket.costs().puts {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
    assert!(bucket.backups().unwrap().is_empty());
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 0);
}

#[test]
fn a_restore_may_be_cut_off_at_any_request() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = store(1);
    for round in 0..3 {
        fill(&store, &format!("{round}"), 30, 3000);
        back_up(&mut archive(&memory, &dir.path().join("note")), &store).unwrap();
    }
    let want = contents(&store);
    let new = common::store(2);
    for requests in 0.. {
        let faulty = Arc::new(Faulty::new(memory.clone(), 1, 0));
        faulty.live(Some(requests));
        let restore = || {
            let view =
                bucket(&faulty).backup(Which::Latest).map_err(|error| error.to_string())?.view(1 << 20);
            new.import()
                .view(&view.map_err(|error| error.to_string())?, "")
                .map_err(|error| error.to_string())
        };
        match restore() {
            Ok(_) => {
                assert!(contents(&new) == want && requests >= 4, "{requests}");
                return;
            }
            Err(error) => assert!(error.contains("the process is gone"), "{error}"),
        }
        assert!(contents(&new).is_empty());
    }
}

/// A host: what it notes, and the process that works there.
struct Host {
    name: &'static str,
    archive: Archive,
}

struct World {
    memory: Arc<InMemory>,
    faulty: Arc<Faulty>,
    dir: tempfile::TempDir,
    store: Store,
    /// What is certainly in a backup, and what may be in any.
    told: BTreeMap<u64, Logs>,
    maybe: Vec<Logs>,
    /// What the store was when that was last told to be safe, and what it was since, whenever that
    /// was tried.
    safe: Vec<Logs>,
    rng: Rng,
}

impl World {
    fn start(&self, name: &'static str) -> Host {
        let mut archive = archive(&self.faulty, &self.dir.path().join(name));
        archive.follow(&self.store).unwrap();
        Host { name, archive }
    }

    fn ship(&mut self, host: &mut Host) -> usize {
        let now = contents(&self.store);
        self.safe.push(now.clone());
        match host.archive.ship() {
            Ok(Some(shipped)) => {
                self.safe = vec![now];
                shipped.objects as usize
            }
            Ok(None) | Err(Error::Owned { .. } | Error::Bucket { .. }) => 0,
            Err(error) => panic!("{error}"),
        }
    }

    fn back_up(&mut self, host: &mut Host) {
        let now = contents(&self.store);
        let stop = self.rng.percent(5);
        let flow = if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        self.safe.push(now.clone());
        match host.archive.backup(&self.store, |_| flow) {
            Ok(archived) => {
                // Where nothing has changed nothing is asked, and so nobody hears of another host.
                if archived.is_new {
                    self.safe = vec![now.clone()];
                }
                let before = self.told.insert(archived.number, now.clone());
                assert!(before.is_none_or(|before| before == now), "two hosts wrote {}", archived.number);
            }
            Err(Error::Owned { .. } | Error::Cancelled { .. } | Error::OutOfDate { .. }) => {}
            Err(Error::Bucket { .. }) => self.maybe.push(now),
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&mut self) {
        let found = all(&self.memory);
        let last = self.told.keys().last();
        assert!(found.keys().last() >= last, "{last:?} is not there any more");
        for (number, logs) in found {
            match self.told.get(&number) {
                Some(told) => assert!(*told == logs, "backup {number} has become another one"),
                None => assert!(self.maybe.contains(&logs), "nobody wrote backup {number}"),
            }
        }
        match bucket(&self.memory).backup(Which::Latest) {
            Ok(latest) => {
                let view = latest.view(1 << 20).unwrap();
                assert!(self.safe.contains(&logs(&view)), "{latest:?} is not what was told to be safe");
            }
            Err(Error::NoBackup(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[derive(Default)]
struct Seen {
    wrote: usize,
    shipped: usize,
    failed: usize,
    took_over: usize,
}

fn play(seed: u64) -> Seen {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let faulty = Arc::new(Faulty::new(memory.clone(), seed, [3, 20, 60][seed as usize % 3]));
    let (told, maybe) = (BTreeMap::new(), Vec::new());
    let (store, safe, rng) = (store(seed), vec![Logs::new()], Rng::new(seed));
    let mut world = World { memory, faulty, dir, store, told, maybe, safe, rng };
    let mut hosts = ["here", "there"].map(|name| world.start(name));
    let mut seen = Seen::default();
    for step in 0..30 {
        let host = &mut hosts[usize::from(world.rng.percent(20))];
        match world.rng.below(14) {
            0..=3 => fill(&world.store, &format!("{step}"), 2, 300),
            10..=13 => seen.shipped += world.ship(host),
            4..=6 => {
                let before = world.told.len();
                world.back_up(host);
                seen.wrote += world.told.len() - before;
            }
            7 => *host = world.start(host.name),
            8 => {
                let Host { name, archive } = world.start(host.name);
                seen.took_over += 1;
                *host = Host { name, archive: archive.take_over() };
            }
            _ => seen.failed += usize::from(host.archive.prune(Duration::ZERO, false).is_err()),
        }
        if step % 8 == 7 {
            world.check();
        }
    }
    // With the faults gone, whoever takes it over goes on.
    fill(&world.store, "last", 2, 300);
    let mut host = archive(&world.memory, &world.dir.path().join("new")).take_over();
    back_up(&mut host, &world.store).unwrap();
    assert!(restored(&bucket(&world.memory), Which::Latest) == contents(&world.store));
    seen.failed += world.maybe.len();
    seen
}

#[test]
fn nothing_is_lost_where_requests_fail() {
    // Most of the time is spent in waiting before the next try.
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..48).map(|seed| scope.spawn(move || play(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |count: fn(&Seen) -> usize| seen.iter().map(count).sum::<usize>();
    let [wrote, shipped] = [sum(|seen| seen.wrote), sum(|seen| seen.shipped)];
    let [failed, took_over] = [sum(|seen| seen.failed), sum(|seen| seen.took_over)];
    let told = format!("{wrote} {shipped} {failed} {took_over}");
    assert!(wrote > 60 && shipped > 30 && failed > 20 && took_over > 20, "{told}");
}

/// Numbers of backups that went stay taken for a month: for whoever slept, and where lists are out
/// of date.
#[test]
fn tombstones_stay_for_a_month() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let faulty = Arc::new(Faulty::new(memory.clone(), 1, 0));
    faulty.a_day_each();
    let day = Duration::from_secs(24 * 3600);
    let store = store(1);
    let mut sleeper = archive(&memory, &dir.path().join("sleeper"));
    fill(&store, "a", 2, 100);
    back_up(&mut sleeper, &store).unwrap();
    // Another process of it, which knows that backup, and sleeps on.
    let mut sleeps_on = archive(&memory, &dir.path().join("sleeper"));
    assert_eq!(sleeps_on.plan(&store).unwrap().number, 0);
    let mut awake = archive(&faulty, &dir.path().join("awake")).take_over();
    let objects = |memory: &Arc<InMemory>| {
        let faulty = Faulty::new(memory.clone(), 1, 0);
        faulty.listed().into_iter().filter(|name| name.contains("backups")).count()
    };
    for round in 0..30u64 {
        fill(&store, &format!("{round}"), 2, 100);
        assert_eq!(back_up(&mut awake, &store).unwrap().number, round + 1);
        awake.prune(day * 4, false).unwrap();
        // An upload and a record a round, and a tombstone: three days.
        assert!(bucket(&memory).backups().unwrap().len() <= 4, "in round {round}");
        // Whoever slept meanwhile notices.
        assert!(matches!(back_up(&mut sleeper, &store), Err(Error::Owned { .. })));
    }
    assert!((8..=16).contains(&objects(&memory)), "{}", objects(&memory));
    assert!(matches!(back_up(&mut sleeps_on, &store), Err(Error::Owned { .. })), "its number is free again");
    // A list that shows nothing is not believed.
    let deaf = Arc::new(Faulty::new(memory.clone(), 1, 0));
    deaf.lists_nothing();
    let error = back_up(&mut archive(&deaf, &dir.path().join("new")).take_over(), &store).unwrap_err();
    assert!(matches!(error, Error::OutOfDate { .. }), "{error}");
    assert_eq!(back_up(&mut archive(&deaf, &dir.path().join("awake")), &store).unwrap().number, 30);
    assert!(restored(&bucket(&memory), Which::Latest) == contents(&store));
}

/// The clock of a folder is that of its host. It may be behind until somebody sets it, and ahead.
#[test]
fn a_clock_that_was_wrong_removes_no_backup_that_is_to_stay() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("bucket");
    let bucket = Bucket::open(place.to_str().unwrap()).unwrap();
    let mut archive = Archive::new(bucket.clone(), dir.path().join("note"), "a host").unwrap();
    let (store, day) = (store(1), Duration::from_secs(24 * 3600));
    let mut back_up_on = |number: u64, days: u32| {
        fill(&store, &format!("{number}"), 2, 100);
        assert_eq!(back_up(&mut archive, &store).unwrap().number, number);
        let record = place.join(format!("backups/{number:020}"));
        let record = File::options().write(true).open(record).unwrap();
        record.set_modified(UNIX_EPOCH + day * days).unwrap();
    };
    let left = |keep: u32| {
        let mut archive = Archive::new(bucket.clone(), dir.path().join("note"), "a host").unwrap();
        archive.prune(day * keep, false).unwrap();
        bucket.backups().unwrap().iter().map(|backup| backup.number).collect::<Vec<_>>()
    };
    for (number, days) in [(0, 1000), (1, 1001), (2, 1), (3, 1030)] {
        back_up_on(number, days);
    }
    assert_eq!(left(30), [0, 1, 2, 3]);
    // When the third one was made is not known.
    assert_eq!(left(29), [1, 2, 3]);
    back_up_on(4, 5000);
    back_up_on(5, 1060);
    assert_eq!(left(29), [3, 4, 5]);
}

/// A folder that is a bucket would have more and more empty folders in it.
#[test]
fn backups_that_go_leave_no_empty_folder() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("bucket");
    let bucket = Bucket::open(place.to_str().unwrap()).unwrap();
    let mut archive = Archive::new(bucket.clone(), dir.path().join("note"), "a host").unwrap();
    let store = store(1);
    archive.follow(&store).unwrap();
    for round in 0..3 {
        fill(&store, &format!("{round}"), 2, 100);
        store.compact().unwrap();
        back_up(&mut archive, &store).unwrap();
        fill(&store, &format!("{round}/more"), 2, 100);
        assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
    }
    assert_eq!(archive.prune(Duration::ZERO, false).unwrap().backups, 2);
    for folder in ["bundles", "commits"].map(|name| place.join(name)) {
        let is_empty = |folder: &DirEntry| std::fs::read_dir(folder.path()).unwrap().count() == 0;
        let left = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let left: Vec<_> = left.filter(is_empty).map(|folder| folder.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(restored(&bucket, Which::Latest) == contents(&store));
}

#[test]
fn a_bucket_that_lets_nobody_in_says_so() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let faulty = Arc::new(Faulty::new(memory, 1, 0));
    faulty.live(Some(0));
    let store = store(1);
    fill(&store, "a", 3, 100);
    let error = back_up(&mut archive(&faulty, &dir.path().join("note")), &store).unwrap_err();
    assert!(matches!(error, Error::Bucket { .. }) && error.to_string().contains("privileges"), "{error}");
    assert_eq!(faulty.requests(), 1, "it is not tried again");
}
