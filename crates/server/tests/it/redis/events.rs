//! Keyspace notifications: what a subscriber hears of what others do to keys.

use brooklet::Store;

use crate::redis::client::{Client, Server};

fn server() -> Server {
    Server::of(Store::in_memory(1).unwrap())
}

/// The events that a subscriber of all key events has heard until a marker, as `event:key`.
fn heard(subscriber: &mut Client, other: &mut Client) -> Vec<String> {
    assert_eq!(other.say("PUBLISH __keyevent@0__:end end"), ":1");
    let mut all = Vec::new();
    loop {
        let message = subscriber.reply();
        let words: Vec<&str> = message.trim_matches(['[', ']']).split(' ').collect();
        let event = words[2].rsplit("__:").next().unwrap();
        if event == "end" {
            return all;
        }
        all.push(format!("{event}:{}", words[3]));
    }
}

/// The events as Redis 7.0 publishes them.
#[test]
fn commands_tell_their_events() {
    let server = server();
    let (mut listener, mut client) = (server.client(), server.client());
    assert_eq!(client.say("CONFIG SET notify-keyspace-events EAnm"), "OK");
    assert_eq!(listener.say("PSUBSCRIBE __keyevent@*"), "[psubscribe __keyevent@* :1]");
    for (requests, events) in [
        ("SET s 1", "new:s set:s"),
        ("SET s 1 EX 100", "set:s expire:s"),
        ("INCR s|DECRBY s 2|APPEND s x|SETRANGE s 0 y", "incrby:s incrby:s append:s setrange:s"),
        ("GET s|GET none|MGET none s", "keymiss:none keymiss:none"),
        ("MSET a 1 b 2|GETDEL a", "new:a set:a new:b set:b del:a"),
        ("SETNX b 3|EXPIRE none 3|LPOP none|DEL none", ""),
        (
            "RENAME b c|COPY c d|MOVE d 1",
            "new:c rename_from:b rename_to:c new:d copy_to:d new:d move_from:d move_to:d",
        ),
        ("EXPIRE c 100|PERSIST c|GETEX c EX 9|EXPIRE c -1", "expire:c persist:c expire:c del:c"),
        ("RPUSH l 1 2 3|LSET l 0 x|LINSERT l BEFORE x w|LREM l 0 w", "new:l rpush:l lset:l linsert:l lrem:l"),
        ("LMOVE l m LEFT RIGHT|RPOPLPUSH m m", "new:m rpush:m lpop:l lpush:m rpop:m"),
        ("LMPOP 1 m RIGHT|LTRIM l 5 9", "rpop:m del:m ltrim:l del:l"),
        ("HSET h f 1|HINCRBY h f 1|HDEL h f", "new:h hset:h hincrby:h hdel:h del:h"),
        ("XADD x 1-1 f v|XADD x MAXLEN 1 1-2 f v|XTRIM x MAXLEN 5", "new:x xadd:x xadd:x xtrim:x"),
        (
            "XGROUP CREATE x g 0|XREADGROUP GROUP g c STREAMS x >|XACK x g 1-2|XGROUP DESTROY x g|XDEL x 1-2",
            "xgroup-create:x xgroup-createconsumer:x xgroup-destroy:x xdel:x",
        ),
        ("RPUSH n 2 1|SORT n STORE o", "new:n rpush:n new:o sortstore:o"),
        ("MULTI|SET t 1|DEL t|EXEC", "new:t set:t del:t"),
        ("FLUSHALL", ""),
    ] {
        requests
            .split('|')
            .for_each(|request| assert!(!client.say(request).starts_with("-ERR"), "{request}"));
        let all = heard(&mut listener, &mut client);
        assert_eq!(all.join(" "), events, "{requests}");
    }
}

#[test]
fn expired_keys_and_served_clients_are_told_of() {
    let server = server();
    let (mut listener, mut client, mut waits) = (server.client(), server.client(), server.client());
    assert_eq!(client.say("CONFIG SET notify-keyspace-events KElx"), "OK");
    assert_eq!(client.say("CONFIG GET notify-keyspace-events"), "[notify-keyspace-events lxKE]");
    assert_eq!(listener.say("SUBSCRIBE __keyspace@0__:q"), "[subscribe __keyspace@0__:q :1]");
    assert_eq!(listener.say("SUBSCRIBE __keyevent@0__:expired"), "[subscribe __keyevent@0__:expired :2]");
    assert_eq!(client.say("SET short 1 PX 20"), "OK");
    assert_eq!(listener.reply(), "[message __keyevent@0__:expired short]");
    waits.send(b"BLPOP q 0\r\n");
    client.wait_for("blocked_clients:1");
    assert_eq!(client.say("RPUSH q 1"), ":1");
    for event in ["rpush", "lpop"] {
        assert_eq!(listener.reply(), format!("[message __keyspace@0__:q {event}]"));
    }
    assert_eq!(waits.reply(), "[q 1]");
    assert!(client.say("CONFIG SET notify-keyspace-events Ky").starts_with("-ERR"));
    assert_eq!(client.ask(&["CONFIG", "SET", "notify-keyspace-events", ""]), "OK");
    assert_eq!(client.say("RPUSH q 2"), ":1");
    assert_eq!(client.say("PUBLISH __keyspace@0__:q nothing"), ":1");
    assert_eq!(listener.reply(), "[message __keyspace@0__:q nothing]");
}
