//! Waits end where that which a client waits for comes to its end, in the words of Redis 7.

use std::thread::sleep;
use std::time::Duration;

use brooklet::Store;

use crate::redis::client::{Client, Server, encode};

const GONE: &str = "-UNBLOCKED the stream key no longer exists";
const NO_GROUP: &str = "-NOGROUP the consumer group this client was blocked on no longer exists";
const GROUP: &str = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";

/// What a client that waits is told after some requests of another; `None`: nothing, and it waits.
fn told(server: &Server, other: &mut Client, wait: &str, requests: &[&str]) -> Option<String> {
    for request in ["FLUSHALL", "XADD s 1-1 f v", "XGROUP CREATE s g $", "RPUSH l x", "XADD t 1-1 f v"] {
        other.say(request);
    }
    let mut waits = server.client();
    waits.send(&encode(&wait.split(' ').collect::<Vec<_>>()));
    other.wait_for("blocked_clients:1");
    for request in requests {
        let reply = other.say(request);
        assert!(!reply.starts_with('-'), "{request}: {reply}");
    }
    let still = other.say("INFO clients").contains("blocked_clients:1\\r");
    let reply = if still { None } else { Some(waits.reply()) };
    drop(waits);
    other.wait_for("blocked_clients:0");
    reply
}

#[test]
fn a_group_that_waits_is_told_of_the_end_of_its_stream() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let mut other = server.client();
    let cases: [(&[&str], Option<&str>); 17] = [
        (&["DEL s"], Some(GONE)),
        (&["SET s x"], Some(GONE)),
        (&["FLUSHALL"], Some(GONE)),
        (&["FLUSHDB"], Some(GONE)),
        (&["RENAME s u"], Some(GONE)),
        (&["RENAME l s"], Some(GONE)),
        (&["COPY l s REPLACE"], Some(GONE)),
        (&["MOVE s 3"], Some(GONE)),
        (&["PEXPIRE s -1"], Some(GONE)),
        (&["MULTI", "DEL s", "RPUSH s x", "EXEC"], Some(GONE)),
        (&["RENAME t s"], Some(NO_GROUP)),
        (&["COPY t s REPLACE"], Some(NO_GROUP)),
        (&["XGROUP DESTROY s g"], Some(NO_GROUP)),
        (&["MULTI", "XADD s 9-1 f v", "XGROUP DESTROY s g", "EXEC"], Some(NO_GROUP)),
        (&["XTRIM s MAXLEN 0", "XGROUP DELCONSUMER s g c", "SELECT 1", "FLUSHDB", "SELECT 0"], None),
        (&["MULTI", "DEL s", "XGROUP CREATE s g $ MKSTREAM", "EXEC"], None),
        (&["MULTI", "DEL s", "XADD s 5-1 f v", "XGROUP CREATE s g 0", "EXEC"], Some("[[s [[5-1 [f v]]]]]")),
    ];
    for (requests, reply) in cases {
        assert_eq!(told(&server, &mut other, GROUP, requests).as_deref(), reply, "{requests:?}");
    }
}

#[test]
fn a_group_that_waits_is_told_when_its_stream_expires() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let mut other = server.client();
    other.say("XGROUP CREATE s g $ MKSTREAM");
    let mut waits = server.client();
    waits.send(&encode(&GROUP.split(' ').collect::<Vec<_>>()));
    other.wait_for("blocked_clients:1");
    assert_eq!(other.say("PEXPIRE s 20"), ":1");
    sleep(Duration::from_millis(50));
    assert_eq!(waits.reply(), GONE);
}

/// Redis lets all others wait on: the key may come again.
#[test]
fn others_wait_on_until_the_key_is_there_again() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let mut other = server.client();
    for wait in ["XREAD BLOCK 0 STREAMS s 1-1", "XREAD BLOCK 0 STREAMS s $"] {
        for requests in [&["DEL s"][..], &["SET s x"], &["DEL s", "XADD s 0-5 f v"], &["XGROUP DESTROY s g"]]
        {
            assert_eq!(told(&server, &mut other, wait, requests), None, "{wait}: {requests:?}");
        }
        let again = told(&server, &mut other, wait, &["SET s x", "DEL s", "XADD s 9-9 f v"]);
        assert_eq!(again.as_deref(), Some("[[s [[9-9 [f v]]]]]"));
    }
    for requests in [&["SET q x"][..], &["XADD q 1-1 f v", "DEL q"], &["RPUSH other x"]] {
        assert_eq!(told(&server, &mut other, "BLPOP q 0", requests), None);
    }
    let wrong = told(&server, &mut other, "BLMOVE q s LEFT LEFT 0", &["RPUSH q x"]);
    assert_eq!(wrong.as_deref(), Some("-WRONGTYPE Operation against a key holding the wrong kind of value"));
    assert_eq!(other.say("LRANGE q 0 -1"), "[x]");
}
