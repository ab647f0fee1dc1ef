//! Commands that look at long values in portions: each is of one moment.

use std::collections::VecDeque;

use brooklet::Store;
use bytes::Bytes;

use super::portions::{Case, Desk, ELEMENTS, FIELDS, case, check, hash, list, many, stream};
use super::{at, words};

#[test]
fn changes_in_the_midst_of_a_list_are_of_one_moment() {
    let looks: &[&str] = &["LRANGE list 0 -1", "PEXPIRETIME list"];
    let changes: &[&str] =
        &["RPUSH list new", "LPOP list", "LRANGE list 4400 4420", "DEL list", "SET list text"];
    let element = |place: usize| (place - 10) * 7_919 % ELEMENTS;
    let set_up = [list(), vec![words("PEXPIREAT list 9000000000000")]].concat();
    let long = |request: &str, changes| case(words(request), changes, looks);
    check(
        &set_up,
        &[
            long(&format!("LINSERT list BEFORE {} new", element(4_900)), changes),
            long(&format!("LINSERT list AFTER {} new", element(4_300)), &changes[..1]),
            long(&format!("LINSERT list AFTER {} new", element(ELEMENTS + 9)), &changes[..1]),
            long("LINSERT list AFTER none new", &changes[..1]),
            long("LSET list 4300 new", changes),
            long("LSET list -4300 new", &changes[..1]),
            long(&format!("LREM list 0 {}", element(4_500)), changes),
            long("LREM list 1 none", &changes[..1]),
        ],
    );
}

#[test]
fn removals_of_many_elements_are_of_one_moment() {
    let set_up = [
        many("RPUSH list", ELEMENTS, |n| (n % 5).to_string()),
        many("LPUSH list", 3_000, |n| (n % 5).to_string()),
        many("RPUSH same", ELEMENTS, |_| "x".into()),
        words("PEXPIREAT same 9000000000000"),
    ];
    let looks: &[&str] = &["LRANGE list 0 -1", "LRANGE same 0 -1", "PEXPIRETIME same", "EXISTS same"];
    let long = |request: &str, changes| case(words(request), changes, looks);
    check(
        &set_up,
        &[
            long("LREM list 0 3", &["RPUSH list 3", "LRANGE list 0 9"]),
            long("LREM list -700 1", &["LPOP list 2"]),
            long("LREM list 1200 2", &["RPOP list 3"]),
            long("LREM same 0 x", &["RPUSH same y", "LPUSH same y", "DEL same"]),
            long("LREM same -8999 x", &["PERSIST same"]),
        ],
    );
}

/// A stream with a group, of which two consumers have pending entries.
fn group(pending: usize) -> Vec<Vec<Bytes>> {
    let read = |name, count| words(&format!("XREADGROUP GROUP g {name} COUNT {count} STREAMS stream >"));
    [stream(), vec![read("c", pending - 100), read("d", 100), words("XDEL stream 3 2500")]].concat()
}

fn long_of_group(request: Vec<Bytes>, changes: &[&str]) -> Case {
    case(request, changes, &["XPENDING stream g - + 10000", "XINFO STREAM stream FULL COUNT 0"])
}

const CHANGES: [&str; 4] = [
    "XACK stream g 5-0 2400-0",
    "XDEL stream 5 2400 4700",
    "XADD stream 100000 f v",
    "XGROUP DESTROY stream g",
];

#[test]
fn claims_of_many_entries_are_of_one_moment() {
    let claim = |options: &str| {
        let mut request = many("XCLAIM stream g e 0", 4_600, |n| format!("{}-0", n + 1));
        request.extend(words(options));
        request
    };
    check(
        &group(4_500),
        &[
            long_of_group(claim("LASTID 4999-0"), &CHANGES),
            long_of_group(claim("FORCE JUSTID"), &CHANGES[1..2]),
            long_of_group(words("XAUTOCLAIM stream g e 0 2-0 COUNT 4000"), &CHANGES),
            long_of_group(words("XAUTOCLAIM stream g e 0 0 COUNT 9000 JUSTID"), &CHANGES[..1]),
            long_of_group(words("XAUTOCLAIM stream g e 9 0 COUNT 400"), &CHANGES[..1]),
        ],
    );
}

#[test]
fn descriptions_of_groups_are_of_one_moment() {
    let ask = |request, changes| long_of_group(words(request), changes);
    check(
        &group(4_600),
        &[
            ask("XPENDING stream g - + 10000", &CHANGES),
            ask("XPENDING stream g 2 + 10000 d", &["XCLAIM stream g d 0 7-0"]),
            ask("XINFO STREAM stream FULL COUNT 0", &["XDEL stream 5 2400 4700", "SET stream text"]),
            ask("XINFO STREAM stream FULL COUNT 3000", &CHANGES[..1]),
        ],
    );
}

