//! Memory for clients: each has limits, and all together have a budget.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::MemVolume;
use brooklet::{Options, Store};
use brooklet_server::Config;

use crate::redis::client::{Client, Server, encode};

fn store() -> Store {
    let options = Options::new().ring_size(64 << 20).max_payload(12 << 20);
    options.create_on(Arc::new(MemVolume::new(1))).unwrap()
}

fn server(limit: &str) -> (Server, Client) {
    let server = Server::of(store());
    let mut client = server.client();
    assert_eq!(client.ask(&["CONFIG", "SET", "client-output-buffer-limit", limit]), "OK");
    (server, client)
}

const TOO_LARGE: &str =
    "-ERR the reply is over 4194304 bytes (client-output-buffer-limit): ask for less at once";

/// Each command with a reply of 200 MB to 2 GB: it is stopped where the limit is, and has no
/// effect; its client and all others go on.
#[test]
fn a_reply_over_the_limit_is_stopped_while_it_is_built() {
    let (server, mut client) = server("normal 4mb 2mb 60");
    let large = "x".repeat(1 << 20);
    assert_eq!(client.ask(&["SET", "k", &large]), "OK");
    assert_eq!(client.ask(&["HSET", "h", "f", &large]), ":1");
    for _ in 0..20 {
        let elements = [&["RPUSH", "l"][..], &[&large[..]; 10]].concat();
        assert!(client.ask(&elements).starts_with(':'));
        assert!(client.ask(&[&["XADD", "s", "*", "f"][..], &[&large[..]; 9]].concat()).contains('-'));
    }
    assert_eq!(client.say("XGROUP CREATE s g 0"), "OK");
    let many = [&["MGET"][..], &["k"; 2000]].concat();
    let commands: [&[&str]; 12] = [
        &many,
        &["LRANGE", "l", "0", "-1"],
        &["LPOP", "l", "200"],
        &["RPOP", "l", "200"],
        &["LMPOP", "1", "l", "RIGHT", "COUNT", "200"],
        &["BLMPOP", "0", "1", "l", "LEFT", "COUNT", "200"],
        &["HRANDFIELD", "h", "-4000000", "WITHVALUES"],
        &["XRANGE", "s", "-", "+"],
        &["XREVRANGE", "s", "+", "-"],
        &["XREAD", "STREAMS", "s", "0"],
        &["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"],
        &["XINFO", "STREAM", "s", "FULL", "COUNT", "0"],
    ];
    for command in commands {
        assert_eq!(client.ask(command), TOO_LARGE, "{}", command[0]);
    }
    assert_eq!(client.say("LLEN l"), ":200");
    assert_eq!(client.say("XPENDING s g"), "[:0 nil nil nil]");
    assert_eq!(client.ask(&["LRANGE", "l", "0", "2"]).len(), (3 << 20) + 4);
    // What waited for the same is told the same.
    let mut waits = server.client();
    waits.send(&encode(&["BLMPOP", "0", "1", "m", "LEFT", "COUNT", "9"]));
    client.wait_for("blocked_clients:1");
    assert_eq!(client.ask(&[&["RPUSH", "m"][..], &[&large[..]; 5]].concat()), ":5");
    assert_eq!(waits.reply(), TOO_LARGE);
    assert_eq!(client.say("LLEN m"), ":5");
}

#[test]
fn a_list_of_keys_over_the_limit_is_stopped() {
    let (_server, mut client) = server("normal 16kb 8kb 60");
    for n in 0..1000 {
        assert_eq!(client.ask(&["RPUSH", &format!("{n:0>50}"), "x"]), ":1");
    }
    assert!(client.say("KEYS *").starts_with("-ERR the reply is over 16384 bytes"));
    assert_eq!(client.say("KEYS *999").len(), 52);
    assert_eq!(client.say("KEYS none*"), "[]");
}

/// A transaction is done whole, though nobody can take what it replies.
#[test]
fn a_transaction_pops_more_than_its_client_can_take() {
    let (_server, mut other) = server("normal 4mb 2mb 60");
    let large = "x".repeat(1 << 20);
    assert_eq!(other.ask(&[&["RPUSH", "l"][..], &[&large[..]; 20]].concat()), ":20");
    let mut client = _server.client();
    for request in ["MULTI", "LPOP l 19", "RPUSH m x", "LRANGE l 0 -1", "LPOP m"] {
        client.say(request);
    }
    client.send(&encode(&["EXEC"]));
    assert!(client.is_over());
    assert_eq!(other.say("LLEN l"), ":1");
    assert_eq!(other.say("EXISTS m"), ":0");
}

