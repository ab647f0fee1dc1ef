use std::sync::atomic::{AtomicBool, Ordering};

use brooklet::WalStats;
use brooklet::io::{Fault, MemVolume};
use brooklet_replica::{Change, Cluster, Created, Cuts, Epoch, Journal, Key, Place};
use bytes::Bytes;

use super::guard::Ring;
use super::member::Life;
use super::*;

pub fn host(folder: &Path, waits: Waits) -> Replication {
    cutting(folder, waits, Cuts::default())
}

/// A host whose log is cut only when it is told to, so that the bucket lacks what nobody waits for.
fn slow_host(folder: &Path, waits: Waits) -> Replication {
    cutting(folder, waits, Cuts { time: Duration::from_secs(3600), bytes: 64 << 20 })
}

fn cutting(folder: &Path, waits: Waits, cuts: Cuts) -> Replication {
    let address = folder.join("bucket").to_str().unwrap().to_owned();
    std::fs::create_dir_all(&address).unwrap();
    let mut shipping = ShipperOptions::default();
    shipping.cuts = cuts;
    let journal = AnyJournal::open(&address).unwrap();
    Replication {
        replica: Replica::new(journal.clone(), shipping),
        journal,
        backups: Bucket::open(&format!("{address}/backups")).unwrap(),
        owner: "host".into(),
        path: folder.join("store"),
        waits,
        is_standby: false,
        member: None,
        url: None,
        server: Config { redis: Vec::new(), ..Config::default() },
        silence: Duration::from_secs(3),
        backup_every: Duration::from_secs(3600),
        backup_at: LONG,
        pause: Duration::ZERO,
        keep_backups: Duration::from_secs(24 * 3600),
        leaving: Duration::from_secs(30),
        stop: CancellationToken::new(),
    }
}

/// Waits until something holds. A minute without it is a failure.
pub fn until(holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing happened for a minute");
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn options() -> Options {
    Options::new().ring_size(1 << 20).max_payload(8 << 10)
}

pub fn open(host: &Replication) -> Option<Store> {
    host.open(&options(), &|options| options.open(&host.path)).unwrap()
}

pub fn append_kept(store: &Store, replica: &Replica) {
    let ticket = store.append("log", "entry").unwrap();
    while !ticket.is_kept() {
        replica.shipper().unwrap().drain(|| true).unwrap();
    }
}

/// Opens the store on a host that has the bucket alone.
fn succeed(folder: &Path) -> Store {
    std::fs::rename(folder.join("store"), folder.join("lost")).unwrap();
    open(&host(folder, Waits::Kept)).unwrap()
}

#[test]
fn a_clean_end_waits_for_the_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let host = slow_host(folder.path(), Waits::Local);
    let store = open(&host).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    let guard = host.guard(store.clone()).unwrap();
    store.close().unwrap();
    drop(store);
    guard.end(None).unwrap();
    assert_eq!(succeed(folder.path()).bounds("log").unwrap().next, 1);
}

#[test]
fn a_guard_that_panics_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path(), Waits::Local);
    let (stop, replica) = (host.stop.clone(), host.replica.clone());
    let guard = Guard::start(stop, replica, Waits::Local, host.leaving, || None, |_| panic!("planned"));
    until(|| host.stop.is_cancelled());
    let failure = guard.unwrap().end(None).unwrap_err();
    assert!(format!("{failure:?}").contains("panicked"), "{failure:?}");
}

/// A request of a backup may have no answer for minutes. Another host must not wait so long.
#[test]
fn a_backup_that_hangs_delays_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path(), Waits::Local);
    let (stop, replica) = (host.stop.clone(), host.replica.clone());
    let fenced = || Some(Error::Fenced { by: Epoch(2) });
    let (hangs, never) = std::sync::mpsc::channel::<()>();
    let work = move |_: &CancellationToken| never.recv().unwrap_or_default();
    let guard = Guard::start(stop, replica, Waits::Kept, host.leaving, fenced, work).unwrap();
    until(|| host.stop.is_cancelled());
    assert!(format!("{:?}", guard.end(None).unwrap_err()).contains("taken the store over"));
    drop(hangs);
}

