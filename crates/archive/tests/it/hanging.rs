//! A request that hangs: only those wait who need its answer.

use std::fmt;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use brooklet::{Options, Store};
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use brooklet_archive::{Archiver, Parts, Schedule, Which};
use futures_util::stream::BoxStream;
use tokio::sync::Semaphore;

use crate::common::{archive, back_up, bucket, contents, fill, restored, store};

/// Far more than anything takes that does not wait for the request that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An object store in which the next read of what a name tells hangs, until it is let go on.
#[derive(Debug)]
struct Hanging {
    inner: InMemory,
    /// How many reads are to hang, and of what.
    to_hang: Mutex<(usize, &'static str)>,
    hangs: Semaphore,
    goes_on: Semaphore,
}

impl Hanging {
    fn new() -> Self {
        let [hangs, goes_on] = [0, 0].map(Semaphore::new);
        Self { inner: InMemory::new(), to_hang: Default::default(), hangs, goes_on }
    }

    fn hang(&self, reads: usize, of: &'static str) {
        *self.to_hang.lock().unwrap() = (reads, of);
    }

    fn is_hanging(&self) -> bool {
        self.hangs.available_permits() > 0
    }
}

impl fmt::Display for Hanging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hanging")
    }
}

#[async_trait]
impl ObjectStore for Hanging {
    async fn put_opts(&self, path: &Path, data: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, data, options).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unimplemented!("not used")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let hangs = {
            let mut to_hang = self.to_hang.lock().unwrap();
            let hangs = to_hang.0 > 0 && path.as_ref().contains(to_hang.1);
            to_hang.0 -= usize::from(hangs);
            hangs
        };
        if hangs {
            self.hangs.add_permits(1);
            self.goes_on.acquire().await.expect("it is never closed").forget();
        }
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Waits until a read hangs.
fn until_it_hangs(hanging: &Hanging) {
    while !hanging.is_hanging() {
        std::thread::yield_now();
    }
}

fn large() -> Store {
    let store = Options::new().create_on(Arc::new(brooklet::io::MemVolume::new(1))).unwrap();
    fill(&store, "log", 500, 3000);
    store
}

#[test]
fn others_read_while_a_request_hangs() {
    let (hanging, dir) = (Arc::new(Hanging::new()), tempfile::tempdir().unwrap());
    let store = large();
    back_up(&mut archive(&hanging, &dir.path().join("note")), &store).unwrap();
    let view = bucket(&hanging).backup(Which::Latest).unwrap().view(64 << 20).unwrap();
    // The index is known by now.
    let read =
        |log: u32| view.read(format!("log/{log:04}"), ..).unwrap().map(Result::unwrap).fold(0, |n, _| n + 1);
    assert_eq!(read(0), 2);
    hanging.hang(1, "bundles");
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let (read, both) = (&read, [tell.clone(), tell.clone()]);
        for tell in both {
            // The second one needs the same bytes.
            scope.spawn(move || tell.send((450, read(450))).unwrap());
            until_it_hangs(&hanging);
        }
        for log in [50, 150, 250, 350] {
            let tell = tell.clone();
            scope.spawn(move || tell.send((log, read(log))).unwrap());
        }
        let others: Vec<_> = (0..4).map(|_| told.recv_timeout(PATIENCE)).collect();
        // Before anything is found wrong: all of them have to end.
        hanging.goes_on.add_permits(1);
        for other in others {
            let (log, entries) = other.expect("nobody else waits");
            assert!(log != 450 && entries == 2, "{log}");
        }
        for _ in 0..2 {
            assert_eq!(told.recv_timeout(PATIENCE).unwrap(), (450, 2));
        }
    });
}

/// Whoever asks for what is not in the backup that is known looks for a newer one; others go on
/// with the one that is known.
#[test]
fn parts_are_opened_while_a_newer_backup_is_looked_for() {
    let (hanging, dir) = (Arc::new(Hanging::new()), tempfile::tempdir().unwrap());
    let store = large();
    let mut archive = archive(&hanging, &dir.path().join("note"));
    archive.backup(&store, brooklet::Progress::ignore).unwrap();
    let old = store.view().unwrap().parts()[0].name();
    let parts = Parts::new(&bucket(&hanging), 1 << 20);
    parts.open(old).unwrap();
    fill(&store, "new", 50, 3000);
    back_up(&mut archive, &store).unwrap();
    let new = store.view().unwrap().parts().iter().map(|part| part.name()).find(|name| *name != old).unwrap();
    hanging.hang(1, "backups");
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let (parts, slow) = (&parts, tell.clone());
        scope.spawn(move || slow.send(parts.open(new).map(|_| new).unwrap()).unwrap());
        until_it_hangs(&hanging);
        scope.spawn(move || tell.send(parts.open(old).map(|_| old).unwrap()).unwrap());
        let first = told.recv_timeout(PATIENCE);
        hanging.goes_on.add_permits(1);
        assert!(first.expect("nobody else waits") == old);
        assert!(told.recv_timeout(PATIENCE).unwrap() == new);
    });
}

/// A process that starts again looks for the last backup after it has taken its view.
#[test]
pub fn what_is_committed_while_a_backup_looks_around_is_shipped_behind_it() {
    let (hanging, dir) = (Arc::new(Hanging::new()), tempfile::tempdir().unwrap());
    let (store, note) = (store(1), dir.path().join("note"));
    fill(&store, "before", 3, 100);
    back_up(&mut archive(&hanging, &note), &store).unwrap();
    fill(&store, "since", 3, 100);
    let before = contents(&store);
    let mut archive = archive(&hanging, &note);
    archive.follow(&store).unwrap();
    hanging.hang(1, "backups");
    let backed_up = std::thread::scope(|scope| {
        scope.spawn(|| {
            until_it_hangs(&hanging);
            fill(&store, "meanwhile", 3, 100);
            hanging.goes_on.add_permits(1);
        });
        let backed_up = back_up(&mut archive, &store);
        // Where it did not hang, nobody may wait for that.
        hanging.hangs.add_permits(1);
        backed_up
    });
    assert_eq!(backed_up.unwrap().number, 1);
    assert!(restored(&bucket(&hanging), Which::Number(1)) == before);
    assert_eq!(archive.ship().unwrap().unwrap().objects, 1);
    assert!(restored(&bucket(&hanging), Which::Latest) == contents(&store));
}

/// The end of an archiver does not wait for a request that has no answer: a program that ends drops
/// its archiver first.
#[test]
fn an_archiver_is_dropped_while_a_request_hangs() {
    let (hanging, dir) = (Arc::new(Hanging::new()), tempfile::tempdir().unwrap());
    let (store, note) = (store(1), dir.path().join("note"));
    fill(&store, "log", 3, 100);
    hanging.hang(1, "backups");
    let archiver = Archiver::start(archive(&hanging, &note), store.clone(), Schedule::default()).unwrap();
    until_it_hangs(&hanging);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            drop(archiver);
            tell.send(()).unwrap();
        });
        let dropped = told.recv_timeout(PATIENCE);
        // Before anything is found wrong: the request has to end.
        hanging.goes_on.add_permits(1);
        dropped.expect("the request still hangs");
    });
    assert_eq!(back_up(&mut archive(&hanging, &note), &store).unwrap().number, 0);
}
