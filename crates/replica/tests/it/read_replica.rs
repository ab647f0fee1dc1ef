//! Read replicas: they show what the log keeps, in order and each commit as a whole, and nothing
//! that the log may yet lose.

mod hidden;
mod making;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use brooklet::{Commit, MirrorOptions, Options, Store, TailEvent, Waits};
use brooklet_archive::Bucket;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{
    BucketJournal, Created, Error, Journal, Key, ReadReplica, ReadReplicaOptions, Replica, ShipperOptions,
};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::backups::{Backups, append, numbered, settle};
use crate::faulty::{Failing, Faulty};
use crate::replica::{Host, Running, entries, journal, lazy, options, shipping};

const LONG: Duration = Duration::from_secs(300);

/// A journal that does not answer while it is stopped.
#[derive(Clone)]
struct Stopped {
    journal: BucketJournal,
    is_stopped: Arc<AtomicBool>,
    /// Objects that are read before it stops by itself.
    left: Arc<AtomicU64>,
    /// Whether it stops by itself before it returns the next object of the log that is there.
    stops_with_an_object: Arc<AtomicBool>,
}

impl Stopped {
    fn new(memory: &Arc<InMemory>) -> Self {
        let left = Arc::new(AtomicU64::new(u64::MAX));
        Self {
            journal: journal(memory, 0, 0),
            is_stopped: Arc::default(),
            left,
            stops_with_an_object: Arc::default(),
        }
    }

    fn stop_after(&self, objects: u64) {
        self.left.store(objects, Ordering::Relaxed);
    }

    fn stop(&self, stops: bool) {
        self.is_stopped.store(stops, Ordering::Relaxed);
    }

    async fn wait_while_stopped(&self) {
        while self.is_stopped.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Journal for Stopped {
    async fn create(&self, _: Key, _: Bytes) -> Result<Created, Error> {
        panic!("a replica writes nothing to the log")
    }

    async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
        let one_less = |left: u64| left.checked_sub(1);
        if matches!(key, Key::Log(_))
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err()
        {
            self.stop(true);
        }
        self.wait_while_stopped().await;
        let found = self.journal.read(key).await;
        if matches!((key, &found), (Key::Log(_), Ok(Some(_))))
            && self.stops_with_an_object.swap(false, Ordering::Relaxed)
        {
            self.stop(true);
        }
        self.wait_while_stopped().await;
        found
    }

    async fn remove(&self, _: Key) -> Result<(), Error> {
        panic!("a replica removes nothing of the log")
    }
}

struct Reader {
    folder: TempDir,
    memory: Arc<InMemory>,
}

impl Reader {
    fn new(memory: &Arc<InMemory>) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), memory: memory.clone() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("replica")
    }

    fn open_with(&self, journal: impl Journal) -> Result<ReadReplica, Error> {
        self.open_over(journal, Bucket::of(self.memory.clone(), "backups").unwrap())
    }

    fn open_over(&self, journal: impl Journal, backups: Bucket) -> Result<ReadReplica, Error> {
        let mut options = ReadReplicaOptions::new(backups);
        options.store = Options::new().memory_budget(1 << 20);
        options.poll = Duration::from_millis(1);
        ReadReplica::open(self.path(), journal, options, || true)
    }

    fn open(&self) -> ReadReplica {
        self.open_with(Stopped::new(&self.memory)).unwrap()
    }

    fn has_put_away(&self) -> usize {
        let names = std::fs::read_dir(self.folder.path()).unwrap();
        names.filter(|it| it.as_ref().unwrap().file_name().to_str().unwrap().contains(".replaced-")).count()
    }
}

/// Waits until the replica shows what the owner shows now.
fn shows(replica: &ReadReplica, running: &Running) -> Vec<String> {
    let there = entries(&running.store);
    let place = running.store.view().unwrap().lsn();
    assert!(replica.wait_for(place, LONG), "{:?}, {:?}", replica.lag(), replica.error());
    assert_eq!(entries(&replica.store()), there);
    there
}

