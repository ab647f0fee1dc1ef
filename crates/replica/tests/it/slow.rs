//! Slow links, in virtual time: the log takes all that is sent, a standby sees signs of the owner
//! meanwhile, and a takeover ends.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use brooklet_archive::Bucket;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use brooklet_replica::{
    BucketJournal, Created, Drawn, Epoch, Error, Found, Journal, Key, Mark, Owner, OwnerLimits, Reply,
    Shipper, ShipperOptions, StoreId, Writer, blocks, stand_by,
};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::BoxStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

const STORE: StoreId = StoreId(7);
/// 10 Mbit/s.
const RATE: u64 = 1_250_000;
/// Bytes that a transfer sends before another one has its turn.
const PIECE: u64 = 64 << 10;
/// Number of blocks of the tests, and the bytes of each.
const BLOCKS: u64 = 512;
const BLOCK: usize = 64 << 10;
const MINUTES: Duration = Duration::from_secs(300);

/// A link, which its transfers share.
#[derive(Clone, Default)]
struct Link {
    turn: Arc<Mutex<()>>,
    /// Bytes of the transfers now, and at most.
    bytes: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

/// A transfer, which may be dropped.
struct Transfer<'a>(&'a Link, u64);

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        self.0.bytes.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Link {
    async fn carry(&self, bytes: u64) {
        let now = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(now, Ordering::Relaxed);
        let _transfer = Transfer(self, bytes);
        for piece in 0..bytes.div_ceil(PIECE) {
            let _turn = self.turn.lock().await;
            let len = PIECE.min(bytes - piece * PIECE);
            sleep(Duration::from_micros(len * 1_000_000 / RATE)).await;
        }
    }
}

/// A bucket at the end of a link.
struct Far {
    inner: Arc<InMemory>,
    link: Link,
}

#[async_trait]
impl ObjectStore for Far {
    async fn put_opts(&self, path: &Path, data: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.link.carry(data.content_length() as u64).await;
        self.inner.put_opts(path, data, options).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unimplemented!("not used")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let mut got = self.inner.get_opts(path, options).await?;
        let GetResultPayload::Stream(data) = got.payload else { unreachable!("it is in memory") };
        let link = self.link.clone();
        let carry = move |data: Result<Bytes>| {
            let link = link.clone();
            async move {
                let data = data?;
                link.carry(data.len() as u64).await;
                Ok(data)
            }
        };
        got.payload = GetResultPayload::Stream(data.then(carry).boxed());
        Ok(got)
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

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unimplemented!("not used")
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("far")
    }
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Far")
    }
}

fn near(memory: &Arc<InMemory>) -> BucketJournal {
    BucketJournal::new(&Bucket::of(memory.clone(), "here").unwrap())
}

fn far(memory: &Arc<InMemory>, link: &Link) -> BucketJournal {
    let far = Far { inner: memory.clone(), link: link.clone() };
    BucketJournal::new(&Bucket::of(Arc::new(far), "here").unwrap())
}

/// Runs in a runtime whose clock is the test's.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(test);
}

async fn start(journal: BucketJournal) -> (Shipper, u64) {
    let mut found = 0;
    let count = |it: Found<Bytes>| {
        if let Found::Object(object) = it {
            found += blocks(&object.payload).unwrap().len() as u64;
        }
        Ok(())
    };
    let started = timeout(MINUTES, Shipper::start(journal, STORE, ShipperOptions::default(), count)).await;
    let (shipper, _) = started.expect("the takeover hangs").unwrap();
    (shipper, found)
}

