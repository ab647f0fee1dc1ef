//! Reads with long replies: other clients have their turns before the end, and each reply is of one
//! moment.

use brooklet::Store;

use crate::redis::client::{Client, Server, encode};
use crate::redis::long::{KEYS, has_turn, server};

const LEN: usize = 30_000;

/// Fills a stream `x` with a group `g`, and a list `l` of numbers.
fn fill(client: &mut Client, len: usize, value: &str) {
    for portion in 0..len / 10_000 {
        let numbers = portion * 10_000 + 1..(portion + 1) * 10_000 + 1;
        let add: Vec<u8> =
            numbers.clone().flat_map(|n| encode(&["XADD", "x", &n.to_string(), "f", value])).collect();
        client.send(&add);
        numbers.clone().for_each(|_| drop(client.reply()));
        let words: Vec<String> = numbers.map(|n| (n * 7_919 % len).to_string()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        client.ask(&[&["RPUSH", "l"][..], &words].concat());
    }
    assert_eq!(client.say("XGROUP CREATE x g 0"), "OK");
}

/// A request for all keys of [`server`].
fn of_all_keys(command: &str) -> String {
    (0..KEYS).fold(command.to_owned(), |request, n| request + &format!(" key:{n:06}"))
}

fn words(reply: &str) -> Vec<&str> {
    reply.trim_start_matches('[').trim_end_matches(']').split(' ').collect()
}

#[test]
fn others_have_turns_while_a_long_reply_is_made() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    fill(&mut client, 3 * LEN, &"v".repeat(80));
    let (mget, exists) = (of_all_keys("MGET"), of_all_keys("EXISTS"));
    for request in [
        &mget,
        &exists,
        "XRANGE x - +",
        "XREVRANGE x + -",
        "XREAD STREAMS x 0",
        "XREADGROUP GROUP g c COUNT 40000 STREAMS x >",
        "SORT l",
        "SORT l BY key:* GET key:* LIMIT 0 10",
        "SORT l BY none GET key:*",
    ] {
        let shown = request.get(..30).unwrap_or(request);
        // A busy machine may keep the other client from its turns.
        assert!((0..10).any(|_| has_turn(&mut client, &mut other, request)), "{shown}");
    }
}

/// A transaction gives no turns: its reply is made at once.
#[test]
fn a_reply_in_portions_is_the_reply_at_once() {
    let server = server();
    let mut client = server.client();
    fill(&mut client, LEN, "v");
    let set: Vec<u8> =
        (0..LEN).flat_map(|n| encode(&["SET", &format!("w:{n}"), &(n % 97).to_string()])).collect();
    client.send(&set);
    (0..LEN).for_each(|_| drop(client.reply()));
    assert_eq!(client.say("HSET h:7 f seven"), ":1");
    for version in ["2", "3"] {
        client.say(&format!("HELLO {version}"));
        for request in [
            "XRANGE x - +",
            "XREVRANGE x 20000 7",
            "XREAD COUNT 20000 STREAMS x x 0 19999",
            "SORT l",
            "SORT l DESC ALPHA",
            "SORT l LIMIT 2047 5000",
            "SORT l BY w:*",
            "SORT l DESC BY w:* GET # GET h:*->f GET none",
            "SORT l DESC BY none GET w:* LIMIT 5 20000",
            &of_all_keys("MGET l key:000000"),
            &of_all_keys("EXISTS l key:000000 none none"),
        ] {
            let told = client.say(request);
            client.say("MULTI");
            client.say(request);
            let shown = request.get(..40).unwrap_or(request);
            assert!(client.say("EXEC") == format!("[{told}]"), "{shown}");
        }
    }
    assert_eq!(client.say("SORT l BY h:*").len(), client.say("SORT l").len());
    assert_eq!(client.say("SET w:5 text"), "OK");
    assert!(client.say("SORT l BY w:*").starts_with("-ERR One or more scores"));
    assert_eq!(client.say("PING"), "PONG");
}

#[test]
fn values_of_many_keys_are_of_one_moment() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    let last = format!("key:{:06}", KEYS - 1);
    client.send(&encode(&of_all_keys("MGET").split(' ').collect::<Vec<_>>()));
    for n in 0..200 {
        assert_eq!(other.say(&format!("MSET key:000000 {n} {last} {n}")), "OK");
    }
    let told = client.reply();
    let all = words(&told);
    assert_eq!((all.len(), all[0]), (KEYS, all[KEYS - 1]));
    // One of these two keys is always there, and the other never.
    assert_eq!(other.say(&format!("RENAME {last} other")), "OK");
    client.send(&encode(&of_all_keys("EXISTS other").split(' ').collect::<Vec<_>>()));
    for _ in 0..100 {
        assert_eq!(other.say(&format!("RENAME other {last}")), "OK");
        assert_eq!(other.say(&format!("RENAME {last} other")), "OK");
    }
    assert_eq!(client.reply(), format!(":{KEYS}"));
    // A key that expires meanwhile, or goes with all keys.
    client.send(&encode(&of_all_keys("EXISTS").split(' ').collect::<Vec<_>>()));
    assert_eq!(other.say("FLUSHALL"), "OK");
    let count = client.reply();
    assert!(count == ":0" || count == format!(":{}", KEYS - 1), "{count}");
}

