//! A file that is made while the owner of the log goes on.

use std::io;

use brooklet::Kept;
use brooklet::io::{FileOptions, Files, OpenMode, SystemFiles, Volume};
use brooklet_archive::object_store::path::Path as Folder;
use brooklet_archive::object_store::{ObjectStore, ObjectStoreExt};
use brooklet_replica::Making;
use futures_util::{FutureExt, TryStreamExt};

use super::*;

/// Files of which no new one is made while the gate is closed.
#[derive(Debug, Default)]
struct Gate(AtomicBool);

impl Files for Gate {
    fn open(&self, path: &Path, mode: OpenMode, options: FileOptions) -> io::Result<Arc<dyn Volume>> {
        while matches!(mode, OpenMode::Create) && self.0.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        SystemFiles.open(path, mode, options)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        SystemFiles.exists(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        SystemFiles.sync_folder(path)
    }
}

/// A closed gate, which a test that fails opens as well.
struct Closed(Arc<Gate>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// The copy of the backup takes longer than the time between two backups. In the old state nothing
/// was read meanwhile, so that each copy was of no use once it was made, and another one began.
#[test]
fn a_log_that_is_shortened_while_a_file_is_made_is_read_all_the_same() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..10);
    let (reader, journal, gate) = (Reader::new(&memory), Stopped::new(&memory), Arc::new(Gate::default()));
    let mut options = ReadReplicaOptions::new(Bucket::of(memory.clone(), "backups").unwrap());
    options.store = Options::new().memory_budget(1 << 20).files(gate.clone());
    options.poll = Duration::from_millis(1);
    let replica = ReadReplica::open(reader.path(), journal.clone(), options, || true).unwrap();
    shows(&replica, &running);
    // Its host sleeps.
    journal.stop(true);
    append(&running, 10..20);
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 0);
    gate.0.store(true, Ordering::Release);
    let closed = Closed(gate);
    journal.stop(false);
    for round in 1..4 {
        append(&running, 10 + 10 * round..20 + 10 * round);
        let place = running.store.view().unwrap().lsn();
        let begin = Instant::now();
        while replica.lag().read < place {
            assert!(begin.elapsed() < Duration::from_secs(60), "nothing is read: {:?}", replica.lag());
            assert!(replica.error().is_none(), "{:?}", replica.error());
            std::thread::yield_now();
        }
        backups.back_up(&running).unwrap().unwrap();
        settle(&running, round);
    }
    let age = replica.lag().age.unwrap();
    assert_eq!(entries(&replica.store()), numbered(10), "the file is not made yet");
    assert!(replica.lag().age.unwrap() > age, "readers do not see all");
    drop(closed);
    assert_eq!(shows(&replica, &running), numbered(50));
    assert_eq!((replica.lag().made_anew, reader.has_put_away()), (1, 0));
    let others = std::fs::read_dir(reader.folder.path()).unwrap().count();
    assert_eq!(others, 1, "nothing but the file stays");
    append(&running, 50..55);
    assert_eq!(shows(&replica, &running), numbered(55));
    replica.close().unwrap();
    running.kill();
}

/// A replica that is closed does not wait for its file to be made.
#[test]
fn a_file_in_the_making_is_given_up_with_its_replica() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..10);
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 0);
    let (reader, gate) = (Reader::new(&memory), Arc::new(Gate::default()));
    gate.0.store(true, Ordering::Release);
    let mut options = ReadReplicaOptions::new(Bucket::of(memory.clone(), "backups").unwrap());
    options.store = Options::new().files(gate.clone());
    let closed = Closed(gate);
    let asked = AtomicU64::new(0);
    let goes_on = || {
        let is_asked = asked.fetch_add(1, Ordering::Relaxed) > 2;
        if is_asked {
            closed.0.0.store(false, Ordering::Release);
        }
        !is_asked
    };
    let opened = ReadReplica::open(reader.path(), Stopped::new(&memory), options, goes_on);
    assert!(matches!(opened, Err(Error::GivenUp)), "{opened:?}");
    assert_eq!(std::fs::read_dir(reader.folder.path()).unwrap().count(), 0, "nothing stays");
    running.kill();
}

/// The open store of a replica writes them. In the old state the store of the new file wrote them,
/// too, and removed them at its end.
#[test]
fn a_file_in_the_making_leaves_the_metrics_of_the_open_store() {
    let folder = tempfile::tempdir().unwrap();
    let (metrics, text) = (folder.path().join("metrics"), "# HELP brooklet_of_the_open_store\n");
    std::fs::write(&metrics, text).unwrap();
    let options = Options::new().metrics_file(&metrics, Duration::from_millis(10));
    let kept = Kept { store: 7, backup: None, blocks: Vec::new() };
    let mut making = Making::start(&options, &folder.path().join("made"), kept, || true).unwrap();
    while !making.is_made().unwrap() {
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read_to_string(&metrics).unwrap(), text);
}

/// Its host sleeps after it has read the first object behind the backup, for longer than backups
/// are kept. In the old state the replica ended, although the log begins behind a later backup.
#[test]
fn a_replica_whose_backup_was_removed_begins_behind_a_later_one() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    append(&running, 0..10);
    let (reader, journal) = (Reader::new(&memory), Stopped::new(&memory));
    let replica = reader.open_with(journal.clone()).unwrap();
    shows(&replica, &running);
    journal.stop(true);
    append(&running, 10..20);
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 0);
    append(&running, 20..25);
    journal.stops_with_an_object.store(true, Ordering::Relaxed);
    journal.stop(false);
    let begin = Instant::now();
    while !journal.is_stopped.load(Ordering::Relaxed) {
        assert!(begin.elapsed() < LONG, "the replica does not begin again: {:?}", replica.lag());
        std::thread::yield_now();
    }
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 1);
    let records = memory.list(Some(&Folder::from("backups/backups")));
    let records: Vec<_> = records.try_collect().now_or_never().unwrap().unwrap();
    let first = records.iter().map(|it| &it.location).min().unwrap();
    memory.delete(first).now_or_never().unwrap().unwrap();
    append(&running, 25..30);
    journal.stop(false);
    assert_eq!(shows(&replica, &running), numbered(30));
    replica.close().unwrap();
    running.kill();
}
