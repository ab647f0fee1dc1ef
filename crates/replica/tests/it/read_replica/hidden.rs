//! A log that was trimmed past a replica looks as one without a next object.

use super::*;

/// A journal that shows no object of the log while it hides them, as if all had been trimmed.
#[derive(Clone)]
struct Hiding {
    journal: BucketJournal,
    hides: Arc<AtomicBool>,
}

impl Journal for Hiding {
    async fn create(&self, _: Key, _: Bytes) -> Result<Created, Error> {
        panic!("a replica writes nothing to the log")
    }

    async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
        if matches!(key, Key::Log(_)) && self.hides.load(Ordering::Acquire) {
            return Ok(None);
        }
        self.journal.read(key).await
    }

    async fn remove(&self, _: Key) -> Result<(), Error> {
        panic!("a replica removes nothing of the log")
    }
}

/// The owner appends, backs up and trims between two looks. In the old state each hole counted as
/// the end of the log because the one before it did, for three seconds: the replica seemed to be
/// current, without what was acknowledged meanwhile.
#[test]
fn a_hole_counts_for_a_second_after_the_last_look() {
    let memory = Arc::new(InMemory::new());
    let backups = Backups::new(&memory);
    let mut host = Host::new(&memory, Waits::Kept);
    host.shipping.limits.beat = None;
    let running = host.open().unwrap();
    append(&running, 0..10);
    let (reader, hides) = (Reader::new(&memory), Arc::<AtomicBool>::default());
    let journal = Hiding { journal: journal(&memory, 0, 0), hides: hides.clone() };
    let replica = reader.open_with(journal).unwrap();
    shows(&replica, &running);
    hides.store(true, Ordering::Release);
    append(&running, 10..20);
    let place = running.store.view().unwrap().lsn();
    backups.back_up(&running).unwrap().unwrap();
    settle(&running, 0);
    hides.store(false, Ordering::Release);
    // From here on, each look finds the record.
    let recorded = Instant::now();
    loop {
        let (since, lag) = (recorded.elapsed(), replica.lag());
        if lag.shown >= place {
            break;
        }
        let most = lag.age.unwrap() + Duration::from_secs(1);
        assert!(since <= most, "{lag:?}, {since:?} after the record");
        assert!(replica.error().is_none() && since < LONG, "{lag:?}, {:?}", replica.error());
        std::thread::yield_now();
    }
    assert_eq!(shows(&replica, &running), numbered(20));
    replica.close().unwrap();
    running.kill();
}
