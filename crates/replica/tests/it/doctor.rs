//! The doctor of a cluster finds each kind of damage, and nothing where there is none.

mod beside;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use brooklet::Waits;
use brooklet::io::MemVolume;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::object_store::{ObjectStore, ObjectStoreExt};
use brooklet_archive::{Bucket, Which};
use brooklet_replica::doctor::{Finding, examine, examine_creates, examine_map, time_of};
use brooklet_replica::{
    BucketJournal, Change, Claim, Cluster, Drawn, Epoch, Error, Health, Map, Moving, Object, Place, Record,
    Replica, Shard, Writer,
};
use bytes::Bytes;
use futures_util::{FutureExt, TryStreamExt};
use tokio::time::Instant;

use crate::backups::{Backups, append, settle};
use crate::faulty::{Failing, Faulty};
use crate::replica::{Host, Running, journal, options, shipping};

const GOES_ON: &dyn Fn() -> bool = &|| true;

/// The log of a shard, as three owners left it: the second one handed it over.
struct Log {
    memory: Arc<InMemory>,
    shard: Shard,
    bucket: Bucket,
    backups: Bucket,
    _note: Backups,
}

fn hand_over(running: Running, to: &str) {
    running.store.close().unwrap();
    let shipper = running.replica.shipper().unwrap();
    shipper.hand_over(to);
    while shipper.error().is_none() {
        std::thread::yield_now();
    }
    assert!(matches!(shipper.error(), Some(Error::HandedOver { .. })));
}

impl Log {
    fn new() -> Self {
        let memory = Arc::new(InMemory::new());
        let note = Backups::new(&memory);
        let mut host = Host::new(&memory, Waits::Kept);
        for (life, owner) in (0..3).zip(["one", "two", "one"]) {
            host.shipping.owner = owner.into();
            let running = host.open().unwrap();
            for part in 0..3 {
                append(&running, part..part + 1);
                running.flush();
            }
            if life < 2 {
                note.back_up(&running).unwrap().unwrap();
                settle(&running, life);
            }
            append(&running, 3..5);
            running.flush();
            if life == 1 { hand_over(running, "one") } else { running.kill() }
        }
        let hosts = ["one", "two"].map(|host| (host.to_owned(), String::new())).into();
        let shard = Shard { wanted: "one".into(), hosts, moving: None };
        let bucket = Bucket::of(memory.clone(), "here").unwrap();
        let backups = Bucket::of(memory.clone(), "backups").unwrap();
        Self { memory, shard, bucket, backups, _note: note }
    }

    /// Returns the findings at so long after the last sign of the owner.
    fn after(&self, silence: Duration) -> Vec<Finding> {
        let sign = Health::of(&self.bucket, GOES_ON)
            .ok()
            .flatten()
            .map_or(SystemTime::UNIX_EPOCH, |health| health.sign);
        examine(&self.bucket, &self.backups, "a", &self.shard, sign + silence, GOES_ON).unwrap()
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.after(Duration::ZERO).iter().map(|finding| finding.kind).collect()
    }

    fn has(&self, kind: &str) -> bool {
        self.kinds().contains(&kind)
    }

    fn put(&self, name: impl AsRef<str>, data: impl Into<Bytes>) {
        let path = Path::from(format!("here/{}", name.as_ref()));
        self.memory.put(&path, data.into().into()).now_or_never().unwrap().unwrap();
    }

    fn remove(&self, name: impl AsRef<str>) -> Bytes {
        take(&self.memory, &format!("here/{}", name.as_ref()))
    }

    /// Returns the places of an epoch that have an object, in order.
    fn places(&self, epoch: u64) -> Vec<Place> {
        let folder = Path::from(format!("here/log/{epoch:020}"));
        let found: Vec<_> = self.memory.list(Some(&folder)).try_collect().now_or_never().unwrap().unwrap();
        let number = |name: &str| name.parse().unwrap();
        let mut numbers: Vec<u64> =
            found.iter().map(|found| number(found.location.filename().unwrap())).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|number| Place { epoch: Epoch(epoch), number }).collect()
    }
}

fn take(memory: &InMemory, name: &str) -> Bytes {
    let path = Path::from(name);
    let get = async { memory.get(&path).await.unwrap().bytes().await.unwrap() };
    let data = get.now_or_never().unwrap();
    memory.delete(&path).now_or_never().unwrap().unwrap();
    data
}

#[test]
fn a_sound_log_has_no_finding() {
    let log = Log::new();
    assert_eq!(log.after(Duration::from_secs(10)), []);
}

#[test]
fn an_owner_without_a_sign_is_silent() {
    let found = Log::new().after(Duration::from_millis(10_001));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kind, "silent");
    assert!(found[0].what.contains("the owner one gave the last sign 10 seconds ago"), "{}", found[0].what);
}

