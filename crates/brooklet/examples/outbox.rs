//! Optimistic concurrency with an outbox: two threads withdraw from one account, and each
//! withdrawal announces itself.
//!
//! The event and its announcement are one atomic commit, so none is there without the other.
//! `expect_next` refuses the commit where another thread came first. The loser reads the new events
//! and decides again.
//!
//! ```sh
//! cargo run -p brooklet --example outbox -- STORE     # outbox.brooklet if left out
//! ```

use std::path::Path;
use std::thread;

use brooklet::{Commit, Error, Store};

/// Sums up the events of an account; returns the balance and the number of the next event.
fn balance(store: &Store, account: &str) -> Result<(i64, u64), Error> {
    let (mut sum, mut next) = (0, 0);
    for entry in store.read(account, ..)? {
        let entry = entry?;
        sum +=
            std::str::from_utf8(&entry.payload).expect("events are text").parse::<i64>().expect("a number");
        next = entry.seq + 1;
    }
    Ok((sum, next))
}

/// Withdraws, unless there is too little; `false` then.
fn withdraw(store: &Store, account: &str, amount: i64) -> Result<bool, Error> {
    loop {
        let (balance, next) = balance(store, account)?;
        if balance < amount {
            return Ok(false);
        }
        let (event, announcement) = (format!("-{amount}"), format!("{account}: {amount} withdrawn"));
        let mut commit = Commit::new();
        commit
            .expect_next(account, next)
            .append(account, event.as_bytes())
            .append("outbox", announcement.as_bytes());
        match store.commit(&commit) {
            Ok(ticket) => return ticket.wait().map(|()| true),
            // Another thread came first: read again, decide again.
            Err(Error::Conflict { .. }) => continue,
            Err(error) => return Err(error),
        }
    }
}

/// Pays in 100, and withdraws 30 as often as two threads together can. Returns the number of
/// announcements.
pub fn run(path: &Path) -> Result<usize, Error> {
    let store = Store::open(path)?;
    store.append("account/7", b"100")?.wait()?;
    thread::scope(|scope| {
        let workers = [0, 1].map(|_| {
            scope.spawn(|| -> Result<(), Error> {
                while withdraw(&store, "account/7", 30)? {}
                Ok(())
            })
        });
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panics"))
    })?;

    // A worker sends the announcements, oldest first, and trims each batch that it has sent.
    let mut sent = 0;
    let mut next = store.bounds("outbox")?.first;
    for entry in store.read("outbox", ..)? {
        let entry = entry?;
        println!("send: {}", String::from_utf8_lossy(&entry.payload));
        (sent, next) = (sent + 1, entry.seq + 1);
    }
    store.trim("outbox", next)?.wait()?;
    store.close()?;
    Ok(sent)
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("outbox.brooklet"))).map(drop)
}
