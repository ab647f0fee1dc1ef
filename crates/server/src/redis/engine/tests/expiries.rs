//! Keys that expire by themselves, whatever is in their way, and ids of streams that come again.

use brooklet::{Class, MemoryConfig, SpaceConfig};

use super::{World, at, words};
use crate::redis::client::ClientId;
use crate::redis::keys::names;

/// Runs requests, and returns the replies once all is durable.
fn say(world: &mut World, id: ClientId, requests: &[&str]) -> String {
    for request in requests {
        world.engine.run(id, &mut [words(request)].into(), || true);
    }
    world.store.flush().unwrap();
    world.engine.note_durable();
    String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
}

fn come(world: &mut World) -> ClientId {
    world.engine.connect("here".into(), "there".into()).unwrap()
}

/// A commit is on databases in memory, or on others.
#[test]
fn keys_of_several_databases_expire_at_one_moment() {
    let mut world = World::new(1, 1 << 20, None);
    let in_memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    world.store.create_space("2", in_memory).unwrap();
    let id = come(&mut world);
    let set = ["SET a v PX 50", "SET c v PX 70", "SELECT 2", "SET b v PX 60", "SELECT 0"];
    assert_eq!(say(&mut world, id, &set), "+OK\r\n".repeat(5));
    // All are due by the time that somebody looks.
    world.pass(100);
    (0..5).for_each(|_| world.pass(1));
    assert_eq!(world.engine.keys.next_deadline(), None, "all are deleted");
    let left = say(&mut world, id, &["DBSIZE", "SELECT 2", "DBSIZE"]);
    assert_eq!(left, ":0\r\n+OK\r\n:0\r\n");
}

#[test]
fn a_key_that_nobody_can_read_keeps_no_other_from_expiring() {
    let mut world = World::new(1, 1, None);
    let id = come(&mut world);
    say(&mut world, id, &["SET bad v PX 50", "SET good v PX 60", "SET other v"]);
    // Memory is for one key, so that the next request lets the others go.
    say(&mut world, id, &["GET other"]);
    world.store.append(names::head(b"0/bad"), [0xff; 9]).unwrap().wait().unwrap();
    let found = say(&mut world, id, &["GET bad"]);
    assert!(found.starts_with("-ERR"), "{found}");
    world.pass(100);
    (0..3).for_each(|_| world.pass(1));
    assert_eq!(world.engine.keys.next_deadline(), None);
    world.store.flush().unwrap();
    assert!(!world.store.exists(names::head(b"0/good")).unwrap());
    assert!(say(&mut world, id, &["GET bad"]).starts_with("-ERR"));
}

#[test]
fn ids_that_come_again_were_not_deleted() {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    let adds = ["XADD s 5-1 f v", "XADD s 6-1 f v", "XADD s 7-1 f v"];
    let again = ["XSETID s 10-0 MAXDELETEDID 1-0", "XSETID s 2-0"];
    say(&mut world, id, &[&adds[..], &["XDEL s 6-1", "XTRIM s MAXLEN 0"], &again, &adds].concat());
    let look = ["XLEN s", "XRANGE s 6-1 6-1"];
    let before = say(&mut world, id, &look);
    assert!(before.starts_with(":3\r\n*1\r\n"), "{before}");
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    let id = come(&mut world);
    assert_eq!(say(&mut world, id, &look), before);
}

/// As Redis does: the second claim of an entry finds the first one's time and number.
#[test]
fn an_entry_that_is_claimed_twice_in_a_command_counts_twice() {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    let begin = ["XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >"];
    say(&mut world, id, &begin);
    let claimed = say(&mut world, id, &["XCLAIM s g d 0 1-1 1-1 JUSTID"]);
    assert_eq!(claimed, "*2\r\n$3\r\n1-1\r\n$3\r\n1-1\r\n");
    say(&mut world, id, &["XCLAIM s g d 0 1-1 1-1"]);
    let pending = say(&mut world, id, &["XPENDING s g - + 9"]);
    assert_eq!(pending, "*1\r\n*4\r\n$3\r\n1-1\r\n$1\r\nd\r\n:0\r\n:3\r\n");
    world.pass(20);
    let claimed = say(&mut world, id, &["XCLAIM s g e 10 1-1 1-1 JUSTID"]);
    assert_eq!(claimed, "*1\r\n$3\r\n1-1\r\n", "its time is new after the first claim");
}

#[test]
fn a_trim_leaves_the_newest_entries_that_are_not_deleted() {
    let left: Vec<u64> = (1..=400).filter(|n| n % 3 > 0).collect();
    for most in [0, 1, 57, 150, 260, left.len(), 300] {
        let mut world = World::new(1, 1 << 20, None);
        let id = come(&mut world);
        for n in 1..=400 {
            say(&mut world, id, &[&format!("XADD s {n}-0 f v")]);
        }
        let deleted: String = (1..=133).map(|n| format!(" {}-0", 3 * n)).collect();
        let told = say(&mut world, id, &[&format!("XDEL s{deleted}"), &format!("XTRIM s MAXLEN {most}")]);
        let gone = left.len().saturating_sub(most);
        assert_eq!(told, format!(":133\r\n:{gone}\r\n"), "{most}");
        let told = say(&mut world, id, &["XLEN s", "XRANGE s - + COUNT 1"]);
        let start = match left.get(gone) {
            Some(first) => {
                let (count, len) = (left.len() - gone, first.to_string().len() + 2);
                format!(":{count}\r\n*1\r\n*2\r\n${len}\r\n{first}-0\r\n")
            }
            None => ":0\r\n*0\r\n".into(),
        };
        assert!(told.starts_with(&start), "{most}: {told}");
    }
}

