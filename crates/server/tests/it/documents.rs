//! Documents over HTTP: versions, conditions, requests that come again, history, problems.

use crate::http_client;

use brooklet_documents::{Documents, Opaque, Options};
use brooklet_server::http::Config;
use bytes::Bytes;
use http_client::*;
use serde_json::{Value, json};

pub const NEW: [(&str, &str); 1] = [("if-none-match", "*")];
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
const PATCH: (&str, &str) = ("content-type", "application/json-patch+json");

pub fn at(path: &str) -> String {
    format!("/v1/documents/{path}")
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The status and the kind of a problem.
    fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        assert_eq!(self.header("content-security-policy"), "sandbox");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
        let kind = problem["type"].as_str().unwrap().strip_prefix("/v1/problems/").unwrap();
        (self.status, kind.to_owned())
    }
}

impl Server {
    /// Makes a document, and returns its version.
    pub async fn document(&self, name: &str, state: Value) -> u64 {
        let reply = self.put(&at(name), &NEW, state.to_string()).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["version"].as_u64().unwrap()
    }

    pub async fn merge(&self, name: &str, version: u64, patch: Value) -> Reply {
        let tag = format!("\"{version}\"");
        self.patch(&at(name), &[MERGE, ("if-match", &tag)], patch.to_string()).await
    }

    async fn problem(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        self.send(method, &at(path), headers, body.to_owned()).await.problem()
    }
}

