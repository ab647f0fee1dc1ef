//! Tail a log: a reader prints the entries of a log as they become durable, and goes on after a restart where it stopped.
//!
//! ```sh
//! cargo run -p brooklet --example tail -- STORE     # tail.brooklet if left out
//! ```

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use brooklet::{Error, Store};

/// Appends ten entries in one thread, and reads them in another as they become durable. Returns the number of entries read.
pub fn run(path: &Path) -> Result<usize, Error> {
    let store = Store::open(path)?;
    let (durable, news) = channel();
    let reader = thread::spawn({
        let store = store.clone();
        move || -> Result<usize, Error> {
            // The reader's place is a log of its own: one entry, the number of the next entry to read.
            let place = store
                .exists("place/printer")?
                .then(|| store.read("place/printer", ..)?.next_back().transpose());
            let place = place.transpose()?.flatten();
            let mut next = place
                .map_or(0, |entry| u64::from_le_bytes(entry.payload[..].try_into().expect("eight bytes")));
            let mut count = 0;
            // A message for each entry. It only wakes: one read returns everything that is new.
            for () in news {
                for entry in store.read("feed", next..)? {
                    let entry = entry?;
                    println!("{}: {}", entry.seq, String::from_utf8_lossy(&entry.payload));
                    (next, count) = (entry.seq + 1, count + 1);
                }
                store.snapshot("place/printer", next.to_le_bytes())?.wait()?;
            }
            Ok(count)
        }
    });
    for n in 0..10 {
        let durable = durable.clone();
        store.append("feed", format!("news {n}"))?.on_done(move |done| {
            if done.is_ok() {
                // The reader may have ended with an error, which `join` returns.
                let _ = durable.send(());
            }
        });
    }
    store.flush()?;
    drop(durable);
    let count = reader.join().expect("no panics")?;
    store.close()?;
    Ok(count)
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("tail.brooklet"))).map(drop)
}
