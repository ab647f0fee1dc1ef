//! A device that says it wrote what it did not: where the store can tell, it stops and says so, and
//! the ring still holds everything. (A loop device over a full file system is one: the kernel takes
//! a short write for a whole one.)

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brooklet::io::{Layer, ManualClock, MemVolume, Persist, Volume};
use brooklet::{Error, Options};

#[derive(Clone, Debug)]
struct Liar {
    within: MemVolume,
    lies: Arc<AtomicBool>,
}

impl Layer for Liar {
    fn below(&self) -> &dyn Volume {
        &self.within
    }
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        if self.lies.load(Ordering::Relaxed) && persist == Persist::Cached {
            return Ok(data.len());
        }
        self.below().write_at(offset, data, persist)
    }
}

#[test]
fn a_run_that_does_not_read_back_stops_the_store_and_loses_nothing() {
    let options = || {
        let clock = Arc::new(ManualClock::default());
        Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).clock(clock).rng_seed(3)
    };
    let volume = Liar { within: MemVolume::new(3), lies: Arc::default() };
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for n in 0..20u8 {
        store.append("log", [n; 100]).unwrap().wait().unwrap();
    }
    volume.lies.store(true, Ordering::Relaxed);
    let error = store.checkpoint().unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert!(error.to_string().contains("does not read back as it was just written"), "{error}");
    assert!(matches!(store.append("log", b"x"), Err(Error::Stopped { .. })));
    assert_eq!(store.read("log", ..).unwrap().flatten().count(), 20, "reads go on");
    drop(store);
    volume.lies.store(false, Ordering::Relaxed);
    let store = options().open_on(Arc::new(volume)).unwrap();
    let entries: Vec<_> = store.read("log", ..).unwrap().map(Result::unwrap).collect();
    assert!(entries.len() == 20 && entries.iter().all(|entry| entry.payload == [entry.seq as u8; 100][..]));
    store.checkpoint().unwrap();
}
