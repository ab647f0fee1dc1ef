//! How a log and its shipping end: by a handover, a panic, a lost runtime, a caller that gives up;
//! and that nobody waits for ever then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use brooklet::{ErrorKind, MirrorOptions, Waits};
use brooklet_archive::Bucket;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{
    BucketJournal, Created, Error, Journal, Key, Replica, Shipper, ShipperOptions, StoreId,
};
use bytes::Bytes;

use crate::faulty::{Failing, Faulty};
use crate::replica::{Host, entries, journal, lazy, options, shipping};

pub const OPEN: u64 = u64::MAX;

/// A journal that creates a number of log objects. A later create panics, or has no answer until
/// more of them may come.
#[derive(Clone)]
pub struct Gate {
    journal: BucketJournal,
    pub creates: Arc<AtomicU64>,
    panics: bool,
}

impl Gate {
    pub fn new(memory: &Arc<InMemory>, creates: u64) -> Self {
        Self { journal: journal(memory, 0, 0), creates: Arc::new(creates.into()), panics: false }
    }

    fn takes_one(&self) -> bool {
        let less = |left| if left == OPEN { Some(OPEN) } else { u64::checked_sub(left, 1) };
        self.creates.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

impl Journal for Gate {
    async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
        while matches!(key, Key::Log(_)) && !self.takes_one() {
            assert!(!self.panics, "the journal of this test panics");
            tokio::time::sleep(Duration::from_millis(1)).await;
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

/// Without beats, so that each create is one of the test.
pub fn quiet(mut options: ShipperOptions) -> ShipperOptions {
    options.limits.beat = None;
    options
}

/// An empty block ends where the block before it ends. A ring that is trimmed of it has no link to
/// a log that lacks it.
#[test]
fn an_empty_block_is_kept_when_the_bucket_has_it() {
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Local);
    host.shipping = lazy();
    let running = host.open().unwrap();
    let shipper = running.replica.shipper().unwrap();
    let ticket = running.append("one");
    ticket.wait().unwrap();
    shipper.flush();
    assert!(ticket.wait_kept().unwrap());
    // Once all is quiet, an empty block records what was acknowledged.
    while shipper.status().waiting == 0 {
        running.store.step().unwrap();
    }
    assert_eq!(running.store.activity().mirror.unwrap().blocks, 1);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| running.store.checkpoint());
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        // The host is lost before the bucket has the block.
        running.store.clone().abandon();
        let _ = checkpoint.join().unwrap();
    });
    running.replica.give_up();
    drop(running);
    host.shipping = shipping();
    let running = host.open().unwrap();
    assert_eq!(entries(&running.store), ["one"]);
}

/// A shipper waits for blocks by their numbers, for the same reason.
#[test]
fn a_shipper_waits_for_an_empty_block() {
    let memory = Arc::new(InMemory::new());
    // The first owner of a log needs no fence.
    let gate = Gate::new(&memory, 1);
    let (shipper, _) = Shipper::open(gate.clone(), StoreId(7), quiet(lazy()), |_| Ok(())).unwrap();
    assert_eq!(shipper.ship(0, 5, b"block").unwrap(), 1);
    shipper.flush();
    shipper.wait(1).unwrap();
    assert_eq!(shipper.ship(5, 5, b"empty").unwrap(), 2);
    shipper.flush();
    while shipper.status().cuts < 2 {
        std::thread::yield_now();
    }
    assert_eq!((shipper.status().kept_blocks, shipper.status().kept.lsn), (1, 5));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| shipper.wait(2).map(|()| shipper.status().kept_blocks));
        gate.creates.store(OPEN, Ordering::Relaxed);
        assert_eq!(waits.join().unwrap().unwrap(), 2);
    });
}

