//! Clients that keep copies of keys, and hear of changes, in the words of a real Redis 7.

use brooklet::Store;

use crate::redis::client::{Client, Server, encode};

fn server() -> Server {
    Server::of(Store::in_memory(1).unwrap())
}

/// A client of RESP3.
fn third(server: &Server) -> Client {
    let mut client = server.client();
    assert!(client.say("HELLO 3").starts_with('{'));
    client
}

/// Sends a request, and returns the replies that follow.
fn says(client: &mut Client, request: &str, replies: usize) -> Vec<String> {
    client.send(&encode(&request.split(' ').collect::<Vec<_>>()));
    (0..replies).map(|_| client.reply()).collect()
}

/// A script that reads anything has read the keys that it names. Its messages follow its commit,
/// and need the right to the channel.
#[test]
fn scripts_read_and_publish_as_their_client() {
    let server = server();
    let (mut client, mut other) = (third(&server), server.client());
    assert_eq!(client.say("CLIENT TRACKING ON"), "OK");
    for (script, reads) in [("redis.call('set', 'x', 1)", false), ("redis.call('get', 'x')", true)] {
        client.send(&encode(&["EVAL", script, "2", "w", "r"]));
        assert_eq!(client.reply(), "nil");
        assert_eq!([other.say("SET w 2"), other.say("SET r 2")], ["OK"; 2]);
        if reads {
            assert_eq!([client.reply(), client.reply()], ["(invalidate [w])", "(invalidate [r])"]);
        }
    }
    let mut listener = server.client();
    assert_eq!(listener.say("SUBSCRIBE news"), "[subscribe news :1]");
    let publish = ["EVAL", "redis.call('set', 'k', 1) return redis.call('publish', 'news', 'hi')", "0"];
    other.send(&encode(&publish));
    assert_eq!([other.reply(), listener.reply()], [":1", "[message news hi]"]);
    assert_eq!(other.say("ACL SETUSER quiet on nopass +@all ~* resetchannels"), "OK");
    let mut quiet = server.client();
    assert_eq!(quiet.say("AUTH quiet any"), "OK");
    quiet.send(&encode(&publish));
    let refused = quiet.reply();
    assert!(refused.contains("can't publish to the channel"), "{refused}");
}

#[test]
fn a_client_hears_of_the_keys_that_it_read() {
    let server = server();
    let (mut client, mut other) = (third(&server), server.client());
    assert_eq!(client.say("CLIENT TRACKING ON"), "OK");
    assert_eq!(client.say("MGET a b"), "[nil nil]");
    assert_eq!([other.say("SET a 1"), other.say("SET a 2"), other.say("MSET a 3 b 1")], ["OK"; 3]);
    assert_eq!([client.reply(), client.reply()], ["(invalidate [a])", "(invalidate [b])"]);
    // What it reads after it has heard is new.
    assert_eq!(client.say("GET a"), "3");
    // Its own changes, after the reply.
    assert_eq!(says(&mut client, "SET a 4", 2), ["OK", "(invalidate [a])"]);
    for request in ["MULTI", "GET a", "SET a 5"] {
        client.say(request);
    }
    assert_eq!(says(&mut client, "EXEC", 2), ["[4 OK]", "(invalidate [a])"]);
    // Several requests at once are one commit.
    client.send(&[encode(&["GET", "a"]), encode(&["GET", "b"]), encode(&["DEL", "b"])].concat());
    assert_eq!([(); 4].map(|()| client.reply()), ["5", "1", ":1", "(invalidate [b])"]);
    assert!(client.say("CLIENT INFO").contains(" flags=t "));
    assert_eq!(client.say("CLIENT TRACKING ON NOLOOP"), "OK");
    assert_eq!([client.say("GET a"), client.say("SET a 6"), client.say("GET a")], ["5", "OK", "6"]);
    assert_eq!(other.say("RPUSH l x"), ":1");
    // All kinds of changes, also those that nobody asked for.
    for (read, change) in [
        ("LRANGE l 0 -1", "RPUSH l y"),
        ("LLEN l", "RENAME l m"),
        ("EXISTS l", "RPUSH l z"),
        ("TTL l", "EXPIRE l 100"),
        ("LINDEX l 0", "LPOP l"),
        ("TYPE l", "XADD l MAXLEN 1 1-1 f v"),
        ("XLEN l", "XADD l MAXLEN 1 1-2 f v"),
        ("XRANGE l - +", "PEXPIRE l 100000"),
        ("GET a", "FLUSHDB"),
        ("GET a", "FLUSHALL"),
    ] {
        client.say(read);
        other.say(change);
        let expected = if change.starts_with("FLUSH") { "(invalidate nil)" } else { "(invalidate [l])" };
        assert_eq!(client.reply(), expected, "{change}");
    }
    assert_eq!(client.say("CLIENT TRACKING OFF"), "OK");
    assert_eq!([client.say("GET a"), other.say("SET a 7"), client.say("PING")], ["nil", "OK", "PONG"]);
    assert!(other.say("INFO").contains("tracking_clients:0\\r\\n"));
}