/// An owner commits to two logs at a time, over a bucket that fails, while readers look.
#[test]
fn every_kept_commit_appears_as_a_whole() {
    for (percent, count) in [(0, 200), (20, 50)] {
        let memory = Arc::new(InMemory::new());
        let running = Host::new(&memory, Waits::Kept).open().unwrap();
        running.store.append("begin", "x").unwrap().wait().unwrap();
        let reader = Reader::new(&memory);
        let replica = reader.open_with(journal(&memory, percent, 3)).unwrap();
        let store: Store = replica.store();
        let next = |key: &str| store.get_bounds(key).unwrap().map_or(0, |bounds| bounds.next);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = 0;
                while !is_done.load(Ordering::Acquire) {
                    let view = store.view().unwrap();
                    let next = |key: &str| view.bounds(key).map_or(0, |bounds| bounds.next);
                    let (left, right) = (next("left"), next("right"));
                    assert!(left == right && left >= last, "{left} and {right} after {last}");
                    last = left;
                }
            });
            for n in 0..count {
                let mut commit = Commit::new();
                commit.append("left", u64::to_le_bytes(n)).append("right", vec![n as u8; 100]);
                running.store.commit(&commit).unwrap().wait().unwrap();
                if n % 50 == 49 {
                    let place = running.store.view().unwrap().lsn();
                    assert!(replica.wait_for(place, LONG));
                    assert!(next("left") > n && next("right") > n, "it was acknowledged");
                }
            }
            is_done.store(true, Ordering::Release);
        });
        let error = store.append("left", "mine").map(drop).unwrap_err();
        assert!(matches!(error, brooklet::Error::ReadOnly), "{error}");
        let lag = replica.lag();
        assert!(lag.age.is_some() && lag.silence.is_some() && lag.bytes() == 0, "{lag:?}");
        replica.close().unwrap();
        running.kill();
    }
}

#[test]
fn a_replica_follows_the_next_owner_and_never_shows_what_the_last_one_lost() {
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Local);
    host.shipping = lazy();
    host.shipping.owner = "first".into();
    let first = host.open().unwrap();
    first.append("kept").wait().unwrap();
    first.replica.shipper().unwrap().flush();
    let reader = Reader::new(&memory);
    let replica = reader.open();
    assert_eq!(replica.lag().owner.unwrap().0, "first");
    // The owner shows it, and the log does not have it.
    first.append("lost").wait().unwrap();
    assert_eq!(entries(&first.store), ["kept", "lost"]);
    let mut next = Host::new(&memory, Waits::Kept);
    next.shipping.owner = "second".into();
    let second = next.succeed().unwrap();
    second.append("after").wait().unwrap();
    assert_eq!(shows(&replica, &second), ["kept", "after"]);
    // The first owner sends it all the same.
    let late = first.append("late");
    first.replica.shipper().unwrap().flush();
    assert!(late.wait_kept().is_err());
    second.append("at last").wait().unwrap();
    assert_eq!(shows(&replica, &second), ["kept", "after", "at last"]);
    assert_eq!(replica.lag().owner.unwrap().0, "second");
    first.kill();
    second.kill();
}

#[test]
fn a_replica_that_is_started_again_goes_on_from_its_file() {
    let memory = Arc::new(InMemory::new());
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    let reader = Reader::new(&memory);
    for round in 0..3 {
        append(&running, 10 * round..10 * round + 10);
        let replica = reader.open();
        assert_eq!(shows(&replica, &running).len() as u64, 10 * round + 10);
        append(&running, 1000..1005);
        shows(&replica, &running);
        running.store.truncate("log", 10 * round + 10).unwrap().wait().unwrap();
        assert_eq!(shows(&replica, &running), numbered(10 * round + 10));
        let store = replica.store();
        if round == 1 {
            drop(replica);
        } else {
            replica.close().unwrap();
        }
        // Who reads may go on.
        assert_eq!(entries(&store), numbered(10 * round + 10));
        drop(store);
        let file = Options::new().read_only(true).open(reader.path()).unwrap();
        assert_eq!(entries(&file), numbered(10 * round + 10));
    }
    assert_eq!(reader.has_put_away(), 0);
    running.kill();
}

