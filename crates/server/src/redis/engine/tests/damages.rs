//! Keys that nobody can read: they can be deleted, and they stand in the way of no other key.

use brooklet::SpaceConfig;
use brooklet::io::Rng;
use bytes::Bytes;

use super::{World, words};
use crate::redis::client::ClientId;
use crate::redis::keys::head::Record;
use crate::redis::keys::names;
use crate::redis::keys::stream::{Delta, Entry, Id};

/// Runs requests, and returns the replies once all is durable.
fn say(world: &mut World, id: ClientId, requests: &[&str]) -> String {
    for request in requests {
        world.engine.run(id, &mut [words(request)].into(), || true);
        while world.engine.client(id).is_some_and(|client| client.work.is_some()) {
            world.engine.run(id, &mut [].into(), || true);
        }
    }
    world.store.flush().unwrap();
    world.engine.note_durable();
    String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
}

fn come(world: &mut World) -> ClientId {
    world.engine.connect("here".into(), "there".into()).unwrap()
}

/// Adds bytes to the head of a key that is not in memory, which no server has written.
fn damage(world: &World, plain: &[u8]) {
    world.store.append(names::head(plain), [0xff; 9]).unwrap().wait().unwrap();
}

/// A world with keys of all types, of which one type at a time is damaged; none is in memory.
fn damaged(which: &str) -> (World, ClientId) {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    let makes =
        ["SET text v", "LPUSH list 1 2 3", "EXPIRE list 1000", "XADD stream 1-1 f v", "HSET hash f v"];
    say(&mut world, id, &makes);
    // The server reads it in portions.
    for part in 0..20 {
        let field = |n| format!(" field-{part}-{n} a-value-of-some-bytes-{n}");
        let fields: String = (0..500).map(field).collect();
        assert_eq!(say(&mut world, id, &[&format!("HSET long{fields}")]), ":500\r\n");
    }
    damage(&world, format!("0/{which}").as_bytes());
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    let id = come(&mut world);
    (world, id)
}

#[test]
fn a_key_that_nobody_can_read_is_deleted_or_replaced() {
    for which in ["text", "list", "stream", "hash", "long"] {
        let (mut world, id) = damaged(which);
        let found = say(&mut world, id, &[&format!("TYPE {which}")]);
        assert!(found.starts_with("-ERR"), "{which}: {found}");
        let deleted = say(&mut world, id, &[&format!("DEL {which}"), &format!("EXISTS {which}"), "DBSIZE"]);
        assert_eq!(deleted, ":1\r\n:0\r\n:4\r\n", "{which}");
        let logs = world.store.scan(b"0/").unwrap().map(|log| log.unwrap().key);
        assert_eq!(logs.filter(|log| log.ends_with(which.as_bytes())).count(), 0, "{which}");

        let (mut world, id) = damaged(which);
        let set = say(&mut world, id, &[&format!("MSET {which} new"), &format!("GET {which}"), "DBSIZE"]);
        assert_eq!(set, "+OK\r\n$3\r\nnew\r\n:5\r\n", "{which}");
    }
}

/// In the old state the deletion ended at the damaged key, each time again.
#[test]
fn a_database_with_a_damaged_key_is_deleted() {
    for which in ["text", "list", "stream", "hash", "long"] {
        let (mut world, id) = damaged(which);
        let flushed = say(&mut world, id, &["FLUSHDB", "DBSIZE", &format!("EXISTS {which}")]);
        assert_eq!(flushed, "+OK\r\n:0\r\n:0\r\n", "{which}");
        assert_eq!(world.store.scan(b"0/").unwrap().count(), 0, "{which}");
    }
}

/// In the old state the search ended at the damaged key, and looked at numbered databases only.
#[test]
fn keys_expire_after_a_restart_beside_a_damaged_one_and_in_databases_with_a_name() {
    let mut world = World::new(1, 1 << 20, None);
    world.store.create_space("jobs", SpaceConfig::new()).unwrap();
    let id = come(&mut world);
    let sets = ["SET bad v PX 50", "SET good v PX 50", "SELECT jobs", "SET good v PX 50"];
    assert_eq!(say(&mut world, id, &sets), "+OK\r\n".repeat(4));
    damage(&world, b"0/bad");
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    world.pass(100);
    (0..3).for_each(|_| world.pass(1));
    world.store.flush().unwrap();
    for (log, is_there) in [(&b"0/bad"[..], true), (b"0/good", false), (b"jobs/good", false)] {
        assert_eq!(world.store.exists(names::head(log)).unwrap(), is_there, "{}", log.escape_ascii());
    }
}

