//! Commands that change much run on drafts: nobody sees a part of them, and they see no part of
//! others.

use std::collections::VecDeque;
use std::sync::Arc;

use brooklet::Store;
use brooklet::io::{ManualClock, MemVolume};
use bytes::Bytes;

use super::portions::{Case, Desk, ELEMENTS, KEYS, case, check, key, keys, list, many};
use super::{at, words};

/// A transaction of many commands, in words with spaces between.
pub(super) fn transaction(commands: impl Iterator<Item = String>) -> Vec<Vec<Bytes>> {
    let commands = commands.map(|command| words(&command));
    [words("MULTI")].into_iter().chain(commands).chain([words("EXEC")]).collect()
}

/// Queues all requests but the last, and runs the first portion of it.
pub(super) fn begin(desk: &mut Desk, requests: Vec<Vec<Bytes>>) {
    let mut requests: VecDeque<_> = requests.into();
    while !requests.is_empty() {
        desk.engine.run(desk.long, &mut requests, || false);
    }
    assert!(desk.is_at_work(desk.long), "it is long");
    desk.told(desk.long);
}

/// Runs the rest of a long command; returns its reply.
pub(super) fn end(desk: &mut Desk) -> String {
    desk.engine.run(desk.long, &mut VecDeque::new(), || true);
    assert!(!desk.is_at_work(desk.long));
    desk.told(desk.long)
}

#[test]
fn pushes_of_many_elements_are_of_one_moment() {
    let changes: &[&str] = &["LPOP list; RPOP list", "SET list text", "RENAME list other"];
    let looks: &[&str] = &["LRANGE list 0 -1", "LLEN list", "EXISTS other"];
    let push = |start| case(many(start, ELEMENTS, |n| format!("element:{n}")), changes, looks);
    check(&list(), &["RPUSH list", "LPUSH list", "RPUSHX list", "LPUSHX list"].map(push));
    let changes: &[&str] = &["RPUSH new x", "SET new text", "EXISTS new"];
    let push = |start| case(many(start, ELEMENTS, |n| n.to_string()), changes, &["LRANGE new 0 -1"]);
    check(&list(), &["RPUSH new", "LPUSH new"].map(push));
}

#[test]
fn a_transaction_of_many_commands_sees_its_own_changes_alone() {
    let others = ["RPUSH list x; SET key:2999 x", "SET other 1", "DEL hash stream", "MGET key:0 key:1"];
    let others: Vec<_> = others.iter().map(|other| other.split("; ").map(words).collect()).collect();
    let command = |n: usize| match n % 10 {
        0 => format!("SET key:{n} new EX 1000"),
        1 => format!("APPEND key:{} more", n - 1),
        2 => format!("RPUSH list right:{n} right"),
        3 => format!("LSET list {} set:{n}", -1 - (n as i64 % 60)),
        4 => format!("HSET hash field:{} {n}", n % 50),
        5 => format!("XADD stream {n}-1 f v"),
        6 => format!("LPOP list {}", n % 3 + 1),
        7 => format!("DEL key:{}", n - 4),
        8 => format!("INCR count:{}", n % 7),
        _ => format!("GET key:{}", n - 9),
    };
    let looks = ["LRANGE list 0 -1", "HGETALL hash", "XRANGE stream - +", "MGET key:0 key:10 key:3 key:2999"];
    let looks: Vec<_> =
        looks.iter().map(|look| words(look)).chain([words("DBSIZE"), words("TTL key:0")]).collect();
    let long = transaction((0..KEYS).map(command));
    let case = Case { long, others, looks, is_cold: false };
    check(&[keys(), list()].concat(), &[case]);
}

#[test]
fn a_command_that_others_disturb_again_and_again_ends_all_the_same() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&keys());
    begin(&mut desk, vec![many("MSET", KEYS, |n| format!("key:{n} new"))]);
    let mut portions = 0;
    while desk.is_at_work(desk.long) {
        assert_eq!(desk.say(&[words(&format!("SET key:0 {portions}"))]), "+OK\r\n");
        desk.engine.run(desk.long, &mut VecDeque::new(), || false);
        portions += 1;
        assert!(portions < 100);
    }
    assert!(portions > 4, "{portions}");
    assert_eq!(desk.say(&[words("MGET key:0 key:2999")]), "*2\r\n$3\r\nnew\r\n$3\r\nnew\r\n");
}

