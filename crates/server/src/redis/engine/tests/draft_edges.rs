//! Commands on drafts at their edges: short ones, large keys, errors, stops, and panics.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use brooklet::Store;
use brooklet::io::{Fault, ManualClock, MemVolume};
use bytes::Bytes;

use super::drafts::{begin, end, transaction};
use super::portions::{Desk, ELEMENTS, KEYS, key, keys, many};
use super::{World, at, words};

/// A long command may end in its first portion. Requests of the same packet follow its commit.
#[test]
fn requests_behind_a_long_one_that_ends_at_once_see_it() {
    for count in [3_998, 3_999, 4_000, 4_001] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        let push = |list: &str| many(&format!("RPUSH {list}"), count, |n| n.to_string());
        let packet =
            [words("SET first 1"), push("list"), words("SET other 1"), push("list"), words("LLEN list")];
        let told = desk.say(&packet);
        assert_eq!(told, format!("+OK\r\n:{count}\r\n+OK\r\n:{0}\r\n:{0}\r\n", 2 * count));
        let none = many("LPUSHX none", count, |n| n.to_string());
        let taken = many("MSETNX other 1", count, |n| format!("key:{n} 1"));
        let told = desk.say(&[none, words("SET a 1"), taken, words("SET b 2")]);
        assert_eq!(told, ":0\r\n+OK\r\n:0\r\n+OK\r\n");
        let mut desk = desk.again();
        let told = desk.say(&[words("LLEN list"), words("MGET first other a b"), words("DBSIZE")]);
        let texts = "*4\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n2\r\n";
        assert_eq!(told, format!(":{}\r\n{texts}:5\r\n", 2 * count));
    }
}

/// As in Redis, EXEC ends the transaction and the watches, whatever it comes to.
#[test]
fn a_long_transaction_that_is_undone_is_over() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("SET watched 1")]);
    assert_eq!(desk.say(&[words("CONFIG SET client-query-buffer-limit 1200000")]), "+OK\r\n");
    let append = (0..KEYS).map(|_| format!("APPEND text {}", "x".repeat(10)));
    let mut requests = [vec![words("WATCH watched")], transaction(append)].concat();
    requests.pop();
    desk.engine.run(desk.long, &mut requests.into(), || true);
    let queued = desk.told(desk.long);
    assert!(queued.ends_with("+QUEUED\r\n"), "{:?}", &queued[queued.len() - 100..]);
    begin(&mut desk, vec![words("EXEC")]);
    let told = end(&mut desk);
    assert!(told.starts_with("-ERR the transaction writes more than 1200000 bytes"), "{told}");
    let client = desk.engine.client(desk.long).unwrap();
    assert!(client.queue.is_none() && client.watched.is_empty());
    assert_eq!(desk.say(&[words("EXISTS text"), words("SET watched 2")]), ":0\r\n+OK\r\n");
    desk.engine.run(desk.long, &mut [words("SET text 1")].into(), || true);
    assert_eq!(desk.told(desk.long), "+OK\r\n");
}

/// A draft shares texts with the keys of all clients, and takes memory for what it changes.
#[test]
fn a_draft_of_large_texts_takes_little_memory() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    for n in 0..200 {
        desk.say(&[words(&format!("SET text:{n} {}", "x".repeat(60_000)))]);
    }
    let look = (0..KEYS).map(|n| format!("STRLEN text:{}", n % 200));
    begin(&mut desk, transaction(look));
    let mut most = 0;
    while desk.is_at_work(desk.long) {
        most = most.max(desk.engine.client(desk.long).unwrap().work_bytes);
        desk.engine.run(desk.long, &mut VecDeque::new(), || false);
    }
    assert!(most < 1 << 20, "{most}");
    let told = desk.told(desk.long);
    assert_eq!(told, format!("*{KEYS}\r\n{}", ":60000\r\n".repeat(KEYS)));
}

