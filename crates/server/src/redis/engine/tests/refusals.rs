//! Commits that the store refuses: nothing of them stays, and what can still be done is done.

use std::io;

use brooklet::io::{Fault, Rng};
use bytes::Bytes;

use super::random::Asker;
use super::{World, words};
use crate::redis::pubsub::Kind;

const MIB: u64 = 1 << 20;

/// A client asks, of a store that may be full: what is refused changes nothing. Whether it was.
fn ask(world: &mut World, id: u64, request: &[Bytes]) -> bool {
    let before = world.engine.client(id).unwrap().written();
    world.engine.run(id, &mut [request.to_vec()].into(), || true);
    let said = &world.engine.client(id).unwrap().reply.bytes[before..];
    // What no ring of that size could take is refused as well, for good.
    let is_refused = said.starts_with(b"-OOM ") || said.starts_with(b"-ERR a commit of ");
    if is_refused {
        let said = said.to_vec();
        world.people.refuse(id, &said);
    } else {
        world.people.ask(id, request);
    }
    world.compare(&format!("{request:?}"));
    is_refused
}

#[test]
fn a_full_store_takes_nothing_in_part_and_gives_everything_back() {
    let mut transactions = 0;
    for seed in 0..12 {
        let rng = &mut Rng::new(seed);
        let cache = [1, 2500, 1 << 20][rng.below(3) as usize];
        let mut world = World::new(seed, cache, Some((256 << 10) + (64 << 10) + MIB));
        let mut asker = Asker::new(seed, 30_000);
        let ids = [world.come(), world.come(), world.come()];
        let mut refused = 0;
        for step in 0..400 {
            let id = ids[rng.below(3) as usize];
            let gathers = world.people.all[&id].queue.is_some();
            // It is filled before anything else.
            let request = match (step < 60, gathers, rng.below(10)) {
                (true, ..) => words(&format!("RPUSH {} {}", ["a", "b"][step % 2], noise(rng, 30_000))),
                (_, false, 0..3) => words("MULTI"),
                (_, true, 0..3) => words("EXEC"),
                _ => match asker.request(false) {
                    // These make room; there is to be little of it.
                    request if ["FLUSHDB", "DEL", "LTRIM"].iter().any(|name| request[0] == *name) => {
                        words("LLEN a")
                    }
                    request => request,
                },
            };
            let is_refused = ask(&mut world, id, &request);
            refused += u64::from(is_refused);
            transactions += u64::from(is_refused && request[0] == "EXEC");
            match rng.below(20) {
                0..3 => drop(world.store.step().unwrap()),
                3 => world.engine.note_durable(),
                4 => world.deliver(),
                _ => {}
            }
        }
        assert!(refused > 10, "seed {seed}: {refused} were refused");
        for id in ids {
            while world.people.all[&id].queue.is_some() {
                ask(&mut world, id, &words("EXEC"));
            }
        }
        world.settle();
        let expected = world.people.model.keys.clone();
        assert!(world.state() == expected, "seed {seed}: something of what was refused is there");
        world.store.close().unwrap();
        let image = world.volume.image();
        let mut world = world.reopened(image, seed);
        assert!(world.state() == expected, "seed {seed}: something of what was refused is there later");
        // Whatever makes room is taken, and then there is room.
        let id = world.come();
        world.people = super::People::new(expected, world.now());
        world.people.come(id);
        for request in ["LTRIM a 1 2", "LTRIM b 0 0", "DEL a b", "DEL c d", "DEL e"] {
            assert!(!ask(&mut world, id, &words(request)), "seed {seed}: {request}");
        }
        world.settle();
        while world.store.step().unwrap() {}
        for n in 0..10 {
            assert!(
                !ask(&mut world, id, &words(&format!("RPUSH a {}", noise(rng, 30_000)))),
                "seed {seed}: {n}"
            );
        }
    }
    assert!(transactions > 2, "{transactions} transactions were refused");
}

fn noise(rng: &mut Rng, len: u64) -> String {
    (0..len).map(|_| char::from(b'!' + (rng.next() % 90) as u8)).collect()
}