#[test]
fn a_watched_key_that_expires_in_a_long_transaction_ends_it() {
    for (touches, ticks) in [(true, false), (false, false), (true, true)] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&[words("SET watched 1 PX 500")]);
        let command = |n| if touches { format!("INCR watched{n}") } else { format!("SET key:{n} 1") };
        let set = (0..KEYS).map(command).chain(["INCR watched".to_owned()]);
        begin(&mut desk, [vec![words("WATCH watched")], transaction(set)].concat());
        desk.engine.set_time(at(1_000_600));
        if ticks {
            desk.engine.tick(at(1_000_600));
        }
        assert_eq!(end(&mut desk), "*-1\r\n");
        assert_eq!(desk.say(&[words("DBSIZE")]), ":0\r\n");
    }
}

/// The draft has set when a key expires, but the key of all clients has another time, or none.
#[test]
fn keys_expire_as_the_last_commit_says() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("SET kept 1 PX 500"), words("SET gone 1")]);
    let set = (0..KEYS).map(|n| format!("SET key:{n} 1 PX 700"));
    let ends = ["PERSIST kept", "PEXPIRE gone 300", "PEXPIRE key:5 9000"].map(str::to_owned);
    begin(&mut desk, transaction(ends.into_iter().chain(set)));
    assert!(end(&mut desk).starts_with("*3003\r\n:1\r\n:1\r\n:0\r\n+OK"));
    (0..2).for_each(|n| desk.engine.tick(at(1_000_001 + n)));
    assert_eq!(desk.engine.keys.expiring(), KEYS + 1);
    desk.engine.tick(at(1_000_600));
    assert_eq!(desk.say(&[words("EXISTS kept"), words("EXISTS gone")]), ":1\r\n:0\r\n");
    assert_eq!(desk.engine.keys.expiring(), KEYS);
    (0..100).for_each(|n| desk.engine.tick(at(1_000_701 + n)));
    assert_eq!(desk.say(&[words("DBSIZE")]), ":1\r\n");
    assert_eq!(desk.engine.keys.expiring(), 0);
}

/// Keys whose time has come are gone for all, whatever becomes of the draft.
#[test]
fn a_draft_meets_keys_that_have_expired() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[many("RPUSH list", 100, |n| n.to_string()), words("PEXPIRE list 10"), words("SET text 1")]);
    desk.engine.set_time(at(1_000_020));
    let push = (0..KEYS).map(|n| format!("RPUSH list {n}"));
    begin(&mut desk, transaction(push));
    assert!(end(&mut desk).starts_with("*3000\r\n:1\r\n:2\r\n"));
    let mut desk = desk.again();
    assert_eq!(
        desk.say(&[words("LLEN list"), words("LINDEX list 0"), words("DBSIZE")]),
        ":3000\r\n$1\r\n0\r\n:2\r\n"
    );
}

#[test]
fn the_keys_of_a_draft_are_there_at_once_after_its_commit() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&keys());
    begin(&mut desk, vec![many("MSET", KEYS, |n| format!("new:{n} {n}"))]);
    assert_eq!(end(&mut desk), "+OK\r\n");
    assert!(desk.engine.keys.is_merging());
    assert_eq!(desk.say(&[words("GET new:7"), words("SET new:9 x")]), "$1\r\n7\r\n+OK\r\n");
    desk.engine.tick(at(1_000_001));
    assert_eq!(desk.say(&[words("GET new:9"), words("GET new:10")]), "$1\r\nx\r\n$2\r\n10\r\n");
    // A second one ends before all keys of the first have had their turn.
    begin(&mut desk, vec![many("DEL", KEYS, key)]);
    assert_eq!(end(&mut desk), format!(":{KEYS}\r\n"));
    assert_eq!(desk.say(&[words("DBSIZE")]), format!(":{KEYS}\r\n"));
    assert_eq!(desk.say(&[words("EXISTS key:1 new:1")]), ":1\r\n");
    (0..5).for_each(|n| desk.engine.tick(at(1_000_002 + n)));
    assert!(!desk.engine.keys.is_merging());
    let mut desk = desk.again();
    assert_eq!(desk.say(&[words("DBSIZE"), words("GET new:2999")]), format!(":{KEYS}\r\n$4\r\n2999\r\n"));
}

/// Requests of one packet, before the long one, are committed once.
#[test]
fn requests_before_a_long_one_in_a_packet_have_their_effect_once() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&keys());
    let requests = [words("INCR n"), words("APPEND text x"), many("DEL", KEYS, key), words("INCR n")];
    assert_eq!(desk.say(&requests), format!(":1\r\n:1\r\n:{KEYS}\r\n:2\r\n"));
    assert_eq!(desk.say(&[words("MGET n text"), words("DBSIZE")]), "*2\r\n$1\r\n2\r\n$1\r\nx\r\n:2\r\n");
}