/// An owner that has just given a sign is not silent by this time, whatever the clock of this host
/// shows.
#[test]
fn the_time_of_a_bucket_follows_the_signs_in_it() {
    let log = Log::new();
    let sign = Health::of(&log.bucket, GOES_ON).unwrap().unwrap().sign;
    assert!(time_of(&log.bucket, GOES_ON).unwrap() >= sign);
    let probes = Path::from("here/probe");
    let left: Vec<_> = log.memory.list(Some(&probes)).try_collect().now_or_never().unwrap().unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_owner_that_is_not_wanted_is_found_unless_the_shard_moves() {
    let mut log = Log::new();
    log.shard.wanted = "two".into();
    assert_eq!(log.kinds(), ["not-wanted"]);
    log.shard.moving = Some(Moving { to: "two".into(), ready: None });
    assert_eq!(log.kinds(), [""; 0]);
}

#[test]
fn a_shard_that_nobody_serves_is_found() {
    let log = Log { bucket: Bucket::of(Arc::new(InMemory::new()), "here").unwrap(), ..Log::new() };
    assert_eq!(log.kinds(), ["no-log"]);
    let log = Log { shard: Shard::default(), ..log };
    assert_eq!(log.kinds(), ["no-host", "no-log"]);
}

#[test]
fn a_missing_claim_or_fence_or_backup_is_found() {
    let log = Log::new();
    for epoch in [1, 2] {
        let claim = log.remove(Claim::name(Epoch(epoch)));
        assert!(log.has("claims-missing"), "{:?}", log.kinds());
        log.put(Claim::name(Epoch(epoch)), claim);
    }
    let fence = log.places(1).pop().unwrap().to_string();
    let data = log.remove(&fence);
    assert_eq!(log.kinds(), ["fences-missing"]);
    log.put(&fence, data);
    assert_eq!(log.kinds(), [""; 0]);
    let log = Log { backups: Bucket::of(Arc::new(InMemory::new()), "backups").unwrap(), ..log };
    assert_eq!(log.kinds(), ["no-backup"]);
}

/// In the old state the record of the backup was enough for the doctor.
#[test]
fn a_backup_without_one_of_its_objects_is_found() {
    let log = Log::new();
    let folder = Path::from("backups/bundles");
    let listed: Vec<_> = log.memory.list(Some(&folder)).try_collect().now_or_never().unwrap().unwrap();
    let is_of_the_last = |name: &String| name.contains("/00000000000000000001-");
    let name = listed.into_iter().map(|it| it.location.to_string()).find(is_of_the_last).unwrap();
    let data = take(&log.memory, &name);
    let put = |data: Bytes| {
        log.memory.put(&Path::from(&*name), data.into()).now_or_never().unwrap().unwrap();
    };
    let is_found = || {
        let found = log.after(Duration::ZERO);
        let [Finding { kind: "backup-parts-missing", what }] = &found[..] else { panic!("{found:?}") };
        assert!(what.contains(&name), "{what}");
    };
    is_found();
    put(data.slice(1..));
    is_found();
    put(data);
    assert_eq!(log.kinds(), [""; 0]);
}

/// An epoch that was trimmed as a whole: an object that came late is no fence.
#[test]
fn a_missing_fence_is_found_among_objects_that_came_late() {
    let log = Log::new();
    let store = Health::of(&log.bucket, GOES_ON).unwrap().unwrap().store;
    let mut record = Record::decode(store, 1, &log.remove(Record::name(1))).unwrap();
    record.trimmed = Place::first_of(Epoch(2));
    record.ends.retain(|epoch, _| *epoch >= Epoch(2));
    log.put(Record::name(1), record.encode(store));
    let [fence] = log.places(1)[..] else { panic!("{:?}", log.places(1)) };
    let place = log.places(3)[0];
    let data = log.remove(place.to_string());
    log.put(place.to_string(), data.clone());
    let late = Object { by: Epoch(1), place: fence.next(), ..Object::decode(store, place, &data).unwrap() };
    log.put(late.place.to_string(), late.encode(store));
    assert_eq!(log.kinds(), [""; 0]);
    log.remove(fence.to_string());
    assert_eq!(log.kinds(), ["fences-missing"]);
}

/// In the old state the doctor listed all numbers between.
#[test]
fn a_claim_of_a_large_number_does_not_end_the_doctor() {
    let log = Log::new();
    let (claim, map) = ("claims/00000009000000000000", "map/00000009000000000000");
    log.put(claim, "");
    let found = log.after(Duration::ZERO);
    let [Finding { kind: "claims-missing", what }] = &found[..] else { panic!("{found:?}") };
    assert!(what.contains("8999999999996 of 9000000000000 claims are missing"), "{what}");
    assert!(what.contains(&Claim::name(Epoch(4))), "{what}");
    log.remove(claim);
    for folder in ["claims", "records"] {
        log.put(format!("{folder}/{}", u64::MAX), "");
        assert!(!log.kinds().is_empty());
        log.remove(format!("{folder}/{}", u64::MAX));
    }
    log.put(map, "");
    assert_eq!(examine_map(&log.bucket, None, GOES_ON).unwrap()[0].kind, "maps-missing");
}

/// Its host died before its first fence, and the owner before it serves on.
#[test]
fn a_claim_that_led_to_nothing_names_no_owner() {
    let log = Log::new();
    let before = Health::of(&log.bucket, GOES_ON).unwrap().unwrap();
    let writer = |epoch| Writer { store: before.store, epoch: Epoch(epoch), drawn: Drawn(9) };
    for epoch in [4, 5] {
        let claim = Claim { writer: writer(epoch), owner: "two".into(), address: String::new() };
        log.put(Claim::name(Epoch(epoch)), claim.encode());
        let health = Health::of(&log.bucket, GOES_ON).unwrap().unwrap();
        assert_eq!((health.claim.owner, health.claimed), ("one".into(), Epoch(epoch)));
        assert_eq!((health.end, health.sign), (before.end, before.sign));
        assert_eq!(log.kinds(), [""; 0]);
    }
    log.put(before.end.to_string(), Object::<Bytes>::fence(&writer(5), before.end).encode(before.store));
    let health = Health::of(&log.bucket, GOES_ON).unwrap().unwrap();
    assert_eq!((&*health.claim.owner, health.end), ("two", Place::first_of(Epoch(5))));
    assert_eq!(log.kinds(), ["not-wanted"]);
}

/// An owner sends several objects at once, so that some may come behind the fence that ended its
/// epoch. In the old state each was a sign of that owner, although another host has the store.
#[test]
fn an_object_behind_a_fence_is_no_sign_of_a_former_owner() {
    let log = Log::new();
    let before = Health::of(&log.bucket, GOES_ON).unwrap().unwrap();
    let writer = Writer { store: before.store, epoch: Epoch(4), drawn: Drawn(9) };
    let claim = Claim { writer, owner: "two".into(), address: String::new() };
    log.put(Claim::name(Epoch(4)), claim.encode());
    let last = *log.places(3).last().unwrap();
    let data = log.remove(last.to_string());
    log.put(last.to_string(), data.clone());
    log.put(before.end.to_string(), Object::<Bytes>::fence(&writer, before.end).encode(before.store));
    let mut late = Object::decode(before.store, last, &data).unwrap();
    late.place = before.end;
    for _ in 0..5 {
        late.place = late.place.next();
        log.put(late.place.to_string(), late.encode(before.store));
        let health = Health::of(&log.bucket, GOES_ON).unwrap().unwrap();
        assert_eq!((&*health.claim.owner, health.end), ("two", Place::first_of(Epoch(4))));
    }
    assert_eq!(log.kinds(), ["not-wanted"]);
}

/// In the old state the doctor waited for a second in which the owner gave no sign.
#[test]
fn the_doctor_ends_beside_an_owner_that_commits() {
    let log = Log::new();
    let replica = Replica::new(journal(&log.memory, 0, 0), shipping());
    let view = |number| Ok(log.backups.backup(Which::Number(number))?.view(1 << 20)?);
    let (kept, _claim) = replica.kept(view).unwrap();
    let volume = Arc::new(MemVolume::new(9));
    options().succeed_on(volume.clone(), &kept).unwrap().close().unwrap();
    let running = Host::with_disk(volume, &log.memory, Waits::Kept).open().unwrap();
    let (is_done, begin) = (AtomicBool::new(false), Instant::now());
    let goes_on = || begin.elapsed() < Duration::from_secs(300);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                append(&running, number..number + 1);
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let found = examine(&log.bucket, &log.backups, "a", &log.shard, SystemTime::UNIX_EPOCH, &goes_on);
        is_done.store(true, Ordering::Relaxed);
        found
    });
    let found = found.unwrap();
    assert!(found.iter().all(|finding| finding.kind == "not-wanted"), "{found:?}");
    running.kill();
}