/// The blocks before a handover are kept. Whoever waits for later ones learns of it.
#[test]
fn an_owner_that_hands_over_leaves_nobody_waiting() {
    for threads in [false, true] {
        let memory = Arc::new(InMemory::new());
        let mut host = Host::new(&memory, Waits::Kept);
        host.shipping = lazy();
        let replica = Replica::new(journal(&memory, 0, 0), lazy());
        let old = host.open_with(replica, options().threads(threads)).unwrap();
        let shipper = old.replica.shipper().unwrap();
        let before = old.append("before");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| before.wait());
            while shipper.status().waiting == 0 {
                std::thread::yield_now();
            }
            shipper.hand_over("another host");
            waits.join().unwrap().unwrap();
        });
        assert!(before.is_kept());
        let standby = host.copy();
        let refused = old.store.append("log", "after").and_then(|ticket| ticket.wait()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Stopped);
        match old.replica.explain(refused) {
            Error::HandedOver { to } => assert_eq!(to, "another host"),
            error => panic!("{error}"),
        }
        assert!(old.store.append("log", "later").is_err());
        assert_eq!(entries(&old.store), ["before"]);
        assert!(matches!(shipper.wait(OPEN), Err(Error::HandedOver { .. })));
        assert!(old.store.close().is_err());
        let new = standby.open().unwrap();
        new.append("of the new owner").wait().unwrap();
        assert_eq!(entries(&new.store), ["before", "of the new owner"]);
    }
}

/// A store that is closed first leaves nothing behind, and its host can take it back.
#[test]
fn a_store_that_is_closed_can_be_handed_over() {
    let memory = Arc::new(InMemory::new());
    let host = Host::new(&memory, Waits::Kept);
    let old = host.open().unwrap();
    old.append("one").wait().unwrap();
    old.store.close().unwrap();
    let shipper = old.replica.shipper().unwrap();
    shipper.hand_over("another host");
    assert!(matches!(shipper.wait(OPEN), Err(Error::HandedOver { .. })));
    drop(old);
    let standby = host.copy();
    let new = standby.open().unwrap();
    assert_eq!(entries(&new.store), ["one"]);
    new.store.close().unwrap();
    drop(new);
    host.open().unwrap();
}

/// A panic in a request ends the log with a reason.
#[test]
fn a_panic_of_the_journal_leaves_nobody_waiting() {
    let memory = Arc::new(InMemory::new());
    let host = Host::new(&memory, Waits::Kept);
    let gate = Gate { panics: true, ..Gate::new(&memory, 1) };
    let replica = Replica::new(gate, quiet(shipping()));
    let running = host.open_with(replica, options().threads(true)).unwrap();
    running.append("one").wait().unwrap();
    let refused = running.store.append("log", "two").and_then(|ticket| ticket.wait()).unwrap_err();
    let why = running.replica.explain(refused).to_string();
    assert!(why.contains("has panicked"), "{why}");
    assert!(running.store.append("log", "three").is_err());
    drop(running);
    assert_eq!(entries(&host.open().unwrap().store), ["one", "two"]);
}

/// A shipper in a runtime of the caller ends with it.
#[test]
fn the_end_of_the_runtime_leaves_nobody_waiting() {
    let memory = Arc::new(InMemory::new());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let opened = Shipper::start(Gate::new(&memory, 0), StoreId(7), quiet(shipping()), |_| Ok(()));
    let (shipper, _) = runtime.block_on(opened).unwrap();
    let number = shipper.ship(0, 5, b"block").unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| shipper.wait(number));
        drop(runtime);
        let why = waits.join().unwrap().unwrap_err().to_string();
        assert!(why.contains("its runtime was shut down"), "{why}");
    });
    assert!(shipper.ship(5, 6, b"late").is_err());
}

/// An opening waits until the bucket keeps what it lacks, unless its caller gives up.
#[test]
fn a_caller_can_give_up_an_opening() {
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Local);
    host.shipping = lazy();
    let running = host.open().unwrap();
    running.append("local").wait().unwrap();
    running.kill();
    let replica = Replica::new(Gate::new(&memory, 1), quiet(shipping()));
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| host.open_with(replica.clone(), options()).map(drop));
        while replica.status().is_none_or(|status| status.cuts == 0) {
            std::thread::yield_now();
        }
        replica.give_up();
        assert!(opening.join().unwrap().unwrap_err().to_string().contains("given up"));
    });
    assert_eq!(entries(&host.open().unwrap().store), ["local"]);
    // Whoever gives up before needs not wait either.
    let replica = Replica::new(journal(&memory, 0, 0), shipping());
    replica.give_up();
    assert!(matches!(host.open_with(replica, options()).map(drop), Err(Error::GivenUp)));
}