#[test]
fn a_key_that_expires_is_told() {
    // Where the machine stalls, the key is gone before the client has read it.
    let is_told = [2_000, 8_000, 32_000].into_iter().any(|millis| {
        let server = server();
        let (mut client, mut other) = (third(&server), server.client());
        assert_eq!(client.say("CLIENT TRACKING ON"), "OK");
        assert_eq!(other.say(&format!("SET a 1 PX {millis}")), "OK");
        if client.say("GET a") != "1" {
            return false;
        }
        assert_eq!(client.reply(), "(invalidate [a])");
        assert_eq!(client.say("GET a"), "nil");
        true
    });
    assert!(is_told, "the key was gone each time");
}

#[test]
fn clients_choose_what_they_keep() {
    let server = server();
    let (mut client, mut other) = (third(&server), server.client());
    assert_eq!(client.say("CLIENT TRACKINGINFO"), "{flags [off] redirect :-1 prefixes []}");
    assert_eq!(client.say("CLIENT GETREDIR"), ":-1");
    assert!(client.say("CLIENT CACHING YES").starts_with("-ERR CLIENT CACHING can be called only when"));
    assert_eq!(client.say("CLIENT TRACKING ON OPTIN"), "OK");
    assert!(client.say("CLIENT TRACKING ON OPTOUT").starts_with("-ERR You can't switch OPTIN/OPTOUT mode"));
    assert!(client.say("CLIENT TRACKING ON BCAST").starts_with("-ERR You can't switch BCAST mode on/off"));
    assert_eq!([client.say("GET a"), client.say("CLIENT CACHING YES")], ["nil", "OK"]);
    assert_eq!(client.say("CLIENT TRACKINGINFO"), "{flags [on optin caching-yes] redirect :0 prefixes []}");
    assert_eq!([client.say("GET b"), client.say("GET c")], ["nil", "nil"]);
    assert_eq!(client.say("CLIENT CACHING YES"), "OK");
    for request in ["MULTI", "GET d", "GET e"] {
        client.say(request);
    }
    assert_eq!([client.say("EXEC"), client.say("GET f")], ["[nil nil]", "nil"]);
    assert_eq!(other.say("MSET f 1 e 1 d 1 c 1 b 1 a 1"), "OK");
    let told = [(); 3].map(|()| client.reply());
    assert_eq!(told, ["(invalidate [e])", "(invalidate [d])", "(invalidate [b])"]);
    assert_eq!(client.say("CLIENT TRACKING OFF"), "OK");
    assert_eq!([client.say("CLIENT TRACKING ON OPTOUT"), client.say("CLIENT CACHING NO")], ["OK"; 2]);
    assert_eq!([client.say("GET a"), client.say("GET b")], ["1"; 2]);
    assert_eq!(other.say("MSET a 2 b 2"), "OK");
    assert_eq!(client.reply(), "(invalidate [b])");
    assert_eq!(
        [client.say("RESET"), client.say("CLIENT TRACKINGINFO")],
        ["RESET", "[flags [off] redirect :-1 prefixes []]"]
    );
    for (request, error) in [
        ("ON PREFIX a", "PREFIX option requires BCAST mode to be enabled"),
        ("ON BCAST OPTIN", "OPTIN and OPTOUT are not compatible with BCAST"),
        ("ON OPTIN OPTOUT", "You can't specify both OPTIN mode and OPTOUT mode"),
        ("ON FOO", "syntax error"),
        ("X", "syntax error"),
        ("ON REDIRECT 999", "The client ID you want redirect to does not exist"),
        ("ON REDIRECT x", "value is not an integer or out of range"),
    ] {
        assert_eq!(client.say(&format!("CLIENT TRACKING {request}")), format!("-ERR {error}"));
    }
}