#[test]
fn a_disk_that_ends_no_write_is_stuck() {
    let (mut ring, mut now) = (Ring::default(), WalStats::default());
    let mut look = |now: &WalStats| ring.stuck(now, Duration::ZERO).is_some();
    assert_eq!((look(&now), look(&now)), (false, false));
    now.in_flight = 1;
    assert_eq!((look(&now), look(&now)), (false, true));
    now.blocks = 1;
    assert_eq!((look(&now), look(&now)), (false, true));
    now.in_flight = 0;
    assert_eq!((look(&now), look(&now)), (false, false));
}

/// An owner whose store writes no more must not give signs: no standby would take over.
#[test]
fn a_store_that_stopped_ends_the_server_and_its_signs() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path(), Waits::Local);
    std::fs::write(&host.path, "").unwrap();
    let volume = Arc::new(MemVolume::new(1));
    let disk = volume.clone();
    let store = host.open(&options(), &|options| options.create_on(disk.clone())).unwrap().unwrap();
    let (stop, shipper) = (host.stop.clone(), host.replica.shipper().unwrap());
    let guard = host.guard(store.clone()).unwrap();
    volume.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: true });
    store.append("log", "entry").unwrap().wait().unwrap_err();
    until(|| stop.is_cancelled());
    assert!(guard.end(None).is_err());
    until(|| shipper.error().is_some());
}

/// A backup is due once the log is long, whatever the time.
#[test]
fn a_long_log_is_backed_up() {
    let long = Length { bytes: 1, objects: u64::MAX };
    // A takeover reads one object for each, however small they are.
    let many = Length { bytes: u64::MAX, objects: 2 };
    for backup_at in [long, many] {
        let folder = tempfile::tempdir().unwrap();
        let mut host = host(folder.path(), Waits::Local);
        let store = open(&host).unwrap();
        let (replica, shipper) = (host.replica.clone(), host.replica.shipper().unwrap());
        host.backup_at = backup_at;
        for _ in 0..2 {
            append_kept(&store, &replica);
        }
        let guard = host.guard(store).unwrap();
        until(|| replica.status().unwrap().record.is_some());
        assert!(shipper.error().is_none());
        guard.end(None).unwrap();
    }
}

/// The objects that the opening found count, too.
#[test]
fn a_log_of_many_small_objects_is_long() {
    let folder = tempfile::tempdir().unwrap();
    for found in [0, 3] {
        let host = host(folder.path(), Waits::Kept);
        let store = open(&host).unwrap();
        assert!(host.replica.status().unwrap().found_objects >= found);
        for _ in 0..3 {
            append_kept(&store, &host.replica);
        }
        let log = Length::of(&host.replica.status().unwrap());
        assert!(log.objects >= found + 3 && log.bytes > 0);
        store.close().unwrap();
    }
    let log = |objects| Length { bytes: 10, objects };
    let backed_up = log(LONG.objects);
    assert!(!log(2 * LONG.objects - 1).behind(backed_up).reaches(LONG));
    assert!(log(2 * LONG.objects).behind(backed_up).reaches(LONG));
}

/// The newest backup and the one before it stay: a takeover may read it.
#[test]
fn old_backups_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = host(folder.path(), Waits::Local);
    let store = open(&host).unwrap();
    host.keep_backups = Duration::from_millis(1);
    for number in 0..4 {
        append_kept(&store, &host.replica);
        append_kept(&store, &host.replica);
        thread::sleep(Duration::from_millis(5));
        assert!(host.back_up(&store, || true).unwrap());
        let kept: Vec<u64> = host.backups.backups().unwrap().iter().map(|backup| backup.number).collect();
        let expected: Vec<u64> = (number.max(1) - 1..=number).collect();
        assert_eq!(kept, expected);
    }
}

