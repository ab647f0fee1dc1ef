//! Forks, and how streams end: deleted, kept for their forks, expired.

use crate::http_client;

use std::time::Duration;

use http_client::*;
use tokio::time::Instant;

/// Forks a stream at its end.
async fn fork(server: &Server, name: &str, from: &str) {
    let path = format!("/v1/stream/{from}");
    let reply = server.put(name, &[("stream-forked-from", &path)], "").await;
    assert_eq!(reply.status, 201, "{reply:?}");
}

#[tokio::test]
async fn a_fork_goes_on_from_its_source() {
    let server = Server::new().await;
    let made = server.text("src", "ab").await;
    server.post("src", &TEXT, "cd").await;
    let at = [("stream-forked-from", "/v1/stream/src"), ("stream-fork-offset", made.next())];
    assert_eq!(server.put("one", &at, "X").await.status, 201);
    server.post("one", &TEXT, "Y").await;
    server.post("src", &TEXT, "ef").await;
    assert_eq!(server.get("one").await.text(), "abXY");
    assert_eq!(server.get("src").await.text(), "abcdef");
    let rest = server.get(&format!("one?offset={}", made.next())).await;
    assert_eq!(rest.text(), "XY");
    // A part of a message, and a fork of that.
    let within = [at[0], at[1], ("stream-fork-sub-offset", "1")];
    assert_eq!(server.put("two", &within, "Z").await.status, 201);
    assert_eq!(server.put("two", &within, "Z").await.status, 200);
    assert_eq!(server.put("two", &at, "Z").await.status, 409);
    assert_eq!(server.get("two").await.text(), "abcZ");
    fork(&server, "three", "two").await;
    server.post("three", &TEXT, "!").await;
    assert_eq!(server.get("three").await.text(), "abcZ!");
    // What is its own is all that a fork holds.
    assert_eq!(server.store.bounds("streams/three").unwrap().len(), 1);
    let beyond = [at[0], ("stream-fork-offset", "0000000000000009_0000000000000000")];
    assert_eq!(server.put("four", &beyond, "").await.status, 400);
    assert_eq!(server.put("src2", &[("stream-forked-from", "/v1/stream/none")], "").await.status, 404);
    assert_eq!(server.put("self", &[("stream-forked-from", "/v1/stream/self")], "").await.status, 404);
    assert_eq!(server.put("far", &[("stream-forked-from", "/elsewhere/src")], "").await.status, 400);
}

/// In the old state an offset behind the place where a fork begins was taken by the other stream,
/// too, which has other messages there.
#[tokio::test]
async fn a_fork_takes_offsets_of_its_sources_up_to_where_it_begins() {
    let server = Server::new().await;
    let mut offsets = vec![server.text("a", "1").await.next().to_string()];
    offsets.push(server.post("a", &TEXT, "2").await.next().to_string());
    fork(&server, "b", "a").await;
    offsets.push(server.post("a", &TEXT, "3").await.next().to_string());
    let of_fork = server.post("b", &TEXT, "x").await.next().to_string();
    fork(&server, "c", "b").await;
    let read = async |name: &str, offset: &str| {
        let reply = server.get(&format!("{name}?offset={offset}")).await;
        (reply.status, if reply.status == 200 { reply.text().to_string() } else { String::new() })
    };
    for name in ["b", "c"] {
        assert_eq!(read(name, &offsets[0]).await, (200, "2x".into()), "{name}");
        assert_eq!(read(name, &offsets[1]).await, (200, "x".into()), "{name}");
        assert_eq!(read(name, &offsets[2]).await, (410, String::new()), "{name}");
        assert_eq!(read(name, &of_fork).await, (200, String::new()), "{name}");
    }
    assert_eq!(read("a", &of_fork).await, (410, String::new()));
    let at = |offset| [("stream-forked-from", "/v1/stream/c"), ("stream-fork-offset", offset)];
    assert_eq!(server.put("d", &at(offsets[0].as_str()), "").await.status, 201);
    assert_eq!(server.get("d").await.text(), "1");
    assert_eq!(server.put("e", &at(offsets[2].as_str()), "").await.status, 409);
}

#[tokio::test]
async fn a_fork_of_json_counts_messages() {
    let server = Server::new().await;
    server.put("src", &JSON, "[1,2,3,4]").await;
    let path = ("stream-forked-from", "/v1/stream/src");
    let at = |sub| [path, ("stream-fork-offset", ZERO), ("stream-fork-sub-offset", sub)];
    assert_eq!(server.put("f", &at("3"), "[9]").await.status, 201);
    assert_eq!(server.get("f").await.text(), "[1,2,3,9]");
    assert_eq!(server.put("g", &at("5"), "").await.status, 400);
}

