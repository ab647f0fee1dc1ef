//! Optimistic concurrency with an outbox: two threads withdraw from one account, and each
//! withdrawal announces itself. A third thread sends the announcements meanwhile.
//!
//! The event and its announcement are one atomic commit, so none is there without the other.
//! `expect_next` refuses the commit where another thread came first. The loser reads the new events
//! and decides again. The sender follows the outbox by a tail, and trims each announcement that it
//! has sent.
//!
//! ```sh
//! cargo run -p brooklet --example outbox -- STORE     # outbox.brooklet if left out
//! ```

use std::path::Path;
use std::thread;
use std::time::Duration;

use brooklet::{Commit, Error, Store, Tail, TailEvent};

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

/// Withdraws 30 by two threads, as often as both together can.
fn withdraw_all(store: &Store) -> Result<(), Error> {
    thread::scope(|scope| {
        let workers = [0, 1].map(|_| {
            scope.spawn(|| -> Result<(), Error> {
                while withdraw(store, "account/7", 30)? {}
                Ok(())
            })
        });
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panics"))
    })
}

/// Sends the announcements, oldest first, until the store is closed. Returns their number.
fn send(store: &Store, outbox: Tail) -> Result<usize, Error> {
    let mut sent = 0;
    for event in outbox {
        let entry = match event {
            Ok(TailEvent::Entry(entry)) => entry,
            // Only this thread trims the outbox, and no thread truncates or deletes it.
            Ok(_) => continue,
            Err(Error::Closed) => break,
            Err(error) => return Err(error),
        };
        println!("send: {}", String::from_utf8_lossy(&entry.payload));
        // After a crash before this commit, the next run sends the announcement again. The log of
        // the last announcement has the numbers of the outbox.
        let mut commit = Commit::new();
        commit
            .trim("outbox", entry.seq + 1)
            .begin_at("outbox/sent", entry.seq)
            .append("outbox/sent", &entry.payload);
        store.commit(&commit)?.wait()?;
        sent += 1;
    }
    Ok(sent)
}

/// Pays in 100, withdraws it, and sends the announcements. Returns their number.
pub fn run(path: &Path) -> Result<usize, Error> {
    let store = Store::open(path)?;
    store.append("account/7", b"100")?.wait()?;
    let first = store.get_bounds("outbox")?.map_or(0, |outbox| outbox.first);
    let outbox = store.tail("outbox", first)?;
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(&store, outbox));
        let withdrawn = withdraw_all(&store).and_then(|()| {
            // The next run sends all that is left after a minute.
            let announced = store.bounds("outbox")?.next;
            store.wait_for("outbox/sent", announced, Duration::from_secs(60))
        });
        // The tail of the sender ends with the store.
        let closed = store.close();
        let sent = sender.join().expect("no panics");
        withdrawn.and(closed).and(sent)
    })
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("outbox.brooklet"))).map(drop)
}