/// In a store without threads, callbacks run where the bucket's answer arrives. They may wait for
/// the next answer.
#[test]
fn a_callback_may_wait_for_the_bucket() {
    let memory = Arc::new(InMemory::new());
    let running = Host::new(&memory, Waits::Kept).open().unwrap();
    let (tell, told) = mpsc::channel();
    let store = running.store.clone();
    running.append("one").on_done(move |done| {
        let second = done.and_then(|()| store.append("log", "two")).and_then(|ticket| ticket.wait());
        tell.send(second.is_ok()).unwrap();
    });
    // Nobody waits on a thread that would call instead.
    while running.replica.status().unwrap().cuts == 0 {
        running.store.step().unwrap();
    }
    assert_eq!(told.recv(), Ok(true));
    assert_eq!(entries(&running.store), ["one", "two"]);
}

/// A store with threads ends its waits, its threads and its callbacks, and can be opened again.
#[test]
fn a_store_with_threads_ends_with_its_log() {
    let memory = Arc::new(InMemory::new());
    let mut host = Host::new(&memory, Waits::Kept);
    host.shipping = lazy();
    let replica = Replica::new(journal(&memory, 0, 0), lazy());
    let running = host.open_with(replica, options().threads(true)).unwrap();
    let ticket = running.append("one");
    let (tell, told) = mpsc::channel();
    ticket.on_done(move |done| tell.send(done.is_err()).unwrap());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ticket.wait());
        let checkpoint = scope.spawn(|| running.store.checkpoint());
        while running.replica.status().unwrap().waiting == 0 {
            std::thread::yield_now();
        }
        running.replica.give_up();
        assert!(waits.join().unwrap().is_err() && checkpoint.join().unwrap().is_err());
    });
    assert_eq!(told.recv(), Ok(true));
    assert!(running.store.append("log", "two").is_err());
    assert!(entries(&running.store).is_empty() && running.store.close().is_err());
    drop(running);
    assert_eq!(
        entries(&host.open_with(Replica::new(journal(&memory, 0, 0), shipping()), options()).unwrap().store),
        ["one"]
    );
}

/// In a store without threads, too, a commit waits for room in the window.
#[test]
fn a_full_window_makes_commits_wait() {
    for waits in [Waits::Local, Waits::Kept] {
        let memory = Arc::new(InMemory::new());
        let host = Host::new(&memory, waits);
        let replica = Replica::new(journal(&memory, 0, 0), shipping());
        let mirror = MirrorOptions::new(replica.clone()).waits(waits).window(1);
        let store = options().mirror(mirror).open_on(host.volume.clone()).unwrap();
        for n in 0..20 {
            drop(store.append("log", format!("entry {n}")).unwrap());
            store.flush().unwrap();
        }
        replica.give_up();
        let more = || store.append("log", "too late").and_then(|ticket| ticket.wait());
        assert!((0..3).any(|_| more().is_err()));
    }
}

/// After a life without its log, the ring may have no link to it: the file is not called replaced.
#[test]
fn a_ring_that_does_not_reach_back_to_the_log_has_no_successor_to_blame() {
    let memory = Arc::new(InMemory::new());
    let host = Host::new(&memory, Waits::Kept);
    let running = host.open().unwrap();
    running.append("one").wait().unwrap();
    running.store.close().unwrap();
    drop(running);
    let plain = options().open_on(host.volume.clone()).unwrap();
    plain.append("log", "two").unwrap().wait().unwrap();
    plain.checkpoint().unwrap();
    plain.close().unwrap();
    drop(plain);
    assert!(matches!(host.open().map(drop), Err(Error::NeedsBackup)));
}

/// A proxy may cut a reply. In the old state the object counted as damaged, and that ended the
/// owner, and each host that followed it.
#[test]
fn a_reply_that_ends_early_is_no_damage() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let memory = Arc::new(InMemory::new());
    let journal = |failing| {
        let faulty = Arc::new(Faulty::new(memory.clone(), failing, 1));
        BucketJournal::new(&Bucket::of(faulty, "there").unwrap())
    };
    let (whole, cut, key) = (journal(Failing::Percent(0)), journal(Failing::Cut), Key::Probe(1, 0));
    runtime.block_on(async {
        whole.create(key, Bytes::from_static(b"an object")).await.unwrap();
        assert_eq!(whole.read(key).await.unwrap().unwrap(), "an object");
        let read = cut.read(key).await;
        assert!(read.as_ref().is_err_and(Error::is_temporary), "{read:?}");
        assert_eq!(cut.read(Key::Probe(1, 1)).await.unwrap(), None);
    });
}