#[test]
fn a_missing_record_is_found() {
    let log = Log::new();
    let first = log.remove(Record::name(0));
    assert!(log.has("records-missing"), "{:?}", log.kinds());
    log.put(Record::name(0), first);
    assert_eq!(log.kinds(), [""; 0]);
}

/// Of an epoch that a later one has ended.
#[test]
fn an_object_that_is_missing_before_a_fence_is_found() {
    let log = Log::new();
    let places = log.places(2);
    let [.., missing, _handover, _fence] = places[..] else { panic!("{places:?}") };
    log.remove(missing.to_string());
    let found = log.after(Duration::ZERO);
    let [Finding { kind: "objects-missing", what }] = &found[..] else { panic!("{found:?}") };
    assert!(what.contains(&format!("{missing} is missing")), "{what}");
}

/// Objects that an owner sends at once may come in any order.
#[test]
fn a_hole_that_is_larger_than_the_window_is_found() {
    let log = Log::new();
    let end = log.places(3).pop().unwrap().next();
    let later = |by: u64| Place { number: end.number + by, ..end }.to_string();
    log.put(later(64), "in flight");
    assert_eq!(log.kinds(), [""; 0]);
    log.put(later(65), "too far");
    let found = log.after(Duration::ZERO);
    let [Finding { kind: "objects-missing", what }] = &found[..] else { panic!("{found:?}") };
    assert!(what.contains(&format!("{end} is missing")), "{what}");
}

