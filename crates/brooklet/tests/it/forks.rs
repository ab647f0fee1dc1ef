//! Handles of a store in a process that did not open it.

use std::time::Duration;

use brooklet::{Class, Error, MemoryConfig, Options, SpaceConfig, Store};

use crate::common::contents;
use crate::common::tasks::block_on;
use crate::fork::{beside_child, in_child};

fn options() -> Options {
    Options::new().ring_size(1 << 20).max_payload(64 << 10).linger(Duration::from_secs(60))
}

/// The child wrote its copy of the open block over the parent's, and closing there ended the
/// parent's log.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_store_refuses_a_child_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = options().open(&path).unwrap();
    store.append("log", "0").unwrap().wait().unwrap();
    let space = store.create_space("space", SpaceConfig::new()).unwrap();
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    let memory = store.create_space("memory", memory).unwrap();
    memory.append("log", "in memory").unwrap().wait().unwrap();
    let view = store.view().unwrap();
    let subscription = store.subscribe(1 << 20).unwrap();
    let (mut entries, mut logs) = (store.read("log", ..).unwrap(), store.scan("").unwrap());
    let mut walk = view.walk("").unwrap();
    let (mut tail, mut watch) = (store.tail("log", 0).unwrap(), store.watch("").unwrap());
    let ticket = store.append("log", "1: appended before the fork").unwrap();
    let mut kept = Some((store, ticket, space, memory, view));
    let said = in_child(|| {
        let (store, ticket, space, memory, view) = kept.take().unwrap();
        let results = [
            store.append("log", "x").map(drop),
            store.delete("log").map(drop),
            store.read("log", ..).map(drop),
            store.bounds("log").map(drop),
            store.exists("log").map(drop),
            store.scan("").map(drop),
            store.flush(),
            store.checkpoint(),
            store.compact(),
            store.view().map(drop),
            store.subscribe(1).map(drop),
            store.tail("log", 0).map(drop),
            store.watch("").map(drop),
            block_on(store.append_async("log", "x")).map(drop),
            store.wait_for("log", 1, Duration::MAX).map(drop),
            tail.try_next().map(drop),
            watch.next().unwrap().map(drop),
            store.info().map(drop),
            store.create_space("another", SpaceConfig::new()).map(drop),
            store.remove_space("space"),
            store.space("space").map(drop),
            store.import().view(&view, "").map(drop),
            store.close(),
            ticket.wait(),
            ticket.wait_durable(),
            space.append("log", "x").map(drop),
            space.info().map(drop),
            space.configure(SpaceConfig::new()),
            memory.append("log", "x").map(drop),
            memory.read("log", ..).map(drop),
            memory.dump().map(drop),
            view.read("log", ..).map(drop),
            view.bounds("log").map(drop),
            view.scan("").map(drop),
            view.walk("").map(drop),
            view.export("", std::io::sink()).map(drop),
            entries.next().unwrap().map(drop),
            logs.next().unwrap().map(drop),
            walk.next().unwrap().map(drop),
        ];
        let wrong = results.iter().position(|result| !matches!(result, Err(Error::Forked)));
        let (sender, told) = std::sync::mpsc::channel();
        ticket.on_done(move |result| sender.send(result).unwrap());
        let called = matches!(told.try_recv(), Ok(Err(Error::Forked)));
        let taken = subscription.take().is_err();
        // A store of its own is another matter.
        let own = Store::in_memory(1).and_then(|store| {
            store.append("log", "x")?.wait()?;
            store.close()
        });
        drop((store, ticket, space, memory, view));
        format!("{wrong:?} {called} {taken} {}", own.is_ok())
    });
    assert_eq!(said, "None true true true");
    let (store, ticket, space, memory, view) = kept.take().unwrap();
    store.append("log", "2: after the fork").unwrap().wait().unwrap();
    ticket.wait().unwrap();
    assert!(matches!(options().open(&path), Err(Error::Locked { .. })), "the child took the lock with it");
    drop((ticket, space, memory, view, entries, logs, walk, tail, watch));
    store.abandon();
    let store = options().open(&path).unwrap();
    let entries = &contents(&store).unwrap()[&b"log"[..]].entries;
    assert_eq!(entries, &[&b"0"[..], b"1: appended before the fork", b"2: after the fork"]);
}

/// The child had the file open for as long as it lived, and with it the lock.
#[test]
pub fn a_store_that_is_closed_is_free_beside_a_child() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = options().open(&path).unwrap();
    beside_child(|| {
        drop(store);
        drop(options().open(&path).expect("nobody uses it"));
    });
}
