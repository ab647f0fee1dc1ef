//! Followers of documents: each update once and in order, from any version on.

use crate::documents::{NEW, at};
use crate::http_client;

use brooklet_server::http::Config;
use http_client::*;
use hyper::body::Incoming;
use serde_json::{Value, json};

const EVENTS: (&str, &str) = ("accept", "text/event-stream");

async fn patient() -> Server {
    let config = Config { events: FOREVER, ..Config::default() };
    Server::with(options().create_on(volume()).unwrap(), config).await
}

impl Server {
    async fn follow(&self, path: &str, headers: &[(&str, &str)]) -> Incoming {
        let headers = [&[EVENTS], headers].concat();
        let response = self.open("GET", &at(path), &headers, "").await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response.into_body()
    }
}

/// The ids, names and data of events in a text of whole events.
fn parsed(text: &str) -> Vec<(u64, String, Value)> {
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
    };
    let events = text.split("\n\n").filter(|event| event.starts_with("id:"));
    let parse = |event: &str| {
        let id = field(event, "id")?.parse().unwrap();
        Some((id, field(event, "event")?, serde_json::from_str(&field(event, "data")?).unwrap()))
    };
    events.map(|event| parse(event).unwrap_or_else(|| panic!("{event:?}"))).collect()
}

fn names(events: &[(u64, String, Value)]) -> Vec<(u64, &str)> {
    events.iter().map(|(id, name, _)| (*id, name.as_str())).collect()
}

#[tokio::test]
async fn a_follower_gets_each_update_once() {
    let server = patient().await;
    server.document("d", json!({"a": 1})).await;
    server.merge("d", 1, json!({"a": 2})).await;
    let mut all = server.follow("d", &[]).await;
    let mut since = server.follow("d?since=1", &[]).await;
    let mut again = server.follow("d?since=1", &[("last-event-id", "2")]).await;
    server.merge("d", 2, json!({"a": 3})).await;
    server.merge("d", 3, json!({"a": 4})).await;
    let text = events(&mut all, "id: 4").await + &events(&mut all, "\n\n").await;
    let all = parsed(&text);
    assert_eq!(names(&all), [(1, "created"), (2, "update"), (3, "update"), (4, "update")]);
    assert_eq!(all[0].2, json!({"version": 1, "author": "", "state": {"a": 1}}));
    assert_eq!(all[1].2["change"], json!({"type": "application/merge-patch+json", "patch": {"a": 2}}));
    let since = events(&mut since, "id: 4").await;
    assert!(since.starts_with("retry: ") && since.contains("id: 2") && !since.contains("id: 1"), "{since}");
    let again = events(&mut again, "id: 4").await;
    assert!(again.contains("id: 3") && !again.contains("id: 2"), "{again}");
}

#[tokio::test]
async fn a_document_that_is_deleted_and_made_again_says_so() {
    let server = patient().await;
    let mut early = server.follow("d", &[]).await;
    server.document("d", json!(1)).await;
    // A follower that is late misses what a deletion removes: this one is not.
    let mut seen = events(&mut early, "id: 1\n").await;
    let mut body = server.follow("d?since=1", &[]).await;
    server.merge("d", 1, json!(2)).await;
    assert!(events(&mut body, "id: 2").await.contains("event: update"));
    seen += &events(&mut early, "id: 2\n").await;
    server.send("DELETE", &at("d"), &[("if-match", "\"2\"")], "").await;
    let deleted = events(&mut body, "event: deleted\ndata: {}\n\n").await;
    seen += &events(&mut early, "event: deleted\ndata: {}\n\n").await;
    assert_eq!(names(&parsed(&deleted)), [(0, "deleted")]);
    let version = server.document("d", json!("new")).await;
    // The last event of each follower.
    let new = format!("\"version\":{version}}}\n\n");
    let made = parsed(&events(&mut body, &new).await);
    assert_eq!(names(&made), [(version, "created")]);
    seen += &events(&mut early, &new).await;
    let early = parsed(&seen);
    let names_of_early = names(&early);
    assert_eq!(names_of_early, [(1, "created"), (2, "update"), (0, "deleted"), (version, "created")]);
    // Who was away meanwhile goes on from an old version, or from the deletion.
    let mut away = server.follow("d", &[("last-event-id", "1")]).await;
    let away = parsed(&events(&mut away, &new).await);
    assert_eq!(names(&away), [(0, "deleted"), (version, "created")]);
    let mut knows = server.follow("d", &[("last-event-id", "0")]).await;
    let knows = parsed(&events(&mut knows, &new).await);
    assert_eq!(names(&knows), [(version, "created")]);
}

/// Snapshots drop old updates. Whoever asks for them learns of the gap.
#[tokio::test]
async fn updates_that_are_gone_are_named() {
    let server = patient().await;
    server.document("d", json!({})).await;
    for version in 1..=450 {
        assert_eq!(server.merge("d", version, json!({"n": version})).await.status, 200);
    }
    let mut body = server.follow("d?since=3", &[]).await;
    let seen = parsed(&events(&mut body, "id: 451\n").await);
    let (_, first, data) = &seen[0];
    assert_eq!(first, "missed");
    assert_eq!(data["from"], 4);
    let next = data["to"].as_u64().unwrap() + 1;
    let expected: Vec<_> = (next..=451).collect();
    assert_eq!(seen[1..].iter().map(|(id, ..)| *id).collect::<Vec<_>>()[..], expected[..seen.len() - 1]);
    assert!(next < 400, "history stays: {next}");
}

#[tokio::test]
async fn events_begin_at_a_version_of_the_document() {
    let server = patient().await;
    server.document("d", json!(1)).await;
    for (path, status) in [("d?since=2", 404), ("d?at=1", 400), ("d?history", 400)] {
        assert_eq!(server.send("GET", &at(path), &[EVENTS], "").await.status, status, "{path}");
    }
    let accept = ("accept", "application/json, text/event-stream;q=0.9");
    let reply = server.open("GET", &at("d"), &[accept], "").await.unwrap();
    assert_eq!(reply.headers()["content-type"], "text/event-stream");
}

/// In an earlier state nginx kept events back, as it does with other replies.
#[tokio::test]
async fn proxies_are_asked_to_pass_events_on_at_once() {
    let server = patient().await;
    server.document("d", json!(1)).await;
    server.text("s", "text").await;
    for path in ["/v1/documents/d", "/v1/stream/s?offset=-1&live=sse"] {
        let reply = server.open("GET", path, &[EVENTS], "").await.unwrap();
        assert_eq!(reply.headers()["content-type"], "text/event-stream");
        let buffering = reply.headers().get("x-accel-buffering");
        assert_eq!(buffering.map(|value| value.as_bytes()), Some(&b"no"[..]), "{path}");
    }
}

#[tokio::test]
async fn followers_have_places_and_end_with_the_server() {
    let config = Config { events: FOREVER, max_waiting: 1, ..Config::default() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    server.put(&at("d"), &NEW, "1").await;
    let mut body = server.follow("d", &[]).await;
    let refused = server.send("GET", &at("d"), &[EVENTS], "").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
    server.stop.cancel();
    // The reply ends, and the connection with it.
    let text = events(&mut body, "the end").await;
    assert!(text.contains("event: created"), "{text}");
    server.stop().await;
}