/// The backups of the owner fail for days, or cannot be recorded. In the old state only the log of
/// that host said so, until a takeover had millions of objects to read.
#[test]
fn a_log_that_no_backup_shortens_is_found() {
    let log = Log::new();
    let end = log.places(3).pop().unwrap().next();
    let put = |count: std::ops::Range<u64>| {
        count.for_each(|by| log.put(Place { number: end.number + 1000 + by, ..end }.to_string(), ""));
    };
    put(0..190_000);
    assert!(!log.has("long-log"), "{:?}", log.kinds());
    put(190_000..200_001);
    let found = log.after(Duration::ZERO);
    let what = found.into_iter().find(|finding| finding.kind == "long-log").unwrap().what;
    assert!(what.contains("objects behind its last backup"), "{what}");
}

#[test]
fn a_log_that_cannot_be_read_is_found() {
    let log = Log::new();
    let object = log.places(3)[1].to_string();
    for name in [object, Record::name(1), Claim::name(Epoch(3))] {
        let sound = log.remove(&name);
        log.put(&name, "nothing");
        let found = log.after(Duration::ZERO);
        let [Finding { kind: "log-damaged", what }] = &found[..] else { panic!("{name}: {found:?}") };
        assert!(what.contains(&name), "{what}");
        log.put(&name, sound);
    }
    assert_eq!(log.kinds(), [""; 0]);
    // Each is whole, and of this place, but they do not follow each other.
    let store = Health::of(&log.bucket, GOES_ON).unwrap().unwrap().store;
    let place = log.places(3)[2];
    let sound = Object::decode(store, place, &log.remove(place.to_string())).unwrap();
    log.put(place.to_string(), Object { previous: sound.previous + 1, ..sound }.encode(store));
    let found = log.after(Duration::ZERO);
    let [Finding { kind: "log-damaged", what }] = &found[..] else { panic!("{found:?}") };
    assert!(what.contains("does not follow"), "{what}");
}

#[test]
fn a_missing_map_is_found() {
    let memory = Arc::new(InMemory::new());
    let bucket = Bucket::of(memory.clone(), "cluster").unwrap();
    let kinds = |newest| -> Vec<_> {
        let found = examine_map(&bucket, newest, GOES_ON).unwrap();
        found.into_iter().map(|finding| (finding.kind, finding.what)).collect()
    };
    assert_eq!(kinds(None), []);
    let cluster = Cluster::new(BucketJournal::new(&bucket));
    let add = |shard: &str| Change::AddShard { shard: shard.into() };
    for change in [Change::Begin, add("a"), add("b")] {
        cluster.change_now(change, None, GOES_ON).unwrap();
    }
    assert_eq!(kinds(Some(3)), []);
    // A host that has seen the newest map misses it. One that finds no map looks at the others.
    for (missing, newest) in [(1, None), (2, Some(1)), (2, Some(3)), (3, Some(3))] {
        let name = Map::name(missing);
        let path = format!("cluster/{name}");
        let data = take(&memory, &path);
        let found = kinds(newest);
        let [("maps-missing", what)] = &found[..] else { panic!("{missing}: {found:?}") };
        assert!(what.contains(&name), "{what}");
        memory.put(&Path::from(path), data.into()).now_or_never().unwrap().unwrap();
    }
    assert_eq!(kinds(Some(3)), []);
}

#[test]
fn a_bucket_with_several_winners_is_found() {
    let found = |failing| {
        let store = Faulty::new(Arc::default(), failing, 1);
        examine_creates(&Bucket::of(Arc::new(store), "there").unwrap(), GOES_ON)
    };
    assert_eq!(found(Failing::Percent(0)).unwrap(), []);
    for failing in [Failing::Unconditional, Failing::CheckThenWrite] {
        let found = found(failing).unwrap();
        let [Finding { kind: "not-atomic", what }] = &found[..] else { panic!("{found:?}") };
        assert!(what.contains("won at once"), "{what}");
    }
    // That is no finding, and no sound bucket either.
    assert!(matches!(found(Failing::ReadOnly), Err(Error::Bucket { .. })));
}
