//! First steps: append to a log, read the log back, trim its head, list all logs.
//!
//! ```sh
//! cargo run -p brooklet --example first_steps -- STORE     # first_steps.brooklet if left out
//! ```

use std::path::Path;

use brooklet::{Error, Store};

/// Makes a store at `path`, or goes on with one.
pub fn run(path: &Path) -> Result<(), Error> {
    let store = Store::open(path)?;

    // An append returns the entry's number at once. `wait` returns when the entry is on stable
    // media.
    let ticket = store.append("sensor/kitchen", b"21.5")?;
    println!("the entry has number {}", ticket.seq());
    ticket.wait()?;

    // Several entries in one call are one commit: after a crash all of them are there, or none.
    store.append_many("sensor/kitchen", [b"21.6", b"21.4"])?.wait()?;

    // A range of numbers, from either end.
    for entry in store.read("sensor/kitchen", ..)? {
        let entry = entry?;
        println!("{}: {}", entry.seq, String::from_utf8_lossy(&entry.payload));
    }
    if let Some(newest) = store.read("sensor/kitchen", ..)?.next_back() {
        println!("the newest is {}", String::from_utf8_lossy(&newest?.payload));
    }

    // Keep the newest two entries. Numbers never change: the next entry has the number that it
    // would have had.
    store.keep_last("sensor/kitchen", 2)?.wait()?;
    let bounds = store.bounds("sensor/kitchen")?;
    println!("entries {} to {} are there", bounds.first, bounds.next - 1);

    for log in store.scan("sensor/")? {
        let log = log?;
        println!("{}: {} entries", String::from_utf8_lossy(&log.key), log.bounds.next - log.bounds.first);
    }
    store.close()
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("first_steps.brooklet")))
}