#[tokio::test]
async fn a_document_is_put_got_patched_and_deleted() {
    let server = Server::new().await;
    let made = server.put(&at("a/b%20c"), &NEW, r#"{"title":"Notes","tags":[]}"#).await;
    assert_eq!((made.status, made.header("etag"), made.text()), (201, "\"1\"", r#"{"version":1}"#));
    let got = server.get(&at("a%2Fb%20c")).await;
    assert_eq!((got.status, got.header("etag")), (200, "\"1\""));
    assert_eq!(got.header("content-type"), "application/json");
    assert_eq!(got.header("x-content-type-options"), "nosniff");
    assert_eq!(got.json(), json!({"title": "Notes", "tags": []}));
    let merged = server.merge("a/b%20c", 1, json!({"title": null})).await;
    assert_eq!((merged.status, merged.header("etag")), (200, "\"2\""));
    let steps = r#"[{"op":"add","path":"/tags/-","value":"x"}]"#;
    let patched = server.patch(&at("a/b%20c"), &[PATCH, ("if-match", "\"2\"")], steps).await;
    assert_eq!(patched.text(), r#"{"version":3}"#);
    assert_eq!(server.get(&at("a/b%20c")).await.json(), json!({"tags": ["x"]}));
    let put = server.put(&at("a/b%20c"), &[("if-match", "\"3\"")], "[1]").await;
    assert_eq!((put.status, put.header("etag")), (200, "\"4\""));
    assert_eq!(server.get(&at("a/b%20c")).await.text(), "[1]");
    let head = server.head(&at("a/b%20c")).await;
    assert_eq!((head.status, head.header("etag"), head.text()), (200, "\"4\"", ""));
    assert_eq!(server.send("DELETE", &at("a/b%20c"), &[("if-match", "\"4\"")], "").await.status, 204);
    assert_eq!(server.problem("GET", "a/b%20c", &[], "").await, (404, "not-found".into()));
    // The versions of the document that is made again go on.
    assert!(server.document("a/b%20c", json!(1)).await > 4);
}

#[tokio::test]
async fn a_client_that_has_the_version_gets_no_body() {
    let server = Server::new().await;
    server.document("d", json!({"a": 1})).await;
    for (tags, status) in
        [("\"1\"", 304), ("\"7\", W/\"1\"", 304), ("*", 304), ("\"2\"", 200), ("\"x\"", 200)]
    {
        for method in ["GET", "HEAD"] {
            let reply = server.send(method, &at("d"), &[("if-none-match", tags)], "").await;
            assert_eq!((reply.status, reply.header("etag")), (status, "\"1\""), "{method} {tags}");
            assert_eq!(reply.body.is_empty(), status == 304 || method == "HEAD");
        }
    }
    assert_eq!(server.send("GET", &at("none"), &[("if-none-match", "*")], "").await.status, 404);
}

/// In an earlier state the length was 0, as if the document and the stream were empty.
#[tokio::test]
async fn a_reply_to_head_has_no_length_that_differs_from_that_of_get() {
    let server = Server::new().await;
    server.document("d", json!({"a": 1})).await;
    server.text("s", "text").await;
    for (path, tags, status) in
        [("/v1/documents/d", "\"7\"", 200), ("/v1/documents/d", "\"1\"", 304), ("/v1/stream/s", "\"7\"", 200)]
    {
        let head = server.send("HEAD", path, &[("if-none-match", tags)], "").await;
        assert_eq!((head.status, head.header("content-length")), (status, ""), "{path} {tags}");
    }
    let got = server.get(&at("d")).await;
    assert_eq!(got.header("content-length"), got.body.len().to_string());
    assert_eq!(server.get("s").await.header("content-length"), "4");
}

#[tokio::test]
async fn changes_name_the_version_that_they_are_for() {
    let server = Server::new().await;
    server.document("d", json!({"a": 1})).await;
    server.merge("d", 1, json!({"a": 2})).await;
    let late = server.merge("d", 1, json!({"a": 3})).await;
    assert_eq!((late.problem(), late.header("etag")), ((412, "conflict".into()), "\"2\""));
    assert_eq!(late.json()["head"], 2);
    let again = server.put(&at("d"), &NEW, "1").await;
    assert_eq!((again.problem(), again.json()["head"].clone()), ((412, "exists".into()), json!(2)));
    let missing = (428, "condition-missing".to_owned());
    assert_eq!(server.problem("PATCH", "d", &[MERGE], "{}").await, missing);
    assert_eq!(server.problem("PUT", "d", &[], "{}").await, missing);
    assert_eq!(server.problem("PUT", "d", &[("if-none-match", "\"1\"")], "{}").await.0, 400);
    assert_eq!(server.problem("DELETE", "d", &[], "").await, missing);
    assert_eq!(server.problem("POST", "d?rewind=1", &[], "").await, missing);
    let both = [("if-match", "\"2\""), NEW[0]];
    assert_eq!(server.problem("PUT", "d", &both, "{}").await, (400, "bad-request".into()));
    // A list takes the version that is there; a weak or foreign tag is never that of a document.
    for (tags, status) in
        [("\"9\", \"2\"", 200), ("W/\"3\"", 412), ("\"abc\"", 412), ("\"1\",\"2\"", 412), ("*", 200)]
    {
        let reply = server.patch(&at("d"), &[MERGE, ("if-match", tags)], r#"{"b":1}"#).await;
        assert_eq!(reply.status, status, "{tags}: {reply:?}");
    }
    assert_eq!(server.head(&at("d")).await.header("etag"), "\"4\"");
    let none = server.problem("PATCH", "none", &[MERGE, ("if-match", "*")], "{}").await;
    assert_eq!(none, (404, "not-found".into()));
}

#[tokio::test]
async fn no_condition_is_passed_over() {
    let server = Server::new().await;
    server.document("d", json!({"a": 1})).await;
    server.merge("d", 1, json!({"a": 2})).await;
    let both = [("if-match", "*"), ("if-none-match", "\"2\""), MERGE];
    for (method, path, body) in [("PATCH", "d", "{}"), ("POST", "d?rewind=1", ""), ("DELETE", "d", "")] {
        assert_eq!(server.problem(method, path, &both, body).await, (400, "bad-request".into()), "{method}");
    }
    let reply = server.send("PUT", &at("d"), &[("if-none-match", "\"2\"")], "{}").await;
    assert!(reply.text().contains("If-None-Match of PUT has to be *"), "{}", reply.text());
    for (path, tags, status) in [
        ("d", "\"1\"", 412),
        ("d", "\"2\"", 200),
        ("d", "*", 200),
        ("d?at=1", "\"1\"", 200),
        ("d?at=1", "\"2\"", 412),
        ("none", "\"1\"", 404),
    ] {
        let reply = server.send("GET", &at(path), &[("if-match", tags)], "").await;
        assert_eq!(reply.status, status, "{path} {tags}");
        if !path.contains('?') {
            let head = server.send("HEAD", &at(path), &[("if-match", tags)], "").await;
            assert_eq!((head.status, head.header("etag")), (status, reply.header("etag")));
        }
    }
    // Tags are compared by their characters, and may have commas.
    for tags in ["\"02\"", "\"+2\"", "\"a,2\"", "\"2 \""] {
        let reply = server.patch(&at("d"), &[MERGE, ("if-match", tags)], "{}").await;
        assert_eq!(reply.problem(), (412, "conflict".into()), "{tags}");
        let reply = server.send("GET", &at("d"), &[("if-none-match", tags)], "").await;
        assert_eq!(reply.status, 200, "{tags}");
    }
    assert_eq!(server.problem("DELETE", "d", &[("if-match", "\"\"2\"\"")], "").await.0, 400);
}

#[tokio::test]
async fn a_request_that_comes_again_gets_its_first_answer() {
    let server = Server::new().await;
    let with =
        |id: &'static str, more: &[(&'static str, &'static str)]| [&[("idempotency-key", id)], more].concat();
    let create = with("\"r1\"", &NEW);
    let first = server.put(&at("d"), &create, r#"{"n":0}"#).await;
    let patch = with("r2", &[MERGE, ("if-match", "\"1\"")]);
    let second = server.patch(&at("d"), &patch, r#"{"n":1}"#).await;
    let rewind = with("r3", &[("if-match", "\"2\"")]);
    let third = server.send("POST", &at("d?rewind=1"), &rewind, "").await;
    assert_eq!(third.header("etag"), "\"3\"");
    // All come again, after others.
    for (first, again) in [
        (first, server.put(&at("d"), &create, r#"{"n":0}"#).await),
        (second, server.patch(&at("d"), &patch, r#"{"n":1}"#).await),
        (third, server.send("POST", &at("d?rewind=1"), &rewind, "").await),
    ] {
        assert!(first.header("idempotency-replayed").is_empty());
        assert_eq!(again.header("idempotency-replayed"), "true");
        assert_eq!((first.status, first.header("etag")), (again.status, again.header("etag")));
        assert_eq!(first.body, again.body);
    }
    let any = with("r2", &[MERGE, ("if-match", "*")]);
    assert_eq!(server.patch(&at("d"), &any, r#"{"n":1}"#).await.header("etag"), "\"2\"");
    assert_eq!(server.get(&at("d")).await.json(), json!({"n": 0}));
    // The id of another request.
    let reused = server.patch(&at("d"), &patch, r#"{"n":2}"#).await;
    assert_eq!(
        (reused.problem(), reused.json()["version"].clone()),
        ((422, "request-reused".into()), json!(2))
    );
    // A refused request leaves its id free.
    let late = with("r4", &[MERGE, ("if-match", "\"1\"")]);
    assert_eq!(server.patch(&at("d"), &late, "{}").await.status, 412);
    let now = with("r4", &[MERGE, ("if-match", "\"3\"")]);
    assert_eq!(server.patch(&at("d"), &now, r#"{"n":5}"#).await.header("etag"), "\"4\"");
    // Over a restart.
    let store = server.stop().await;
    let server = Server::with(store, config()).await;
    assert_eq!(server.patch(&at("d"), &patch, r#"{"n":1}"#).await.header("idempotency-replayed"), "true");
}

#[tokio::test]
async fn earlier_versions_updates_and_history_are_read() {
    let server = Server::new().await;
    server.document("d", json!({"n": 0})).await;
    for n in 1..=5 {
        let tag = format!("\"{n}\"");
        let headers = [MERGE, ("if-match", &*tag), ("document-author", "Ada"), ("idempotency-key", "x")];
        let headers = if n == 3 { &headers[..] } else { &headers[..2] };
        assert_eq!(server.patch(&at("d"), headers, format!(r#"{{"n":{n}}}"#)).await.status, 200);
    }
    let back = server.send("POST", &at("d?rewind=2"), &[("if-match", "\"6\"")], "").await;
    assert_eq!((back.status, back.json()), (200, json!({"version": 7})));
    assert_eq!(server.get(&at("d")).await.json(), json!({"n": 1}));
    let earlier = server.get(&at("d?at=4")).await;
    assert_eq!((earlier.header("etag"), earlier.json()), ("\"4\"", json!({"n": 3})));
    let since = server.get(&at("d?since=2")).await.json();
    assert_eq!((&since["head"], &since["version"]), (&json!(7), &json!(7)));
    let versions: Vec<_> =
        since["updates"].as_array().unwrap().iter().map(|update| &update["version"]).collect();
    assert_eq!(versions, [3, 4, 5, 6, 7]);
    // Merge patches and the patch of the rewind have no patch of the effect of all.
    assert_eq!((&since["merged"], &since["updates"][4]["back_to"]), (&json!(null), &json!(2)));
    let update = &since["updates"][1];
    assert_eq!((&update["author"], &update["request"]), (&json!("Ada"), &json!("x")));
    assert_eq!(update["change"], json!({"type": MERGE.1, "patch": {"n": 3}}));
    assert!(update["time"].as_str().unwrap().ends_with('Z'));
    server.merge("d", 7, json!({"m": 1})).await;
    server.merge("d", 8, json!({"n": null})).await;
    let merged = server.get(&at("d?since=7")).await.json()["merged"].clone();
    assert_eq!(merged, json!({"type": MERGE.1, "patch": {"m": 1, "n": null}}));
    let all = server.get(&at("d?history")).await.json();
    assert_eq!(all["updates"].as_array().unwrap().len(), 8);
    assert_eq!(server.get(&at("d?since=9")).await.json()["updates"], json!([]));
    for query in ["at=10", "since=10"] {
        let reply = server.get(&at(&format!("d?{query}"))).await;
        assert_eq!(
            (reply.problem(), reply.json()["head"].clone()),
            ((404, "no-such-version".into()), json!(9))
        );
    }
    let future = server.send("POST", &at("d?rewind=9"), &[("if-match", "\"9\"")], "").await;
    assert_eq!(future.problem(), (404, "no-such-version".into()));
    for query in ["at=0", "since=0"] {
        assert_eq!(server.problem("GET", &format!("d?{query}"), &[], "").await.1, "history-gone");
    }
    let beyond = server.send("POST", &at("d?rewind=0"), &[("if-match", "\"9\"")], "").await;
    assert_eq!((beyond.problem(), beyond.json()["oldest"].clone()), ((410, "history-gone".into()), json!(1)));
}

#[tokio::test]
async fn long_histories_come_in_parts() {
    let config = config();
    let server = Server::with(options().create_on(volume()).unwrap(), Config { chunk: 2000, ..config });
    let server = server.await;
    server.document("d", json!({})).await;
    for version in 1..=30 {
        server.merge("d", version, json!({"text": "x".repeat(400)})).await;
    }
    let (mut version, mut parts) = (1, 0);
    while version < 31 {
        let part = server.get(&at(&format!("d?since={version}"))).await.json();
        assert_eq!((&part["head"], &part["updates"][0]["version"]), (&json!(31), &json!(version + 1)));
        version = part["version"].as_u64().unwrap();
        parts += 1;
    }
    assert!(parts > 5, "{parts}");
}

#[tokio::test]
async fn bad_changes_are_refused_with_a_problem_and_change_nothing() {
    let server = Server::new().await;
    let state = json!({"list": [1], "deep": {}});
    server.document("d", state.clone()).await;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(80), "}".repeat(80));
    let deeper = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let step = |op: &str, path: &str| json!([{"op": op, "path": path, "value": 2}]).to_string();
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    for (kind, body, status, problem) in [
        (MERGE, deep.as_str(), 422, "too-deep"),
        (MERGE, &deeper, 400, "malformed"),
        (MERGE, "{", 400, "malformed"),
        (MERGE, "", 400, "malformed"),
        (MERGE, "{\"a\":1}x", 400, "malformed"),
        (MERGE, "{\"a\":\"\u{1}\"}", 400, "malformed"),
        (MERGE, r#"{"n":123456789012345678901234567890}"#, 422, "number-not-kept"),
        (MERGE, r#"{"n":1e999}"#, 422, "number-not-kept"),
        (MERGE, &large, 413, "too-large"),
        (PATCH, &step("replace", "/none/x"), 422, "invalid-pointer"),
        (PATCH, &step("add", "/list/7"), 422, "invalid-pointer"),
        (PATCH, &step("add", "no-slash"), 400, "malformed"),
        (PATCH, &step("unknown", "/a"), 400, "malformed"),
        (PATCH, &step("test", "/list/0"), 409, "test-failed"),
        (PATCH, "{}", 400, "malformed"),
    ] {
        let reply = server.patch(&at("d"), &[kind, ("if-match", "\"1\"")], body.to_owned()).await;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(reply.problem(), (status, problem.into()), "{shown}");
    }
    for kind in ["application/json", "text/plain"] {
        let reply = server.patch(&at("d"), &[("content-type", kind), ("if-match", "\"1\"")], "{}").await;
        assert_eq!(reply.problem(), (415, "media-type".into()));
        assert!(reply.header("accept-patch").contains("application/json-patch+json"));
    }
    assert_eq!(server.patch(&at("d"), &[("if-match", "\"1\"")], "{}").await.status, 415);
    let typed = [("content-type", "text/html"), NEW[0]];
    assert_eq!(server.problem("PUT", "e", &typed, "{}").await, (415, "media-type".into()));
    assert_eq!(server.problem("PUT", "e", &NEW, &large).await, (413, "too-large".into()));
    assert_eq!(server.get(&at("d")).await.json(), state);
    assert_eq!(server.head(&at("d")).await.header("etag"), "\"1\"");
}

/// In an earlier state only a refused PATCH named them.
#[tokio::test]
async fn the_types_of_patches_are_named() {
    let server = Server::new().await;
    let types = format!("{}, {}", MERGE.1, PATCH.1);
    let options = server.send("OPTIONS", &at("d"), &[], "").await;
    assert_eq!((options.status, options.header("accept-patch")), (204, types.as_str()));
    let refused = server.put(&at("d"), &[("content-type", "text/html"), NEW[0]], "{}").await;
    assert_eq!(refused.problem(), (415, "media-type".into()));
    assert_eq!(refused.header("accept-patch"), types);
}

/// In an earlier state the server took the rest of a file, as `curl -C` sends it, for the whole.
#[tokio::test]
async fn a_part_of_a_body_is_not_taken_for_the_whole() {
    let server = Server::new().await;
    let part = ("content-range", "bytes 5-5/6");
    assert_eq!(server.problem("PUT", "d", &[NEW[0], part], "1").await, (400, "bad-request".into()));
    assert_eq!(server.get(&at("d")).await.status, 404);
    let refused = server.put("s", &[TEXT[0], part], "1").await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(server.get("s").await.status, 404);
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_problem() {
    let server = Server::new().await;
    server.document("d", json!(1)).await;
    let bad = (400, "bad-request".to_owned());
    let long = "x".repeat(2000);
    for path in ["d?at=x", "d?at=-1", "d?at=1&since=1", "d?nonsense", "d?rewind=1", "a/../b", &long] {
        // A client library does not send dots as a path; this one does.
        assert_eq!(server.problem("GET", path, &[], "").await, bad, "{path}");
    }
    assert_eq!(server.head(&at("d?at=1")).await.status, 400);
    assert_eq!(server.problem("POST", "d", &[("if-match", "*")], "").await, bad);
    assert_eq!(server.problem("DELETE", "d?at=1", &[("if-match", "*")], "").await, bad);
    for header in [("if-match", "1"), ("idempotency-key", ""), ("idempotency-key", "\"\"")] {
        assert_eq!(server.problem("PATCH", "d", &[MERGE, header], "{}").await, bad, "{header:?}");
    }
    for (header, len) in [("idempotency-key", 129), ("document-author", 257)] {
        let value = "x".repeat(len);
        let headers = [MERGE, ("if-match", "*"), (header, &value)];
        assert_eq!(server.problem("PATCH", "d", &headers, "{}").await, bad, "{header}");
    }
    let twice = [MERGE, ("if-match", "*"), ("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(server.problem("PATCH", "d", &twice, "{}").await, bad);
    let events = [("accept", "text/event-stream"), ("last-event-id", "x")];
    assert_eq!(server.problem("GET", "d", &events, "").await, bad);
    let method = server.send("PROPFIND", &at("d"), &[], "").await;
    assert_eq!(method.problem(), (405, "method".into()));
    assert!(method.header("allow").contains("PATCH"));
    assert_eq!(server.send("OPTIONS", &at("d"), &[], "").await.status, 204);
    let body = Bytes::from(vec![b' '; (8 << 20) + 1]);
    assert_eq!(server.put(&at("e"), &NEW, body).await.problem(), (413, "too-large".into()));
    // The type of a problem is an address.
    let explained = server.get("/v1/problems/conflict").await;
    assert_eq!((explained.status, explained.json()["status"].clone()), (200, json!(412)));
    assert_eq!(server.get("/v1/problems/none").await.status, 404);
}

#[tokio::test]
async fn documents_are_beside_streams_of_the_same_name() {
    let server = Server::new().await;
    server.text("x", "a stream").await;
    server.document("x", json!("a document")).await;
    assert_eq!(server.get("x").await.text(), "a stream");
    assert_eq!(server.get(&at("x")).await.json(), json!("a document"));
    assert_eq!(server.send("DELETE", &at("x"), &[("if-match", "*")], "").await.status, 204);
    assert_eq!(server.get("x").await.text(), "a stream");
}

/// A store that has stopped says so; it does not keep clients waiting.
#[tokio::test]
async fn a_damaged_document_can_be_deleted_and_made_again() {
    let server = Server::new().await;
    server.document("d", json!(1)).await;
    server.store.append("documents/dd", "damage").unwrap().wait().unwrap();
    let refused = server.problem("DELETE", "d", &[("if-match", "\"1\"")], "").await;
    assert_eq!(refused, (500, "failed".into()));
    assert_eq!(server.send("DELETE", &at("d"), &[("if-match", "*")], "").await.status, 204);
    assert_eq!(server.document("d", json!(2)).await, 3);
}

/// In an earlier state the status was 400, as if the request were wrong.
#[tokio::test]
async fn an_update_that_is_damaged_is_a_failure_of_the_server() {
    let server = Server::new().await;
    // A model that checks nothing writes what the server reads as JSON.
    let model = Opaque::new("json", 1, |_: &[u8], _: &[Bytes]| Ok(Vec::new()));
    let documents = Documents::open(&server.store, model, Options::new("documents/")).unwrap();
    // Bytes of no change, no JSON, and JSON that is no patch.
    for (name, change) in [("a", &b"damage"[..]), ("b", b"m{"), ("c", b"p[1]")] {
        documents.create(name, "1", &Opaque::state("{}")).unwrap();
        documents.patch(name, 1, "2", &Bytes::from_static(change)).unwrap();
        for query in ["since=1", "history"] {
            let reply = server.get(&at(&format!("{name}?{query}"))).await;
            assert_eq!(reply.problem(), (500, "failed".into()), "{name} {query}");
            let why = reply.json()["detail"].as_str().unwrap().to_owned();
            assert!(why.contains("version 2") && why.contains("is damaged"), "{why}");
        }
    }
}

#[tokio::test]
async fn a_store_that_is_closed_is_a_problem() {
    let server = Server::new().await;
    server.document("d", json!(1)).await;
    server.store.close().unwrap();
    let reply = server.merge("d", 1, json!(2)).await;
    assert_eq!(reply.problem().0, 503);
}

/// Clients that write one document at any version lose no change of each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_write_at_once_make_one_version_each() {
    let server = std::sync::Arc::new(Server::new().await);
    server.document("d", json!({})).await;
    let writers = (0..12).map(|writer| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut seen = 1;
            for n in 0..8 {
                loop {
                    let reply = server.merge("d", seen, json!({format!("{writer}"): n})).await;
                    if reply.status == 200 {
                        seen = reply.json()["version"].as_u64().unwrap();
                        break;
                    }
                    assert_eq!(reply.problem().1, "conflict");
                    seen = reply.json()["head"].as_u64().unwrap();
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let all = server.get(&at("d")).await;
    let expected: serde_json::Map<_, _> = (0..12).map(|writer| (writer.to_string(), json!(7))).collect();
    assert_eq!((all.header("etag"), all.json()), ("\"97\"", Value::Object(expected)));
}

/// A few bytes of text are many bytes of memory: bodies are weighed before they are parsed.
#[tokio::test]
async fn values_of_a_body_are_within_the_memory_for_bodies() {
    let config = Config { body_budget: 256 << 10, max_body: 64 << 10, ..config() };
    let server = Server::with(options().create_on(volume()).unwrap(), config).await;
    let nested = |many: usize| format!("[{}]", vec!["[0]"; many].join(","));
    let large = nested(10_000);
    assert!(large.len() < 64 << 10);
    assert_eq!(server.problem("PUT", "a", &NEW, &large).await, (413, "too-large".into()));
    let patch = format!(r#"[{{"op":"add","path":"","value":{large}}}]"#);
    server.document("b", json!(1)).await;
    for (kind, body) in [(MERGE, &large), (PATCH, &patch)] {
        let asked = [kind, ("if-match", "\"1\"")];
        assert_eq!(server.problem("PATCH", "b", &asked, body).await, (413, "too-large".into()));
    }
    assert_eq!(server.problem("PUT", "b", &[("if-match", "\"1\"")], &large).await, (413, "too-large".into()));
    // Shares return: more small values in sum than fit at once.
    for n in 0..20 {
        server.document(&format!("c{n}"), serde_json::from_str(&nested(500)).unwrap()).await;
    }
    // Long text of few values is no more than its bytes.
    assert_eq!(server.put(&at("d"), &NEW, format!("\"{}\"", "[".repeat(60 << 10))).await.status, 201);
}

/// A reply to a body of 1 MB is no body of 1 MB.
#[tokio::test]
async fn problems_repeat_little_of_a_request() {
    let server = Server::new().await;
    server.document("d", json!({})).await;
    let long = "x".repeat(1 << 20);
    let headers = [PATCH, ("if-match", "\"1\"")];
    for (body, kind) in [
        (format!(r#"[{{"op":"{long}","path":""}}]"#), "malformed"),
        (format!(r#"[{{"op":"remove","path":"/{long}"}}]"#), "invalid-pointer"),
        (format!(r#"[{{"op":"remove","path":"{long}"}}]"#), "malformed"),
        (format!(r#"[{{"op":"remove","path":"","path":"","{long}":1}}]"#), "malformed"),
    ] {
        let reply = server.patch(&at("d"), &headers, body).await;
        assert_eq!(reply.problem().1, kind);
        assert!(reply.body.len() < 4096, "{} bytes", reply.body.len());
    }
    let long = "%01".repeat(900);
    let reply = server.get(&at(&long)).await;
    assert_eq!(reply.problem().1, "not-found");
    assert!(reply.body.len() < 4096, "{} bytes", reply.body.len());
}