/// Small elements take much more memory than their bytes.
#[test]
fn the_memory_of_a_draft_is_that_of_its_elements_and_of_its_request() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    begin(&mut desk, vec![many("RPUSH other", 4_100, |_| "x".repeat(1_000))]);
    let least = desk.engine.client(desk.long).unwrap().work_bytes;
    assert!(least > 12_000_000, "{least}");
    end(&mut desk);
    begin(&mut desk, vec![many("RPUSH list", 20 * ELEMENTS, |n| (n % 10).to_string())]);
    let mut most = 0;
    while desk.is_at_work(desk.long) {
        most = most.max(desk.engine.client(desk.long).unwrap().work_bytes);
        desk.engine.run(desk.long, &mut VecDeque::new(), || false);
    }
    assert!(most > 20 * ELEMENTS * 70 && most < 20 * ELEMENTS * 200, "{most}");
}

/// A long hash is not copied for a draft: nobody could have a turn meanwhile.
#[test]
fn a_key_that_is_too_large_for_a_draft_is_changed_without_one() {
    const FIELDS: usize = 10_000;
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&keys());
    desk.say(&[many("HSET hash", FIELDS, |n| format!("field:{n} {n}"))]);
    let set = (0..KEYS).map(|n| format!("HSET hash field:{n} new"));
    begin(&mut desk, transaction(set));
    let work_bytes = desk.engine.client(desk.long).unwrap().work_bytes;
    assert!(work_bytes < FIELDS * 10, "{work_bytes}");
    let told = end(&mut desk);
    assert_eq!(told, format!("*{KEYS}\r\n{}", ":0\r\n".repeat(KEYS)));
    assert_eq!(
        desk.say(&[words("HMGET hash field:0 field:9999"), words("HLEN hash")]),
        format!("*2\r\n$3\r\nnew\r\n$4\r\n9999\r\n:{FIELDS}\r\n")
    );
}

/// What is deleted, or replaced, need not be copied.
#[test]
fn a_draft_deletes_and_replaces_large_keys() {
    const FIELDS: usize = 10_000;
    let large = |name: &str| {
        vec![
            many(&format!("HSET hash:{name}"), FIELDS, |n| format!("field:{n} {n}")),
            many(&format!("RPUSH list:{name}"), ELEMENTS, |n| n.to_string()),
            many(&format!("LPUSH list:{name}"), ELEMENTS, |n| n.to_string()),
            words(&format!("XADD stream:{name} 1-1 f v")),
            words(&format!("XGROUP CREATE stream:{name} g 0")),
        ]
    };
    for is_settled in [true, false] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&keys());
        for name in ["old", "gone"] {
            desk.engine.run(desk.other, &mut large(name).into(), || true);
            if is_settled {
                desk.told(desk.other);
            }
        }
        begin(&mut desk, vec![many("DEL hash:gone list:gone stream:gone", KEYS, key)]);
        let mut most = 0;
        while desk.is_at_work(desk.long) {
            most = most.max(desk.engine.client(desk.long).unwrap().work_bytes);
            desk.engine.run(desk.long, &mut VecDeque::new(), || false);
        }
        assert!(most > 1_000 * 200, "{most}: there is no draft");
        assert_eq!(desk.told(desk.long), format!(":{}\r\n", KEYS + 3));
        begin(
            &mut desk,
            vec![many("MSET hash:old 1 list:old 2 stream:old 3", KEYS, |n| format!("key:{n} 1"))],
        );
        assert_eq!(end(&mut desk), "+OK\r\n");
        let look = "MGET hash:old list:old stream:old hash:gone list:gone stream:gone";
        let texts = "*6\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$-1\r\n$-1\r\n$-1\r\n";
        desk.told(desk.other);
        assert_eq!(desk.say(&[words(look), words("DBSIZE")]), format!("{texts}:{}\r\n", KEYS + 3));
        let mut desk = desk.again();
        assert_eq!(desk.say(&[words(look), words("DBSIZE")]), format!("{texts}:{}\r\n", KEYS + 3));
        assert_eq!(
            desk.say(&[words("RPUSH list:gone a"), words("LRANGE list:gone 0 -1")]),
            ":1\r\n*1\r\n$1\r\na\r\n"
        );
    }
}

