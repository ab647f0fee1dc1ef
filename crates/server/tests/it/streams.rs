//! Streams over HTTP: created, appended to, read, closed, deleted; and what of them is in the
//! store.

use crate::http_client;

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::MemVolume;
use brooklet::{Retention, SpaceConfig, Store};
use http_client::*;
use tokio::time::Instant;

fn entries(store: &Store, key: &str) -> Vec<String> {
    let entries = store.read(key, ..).unwrap();
    entries.map(|entry| String::from_utf8(entry.unwrap().payload.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn what_is_appended_is_read_and_lies_as_it_is_in_the_store() {
    let server = Server::new().await;
    let made = server.text("a/b", "one ").await;
    assert_eq!(made.header("location"), format!("http://{}/v1/stream/a/b", server.address));
    let appended = server.post("a/b", &TEXT, "two").await;
    assert_eq!((appended.status, appended.text()), (204, ""));
    assert!(appended.next() > made.next());
    let all = server.get("a/b").await;
    assert_eq!((all.status, all.text(), all.next()), (200, "one two", appended.next()));
    assert_eq!((all.header("stream-up-to-date"), all.header("content-type")), ("true", "text/plain"));
    let rest = server.get(&format!("a/b?offset={}", made.next())).await;
    assert_eq!(rest.text(), "two");
    assert_eq!(entries(&server.store, "streams/a/b"), ["one ", "two"]);
    assert_eq!(server.head("a/b").await.next(), appended.next());
    assert_eq!(server.delete("a/b").await.status, 204);
    assert_eq!(server.get("a/b").await.status, 404);
    let left: Vec<_> = server.store.scan("streams/").unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn json_is_taken_apart_and_put_together() {
    let server = Server::new().await;
    server.put("j", &JSON, "[]").await;
    assert_eq!(server.post("j", &JSON, "{\"a\": 1.50}").await.status, 204);
    assert_eq!(server.post("j", &JSON, "[1, [2, 3]]").await.status, 204);
    assert_eq!(server.get("j").await.text(), "[{\"a\": 1.50},1,[2, 3]]");
    assert_eq!(entries(&server.store, "streams/j"), ["{\"a\": 1.50}", "1", "[2, 3]"]);
    let now = server.get("j?offset=now").await;
    assert_eq!((now.text(), now.header("cache-control")), ("[]", "no-store"));
    for bad in ["[]", "{", "[1", "nonsense"] {
        assert_eq!(server.post("j", &JSON, bad).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn long_streams_are_read_in_parts() {
    let config = brooklet_server::http::Config { chunk: 10_000, ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.put("long", &JSON, "").await;
    for batch in 0..30 {
        let messages: Vec<String> = (0..100).map(|i| (batch * 100 + i).to_string()).collect();
        server.post("long", &JSON, format!("[{}]", messages.join(","))).await;
    }
    server.post("long", &[("stream-closed", "true")], "").await;
    let (mut offset, mut numbers, mut parts) = ("-1".to_string(), Vec::new(), 0);
    loop {
        let part = server.get(&format!("long?offset={offset}")).await;
        numbers.extend(serde_json::from_slice::<Vec<u64>>(&part.body).unwrap());
        assert!(part.next() > offset.as_str() || offset == "-1");
        assert_eq!(part.header("stream-up-to-date"), part.header("stream-closed"));
        (offset, parts) = (part.next().into(), parts + 1);
        if part.header("stream-closed") == "true" {
            break;
        }
    }
    assert!(numbers.iter().copied().eq(0..3000) && parts > 1, "{parts} parts");
}

#[tokio::test]
async fn creating_again_makes_sure_that_it_is_the_same() {
    let server = Server::new().await;
    let ttl = [TEXT[0], ("stream-ttl", "60")];
    assert_eq!(server.put("s", &ttl, "x").await.status, 201);
    let again = server.put("s", &ttl, "x").await;
    assert_eq!((again.status, again.next()), (200, server.head("s").await.next()));
    assert_eq!(server.get("s").await.text(), "x");
    for other in [
        &[TEXT[0]][..],
        &[TEXT[0], ("stream-ttl", "61")],
        &[JSON[0], ("stream-ttl", "60")],
        &[TEXT[0], ("stream-ttl", "60"), ("stream-closed", "true")],
    ] {
        assert_eq!(server.put("s", other, "").await.status, 409, "{other:?}");
    }
    assert_eq!(server.head("s").await.header("stream-ttl"), "60");
}

/// In an earlier state a list, as two proxies make it, counted as HTTP without TLS.
#[tokio::test]
async fn a_stream_is_where_the_first_proxy_was_asked() {
    let server = Server::new().await;
    for (name, by, scheme) in [
        ("a", "https", "https"),
        ("b", "https,http", "https"),
        ("c", " HTTPS , http", "https"),
        ("d", "http, https", "http"),
    ] {
        let made = server.put(name, &[TEXT[0], ("x-forwarded-proto", by)], "").await;
        let url = format!("{scheme}://{}/v1/stream/{name}", server.address);
        assert_eq!((made.status, made.header("location")), (201, &url[..]), "{by}");
    }
}

#[tokio::test]
async fn a_closed_stream_takes_no_more() {
    let server = Server::new().await;
    server.text("c", "a").await;
    let closing = server.post("c", &[TEXT[0], ("stream-closed", "true")], "b").await;
    assert_eq!((closing.status, closing.header("stream-closed")), (204, "true"));
    let refused = server.post("c", &TEXT, "c").await;
    assert_eq!((refused.status, refused.header("stream-closed")), (409, "true"));
    assert_eq!(refused.next(), closing.next());
    let odd = [("stream-closed", "true"), ("content-type", "none")];
    assert_eq!(server.post("c", &odd, "").await.status, 204);
    assert_eq!(server.get("c").await.header("stream-closed"), "true");
    assert_eq!(server.get("c").await.text(), "ab");
}

#[tokio::test]
async fn tags_tell_whether_anything_is_new() {
    let server = Server::new().await;
    server.text("t", "a").await;
    let tag = server.get("t").await.header("etag").to_string();
    let known = [("if-none-match", tag.as_str())];
    assert_eq!(server.send("GET", "t", &known, "").await.status, 304);
    server.post("t", &[("stream-closed", "true")], "").await;
    let closed = server.send("GET", "t", &known, "").await;
    assert_eq!((closed.status, closed.header("stream-closed")), (200, "true"));
    server.delete("t").await;
    server.text("t", "a").await;
    assert_eq!(server.send("GET", "t", &known, "").await.status, 200, "another stream of the name");
}

/// In the old state a DELETE that had to find the stream unchanged removed one that had changed.
#[tokio::test]
async fn a_write_with_a_condition_is_refused() {
    let server = Server::new().await;
    server.text("s", "a").await;
    let tag = server.get("s").await.header("etag").to_string();
    server.post("s", &TEXT, "b").await;
    for (method, name, value) in [
        ("DELETE", "if-match", tag.as_str()),
        ("POST", "if-match", "*"),
        ("PUT", "if-none-match", "*"),
        ("DELETE", "if-unmodified-since", "Sat, 29 Oct 1994 19:43:31 GMT"),
    ] {
        let refused = server.send(method, "s", &[TEXT[0], (name, value)], "c").await;
        assert_eq!(refused.status, 400, "{method} {name}: {refused:?}");
    }
    assert_eq!(server.get("s").await.text(), "ab");
}

/// In the old state a reader that came back after its stream was deleted and made again got the
/// middle of the new stream, as if that followed what it had read.
#[tokio::test]
async fn an_offset_of_a_deleted_stream_is_none_of_the_next() {
    let server = Server::new().await;
    server.text("s", "one").await;
    let old = server.post("s", &TEXT, "two").await.next().to_string();
    server.delete("s").await;
    let new = server.text("s", "three").await.next().to_string();
    let later = server.post("s", &TEXT, "four").await.next().to_string();
    server.post("s", &TEXT, "five").await;
    for live in ["", "&live=long-poll", "&live=sse"] {
        let stale = server.get(&format!("s?offset={old}{live}")).await;
        assert_eq!(stale.status, 410, "{live}: {stale:?}");
        assert!(stale.text().contains("-1"), "what to do: {stale:?}");
    }
    let stale = [("stream-forked-from", "/v1/stream/s"), ("stream-fork-offset", old.as_str())];
    assert_eq!(server.put("f", &stale, "").await.status, 409);
    let right = [stale[0], ("stream-fork-offset", later.as_str())];
    assert_eq!(server.put("f", &right, "").await.status, 201);
    assert_eq!(server.put("f", &right, "").await.status, 200);
    assert_eq!(server.put("f", &stale, "").await.status, 409, "it is no fork at this offset");
    assert_eq!(server.get(&format!("s?offset={new}")).await.text(), "fourfive");
    // Offsets of earlier servers name no stream.
    assert_eq!(server.get("s?offset=0000000000000001_0000000000000000").await.text(), "fourfive");
}

#[tokio::test]
async fn writers_numbers_rise() {
    let server = Server::new().await;
    server.text("w", "").await;
    for (seq, status) in [("09", 204), ("10", 204), ("10", 409), ("1", 409), ("a", 204), ("Z", 409)] {
        let reply = server.post("w", &[TEXT[0], ("stream-seq", seq)], seq).await;
        assert_eq!(reply.status, status, "{seq}: {reply:?}");
    }
    assert_eq!(server.get("w").await.text(), "0910a");
}

#[tokio::test]
async fn many_writers_lose_nothing() {
    let server = Arc::new(Server::new().await);
    server.put("m", &JSON, "").await;
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let server = server.clone();
            tokio::spawn(async move {
                for i in 0..25 {
                    let reply = server.post("m", &JSON, (writer * 100 + i).to_string()).await;
                    assert_eq!(reply.status, 204);
                    let last = server.get(&format!("m?offset={}", reply.next())).await;
                    assert_eq!(last.status, 200);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let numbers: Vec<u64> = serde_json::from_slice(&server.get("m").await.body).unwrap();
    assert_eq!(numbers.len(), 200);
    for writer in 0..8 {
        assert!(numbers.iter().filter(|n| **n / 100 == writer).is_sorted());
    }
}

/// What is answered is safe: a power cut at the very moment of the reply leaves it there.
#[tokio::test]
async fn what_is_acknowledged_outlives_a_power_cut() {
    let disk = MemVolume::new(3);
    let server = Server::with(options().create_on(Arc::new(Slow(disk.clone()))).unwrap(), config()).await;
    let check = async |acknowledged: &str, closed: &str| {
        let after = Arc::new(MemVolume::from_image(disk.crash(), 1));
        let after = Server::with(options().open_on(after).unwrap(), config()).await;
        let all = after.get("p").await;
        assert_eq!((all.text(), all.header("stream-closed")), (acknowledged, closed));
        after.stop().await;
    };
    server.text("p", "").await;
    check("", "").await;
    let mut text = String::new();
    for i in 0..20 {
        let seq = i.to_string();
        assert_eq!(server.post("p", &batch("w", "0", &seq), seq.clone()).await.status, 200);
        text.push_str(&seq);
        check(&text, "").await;
        // What is a repetition is safe as well once that is said.
        assert_eq!(server.post("p", &batch("w", "0", &seq), seq.clone()).await.status, 204);
        check(&text, "").await;
    }
    server.post("p", &[("stream-closed", "true")], "").await;
    check(&text, "true").await;
}

/// Method, path, headers, body, and the status of the reply.
type Asked<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'static str, u16);

/// What belongs together is one commit, so that no crash comes between.
#[tokio::test]
async fn a_request_is_one_commit() {
    let server = Server::new().await;
    let all = [("stream-seq", "a"), ("stream-closed", "true"), ("stream-ttl", "60")];
    let made = [JSON[0], all[2]];
    let closing = [batch("p", "0", "1").to_vec(), all[..2].to_vec()].concat();
    let fork = [TEXT[0], ("stream-forked-from", "/v1/stream/s")];
    let requests: [Asked<'_>; 9] = [
        ("PUT", "j", &made, "[1,2]", 201),
        ("POST", "j", &JSON, "[3,4]", 204),
        ("PUT", "s", &TEXT, "x", 201),
        ("POST", "s", &batch("p", "0", "0"), "y", 200),
        ("POST", "s", &closing, "z", 200),
        ("PUT", "f", &fork, "x", 201),
        ("DELETE", "s", &[], "", 204),
        ("DELETE", "f", &[], "", 204),
        ("DELETE", "j", &[], "", 204),
    ];
    for (method, path, headers, body, status) in requests {
        let before = server.store.activity().commits;
        let reply = server.send(method, path, headers, body).await;
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        assert_eq!(server.store.activity().commits, before + 1, "{method} {path}");
    }
    assert!(server.store.scan("").unwrap().next().is_none());
}

/// Two servers over one store, which know nothing of each other: what they believe is checked as
/// they write.
#[tokio::test]
async fn nothing_is_written_on_what_is_out_of_date() {
    let one = Server::new().await;
    let other = Server::with(one.store.clone(), config()).await;
    assert_eq!(other.head("s").await.status, 404);
    one.text("s", "").await;
    assert_eq!(other.put("s", &TEXT, "").await.status, 200);
    assert_eq!(one.post("s", &batch("p", "0", "0"), "a").await.status, 200);
    assert_eq!(other.post("s", &batch("q", "0", "0"), "b").await.status, 200);
    assert_eq!(other.post("s", &batch("p", "0", "1"), "c").await.status, 200);
    let again = one.post("s", &batch("p", "0", "1"), "c").await;
    assert_eq!((again.status, again.header("producer-seq")), (204, "1"));
    assert_eq!(one.post("s", &[("stream-closed", "true")], "").await.status, 204);
    assert_eq!(other.post("s", &TEXT, "e").await.status, 409);
    assert_eq!(other.get("s").await.text(), "abc");
    assert_eq!(one.delete("s").await.status, 204);
    assert_eq!(other.delete("s").await.status, 404);
}

#[tokio::test]
async fn what_is_in_memory_is_bounded_and_looked_up_anew() {
    let config = brooklet_server::http::Config { cached: 1, ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    for round in 0..2 {
        for i in 0..300 {
            let path = format!("many/{i}");
            if round == 0 {
                server.text(&path, "a").await;
            }
            let reply = server.post(&path, &batch("p", "0", &round.to_string()), "b").await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
    }
    assert_eq!(server.get("many/7").await.text(), "abb");
    assert_eq!(server.post("many/7", &batch("p", "0", "1"), "b").await.status, 204);
}

#[tokio::test]
async fn notes_of_a_stream_do_not_pile_up() {
    let server = Server::new().await;
    server.text("n", "").await;
    for i in 0..200 {
        assert_eq!(server.post("n", &batch("p", "0", &i.to_string()), "x").await.status, 200);
    }
    let notes = server.store.bounds("streams/__ds/about/n").unwrap();
    assert!(notes.len() < 70, "{notes:?}");
    let store = server.stop().await;
    let server = Server::with(store, config()).await;
    assert_eq!(server.post("n", &batch("p", "0", "199"), "x").await.header("producer-seq"), "199");
}

#[tokio::test]
async fn what_a_space_lets_go_leaves_streams_whole() {
    for age in [4, 16, 64].map(Duration::from_secs) {
        if lets_go(age).await {
            return;
        }
    }
    panic!("the machine was too slow each time");
}

/// Writes to a stream whose entries go after a time, and reads it. Returns whether the machine was
/// fast enough for that: only then is it known what is there.
async fn lets_go(age: Duration) -> bool {
    let store = options().create_on(volume()).unwrap();
    let retention = Retention::new().bytes(40).age(age);
    store.create_space("streams", SpaceConfig::new().retention(retention)).unwrap();
    let server = Server::with(store, config()).await;
    let begin = Instant::now();
    server.text("r", "0123456789").await;
    for _ in 0..9 {
        server.post("r", &TEXT, "0123456789").await;
    }
    let all = server.get("r").await;
    if begin.elapsed() >= age {
        return false;
    }
    assert_eq!((all.status, all.text().len()), (200, 40), "from the beginning of what is kept");
    for live in ["", "&live=sse", "&live=long-poll"] {
        assert_eq!(server.get(&format!("r?offset={ZERO}{live}")).await.status, 410, "{live}");
    }
    tokio::time::sleep(age + Duration::from_millis(500)).await;
    let store = server.stop().await;
    let server = Server::with(store, config()).await;
    assert_eq!(server.head("r").await.status, 200, "what is known of it stays");
    let begin = Instant::now();
    assert_eq!(server.post("r", &TEXT, "new").await.status, 204);
    let new = server.get("r").await;
    if begin.elapsed() >= age {
        return false;
    }
    assert_eq!(new.text(), "new");
    true
}

/// In an earlier state the reply was that nothing has changed, and a browser went on to show
/// messages that the stream no longer has.
#[tokio::test]
async fn a_tag_is_one_of_the_messages_that_are_there() {
    let server = Server::new().await;
    server.text("s", "one ").await;
    server.post("s", &TEXT, "two").await;
    let all = server.get("s").await;
    assert_eq!(all.text(), "one two");
    for (before, status, text) in [(0, 304, ""), (1, 200, "two"), (2, 200, "")] {
        // As a retention does.
        server.store.trim("streams/s", before).unwrap().wait().unwrap();
        let rest = server.send("GET", "s", &[("if-none-match", all.header("etag"))], "").await;
        assert_eq!((rest.status, rest.text()), (status, text), "before {before}");
        let again = server.send("GET", "s", &[("if-none-match", rest.header("etag"))], "").await;
        assert_eq!((again.status, again.header("etag")), (304, rest.header("etag")));
    }
}

#[tokio::test]
async fn a_log_that_is_no_stream_is_left_alone() {
    let server = Server::new().await;
    server.store.append("streams/own", "precious").unwrap().wait().unwrap();
    assert_eq!(server.get("own").await.status, 404);
    assert_eq!(server.put("own", &TEXT, "").await.status, 409);
    assert_eq!(server.delete("own").await.status, 404);
    assert_eq!(entries(&server.store, "streams/own"), ["precious"]);
}
