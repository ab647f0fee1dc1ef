//! Producers: their batches are taken once, also when the server was killed between two tries.

use crate::http_client;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http_client::*;

#[tokio::test]
async fn a_batch_that_is_sent_again_is_taken_once() {
    let server = Server::new().await;
    server.text("s", "").await;
    let first = server.post("s", &batch("p", "0", "0"), "a").await;
    assert_eq!((first.status, first.header("producer-seq")), (200, "0"));
    assert_eq!(server.post("s", &batch("p", "0", "1"), "b").await.status, 200);
    let again = server.post("s", &batch("p", "0", "0"), "a").await;
    assert_eq!((again.status, again.header("producer-seq")), (204, "1"));
    let gap = server.post("s", &batch("p", "0", "3"), "d").await;
    assert_eq!((gap.status, gap.header("producer-expected-seq")), (409, "2"));
    assert_eq!(server.post("s", &batch("p", "1", "0"), "c").await.status, 200);
    let stale = server.post("s", &batch("p", "0", "2"), "z").await;
    assert_eq!((stale.status, stale.header("producer-epoch")), (403, "1"));
    assert_eq!(server.get("s").await.text(), "abc");
}

#[tokio::test]
async fn a_refused_batch_is_not_counted() {
    let server = Server::new().await;
    server.text("s", "").await;
    let mut headers = batch("p", "0", "0").to_vec();
    headers[0] = JSON[0];
    assert_eq!(server.post("s", &headers, "1").await.status, 409);
    let mut headers = batch("p", "0", "0").to_vec();
    headers.push(("stream-seq", "b"));
    assert_eq!(server.post("s", &headers, "x").await.status, 200);
    let mut headers = batch("p", "0", "1").to_vec();
    headers.push(("stream-seq", "a"));
    assert_eq!(server.post("s", &headers, "y").await.status, 409);
    assert_eq!(server.post("s", &batch("p", "0", "1"), "z").await.status, 200);
    assert_eq!(server.get("s").await.text(), "xz");
}

/// Producers write all the time while the store is let go of as by a kill. Whatever they know to be
/// taken is there once, and what the server knows of them is what is there: neither more nor less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_tears_no_batch_from_its_count() {
    let volume = volume();
    let mut store = options().create_on(volume.clone()).unwrap();
    let mut acknowledged = [0; 6];
    for round in 0..4 {
        let server = Arc::new(Server::with(store, config()).await);
        if round == 0 {
            server.put("k", &JSON, "").await;
        }
        let over = Arc::new(AtomicBool::new(false));
        let producers: Vec<_> = (0..acknowledged.len())
            .map(|p| produce(server.clone(), p, acknowledged[p], over.clone()))
            .map(tokio::spawn)
            .collect();
        let entries = || server.store.get_bounds("streams/k").unwrap().map_or(0, |bounds| bounds.next);
        let before = entries();
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        while entries() == before {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        server.store.clone().abandon();
        over.store(true, Relaxed);
        for (p, producer) in producers.into_iter().enumerate() {
            acknowledged[p] = producer.await.unwrap();
        }
        let server = Arc::into_inner(server).unwrap();
        drop(server.stop().await);
        store = open_again(&volume).await;
    }
    let server = Server::with(store, config()).await;
    let all: Vec<(usize, u64)> = serde_json::from_slice(&server.get("k").await.body).unwrap();
    for (p, acknowledged) in acknowledged.into_iter().enumerate() {
        let mine: Vec<u64> = all.iter().filter(|(q, _)| *q == p).map(|(_, seq)| *seq).collect();
        let count = mine.len() as u64;
        assert!(mine.into_iter().eq(0..count), "each once, in order");
        assert!(count >= acknowledged, "{count} are there, {acknowledged} were acknowledged");
        assert_eq!(send(&server, p, count).await, Some(200), "the next one is the next");
        assert_eq!(send(&server, p, count).await, Some(204));
    }
    assert!(acknowledged.iter().any(|count| *count > 0), "{acknowledged:?}");
}

/// Sends batch after batch, each until it is taken; gives the number of those that were.
async fn produce(server: Arc<Server>, producer: usize, from: u64, over: Arc<AtomicBool>) -> u64 {
    let mut seq = from;
    while !over.load(Relaxed) {
        match send(&server, producer, seq).await {
            Some(200 | 204) => seq += 1,
            Some(503) | None => tokio::task::yield_now().await,
            Some(other) => panic!("{other}"),
        }
    }
    seq
}

async fn send(server: &Server, producer: usize, seq: u64) -> Option<u16> {
    let (id, text) = (format!("p{producer}"), seq.to_string());
    let mut headers = batch(&id, "0", &text);
    headers[0] = JSON[0];
    let body = format!("[[{producer},{seq}]]");
    server.open("POST", "k", &headers, body).await.ok().map(|reply| reply.status().as_u16())
}

async fn open_again(volume: &Arc<dyn brooklet::io::Volume>) -> brooklet::Store {
    options().open_on(volume.clone()).unwrap()
}