/// The store stops while keys of a durable draft still have to join the others.
#[test]
fn keys_of_a_durable_draft_are_there_after_the_store_has_stopped() {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let store = super::options(&clock, 1).ring_size(4 << 20).create_on(Arc::new(volume.clone())).unwrap();
    let mut world = World::on(volume, store, clock, 1_000_000, 1 << 20);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let old = many("MSET", 1_100, |n| format!("key:{n} old"));
    let new = many("MSET", 1_100, |n| format!("key:{n} new"));
    let push = many("RPUSH list", 4_100, |n| (n % 10).to_string());
    world.engine.run(id, &mut [old].into(), || true);
    world.engine.keys.merge_some(usize::MAX);
    world.engine.run(id, &mut [words("RPUSH list a"), new, push].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    let told = String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap();
    assert_eq!(told, "+OK\r\n:1\r\n+OK\r\n:4101\r\n");
    assert!(world.engine.keys.is_merging());
    world.volume.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: true });
    world.engine.run(id, &mut [words("SET other 1")].into(), || true);
    assert!(world.store.flush().is_err());
    world.engine.note_stopped("the device failed");
    world.engine.take_ready(id);
    let look = [words("MGET key:0 key:1099"), words("LRANGE list 0 1"), words("LLEN list")];
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    world.engine.run(id, &mut look.into(), || true);
    let told = String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap();
    assert_eq!(told, "*2\r\n$3\r\nnew\r\n$3\r\nnew\r\n*2\r\n$1\r\na\r\n$1\r\n0\r\n:4101\r\n");
}

/// Who listens to commands gets all messages of a commit together; the keys are loaded before.
#[test]
fn a_change_that_others_listen_to_loads_its_keys_in_portions() {
    let change = [
        vec![many("MSET", KEYS, |n| format!("key:{n} new"))],
        vec![many("DEL", KEYS, key)],
        transaction((0..KEYS).map(|n| format!("APPEND key:{n} new"))),
    ];
    for requests in change {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&keys());
        let mut desk = desk.again();
        let listener = desk.engine.connect(String::new(), String::new()).unwrap();
        desk.engine.run(listener, &mut [words("PSUBSCRIBE *")].into(), || true);
        desk.say(&[words("CONFIG SET notify-keyspace-events KA")]);
        begin(&mut desk, requests);
        let mut loaded = desk.engine.keys.cached().0;
        while loaded < KEYS {
            assert!(desk.is_at_work(desk.long));
            desk.engine.run(desk.long, &mut VecDeque::new(), || false);
            let now = desk.engine.keys.cached().0;
            assert!(now > loaded && now <= loaded + 1_000, "{loaded} and then {now} keys");
            loaded = now;
        }
        end(&mut desk);
        let mut told = desk.told(listener);
        for n in 0..100 {
            desk.engine.tick(at(1_000_001 + n));
            told += &desk.told(listener);
        }
        assert_eq!(told.matches("pmessage").count(), KEYS);
    }
}

/// Most servers with notifications publish the keys that expire, and nothing else.
#[test]
fn who_hears_of_expired_keys_alone_leaves_drafts_alone() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&keys());
    desk.say(&[words("PEXPIRE key:5 10"), words("CONFIG SET notify-keyspace-events Ex")]);
    let listener = desk.engine.connect(String::new(), String::new()).unwrap();
    desk.engine.run(listener, &mut [words("PSUBSCRIBE *")].into(), || true);
    desk.told(listener);
    desk.engine.set_time(at(1_000_020));
    begin(&mut desk, transaction((0..KEYS).map(|n| format!("APPEND key:{n} new"))));
    assert!(desk.engine.keys.cached().0 > KEYS - 2);
    assert_eq!(desk.say(&[words("GET key:0"), words("GET key:5")]), "$1\r\n0\r\n$-1\r\n");
    assert!(desk.is_at_work(desk.long));
    end(&mut desk);
    desk.engine.tick(at(1_000_021));
    let told = desk.told(listener);
    assert_eq!((told.matches("pmessage").count(), told.matches("key:5").count()), (1, 1), "{told}");
}

/// A command knows its draft's keys by other places than those of all clients.
#[test]
fn who_hears_of_expired_keys_hears_of_each_once() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&keys());
    desk.say(&[words("PEXPIRE key:1550 10"), words("CONFIG SET notify-keyspace-events Ex")]);
    let listener = desk.engine.connect(String::new(), String::new()).unwrap();
    desk.engine.run(listener, &mut [words("PSUBSCRIBE *")].into(), || true);
    desk.told(listener);
    desk.engine.set_time(at(1_000_020));
    begin(&mut desk, vec![many("MSET", KEYS, |n| format!("key:{} new", KEYS - 1 - n))]);
    assert_eq!(end(&mut desk), "+OK\r\n");
    desk.engine.tick(at(1_000_021));
    assert_eq!(desk.told(listener).matches("key:1550").count(), 1);
    assert_eq!(desk.say(&[words("GET key:1550")]), "$3\r\nnew\r\n");
}