/// A host that has the bucket alone serves before it has copied the backup.
#[test]
fn a_file_that_is_made_anew_begins_with_its_backup_offloaded() {
    let folder = tempfile::tempdir().unwrap();
    let away = |store: &Store| store.info().unwrap().runs.iter().filter(|run| run.offloaded).count();
    let entries = |store: &Store| -> Vec<_> {
        let logs = store.scan("").unwrap().map(|log| log.unwrap().key);
        let read = |key: Vec<u8>| store.read(&key, ..).unwrap().map(|entry| entry.unwrap().payload).collect();
        logs.map(|key| (key.clone(), read(key))).collect::<Vec<(_, Vec<Bytes>)>>()
    };
    let append = |store: &Store, replica: &Replica, first: u32| {
        let log = |log: u32| (format!("log/{log}"), vec![log as u8; 2000]);
        (first..first + 100).map(log).for_each(|(key, entry)| drop(store.append(key, entry).unwrap()));
        append_kept(store, replica);
    };
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append(&store, &first.replica, 0);
    assert!(first.back_up(&store, || true).unwrap());
    append(&store, &first.replica, 50);
    let mut before = entries(&store);
    drop((store, first));
    std::fs::rename(folder.path().join("store"), folder.path().join("lost")).unwrap();

    for round in 0..2 {
        // The second time, it is a restart.
        let host = host(folder.path(), Waits::Kept);
        let store = open(&host).unwrap();
        assert!(away(&store) > 0, "round {round}");
        assert!(entries(&store) == before, "round {round}");
        append(&store, &host.replica, 100 + round);
        assert!(host.back_up(&store, || true).unwrap());
        before = entries(&store);
    }

    // Its own backup names the offloaded runs, too.
    let store = succeed(folder.path());
    assert!(away(&store) > 0 && entries(&store) == before);
    drop(store);
    let host = host(folder.path(), Waits::Kept);
    let store = open(&host).unwrap();
    host.recall(&store, &CancellationToken::new());
    assert!(away(&store) == 0 && entries(&store) == before);
    store.close().unwrap();
    drop((store, host));
    let alone = options().read_only(true).open(folder.path().join("store")).unwrap();
    assert!(entries(&alone) == before, "the file has all runs");
}

/// Its runs are in the backup that it was made from. The next owner backs up a file with other
/// runs.
#[test]
fn a_file_that_was_made_anew_is_sound_after_the_backup_of_another_host() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    append_kept(&store, &first.replica);
    assert!(first.back_up(&store, || true).unwrap());
    drop((store, first));
    // It ends before it has copied the runs.
    let made = succeed(folder.path());
    assert!(made.info().unwrap().runs.iter().any(|run| run.offloaded));
    made.close().unwrap();
    drop(made);
    let mut other = host(folder.path(), Waits::Kept);
    other.path = folder.path().join("lost");
    let store = open(&other).unwrap();
    append_kept(&store, &other.replica);
    append_kept(&store, &other.replica);
    store.compact().unwrap();
    assert!(other.back_up(&store, || true).unwrap());
    let made = host(folder.path(), Waits::Kept);
    let found = made.with_parts(&options()).read_only(true).open(&made.path);
    assert_eq!(found.unwrap().bounds("log").unwrap().next, 2);
}

/// Returns how many files were moved aside.
pub fn aside(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().contains(".replaced-")).count()
}

#[test]
fn a_file_that_was_left_behind_catches_up() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    std::fs::copy(folder.path().join("store"), folder.path().join("old")).unwrap();
    append_kept(&store, &first.replica);
    drop((store, first));
    std::fs::rename(folder.path().join("old"), folder.path().join("store")).unwrap();
    let store = open(&host(folder.path(), Waits::Kept)).unwrap();
    assert_eq!(store.bounds("log").unwrap().next, 2);
    assert_eq!(aside(folder.path()), 0);
}

#[test]
fn a_file_that_diverged_is_moved_to_a_free_name() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    let copy = |name: &str| std::fs::copy(folder.path().join("store"), folder.path().join(name)).unwrap();
    copy("old");
    append_kept(&store, &first.replica);
    drop((store, first));
    let alone = options().open(folder.path().join("old")).unwrap();
    alone.append("log", "nobody was told").unwrap().wait().unwrap();
    drop(alone);
    for _ in 0..3 {
        std::fs::copy(folder.path().join("old"), folder.path().join("store")).unwrap();
        let store = open(&host(folder.path(), Waits::Kept)).unwrap();
        assert_eq!(store.bounds("log").unwrap().next, 2);
        let entries: Vec<_> = store.read("log", ..).unwrap().map(|entry| entry.unwrap().payload).collect();
        assert_eq!(entries, ["entry", "entry"]);
    }
    assert_eq!(aside(folder.path()), 3);
}

#[test]
fn blocks_are_divided_into_portions() {
    let block =
        |len: usize| SealedBlock { begin: 0, end: 0, sum: 0, previous: 0, bytes: vec![0; len].into() };
    let blocks: Vec<_> = [5, 5, 30, 1, 1, 9, 9].map(block).into();
    let lens: Vec<usize> = portions(&blocks, 10).map(<[SealedBlock]>::len).collect();
    assert_eq!(lens, [2, 1, 3, 1]);
    assert_eq!(portions(&[], 10).count(), 0);
}

