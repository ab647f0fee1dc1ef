//! Backups that shorten the log: the log keeps what they lack, and a successor begins with them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brooklet::io::{MemVolume, Rng};
use brooklet::{View, Waits};
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::object_store::{ObjectStore, ObjectStoreExt};
use brooklet_archive::{Archive, Bucket, Which};
use brooklet_replica::{Error, Mark, Replica};
use futures_util::{FutureExt, TryStreamExt};

use crate::ends::{Gate, OPEN, quiet};
use crate::replica::{Host, Running, entries, journal, options, shipping};

/// The archive of a store, and its note.
pub struct Backups {
    bucket: Bucket,
    folder: tempfile::TempDir,
}

impl Backups {
    pub fn new(memory: &Arc<InMemory>) -> Self {
        Self { bucket: Bucket::of(memory.clone(), "backups").unwrap(), folder: tempfile::tempdir().unwrap() }
    }

    fn archive(&self) -> Archive {
        Archive::new(self.bucket.clone(), self.folder.path().join("note"), "host").unwrap().take_over()
    }

    pub fn back_up(&self, running: &Running) -> Result<Option<brooklet_archive::Archived>, Error> {
        running.replica.back_up(&running.store, &mut self.archive(), || true)
    }

    pub fn view(&self, number: u64) -> View {
        self.bucket.backup(Which::Number(number)).unwrap().view(1 << 20).unwrap()
    }
}

pub fn append(running: &Running, entries: std::ops::Range<u64>) {
    entries.for_each(|n| running.append(&format!("entry {n}")).wait().unwrap());
}

pub fn numbered(count: u64) -> Vec<String> {
    (0..count).map(|n| format!("entry {n}")).collect()
}

/// Waits until the log begins behind a record.
pub fn settle(running: &Running, record: u64) -> Mark {
    let shipper = running.replica.shipper().unwrap();
    while shipper.status().record != Some(record) || shipper.status().is_recording {
        assert!(shipper.error().is_none());
        std::thread::yield_now();
    }
    shipper.status().kept
}

#[test]
fn a_successor_begins_with_the_backup_and_an_old_file_is_named() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let host = Host::new(&memory, Waits::Local);
    let running = host.open().unwrap();
    append(&running, 0..5);
    running.store.close().unwrap();
    let old = host.copy();
    drop(running);
    let running = host.open().unwrap();
    for n in 5..20 {
        append(&running, n..n + 1);
        running.flush();
    }
    let archived = backups.back_up(&running).unwrap().unwrap();
    assert!(backups.back_up(&running).unwrap().is_none(), "nothing is new");
    settle(&running, 0);
    append(&running, 20..30);
    running.flush();
    running.kill();

    let replica = Replica::new(journal(&memory, 0, 0), shipping());
    let (kept, _claim) = replica.kept(|number| Ok(backups.view(number))).unwrap();
    assert_eq!(archived.number, 0);
    assert!(kept.backup.is_some() && kept.blocks.len() < 30);
    let volume = Arc::new(MemVolume::new(9));
    let next = options().succeed_on(volume, &kept).unwrap();
    assert_eq!(entries(&next), numbered(30));
    // The file of a host that was away so long is not said to have diverged.
    let error = old.open().map(drop).unwrap_err();
    assert!(matches!(error, Error::Outdated { .. }), "{error}");
}

/// What is damaged in the file is sound in the log, which must keep it.
#[test]
fn a_backup_with_damaged_parts_does_not_shorten_the_log() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let host = Host::new(&memory, Waits::Kept);
    let running = host.open().unwrap();
    let mut rng = Rng::new(5);
    for n in 0..20 {
        let noise: Vec<u8> = (0..2000).map(|_| rng.below(256) as u8).collect();
        running.store.append(format!("log/{n}"), &noise).unwrap().wait().unwrap();
    }
    running.store.checkpoint().unwrap();
    let run = running.store.info().unwrap().runs[0];
    host.volume.flip((run.offset + run.bytes / 2) as usize, 3);
    append(&running, 0..1);
    let error = backups.back_up(&running).map(drop).unwrap_err();
    assert!(matches!(error, Error::DamagedBackup { number: 0, parts: 1 }), "{error}");
    // The next one finds nothing new, and the damage as it was.
    let error = backups.back_up(&running).map(drop).unwrap_err();
    assert!(matches!(error, Error::DamagedBackup { number: 0, parts: 1 }), "{error}");
    let status = running.replica.status().unwrap();
    assert_eq!((status.record, status.is_recording), (None, false));
    running.kill();
    let replica = Replica::new(journal(&memory, 0, 0), shipping());
    let (kept, _claim) = replica.kept(|_| panic!("no backup is recorded")).unwrap();
    let next = options().succeed_on(Arc::new(MemVolume::new(9)), &kept).unwrap();
    for n in 0..20 {
        assert_eq!(next.read_available(format!("log/{n}"), ..).unwrap().count(), 1, "log {n}");
    }
}