/// A command whose reply does not fit has no effect, also if that is noticed at its end.
#[test]
fn a_draft_whose_reply_does_not_fit_is_not_committed() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    begin(&mut desk, vec![many("MSET", KEYS, |n| format!("key:{n} 1"))]);
    desk.engine.settings.hard_output = 0;
    assert!(end(&mut desk).starts_with("-ERR"));
    desk.engine.settings.hard_output = 1 << 20;
    assert_eq!(desk.say(&[words("DBSIZE")]), ":0\r\n");
}

/// A client whose rights end between two portions changes nothing any more.
#[test]
fn rights_count_in_each_portion() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("ACL SETUSER worker on >secret ~* +@all")]);
    desk.engine.run(desk.long, &mut [words("AUTH worker secret")].into(), || true);
    for (rule, is_allowed) in [("+@all", true), ("-mset", false)] {
        begin(&mut desk, vec![many("MSET", KEYS, |n| format!("{rule}:{n} 1"))]);
        desk.say(&[words(&format!("ACL SETUSER worker {rule}"))]);
        let told = end(&mut desk);
        assert_eq!(told.starts_with("+OK"), is_allowed, "{told}");
        assert_eq!(told.starts_with("-NOPERM"), !is_allowed, "{told}");
    }
    assert_eq!(desk.say(&[words("DBSIZE")]), format!(":{KEYS}\r\n"));
}

/// Keys do not expire in a draft. So a draft that had to wait begins again.
#[test]
fn a_draft_does_not_keep_the_time_of_long_ago() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("SET text 1 PX 500")]);
    let set = (0..KEYS).map(|n| format!("SET key:{n} 1"));
    let get = || std::iter::once("GET text".to_owned());
    begin(&mut desk, transaction(get().chain(set).chain(get())));
    desk.engine.set_time(at(1_002_000));
    let told = end(&mut desk);
    assert!(
        told.starts_with("*3002\r\n$-1\r\n+OK") && told.ends_with("+OK\r\n$-1\r\n"),
        "{:?}",
        told.get(..40)
    );
}

/// A transaction that is stale already runs no more commands.
#[test]
fn a_stale_transaction_ends_at_its_next_portion() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("SET watched 1")]);
    let set = (0..10 * KEYS).map(|n| format!("SET key:{n} 1"));
    begin(&mut desk, [vec![words("WATCH watched")], transaction(set)].concat());
    desk.say(&[words("SET watched 2")]);
    desk.engine.run(desk.long, &mut VecDeque::new(), || false);
    assert!(!desk.is_at_work(desk.long));
    assert_eq!(desk.told(desk.long), "*-1\r\n");
}

/// A command that panics has no effect, on a draft or not, and other clients go on.
#[test]
fn a_panic_in_a_command_leaves_nothing() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&keys());
    let id = desk.engine.keys.open(b"0", b"key:0").unwrap();
    desk.engine.keys.set_text(id, Bytes::from_static(b"half"), None);
    desk.engine.abandon();
    assert_eq!((desk.engine.client_count(), desk.engine.client_memory()), (0, 0));
    desk.other = desk.engine.connect(String::new(), String::new()).unwrap();
    assert_eq!(desk.say(&[words("GET key:0")]), "$1\r\n0\r\n");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let draft = Box::new(desk.engine.keys.begin_draft());
        desk.engine.keys.open_draft(draft);
        let id = desk.engine.keys.open(b"0", b"key:1").unwrap();
        desk.engine.keys.set_text(id, Bytes::from_static(b"half"), None);
        panic!("in a draft");
    }));
    assert!(panicked.is_err());
    desk.engine.abandon();
    assert!(!desk.engine.keys.is_on_draft());
    desk.other = desk.engine.connect(String::new(), String::new()).unwrap();
    assert_eq!(desk.say(&[words("GET key:1"), words("SET key:2 new")]), "$1\r\n1\r\n+OK\r\n");
    let mut desk = desk.again();
    assert_eq!(desk.say(&[words("MGET key:0 key:1 key:2")]), "*3\r\n$1\r\n0\r\n$1\r\n1\r\n$3\r\nnew\r\n");
}

