//! The page, and what it is told.

use brooklet::Store;
use serde_json::json;

use super::{Server, eventually};

#[tokio::test]
async fn the_page_and_its_parts_come_from_here_alone() {
    let server = Server::new().await;
    let page = server.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*') && policy.contains("frame-ancestors 'none'"));
    let mut wanted: Vec<String> = Vec::new();
    let mut texts = vec![page.body];
    while let Some(text) = texts.pop() {
        let quoted =
            text.split('"').filter_map(|part| part.strip_prefix("page/").or(part.strip_prefix("./")));
        for name in quoted.filter(|name| name.contains('.') && !name.contains(' ')) {
            if !wanted.iter().any(|known| known == name) {
                wanted.push(name.into());
                let part = server.get(&format!("/page/{name}")).await;
                assert_eq!((part.status, part.header("x-content-type-options")), (200, "nosniff"), "{name}");
                texts.push(part.body);
            }
        }
        let foreign = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!foreign.contains("http:") && !foreign.contains("https:") && !foreign.contains(" style="));
    }
    assert_eq!(wanted.len(), 8, "{wanted:?}");
    assert_eq!(server.get("/page/..%2Fmod.rs").await.status, 404);
}

#[tokio::test]
async fn nothing_can_be_changed_here() {
    let (server, store) = (Server::new().await, Store::in_memory(1).unwrap());
    store.append("log", "x").unwrap().wait().unwrap();
    server.watch.ready(store.clone());
    for address in ["/", "/metrics", "/healthz", "/readyz", "/api/live", "/api/logs", "/api/log?key=log"] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            assert_eq!(server.client.ask(method, address).await.status, 405, "{method} {address}");
        }
        assert_eq!(server.get(address).await.status, 200, "{address}");
    }
    assert_eq!(store.activity().commits, 1);
}

#[tokio::test]
async fn the_live_view_tells_what_happens_and_only_what_is_new() {
    let (server, store) = (Server::new().await, Store::in_memory(1).unwrap());
    server.watch.show("clients", || json!([{ "address": "1.2.3.4:5", "received_bytes": 10 }]));
    server.watch.ready(store.clone());
    tokio::spawn(server.watch.clone().keep());
    for _ in 0..50 {
        store.append(b"log\xff", "12345").unwrap().wait().unwrap();
        server.watch.hot_logs().note(b"log\xff", 1, 5);
    }
    store.checkpoint().unwrap();
    let live = async |query: &str| server.get(&format!("/api/live{query}")).await.json();
    eventually("a point", async || live("").await["points"].as_array().unwrap().len() >= 2).await;
    eventually("a run", async || live("").await["made_of"]["count"] == 1).await;
    let told = live("").await;
    let points = told["points"].as_array().unwrap();
    let commits: f64 = points
        .iter()
        .map(|p| p["commits_per_second"].as_f64().unwrap() * p["seconds"].as_f64().unwrap())
        .sum();
    assert!((commits - 50.0).abs() < 0.01, "{commits}");
    assert!(points[0]["durable"]["p99"].as_f64().unwrap() > 0.0 && told["unready"].is_null());
    assert_eq!(told["now"]["runs"]["entries"], 50);
    assert_eq!(told["made_of"]["runs"][0]["entries"], 50);
    assert_eq!(
        (&told["hot_logs"][0]["url"], &told["hot_logs"][0]["key"]["binary"]),
        (&"log%FF".into(), &true.into())
    );
    assert_eq!(
        told["extras"][0],
        json!({ "name": "clients", "value": [{ "address": "1.2.3.4:5", "received_bytes": 10 }] })
    );
    let since = points[0]["n"].as_u64().unwrap();
    let newer = live(&format!("?since={since}")).await;
    assert_eq!(newer["points"][0]["n"], since + 1);
    assert_eq!(live("?since=1000000").await["points"], json!([]));
}