/// Backups share objects. In the old state the owner trimmed the log behind a backup that could not
/// be restored.
#[test]
fn a_backup_without_its_objects_does_not_shorten_the_log() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..3);
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 0);
    let folder = Path::from("backups/bundles");
    let listed: Vec<_> = memory.list(Some(&folder)).try_collect().now_or_never().unwrap().unwrap();
    memory.delete(&listed[0].location).now_or_never().unwrap().unwrap();
    append(&running, 3..6);
    let error = backups.back_up(&running).map(drop).unwrap_err();
    let Error::LostBackup { number: 1, objects: 1, first } = &error else { panic!("{error}") };
    assert!(first.ends_with(listed[0].location.filename().unwrap()), "{error}");
    let status = running.replica.status().unwrap();
    assert_eq!((status.record, status.is_recording), (Some(0), false));
    running.kill();
}

/// With local acknowledgements, too: a takeover loses what the bucket lacks, and a backup that has
/// more would not fit to the log of the next owner.
#[test]
fn a_backup_waits_until_the_log_has_all_of_it() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let host = Host::new(&memory, Waits::Local);
    let gate = Gate::new(&memory, 2);
    let creates = gate.creates.clone();
    let running = host.open_with(Replica::new(gate, quiet(shipping())), options()).unwrap();
    for n in 0..2 {
        append(&running, n..n + 1);
        running.flush();
    }
    // These are in the file, and not in the log.
    append(&running, 2..5);
    std::thread::scope(|scope| {
        let backing_up = scope.spawn(|| backups.back_up(&running).unwrap().unwrap());
        std::thread::park_timeout(Duration::from_millis(200));
        let status = running.replica.status().unwrap();
        assert!(!backing_up.is_finished() && !status.is_recording && status.record.is_none());
        creates.store(OPEN, Ordering::Relaxed);
        assert_eq!(backing_up.join().unwrap().number, 0);
    });
    assert_eq!(backups.view(0).read("log", ..).unwrap().count(), 5);
    settle(&running, 0);
    running.kill();
    let replica = Replica::new(journal(&memory, 0, 0), shipping());
    let (kept, _claim) = replica.kept(|number| Ok(backups.view(number))).unwrap();
    let next = options().succeed_on(Arc::new(MemVolume::new(9)), &kept).unwrap();
    assert_eq!(entries(&next), numbered(5));
}

#[test]
fn an_owner_that_is_fenced_during_a_backup_records_nothing() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let mut often = shipping();
    often.limits.beat = Some(Duration::from_millis(5));
    let mut host = Host::new(&memory, Waits::Local);
    host.shipping = often;
    let running = host.open().unwrap();
    append(&running, 0..1);
    running.flush();
    let other = Replica::new(journal(&memory, 0, 0), shipping());
    let shipper = running.replica.shipper().unwrap();
    // The backup has begun, and copies its parts.
    let goes_on = || {
        drop(other.kept(|_| panic!("no backup is recorded")).unwrap());
        while shipper.error().is_none() {
            std::thread::yield_now();
        }
        true
    };
    let error =
        running.replica.back_up(&running.store, &mut backups.archive(), goes_on).map(drop).unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
    drop(other.kept(|_| panic!("a backup is recorded")).unwrap());
}

