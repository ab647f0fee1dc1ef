//! Acknowledgements that wait for the mirror.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

use brooklet::io::{MemVolume, Rng};
use brooklet::{LocalLog, Mirror, MirrorHandle, MirrorOptions, Options, SealedBlock, Waits};

/// Nothing takes that long, however busy the machine is.
const FOREVER: Duration = Duration::from_secs(300);

/// A mirror that keeps at once what it takes, unless it holds that back.
#[derive(Default)]
struct Keeps {
    handle: OnceLock<MirrorHandle>,
    taken: AtomicU64,
    holds: AtomicBool,
}

impl Keeps {
    /// Keeps all that it took, and what it takes from now on.
    fn keep(&self) {
        self.holds.store(false, Ordering::SeqCst);
        self.handle.get().unwrap().kept(self.taken.load(Ordering::SeqCst));
    }
}

impl Mirror for Keeps {
    fn open(&self, _: LocalLog) -> Result<(), String> {
        Ok(())
    }

    fn start(&self, handle: MirrorHandle) {
        assert!(self.handle.set(handle).is_ok());
    }

    fn take(&self, blocks: Vec<SealedBlock>) {
        let count = blocks.len() as u64;
        let taken = self.taken.fetch_add(count, Ordering::SeqCst) + count;
        if !self.holds.load(Ordering::SeqCst) {
            self.handle.get().unwrap().kept(taken);
        }
    }
}

/// A commit that somebody waits for does not rest for the linger.
#[test]
fn waiting_for_a_time_has_the_commit_written_at_once() {
    let mirror = MirrorOptions::new(Arc::new(Keeps::default())).waits(Waits::Local).kept_space("there");
    let options = Options::new().linger(Duration::from_secs(3600)).mirror(mirror);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    for key in ["here/log", "there/log"] {
        let ticket = store.append(key, "entry").unwrap();
        assert!(ticket.wait_timeout(FOREVER).unwrap(), "{key}");
        assert!(ticket.is_done());
    }
}

/// The outage fills the ring, which is due to grow then. To grow, the log waits until nothing is on
/// its way, and it must not wait for the mirror: others wait for the lock of maintenance.
#[test]
fn a_store_whose_mirror_is_away_still_answers() {
    let mirror = Arc::new(Keeps::default());
    let to = MirrorOptions::new(mirror.clone()).waits(Waits::Kept);
    let options = Options::new().ring_size(16 << 20).mirror(to);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    mirror.holds.store(true, Ordering::SeqCst);
    // More than half of the first ring.
    let mut rng = Rng::new(1);
    let tickets: Vec<_> = (0..44)
        .map(|n| {
            let payload: Vec<u8> = (0..64 << 10).map(|_| rng.next() as u8).collect();
            store.append(format!("log/{n}"), payload).unwrap()
        })
        .collect();
    let (tell, told) = mpsc::channel();
    let asking = Builder::new().spawn({
        let store = store.clone();
        move || {
            for _ in 0..40 {
                std::thread::park_timeout(Duration::from_millis(20));
                tell.send(store.info().is_ok()).unwrap();
            }
        }
    });
    let answers = (0..40).all(|_| told.recv_timeout(FOREVER) == Ok(true));
    assert!(tickets.iter().all(|ticket| !ticket.is_done()), "the mirror is away");
    mirror.keep();
    assert!(answers, "it did not answer while the mirror was away");
    asking.unwrap().join().unwrap();
    tickets.iter().for_each(|ticket| ticket.wait().unwrap());
}

/// The owner of an idle log names a block of it now and then. In the old state, the blocks filled
/// the ring, since they make no memtable, and only a commit freed it.
#[test]
fn empty_blocks_fill_no_ring() {
    for waits in [Waits::Local, Waits::Kept] {
        let volume = Arc::new(MemVolume::new(1));
        let options = Options::new().ring_size(256 << 10).max_payload(8 << 10).threads(false);
        let mirror = MirrorOptions::new(Arc::new(Keeps::default())).waits(waits);
        let store = options.clone().mirror(mirror).create_on(volume.clone()).unwrap();
        store.append("log", "entry").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
        for round in 0..200 {
            while store.step().unwrap() {}
            assert!(store.write_empty_block().unwrap(), "{waits:?}, round {round}");
            store.checkpoint().unwrap();
        }
        let used = store.activity().wal.used;
        assert!(used < 128 << 10, "{used}");
        store.append("log", "later").unwrap().wait().unwrap();
        store.abandon();
        let store = options.open_on(volume).unwrap();
        assert_eq!(store.bounds("log").unwrap().next, 2);
    }
}