/// What is attached runs around each block, and knows its logs.
#[test]
fn what_is_attached_hears_of_each_log_before_and_after() {
    let memory = Arc::new(InMemory::new());
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..5);
    let reader = Reader::new(&memory);
    let replica = reader.open();
    let heard = Arc::<std::sync::Mutex<Vec<(Bytes, u64, u64)>>>::default();
    let (hears, store) = (heard.clone(), replica.store());
    let attached = replica.attach(move |logs, show| {
        let next = |log: &Bytes| store.get_bounds(log).unwrap().map_or(0, |bounds| bounds.next);
        let before: Vec<_> = logs.iter().map(&next).collect();
        show();
        let told = logs.iter().zip(before).map(|(log, before)| (log.clone(), before, next(log)));
        hears.lock().unwrap().extend(told);
    });
    append(&running, 5..9);
    assert_eq!(shows(&replica, &running), numbered(9));
    assert_eq!(entries(&attached), numbered(9));
    let all = heard.lock().unwrap().clone();
    assert_eq!((all.first().map(|told| told.1), all.last().map(|told| told.2)), (Some(5), Some(9)));
    assert!(all.iter().all(|(log, before, after)| log == "log" && before < after), "{all:?}");
    replica.close().unwrap();
    running.kill();
}

#[test]
fn a_replica_past_which_the_log_was_trimmed_makes_its_file_anew() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..10);
    let reader = Reader::new(&memory);
    let replica = reader.open();
    shows(&replica, &running);
    replica.close().unwrap();
    append(&running, 10..20);
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 0);
    append(&running, 20..25);
    // It was away.
    let journal = Stopped::new(&memory);
    let replica = reader.open_with(journal.clone()).unwrap();
    assert_eq!(shows(&replica, &running), numbered(25));
    assert_eq!((replica.lag().made_anew, reader.has_put_away()), (1, 1));
    // Its host sleeps.
    journal.stop(true);
    append(&running, 25..30);
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 1);
    append(&running, 30..33);
    let begin = replica.lag().age.unwrap();
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_millis(50) {
        std::thread::yield_now();
    }
    assert!(replica.lag().age.unwrap() >= begin + Duration::from_millis(50), "nothing is known meanwhile");
    journal.stop(false);
    assert_eq!(shows(&replica, &running), numbered(33));
    // All that the old file had is in the log.
    assert_eq!((replica.lag().made_anew, reader.has_put_away()), (2, 1));
    replica.close().unwrap();
    running.kill();
}

/// The owner appends, and trims the log past the replica, while the host of the replica sleeps. In
/// the old state the replica took the hole for the end of the log for some seconds, if it had slept
/// for less than three seconds: its age was that of a replica that shows all.
#[test]
fn a_replica_that_slept_for_a_moment_does_not_have_what_was_trimmed_meanwhile() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..10);
    let (reader, journal) = (Reader::new(&memory), Stopped::new(&memory));
    let replica = reader.open_with(journal.clone()).unwrap();
    shows(&replica, &running);
    journal.stop(true);
    append(&running, 10..20);
    let (place, kept) = (running.store.view().unwrap().lsn(), Instant::now());
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 0);
    while kept.elapsed() < Duration::from_millis(700) {
        std::thread::yield_now();
    }
    journal.stop(false);
    while !replica.wait_for(place, Duration::ZERO) {
        let (since, lag) = (kept.elapsed(), replica.lag());
        assert!(lag.shown >= place || lag.age.unwrap() >= since, "{lag:?}, {since:?} after a commit");
        assert!(replica.error().is_none() && since < LONG, "{lag:?}, {:?}", replica.error());
        std::thread::yield_now();
    }
    assert_eq!(shows(&replica, &running), numbered(20));
    replica.close().unwrap();
    running.kill();
}

