//! Readers that wait: long polls and events, and how they end.

use crate::http_client;

use std::sync::Arc;
use std::time::Duration;

use brooklet_server::http::Config;
use http_client::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A server whose readers wait for as long as it takes.
async fn patient() -> Arc<Server> {
    let config = Config { long_poll: FOREVER, events: FOREVER, ..Config::default() };
    Arc::new(Server::with(options().create_on(volume()).unwrap(), config).await)
}

/// Does something, again and again, until a reader that waits meanwhile is done.
async fn until<T>(reader: impl Future<Output = T>, mut act: impl AsyncFnMut()) -> T {
    let act = async {
        loop {
            tokio::time::sleep(Duration::from_millis(30)).await;
            act().await;
        }
    };
    tokio::select! {
        read = reader => read,
        () = act => unreachable!(),
    }
}

#[tokio::test]
async fn a_long_poll_gives_what_comes() {
    let server = patient().await;
    let end = server.text("l", "old").await.next().to_string();
    let path = format!("l?live=long-poll&offset={end}");
    let mut writes = 0;
    let reply = until(server.get(&path), async || {
        writes += 1;
        server.post("l", &TEXT, "new").await;
    });
    let reply = reply.await;
    assert!(writes > 0 && reply.text().starts_with("new"), "{reply:?}");
    assert!(!reply.header("stream-cursor").is_empty());
    let now = until(server.get("l?live=long-poll&offset=now"), async || {
        server.post("l", &[("stream-closed", "true")], "").await;
    });
    let now = now.await;
    assert_eq!((now.status, now.header("stream-closed"), now.text()), (204, "true", ""));
}

#[tokio::test]
async fn a_long_poll_ends_in_time_or_with_its_stream() {
    let server = Server::new().await;
    let end = server.text("l", "").await.next().to_string();
    let timed_out = server.get(&format!("l?live=long-poll&offset={end}")).await;
    assert_eq!((timed_out.status, timed_out.next()), (204, end.as_str()));
    assert_eq!(timed_out.header("stream-up-to-date"), "true");
    let server = patient().await;
    server.text("l", "").await;
    let reply = until(server.get("l?live=long-poll&offset=now"), async || {
        server.delete("l").await;
    });
    assert_eq!(reply.await.status, 404);
}

/// Readers of a stream that expires at a time end then, and not when their own time is over.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "streams expire by the real clock")]
async fn live_reads_end_when_their_stream_expires() {
    let server = patient().await;
    let at = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now() + Duration::from_secs(2));
    let at = at.to_rfc3339();
    let headers = [("content-type", "text/plain"), ("stream-expires-at", &*at)];
    assert_eq!(server.put("a", &headers, "").await.status, 201);
    let reads = async {
        tokio::join!(server.get("a?live=long-poll&offset=now"), server.get("a?live=sse&offset=now"))
    };
    let reads = tokio::time::timeout(FOREVER / 2, reads).await;
    let (poll, events) = reads.expect("they wait for a stream that is over");
    assert_eq!((poll.status, events.status, server.get("a").await.status), (404, 200, 404));
}

#[tokio::test]
async fn events_tell_what_is_there_and_what_comes() {
    let server = patient().await;
    server.put("e", &JSON, "[1,2]").await;
    let response = server.open("GET", "e?live=sse&offset=-1", &[], "").await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert!(!response.headers().contains_key("stream-sse-data-encoding"));
    let mut body = response.into_body();
    let first = events(&mut body, "\"upToDate\":true}\n\n").await;
    assert!(
        first.starts_with("event: data\ndata:[1,2]\n\nevent: control\ndata:{\"streamNextOffset\":"),
        "{first}"
    );
    server.post("e", &JSON, "3").await;
    let second = events(&mut body, "upToDate").await;
    assert!(second.starts_with("event: data\ndata:[3]\n\n"), "{second}");
    server.post("e", &[JSON[0], ("stream-closed", "true")], "4").await;
    let last = events(&mut body, "the end").await;
    assert!(last.contains("data:[4]") && last.contains("\"streamClosed\":true"), "{last}");
    assert!(!last.contains("streamCursor"), "{last}");
}

