//! What stays in memory: no key keeps the packet that it came in.

use bytes::{Bytes, BytesMut};

use super::{World, words};

#[test]
fn what_stays_does_not_keep_what_it_came_with() {
    for requests in [
        &["SET a 1", "APPEND a 2", "INCR a", "GETSET a 3", "MSET a 1 b 2", "COPY a c"][..],
        &["HSET h f 1", "HINCRBY h f 2", "HSETNX h g 3", "RENAME h i"],
        &["RPUSH l a b", "LPUSH l c", "LSET l 0 d", "LINSERT l BEFORE a e"],
        &[
            "XADD s 1-1 f v",
            "XGROUP CREATE s g 0",
            "XREADGROUP GROUP g p STREAMS s >",
            "XAUTOCLAIM s g q 0 0",
        ],
        &["WATCH a b", "MULTI", "SET a 1", "RPUSH l x"],
        &["CLIENT SETNAME me", "CLIENT SETINFO LIB-NAME lib", "CLIENT SETINFO LIB-VER 1", "SELECT 1"],
        &["HELLO 3 SETNAME you"],
    ] {
        let mut world = World::new(1, 1 << 20, None);
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        for request in requests {
            let packet = BytesMut::from(request.as_bytes()).freeze();
            let words = request.split(' ').map(|word| packet.slice_ref(word_of(&packet, request, word)));
            world.engine.run(id, &mut [words.collect()].into(), || true);
            world.store.flush().unwrap();
            world.engine.note_durable();
            let said = world.engine.take_ready(id);
            assert!(!said.is_empty() && said[0] != b'-', "{request}: {}", said.escape_ascii());
            assert!(packet.is_unique(), "{request}: its packet is kept");
        }
    }
}

#[test]
fn a_wait_does_not_keep_what_it_came_with() {
    for request in ["BLPOP none 0", "XREAD BLOCK 0 STREAMS none $", "WAIT 1 0", "BLMOVE none l LEFT LEFT 0"] {
        let mut world = World::new(1, 1 << 20, None);
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        let packet = BytesMut::from(request.as_bytes()).freeze();
        let words = request.split(' ').map(|word| packet.slice_ref(word_of(&packet, request, word)));
        world.engine.run(id, &mut [words.collect()].into(), || true);
        assert!(world.engine.client(id).unwrap().wait.is_some(), "{request}");
        assert!(packet.is_unique(), "{request}: its packet is kept");
    }
}

#[test]
fn the_names_of_clients_are_short_and_count() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let mut say = |request: &str, name: usize| {
        let request = format!("{request} {}", "x".repeat(name));
        world.engine.run(id, &mut [words(&request)].into(), || true);
        let said = world.engine.take_ready(id);
        world.engine.run(id, &mut [].into(), || true);
        (said[0] == b'+', world.engine.client_memory())
    };
    for request in ["CLIENT SETNAME", "CLIENT SETINFO LIB-NAME", "CLIENT SETINFO LIB-VER"] {
        let (is_done, before) = say(request, 24);
        assert!(is_done, "{request}");
        assert_eq!(say(request, 1024), (true, before + 1000), "{request}");
        assert_eq!(say(request, 1025), (false, before + 1000), "{request}");
    }
}

/// The part of a packet that a word of its text is.
fn word_of<'a>(packet: &'a Bytes, text: &str, word: &str) -> &'a [u8] {
    let at = word.as_ptr().addr() - text.as_ptr().addr();
    &packet[at..at + word.len()]
}

#[test]
fn a_key_that_is_given_time_again_and_again_is_noted_once() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let mut say = |request: &str| {
        world.engine.run(id, &mut [words(request)].into(), || true);
        world.engine.keys.expiring()
    };
    say("RPUSH a x");
    for seconds in 100..200 {
        say(&format!("EXPIRE a {seconds}"));
        say(&format!("SET b x EX {seconds}"));
    }
    assert_eq!((say("PERSIST a"), say("DEL b")), (1, 0));
}

#[test]
fn what_a_transaction_tells_is_not_gathered_without_end() {
    let mut world = World::new(1, 1 << 20, None);
    world.engine.settings.hard_output = 10_000;
    let ids = [(); 2].map(|()| world.engine.connect(String::new(), String::new()).unwrap());
    let mut say = |id: u64, request: &str| world.engine.run(id, &mut [words(request)].into(), || true);
    say(ids[0], &format!("SET large {}", "x".repeat(1000)));
    say(ids[0], "MULTI");
    (0..100).for_each(|_| say(ids[0], "GET large"));
    say(ids[0], "RPUSH l x");
    say(ids[0], "EXEC");
    say(ids[1], "LLEN l");
    let client = world.engine.client(ids[0]).unwrap();
    assert!(client.is_killed, "it cannot be told what was done");
    // The answers to what was gathered are in it, too.
    assert!(client.reply.bytes.capacity() < 30_000, "{}", client.reply.bytes.capacity());
    assert!(world.engine.client(ids[1]).unwrap().reply.bytes.ends_with(b":1\r\n"), "it is done to its end");
}

/// Memory that is full of the keys of another database hides no key.
#[test]
fn a_random_key_is_any_of_the_few_beside_many_of_another_database() {
    let mut world = World::new(1, 16 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let mut say = |request: &str| {
        world.engine.run(id, &mut [words(request)].into(), || true);
        world.store.flush().unwrap();
        world.engine.note_durable();
        world.engine.take_ready(id)
    };
    say("SELECT 1");
    for n in 0..5000 {
        say(&format!("SET other{n} x"));
    }
    say("SELECT 0");
    say("MSET one 1 two 2");
    let second = (0..400).filter(|_| say("RANDOMKEY") == b"$3\r\ntwo\r\n"[..]).count();
    assert!((50..=350).contains(&second), "{second} of 400");
}
