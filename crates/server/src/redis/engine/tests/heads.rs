//! The head of a key stays about as long as its value, whatever clients write again and again.

use std::collections::VecDeque;

use brooklet::Store;
use bytes::Bytes;

use super::portions::{Desk, many, stream};
use super::{World, at, words};
use crate::redis::keys::names;

/// Number of times that a value is written.
const TIMES: usize = 50;

/// Returns the bytes of the head of a key.
fn head(desk: &Desk, plain: &[u8]) -> usize {
    let log = names::head(plain);
    desk.store().read(&log, ..).unwrap().map(|entry| entry.unwrap().payload.len()).sum()
}

/// In the old state the head kept each of the commands that set many fields: for ever, or until it
/// had more records than twice the number of fields.
#[test]
fn fields_that_are_set_again_and_again_leave_the_head() {
    for (all, some, most) in [(1_000, 1_000, 500_000), (3_000, 2_500, 1_300_000), (5_000, 5_000, 500_000)] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        let set = |count, value: usize| many("HSET h", count, |n| format!("field:{n} {value:060}"));
        desk.say(&[set(all, 0)]);
        for value in 1..=TIMES {
            assert_eq!(desk.say(&[set(some, value)]), ":0\r\n");
        }
        let len = head(&desk, b"0/h");
        assert!(len < most, "{some} of {all} fields: {len}");
        let mut desk = desk.again();
        let told = desk.say(&[words("HLEN h"), words(&format!("HMGET h field:0 field:{}", all - 1))]);
        let last = if some == all { TIMES } else { 0 };
        assert_eq!(told, format!(":{all}\r\n*2\r\n$60\r\n{TIMES:060}\r\n$60\r\n{last:060}\r\n"));
    }
}

/// In the old state the head kept each delivery of all entries.
#[test]
fn entries_that_are_claimed_again_and_again_leave_the_head() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    stream().chunks(100).for_each(|requests| drop(desk.say(requests)));
    desk.say(&[words("XREADGROUP GROUP g c STREAMS stream >")]);
    let mut claim: Vec<Bytes> = many("XCLAIM stream g d 0", 5_000, |n| format!("{}-0", n + 1));
    claim.push(Bytes::from_static(b"JUSTID"));
    for _ in 0..TIMES {
        assert!(desk.say(std::slice::from_ref(&claim)).starts_with("*5000\r\n"));
    }
    let len = head(&desk, b"0/stream");
    assert!(len < 1_200_000, "{len}");
    let mut desk = desk.again();
    assert!(desk.say(&[words("XPENDING stream g")]).starts_with("*4\r\n:5000\r\n"));
}

/// In the old state each change wrote the head as a whole: the names of consumers, which each
/// pending entry has there, did not count as a part of the state.
#[test]
fn long_names_of_consumers_are_not_written_again_with_each_change() {
    const ENTRIES: usize = 500;
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let name = "c".repeat(400);
    let add = |n: usize| words(&format!("XADD s {n}-0 f v"));
    desk.say(&(1..=ENTRIES).map(add).collect::<Vec<_>>());
    desk.say(&[words("XGROUP CREATE s g 0"), words(&format!("XREADGROUP GROUP g {name} STREAMS s >"))]);
    let mut claim = many(&format!("XCLAIM s g {name} 0"), ENTRIES, |n| format!("{}-0", n + 1));
    claim.push(Bytes::from_static(b"JUSTID"));
    for _ in 0..4 * TIMES {
        assert!(desk.say(std::slice::from_ref(&claim)).starts_with("*500\r\n"));
    }
    let log = names::head(b"0/s");
    // The number of the entry that had the whole state last.
    let whole = |desk: &Desk| desk.store().bounds(&log).unwrap().first;
    assert!(whole(&desk) > 0 && head(&desk, b"0/s") > 200_000, "it was written as a whole");
    let (mut last, mut times) = (whole(&desk), 0);
    for n in 1..=100 {
        assert_eq!(desk.say(&[words(&format!("XACK s g {n}-0"))]), ":1\r\n");
        times += usize::from(whole(&desk) != last);
        last = whole(&desk);
    }
    assert!(times <= 1, "{times} times");
    let mut desk = desk.again();
    assert!(desk.say(&[words("XPENDING s g")]).starts_with("*4\r\n:400\r\n"));
}

/// In the old state each further change was refused, for ever, as below.
#[test]
fn a_stream_whose_names_no_commit_takes_as_a_whole_can_be_changed() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let mut say = |request: &str| {
        world.engine.run(id, &mut [words(request)].into(), || true);
        world.store.flush().unwrap();
        world.engine.note_durable();
        String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
    };
    assert_eq!(say("XGROUP CREATE s g 0 MKSTREAM"), "+OK\r\n");
    for n in 0..150 {
        assert_eq!(say(&format!("XGROUP CREATECONSUMER s g {n:01000}")), ":1\r\n", "{n}");
    }
    assert_eq!(say(&format!("XGROUP DELCONSUMER s g {:01000}", 7)), ":0\r\n");
    assert_eq!(say("XINFO GROUPS s").split("\r\n").nth(8), Some(":149"));
}

