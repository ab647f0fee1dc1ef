//! Tail a log: a reader prints the entries of a log as they become durable, and goes on after a
//! restart where it stopped.
//!
//! ```sh
//! cargo run -p brooklet --example tail -- STORE     # tail.brooklet if left out
//! ```

use std::path::Path;
use std::thread;

use brooklet::{Error, Store, TailEvent};

/// Returns the number of the next entry to read: the newest entry of a log that keeps the reader's
/// place.
fn place(store: &Store) -> Result<u64, Error> {
    let newest = store.last("place/printer")?;
    Ok(newest.map_or(0, |entry| u64::from_le_bytes(entry.payload[..].try_into().expect("eight bytes"))))
}

/// Prints entries until the entry `last`. Returns the number of entries printed.
fn print(store: &Store, last: u64) -> Result<usize, Error> {
    let mut tail = store.tail("feed", place(store)?)?;
    let mut count = 0;
    while tail.position() <= last {
        match tail.next().expect("a tail goes on until an error")? {
            TailEvent::Entry(entry) => {
                println!("{}: {}", entry.seq, String::from_utf8_lossy(&entry.payload));
                count += 1;
            }
            // Nothing trims, truncates or deletes this log; another program might.
            other => println!("{other:?}"),
        }
        // The place need not be durable before the next entry is printed: after a crash, the reader
        // prints some entries again.
        drop(store.snapshot("place/printer", tail.position().to_le_bytes())?);
    }
    Ok(count)
}

/// Appends ten entries in one thread, and reads them in another as they become durable. Returns the
/// number of entries read.
pub fn run(path: &Path) -> Result<usize, Error> {
    let store = &Store::open(path)?;
    let first = store.get_bounds("feed")?.map_or(0, |bounds| bounds.next);
    let count = thread::scope(|scope| {
        let reader = scope.spawn(move || print(store, first + 9));
        for n in 0..10 {
            drop(store.append("feed", format!("news {n}"))?);
        }
        store.flush()?;
        reader.join().expect("no panics")
    })?;
    store.close()?;
    Ok(count)
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("tail.brooklet"))).map(drop)
}
