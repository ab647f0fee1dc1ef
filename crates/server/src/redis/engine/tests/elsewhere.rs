//! `WAIT` and `WAITAOF` of a store whose log is kept elsewhere, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use brooklet::io::{Fault, ManualClock, MemVolume};
use brooklet::{LocalLog, Mirror, MirrorHandle, MirrorOptions, SealedBlock, Waits};

use super::{World, at, options, words};
use crate::redis::client::ClientId;

/// A copy elsewhere, which keeps what it has when the test says so.
#[derive(Default)]
struct Elsewhere {
    handle: Mutex<Option<MirrorHandle>>,
    taken: AtomicU64,
}

impl Mirror for Elsewhere {
    fn open(&self, _: LocalLog) -> Result<(), String> {
        Ok(())
    }

    fn start(&self, handle: MirrorHandle) {
        *self.handle.lock().unwrap() = Some(handle);
    }

    fn take(&self, blocks: Vec<SealedBlock>) {
        self.taken.fetch_add(blocks.len() as u64, Ordering::Relaxed);
    }
}

impl Elsewhere {
    fn keep(&self) {
        let handle = self.handle.lock().unwrap().clone();
        handle.unwrap().kept(self.taken.load(Ordering::Relaxed));
    }
}

fn world(waits: Waits) -> (World, Arc<Elsewhere>, ClientId) {
    let (volume, clock, copy) = (MemVolume::new(1), Arc::new(ManualClock::default()), Arc::default());
    let mirror = MirrorOptions::new(Arc::<Elsewhere>::clone(&copy)).waits(waits);
    let store = options(&clock, 1).mirror(mirror).create_on(Arc::new(volume.clone())).unwrap();
    let mut world = World::on(volume, store, clock, 1_000_000, 1 << 20);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    (world, copy, id)
}

/// Runs a request; returns the replies that may leave at a time.
fn say(world: &mut World, id: ClientId, request: &str, time: u64) -> String {
    let requests = if request.is_empty() { Vec::new() } else { vec![words(request)] };
    world.engine.run(id, &mut requests.into(), || true);
    world.engine.tick(at(time));
    String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
}

#[test]
fn a_client_waits_until_its_writes_are_kept_elsewhere() {
    let (mut world, copy, id) = world(Waits::Local);
    let mut now = 1_000_000;
    assert_eq!(say(&mut world, id, "WAIT 1 0", now), ":1\r\n", "it has written nothing");
    say(&mut world, id, "RPUSH l x", now);
    world.store.flush().unwrap();
    assert_eq!(say(&mut world, id, "WAIT 0 0", now), ":1\r\n:0\r\n");
    assert_eq!(say(&mut world, id, "WAITAOF 1 0 0", now), "*2\r\n:1\r\n:0\r\n");
    for (request, reply) in [
        ("WAIT 1 0", ":1\r\n"),
        ("WAITAOF 0 1 0", "*2\r\n:1\r\n:1\r\n"),
        ("WAITAOF 1 1 0", "*2\r\n:1\r\n:1\r\n"),
    ] {
        say(&mut world, id, "RPUSH l x", now);
        world.store.flush().unwrap();
        say(&mut world, id, "", now);
        assert_eq!(say(&mut world, id, request, now), "", "{request}");
        assert!(world.engine.next_due().is_some_and(|due| due.as_millis() <= 5), "it looks again soon");
        now += 100;
        assert_eq!(say(&mut world, id, "", now), "", "{request}");
        copy.keep();
        assert_eq!(say(&mut world, id, "", now), reply, "{request}");
    }
    assert_eq!(world.engine.next_due(), None);
}

#[test]
fn a_wait_ends_with_the_copies_that_there_are() {
    let (mut world, copy, id) = world(Waits::Local);
    say(&mut world, id, "RPUSH l x", 1_000_000);
    world.store.flush().unwrap();
    assert_eq!(say(&mut world, id, "WAIT 1 10", 1_000_009), ":1\r\n");
    assert_eq!(say(&mut world, id, "", 1_000_020), ":0\r\n");
    say(&mut world, id, "WAITAOF 1 1 10", 1_000_021);
    assert_eq!(say(&mut world, id, "", 1_000_040), "*2\r\n:1\r\n:0\r\n");
    // A transaction does not wait.
    for request in ["MULTI", "WAIT 1 0", "WAITAOF 1 1 0"] {
        say(&mut world, id, request, 1_000_041);
    }
    assert_eq!(say(&mut world, id, "EXEC", 1_000_041), "*2\r\n:0\r\n*2\r\n:1\r\n:0\r\n");
    copy.keep();
    assert_eq!(say(&mut world, id, "WAIT 2 10", 1_000_042), "", "there is one copy");
    assert_eq!(say(&mut world, id, "", 1_000_060), ":1\r\n");
}

#[test]
fn replies_that_wait_for_the_copy_are_kept_there() {
    let (mut world, copy, id) = world(Waits::Kept);
    say(&mut world, id, "RPUSH l x", 1_000_000);
    // The flush waits for the device and not for the copy.
    assert_eq!(say(&mut world, id, "WAIT 1 0", 1_000_000), "");
    let copying = copy.clone();
    let keeping = std::thread::spawn(move || {
        while copying.taken.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        copying.keep();
    });
    world.store.flush().unwrap();
    keeping.join().unwrap();
    assert_eq!(say(&mut world, id, "", 1_000_001), ":1\r\n:1\r\n");
}

#[test]
fn a_store_without_a_copy_has_no_replica() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    assert_eq!(say(&mut world, id, "WAIT 0 0", 1_000_000), ":0\r\n");
    assert_eq!(say(&mut world, id, "WAIT 1 10", 1_000_000), "");
    assert_eq!(say(&mut world, id, "", 1_000_020), ":0\r\n");
}

/// In the old state the stop of the store made all epochs durable, also those that it had lost.
#[test]
fn a_client_never_hears_that_lost_writes_are_durable() {
    let mut world = World::new(1, 1 << 20, None);
    let mut connect = || world.engine.connect(String::new(), String::new()).unwrap();
    let [waiting, later, sound] = [connect(), connect(), connect()];
    let mut now = 1_000_000;
    say(&mut world, sound, "SET s v", now);
    world.store.flush().unwrap();
    assert_eq!(say(&mut world, sound, "WAITAOF 1 0 3000", now), "+OK\r\n*2\r\n:1\r\n:0\r\n");
    for id in [waiting, later] {
        say(&mut world, id, "CLIENT REPLY SKIP", now);
        assert_eq!(say(&mut world, id, "SET k v", now), "");
    }
    assert_eq!(say(&mut world, waiting, "WAITAOF 1 0 3000", now), "");
    world.volume.fail(Fault::PowerOffAfter(0));
    let why = world.store.flush().unwrap_err().to_string();
    world.engine.note_stopped(&why);
    world.engine.note_stopped(&why);
    assert_eq!(say(&mut world, waiting, "", now), "");
    assert!(world.engine.client(waiting).unwrap().is_killed, "its writes are lost");
    assert_eq!(say(&mut world, sound, "GET k", now), "$-1\r\n");
    assert_eq!(say(&mut world, sound, "WAITAOF 1 0 3000", now), "*2\r\n:1\r\n:0\r\n");
    assert_eq!(say(&mut world, later, "WAITAOF 1 0 3000", now), "");
    now += 3001;
    assert_eq!(say(&mut world, later, "", now), "*2\r\n:0\r\n:0\r\n");
}
