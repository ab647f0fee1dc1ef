//! Limits, malformed requests, and stores that take nothing: a refusal says what to do, and reads
//! go on.

use crate::http_client;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use brooklet::Options;
use brooklet::io::{Fault, MemVolume};
use brooklet_server::http::Config;
use http_client::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Method, path, headers and body.
type Asked<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, &'static str);

#[tokio::test]
async fn malformed_requests_are_told_what_is_wrong() {
    let server = Server::new().await;
    server.text("s", "x").await;
    let batch =
        |id, epoch, seq| vec![TEXT[0], ("producer-id", id), ("producer-epoch", epoch), ("producer-seq", seq)];
    let requests: &[Asked<'_>] = &[
        ("GET", "s?offset=", vec![], ""),
        ("GET", "s?offset=1,2", vec![], ""),
        ("GET", "s?offset=-1&offset=-1", vec![], ""),
        ("GET", "s?offset=0000000000000009_0000000000000000", vec![], ""),
        ("GET", "s?live=long-poll", vec![], ""),
        ("GET", "s?live=sse", vec![], ""),
        ("GET", "s?live=shout&offset=-1", vec![], ""),
        ("GET", "a%ff", vec![], ""),
        ("GET", "a%00b", vec![], ""),
        ("GET", "a/%2e%2e/b", vec![], ""),
        ("POST", "s", vec![TEXT[0]], ""),
        ("POST", "s", vec![], "x"),
        ("POST", "s", vec![("content-type", "text")], "x"),
        ("POST", "s", batch("p", "0", "-1"), "x"),
        ("POST", "s", batch("p", "01", "0"), "x"),
        ("POST", "s", batch("p", "0", "9007199254740992"), "x"),
        ("POST", "s", batch("", "0", "0"), "x"),
        ("POST", "s", batch("p", "0", "0")[..3].to_vec(), "x"),
        ("POST", "s", vec![TEXT[0], ("stream-seq", "")], "x"),
        ("PUT", "n", vec![("stream-ttl", "1.5")], ""),
        ("PUT", "n", vec![("stream-ttl", "1"), ("stream-expires-at", "2030-01-01T00:00:00Z")], ""),
        ("PUT", "n", vec![("stream-expires-at", "soon")], ""),
        ("PUT", "n", vec![("stream-fork-offset", ZERO)], ""),
        ("PUT", "n", vec![("stream-forked-from", "/v1/stream/s"), ("stream-fork-offset", "x")], ""),
        ("PUT", "n", vec![JSON[0]], "{"),
    ];
    for (method, path, headers, body) in requests {
        let reply = server.send(method, path, headers, *body).await;
        assert_eq!(reply.status, 400, "{method} {path} {headers:?}: {reply:?}");
        assert!(reply.text().contains(": "), "what to do about {method} {path}: {reply:?}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
    }
    assert_eq!(server.head("n").await.status, 404);
    assert_eq!(server.get("s").await.text(), "x");
    assert_eq!(server.get("__ds/subscriptions/1").await.status, 501);
    let patch = server.send("PATCH", "s", &[], "").await;
    assert_eq!((patch.status, patch.header("allow").is_empty()), (405, false));
    let long = format!("{}?offset=-1", "x".repeat(2000));
    assert_eq!(server.get(&long).await.status, 400);
}

/// In the old state readers got the encoded bytes, as if they were text.
#[tokio::test]
async fn a_body_with_an_encoding_is_refused() {
    let server = Server::new().await;
    let encoded = [TEXT[0], ("content-encoding", "gzip")];
    assert_eq!(server.put("s", &encoded, "x").await.status, 415);
    assert_eq!(server.head("s").await.status, 404);
    server.text("s", "a").await;
    let refused = server.post("s", &encoded, "x").await;
    assert_eq!((refused.status, refused.header("accept-encoding")), (415, "identity"), "{refused:?}");
    assert_eq!(server.post("s", &[TEXT[0], ("content-encoding", "Identity")], "b").await.status, 204);
    assert_eq!(server.get("s").await.text(), "ab");
}

#[tokio::test]
async fn what_is_too_large_is_refused_whole() {
    let config = Config { max_body: 1000, max_messages: 10, ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.text("s", "").await;
    server.put("j", &JSON, "").await;
    assert_eq!(server.post("s", &TEXT, vec![b'x'; 1000]).await.status, 204);
    assert_eq!(server.post("s", &TEXT, vec![b'x'; 1001]).await.status, 413);
    assert_eq!(server.post("j", &JSON, "[1,2,3,4,5,6,7,8,9,10,11]").await.status, 413);
    assert_eq!(server.get("j").await.text(), "[]");
    let server = Server::new().await;
    server.text("s", "").await;
    // More than the store takes as one entry, and more than it takes as one commit.
    assert_eq!(server.post("s", &TEXT, vec![b'x'; 600 << 10]).await.status, 413);
    let many = format!("[{}0]", format!("\"{}\",", "x".repeat(100 << 10)).repeat(60));
    server.put("j", &JSON, "").await;
    assert_eq!(server.post("j", &JSON, many).await.status, 413);
    assert_eq!(server.get("s").await.text(), "");
}

/// What a peer is answered that sends just this.
async fn raw(server: &Server, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    // The server may refuse the request, and end the connection, before it has all of it.
    drop(socket.write_all(request).await);
    let mut reply = Vec::new();
    // A connection that is reset ends as well.
    let _ = tokio::time::timeout(FOREVER, socket.read_to_end(&mut reply)).await.unwrap();
    String::from_utf8_lossy(&reply).into_owned()
}

/// In an earlier state the server asked for the body, and took in all of it, to refuse it.
#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_not_asked_for() {
    let config = Config { patience: Duration::from_secs(2), max_body: 1000, ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.text("s", "").await;
    let begin = "POST /v1/stream/s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: text/plain\r\n";
    let asks = format!("{begin}expect: 100-continue\r\n");
    let refused = raw(&server, format!("{asks}content-length: 1001\r\n\r\n").as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    let document = asks.replace("POST /v1/stream/s", "PUT /v1/documents/d");
    let refused = raw(&server, format!("{document}content-length: 1001\r\n\r\n").as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    let taken = raw(&server, format!("{asks}content-length: 3\r\n\r\nabc").as_bytes()).await;
    assert!(taken.contains("HTTP/1.1 204 "), "{taken}");
    assert_eq!(server.get("s").await.text(), "abc");
}

#[tokio::test]
async fn peers_that_say_too_much_or_nothing_are_let_go() {
    let config = Config { patience: Duration::from_secs(2), max_body: 1000, ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.text("s", "").await;
    let begin = "POST /v1/stream/s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: text/plain\r\n";
    let many: String = (0..100).map(|i| format!("x-{i}: y\r\n")).collect();
    assert!(raw(&server, format!("{begin}{many}\r\n").as_bytes()).await.contains(" 431 "));
    let long = "y".repeat(100_000);
    assert!(raw(&server, format!("{begin}x: {long}\r\n\r\n").as_bytes()).await.contains(" 431 "));
    assert!(raw(&server, b"nonsense\r\n\r\n").await.contains(" 400 "));
    assert_eq!(raw(&server, begin.as_bytes()).await, "", "a head without end");
    let begun = format!("{begin}content-length: 10\r\n\r\nabc");
    assert!(raw(&server, begun.as_bytes()).await.contains(" 408 "), "a body without end");
    let chunk = format!("800\r\n{}\r\n", "x".repeat(0x800));
    let chunked = format!("{begin}transfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    assert!(raw(&server, chunked.as_bytes()).await.contains(" 413 "));
    let chunked = format!("{begin}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert!(raw(&server, chunked.as_bytes()).await.contains(" 204 "));
    assert_eq!(server.get("s").await.text(), "abc");
}

#[tokio::test]
async fn a_full_store_refuses_writes_and_reads_go_on() {
    let disk = MemVolume::new(1);
    let options = Options::new().ring_size(256 << 10).memory_budget(256 << 10).max_payload(32 << 10);
    let store = options.create_on(Arc::new(disk.clone())).unwrap();
    disk.fail(Fault::Full(2 << 20));
    let server = Server::with(store, config()).await;
    server.put("s", &[("content-type", "application/octet-stream")], "").await;
    let bytes = [("content-type", "application/octet-stream")];
    let mut taken = 0;
    let refused = loop {
        let mut rng = brooklet::io::Rng::new(taken);
        let noise: Vec<u8> = (0..8000).map(|_| rng.next() as u8).collect();
        let reply = server.post("s", &bytes, noise).await;
        if reply.status != 204 {
            break reply;
        }
        taken += 1;
        assert!(taken < 10_000, "it is never full");
    };
    assert_eq!(refused.status, 507, "{refused:?}");
    assert!(refused.text().contains("free space"), "{refused:?}");
    let mut offset = "-1".to_string();
    let mut len = 0;
    loop {
        let part = server.get(&format!("s?offset={offset}")).await;
        assert_eq!(part.status, 200);
        len += part.body.len();
        offset = part.next().into();
        if part.header("stream-up-to-date") == "true" {
            break;
        }
    }
    assert_eq!(len as u64, taken * 8000);
    disk.fail(Fault::Full(u64::MAX));
    server.delete("s").await;
    assert_eq!(server.put("t", &TEXT, "goes on").await.status, 201);
    assert_eq!(server.get("t").await.text(), "goes on");
}

#[tokio::test]
async fn a_stopped_store_refuses_writes_and_reads_go_on() {
    let disk = MemVolume::new(1);
    let server = Server::with(options().create_on(Arc::new(disk.clone())).unwrap(), config()).await;
    server.text("s", "safe").await;
    server.put("short", &[TEXT[0], ("stream-ttl", "1")], "x").await;
    disk.fail(Fault::ErrorAfter { operations: 0, kind: io::ErrorKind::Other, sticky: true });
    for _ in 0..3 {
        let refused = server.post("s", &TEXT, "lost").await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert_eq!(server.put("t", &TEXT, "").await.status, 503);
    }
    assert_eq!(server.get("s").await.text(), "safe");
    assert_eq!(server.head("s").await.status, 200);
    assert_eq!(server.get("s?live=long-poll&offset=now").await.status, 204);
    // What has expired is not there, though it cannot be removed.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(server.get("short").await.status, 404);
    assert_eq!(server.put("short", &TEXT, "").await.status, 503);
}

/// Peers that announce large bodies and send them slowly hold what they have sent, and no more.
#[tokio::test]
async fn slow_bodies_hold_up_no_others() {
    let config = Config { body_budget: 1 << 20, max_body: 256 << 10, patience: FOREVER, ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.text("s", "").await;
    let begin = "POST /v1/stream/s HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n";
    let mut slow = Vec::new();
    for n in 0..200 {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let body = if n % 2 == 0 {
            "transfer-encoding: chunked\r\n\r\n1\r\na\r\n"
        } else {
            "content-length: 200000\r\n\r\na"
        };
        socket.write_all(format!("{begin}{body}").as_bytes()).await.unwrap();
        slow.push(socket);
    }
    let posted = tokio::time::timeout(FOREVER / 2, server.post("s", &TEXT, vec![b'x'; 200_000])).await;
    assert_eq!(posted.unwrap().status, 204);
    // Those who have sent as much as there is memory hold it until they go; others are told.
    for socket in &mut slow {
        socket.write_all(&[b'1'; 8]).await.unwrap();
    }
    let mut large = Vec::new();
    for _ in 0..6 {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let head = format!("{begin}content-length: 250000\r\n\r\n");
        socket.write_all(&[head.as_bytes(), &[b'x'; 240_000]].concat()).await.unwrap();
        large.push(socket);
    }
    let mut refused = server.post("s", &TEXT, vec![b'x'; 200_000]).await;
    for _ in 0..600 {
        if refused.status == 503 {
            break;
        }
        // It has not read the others yet.
        tokio::time::sleep(Duration::from_millis(100)).await;
        refused = server.post("s", &TEXT, vec![b'x'; 200_000]).await;
    }
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{refused:?}");
    drop((slow, large));
    let mut again = 503;
    for _ in 0..600 {
        again = server.post("s", &TEXT, vec![b'x'; 200_000]).await.status;
        if again == 204 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(again, 204);
}

/// Readers that take nothing hold what they asked for, within a budget.
#[tokio::test]
async fn replies_that_nobody_takes_have_a_budget() {
    let config = Config { reply_budget: 24 << 20, chunk: 8 << 20, patience: FOREVER, ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.text("s", "").await;
    for _ in 0..24 {
        assert_eq!(server.post("s", &TEXT, vec![b'x'; 500_000]).await.status, 204);
    }
    let mut stalled = Vec::new();
    for _ in 0..12 {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(b"GET /v1/stream/s HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        stalled.push(socket);
    }
    gets(&server, 503).await;
    drop(stalled);
    gets(&server, 200).await;
}

/// Waits until a read ends so: a busy server reads requests, and sees clients go, a little later.
async fn gets(server: &Server, status: u16) {
    let mut told = 0;
    for _ in 0..600 {
        told = server.get("s").await.status;
        if told == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{told} and not {status}");
}

/// A message that is much longer than a chunk counts as it is, and so does its text.
#[tokio::test]
async fn long_messages_that_nobody_takes_count_as_they_are() {
    let store = Options::new().ring_size(64 << 20).create_on(volume()).unwrap();
    let config = Config { reply_budget: 16 << 20, chunk: 64 << 10, patience: FOREVER, ..config() };
    let server = Server::with(store, config).await;
    let bytes = ("content-type", "application/octet-stream");
    server.put("s", &[bytes], "").await;
    assert_eq!(server.post("s", &[bytes], vec![0; 8_000_000]).await.status, 204);
    for (path, most) in [("s", 2), ("s?offset=-1&live=sse", 1)] {
        gets(&server, 200).await;
        let mut stalled = Vec::new();
        for _ in 0..most {
            let mut socket = TcpStream::connect(server.address).await.unwrap();
            let request = format!("GET /v1/stream/{path} HTTP/1.1\r\nhost: x\r\n\r\n");
            socket.write_all(request.as_bytes()).await.unwrap();
            let mut begin = [0; 1000];
            socket.read_exact(&mut begin).await.unwrap();
            stalled.push(socket);
        }
        if path == "s" {
            assert_eq!(server.get("s").await.status, 503);
        } else {
            // Two thirds of the budget are text: another does not fit.
            let mut socket = TcpStream::connect(server.address).await.unwrap();
            let request = format!("GET /v1/stream/{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            socket.write_all(request.as_bytes()).await.unwrap();
            let mut reply = Vec::new();
            tokio::time::timeout(FOREVER, socket.read_to_end(&mut reply)).await.unwrap().unwrap();
            assert!(reply.len() < 1000, "{} bytes", reply.len());
        }
        drop(stalled);
    }
}