/// Returns the memory of a client's long command after each portion, and runs the command to its
/// end.
fn run_by_portions(desk: &mut Desk) -> Vec<usize> {
    let mut all = Vec::new();
    while desk.is_at_work(desk.long) {
        all.push(desk.engine.client(desk.long).unwrap().work_bytes);
        desk.engine.run(desk.long, &mut VecDeque::new(), || false);
        assert!(all.len() < 1_000, "it never ends");
    }
    all
}

#[test]
fn a_transaction_whose_replies_no_longer_fit_has_no_effect() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words(&format!("SET big {}", "x".repeat(100))), words("SET small 0")]);
    let get = (0..1_000).map(|_| "GET big".to_owned());
    begin(&mut desk, transaction(get.chain(["GET small".to_owned(), "SET small 1".to_owned()])));
    desk.engine.settings.hard_output = 65_536;
    let told = end(&mut desk);
    assert!(told.starts_with("-ERR"), "{:?}", told.get(..100));
    assert_eq!(desk.say(&[words("GET small")]), "$1\r\n0\r\n");
}

/// The draft's texts are shared with the keys of all clients, as far as these are in memory.
#[test]
fn texts_that_leave_the_cache_count_for_the_draft() {
    const TEXTS: usize = 1_500;
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    for n in 0..TEXTS {
        desk.say(&[words(&format!("SET text:{n} {}", "x".repeat(60_000)))]);
    }
    begin(&mut desk, transaction((0..TEXTS).map(|n| format!("STRLEN text:{n}"))));
    let most = run_by_portions(&mut desk).into_iter().max().unwrap();
    assert!(most > 10 << 20, "{most}");
}

/// Changes in the midst of a list write its rest once, however many portions they take.
#[test]
fn changes_in_the_midst_of_a_list_write_its_end_once() {
    const LEN: usize = 4_200;
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    for _ in 0..10 {
        desk.say(&[many("RPUSH list", LEN / 10, |n| format!("{n}:{}", "x".repeat(550)))]);
    }
    assert_eq!(desk.say(&[words("LLEN list")]), format!(":{LEN}\r\n"));
    let mut desk = desk.again();
    desk.engine.settings.max_request = 2 << 20;
    let set = (0..9).map(|n| format!("LSET list {} new:{n}", LEN / 2 + n));
    begin(&mut desk, transaction(set));
    let told = end(&mut desk);
    assert_eq!(told, format!("*9\r\n{}", "+OK\r\n".repeat(9)));
    assert_eq!(desk.say(&[words(&format!("LINDEX list {}", LEN / 2 + 8))]), "$5\r\nnew:8\r\n");
}

/// The request of a plain change bounds its draft. At once, the change would take as much.
#[test]
fn a_plain_change_stays_on_its_draft() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.engine.settings.max_request = 200_000;
    begin(&mut desk, vec![many("RPUSH list", 3 * ELEMENTS, |n| n.to_string())]);
    let memory = run_by_portions(&mut desk);
    assert!(memory.len() > 4 && memory.is_sorted(), "{memory:?}");
}

#[test]
fn a_key_that_expires_before_a_transaction_is_no_watched_key() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("RPUSH list 1"), words("PEXPIRE list 10")]);
    desk.engine.set_time(at(1_000_020));
    let told = desk.say(&["MULTI", "SORT other", "LRANGE list 0 -1", "EXEC"].map(words));
    assert_eq!(told, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n*0\r\n*0\r\n");
}

