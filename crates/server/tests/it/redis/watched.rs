//! WATCH sees the changes of keys that Redis sees, and no others.

use std::thread::sleep;
use std::time::Duration;

use brooklet::Store;

use crate::redis::client::{Client, Server};

/// Sets keys, watches one, asks for something by the same client or another, and returns whether
/// EXEC then runs.
struct Case {
    watches: Client,
    other: Client,
    _server: Server,
}

const KEYS: [&str; 7] = [
    "FLUSHALL",
    "XADD s 1-1 f a",
    "XADD s 2-1 f b",
    "XGROUP CREATE s g 0",
    "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
    "SET k v",
    "SET other v",
];

impl Case {
    fn new() -> Self {
        let server = Server::of(Store::in_memory(1).unwrap());
        Self { watches: server.client(), other: server.client(), _server: server }
    }

    fn runs(&mut self, key: &str, requests: &[&str], by_itself: bool) -> bool {
        KEYS.iter().for_each(|request| drop(self.other.say(request)));
        assert_eq!(self.watches.say(&format!("WATCH {key}")), "OK");
        for request in requests {
            let client = if by_itself { &mut self.watches } else { &mut self.other };
            let reply = client.say(request);
            assert!(!reply.starts_with('-'), "{request}: {reply}");
        }
        self.exec()
    }

    fn exec(&mut self) -> bool {
        assert_eq!(self.watches.say("MULTI"), "OK");
        assert_eq!(self.watches.say("PING"), "QUEUED");
        match self.watches.say("EXEC").as_str() {
            "[PONG]" => true,
            "nil" => false,
            other => panic!("{other}"),
        }
    }
}

/// To read as a group changes the group, and not the stream.
#[test]
fn groups_are_not_watched() {
    let mut case = Case::new();
    let quiet = [
        "XREADGROUP GROUP g c STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XREADGROUP GROUP g new STREAMS s >",
        "XREADGROUP GROUP g c NOACK STREAMS s >",
        "XACK s g 1-1",
        "XCLAIM s g d 0 1-1",
        "XAUTOCLAIM s g d 0 0",
        "XGROUP CREATE s g2 0",
        "XGROUP SETID s g 0",
        "XGROUP CREATECONSUMER s g d",
        "XGROUP DELCONSUMER s g c",
        "XGROUP DESTROY s g",
        "XSETID s 9-9",
        "XTRIM s MAXLEN 100",
        "XDEL s 99-1",
    ];
    for request in quiet {
        for by_itself in [false, true] {
            assert!(case.runs("s", &[request], by_itself), "{request}, {by_itself}");
        }
    }
    let changes = ["XADD s 5-5 f v", "XDEL s 1-1", "XTRIM s MAXLEN 1", "DEL s", "RENAME k s", "EXPIRE s 100"];
    for request in changes {
        for by_itself in [false, true] {
            assert!(!case.runs("s", &[request], by_itself), "{request}, {by_itself}");
        }
    }
    assert!(!case.runs("none", &["XGROUP CREATE none g $ MKSTREAM"], false));
    assert!(!case.runs("s", &["XACK s g 1-1", "XADD s * f v", "XACK s g 2-1"], false));
}

#[test]
fn a_key_that_is_made_again_alike_has_changed() {
    let mut case = Case::new();
    for (key, requests) in [
        ("k", &["DEL k", "SET k v"][..]),
        ("k", &["SET k v"]),
        ("none", &["SET none v", "DEL none"]),
        ("none", &["RPUSH none v", "LPOP none"]),
        ("k", &["FLUSHALL", "SET k v"]),
        ("k", &["FLUSHDB"]),
        ("k", &["RENAME k m", "RENAME m k"]),
    ] {
        assert!(!case.runs(key, requests, false), "{requests:?}");
    }
    for (key, requests) in [
        ("none", &["FLUSHALL"][..]),
        ("none", &["DEL none"]),
        ("k", &["SELECT 1", "SET k w", "FLUSHDB", "SELECT 0"]),
        ("k", &["PERSIST k", "TOUCH k", "GETEX k", "SETNX k w", "MSETNX k 1 new 2", "COPY k m"]),
    ] {
        assert!(case.runs(key, requests, false), "{requests:?}");
    }
}

/// A key whose time has come before WATCH was not there; one whose time comes later has changed.
#[test]
fn keys_that_expire_are_seen_where_they_were_there() {
    let mut case = Case::new();
    let old = Duration::from_millis(60);
    // The clock that removes expired keys has not met it, or has.
    for pause in [Duration::ZERO, old] {
        assert_eq!(case.other.say("SET short v PX 1"), "OK");
        sleep(Duration::from_millis(5) + pause);
        assert_eq!(case.watches.say("WATCH short k"), "OK");
        sleep(old);
        assert_eq!(case.other.say("EXISTS short"), ":0");
        assert!(case.exec(), "it was not there before either");
    }
    for asks in [false, true] {
        // A busy machine may watch it too late.
        loop {
            assert_eq!(case.other.say("SET short v PX 300"), "OK");
            assert_eq!(case.watches.say("WATCH short"), "OK");
            if case.other.say("EXISTS short") == ":1" {
                break;
            }
            assert_eq!(case.watches.say("UNWATCH"), "OK");
        }
        sleep(Duration::from_millis(300) + old);
        if asks {
            assert_eq!(case.watches.say("GET short"), "nil");
        }
        assert!(!case.exec(), "it is there no more");
    }
    assert_eq!(case.other.say("SET short v PX 1"), "OK");
    sleep(Duration::from_millis(5));
    assert_eq!(case.watches.say("WATCH short"), "OK");
    assert_eq!(case.other.say("SET short v"), "OK");
    assert!(!case.exec());
}