#[test]
fn a_range_of_a_stream_is_of_one_moment() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let (mut client, mut other) = (server.client(), server.client());
    fill(&mut client, LEN, "v");
    client.send(&encode(&["XRANGE", "x", "-", "+"]));
    assert_eq!(other.say("XDEL x 5 29999"), ":2");
    assert_eq!(other.say("XADD x 70000 f v"), "70000-0");
    assert_eq!(other.say("XTRIM x MAXLEN 10"), format!(":{}", LEN - 11));
    let told = client.reply();
    let ids = told.matches("-0 ").count();
    assert!([LEN, LEN - 2, LEN - 1, 10].contains(&ids), "{ids}");
    assert_eq!(ids == LEN, told.contains("[5-0 ") && !told.contains("[70000-0 "));
    assert_eq!(client.say("XRANGE x - +").matches("-0 ").count(), 10);
}

#[test]
fn a_sort_is_of_one_moment() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let (mut client, mut other) = (server.client(), server.client());
    fill(&mut client, LEN, "v");
    let last = LEN - 1;
    for request in ["SORT l BY none GET v:*", "SORT l DESC GET v:*", "SORT l BY v:* GET # GET v:*"] {
        client.say("DEL v:0");
        client.say(&format!("DEL v:{last}"));
        client.send(&encode(&request.split(' ').collect::<Vec<_>>()));
        for n in 1..200 {
            assert_eq!(other.say(&format!("MSET v:0 {n} v:{last} {n}")), "OK");
        }
        let told = client.reply();
        let found: Vec<&str> = match request.contains('#') {
            true => words(&told).chunks(2).filter(|pair| pair[1] != "nil").map(|pair| pair[1]).collect(),
            false => words(&told).into_iter().filter(|word| *word != "nil").collect(),
        };
        assert!(found.is_empty() || found.len() == 2 && found[0] == found[1], "{request}: {found:?}");
    }
    // The list itself changes, again and again.
    client.send(&encode(&["SORT", "l", "GET", "#", "GET", "v:*"]));
    for n in 1..50 {
        other.send(&[&encode(&["MULTI"])[..], &encode(&["RPUSH", "l", "-1"])].concat());
        other.send(&[&encode(&["SET", "v:-1", &n.to_string()])[..], &encode(&["EXEC"])].concat());
        (0..4).for_each(|_| drop(other.reply()));
    }
    let told = client.reply();
    let all = words(&told);
    let added = all.chunks(2).take_while(|pair| pair[0] == "-1").count();
    assert_eq!(all.len(), 2 * (LEN + added));
    assert!(added == 0 || all[1] == added.to_string(), "{added} {}", all[1]);
}

/// A copy that a client keeps is older than a change that comes during the reply.
#[test]
fn an_invalidation_follows_the_reply_that_is_older() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    fill(&mut client, LEN, "v");
    assert!(client.say("HELLO 3").starts_with('{'));
    for round in 0..3 {
        assert_eq!(client.say("CLIENT TRACKING ON"), "OK");
        client.send(&encode(&["XRANGE", "x", "-", "+"]));
        assert_eq!(other.say(&format!("XADD x {} f v", 70_000 + round)), format!("{}-0", 70_000 + round));
        let first = client.reply();
        assert!(first.starts_with("[[1-0 "), "{}", &first[..40]);
        client.send(&encode(&["CLIENT", "TRACKING", "OFF"]));
        let next = client.reply();
        let is_new = first.contains(&format!("[{}-0 ", 70_000 + round));
        assert_eq!(next, if is_new { "OK" } else { "(invalidate [x])" });
        if !is_new {
            assert_eq!(client.reply(), "OK");
        }
    }
}

/// Messages of many bytes to many clients leave in portions, in one order for all.
#[test]
fn a_message_to_many_leaves_in_portions() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let (mut client, mut other) = (server.client(), server.client());
    let mut subscribers: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.say("SUBSCRIBE c"), "[subscribe c :1]");
    }
    let name = |reply: String| reply.trim_end_matches([']', '-']).replace("[message c ", "");
    let message = |name: &str| name.to_owned() + &"-".repeat(300_000);
    let long = "first".to_owned() + &"-".repeat(1_500_000);
    // A busy machine may keep the other client from its turns.
    let has_turn = |_: &u32| has_turn(&mut client, &mut other, &format!("PUBLISH c {long}"));
    let times = (1..10).find(has_turn).expect("others have turns");
    for subscriber in &mut subscribers {
        (1..times).for_each(|_| assert_eq!(name(subscriber.reply()), "first"));
    }
    client.send(&[encode(&["PUBLISH", "c", &message("a1")]), encode(&["PUBLISH", "c", "a2"])].concat());
    assert_eq!(other.ask(&["PUBLISH", "c", &message("b1")]), ":40");
    // A client that leaves the channel gets the messages before, and no message after that.
    let mut leaving = subscribers.pop().unwrap();
    leaving.send(&encode(&["UNSUBSCRIBE", "c"]));
    let all = std::iter::repeat_with(|| name(leaving.reply()));
    let told: Vec<String> = all.take_while(|told| !told.starts_with("[unsubscribe")).collect();
    assert_eq!(told[0], "first");
    assert!(told.contains(&"b1".to_owned()), "{told:?}");
    assert_eq!(leaving.say("PING"), "PONG");
    assert!([":40", ":39"].contains(&&client.reply()[..]));
    assert!([":40", ":39"].contains(&&client.reply()[..]));
    let mut orders = Vec::new();
    for subscriber in &mut subscribers {
        orders.push((0..4).map(|_| name(subscriber.reply())).collect::<Vec<_>>());
        assert_eq!(subscriber.say("PING"), "[pong ]");
    }
    orders.dedup();
    assert_eq!(orders.len(), 1, "{orders:?}");
    let place = |name: &str| orders[0].iter().position(|one| one == name);
    assert!(place("first") == Some(0) && place("a1") < place("a2") && place("b1").is_some());
}
