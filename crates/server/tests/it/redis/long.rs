//! Long commands: other clients have their turns before they end, and nobody sees a part of them.

use brooklet::Store;

use crate::redis::client::{Client, Server, encode};

pub const KEYS: usize = 30_000;

/// A server with many keys.
pub fn server() -> Server {
    let server = Server::of(Store::in_memory(1).unwrap());
    fill(&mut server.client());
    server
}

fn fill(client: &mut Client) {
    for portion in 0..KEYS / 10_000 {
        let names: Vec<String> = (0..10_000).map(|n| format!("key:{:06}", portion * 10_000 + n)).collect();
        let words: Vec<&str> = names.iter().flat_map(|name| [name.as_str(), "v"]).collect();
        assert_eq!(client.ask(&[&["MSET"][..], &words].concat()), "OK");
    }
}

/// Sends a request and `SET done 1` in one packet, and returns whether another client has a turn
/// before the second.
pub fn has_turn(client: &mut Client, other: &mut Client, request: &str) -> bool {
    assert_eq!(other.say("DEL done").len(), 2);
    let request: Vec<&str> = request.split(' ').collect();
    client.send(&[encode(&request), encode(&["SET", "done", "1"])].concat());
    // The first reply to this client may come before the request, and a later one after it.
    let turns = (0..1_000_000).take_while(|_| other.say("EXISTS done") == ":0").count();
    client.reply();
    assert_eq!(client.reply(), "OK");
    turns > 3
}

#[test]
fn others_have_turns_while_a_long_command_runs() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    for request in ["DBSIZE", "KEYS *", "KEYS none*", "FLUSHALL"] {
        // A busy machine may keep the other client from its turns.
        let has_turn = (0..10).any(|_| {
            fill(&mut client);
            has_turn(&mut client, &mut other, request)
        });
        assert!(has_turn, "{request}");
    }
    assert_eq!(client.say("DBSIZE"), ":1");
    assert_eq!(client.say("KEYS *"), "[done]");
}

#[test]
fn a_count_knows_what_others_write_meanwhile() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    client.send(&encode(&["DBSIZE"]));
    let mut written = 0;
    while other.say("PING") == "PONG" && written < 2_000 {
        assert_eq!(other.say(&format!("SET new:{written} 1")), "OK");
        assert_eq!(other.say(&format!("DEL key:{written:06} none")), ":1");
        written += 2;
        assert_eq!(other.say(&format!("SET new:{} 1", written - 1)), "OK");
    }
    client.reply();
    let expected = KEYS + written / 2;
    assert_eq!(client.say("DBSIZE"), format!(":{expected}"));
    assert_eq!(client.say("KEYS *").split(' ').count(), expected);
}

#[test]
fn a_flush_is_whole_for_all_others_from_its_beginning() {
    let server = server();
    let (mut client, mut other, mut watches) = (server.client(), server.client(), server.client());
    let last = format!("key:{:06}", KEYS - 1);
    assert_eq!(watches.say(&format!("WATCH {last}")), "OK");
    client.send(&encode(&["FLUSHALL"]));
    // The first key is gone once the command has begun; the last one is then, too.
    while other.say("EXISTS key:000000") == ":1" {}
    assert_eq!(other.say(&format!("GET {last}")), "nil");
    assert_eq!(other.say("SET key:020000 new"), "OK");
    assert_eq!(other.say("RPUSH key:029998 new"), ":1");
    assert_eq!(watches.say("MULTI"), "OK");
    assert_eq!(watches.say("SET won 1"), "QUEUED");
    assert_eq!(watches.say("EXEC"), "nil");
    let listed = other.say("KEYS *");
    assert_eq!(listed, "[key:020000 key:029998]");
    assert_eq!(client.reply(), "OK");
    assert_eq!(other.say("DBSIZE"), ":2");
    assert_eq!(other.say("MGET key:020000 key:000001"), "[new nil]");
    assert_eq!(other.say("LRANGE key:029998 0 -1"), "[new]");
}

/// A client that leaves does not bring the keys back.
#[test]
fn a_flush_ends_without_its_client() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    client.send(&encode(&["FLUSHALL"]));
    while other.say("EXISTS key:000000") == ":1" {}
    let id = other.say("CLIENT LIST TYPE normal");
    let id = id.split("\\n").find(|line| line.contains("cmd=flushall")).map(str::to_owned);
    if let Some(id) =
        id.and_then(|line| line.split(' ').find_map(|word| word.strip_prefix("id=").map(str::to_owned)))
    {
        assert_eq!(other.say(&format!("CLIENT KILL ID {id}")), ":1");
    }
    drop(client);
    assert_eq!(other.say("DBSIZE"), ":0");
    assert_eq!(other.say("KEYS *"), "[]");
}

