//! What is read leaves only while the server has the lease of its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use super::{World, at, words};
use crate::lease::Lease;
use crate::redis::client::ClientId;

fn run(world: &mut World, id: ClientId, requests: &[&str]) {
    world.engine.run(id, &mut requests.iter().map(|request| words(request)).collect(), || true);
}

/// What a client gets now.
fn gets(world: &mut World, id: ClientId) -> String {
    world.store.flush().unwrap();
    world.engine.note_durable();
    String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap()
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn replies_of_data_wait_for_the_lease() {
    let mut world = World::new(1, 1 << 20, None);
    let ids = [(); 3].map(|()| world.engine.connect(String::new(), String::new()).unwrap());
    let is_held = Arc::new(AtomicBool::new(true));
    let of_lease = is_held.clone();
    world.engine.set_lease(Lease::new(move || of_lease.load(Ordering::Relaxed)));
    run(&mut world, ids[0], &["SET a 1"]);
    assert_eq!(gets(&mut world, ids[0]), "+OK\r\n");
    run(&mut world, ids[1], &["BLPOP l 0"]);
    assert_eq!(gets(&mut world, ids[1]), "");
    is_held.store(false, Ordering::Relaxed);
    // Writes without an effect read, too, and so do transactions and scripts.
    let of_data = [
        &["GET a"][..],
        &["SETNX a 2"],
        &["PING", "DBSIZE"],
        &["MULTI", "GET a", "EXEC"],
        &["EVAL return(redis.call('GET','a')) 0"],
        &["GET a", "SET a 1"],
    ];
    for requests in of_data {
        run(&mut world, ids[0], requests);
        assert_eq!(gets(&mut world, ids[0]), "", "{requests:?}");
        is_held.store(true, Ordering::Relaxed);
        assert_ne!(gets(&mut world, ids[0]), "", "{requests:?}");
        is_held.store(false, Ordering::Relaxed);
    }
    run(&mut world, ids[2], &["PING", "SELECT 1"]);
    assert_eq!(gets(&mut world, ids[2]), "+PONG\r\n+OK\r\n", "they say nothing of the data");
    run(&mut world, ids[0], &["RPUSH l x"]);
    assert_eq!(gets(&mut world, ids[1]), "", "a client that waited reads, too");
    // Both are woken once the server has the lease again.
    let woken = [(); 2].map(|()| Arc::new(Woken::default()));
    for (id, woken) in ids.into_iter().zip(&woken) {
        world.engine.client(id).unwrap().waker = Some(Waker::from(woken.clone()));
        assert_eq!(gets(&mut world, id), "");
    }
    assert!(world.engine.next_due().is_some_and(|due| due.as_millis() <= 5));
    let now = at(world.now());
    world.engine.tick(now);
    assert!(woken.iter().all(|woken| !woken.0.load(Ordering::Relaxed)));
    is_held.store(true, Ordering::Relaxed);
    world.engine.tick(now);
    assert!(woken.iter().all(|woken| woken.0.load(Ordering::Relaxed)));
    assert_eq!(gets(&mut world, ids[0]), ":1\r\n");
    assert_eq!(gets(&mut world, ids[1]), "*2\r\n$1\r\nl\r\n$1\r\nx\r\n");
    assert!(world.engine.next_due().is_none_or(|due| due.as_millis() > 5));
    // A client that waits in vain learns something of the data, too.
    run(&mut world, ids[0], &["BLPOP none 1"]);
    assert_eq!(gets(&mut world, ids[0]), "");
    is_held.store(false, Ordering::Relaxed);
    let later = at(world.now() + 2_000);
    world.engine.tick(later);
    assert_eq!(gets(&mut world, ids[0]), "");
    is_held.store(true, Ordering::Relaxed);
    assert_eq!(gets(&mut world, ids[0]), "*-1\r\n");
    // The lease does not come back to a server that ends.
    run(&mut world, ids[0], &["GET a"]);
    is_held.store(false, Ordering::Relaxed);
    assert_eq!(gets(&mut world, ids[0]), "");
    world.engine.say_goodbye();
    assert_eq!(gets(&mut world, ids[0]), "");
    assert!(world.engine.client(ids[0]).unwrap().is_killed);
}
