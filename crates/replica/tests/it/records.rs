//! The records of a shipper: of all calls that wait for one under way, that with the last point
//! counts. None waits for the trim of the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{BucketJournal, Created, Epoch, Error, Found, Journal, Key, Place, Shipper, StoreId};
use bytes::Bytes;
use tokio::time::{sleep, timeout};

use crate::ends::quiet;
use crate::replica::{journal, shipping};

const STORE: StoreId = StoreId(7);

/// A journal that creates no record until it is open.
#[derive(Clone)]
struct Shut {
    journal: BucketJournal,
    is_open: Arc<AtomicBool>,
}

impl Journal for Shut {
    async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
        while matches!(key, Key::Record(_)) && !self.is_open.load(Ordering::Acquire) {
            sleep(Duration::from_millis(1)).await;
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

/// Two backups may end in another order than they began. In the old state the earlier one, which
/// ended last, took the place of the later one, and the log stayed longer than it had to be.
#[test]
fn a_later_point_waits_for_its_record_although_an_earlier_one_comes_after_it() {
    let memory = Arc::new(InMemory::new());
    let shut = Shut { journal: journal(&memory, 0, 0), is_open: Arc::default() };
    let (shipper, _) = Shipper::open(shut.clone(), STORE, quiet(shipping()), |_| Ok(())).unwrap();
    let mut marks = Vec::new();
    for block in 0..3 {
        let number = shipper.ship(block, block + 1, b"block").unwrap();
        shipper.flush();
        shipper.wait(number).unwrap();
        marks.push(shipper.status().kept);
    }
    // The first record is under way until the journal is open.
    for at in [0, 2, 1] {
        shipper.record(marks[at], at as u64);
    }
    shut.is_open.store(true, Ordering::Release);
    while shipper.status().is_recording {
        assert!(shipper.error().is_none());
        std::thread::yield_now();
    }
    drop(shipper);
    let mut last = None;
    let found = |it: Found<Bytes>| {
        if let Found::Begin(record) = it {
            last = record;
        }
        Ok(())
    };
    drop(Shipper::open(journal(&memory, 0, 0), STORE, quiet(shipping()), found).unwrap());
    let last = last.unwrap();
    assert_eq!((last.mark, last.backup), (marks[2], 2));
}

/// A journal that removes nothing.
#[derive(Clone)]
pub struct Sticky(pub BucketJournal);

impl Journal for Sticky {
    async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
        self.0.create(key, data).await
    }

    async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
        self.0.read(key).await
    }

    async fn remove(&self, key: Key) -> Result<(), Error> {
        Err(Error::NoAnswer { doing: format!("removing {key}"), seconds: 0 })
    }
}

/// Runs in a runtime whose clock is the test's.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(test);
}

async fn until(is_done: impl Fn() -> bool) {
    let wait = async {
        while !is_done() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(600), wait).await.expect("it takes for ever");
}

/// Somebody has taken the right to remove objects away, or millions of objects are to be removed.
/// In the old state no further backup was recorded meanwhile, and the log grew without a bound.
#[test]
fn a_record_does_not_wait_for_the_trim_behind_the_one_before() {
    run(async {
        let memory = Arc::new(InMemory::new());
        let sticky = Sticky(journal(&memory, 0, 0));
        let (shipper, _) = Shipper::start(sticky, STORE, quiet(shipping()), |_| Ok(())).await.unwrap();
        for block in 0..3 {
            shipper.ship_now(block, block + 1, Bytes::from_static(b"block")).unwrap();
            shipper.flush();
            until(|| shipper.status().kept_blocks > block).await;
            shipper.record(shipper.status().kept, block);
            until(|| shipper.status().record == Some(block)).await;
        }
        assert!(shipper.status().is_recording, "the log is trimmed");
        drop(shipper);
        let next = Shipper::start(journal(&memory, 0, 0), STORE, quiet(shipping()), |_| Ok(()));
        let (_next, opened) = next.await.unwrap();
        assert_eq!(opened.record, Some(2));
        assert_eq!(opened.trimmed, Place::first_of(Epoch::FIRST));
    });
}
