//! Copies of long values, portion by portion: each is of one moment.

use std::collections::VecDeque;

use brooklet::Store;

use super::portions::{Desk, FIELDS, case, check, hash, list, stream};
use super::words;

#[test]
fn copies_of_a_list_are_of_one_moment() {
    let looks: &[&str] = &["LRANGE target 0 -1", "LRANGE list 0 -1", "TTL list"];
    let changes: &[&str] = &[
        "RPUSH list new",
        "LPOP list; LPOP list",
        "DEL list",
        "DEL target",
        "LSET list 4000 new",
        "SET list text",
    ];
    let moved: &[&str] = &["LRANGE list 0 -1", "SELECT 1", "LRANGE list 0 -1"];
    check(
        &list(),
        &[
            case(words("COPY list target REPLACE"), changes, looks),
            case(words("COPY list target"), changes, looks),
            case(words("RENAME list target"), changes, looks),
            case(words("RENAMENX list target"), changes, looks),
            case(words("MOVE list 1"), &["RPUSH list new"], moved),
        ],
    );
}

#[test]
fn copies_of_a_hash_are_of_one_moment() {
    let looks: &[&str] = &["HGETALL target", "HGETALL hash", "TTL hash", "TTL target"];
    let changes: &[&str] = &[
        "HSET hash field:0 new field:4999 new",
        "HDEL hash field:0 field:4999",
        "HDEL hash field:10; HSET hash another new",
        "PEXPIREAT hash 9000000000000",
        "DEL hash",
        "DEL target",
        "HSET target other new",
        "SET hash text",
        "RENAME hash other",
    ];
    let moved: &[&str] = &["HLEN hash", "SELECT 1", "HGETALL hash"];
    check(
        &[hash(), list()].concat(),
        &[
            case(words("COPY hash target REPLACE"), changes, looks),
            case(words("COPY hash target"), &["DEL target"], looks),
            case(words("COPY hash new"), &["HDEL hash field:0"], &["HGETALL new", "HLEN hash"]),
            case(words("RENAME hash target"), &["HDEL hash field:0", "DEL hash"], looks),
            case(words("RENAMENX hash target"), &["DEL target"], looks),
            case(words("MOVE hash 1"), &["HSET hash field:0 new"], moved),
        ],
    );
}

#[test]
fn copies_of_a_stream_are_of_one_moment() {
    let looks: &[&str] = &["XRANGE target - +", "XLEN stream", "XINFO GROUPS target", "XINFO STREAM target"];
    let changes: &[&str] = &[
        "XADD stream 100000 f v",
        "XDEL stream 5 4999; XADD stream 100000 f v",
        "XTRIM stream MAXLEN 4500",
        "XREADGROUP GROUP g c COUNT 3 STREAMS stream >",
        "DEL stream",
        "DEL target",
        "SET stream text",
    ];
    let set_up = [stream(), vec![words("XADD target 1 f v"), words("XDEL stream 7 4998")]].concat();
    check(
        &set_up,
        &[
            case(words("COPY stream target REPLACE"), changes, looks),
            case(words("COPY stream target"), &["DEL target"], looks),
            case(words("RENAME stream target"), &["XDEL stream 5 4999"], looks),
        ],
    );
}

/// Between two portions, others change the value in a way that its number of parts does not show.
#[test]
fn a_copy_that_others_disturb_again_and_again_ends_all_the_same() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&hash());
    desk.engine.run(desk.long, &mut VecDeque::from([words("COPY hash target")]), || false);
    let mut portions = 0;
    while desk.is_at_work(desk.long) {
        assert_eq!(desk.say(&[words(&format!("HSET hash field:0 {portions}"))]), ":0\r\n");
        desk.engine.run(desk.long, &mut VecDeque::new(), || false);
        portions += 1;
        assert!(portions < 100);
    }
    assert!(portions >= 4, "{portions}");
    assert_eq!(desk.told(desk.long), ":1\r\n");
    let last = (portions - 1).to_string();
    let looks = desk.say(&[words("HGET target field:0"), words("HLEN target")]);
    assert_eq!(looks, format!("${}\r\n{last}\r\n:{FIELDS}\r\n", last.len()));
}
