//! Measures in Rust the calls that `speed.c` measures in C, and those that other bindings measure
//! in their languages. `tests/speed` of each runs both in turns.

use std::time::Instant;

use brooklet::{Error, Options};

const APPENDS: usize = 200_000;
const LOGS: usize = 10_000;
const BYTES: usize = 200;
const BATCH: usize = 1_000;
const ENTRIES: usize = 1_000;
const READS: usize = 2_000;
const WAITERS: usize = 64;
const EACH: usize = 1_000;

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn main() -> Result<(), Error> {
    let store = Options::new().open(std::env::args().nth(1).expect("the path of a new store"))?;
    let payload = [b'x'; BYTES];

    // The first round makes the logs, and the ring grows.
    for round in 0..2 {
        let start = Instant::now();
        for i in 0..APPENDS {
            drop(store.append(format!("log/{}", i % LOGS), payload)?);
        }
        store.flush()?;
        if round == 1 {
            let rate = APPENDS as f64 / start.elapsed().as_secs_f64();
            println!("appends/s that nobody waits for: {rate:.0}");
        }
    }

    let batch = [payload; BATCH];
    for round in 0..2 {
        let start = Instant::now();
        for i in 0..5 * APPENDS / BATCH {
            drop(store.append_many(format!("log/{}", i % LOGS), batch)?);
        }
        store.flush()?;
        if round == 1 {
            let rate = (5 * APPENDS) as f64 / start.elapsed().as_secs_f64();
            println!("entries/s by append_many of 1,000: {rate:.0}");
        }
    }

    for _ in 0..ENTRIES {
        drop(store.append("one", payload)?);
    }
    store.flush()?;
    let (start, mut sum) = (Instant::now(), 0);
    for _ in 0..READS {
        for entry in store.read("one", ..)? {
            sum += entry?.payload.len();
        }
    }
    assert_eq!(sum, BYTES * ENTRIES * READS);
    println!("reads/s of a log of {ENTRIES} entries: {:.0}", READS as f64 / start.elapsed().as_secs_f64());

    let start = Instant::now();
    std::thread::scope(|scope| {
        for waiter in 0..WAITERS {
            let store = &store;
            scope.spawn(move || {
                for i in 0..EACH {
                    let ticket = store.append(format!("log/{}", (i * WAITERS + waiter) % LOGS), payload);
                    ticket.and_then(|ticket| ticket.wait()).expect("the device works");
                }
            });
        }
    });
    let rate = (WAITERS * EACH) as f64 / start.elapsed().as_secs_f64();
    println!("waiting appends/s of {WAITERS}: {rate:.0}");
    store.close()
}
