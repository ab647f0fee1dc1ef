//! What hosts report about a bucket that does not answer them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{Created, Error, Follower, Journal, Key, Mark, Shipper, StoreId, follow};
use bytes::Bytes;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::records::{Sticky, run};
use crate::replica::{journal, shipping};

const STORE: StoreId = StoreId(7);

/// A subscriber that keeps the levels of messages for people.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<Vec<Level>>>);

impl Subscriber for Levels {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A journal that does not answer some requests for the first object, and has garbage there, or
/// nothing.
struct Silent {
    requests: AtomicU32,
    has_garbage: bool,
}

impl Journal for Silent {
    async fn create(&self, key: Key, _: Bytes) -> Result<Created, Error> {
        panic!("a follower creates {key}")
    }

    async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
        let is_first = key == Key::Log(Mark::BEGIN.place);
        let one_less = |left: u32| left.checked_sub(1);
        if is_first && self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Err(Error::NoAnswer { doing: key.to_string(), seconds: 10 });
        }
        Ok((is_first && self.has_garbage).then(|| Bytes::from_static(b"garbage")))
    }

    async fn remove(&self, key: Key) -> Result<(), Error> {
        panic!("a follower removes {key}")
    }
}

/// In the old state, a follower that ends for good first reported that all is well again.
#[test]
fn an_error_that_stays_is_no_answer() {
    for (has_garbage, want) in [(true, vec![Level::WARN]), (false, vec![Level::WARN, Level::INFO])] {
        let journal = Arc::new(Silent { requests: AtomicU32::new(5), has_garbage });
        let (levels, silence) = (Levels::default(), Duration::from_secs(3));
        let following = async {
            let mut follower = Follower::new(STORE, Mark::BEGIN, None, silence, Duration::ZERO);
            follow(&journal, STORE, &mut follower, Duration::from_millis(200), |_| Ok(()), |_| ()).await
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap();
        let ended = tracing::subscriber::with_default(levels.clone(), || runtime.block_on(following));
        assert_eq!(matches!(ended, Err(Error::Damaged { .. })), has_garbage);
        assert_eq!(*levels.0.lock().unwrap(), want);
    }
}

/// The owner goes on with all but that. In the old state, each beat reported that all is well
/// again, and the next failures reported the opposite.
#[test]
fn an_object_that_stays_is_reported_once() {
    let levels = Levels::default();
    let owner = async {
        let journal = Sticky(journal(&Arc::new(InMemory::new()), 0, 0));
        let (shipper, _) = Shipper::start(journal, STORE, shipping(), |_| Ok(())).await.unwrap();
        shipper.ship_now(0, 1, Bytes::from_static(b"block")).unwrap();
        while shipper.status().kept_blocks < 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        shipper.record(shipper.status().kept, 0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(shipper.error().is_none() && shipper.status().is_recording);
    };
    tracing::subscriber::with_default(levels.clone(), || run(owner));
    assert_eq!(*levels.0.lock().unwrap(), [Level::WARN]);
}
