//! Whoever drives a client's connection is woken when there is something for it, whoever it is that
//! takes note first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

use bytes::Bytes;

use super::{World, at, words};

/// Counts how often it wakes somebody.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn woken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a request of a client until it waits for a commit; then something happens, of which it has
/// to hear.
fn is_woken(request: &str, happens: impl FnOnce(&mut World)) -> bool {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let count = Arc::new(Count::default());
    world.engine.run(id, &mut [words("SET a 1")].into(), || true);
    world.engine.run(id, &mut [words(request)].into(), || true);
    world.engine.client(id).unwrap().waker = Some(count.clone().into());
    assert!(world.engine.take_ready(id).is_empty(), "nothing is durable yet");
    happens(&mut world);
    count.woken() > 0
}

#[test]
fn whoever_waits_for_a_commit_is_woken() {
    for request in ["GET a", "WAITAOF 1 0 0"] {
        assert!(is_woken(request, |world| {
            world.store.flush().unwrap();
            world.engine.note_durable();
        }));
        // The clock may be the first to see that something is durable.
        assert!(is_woken(request, |world| {
            world.store.flush().unwrap();
            world.engine.tick(at(2_000_000));
        }));
        assert!(is_woken(request, |world| world.engine.note_stopped("no device")));
        assert!(!is_woken(request, |world| world.engine.tick(at(2_000_000))));
    }
}

/// As Redis 7.0.15 replies, also where an element would be a text.
#[test]
fn a_wait_in_vain_ends_with_a_null_array() {
    for request in ["BLPOP l 1", "BLMOVE l m LEFT LEFT 1", "BRPOPLPUSH l m 1", "XREAD BLOCK 1000 STREAMS s $"]
    {
        let mut world = World::new(1, 1 << 20, None);
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        world.engine.run(id, &mut [words(request)].into(), || true);
        world.engine.tick(at(1_002_000));
        assert_eq!(&world.engine.take_ready(id)[..], b"*-1\r\n", "{request}");
    }
}

/// In an earlier state one member of a group that waited for any key had each push go through all
/// clients that waited for its list.
#[test]
fn members_of_groups_are_found_without_the_others() {
    let mut world = World::new(1, 1 << 20, None);
    let mut ask = |request: &str| {
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        world.engine.run(id, &mut [words(request)].into(), || true);
        id
    };
    for key in ["list", "both"] {
        for _ in 0..3 {
            ask(&format!("BLPOP {key} 0"));
        }
    }
    ask("XGROUP CREATE both g $ MKSTREAM");
    let member = ask("XREADGROUP GROUP g c BLOCK 0 STREAMS both >");
    let next = |world: &World, key: &'static [u8], only_members| {
        world.engine.next_waiting(&Bytes::from_static(key), 0, only_members).map(|(_, id)| id)
    };
    assert!(next(&world, b"0/list", false).is_some() && next(&world, b"0/both", false).is_some());
    assert_eq!(next(&world, b"0/list", true), None);
    assert_eq!(next(&world, b"0/both", true), Some(member));
    world.engine.disconnect(member);
    assert_eq!(next(&world, b"0/both", true), None);
}

/// In the old state such a client did not wait, as it does in Redis: the next command ran at once,
/// and an element that came later stayed in its list.
#[test]
fn a_client_that_wants_no_reply_waits_as_well() {
    for (mode, after) in [("OFF", ""), ("SKIP", "+PONG\r\n")] {
        for (request, comes) in [
            ("BLPOP l 0", Some("RPUSH l a")),
            ("XREAD BLOCK 0 STREAMS s $", Some("XADD s 1-1 f v")),
            ("BLPOP l 1", None),
            ("WAIT 1 1000", None),
        ] {
            let mut world = World::new(1, 1 << 20, None);
            let mut connect = || world.engine.connect(String::new(), String::new()).unwrap();
            let (id, other) = (connect(), connect());
            let mode = format!("CLIENT REPLY {mode}");
            let mut asks: VecDeque<_> = [&mode[..], request, "PING"].map(words).into();
            world.engine.run(id, &mut asks, || true);
            assert_eq!(asks.len(), 1, "{mode}: {request} waits");
            match comes {
                Some(comes) => world.engine.run(other, &mut [words(comes)].into(), || true),
                None => world.engine.tick(at(1_002_000)),
            }
            world.engine.run(id, &mut asks, || true);
            world.store.flush().unwrap();
            world.engine.note_durable();
            let said = world.engine.take_ready(id);
            assert_eq!(String::from_utf8_lossy(&said), after, "{mode}: {request}");
        }
    }
}