#[tokio::test]
async fn events_of_bytes_are_encoded() {
    let server = patient().await;
    let bytes = [("content-type", "application/octet-stream")];
    server.put("b", &bytes, &[0u8, 255, 10, 13][..]).await;
    let response = server.open("GET", "b?live=sse&offset=-1", &[], "").await.unwrap();
    assert_eq!(response.headers()["stream-sse-data-encoding"], "base64");
    let text = events(&mut response.into_body(), "control").await;
    assert!(text.contains("data:AP8KDQ==\n"), "{text}");
}

#[tokio::test]
async fn all_who_wait_are_woken() {
    let server = patient().await;
    server.text("w", "").await;
    let readers: Vec<_> = (0..100)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { server.get("w?live=long-poll&offset=now").await.status })
        })
        .collect();
    let all = async {
        for reader in readers {
            assert_eq!(reader.await.unwrap(), 204);
        }
    };
    until(all, async || {
        server.post("w", &[("stream-closed", "true")], "").await;
    })
    .await;
}

/// Whoever wrote has gone before the reply; those who wait hear of it all the same.
#[tokio::test]
async fn a_writer_that_breaks_off_leaves_no_reader_behind() {
    let server = patient().await;
    server.text("g", "").await;
    let reader = server.get("g?live=long-poll&offset=now");
    let reply = until(reader, async || {
        let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let request =
            "POST /v1/stream/g HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\nx";
        socket.write_all(request.as_bytes()).await.unwrap();
    });
    assert!(reply.await.text().starts_with('x'));
}

#[tokio::test]
async fn a_stop_lets_readers_go_politely() {
    for wait in [1, 5, 25].map(Duration::from_secs) {
        if lets_go(wait).await {
            return;
        }
    }
    panic!("the stop came before a reader waited, each time");
}

/// Stops a server after a time. Returns whether a poll waited then.
async fn lets_go(wait: Duration) -> bool {
    let server = patient().await;
    server.text("s", "x").await;
    let waiting = server.clone();
    let poll = tokio::spawn(async move {
        let reply = waiting.open("GET", "s?live=long-poll&offset=now", &[], "").await;
        reply.map(|reply| reply.status().as_u16())
    });
    let mut body = server.open("GET", "s?live=sse&offset=-1", &[], "").await.unwrap().into_body();
    let told = events(&mut body, "upToDate").await;
    assert!(told.contains("data:x"), "{told}");
    tokio::time::sleep(wait).await;
    server.stop.cancel();
    // Where the machine stalls, the server has not read the request.
    let Ok(Ok(status)) = tokio::time::timeout(FOREVER, poll).await.unwrap() else { return false };
    assert_eq!(status, 204);
    assert_eq!(events(&mut body, "never").await, "", "the connection ends, and does not break");
    drop(body);
    Arc::into_inner(server).unwrap().stop().await.close().unwrap();
    true
}

#[tokio::test]
async fn more_readers_than_may_wait_are_told_to_come_back() {
    let config = Config { max_waiting: 1, long_poll: FOREVER, ..Config::default() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.text("q", "").await;
    let held = server.open("GET", "q?live=sse&offset=now", &[], "").await.unwrap();
    let refused = server.get("q?live=long-poll&offset=now").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
    assert_eq!(server.get("q").await.status, 200, "who does not wait is served");
    drop(held);
    freed(&server, "q").await;
}

/// Waits until there is a place for a reader of events again.
async fn freed(server: &Server, stream: &str) {
    let path = format!("{stream}?live=sse&offset=now");
    let freed = async {
        while server.open("GET", &path, &[], "").await.unwrap().status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(FOREVER, freed).await.unwrap();
}

/// A reader that takes nothing in is given up, and so is what it holds.
#[tokio::test]
async fn a_reader_that_stalls_is_given_up() {
    let config =
        Config { patience: Duration::from_millis(300), max_waiting: 1, events: FOREVER, ..Config::default() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.put("slow", &TEXT, "").await;
    for _ in 0..40 {
        server.post("slow", &TEXT, vec![b'x'; 500 << 10]).await;
    }
    let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    socket.write_all(b"GET /v1/stream/slow?live=sse&offset=-1 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    socket.read_exact(&mut [0; 100]).await.unwrap();
    freed(&server, "slow").await;
}