/// The first owner died before the bucket had a block, and its disk is lost.
#[test]
fn a_log_without_a_block_is_continued() {
    let memory = Arc::new(InMemory::new());
    let first = Host::new(&memory, Waits::Kept).open().unwrap();
    let id = first.store.info().unwrap().id;
    first.kill();
    let replica = Replica::new(journal(&memory, 0, 0), shipping());
    let (kept, claim) = replica.kept(|_| panic!("no backup is recorded")).unwrap();
    assert!(kept.blocks.is_empty());
    let volume = Arc::new(MemVolume::new(9));
    options().succeed_on(volume.clone(), &kept).unwrap().close().unwrap();
    let next = Host::with_disk(volume, &memory, Waits::Kept).open().unwrap();
    assert_eq!(next.store.info().unwrap().id, id);
    append(&next, 0..3);
    assert_eq!(entries(&next.store), numbered(3));
    while claim.error().is_none() {
        std::thread::yield_now();
    }
    assert!(matches!(claim.error(), Some(Error::Fenced { .. })));
    // A place that nobody has claimed is another thing.
    let empty = Replica::new(journal(&Arc::new(InMemory::new()), 0, 0), shipping());
    assert!(matches!(empty.kept(|_| panic!("no backup is recorded")), Err(Error::NoLog)));
}

/// A standby would take the empty log for the store, and the file would be left behind.
#[test]
fn a_store_that_cannot_begin_a_log_claims_none() {
    let memory = Arc::new(InMemory::new());
    let source = options().create_on(Arc::new(MemVolume::new(5))).unwrap();
    source.append("log", "entry").unwrap().wait().unwrap();
    let volume = Arc::new(MemVolume::new(6));
    options().copy_on(volume.clone(), &source.view().unwrap()).unwrap().close().unwrap();
    let restored = Host::with_disk(volume, &memory, Waits::Kept);
    let used = Host::new(&memory, Waits::Kept);
    let store = options().open_on(used.volume.clone()).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    for host in [restored, used] {
        assert!(matches!(host.open().map(drop), Err(Error::NeedsBackup)));
        let replica = Replica::new(journal(&memory, 0, 0), shipping());
        let kept = replica.kept(|_| panic!("no backup is recorded"));
        assert!(matches!(kept.map(drop), Err(Error::NoLog)));
    }
}

/// Until the next opening, the claim gives signs: else the next standby takes over meanwhile.
#[test]
fn a_claim_gives_signs_until_it_is_dropped() {
    let memory = Arc::new(InMemory::new());
    let first = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&first, 0..1);
    first.kill();
    let mut often = shipping();
    often.limits.beat = Some(Duration::from_millis(5));
    let replica = Replica::new(journal(&memory, 0, 0), often);
    let (_kept, claim) = replica.kept(|_| panic!("no backup is recorded")).unwrap();
    let begin = claim.status().kept.place;
    while claim.status().kept.place < (brooklet_replica::Place { number: begin.number + 5, ..begin }) {
        assert!(claim.error().is_none());
        std::thread::yield_now();
    }
}

/// An owner without commits appends beats. Each takeover would read all of them.
#[test]
fn the_log_of_an_idle_store_begins_behind_its_beats() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let mut host = Host::new(&memory, Waits::Kept);
    host.shipping.limits.beat = Some(Duration::from_millis(1));
    let running = host.open().unwrap();
    append(&running, 0..5);
    running.flush();
    backups.back_up(&running).unwrap().unwrap();
    let mut at = settle(&running, 0);
    for record in 1..3 {
        assert!(backups.back_up(&running).unwrap().is_none(), "there are few beats");
        while running.replica.status().unwrap().kept.place.number < at.place.number + 320 {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        assert_eq!(backups.back_up(&running).unwrap().unwrap().number, 0, "no other backup is needed");
        let end = settle(&running, record);
        let left = memory.list(Some(&Path::from("here/log"))).try_collect::<Vec<_>>().now_or_never();
        let most = (end.place.number - at.place.number) as usize / 2;
        assert!(left.unwrap().unwrap().len() < most, "the beats are still there");
        at = end;
    }
    running.kill();
    // The file continues, and a successor has all of the store.
    let running = host.open().unwrap();
    append(&running, 5..6);
    running.kill();
    let replica = Replica::new(journal(&memory, 0, 0), shipping());
    let (kept, _claim) = replica.kept(|number| Ok(backups.view(number))).unwrap();
    let next = options().succeed_on(Arc::new(MemVolume::new(9)), &kept).unwrap();
    assert_eq!(entries(&next), numbered(6));
}