/// The owner shortens the log while a replica reads it, at each object. In the old state the
/// replica took the hole for the end of the log: it opened with old data, or refused its sound
/// file.
#[test]
fn a_replica_that_is_overtaken_by_a_trim_is_not_current() {
    for (objects, has_read) in (0..14).flat_map(|objects| [(objects, 6), (objects, 10)]) {
        let memory = Arc::new(InMemory::new());
        let backups = Backups::new(&memory);
        let running = Host::new(&memory, Waits::Kept).open().unwrap();
        append(&running, 0..has_read);
        let reader = Reader::new(&memory);
        let replica = reader.open();
        shows(&replica, &running);
        replica.close().unwrap();
        append(&running, has_read..10);
        let stopping = Stopped::new(&memory);
        stopping.stop_after(objects);
        let replica = std::thread::scope(|scope| {
            let opening = scope.spawn(|| reader.open_with(stopping.clone()));
            while !stopping.is_stopped.load(Ordering::Relaxed) && !opening.is_finished() {
                std::thread::yield_now();
            }
            append(&running, 10..15);
            backups.back_up(&running).unwrap().unwrap();
            settle(&running, 0);
            append(&running, 15..17);
            stopping.stop_after(u64::MAX);
            stopping.stop(false);
            opening.join().unwrap()
        });
        let replica = replica.unwrap_or_else(|error| panic!("after {objects} of {has_read}: {error}"));
        let shown = entries(&replica.store());
        assert!(shown.len() >= 10, "after {objects} of {has_read}: {shown:?}");
        assert_eq!(shown, numbered(shown.len() as u64));
        assert_eq!(shows(&replica, &running), numbered(17));
        replica.close().unwrap();
        running.kill();
    }
}

/// The replica needs a backup, which the bucket does not return for a while.
#[test]
fn a_replica_outlives_a_bucket_that_fails() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..10);
    let (reader, stopped) = (Reader::new(&memory), Stopped::new(&memory));
    let faulty = Faulty::new(memory.clone(), Failing::Percent(0), 1);
    let bucket = Bucket::of(Arc::new(faulty.clone()), "backups").unwrap();
    let replica = reader.open_over(stopped.clone(), bucket).unwrap();
    shows(&replica, &running);
    stopped.stop(true);
    append(&running, 10..20);
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 0);
    append(&running, 20..25);
    faulty.cut_off(true);
    stopped.stop(false);
    while faulty.cut_off(true) == 0 {
        assert!(replica.error().is_none(), "{:?}", replica.error());
        std::thread::yield_now();
    }
    assert_eq!(entries(&replica.store()), numbered(10));
    faulty.cut_off(false);
    assert_eq!(shows(&replica, &running), numbered(25));
    assert!(replica.error().is_none());
    replica.close().unwrap();
    running.kill();
}

/// One write fails, and the file is sound again. In the old state the replica ended.
#[test]
fn a_replica_whose_store_stopped_opens_its_file_again() {
    let memory = Arc::new(InMemory::new());
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..5);
    let reader = Reader::new(&memory);
    let replica = reader.open();
    let (store, spare) = (replica.store(), reader.folder.path().join("spare"));
    std::fs::hard_link(reader.path(), &spare).unwrap();
    // The file has two names at this write.
    append(&running, 5..10);
    shows(&replica, &running);
    store.checkpoint().unwrap();
    let mut next = 10;
    loop {
        append(&running, next..next + 1);
        next += 1;
        shows(&replica, &running);
        // Without its own name, the file takes no write.
        std::fs::remove_file(reader.path()).unwrap();
        let is_stopped = store.checkpoint().is_err();
        std::fs::hard_link(&spare, reader.path()).unwrap();
        if is_stopped {
            break;
        }
    }
    assert_eq!(entries(&replica.store()), numbered(next), "it shows what it has");
    append(&running, next..next + 5);
    assert_eq!(shows(&replica, &running), numbered(next + 5));
    assert_eq!((replica.lag().made_anew, reader.has_put_away()), (1, 0));
    // A handle of the former store has not kept the file.
    drop(store);
    replica.close().unwrap();
    running.kill();
}

/// Opens the store at a path as the owner of its log.
fn own(path: &Path, memory: &Arc<InMemory>) -> Running {
    let replica = Replica::new(journal(memory, 0, 0), lazy());
    let mirror = MirrorOptions::new(replica.clone()).waits(Waits::Local);
    let store = options().mirror(mirror).open(path).map_err(|error| replica.explain(error)).unwrap();
    Running { store, replica }
}

