//! The doctor beside hosts that go on: what changes while it looks is no damage.

use std::fmt;
use std::future::ready;
use std::sync::Mutex;

use async_trait::async_trait;
use brooklet_archive::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use brooklet_replica::StoreId;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::*;

/// A bucket that changes while somebody looks at it.
struct Changing {
    inner: Arc<InMemory>,
    /// These objects were made after each list.
    later: Vec<Path>,
    /// A change that comes just before this object is read for the first time.
    change: Mutex<Option<(Path, Change)>>,
}

type Change = Box<dyn FnOnce() + Send>;

impl fmt::Display for Changing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("changing")
    }
}

impl fmt::Debug for Changing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changing")
    }
}

#[async_trait]
impl ObjectStore for Changing {
    async fn put_opts(&self, path: &Path, data: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, data, options).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unimplemented!("not used")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let change = self.change.lock().unwrap().take_if(|(before, _)| *before == *path);
        if let Some((_, change)) = change {
            change();
        }
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let later = self.later.clone();
        let is_early = move |found: &ObjectMeta| ready(!later.contains(&found.location));
        self.inner.list(prefix).try_filter(is_early).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unimplemented!("not used")
    }
}

fn path(name: impl fmt::Display) -> Path {
    Path::from(format!("here/{name}"))
}

impl Log {
    /// Returns the log in a bucket that changes.
    fn changing(&self, later: Vec<Path>, change: Option<(Path, Change)>) -> Bucket {
        let changing = Changing { inner: self.memory.clone(), later, change: Mutex::new(change) };
        Bucket::of(Arc::new(changing), "here").unwrap()
    }

    fn kinds_of(&self, bucket: &Bucket) -> Vec<&'static str> {
        let now = SystemTime::UNIX_EPOCH;
        let found = examine(bucket, &self.backups, "a", &self.shard, now, GOES_ON).unwrap();
        found.iter().map(|finding| finding.kind).collect()
    }

    fn read(&self, name: impl fmt::Display) -> Bytes {
        let name = path(name);
        let read = async { self.memory.get(&name).await.unwrap().bytes().await.unwrap() };
        read.now_or_never().unwrap()
    }

    fn store(&self) -> StoreId {
        Health::of(&self.bucket, GOES_ON).unwrap().unwrap().store
    }

    /// Returns the place of the fence that ends an epoch: the first one.
    fn fence(&self, epoch: u64) -> Place {
        let store = self.store();
        let is_fence = |place: &Place| Object::decode(store, *place, &self.read(place)).unwrap().is_fence();
        self.places(epoch).into_iter().find(is_fence).unwrap()
    }

    /// Returns the change by which the owner lets the log begin at a place of its epoch.
    fn trim(&self, to: Place) -> Change {
        let (store, fence) = (self.store(), self.fence(2));
        let mut record = Record::decode(store, 1, &self.read(Record::name(1))).unwrap();
        record.ends.insert(fence.epoch, fence.number);
        (record.number, record.mark.place) = (2, to);
        let trimmed = self.places(3).into_iter().filter(move |place| *place < to);
        let (memory, name) = (self.memory.clone(), path(Record::name(2)));
        Box::new(move || {
            let put = memory.put(&name, record.encode(store).into());
            put.now_or_never().unwrap().unwrap();
            trimmed.for_each(|place| drop(take(&memory, &format!("here/{place}"))));
        })
    }
}

/// In the old state, "commits are lost to a takeover".
#[test]
fn a_log_that_is_trimmed_while_the_doctor_reads_it_is_sound() {
    let log = Log::new();
    let places = log.places(3);
    let last = *places.last().unwrap();
    let far = Place { number: last.number + 70, ..last };
    log.put(far.to_string(), "listed, and not read");
    // The search for the end of the log passes the second place by.
    let bucket = log.changing(Vec::new(), Some((path(places[1]), log.trim(far))));
    assert_eq!(log.kinds_of(&bucket), [""; 0]);
}

/// In the old state, "stop all hosts of the shard".
#[test]
fn a_claim_or_a_fence_that_comes_while_the_doctor_looks_is_there() {
    let log = Log::new();
    let writer = Writer { store: log.store(), epoch: Epoch(4), drawn: Drawn(9) };
    let claim = Claim { writer, owner: "two".into(), address: String::new() };
    log.put(Claim::name(Epoch(4)), claim.encode());
    for later in [path(Claim::name(Epoch(4))), path(log.fence(1))] {
        let bucket = log.changing(vec![later.clone()], None);
        assert_eq!(log.kinds_of(&bucket), [""; 0], "{later}");
    }
}

/// In the old state its end was one that had been trimmed, so that its last sign could not be read.
#[test]
fn the_health_of_a_log_that_is_trimmed_meanwhile_is_that_after_the_trim() {
    let log = Log::new();
    let expected = Health::of(&log.bucket, GOES_ON).unwrap().unwrap();
    let places = log.places(3);
    let last = *places.last().unwrap();
    let bucket = log.changing(Vec::new(), Some((path(places[2]), log.trim(last))));
    let health = Health::of(&bucket, GOES_ON).unwrap().unwrap();
    assert_eq!((health.end, health.sign), (expected.end, expected.sign));
    assert_eq!(health.record.unwrap().number, 2);
}
