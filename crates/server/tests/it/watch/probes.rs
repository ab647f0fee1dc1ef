//! What monitoring asks: metrics, health, readiness.

use std::io::ErrorKind;
use std::sync::Arc;

use brooklet::io::{Fault, MemVolume};
use brooklet::{Options, Store};

use super::Server;

#[tokio::test]
async fn metrics_are_those_of_the_store_and_what_faces_append() {
    let server = Server::new().await;
    server.watch.append_metrics(|text| {
        text.push_str("# TYPE brooklet_redis_clients gauge\nbrooklet_redis_clients 7\n")
    });
    let before = server.get("/metrics").await;
    assert_eq!((before.status, before.header("content-type")), (200, "text/plain; version=0.0.4"));
    assert!(before.body.contains("\nbrooklet_server_ready 0\n") && before.body.ends_with("_clients 7\n"));
    let store = Store::in_memory(1).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    server.watch.ready(store);
    let after = server.get("/metrics").await.body;
    for line in ["brooklet_commits_total 1", "brooklet_server_ready 1", "brooklet_redis_clients 7"] {
        assert!(after.lines().any(|l| l == line), "{line}\n{after}");
    }
    let types = after.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut names: Vec<_> = types.map(|line| line.split(' ').next().unwrap()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == all && all > 40, "each name once: {names:?}");
}

#[tokio::test]
async fn readiness_says_why_not_and_health_goes_on() {
    let server = Server::new().await;
    let check = async |ready: bool, reason: &str, stopped: bool| {
        let answer = server.get("/readyz").await;
        let told = answer.json();
        assert_eq!((answer.status, &told["ready"]), (if ready { 200 } else { 503 }, &ready.into()));
        assert!(told["reason"].as_str().unwrap_or_default().starts_with(reason), "{told}");
        assert_eq!(answer.header("cache-control"), "no-store");
        let health = server.get("/healthz").await;
        assert_eq!((health.status, health.json()["stopped"].is_string()), (200, stopped));
    };
    check(false, "the server is starting", false).await;
    let volume = MemVolume::new(1);
    let options = Options::new().ring_size(1 << 20).max_payload(64 << 10);
    let store = options.create_on(Arc::new(volume.clone())).unwrap();
    server.watch.ready(store.clone());
    check(true, "", false).await;
    volume.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: true });
    store.append("log", "entry").unwrap().wait().unwrap_err();
    check(false, "the store stopped writing", true).await;
    server.watch.stopping();
    check(false, "the server is stopping", true).await;
}

#[tokio::test]
async fn a_server_that_stops_is_not_ready_though_its_store_is_well() {
    let server = Server::new().await;
    server.watch.ready(Store::in_memory(1).unwrap());
    assert_eq!(server.get("/readyz").await.status, 200);
    server.watch.stopping();
    assert_eq!((server.get("/readyz").await.status, server.get("/healthz").await.status), (503, 200));
}
