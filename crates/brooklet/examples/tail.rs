//! Tail a log: a reader prints the entries of a log as they become durable, and goes on after a
//! restart where it stopped.
//!
//! ```sh
//! cargo run -p brooklet --example tail -- STORE     # tail.brooklet if left out
//! ```

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use brooklet::{Error, Store};

/// The number of the next entry to read: the newest entry of a log that keeps the reader's place.
fn place(store: &Store) -> Result<u64, Error> {
    if !store.exists("place/printer")? {
        return Ok(0);
    }
    let newest = store.read("place/printer", ..)?.next_back().transpose()?;
    Ok(newest.map_or(0, |entry| u64::from_le_bytes(entry.payload[..].try_into().expect("eight bytes"))))
}

/// Prints entries until no more news can come. Returns the number of entries printed.
fn print(store: &Store, news: &Receiver<()>) -> Result<usize, Error> {
    let (mut next, mut count) = (place(store)?, 0);
    // A message only wakes the reader: one read returns all new entries.
    while news.recv().is_ok() {
        for entry in store.read("feed", next..)? {
            let entry = entry?;
            println!("{}: {}", entry.seq, String::from_utf8_lossy(&entry.payload));
            (next, count) = (entry.seq + 1, count + 1);
        }
        store.snapshot("place/printer", next.to_le_bytes())?.wait()?;
    }
    Ok(count)
}

/// Appends ten entries in one thread, and reads them in another as they become durable. Returns the
/// number of entries read.
pub fn run(path: &Path) -> Result<usize, Error> {
    let store = &Store::open(path)?;
    let (durable, news) = channel();
    let count = thread::scope(move |scope| {
        let reader = scope.spawn(move || print(store, &news));
        for n in 0..10 {
            let durable = durable.clone();
            store.append("feed", format!("news {n}"))?.on_done(move |done| {
                if done.is_ok() {
                    // A reader that ended with an error hears nothing; `join` returns the error.
                    let _ = durable.send(());
                }
            });
        }
        store.flush()?;
        drop(durable);
        reader.join().expect("no panics")
    })?;
    store.close()?;
    Ok(count)
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("tail.brooklet"))).map(drop)
}