#[test]
fn a_transaction_and_a_script_have_a_bound() {
    let server = server();
    let mut client = server.client();
    assert_eq!(client.say("MULTI"), "OK");
    assert_eq!(client.say("SET other 1"), "QUEUED");
    (0..20).for_each(|_| assert_eq!(client.say("KEYS none*"), "QUEUED"));
    assert_eq!(client.say("EXEC"), "-ERR 'keys' takes too long for a transaction or a script: run it alone");
    assert_eq!(client.say("EXISTS other"), ":0");
    let script = "for i = 1, 20 do redis.call('KEYS', 'none*') end";
    assert!(client.ask(&["EVAL", script, "0"]).starts_with("-ERR"));
    // Few keys are no bother.
    assert_eq!(client.say("FLUSHALL"), "OK");
    assert_eq!(client.say("SET key:1 1"), "OK");
    assert_eq!(client.say("MULTI"), "OK");
    ["KEYS key:*", "FLUSHDB", "SET a 1", "DBSIZE"].iter().for_each(|request| drop(client.say(request)));
    let done = client.say("EXEC");
    assert_eq!(done, "[[key:1] OK OK :1]");
    assert_eq!(client.say("KEYS *"), "[a]");
}

/// An `APPEND` writes the whole text again: 64 MiB of them are the most of one commit.
#[test]
fn what_a_transaction_writes_has_a_bound() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let mut client = server.client();
    assert_eq!(client.say("CONFIG SET client-query-buffer-limit 1mb"), "OK");
    assert_eq!(client.ask(&["SET", "s", &"x".repeat(300_000)]), "OK");
    for (count, is_done) in [(3, true), (4, false)] {
        assert_eq!(client.say("MULTI"), "OK");
        assert_eq!(client.say("SET other 1"), "QUEUED");
        (0..count).for_each(|_| assert_eq!(client.say("APPEND s y"), "QUEUED"));
        let reply = client.say("EXEC");
        assert_eq!(reply.starts_with("[OK"), is_done, "{reply}");
        assert!(
            is_done || reply.starts_with("-ERR the transaction writes more than 1048576 bytes"),
            "{reply}"
        );
        assert_eq!(client.say("DEL other"), if is_done { ":1" } else { ":0" });
        assert_eq!(client.say("STRLEN s"), ":300003");
    }
}

/// Ranges over many deleted entries return what is left between them, from both ends.
#[test]
fn ranges_pass_deleted_entries() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let mut client = server.client();
    const LEN: usize = 20_000;
    let add: Vec<u8> = (1..=LEN).flat_map(|n| encode(&["XADD", "x", &n.to_string(), "f", "v"])).collect();
    client.send(&add);
    (0..LEN).for_each(|_| drop(client.reply()));
    let left = [1, 2, 3_000, 3_001, 11_000, 17_777, LEN];
    let gone: Vec<String> = (1..=LEN).filter(|n| !left.contains(n)).map(|n| format!("{n}-0")).collect();
    let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
    assert_eq!(client.ask(&[&["XDEL", "x"][..], &gone].concat()), format!(":{}", gone.len()));
    let shown = |ids: &[usize]| {
        let all: Vec<String> = ids.iter().map(|n| format!("[{n}-0 [f v]]")).collect();
        format!("[{}]", all.join(" "))
    };
    let mut reversed = left;
    reversed.reverse();
    assert_eq!(client.say("XRANGE x - +"), shown(&left));
    assert_eq!(client.say("XREVRANGE x + -"), shown(&reversed));
    assert_eq!(client.say("XRANGE x 3 + COUNT 1"), shown(&[3_000]));
    assert_eq!(client.say("XRANGE x 3002 + COUNT 2"), shown(&[11_000, 17_777]));
    assert_eq!(client.say("XREVRANGE x 17776 - COUNT 1"), shown(&[11_000]));
    assert_eq!(client.say("XREVRANGE x 10999 3 COUNT 9"), shown(&[3_001, 3_000]));
    assert_eq!(client.say("XRANGE x 4 2999"), "[]");
}

#[test]
fn random_fields_are_distinct_or_as_many_as_asked_for() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let mut client = server.client();
    let names: Vec<String> = (0..15_000).map(|n| format!("f{n}")).collect();
    let words: Vec<&str> = names.iter().flat_map(|name| [name.as_str(), "v"]).collect();
    assert_eq!(client.ask(&[&["HSET", "h"][..], &words].concat()), ":15000");
    let fields = |reply: String| -> Vec<String> {
        reply.trim_matches(['[', ']']).split(' ').map(str::to_owned).collect()
    };
    for (count, len) in [("3", 3), ("12000", 12_000), ("20000", 15_000)] {
        let mut all = fields(client.say(&format!("HRANDFIELD h {count}")));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), len);
        assert!(all.iter().all(|field| field.starts_with('f')));
    }
    assert_eq!(fields(client.say("HRANDFIELD h -30000 WITHVALUES")).len(), 60_000);
    assert_eq!(client.say("HRANDFIELD h 0"), "[]");
    assert_eq!(client.say("HRANDFIELD none -5"), "[]");
    assert!(client.say("HRANDFIELD h").starts_with('f'));
    // Others have turns meanwhile.
    let mut other = server.client();
    assert!((0..10).any(|_| has_turn(&mut client, &mut other, "HRANDFIELD h -300000")));
}