/// In the old state a tick ended at the first key of another database, so keys came faster than
/// they went.
#[test]
fn keys_of_databases_that_expire_in_turn_go_in_one_tick() {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    for n in 0..20 {
        say(&mut world, id, &[&format!("SELECT {}", n % 3), &format!("SET k{n} v PX {}", 50 + n)]);
    }
    world.pass(100);
    assert_eq!(world.engine.keys.next_deadline(), None, "all are deleted");
    for database in 0..3 {
        let left = say(&mut world, id, &[&format!("SELECT {database}"), "DBSIZE"]);
        assert_eq!(left, "+OK\r\n:0\r\n");
    }
}

/// In the old state the driver looked at the keys a thousand times a second.
#[test]
fn nothing_is_due_once_the_store_has_stopped() {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    say(&mut world, id, &["SET k v PX 50"]);
    world.engine.note_stopped("the device is gone");
    world.engine.tick(at(world.now() + 100));
    assert_eq!(world.engine.next_due(), None);
}

/// As in Redis: the second place goes on behind the first. In the old state both gave the same
/// entries, and the group had read each twice.
#[test]
fn a_stream_that_is_named_twice_gives_each_entry_once() {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    say(&mut world, id, &["XADD s 1-1 f v", "XADD s 2-1 f v", "XADD s 3-1 f v", "XGROUP CREATE s g 0"]);
    let read = "XREADGROUP GROUP g c COUNT 2 STREAMS s s > >";
    let told = say(&mut world, id, &[read]);
    assert_eq!(["1-1", "2-1", "3-1"].map(|id| told.matches(id).count()), [1, 1, 1], "{told}");
    assert!(told.starts_with("*2\r\n*2\r\n$1\r\ns\r\n*2\r\n"), "{told}");
    assert_eq!(say(&mut world, id, &[read]), "*-1\r\n");
    let told = say(&mut world, id, &["XINFO GROUPS s"]);
    assert!(told.ends_with("$12\r\nentries-read\r\n:3\r\n$3\r\nlag\r\n:0\r\n"), "{told}");
    // All of them at the first place.
    say(&mut world, id, &["XGROUP SETID s g 0"]);
    let told = say(&mut world, id, &["XREADGROUP GROUP g c STREAMS s s > >"]);
    assert!(told.starts_with("*1\r\n*2\r\n$1\r\ns\r\n*3\r\n"), "{told}");
}

/// In the old state the commit of such a command had keys of a database in memory and of another
/// one, and was refused.
#[test]
fn a_command_deletes_expired_keys_of_one_database() {
    for requests in [&["INFO keyspace"][..], &["MULTI", "SET x 1", "DBSIZE", "RANDOMKEY", "SCAN 0", "EXEC"]] {
        let mut world = World::new(1, 1 << 20, None);
        let in_memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
        world.store.create_space("2", in_memory).unwrap();
        let id = come(&mut world);
        for n in 0..20 {
            say(&mut world, id, &["SELECT 2", &format!("SET b{n} v PX {}", 50 + 2 * n)]);
            say(&mut world, id, &["SELECT 0", &format!("SET a{n} v PX {}", 51 + 2 * n)]);
        }
        world.engine.set_time(at(world.now() + 100));
        let told = say(&mut world, id, requests);
        assert!(!told.contains("-ERR"), "{requests:?}: {told}");
        world.pass(100);
        assert_eq!(world.engine.keys.next_deadline(), None, "all are deleted");
    }
}

/// In the old state both commands deleted the expired key of the other database first, and their
/// commit was refused; or a key was returned that had expired.
#[test]
fn a_walk_meets_expired_keys_of_its_own_database() {
    for request in ["SCAN 0 COUNT 100", "RANDOMKEY"] {
        let mut world = World::new(1, 1 << 20, None);
        let in_memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
        world.store.create_space("2", in_memory).unwrap();
        let id = come(&mut world);
        say(&mut world, id, &["SELECT 2", "SET b v PX 50", "SELECT 0", "SET left v"]);
        for n in 0..50 {
            say(&mut world, id, &[&format!("SET a{n} v PX 60")]);
        }
        world.engine.set_time(at(world.now() + 100));
        let told = say(&mut world, id, &[request]);
        assert!(told.ends_with("$4\r\nleft\r\n") && !told.contains("\r\na"), "{request}: {told}");
        world.pass(100);
        assert_eq!(world.engine.keys.next_deadline(), None, "all are deleted");
    }
}

/// In the old state the first of these keys to expire was of another database, and then those of
/// the own one were listed and counted.
#[test]
fn a_transaction_lists_no_key_that_has_expired_beside_those_of_another_database() {
    let sets = ["SET a v PX 60", "SET c v", "SELECT 2", "SET b v PX 50", "SELECT 0"];
    let (none, some) = (Vec::new(), vec!["SELECT 2", "SET d v", "SELECT 0"]);
    for (changes, told) in [(none, ""), (some, "+OK\r\n+OK\r\n+OK\r\n")] {
        let mut world = World::new(1, 1 << 20, None);
        let id = come(&mut world);
        say(&mut world, id, &sets);
        world.engine.set_time(at(world.now() + 100));
        let asked = [vec!["MULTI"], changes.clone(), vec!["DBSIZE", "KEYS *", "EXEC"]].concat();
        let found = say(&mut world, id, &asked);
        let expected = format!("*{}\r\n{told}:1\r\n*1\r\n$1\r\nc\r\n", changes.len() + 2);
        assert!(found.ends_with(&expected), "{found}");
    }
}