/// A journal that takes one object of the log, such as the fence of a takeover, and no more.
#[derive(Clone)]
struct Full {
    journal: AnyJournal,
    taken: Arc<AtomicBool>,
}

impl Journal for Full {
    async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
        if matches!(key, Key::Log(_)) && self.taken.swap(true, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.journal.create(key, data).await
    }

    async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
        self.journal.read(key).await
    }

    async fn remove(&self, key: Key) -> Result<(), Error> {
        self.journal.remove(key).await
    }
}

/// The first signal ends an opening that waits for the bucket to take the rest of the file.
#[test]
fn a_signal_ends_the_wait_for_the_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let first = slow_host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    store.abandon();
    first.replica.give_up();
    drop(first);
    let mut second = host(folder.path(), Waits::Local);
    let taken = Arc::new(AtomicBool::new(false));
    let full = Full { journal: second.journal.clone(), taken: taken.clone() };
    second.replica = Replica::new(full, ShipperOptions::default());
    let stop = second.stop.clone();
    thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let second = second;
            open(&second).is_none()
        });
        until(|| taken.load(Ordering::Relaxed));
        stop.cancel();
        assert!(opening.join().unwrap());
    });
}

/// The store waits for the bucket, which takes nothing: the commit is not acknowledged.
#[test]
fn a_clean_end_does_not_wait_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = host(folder.path(), Waits::Kept);
    let full = Full { journal: host.journal.clone(), taken: Arc::new(AtomicBool::new(true)) };
    host.replica = Replica::new(full, ShipperOptions::default());
    host.leaving = Duration::from_millis(100);
    let store = open(&host).unwrap();
    let ticket = store.append("log", "entry").unwrap();
    let stop = host.stop.clone();
    let guard = host.guard(store.clone()).unwrap();
    stop.cancel();
    assert!(store.close().is_err());
    assert!(ticket.wait().is_err());
    guard.end(None).unwrap();
}

/// Two hosts begin at the same moment: the second one continues the store of the first.
#[test]
fn of_two_first_owners_the_second_one_continues_the_store_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let mut second = host(folder.path(), Waits::Local);
    second.path = folder.path().join("second");
    let both = |options: Options| {
        // The second one has found no log, and makes its store.
        if !first.path.exists() {
            let store = open(&first).unwrap();
            append_kept(&store, &first.replica);
        }
        options.open(&second.path)
    };
    let store = second.open(&options(), &both).unwrap().unwrap();
    assert_eq!(store.bounds("log").unwrap().next, 1);
}

#[test]
fn a_signal_ends_the_making_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    drop((store, first));
    std::fs::remove_file(folder.path().join("store")).unwrap();
    let second = host(folder.path(), Waits::Local);
    second.stop.cancel();
    let (kept, claim) = second.kept().unwrap();
    assert!(matches!(second.make_anew(&options(), &kept, &claim), Err(Error::GivenUp)));
    assert!(!second.path.exists());
}

/// A restart would claim the log again, and end its owner each time.
#[test]
fn a_host_whose_file_diverged_claims_the_log_once_and_waits() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    std::fs::copy(folder.path().join("store"), folder.path().join("copy")).unwrap();
    append_kept(&store, &first.replica);
    drop((store, first));
    // The copy goes on by itself.
    let copy = folder.path().join("copy");
    let store = options().open(&copy).unwrap();
    store.append("log", "of the copy").unwrap().wait().unwrap();
    drop(store);
    let mut second = host(folder.path(), Waits::Local);
    second.path = copy;
    let stop = second.stop.clone();
    let claims = || std::fs::read_dir(folder.path().join("bucket/claims")).unwrap().count();
    thread::scope(|scope| {
        let opening = scope.spawn(|| second.open(&options(), &|options| options.open(&second.path)));
        let _stop = stop.clone().drop_guard();
        until(|| claims() == 2);
        thread::sleep(3 * LOOK);
        assert!(!opening.is_finished());
        stop.cancel();
        let failure = opening.join().unwrap().unwrap_err();
        assert!(format!("{failure:?}").contains("diverged"), "{failure:?}");
    });
    assert_eq!(claims(), 2);
}

