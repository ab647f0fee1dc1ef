//! Spaces: what they let in, what they count, when they acknowledge, and that all of it outlives
//! whatever happens.

mod calls;
mod counting;
mod deferred;
mod dumps;
mod full_memory;
pub mod many;
pub mod memory;
pub mod rules;
mod table;

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Error, Options, Store};

fn options() -> Options {
    let options = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10);
    options.threads(false).clock(Arc::new(ManualClock::default())).rng_seed(5)
}

fn open(volume: &MemVolume) -> Result<Store, Error> {
    options().open_on(Arc::new(volume.clone()))
}

fn create(volume: &MemVolume) -> Store {
    options().create_on(Arc::new(volume.clone())).unwrap()
}