/// Many clients with a little too much of everything: the largest leave, and the sum is bounded.
#[test]
fn all_clients_together_have_a_budget() {
    let mut config = Config::default();
    config.settings.client_memory = 16 << 20;
    let server = Server::with(Store::in_memory(1).unwrap(), config);
    let mut works = server.client();
    assert_eq!(works.say("CLIENT NO-EVICT ON"), "OK");
    let half = "x".repeat(1 << 20);
    // Unread input: half a request. Queued commands. Replies that nobody reads.
    let unread = |_| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let request = encode(&["SET", "k", &half]);
        _ = stream.write_all(&request[..request.len() - 10]);
        stream
    };
    let kept: Vec<TcpStream> = (0..12).map(unread).collect();
    let mut queueing: Vec<Client> = (0..12).map(|_| server.client()).collect();
    for client in &mut queueing {
        client.send(&[encode(&["MULTI"]), encode(&["SET", "k", &half])].concat());
    }
    let mut last = server.client();
    assert_eq!(last.say("PING"), "PONG");
    let (mut sum, mut told) = (0, 0);
    for look in 0..6_000 {
        std::thread::sleep(Duration::from_millis(10));
        let list = works.say("CLIENT LIST");
        sum = list.split("tot-mem=").skip(1).map(number).sum::<u64>();
        assert!(sum <= 16 << 20, "{sum} bytes");
        let info = works.say("INFO clients");
        told = number(info.split("brooklet_clients_bytes:").nth(1).unwrap());
        // A busy server takes its time to read all of it.
        if look >= 100 && sum > 8 << 20 && told.abs_diff(sum) < 8192 {
            break;
        }
    }
    assert!(sum > 8 << 20, "{sum} bytes: the budget is not used");
    assert!(told.abs_diff(sum) < 8192, "{told} and {sum}");
    assert_eq!(last.say("PING"), "PONG", "a small client stays");
    drop((kept, queueing));
    works.wait_for("connected_clients:2");
    assert!(number(works.say("INFO clients").split("brooklet_clients_bytes:").nth(1).unwrap()) < 8192);
}

fn number(text: &str) -> u64 {
    text.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// CLIENT LIST reports the sizes that are there.
#[test]
fn the_sizes_of_clients_are_true() {
    let (server, mut client) = server("normal 64mb 32mb 60");
    // A busy server takes its time to read and to write.
    let mut expect = |of: &str, fits: fn([u64; 3]) -> bool| {
        let mut found = [0; 3];
        for _ in 0..600 {
            std::thread::sleep(Duration::from_millis(100));
            let list = client.say("CLIENT LIST");
            let line = list.split("\\n").find(|line| line.contains(of)).unwrap_or_else(|| panic!("{list}"));
            found = ["qbuf=", "omem=", "tot-mem="].map(|name| number(line.split(name).nth(1).unwrap()));
            if fits(found) {
                return;
            }
        }
        panic!("{of}: {found:?}");
    };
    let large = "x".repeat(4 << 20);
    let mut half = server.client();
    assert_eq!(half.say("CLIENT SETNAME half"), "OK");
    let request = encode(&["SET", "k", &large]);
    half.send(&request[..3 << 20]);
    expect("name=half", |[qbuf, omem, all]| (3 << 20..5 << 20).contains(&qbuf) && omem == 0 && all >= qbuf);
    half.send(&request[3 << 20..]);
    assert_eq!(half.reply(), "OK");
    expect("name=half", |[qbuf, omem, all]| qbuf == 0 && omem == 0 && all < 4096);
    // Arguments of an incomplete request count, however short they are.
    half.send(&[b"*100001\r\n".to_vec(), b"$1\r\nx\r\n".repeat(100_000)].concat());
    expect("name=half", |[qbuf, ..]| qbuf >= 100_000 * 32);
    let mut silent = server.client();
    assert_eq!(silent.say("CLIENT SETNAME silent"), "OK");
    silent.send(&encode(&["GET", "k"]).repeat(4));
    expect("name=silent", |[_, omem, all]| (8 << 20..=17 << 20).contains(&omem) && all >= omem);
    // What was read of a buffer is free once all of the buffer was.
    assert_eq!(silent.reply(), large);
    expect("name=silent", |[_, omem, all]| (1..=12 << 20).contains(&omem) && all >= 16 << 20);
    // A waiting client has its keys.
    let keys: Vec<String> = (0..10_000).map(|n| format!("key:{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut waits = server.client();
    assert_eq!(waits.say("CLIENT SETNAME waits"), "OK");
    waits.send(&encode(&[&["BLPOP"][..], &keys, &["0"]].concat()));
    expect("name=waits", |[.., all]| all > 10_000 * 200);
}