/// A journal that does not answer.
#[derive(Clone)]
struct Silent;

impl Journal for Silent {
    async fn create(&self, _: Key, _: Bytes) -> Result<Created, Error> {
        std::future::pending().await
    }

    async fn read(&self, _: Key) -> Result<Option<Bytes>, Error> {
        std::future::pending().await
    }

    async fn remove(&self, _: Key) -> Result<(), Error> {
        std::future::pending().await
    }
}

#[test]
fn a_signal_ends_the_requests_of_an_opening() {
    for has_file in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut host = host(folder.path(), Waits::Local);
        host.replica = Replica::new(Silent, ShipperOptions::default());
        if has_file {
            options().open(&host.path).unwrap().close().unwrap();
        }
        let stop = host.stop.clone();
        thread::scope(|scope| {
            let opening = scope.spawn(|| {
                let host = host;
                open(&host).is_none()
            });
            thread::sleep(3 * LOOK);
            stop.cancel();
            assert!(opening.join().unwrap());
        });
    }
}

/// Makes a cluster with a shard, in which the host `one` is a member until the signal.
fn member_of_a_cluster(place: &Path) -> (Cluster<AnyJournal>, Arc<Member>, CancellationToken) {
    std::fs::create_dir_all(place).unwrap();
    let place = place.to_str().unwrap().to_owned();
    let cluster = Cluster::new(AnyJournal::open(&place).unwrap());
    for change in [Change::Begin, Change::AddShard { shard: "a".into() }] {
        cluster.change_now(change, None, &|| true).unwrap();
    }
    let mut given = Given::default();
    (given.cluster, given.shard, given.host) = (Some(place), Some("a".into()), Some("one".into()));
    let signal = CancellationToken::new();
    let member = Member::start(&given, &signal).unwrap().unwrap();
    (cluster, member, signal)
}

/// A signal leaves clients the usual time.
#[test]
fn only_a_move_ends_the_serving_in_a_hurry() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, member, signal) = member_of_a_cluster(folder.path());
    let shard = || "a".to_owned();
    let change = |change| cluster.change_now(change, None, &|| true).unwrap();
    let serve = || {
        let (stop, hurry) = (signal.child_token(), CancellationToken::new());
        member.serve(Epoch::FIRST, Life { stop: stop.clone(), hurry: hurry.clone() });
        (stop, hurry)
    };
    let (stop, hurry) = serve();
    change(Change::Register { shard: shard(), host: "two".into(), url: String::new() });
    change(Change::Move { shard: shard(), to: "two".into() });
    member.part(|part| part.note_log(true, Place::first_of(Epoch(1)), None));
    change(Change::Ready { shard: shard(), host: "two".into(), at: Place::first_of(Epoch::FIRST) });
    until(|| stop.is_cancelled());
    assert!(hurry.is_cancelled());

    let (stop, hurry) = serve();
    signal.cancel();
    assert!(stop.is_cancelled() && !hurry.is_cancelled());
}

/// Such a host claims the log twice: to make its file, and to open it. In the old state it took
/// itself for the host that had claimed the log just before, and the move stayed.
#[test]
fn a_host_without_a_file_cancels_the_move_to_a_host_that_did_not_serve() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, member, signal) = member_of_a_cluster(&folder.path().join("cluster"));
    let (shard, target) = ("a".to_owned(), "two".to_owned());
    for change in [
        Change::Register { shard: shard.clone(), host: target.clone(), url: String::new() },
        Change::Move { shard, to: target.clone() },
    ] {
        cluster.change_now(change, None, &|| true).unwrap();
    }
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    store.close().unwrap();
    drop(store);
    let mut shipping = ShipperOptions::default();
    shipping.owner = target;
    let dies = Replica::new(first.journal.clone(), shipping);
    drop(dies.kept(|number| panic!("backup {number} is not there")).unwrap());
    let mut next = host(folder.path(), Waits::Kept);
    (next.path, next.member) = (folder.path().join("next"), Some(member));
    let store = open(&next).unwrap();
    let guard = next.guard(store.clone()).unwrap();
    until(|| {
        let map = cluster.look_now(None, &|| true).unwrap().unwrap();
        map.shards["a"].moving.is_none()
    });
    store.close().unwrap();
    drop(store);
    guard.end(None).unwrap();
    signal.cancel();
}
