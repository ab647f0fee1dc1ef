//! What a client may not do: it is told, let go of where it must be, and harms nobody else.

use std::time::Duration;

use brooklet::Store;
use brooklet_server::Config;

use crate::redis::client::{Server, encode};

fn server() -> Server {
    Server::of(Store::in_memory(1).unwrap())
}

#[test]
fn what_makes_no_sense_is_told_and_ends_the_connection() {
    let server = server();
    let huge = "x".repeat(70_000);
    let cases = [
        ("*1\r\n$99999999\r\n", "-ERR Protocol error: invalid bulk length"),
        ("*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"),
        ("*99999999\r\n", "-ERR Protocol error: invalid multibulk length"),
        ("*x\r\n", "-ERR Protocol error: invalid multibulk length"),
        ("*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'"),
        ("GET \"open\r\n", "-ERR Protocol error: unbalanced quotes in request"),
        (&huge, "-ERR Protocol error: too big inline request"),
    ];
    for (bytes, error) in cases {
        let mut client = server.client();
        // What came before is done, and told before.
        client.send(&[&encode(&["RPUSH", "l", "x"]), bytes.as_bytes()].concat());
        assert!(client.reply().starts_with(':'), "{error}");
        assert_eq!(client.reply(), error);
        assert!(client.is_over(), "{error}");
    }
    assert_eq!(server.client().say("LLEN l"), ":7");
    let mut client = server.client();
    client.send(b"\r\n\r\n*0\r\n*-1\r\nPING\r\n  SET  key \"a \\x41\\n\"  \r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!([client.reply(), client.reply(), client.reply()], ["PONG", "OK", "PONG"]);
    assert_eq!(client.say("GET key"), "a A\\n");
    // Any bytes at all.
    let mut seed = 1_u64;
    for round in 0..200 {
        let mut client = server.client();
        let garbage: Vec<u8> = (0..100)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let bytes = b"*$0123456789\r\n\r\n GETSET\"'\\x\0\xff";
                if round % 2 == 0 { bytes[(seed >> 33) as usize % bytes.len()] } else { (seed >> 33) as u8 }
            })
            .collect();
        client.send(&garbage);
    }
    assert_eq!(server.client().say("PING"), "PONG");
}

/// A web page makes a browser send such requests: no line of their bodies is run.
#[test]
fn requests_of_web_pages_end_the_connection_and_run_nothing() {
    let server = server();
    let body = "\r\nFLUSHALL\r\nRPUSH pwned byweb\r\n";
    let heads = [
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n\r\n",
        "post / http/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n\r\n",
        "OPTIONS / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n\r\n",
        "SET /pwned HTTP/1.1\r\n\r\n",
        "Host: 127.0.0.1:6379\r\n\r\n",
        "Content-Length: 40\r\n\r\n",
        "*1\r\n$4\r\nPOST\r\n",
        "\x16\x03\x01\r\n",
    ];
    for head in heads {
        let mut client = server.client();
        client.send(&[&encode(&["RPUSH", "precious", "x"]), head.as_bytes(), body.as_bytes()].concat());
        // Commands before it are run, and nothing behind it.
        assert!(client.reply().starts_with(':'), "{head}");
        assert!(client.is_over(), "{head}");
    }
    let mut client = server.client();
    assert_eq!(client.say("LLEN precious"), format!(":{}", heads.len()));
    assert_eq!(client.say("EXISTS pwned /pwned"), ":0");
}

/// Replies that nobody takes: no more requests are done than what they may take, and in the end the
/// client is let go of.
#[test]
fn who_does_not_read_is_let_go_of_and_others_are_served() {
    let server = server();
    let mut other = server.client();
    assert_eq!(
        other.say("CONFIG SET client-output-buffer-limit"),
        "-ERR wrong number of arguments for 'config|set' command"
    );
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "normal 64mb 8mb 1"];
    assert_eq!(other.ask(&limit), "OK");
    let large = "x".repeat(500_000);
    assert_eq!(other.ask(&["SET", "large", &large]), "OK");
    let mut slow = server.client();
    // 500 MB of replies, all asked for at once.
    slow.send(&encode(&["GET", "large"]).repeat(1000));
    let mut most = 0;
    for _ in 0..12_000 {
        std::thread::sleep(Duration::from_millis(10));
        let list = other.say("CLIENT LIST");
        most = most.max(largest(&list));
        if !list.contains("cmd=get") {
            break;
        }
    }
    assert!(!other.say("CLIENT LIST").contains("cmd=get"), "it is still there");
    assert!(most <= 24 << 20, "{most} bytes are kept for a client that does not read");
    assert_eq!(other.say("LLEN none"), ":0");
    // One that reads gets all of it, however small the limit.
    assert_eq!(other.ask(&["CONFIG", "SET", "client-output-buffer-limit", "normal 0 1kb 60"]), "OK");
    let mut reads = server.client();
    reads.send(&encode(&["GET", "large"]).repeat(40));
    for _ in 0..40 {
        assert_eq!(reads.reply().len(), 500_000);
    }
    for n in 1..100 {
        assert_eq!(reads.ask(&["RPUSH", "l", &large[..2000]]), format!(":{n}"));
        assert_eq!(reads.say("LINDEX l 0").len(), 2000);
    }
}

/// A transaction is done whole, whatever it tells, and who could not take that is let go of.
#[test]
fn a_transaction_that_tells_too_much_is_done_and_ends_the_connection() {
    let server = server();
    let mut other = server.client();
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "normal 8mb 4mb 60"];
    assert_eq!(other.ask(&limit), "OK");
    assert_eq!(other.ask(&["SET", "large", &"x".repeat(500_000)]), "OK");
    let mut client = server.client();
    let requests = [encode(&["MULTI"]), encode(&["GET", "large"]).repeat(2000), encode(&["RPUSH", "l", "x"])];
    client.send(&requests.concat());
    assert_eq!(client.reply(), "OK");
    assert!((0..2001).all(|_| client.reply() == "QUEUED"));
    client.send(&encode(&["EXEC"]));
    assert!(client.is_over());
    assert_eq!(other.say("LRANGE l 0 -1"), "[x]");
    assert_eq!(other.say("HSET h f v"), ":1");
    assert_eq!(other.say("HRANDFIELD h -4294967296"), "-ERR value is out of range");
}

/// The largest memory of a client that CLIENT LIST tells of.
fn largest(list: &str) -> u64 {
    let sizes =
        list.split("tot-mem=").skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap());
    sizes.map(|size| size.parse().unwrap()).max().unwrap_or(0)
}

#[test]
fn the_idle_are_let_go_of_and_who_waits_is_not() {
    let mut config = Config::default();
    config.settings.timeout = 3;
    let server = Server::with(Store::in_memory(1).unwrap(), config);
    let (mut idle, mut waits) = (server.client(), server.client());
    assert_eq!(idle.say("PING"), "PONG");
    waits.send(&encode(&["BLPOP", "l", "0"]));
    assert!(idle.is_over());
    let mut other = server.client();
    assert_eq!(other.say("RPUSH l x"), ":1");
    assert_eq!(waits.reply(), "[l x]");
}
