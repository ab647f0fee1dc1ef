//! What commands cost: no square of what they are given, and turns for everybody.

use std::collections::BTreeMap;

use brooklet::Store;

use crate::redis::client::{Client, Server, encode};

fn server() -> Server {
    Server::of(Store::in_memory(1).unwrap())
}

/// A portion of a walk: the next cursor, and the keys.
fn portion(client: &mut Client, request: &str) -> (String, Vec<String>) {
    let reply = client.say(request);
    let inner = reply.strip_prefix('[').and_then(|rest| rest.strip_suffix("]]"));
    let (cursor, keys) = inner.unwrap_or_else(|| panic!("{reply}")).split_once(" [").unwrap();
    (cursor.to_owned(), keys.split(' ').map(str::to_owned).collect())
}

#[test]
fn a_walk_meets_each_key_once_while_others_begin_and_abandon_walks() {
    let server = server();
    let mut client = server.client();
    for n in 0..300 {
        assert_eq!(client.say(&format!("SET text:{n} x")), "OK");
        assert_eq!(client.say(&format!("RPUSH list:{n} x")), ":1");
        assert_eq!(client.say(&format!("LPUSH left:{n} x")), ":1");
    }
    assert_eq!(client.ask(&["SET", "", "x"]), "OK");
    assert_eq!(client.ask(&["RPUSH", "\0", "x"]), ":1");
    assert_eq!(client.ask(&["RPUSH", "\0h", "x"]), ":1");
    let mut others = server.client();
    let (mut cursor, mut seen, mut rounds) = ("0".to_owned(), BTreeMap::<String, u32>::new(), 0);
    let mut written = 0;
    loop {
        let (next, keys) = portion(&mut client, &format!("SCAN {cursor} COUNT 7"));
        keys.into_iter().for_each(|key| *seen.entry(key).or_default() += 1);
        cursor = next;
        if cursor == "0" {
            break;
        }
        // Changes meanwhile: keys that come, go and change.
        written += 1;
        others.say(&format!("SET new:{written} x"));
        others.say(&format!("DEL new:{}", written - 3));
        others.say("RPUSH list:7 y");
        others.say("SET text:200 y");
        rounds += 1;
        for _ in 0..20 {
            portion(&mut others, "SCAN 0");
        }
    }
    assert!(rounds > 100, "{rounds}");
    seen.retain(|key, _| !key.starts_with("new:"));
    assert_eq!(seen.len(), 903, "{:?}", seen.keys().collect::<Vec<_>>());
    assert!(seen.values().all(|n| *n == 1), "{seen:?}");
    // A walk that rests while very many begin is over, and is told so.
    let (rests, _) = portion(&mut client, "SCAN 0");
    let begin = encode(&["SCAN", "0", "COUNT", "1"]);
    for _ in 0..50 {
        others.send(&begin.repeat(100));
        (0..100).for_each(|_| drop(others.reply()));
    }
    assert!(client.say(&format!("SCAN {rests}")).starts_with("-ERR invalid cursor"));
    let more = (0..2500).flat_map(|n| encode(&["SET", &format!("more:{n}"), "x"]));
    others.send(&more.collect::<Vec<u8>>());
    (0..2500).for_each(|_| drop(others.reply()));
    let kinds = portion(&mut client, "SCAN 0 TYPE string COUNT 1000000");
    assert!(kinds.0 != "0" && kinds.1.len() <= 2000, "the values that are read for it are bounded");
}

/// In the old state this took the square: minutes.
#[test]
fn many_arguments_cost_no_square() {
    let server = server();
    let mut client = server.client();
    let keys: Vec<String> = (0..300_000).map(|n| format!("key:{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert_eq!(client.ask(&[&["WATCH"][..], &keys].concat()), "OK");
    assert_eq!(client.say("UNWATCH"), "OK");
    let patterns = [&["CONFIG", "GET"][..], &["*"; 100_000]].concat();
    assert!(client.ask(&patterns).len() < 5_000);
    let waits = [&["BLPOP"][..], &keys, &["0"]].concat();
    assert_eq!(client.ask(&waits), "-ERR a client waits for at most 16384 keys");
    // Each of these keys changes while another client waits for all of them.
    let waited = &keys[..16_384];
    let mut waits = server.client();
    waits.send(&encode(&[&["BLPOP"][..], waited, &["0"]].concat()));
    client.wait_for("blocked_clients:1");
    for some in waited.chunks(4096) {
        let pairs: Vec<&str> = some.iter().flat_map(|key| [*key, "x"]).collect();
        assert_eq!(client.ask(&[&["MSET"][..], &pairs].concat()), "OK");
        assert_eq!(client.ask(&[&["DEL"][..], some].concat()), ":4096");
    }
    assert_eq!(client.ask(&["RPUSH", keys[9_999], "a"]), ":1");
    assert_eq!(waits.reply(), "[key:9999 a]");
    let again = [&["BLPOP"][..], &["one"; 16_384], &["0"]].concat();
    let mut all: Vec<_> = (0..20).map(|_| server.client()).collect();
    all.iter_mut().for_each(|waits| waits.send(&encode(&again)));
    client.wait_for("blocked_clients:20");
    assert_eq!(client.ask(&[&["RPUSH", "one"][..], &["a"; 20]].concat()), ":20");
    all.iter_mut().for_each(|waits| assert_eq!(waits.reply(), "[one a]"));
    let stars = "*".repeat(1 << 20);
    assert_eq!(client.ask(&["KEYS", &stars]), "-ERR a pattern has at most 4096 bytes");
}

#[test]
fn a_client_with_long_commands_lets_others_have_their_turns() {
    let server = server();
    let mut client = server.client();
    let elements = [&["RPUSH", "l"][..], &["x"; 20_000]].concat();
    for n in 1..=5 {
        assert_eq!(client.ask(&elements), format!(":{}", n * 20_000));
    }
    let mut other = server.client();
    assert_eq!(other.say("PING"), "PONG");
    // A busy machine may keep the other client from its turn.
    let has_turn = (0..10).any(|_| {
        other.say("DEL done");
        // All of it arrives in one packet.
        client.send(&[encode(&["LPOS", "l", "y"]).repeat(400), encode(&["SET", "done", "1"])].concat());
        assert_eq!(client.reply(), "nil");
        let has_turn = other.say("EXISTS done") == ":0";
        for _ in 0..399 {
            assert_eq!(client.reply(), "nil");
        }
        assert_eq!(client.reply(), "OK");
        has_turn
    });
    assert!(has_turn, "nobody had a turn until all was done");
}