/// Waits until so many blocks are kept.
async fn keep(shipper: &Shipper, blocks: u64) {
    let kept = async {
        while shipper.status().kept_blocks < blocks {
            assert!(shipper.error().is_none());
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(MINUTES, kept).await.expect("the log does not take the blocks");
}

fn ship(shipper: &Shipper) {
    let block = Bytes::from(vec![7; BLOCK]);
    for number in 0..BLOCKS {
        shipper.ship_now(number, number + 1, block.clone()).unwrap();
    }
    shipper.flush();
}

/// In the old state, a few objects had all of the window, none of their requests ended in time, and
/// a standby took the store over meanwhile.
#[test]
fn a_slow_link_takes_all_and_the_owner_shows_signs_meanwhile() {
    run(async {
        let (memory, link) = (Arc::new(InMemory::new()), Link::default());
        let (shipper, _) = start(far(&memory, &link)).await;
        ship(&shipper);
        let beside = Arc::new(near(&memory));
        let mut on = drop;
        let standing = stand_by(&beside, Duration::from_secs(3), &mut on);
        if let Either::Right(_) = select(pin!(keep(&shipper, BLOCKS)), pin!(standing)).await {
            panic!("a standby takes the store from a healthy owner");
        }
    });
}

/// All objects that are read at a time share the link.
#[test]
fn a_takeover_over_a_slow_link_reads_a_few_megabytes_at_a_time() {
    run(async {
        let (memory, link) = (Arc::new(InMemory::new()), Link::default());
        let (shipper, _) = start(near(&memory)).await;
        ship(&shipper);
        keep(&shipper, BLOCKS).await;
        drop(shipper);
        let (_next, found) = start(far(&memory, &link)).await;
        assert_eq!(found, BLOCKS);
        let most = link.most.load(Ordering::Relaxed);
        assert!(most <= 10 << 20, "{most} bytes were under way");
    });
}

/// A block cannot be divided, so its requests have the time that it needs.
#[test]
fn a_large_block_passes_a_slow_link() {
    run(async {
        let (memory, link) = (Arc::new(InMemory::new()), Link::default());
        let (shipper, _) = start(far(&memory, &link)).await;
        shipper.ship_now(0, 1, Bytes::from(vec![7; 24 << 20])).unwrap();
        keep(&shipper, 1).await;
        drop(shipper);
        assert_eq!(start(far(&memory, &link)).await.1, 1);
    });
}

fn owner(beat: Option<Duration>) -> Owner<Bytes> {
    let writer = Writer { store: STORE, epoch: Epoch::FIRST, drawn: Drawn(1) };
    let limits = OwnerLimits { beat, ..OwnerLimits::default() };
    Owner::new(writer, Mark::BEGIN, limits, Duration::ZERO)
}

fn offer(owner: &mut Owner<Bytes>, blocks: std::ops::Range<u64>, len: usize) {
    let payload = Bytes::from(vec![0; len]);
    for block in blocks {
        assert!(owner.offer(block, block + 1, payload.clone()));
    }
}

/// Sends what may be sent, and answers it after a while. Returns the number of requests.
fn round(owner: &mut Owner<Bytes>, now: &mut Duration, millis: u64) -> usize {
    let requests = owner.poll(*now);
    *now += Duration::from_millis(millis);
    for request in &requests {
        owner.answer(request, Reply::Done, *now);
    }
    requests.len()
}

#[test]
fn an_owner_sends_more_while_objects_are_quick_and_less_while_they_take_long() {
    let (mut owner, mut now) = (owner(None), Duration::ZERO);
    offer(&mut owner, 0..100, 512 << 10);
    let rounds = [(2, 100), (3, 100), (5, 100), (7, 100), (8, 1000), (1, 100), (1, 100), (2, 100)];
    for (sent, millis) in rounds {
        assert_eq!(round(&mut owner, &mut now, millis), sent, "{now:?}");
    }
}

/// Small objects are quick on each link, and say nothing of large ones.
#[test]
fn an_owner_begins_with_little_after_small_objects_and_after_a_pause() {
    let (mut small, mut now) = (owner(None), Duration::ZERO);
    for block in 0..50_000 {
        offer(&mut small, block..block + 1, 300);
        assert_eq!(round(&mut small, &mut now, 1), 1);
    }
    offer(&mut small, 50_000..50_010, 512 << 10);
    assert_eq!(round(&mut small, &mut now, 100), 2);

    let (mut pausing, mut now) = (owner(Some(Duration::from_secs(1))), Duration::ZERO);
    offer(&mut pausing, 0..30, 512 << 10);
    let mut most = 0;
    while most < 8 {
        most = round(&mut pausing, &mut now, 100);
    }
    while round(&mut pausing, &mut now, 100) > 0 {}
    now += Duration::from_secs(1);
    assert_eq!(round(&mut pausing, &mut now, 100), 1, "a beat");
    offer(&mut pausing, 30..40, 512 << 10);
    assert_eq!(round(&mut pausing, &mut now, 100), 2);
}

/// The second request would take its share of the link.
#[test]
fn a_long_object_is_sent_again_later_than_a_short_one() {
    let mut owner = owner(None);
    offer(&mut owner, 0..1, 4 << 20);
    let sent = owner.poll(Duration::ZERO);
    assert_eq!(sent.len(), 1);
    assert!(owner.poll(Duration::from_secs(5)).is_empty());
    assert_eq!(owner.poll(Duration::from_secs(6)), sent);
}

/// A journal that refuses to create objects of the log for a while, as if other requests for them
/// were under way.
struct Busy {
    journal: BucketJournal,
    until: Instant,
    creates: Arc<AtomicU64>,
}

impl Journal for Busy {
    async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
        sleep(Duration::from_millis(1)).await;
        if matches!(key, Key::Log(_)) {
            self.creates.fetch_add(1, Ordering::Relaxed);
            if Instant::now() < self.until {
                return Ok(Created::Exists);
            }
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

/// Servers of JetStream say so while too few of them are there. In the old state each reply was
/// followed by the whole object at once, as fast as the link took it.
#[test]
fn an_object_for_which_another_request_is_under_way_is_sent_again_after_a_pause() {
    run(async {
        let (memory, creates) = (Arc::new(InMemory::new()), Arc::<AtomicU64>::default());
        let until = Instant::now() + Duration::from_secs(10);
        let busy = Busy { journal: near(&memory), until, creates: creates.clone() };
        let mut options = ShipperOptions::default();
        options.limits.beat = None;
        let (shipper, _) = Shipper::start(busy, STORE, options, |_| Ok(())).await.unwrap();
        shipper.ship_now(0, 1, Bytes::from_static(b"block")).unwrap();
        keep(&shipper, 1).await;
        let creates = creates.load(Ordering::Relaxed);
        assert!((2..1000).contains(&creates), "{creates}");
    });
}

/// So it is with the fence of a takeover.
#[test]
fn a_fence_for_which_another_request_is_under_way_is_put_again_after_a_pause() {
    run(async {
        let (memory, creates) = (Arc::new(InMemory::new()), Arc::<AtomicU64>::default());
        let (shipper, _) = start(near(&memory)).await;
        shipper.ship_now(0, 1, Bytes::from_static(b"block")).unwrap();
        keep(&shipper, 1).await;
        drop(shipper);
        let until = Instant::now() + Duration::from_secs(10);
        let busy = Busy { journal: near(&memory), until, creates: creates.clone() };
        let taking = Shipper::start(busy, STORE, ShipperOptions::default(), |_| Ok(()));
        let (_next, opened) = timeout(MINUTES, taking).await.expect("the takeover hangs").unwrap();
        assert_eq!(opened.end.lsn, 1);
        let creates = creates.load(Ordering::Relaxed);
        assert!((2..1000).contains(&creates), "{creates}");
    });
}