/// The device fails: who waits for what did not become durable is let go of, reads go on, and
/// writes are told why not.
#[test]
fn a_failing_device_is_told() {
    for seed in 0..60 {
        let rng = &mut Rng::new(seed);
        let mut world = World::new(seed, [1, 1 << 20][rng.below(2) as usize], None);
        let mut asker = Asker::new(seed, 300);
        let _ = [world.come(), world.come(), world.come()];
        world.volume.fail(Fault::ErrorAfter {
            operations: 10 + rng.below(20),
            kind: io::ErrorKind::Other,
            sticky: true,
        });
        let mut why = None;
        while why.is_none() && world.engine.stopped.is_none() {
            let ids: Vec<u64> = world.people.all.keys().copied().collect();
            world.ask(ids[rng.below(3) as usize], &asker.request(false));
            match rng.below(5) {
                0..2 => why = world.store.step().err(),
                2 => world.engine.note_durable(),
                3 => world.deliver(),
                _ => world.pass(1),
            }
        }
        let why = why.map_or_else(|| world.engine.stopped.clone().unwrap(), |why| why.to_string());
        world.engine.note_stopped(&why);
        let ids: Vec<u64> = world.people.all.keys().copied().collect();
        for id in ids {
            // What is not killed got everything that it was told, which what it tells of became
            // durable.
            let ready = world.engine.take_ready(id);
            let client = world.engine.client(id).unwrap();
            if !client.is_killed {
                assert!(client.is_done(), "seed {seed}: client {id} waits for ever");
                world.people.get(id, &ready);
            }
        }
        let (states, told, now) = (world.people.states.clone(), world.people.told, world.now());
        let shown = world.state();
        let fits =
            |state: &super::State| states[told..].iter().any(|one| super::cuts::at(one, now) == *state);
        assert!(fits(&shown), "seed {seed}: reads show {shown:?}");
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        for (request, reply) in
            [("SET a 1", "-MISCONF "), ("LLEN nothing", ":0\r\n"), ("SET a 2", "-MISCONF ")]
        {
            world.engine.run(id, &mut [words(request)].into(), || true);
            let said = world.engine.take_ready(id);
            assert!(said.starts_with(reply.as_bytes()), "seed {seed}: {request}: {}", said.escape_ascii());
        }
        assert!(world.state() == shown, "seed {seed}: what was refused is shown");
        let image = world.volume.crash();
        assert!(fits(&world.reopened(image, seed).state()), "seed {seed}: after a restart");
    }
}

/// A key whose time comes when nothing can be written is not shown, and reads of it are no errors.
#[test]
fn keys_expire_for_readers_of_a_store_that_has_stopped() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.come();
    world.say(id, "SET a 1 PX 3000");
    world.settle();
    world.volume.fail(Fault::PowerOffAfter(0));
    world.say(id, "SET b 1");
    let why = world.store.flush().unwrap_err().to_string();
    world.engine.note_stopped(&why);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    for (millis, reply) in [(10, "$1\r\n1\r\n"), (4000, "$-1\r\n"), (10, "$-1\r\n")] {
        world.pass(millis);
        world.engine.run(id, &mut [words("GET a")].into(), || true);
        assert_eq!(
            world.engine.take_ready(id).escape_ascii().to_string(),
            reply.escape_default().to_string()
        );
    }
}

/// A refused transaction takes with it only what it did itself, and not what is on its way of those
/// before.
#[test]
fn what_was_done_before_a_refused_transaction_stays() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.come();
    for request in
        ["RPUSH a x", "HSET b f 1", "XADD c 1-1 f v", "MULTI", "RPUSH a y", "HSET b f 2", "XADD c 2-1 f v"]
    {
        world.say(id, request);
    }
    for _ in 0..4 {
        world.say(id, &format!("RPUSH d {}", "x".repeat(50_000)));
    }
    assert!(ask(&mut world, id, &words("EXEC")), "no ring of that size takes it");
    for request in ["LRANGE a 0 -1", "HGETALL b", "XRANGE c - +", "EXISTS d", "DBSIZE"] {
        world.say(id, request);
    }
    world.settle();
}