#[test]
fn deliveries_of_many_entries_are_of_one_moment() {
    let ask = |request, changes| long_of_group(words(request), changes);
    check(
        &group(2_500),
        &[
            ask("XREADGROUP GROUP g e STREAMS stream >", &CHANGES),
            ask("XREADGROUP GROUP g e NOACK COUNT 2400 STREAMS stream >", &CHANGES[1..2]),
            ask("XREADGROUP GROUP g c STREAMS stream 0", &CHANGES[..2]),
            ask("XREADGROUP GROUP g c COUNT 2200 STREAMS stream stream 5 >", &["XCLAIM stream g d 0 7-0"]),
        ],
    );
}

/// In the old state the first portion read and delivered all, and others waited for that.
#[test]
fn entries_are_delivered_once_all_of_them_are_read() {
    for ask in ["XREADGROUP GROUP g e STREAMS stream >", "XREADGROUP GROUP g c STREAMS stream 0"] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&group(2_500));
        let look = [words("XINFO STREAM stream FULL COUNT 10")];
        let before = desk.say(&look);
        desk.engine.run(desk.long, &mut [words(ask)].into(), || false);
        assert!(desk.is_at_work(desk.long));
        assert_eq!(desk.say(&look), before);
        desk.engine.run(desk.long, &mut VecDeque::new(), || true);
        assert_ne!(desk.say(&look), before);
    }
}

/// The limit of a reply holds for all portions together.
#[test]
fn what_is_not_delivered_for_lack_of_room_is_not_pending() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&group(200));
    for request in ["XREADGROUP GROUP g e STREAMS stream >", "XINFO STREAM stream FULL COUNT 0"] {
        for most in [300_000, 500_000] {
            desk.engine.settings.hard_output = most;
            desk.engine.run(desk.long, &mut [words(request)].into(), || true);
            assert!(desk.told(desk.long).starts_with("-ERR the reply is over"), "{request} {most}");
        }
    }
    desk.engine.settings.hard_output = 256 << 20;
    assert_eq!(desk.say(&[words("XPENDING stream g - + 1000 e")]), "*0\r\n");
}

/// A reader in portions finds nothing in the end, and waits as one that found nothing at once.
#[test]
fn a_reader_whose_stream_is_emptied_meanwhile_waits() {
    for ask in ["XREADGROUP GROUP g c BLOCK 0 STREAMS stream >", "XREAD BLOCK 0 STREAMS stream 5"] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&stream());
        desk.engine.run(desk.long, &mut [words(ask)].into(), || false);
        assert!(desk.is_at_work(desk.long));
        desk.say(&[words("XTRIM stream MAXLEN 0")]);
        desk.engine.run(desk.long, &mut VecDeque::new(), || true);
        assert!(desk.engine.client(desk.long).unwrap().wait.is_some());
        assert_eq!(desk.told(desk.long), "");
        desk.say(&[words("XADD stream 100000 f v")]);
        desk.engine.tick(at(1_000_001));
        assert!(desk.told(desk.long).contains("100000-0"));
    }
}

/// In the old state the memory of the old hash was freed at once, and all others waited for that.
#[test]
fn the_memory_of_a_long_hash_is_freed_little_by_little() {
    let put = many("HSET hash", FIELDS, |n| format!("field:{n} new"));
    for (request, len) in [
        (words("DEL hash"), FIELDS),
        (words("COPY hash copy REPLACE"), FIELDS),
        (words("RENAME hash copy"), 2 * FIELDS),
        (put, FIELDS),
        (words("HSET hash field:0 new"), 0),
    ] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&[hash(), vec![many("HSET copy", FIELDS, |n| format!("{n} v"))]].concat());
        desk.say(std::slice::from_ref(&request));
        assert_eq!(desk.engine.keys.discarded(), len, "{:?}", request[0]);
        for tick in 0..len.div_ceil(4_000) {
            assert!(desk.engine.keys.discarded() > 0);
            assert_eq!(desk.engine.next_due().map(|due| due.as_millis()), Some(1));
            desk.engine.tick(at(1_000_001 + tick as u64));
        }
        assert_eq!(desk.engine.keys.discarded(), 0);
    }
}

/// In the old state it was freed at once, too, if the hash left memory for lack of room.
#[test]
fn the_memory_of_a_long_hash_that_leaves_memory_is_freed_little_by_little() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&hash());
    (0..4).for_each(|_| assert!(desk.engine.keys.age_cache(usize::MAX)));
    assert_eq!((desk.engine.keys.cached(), desk.engine.keys.discarded()), ((0, 0), FIELDS));
    (0..2).for_each(|tick| desk.engine.tick(at(1_000_001 + tick)));
    assert_eq!(desk.engine.keys.discarded(), 0);
}
