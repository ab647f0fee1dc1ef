//! What the server shows over HTTP, asked for by a small client.

#![expect(clippy::disallowed_methods, reason = "a server is asked in real time")]

mod browse;
mod client;
mod memory;
mod page;
mod probes;
mod stuck;

use std::time::{Duration, Instant};

use brooklet_server::http::watch::{Watch, router};

use client::{Answer, Client};

/// A server of what a watch shows.
struct Server {
    watch: Watch,
    client: Client,
    serving: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn new() -> Self {
        let watch = Watch::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client(listener.local_addr().unwrap());
        let router = router(watch.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { watch, client, serving }
    }

    async fn get(&self, address: &str) -> Answer {
        self.client.ask("GET", address).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Waits for something that comes by itself.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what} did not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