#[tokio::test]
async fn a_source_is_kept_for_its_forks_and_goes_with_the_last() {
    let server = Server::new().await;
    server.text("a", "a").await;
    fork(&server, "b", "a").await;
    server.post("b", &TEXT, "b").await;
    fork(&server, "c", "b").await;
    fork(&server, "d", "b").await;
    for gone in ["a", "b"] {
        assert_eq!(server.delete(gone).await.status, 204);
        for method in ["GET", "HEAD", "DELETE"] {
            assert_eq!(server.send(method, gone, &[], "").await.status, 410, "{method} {gone}");
        }
        assert_eq!(server.post(gone, &TEXT, "x").await.status, 410);
        assert_eq!(server.put(gone, &TEXT, "").await.status, 409);
    }
    // All of that is in the store.
    let store = server.stop().await;
    let server = Server::with(store, config()).await;
    assert_eq!(server.head("a").await.status, 410);
    assert_eq!(server.get("c").await.text(), "ab");
    let path = [("stream-forked-from", "/v1/stream/b")];
    assert_eq!(server.put("e", &path, "").await.status, 409);
    assert_eq!(server.delete("c").await.status, 204);
    assert_eq!(server.head("b").await.status, 410);
    assert_eq!(server.get("d").await.text(), "ab");
    assert_eq!(server.delete("d").await.status, 204);
    assert_eq!(server.head("a").await.status, 404);
    assert_eq!(server.head("b").await.status, 404);
    let left: Vec<_> = server.store.scan("").unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn forks_of_forks_have_an_end() {
    let server = Server::new().await;
    server.text("f0", "x").await;
    for i in 1..=64 {
        fork(&server, &format!("f{i}"), &format!("f{}", i - 1)).await;
    }
    assert_eq!(server.get("f64").await.text(), "x");
    let reply = server.put("f65", &[("stream-forked-from", "/v1/stream/f64")], "").await;
    assert_eq!(reply.status, 400, "{reply:?}");
    for i in 0..64 {
        server.delete(&format!("f{i}")).await;
    }
    assert_eq!(server.delete("f64").await.status, 204);
    assert!(server.store.scan("").unwrap().next().is_none(), "the last takes all along");
}

#[tokio::test]
async fn forks_live_as_they_are_told_or_as_their_source() {
    let server = Server::new().await;
    server.put("src", &[TEXT[0], ("stream-ttl", "60")], "").await;
    let from = ("stream-forked-from", "/v1/stream/src");
    server.put("own", &[from, ("stream-ttl", "5")], "").await;
    server.put("same", &[from], "").await;
    server.put("fixed", &[from, ("stream-expires-at", "2999-01-01T01:00:00+01:00")], "").await;
    assert_eq!(server.head("own").await.header("stream-ttl"), "5");
    assert_eq!(server.head("same").await.header("stream-ttl"), "60");
    let fixed = server.head("fixed").await;
    assert_eq!(fixed.header("stream-expires-at"), "2999-01-01T00:00:00.000Z");
    assert_eq!(fixed.header("stream-ttl"), "");
}

#[tokio::test]
async fn an_idle_stream_expires_and_its_room_is_given_back() {
    let server = Server::new().await;
    let mut used = Instant::now();
    server.put("idle", &[TEXT[0], ("stream-ttl", "3")], "x").await;
    server.put("used", &[TEXT[0], ("stream-ttl", "3")], "x").await;
    server.put("fixed", &[TEXT[0], ("stream-expires-at", "2020-01-01T00:00:00Z")], "x").await;
    assert_eq!(server.head("fixed").await.status, 404);
    for _ in 0..14 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = Instant::now();
        let status = server.get("used").await.status;
        if used.elapsed() < Duration::from_secs(3) {
            assert_eq!(status, 200, "whoever reads keeps it");
        } else {
            // A busy machine read it too late.
            server.put("used", &[TEXT[0], ("stream-ttl", "3")], "x").await;
        }
        used = now;
    }
    for status in [server.head("idle").await.status, server.post("idle", &TEXT, "y").await.status] {
        assert_eq!(status, 404);
    }
    assert!(!server.store.exists("streams/idle").unwrap());
    assert!(!server.store.exists("streams/__ds/about/idle").unwrap());
    assert_eq!(server.put("idle", &JSON, "1").await.status, 201, "its name is free");
}

#[tokio::test]
async fn a_reader_that_waits_keeps_a_stream() {
    let config = brooklet_server::http::Config { long_poll: Duration::from_secs(5), ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.put("w", &[TEXT[0], ("stream-ttl", "3")], "").await;
    let (reply, meanwhile) = tokio::join!(server.get("w?live=long-poll&offset=now"), async {
        tokio::time::sleep(Duration::from_millis(4_000)).await;
        server.head("w").await.status
    });
    assert_eq!((reply.status, meanwhile), (204, 200));
}

/// The use of a stream is noted now and then. Whoever opens the store anew may keep one for longer,
/// and not for less.
#[tokio::test]
async fn use_is_remembered_when_the_server_starts_anew() {
    let (wait, ttl) = (Duration::from_millis(100), Duration::from_secs(4));
    let config = brooklet_server::http::Config { long_poll: wait, events: wait, ..config() };
    // A busy machine may be too late.
    for _ in 0..20 {
        let server = Server::with(options().create_on(volume()).unwrap(), config.clone()).await;
        let made = Instant::now();
        server.put("u", &[TEXT[0], ("stream-ttl", "4")], "x").await;
        tokio::time::sleep(Duration::from_millis(2_600)).await;
        let used = Instant::now();
        let status = server.get("u").await.status;
        if made.elapsed() >= ttl {
            continue;
        }
        assert_eq!(status, 200);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let store = server.stop().await;
        let server = Server::with(store, config.clone()).await;
        // It would be over by now, were only its making noted.
        tokio::time::sleep(Duration::from_millis(1_700)).await;
        let status = server.head("u").await.status;
        if used.elapsed() >= ttl {
            continue;
        }
        assert_eq!(status, 200);
        tokio::time::sleep(Duration::from_millis(5_000)).await;
        assert_eq!(server.head("u").await.status, 404);
        return;
    }
    panic!("the machine was too late each time");
}

/// A source may have lost what its forks never had.
#[tokio::test]
async fn a_fork_keeps_its_own_whatever_its_source_loses() {
    let server = Server::new().await;
    server.text("src", "a").await;
    fork(&server, "f", "src").await;
    server.post("f", &TEXT, "own").await;
    for _ in 0..5 {
        server.post("src", &TEXT, "b").await;
    }
    server.store.trim("streams/src", 5).unwrap().wait().unwrap();
    assert_eq!(server.get("f").await.text(), "own");
    assert_eq!(server.get(&format!("f?offset={ZERO}")).await.status, 410);
}