/// A client that leaves, and a commit that the store refuses, leave nothing.
#[test]
fn a_draft_that_is_not_committed_leaves_nothing() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("SET text 1"), words("RPUSH list a")]);
    let long = desk.long;
    begin(&mut desk, vec![many("MSET", KEYS, |n| format!("key:{n} {n}"))]);
    desk.engine.disconnect(long);
    assert_eq!(desk.say(&[words("DBSIZE"), words("KEYS *")]), ":2\r\n*2\r\n$4\r\nlist\r\n$4\r\ntext\r\n");
    let mut world = super::World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let long = many("MSET", KEYS, |n| format!("key:{n} {}", "x".repeat(100)));
    world.engine.run(id, &mut [words("SET key:0 old"), long].into(), || true);
    world.engine.run(id, &mut [words("GET key:0"), words("DBSIZE")].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    let told = String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap();
    assert!(told.contains("-ERR a commit of ") && told.ends_with("$3\r\nold\r\n:1\r\n"), "{told}");
}

/// Who waits for a key, and who watches one, hears of a draft's commit.
#[test]
fn a_draft_wakes_those_who_wait_and_fails_those_who_watch() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let waits = desk.engine.connect(String::new(), String::new()).unwrap();
    desk.engine.run(waits, &mut [words("BLPOP list 0")].into(), || true);
    desk.say(&[words("WATCH list")]);
    begin(&mut desk, vec![many("RPUSH list", ELEMENTS, |n| n.to_string())]);
    assert_eq!(desk.told(waits), "");
    assert_eq!(end(&mut desk), format!(":{ELEMENTS}\r\n"));
    assert_eq!(desk.told(waits), "*2\r\n$4\r\nlist\r\n$1\r\n0\r\n");
    assert!(desk.say(&[words("MULTI"), words("EXEC")]).ends_with("*-1\r\n"));
    assert_eq!(desk.say(&[words("LLEN list")]), format!(":{}\r\n", ELEMENTS - 1));
}

/// In the old state a transaction refused this at 120,000 keys, and fewer with a longer pattern.
#[test]
fn a_transaction_lists_two_hundred_thousand_keys() {
    const ALL: usize = 200_000;
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    for part in 0..ALL / 10_000 {
        let mset = many("MSET", 10_000, |n| format!("key:{} v", part * 10_000 + n));
        assert_eq!(desk.say(&[mset]), "+OK\r\n");
    }
    for (pattern, count) in [("*", ALL), ("key:*", ALL), ("key:*9", ALL / 10)] {
        let told = desk.say(&[words("MULTI"), words(&format!("KEYS {pattern}")), words("EXEC")]);
        assert!(told.starts_with(&format!("+OK\r\n+QUEUED\r\n*1\r\n*{count}\r\n")), "{:?}", told.get(..100));
    }
}

#[test]
fn a_flush_in_the_midst_of_a_draft_makes_the_command_begin_again() {
    let looks: &[&str] = &["DBSIZE", "MGET key:0 key:2999 more:5"];
    let mset =
        many("MSET", KEYS, |n| format!("{} new", if n % 2 == 0 { key(n) } else { format!("more:{n}") }));
    check(
        &keys(),
        &[case(mset, &["FLUSHALL"], looks), case(many("DEL other", KEYS, key), &["FLUSHALL"], looks)],
    );
}

/// Commands that look at many keys hear of the keys that a draft has changed, and so do counts.
#[test]
fn look_ups_and_counts_know_of_drafts() {
    for count in [KEYS, 12_000] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&[many("MSET", count, |n| format!("key:{n} old"))]);
        assert_eq!(desk.say(&[words("DBSIZE")]), format!(":{count}\r\n"));
        let (long, other) = (desk.long, desk.other);
        desk.engine.run(other, &mut [many("MGET", count, key)].into(), || false);
        assert!(desk.is_at_work(other));
        desk.engine.run(long, &mut [many("MSET", count, |n| format!("key:{n} new"))].into(), || true);
        let told = desk.say(&[]);
        assert_eq!((told.matches("new").count(), told.matches("old").count()), (count, 0));
        desk.told(long);
        begin(&mut desk, vec![many("DEL", count, key)]);
        assert_eq!(end(&mut desk), format!(":{count}\r\n"));
        assert_eq!(desk.say(&[words("DBSIZE")]), ":0\r\n");
    }
}

