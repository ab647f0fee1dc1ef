//! Clients that wait to read a stream all get a copy of each entry: in portions, and within the
//! memory of all clients.

use super::{World, at, words};
use crate::redis::client::ClientId;

/// Size of an entry, in bytes: 17 copies are a portion.
const ENTRY: usize = 60 << 10;

/// A server, a client that writes, and so many that wait to read what it writes.
fn waiting(readers: usize) -> (World, ClientId, Vec<ClientId>) {
    let mut world = World::new(1, 16 << 20, None);
    let mut come = || world.engine.connect(String::new(), String::new()).unwrap();
    let (writer, readers) = (come(), (0..readers).map(|_| come()).collect::<Vec<_>>());
    for id in &readers {
        world.engine.run(*id, &mut [words("XREAD BLOCK 0 STREAMS s $")].into(), || true);
    }
    (world, writer, readers)
}

fn add(world: &mut World, writer: ClientId, id: u64) {
    let request = format!("XADD s {id} f {}", "x".repeat(ENTRY));
    world.engine.run(writer, &mut [words(&request)].into(), || true);
}

/// How many have their copy.
fn served(world: &mut World, readers: &[ClientId]) -> usize {
    let engine = &mut world.engine;
    readers.iter().filter(|id| engine.client(**id).is_some_and(|client| client.wait.is_none())).count()
}

#[test]
fn readers_get_a_large_entry_in_portions_and_in_their_order() {
    let (mut world, writer, readers) = waiting(40);
    add(&mut world, writer, 1);
    let first = served(&mut world, &readers);
    assert!((16..=18).contains(&first), "{first}");
    assert_eq!(served(&mut world, &readers[..first]), first, "those who came first");
    assert!(world.engine.next_due().is_some_and(|due| due.as_millis() <= 1), "the rest follows");
    world.engine.has_deadline = false;
    world.engine.tick(at(1_000_001));
    assert!(!world.engine.has_deadline, "the driver pauses, so that others have their turns");
    let second = served(&mut world, &readers);
    assert!((32..=36).contains(&second), "{second}");
    // Those who have their copy wait again, and those who have none get both entries.
    world.engine.run(readers[0], &mut [words("XREAD BLOCK 0 STREAMS s $")].into(), || true);
    add(&mut world, writer, 2);
    for now in 0..5 {
        world.engine.tick(at(1_000_002 + now));
    }
    assert_eq!(served(&mut world, &readers), readers.len());
    world.store.flush().unwrap();
    world.engine.note_durable();
    let copies: Vec<usize> = readers.iter().map(|id| world.engine.take_ready(*id).len() / ENTRY).collect();
    assert_eq!(copies.iter().filter(|copies| **copies == 2).count(), readers.len() - second + 1);
    assert!(copies.iter().all(|copies| (1..=2).contains(copies)), "{copies:?}");
}

/// In the old state the copies for readers that want no reply were not counted. All of them were
/// made in one portion, and others waited for that.
#[test]
fn copies_for_readers_that_want_no_reply_make_portions_as_well() {
    let (mut world, writer, mut readers) = waiting(0);
    for _ in 0..40 {
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        for request in ["CLIENT REPLY OFF", "XREAD BLOCK 0 STREAMS s $"] {
            world.engine.run(id, &mut [words(request)].into(), || true);
        }
        readers.push(id);
    }
    assert_eq!(served(&mut world, &readers), 0);
    add(&mut world, writer, 1);
    let first = served(&mut world, &readers);
    assert!((16..=18).contains(&first), "{first}");
    for now in 0..5 {
        world.engine.tick(at(1_000_001 + now));
    }
    assert_eq!(served(&mut world, &readers), readers.len());
}

#[test]
fn readers_whose_copies_take_too_much_memory_leave() {
    let (mut world, writer, readers) = waiting(40);
    let most = world.engine.client_memory() + 8 * ENTRY;
    world.engine.settings.client_memory = most;
    add(&mut world, writer, 1);
    for now in 0..5 {
        assert!(world.engine.client_memory() <= most, "{} of {most}", world.engine.client_memory());
        world.engine.tick(at(1_000_001 + now));
    }
    let left = readers.iter().filter(|id| world.engine.client(**id).is_some()).count();
    assert!((1..=8).contains(&left) && served(&mut world, &readers) == left, "{left}");
}