/// The log may yet get these commits, from a host that starts with this file, or never.
#[test]
fn a_file_with_commits_that_the_log_lacks_is_left_as_it_is() {
    let memory = Arc::new(InMemory::new());
    let reader = Reader::new(&memory);
    let first = own(&reader.path(), &memory);
    let kept = first.append("kept");
    kept.wait().unwrap();
    first.replica.shipper().unwrap().flush();
    assert!(kept.wait_kept().unwrap());
    first.append("local").wait().unwrap();
    let kept_end = first.replica.status().unwrap().kept.lsn;
    first.kill();
    let refused = |doing: &str| {
        let before = std::fs::read(reader.path()).unwrap();
        let error = reader.open_with(Stopped::new(&memory)).map(drop).unwrap_err();
        let Error::Diverged { from, end } = error else { panic!("{doing}: {error}") };
        assert!(from <= end && end > kept_end, "{doing}: {error}");
        assert!(std::fs::read(reader.path()).unwrap() == before, "{doing}");
    };
    refused("the file has more than the log");
    let mut next = Host::new(&memory, Waits::Kept);
    next.shipping = shipping();
    let second = next.succeed().unwrap();
    second.append("another").wait().unwrap();
    refused("each has what the other lacks");
    second.kill();
}

#[test]
fn a_place_without_a_log_has_no_replica() {
    let memory = Arc::new(InMemory::new());
    let error = Reader::new(&memory).open_with(Stopped::new(&memory)).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoLog), "{error}");
}

#[test]
fn a_place_that_refuses_missing_objects_has_no_replica() {
    let memory = Arc::new(InMemory::new());
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..3);
    let faulty = Faulty::new(memory.clone(), Failing::NoList, 1);
    let journal = BucketJournal::new(&Bucket::of(Arc::new(faulty), "here").unwrap());
    let error = Reader::new(&memory).open_with(journal).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoList { .. }), "{error}");
    running.kill();
}

#[test]
fn a_replica_goes_on_after_a_handover() {
    let memory = Arc::new(InMemory::new());
    let host = Host::new(&memory, Waits::Kept);
    let first = host.open().unwrap();
    append(&first, 0..5);
    let reader = Reader::new(&memory);
    let replica = reader.open();
    first.store.close().unwrap();
    first.replica.shipper().unwrap().hand_over("another host");
    let second = Host::new(&memory, Waits::Kept).succeed().unwrap();
    append(&second, 5..9);
    assert_eq!(shows(&replica, &second), numbered(9));
    second.kill();
}

/// Prints the time from a commit at the owner until a reader of the replica has it, with the
/// default settings of both and a bucket that is a folder.
#[test]
#[ignore = "a measurement"]
fn lag_of_a_replica() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let bucket = || Bucket::open(at("bucket").to_str().unwrap()).unwrap();
    std::fs::create_dir(at("bucket")).unwrap();
    let owner = Replica::new(BucketJournal::new(&bucket()), ShipperOptions::default());
    let mirror = MirrorOptions::new(owner.clone()).waits(Waits::Local);
    let store = Options::new().mirror(mirror).open(at("owner")).unwrap();
    assert!(store.append("log", [0; 108]).unwrap().wait_kept().unwrap());
    let options = ReadReplicaOptions::new(bucket());
    let journal = BucketJournal::new(&bucket());
    let replica = ReadReplica::open(at("replica"), journal, options, || true).unwrap();
    let begin = Instant::now();
    for (pause, count) in [(Duration::from_millis(1), 5000), (Duration::from_millis(500), 30)] {
        let from = replica.store().bounds("log").unwrap().next;
        let mut tail = replica.store().tail("log", from).unwrap();
        let mut times: Vec<Duration> = std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..count {
                    let now = begin.elapsed().as_nanos() as u64;
                    drop(store.append("log", [&now.to_le_bytes()[..], &[7; 100]].concat()).unwrap());
                    std::thread::park_timeout(pause);
                }
            });
            let entry = |_| match tail.next_timeout(LONG).unwrap() {
                Some(TailEvent::Entry(entry)) => {
                    let then = u64::from_le_bytes(entry.payload[..8].try_into().unwrap());
                    begin.elapsed().saturating_sub(Duration::from_nanos(then))
                }
                other => panic!("{other:?}"),
            };
            (0..count).map(entry).collect()
        });
        times.sort();
        let share = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!("a commit each {pause:?}: p50 {:?}, p99 {:?}, most {:?}", share(50), share(99), share(100));
    }
}