/// A command that is refused for its last key has done nothing to the others.
#[test]
fn what_is_wrong_is_told_before_anything_is_done() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.come();
    world.say(id, "SET a 1");
    let long = "k".repeat(5000);
    for request in [format!("MSET a 2 {long} 2"), format!("DEL a {long}"), format!("MSETNX b 2 {long} 2")] {
        world.engine.run(id, &mut [words(&request)].into(), || true);
    }
    assert_eq!(world.state(), world.people.model.keys);
}

/// Asking again may change a key though there is still nothing: that is committed there and then,
/// and by nobody else later.
#[test]
fn what_a_waiting_client_changes_by_asking_again_is_no_ones_else() {
    let mut world = World::new(1, 1 << 20, None);
    let [reader, writer, other] = [world.come(), world.come(), world.come()];
    let mut run = |id: u64, request: &str| {
        world.engine.run(id, &mut [words(request)].into(), || true);
        world.store.flush().unwrap();
        world.engine.note_durable();
        String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap()
    };
    run(writer, "XGROUP CREATE s g $ MKSTREAM");
    assert_eq!(run(reader, "XREADGROUP GROUP g p BLOCK 0 STREAMS s >"), "");
    run(other, "MULTI");
    run(other, "SET a 1");
    run(writer, "MULTI");
    run(writer, "XGROUP DESTROY s g");
    run(writer, "XGROUP CREATE s g $");
    assert!(run(writer, "EXEC").starts_with("*2"));
    assert_eq!(run(other, "EXEC"), "*1\r\n+OK\r\n", "nothing that it watches has changed");
}

/// In the old state the database, the subscriptions and the settings stayed as the undone
/// transaction had made them.
#[test]
fn an_undone_transaction_leaves_its_client_and_the_settings_as_they_were() {
    let large = words(&format!("RPUSH l {}", "x".repeat(50_000)));
    for is_undone in [true, false] {
        let mut world = World::new(1, 1 << 20, None);
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        let before = ["HELLO 3", "SELECT 2", "SUBSCRIBE kept", "PSUBSCRIBE p*"].map(words);
        world.engine.run(id, &mut before.into(), || true);
        let limit = world.engine.settings.max_request;
        let changes = [
            "MULTI",
            "SELECT 1",
            "SET key 1",
            "SUBSCRIBE c",
            "UNSUBSCRIBE kept",
            "PUNSUBSCRIBE p*",
            "SSUBSCRIBE s",
            "CONFIG SET client-query-buffer-limit 1073741824",
            "SELECT 3",
        ];
        let mut requests = changes.map(words).to_vec();
        requests.extend(std::iter::repeat_n(large.clone(), if is_undone { 3 } else { 0 }));
        requests.push(words("EXEC"));
        world.engine.run(id, &mut requests.into(), || true);
        // What follows is not undone, and takes nothing back.
        world.engine.run(id, &mut [large.clone(), words("LPUSH key 1")].into(), || true);
        let told = String::from_utf8_lossy(&world.engine.client(id).unwrap().reply.bytes).into_owned();
        assert_eq!(told.contains("-ERR a commit of "), is_undone, "{told}");
        let client = world.engine.client(id).unwrap();
        assert_eq!(&client.database[..], if is_undone { b"2" } else { b"3" });
        let count = |kind, name: &str| world.engine.topics.subscriber_count(kind, name.as_bytes());
        let all = [
            count(Kind::Channel, "kept"),
            count(Kind::Pattern, "p*"),
            count(Kind::Channel, "c"),
            count(Kind::Shard, "s"),
        ];
        assert_eq!(all, if is_undone { [1, 1, 0, 0] } else { [0, 0, 1, 1] });
        let later = world.engine.settings.max_request;
        assert_eq!(later, if is_undone { limit } else { 1 << 30 });
    }
}
