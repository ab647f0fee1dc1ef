//! Small stores in memory.

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Error, Options, Store};

/// Options of a store so small that everything happens soon, and nothing by itself.
pub fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    let options = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10);
    options.threads(false).clock(clock).rng_seed(5)
}

/// Creates a store of these.
pub fn open_new(volume: &MemVolume) -> Store {
    options().create_on(Arc::new(volume.clone())).unwrap()
}

/// Opens a store of these.
pub fn open(volume: &MemVolume) -> Result<Store, Error> {
    options().open_on(Arc::new(volume.clone()))
}

/// Checks all that a closed store holds.
#[track_caller]
pub fn check(volume: &MemVolume) {
    let report = brooklet::check_volume(Arc::new(volume.clone()), brooklet::Progress::ignore).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// Bytes that no codec shrinks.
pub fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}
