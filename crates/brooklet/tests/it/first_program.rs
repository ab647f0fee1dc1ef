use brooklet::{Commit, Store};

fn main() -> Result<(), brooklet::Error> {
    let store = Store::open("documents.brooklet")?;                  // one file is one store
    let first = store.append("doc/7", b"insert 'h' at 0")?;
    first.wait()?;  // returns once it is durable

    let mut commit = Commit::new();                                  // many logs, one atomic commit
    commit.expect_next("doc/7", first.seq() + 1).append("doc/7", b"insert 'i' at 1").append("feed", b"doc 7");
    let ticket = store.commit(&commit)?;                             // numbers at once, durability later:
    ticket.wait()?;                                                  // a thread waits, a task awaits

    for entry in store.read("doc/7", ..)? {
        let entry = entry?;
        println!("{}: {}", entry.seq, String::from_utf8_lossy(&entry.payload));
    }
    store.snapshot("doc/7", b"hi")?.wait()?;  // append, and trim all before it
    store.close()
}