/// The rights count that the client has when the command changes something.
#[test]
fn rights_that_end_before_a_draft_begins_count() {
    for events in ["", "KA"] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&[words("ACL SETUSER worker on >secret ~* +@all")]);
        let listener = desk.engine.connect(String::new(), String::new()).unwrap();
        desk.engine.run(listener, &mut [words("PSUBSCRIBE *")].into(), || true);
        desk.engine.settings.set("notify-keyspace-events", events).unwrap();
        desk.engine.run(desk.long, &mut [words("AUTH worker secret")].into(), || true);
        desk.told(desk.long);
        let requests = [words("SET a 1"), many("MSET", KEYS, |n| format!("key:{n} 1"))];
        desk.engine.run(desk.long, &mut requests.into(), || false);
        assert!(desk.is_at_work(desk.long));
        desk.say(&[words("ACL SETUSER worker -mset")]);
        let told = end(&mut desk);
        assert!(told.starts_with("+OK\r\n-NOPERM"), "{told}");
        assert_eq!(desk.say(&[words("DBSIZE")]), ":1\r\n");
    }
}

/// A transaction that may not be executed any more is lost, as in Redis.
#[test]
fn a_transaction_without_the_right_to_execute_is_broken() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("ACL SETUSER worker on >secret ~* +@all")]);
    desk.engine.run(desk.long, &mut [words("AUTH worker secret")].into(), || true);
    begin(&mut desk, transaction((0..KEYS).map(|n| format!("SET key:{n} 1"))));
    desk.say(&[words("ACL SETUSER worker -exec")]);
    assert!(end(&mut desk).starts_with("-NOPERM"));
    desk.say(&[words("ACL SETUSER worker +exec")]);
    desk.engine.run(desk.long, &mut [words("EXEC")].into(), || true);
    assert!(desk.told(desk.long).starts_with("-EXECABORT"));
    assert_eq!(desk.say(&[words("DBSIZE")]), ":0\r\n");
}

/// Keys that a change loads were not looked for by anybody.
#[test]
fn loads_of_a_change_are_no_misses() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let listener = desk.engine.connect(String::new(), String::new()).unwrap();
    desk.engine.run(listener, &mut [words("PSUBSCRIBE *")].into(), || true);
    desk.told(listener);
    desk.engine.settings.set("notify-keyspace-events", "KEm").unwrap();
    begin(&mut desk, vec![many("MSET", KEYS, |n| format!("key:{n} 1"))]);
    desk.say(&[words("GET other")]);
    end(&mut desk);
    (0..50).for_each(|n| desk.engine.tick(at(1_000_001 + n)));
    let told = desk.told(listener);
    assert_eq!(told.matches("key:").count(), 0, "{:?}", told.get(..300));
    assert_eq!(told.matches("keyevent").count(), 1);
}

/// A key that is larger than the memory for keys leaves it as soon as it is loaded.
#[test]
fn loading_ends_although_no_key_stays_in_memory() {
    let mut world = World::new(1, 1, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    world.engine.run(id, &mut [many("HSET hash", 500, |n| format!("field:{n} value"))].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    let commands = (0..KEYS).map(|n| format!("EXISTS key:{n}")).chain(["PUBLISH channel text".to_owned()]);
    let renamed = std::iter::once("RENAME hash other".to_owned());
    let mut requests: VecDeque<_> = transaction(renamed.chain(commands)).into();
    let mut turns = 0;
    while !requests.is_empty() || world.engine.client(id).unwrap().work.is_some() {
        world.engine.run(id, &mut requests, || false);
        turns += 1;
        assert!(turns < 2 * KEYS, "it never ends");
    }
}

/// Its client is gone; what it asked for is done all the same.
#[test]
fn a_transaction_whose_replies_are_not_taken_is_done_whole() {
    const FIELDS: usize = 10_000;
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[many("HSET hash", FIELDS, |n| format!("field:{n} {n}"))]);
    desk.say(&[words(&format!("SET big {}", "x".repeat(10_000)))]);
    desk.engine.settings.hard_output = 100_000;
    let get = (0..1_500).map(|n| if n < 20 { "GET big".to_owned() } else { format!("SET key:{n} 1") });
    let last = ["HSET hash field:0 new".to_owned(), "SET last 1".to_owned()];
    let mut requests: VecDeque<_> = transaction(get.chain(last)).into();
    while !requests.is_empty() {
        desk.engine.run(desk.long, &mut requests, || false);
    }
    assert!(desk.engine.client(desk.long).unwrap().is_killed);
    assert_eq!(desk.say(&[words("HGET hash field:0"), words("GET last")]), "$3\r\nnew\r\n$1\r\n1\r\n");
}
