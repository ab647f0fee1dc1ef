//! A store in memory with its threads, small enough for miri, which knows what weakly ordered
//! memory may do: the other half of `tests/shuttle`, where every atomic operation counts as
//! sequentially consistent.
//!
//! With `MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=0..16"`, the command
//! `cargo +nightly miri test -p brooklet --test miri` tries 16 ways.

use std::sync::Arc;

use brooklet::io::{MemVolume, SystemClock};
use brooklet::{Error, Options, Store};

fn small() -> Store {
    let options = Options::new().ring_size(64 << 10).memory_budget(64 << 10).block_size(4 << 10);
    let options = options.max_payload(8 << 10).clock(Arc::new(SystemClock::new())).rng_seed(1);
    // As small as can be, and as large as it gets: miri fills memory byte by byte.
    let capacity = (64 << 10) + (64 << 10) + (1 << 20);
    let volume = MemVolume::from_image(vec![0; capacity as usize], 1);
    options.capacity(capacity).create_on(Arc::new(volume)).unwrap()
}

#[test]
fn a_store_closes_while_its_threads_begin() {
    small().close().unwrap();
    drop(small());
    small().abandon();
}

#[test]
fn a_few_threads_share_a_store() {
    let store = small();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            store.append("a", b"one").unwrap().wait().unwrap();
            assert_eq!(store.read("a", ..).unwrap().count(), 1);
            store.append("b", b"two").unwrap().on_done(|result| result.unwrap());
        });
        scope.spawn(|| {
            store.append("b", b"one").unwrap().wait().unwrap();
            store.checkpoint().unwrap();
        });
    });
    store.flush().unwrap();
    assert_eq!(store.read("b", ..).unwrap().map(Result::unwrap).count(), 2);
    store.close().unwrap();
    assert!(matches!(store.append("a", b"x"), Err(Error::Closed)));
}