/// In the old state each further change was refused, for ever: the head was to be rewritten, and no
/// commit takes it as a whole.
#[test]
fn a_hash_that_no_commit_takes_as_a_whole_can_be_changed() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let mut say = |request: Vec<Bytes>| {
        world.engine.run(id, &mut [request].into(), || true);
        world.store.flush().unwrap();
        world.engine.note_durable();
        String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
    };
    for part in 0..2 {
        let value = "x".repeat(200);
        assert_eq!(say(many("HSET h", 250, |n| format!("{part}:{n} {value}"))), ":250\r\n");
    }
    for n in 0..1_100 {
        assert_eq!(say(words(&format!("HSET h 0:0 {n}"))), ":0\r\n", "{n}");
    }
    assert_eq!(say(words("HDEL h 0:1 1:1")), ":2\r\n");
    assert_eq!(say(words("HLEN h")), ":498\r\n");
    assert_eq!(say(words("HGET h 0:0")), "$4\r\n1099\r\n");
}

/// Runs a long command on a key that expires at 2,000,000, so many portions before that time and
/// the rest after it. Returns the reply, and the server.
fn run_over_deadline(set_up: &[Vec<Bytes>], long: Vec<Bytes>, before: usize) -> (String, Desk) {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    set_up.chunks(100).for_each(|requests| drop(desk.say(requests)));
    let (id, mut requests) = (desk.long, VecDeque::from([long]));
    (0..before).for_each(|_| desk.engine.run(id, &mut requests, || false));
    assert!(desk.is_at_work(id), "{before}");
    desk.engine.set_time(at(3_000_000));
    while desk.is_at_work(id) {
        desk.engine.run(id, &mut requests, || false);
    }
    (desk.told(id), desk)
}

/// In the old state the head had no snapshot, and nobody could read the key any more. Before that,
/// the key had fields that had expired.
#[test]
fn a_hash_that_expires_while_fields_are_prepared_has_the_new_fields_alone() {
    let old = [many("HSET h", 9_000, |n| format!("field:{n} old")), words("PEXPIREAT h 2000000")];
    for before in 1..=4 {
        let new = many("HSET h", 2_500, |n| format!("field:{n} new"));
        let (told, mut desk) = run_over_deadline(&old, new, before);
        assert_eq!(told, ":2500\r\n", "{before}");
        let looks = ["HLEN h", "HMGET h field:7 field:8000", "PTTL h"].map(words);
        let found = ":2500\r\n*2\r\n$3\r\nnew\r\n$-1\r\n:-1\r\n";
        assert_eq!(desk.say(&looks), found, "{before}");
        assert_eq!(desk.again().say(&looks), found, "{before}");
    }
}

/// In the old state the server panicked: the entries were to be deleted of a stream that was gone.
#[test]
fn a_stream_that_expires_while_entries_are_looked_for_is_gone() {
    let old = [stream(), vec![words("PEXPIREAT stream 2000000")]].concat();
    for before in 1..=2 {
        let delete = many("XDEL stream", 5_000, |n| format!("{}-0", n + 1));
        let (told, mut desk) = run_over_deadline(&old, delete, before);
        assert_eq!(told, ":0\r\n", "{before}");
        assert_eq!(desk.say(&[words("EXISTS stream")]), ":0\r\n", "{before}");
    }
}

/// In the old state the server panicked, and disconnected all clients: the stream was to be
/// described further that was gone.
#[test]
fn a_stream_that_expires_while_it_is_described_is_no_key_any_more() {
    let old = [stream(), vec![words("PEXPIREAT stream 2000000")]].concat();
    for before in 1..=2 {
        let (told, mut desk) = run_over_deadline(&old, words("XINFO STREAM stream FULL COUNT 0"), before);
        assert_eq!(told, "-ERR no such key\r\n", "{before}");
        assert_eq!(desk.say(&[words("EXISTS stream")]), ":0\r\n", "{before}");
    }
}

/// In the old state the entries of the first stream were delivered, and nobody got them: with
/// `NOACK` they were lost.
#[test]
fn a_stream_that_expires_while_others_are_read_takes_no_entries_of_these() {
    let each = |name: &str| [format!("XADD {name} 1-0 f v"), format!("XGROUP CREATE {name} g 0")];
    let short: Vec<Vec<Bytes>> = [each("a"), each("b")].concat().iter().map(|one| words(one)).collect();
    let set_up = [stream(), short, vec![words("PEXPIREAT b 2000000")]].concat();
    let read = words("XREADGROUP GROUP g c NOACK STREAMS a b stream > > >");
    let (told, mut desk) = run_over_deadline(&set_up, read, 1);
    assert!(told.starts_with("-NOGROUP No such key 'b'"), "{told}");
    let told = desk.say(&[words("XREADGROUP GROUP g c STREAMS a >")]);
    assert!(told.contains("\r\n1-0\r\n"), "{told}");
}