/// Elements that are durable are read from the store, and take no memory.
#[test]
fn elements_of_a_draft_leave_memory_once_they_are_durable() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let push = |end: &str| many(end, ELEMENTS, |n| n.to_string());
    for request in [push("RPUSH list"), push("LPUSH list")] {
        begin(&mut desk, vec![request]);
        // It is looked at before it is durable.
        desk.engine.run(desk.long, &mut [words("LLEN list")].into(), || true);
        desk.told(desk.long);
    }
    desk.say(&[words("RPUSH list last"), words("LPUSH list first")]);
    let id = desk.engine.keys.open(b"0", b"list").unwrap();
    let bytes = desk.engine.keys.memory_of(id).unwrap();
    assert!(bytes < 2_000, "{bytes}");
    let bytes = desk.engine.keys.cached().1;
    assert!(bytes < 4_000, "{bytes} are counted");
}

/// As in Redis, the time of a transaction is that of its beginning.
#[test]
fn no_key_expires_within_a_transaction() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("SET text 1 PX 500")]);
    let set = (0..KEYS).map(|n| format!("SET key:{n} 1"));
    let get = || std::iter::once("GET text".to_owned());
    begin(&mut desk, transaction(get().chain(set).chain(get())));
    desk.engine.set_time(at(1_000_600));
    assert!(end(&mut desk).ends_with("+OK\r\n$1\r\n1\r\n"));
    assert_eq!(desk.say(&[words("EXISTS text")]), ":0\r\n");
}

/// A key whose expiry an abandoned draft has removed expires all the same.
#[test]
fn an_abandoned_draft_keeps_no_key_alive() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[words("SET text 1 PX 500")]);
    let set = (0..KEYS).map(|n| format!("SET key:{n} 1"));
    begin(&mut desk, transaction(std::iter::once("PERSIST text".to_owned()).chain(set)));
    desk.engine.disconnect(desk.long);
    assert_eq!(desk.engine.keys.expiring(), 1);
    desk.engine.tick(at(1_000_600));
    assert_eq!(desk.say(&[words("DBSIZE")]), ":0\r\n");
}

/// Before a draft's commit is durable, memory has its keys, and nobody hears of them.
#[test]
fn replies_wait_for_the_commit_of_a_draft() {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let options = super::options(&clock, 1).ring_size(1 << 20).memory_budget(1 << 20);
    let store = options.create_on(Arc::new(volume.clone())).unwrap();
    let mut world = super::World::on(volume, store, clock, 1_000_000, 1 << 10);
    let [long, other] = [(); 2].map(|()| world.engine.connect(String::new(), String::new()).unwrap());
    let requests = [words("INCR n"), many("MSET", 1_200, |n| format!("key:{n} {n}"))];
    world.engine.run(long, &mut requests.to_vec().into(), || true);
    world.engine.run(other, &mut [words("GET key:7")].into(), || true);
    let keys: Vec<Bytes> = world.engine.keys.keys_after(b"0", None).unwrap().map(Result::unwrap).collect();
    assert_eq!(keys.len(), 1_201);
    world.engine.keys.trim_cache();
    world.engine.run(other, &mut [words("GET key:1199")].into(), || true);
    assert_eq!([long, other].map(|id| world.engine.take_ready(id).len()), [0, 0]);
    world.store.flush().unwrap();
    world.engine.note_durable();
    assert_eq!(world.engine.take_ready(long), ":1\r\n+OK\r\n");
    assert_eq!(world.engine.take_ready(other), "$1\r\n7\r\n$4\r\n1199\r\n");
}

/// A subscriber that comes in the midst of a command hears of all its keys.
#[test]
fn who_listens_hears_of_each_key_of_a_long_change() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let listener = desk.engine.connect(String::new(), String::new()).unwrap();
    desk.say(&[words("CONFIG SET notify-keyspace-events KA")]);
    begin(&mut desk, vec![many("MSET", KEYS, |n| format!("key:{n} 1"))]);
    desk.engine.run(listener, &mut [words("PSUBSCRIBE *")].into(), || true);
    assert_eq!(end(&mut desk), "+OK\r\n");
    let mut told = desk.told(listener);
    for n in 0..100 {
        desk.engine.tick(at(1_000_001 + n));
        told += &desk.told(listener);
    }
    assert_eq!(told.matches("pmessage").count(), KEYS);
}