/// Makes a stream with so many entries, of which nobody can read one: a command that fails because
/// of it has read that far.
fn stream(count: u64, unreadable: u64) -> (World, ClientId) {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    say(&mut world, id, &["XGROUP CREATE s g 0 MKSTREAM"]);
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    for ms in 1..=count {
        let entry = Entry::encode(Id { ms, seq: 0 }, &[]);
        let entry = if ms == unreadable { Bytes::from_static(&[0xff; 9]) } else { entry };
        let added = world.store.append(names::entries(b"0/s"), entry).unwrap();
        if ms % 100 == 0 {
            added.wait().unwrap();
        }
    }
    let id = come(&mut world);
    (world, id)
}

/// In the old state a trim of a stream with a deleted entry read all entries that went, one by one:
/// all other clients waited for seconds if they were many.
#[test]
fn a_trim_reads_few_of_the_entries_that_go() {
    let (mut world, id) = stream(1_000, 138);
    let told = say(&mut world, id, &["XDEL s 500-0", "XTRIM s MAXLEN 10", "XLEN s", "XRANGE s - + COUNT 1"]);
    assert_eq!(told, ":1\r\n:989\r\n:10\r\n*1\r\n*2\r\n$5\r\n991-0\r\n*0\r\n");
}

/// In the old state a portion read 1,000 values, whatever their size, before anybody looked at the
/// room of the reply.
#[test]
fn few_large_values_are_read_at_once() {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    for n in 0..40 {
        say(&mut world, id, &[&format!("SET k{n} {}", "x".repeat(50_000))]);
    }
    say(&mut world, id, &["SET k45 v"]);
    damage(&world, b"0/k45");
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    let id = come(&mut world);
    world.engine.settings.hard_output = 500_000;
    let keys: String = (0..1_001).map(|n| format!(" k{n}")).collect();
    let told = say(&mut world, id, &[&format!("MGET{keys}")]);
    assert!(told.starts_with("-ERR the reply is over"), "{told}");
}

/// In the old state the deletion of the first entry read all deleted ones behind it.
#[test]
fn a_deletion_at_the_front_reads_few_of_the_entries_that_go() {
    let (mut world, id) = stream(3_000, 1_500);
    let gone = Delta::Gone((2..=2_990).map(|ms| Id { ms, seq: 0 }).collect());
    for record in Record::Stream(gone).split() {
        world.store.append(names::head(b"0/s"), record.encode()).unwrap().wait().unwrap();
    }
    let told = say(&mut world, id, &["XLEN s", "XDEL s 1-0", "XLEN s", "XRANGE s - + COUNT 1"]);
    assert_eq!(told, ":11\r\n:1\r\n:10\r\n*1\r\n*2\r\n$6\r\n2991-0\r\n*0\r\n");
}

/// In an earlier state, a walk whose steps passed unreadable keys ended as a walk over all keys
/// does.
#[test]
fn a_walk_over_keys_that_cannot_be_listed_ends_with_an_error() {
    let (mut world, mut rng) = (World::new(1, 1 << 20, None), Rng::new(1));
    let id = come(&mut world);
    for n in 0..300 {
        let noise: Vec<String> = (0..60).map(|_| format!("{:016x}", rng.next())).collect();
        let set = format!("SET key:{n:03} {}", noise.concat());
        assert_eq!(say(&mut world, id, &[&set]), "+OK\r\n");
    }
    world.store.checkpoint().unwrap();
    world.store.compact().unwrap();
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    let id = come(&mut world);
    // In the first of the run's tables, which need not be one behind the other. Listings keep no
    // block in memory, so the one of the opening has read this block, and the walks read it again.
    let run = world.store.info().unwrap().runs[0];
    world.volume.flip(run.offset as usize + 9_000, 1);
    for count in [1, 20, 290] {
        let (mut keys, mut cursor) = (0, "0".to_owned());
        let error = loop {
            let reply = say(&mut world, id, &[&format!("SCAN {cursor} COUNT {count}")]);
            if reply.starts_with('-') {
                break reply;
            }
            let mut lines = reply.split("\r\n");
            cursor = lines.nth(2).unwrap().to_owned();
            keys += lines.filter(|line| line.starts_with("key:")).count();
            assert_ne!(cursor, "0", "{keys} of 300 keys, and the walk ends as a whole one, {count} a step");
        };
        assert!(error.starts_with("-ERR the store is damaged: "), "{error}");
        assert!(error.contains("may be missing"), "{error}");
        assert!((200..300).contains(&keys), "{keys} of 300 keys come before the error");
        // A client whose connection broke repeats the step.
        assert_eq!(say(&mut world, id, &[&format!("SCAN {cursor} COUNT {count}")]), error);
    }
    let listed = say(&mut world, id, &["KEYS *"]);
    assert!(listed.starts_with("-ERR the store is damaged: "), "{listed}");
}
