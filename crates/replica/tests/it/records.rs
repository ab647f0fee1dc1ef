//! The records of a shipper: of all calls that wait for one under way, that with the last point
//! counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{BucketJournal, Created, Error, Found, Journal, Key, Shipper, StoreId};
use bytes::Bytes;

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
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
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