#[test]
fn a_reader_whose_turn_comes_late_gets_what_came_in_time() {
    let (mut world, writer, mut readers) = waiting(40);
    for request in ["XREAD BLOCK 5 STREAMS s $", "XREAD BLOCK 5 STREAMS t $"] {
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        world.engine.run(id, &mut [words(request)].into(), || true);
        readers.push(id);
    }
    add(&mut world, writer, 1);
    // The time is over before the turn.
    for now in 0..5 {
        world.engine.tick(at(1_000_010 + now));
    }
    assert_eq!(served(&mut world, &readers), readers.len());
    world.store.flush().unwrap();
    world.engine.note_durable();
    let sizes: Vec<bool> = readers.iter().map(|id| world.engine.take_ready(*id).len() > ENTRY).collect();
    assert_eq!(sizes.iter().filter(|has| **has).count(), readers.len() - 1, "one waited for another stream");
}

#[test]
fn whoever_takes_an_entry_gets_it_before_anyone_who_reads() {
    let (mut world, writer, readers) = waiting(40);
    let taker = world.engine.connect(String::new(), String::new()).unwrap();
    for request in ["XGROUP CREATE s g $ MKSTREAM", "XREADGROUP GROUP g p BLOCK 0 STREAMS s >"] {
        world.engine.run(taker, &mut [words(request)].into(), || true);
    }
    let popper = world.engine.connect(String::new(), String::new()).unwrap();
    world.engine.run(popper, &mut [words("BLPOP l 0")].into(), || true);
    add(&mut world, writer, 1);
    world.engine.run(writer, &mut [words("RPUSH l x")].into(), || true);
    assert!(served(&mut world, &readers) < readers.len());
    assert_eq!(served(&mut world, &[taker, popper]), 2);
}

#[test]
fn a_reader_who_goes_or_waits_for_another_stream_gets_no_late_copy() {
    let (mut world, writer, readers) = waiting(40);
    add(&mut world, writer, 1);
    let [.., gone, other] = readers[..] else { unreachable!() };
    world.engine.disconnect(gone);
    world.engine.unblock(other, None);
    world.engine.run(other, &mut [words("XREAD BLOCK 0 STREAMS t $")].into(), || true);
    for now in 0..5 {
        world.engine.tick(at(1_000_001 + now));
    }
    assert!(world.engine.client(other).unwrap().wait.is_some());
    assert_eq!(served(&mut world, &readers), readers.len() - 2);
    // The end of the server leaves nobody behind.
    let (mut world, writer, readers) = waiting(40);
    add(&mut world, writer, 1);
    world.engine.say_goodbye();
    let got = |id: &&ClientId| world.engine.client(**id).is_some_and(|client| client.written() > ENTRY);
    assert_eq!(readers.iter().filter(got).count(), readers.len());
}

/// In the old state the deletion of the key was left to the next commit, whose command could be
/// refused because of it.
#[test]
fn a_stream_that_expires_before_its_readers_have_their_turns_is_deleted_at_once() {
    let (mut world, writer, readers) = waiting(60);
    add(&mut world, writer, 1);
    world.engine.run(writer, &mut [words("PEXPIREAT s 1000050")].into(), || true);
    let before = served(&mut world, &readers);
    assert!(before < readers.len(), "{before}");
    world.engine.set_time(at(1_000_100));
    world.engine.serve_readers();
    assert!(!world.engine.keys.is_changed(), "a change is left to the next commit");
    assert_eq!(world.engine.keys.next_deadline(), None);
    assert_eq!(served(&mut world, &readers), before);
}

/// The clients that wait behind the one who took the last element are not asked one by one, unless
/// one of them waits as a member of a group.
#[test]
fn whoever_waits_behind_the_last_element_waits_on() {
    let mut world = World::new(1, 1 << 20, None);
    let [first, second, member, writer] =
        [(); 4].map(|()| world.engine.connect(String::new(), String::new()).unwrap());
    let mut ask = |id: ClientId, requests: &[&str]| {
        world.engine.run(id, &mut requests.iter().map(|request| words(request)).collect(), || true);
        world.store.flush().unwrap();
        world.engine.note_durable();
        [first, second, member].map(|id| String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap())
    };
    ask(first, &["BLPOP k 0"]);
    ask(second, &["BLPOP k 0"]);
    ask(writer, &["XGROUP CREATE k g 0 MKSTREAM"]);
    ask(member, &["XREADGROUP GROUP g c BLOCK 0 STREAMS k >"]);
    let replaced = ask(writer, &["MULTI", "DEL k", "RPUSH k x", "EXEC"]);
    let popped = |element: &str| format!("*2\r\n$1\r\nk\r\n$1\r\n{element}\r\n");
    let gone = "-UNBLOCKED the stream key no longer exists\r\n".to_owned();
    assert_eq!(replaced, [popped("x"), String::new(), gone]);
    ask(first, &["BLPOP k 0"]);
    assert_eq!(ask(writer, &["RPUSH k y"]), [String::new(), popped("y"), String::new()]);
    assert_eq!(ask(writer, &["RPUSH k z 1"]), [popped("z"), String::new(), String::new()]);
}