#[test]
fn prefixes_are_told_of_all_changes() {
    let server = server();
    let (mut client, mut other) = (third(&server), server.client());
    assert_eq!(client.say("CLIENT TRACKING ON BCAST PREFIX foo PREFIX bar"), "OK");
    let overlaps = "-ERR Prefix 'foobar' overlaps with an existing prefix 'foo'. Prefixes for a single client must not overlap.";
    assert_eq!(client.say("CLIENT TRACKING ON BCAST PREFIX foobar"), overlaps);
    assert_eq!(client.say("CLIENT TRACKINGINFO"), "{flags [on bcast] redirect :0 prefixes [bar foo]}");
    assert_eq!(other.say("MSET foo1 1 foo2 2 bar 1 other 4"), "OK");
    assert_eq!([client.reply(), client.reply()], ["(invalidate [bar])", "(invalidate [foo1 foo2])"]);
    assert_eq!(says(&mut client, "SET foo3 1", 2), ["OK", "(invalidate [foo3])"]);
    assert!(client.say("CLIENT INFO").contains(" flags=tB "));
    // The prefixes count for the memory of the client.
    assert_eq!(other.say("CONFIG SET client-query-buffer-limit 1000"), "OK");
    assert!(client.say("CLIENT TRACKING ON BCAST PREFIX x PREFIX y").contains("at most 1000 bytes"));
    other.wait_for("tracking_total_prefixes:2");
    drop(client);
    other.wait_for("tracking_total_prefixes:0");
    other.wait_for("tracking_clients:0");
}

#[test]
fn invalidations_go_to_another_client() {
    let server = server();
    let (mut client, mut other) = (third(&server), server.client());
    let mut hears = server.client();
    let id = hears.say("CLIENT ID");
    assert_eq!(client.say(&format!("CLIENT TRACKING ON REDIRECT {}", &id[1..])), "OK");
    assert_eq!([client.say("GET a"), other.say("SET a 1")], ["nil", "OK"]);
    assert_eq!(hears.say("SUBSCRIBE __redis__:invalidate"), "[subscribe __redis__:invalidate :1]");
    assert_eq!([client.say("GET a"), other.say("SET a 2")], ["1", "OK"]);
    assert_eq!(hears.reply(), "[message __redis__:invalidate [a]]");
    assert_eq!(other.say("FLUSHALL"), "OK");
    assert_eq!(hears.reply(), "[message __redis__:invalidate nil]");
    assert_eq!(client.say("CLIENT GETREDIR"), id);
    assert!(client.say("CLIENT INFO").contains(&format!(" redir={} ", &id[1..])));
    assert_eq!(client.say("GET a"), "nil");
    assert_eq!(hears.say("QUIT"), "OK");
    other.wait_for("connected_clients:2");
    assert_eq!(other.say("SET a 3"), "OK");
    assert_eq!(client.reply(), format!("(tracking-redir-broken {id})"));
    assert_eq!(
        client.say("CLIENT TRACKINGINFO"),
        format!("{{flags [on broken_redirect] redirect {id} prefixes []}}")
    );
}

/// The table of keys is bounded: a key that leaves it is told as changed.
#[test]
fn a_client_that_reads_many_keys_hears_of_those_that_leave_the_table() {
    let server = server();
    let (mut client, mut other) = (third(&server), server.client());
    assert_eq!(other.say("CONFIG SET tracking-table-max-keys 10"), "OK");
    assert_eq!(client.say("CLIENT TRACKING ON"), "OK");
    let mut told = 0;
    for n in 0..100 {
        client.send(&encode(&["GET", &format!("k{n:03}")]));
        client.send(&encode(&["PING"]));
        assert_eq!(client.reply(), "nil");
        while client.reply() != "PONG" {
            told += 1;
        }
    }
    assert_eq!(told, 90);
    let info = other.say("INFO stats");
    assert!(info.contains("tracking_total_keys:10\\r\\ntracking_total_items:10\\r\\n"), "{info}");
}
