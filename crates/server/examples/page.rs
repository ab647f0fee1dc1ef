//! The page, on a store in a temporary folder that a few threads write to:
//! `cargo run -p brooklet-server --example page [PORT]`.
//!
//! It says where it is, and serves until its standard input ends.

#![expect(clippy::disallowed_methods, reason = "writers are threads, and rest")]

use std::error::Error;
use std::io::{Read, stdin};
use std::path::Path;
use std::thread;
use std::time::Duration;

use brooklet::io::Rng;
use brooklet::{Options, Retention, SpaceConfig, Store};
use brooklet_server::hot_logs::HotLogs;
use brooklet_server::http::watch::{Watch, router};
use serde_json::json;

/// A store that has something of each kind to show.
fn store(path: &Path) -> Result<Store, brooklet::Error> {
    let options = Options::new().ring_size(8 << 20).memory_budget(6 << 20).max_payload(256 << 10);
    let store = options.open(path)?;
    store.create_space("orders", SpaceConfig::new().max_logs(100_000).max_bytes(4 << 30))?;
    store.create_space("sensors", SpaceConfig::new().retention(Retention::new().entries(200)))?;
    for n in 0..120 {
        let entry = json!({ "id": n, "what": "a line of JSON", "exact": 12345678901234567890u64, "tags": ["a", { "b": null }] });
        drop(store.append("examples/json", entry.to_string())?);
        drop(store.append("examples/text", format!("line {n}: <b>as it stands</b> & so on"))?);
        drop(store.append("examples/binary", (0..=n).map(|i| i ^ 0xa5).collect::<Vec<u8>>())?);
        drop(store.append(format!("many/{n:03}"), "one")?);
    }
    drop(store.append(b"examples/\xff\x00key", "the key of this log is no text")?);
    drop(store.append("examples/<img src=x onerror=alert(1)>", "the key of this log is no markup")?);
    drop(store.append("examples/large", "0123456789".repeat(20_000))?);
    store.flush()?;
    Ok(store)
}

/// Writes and reads as a small shop does, with quieter and busier times.
fn work(store: &Store, hot_logs: &HotLogs, seed: u64) -> Result<(), brooklet::Error> {
    let mut rng = Rng::new(seed);
    for n in 0.. {
        let magnitude = rng.below(16);
        let (order, sensor) = (rng.below(1 << magnitude), rng.below(40));
        let entry =
            json!({ "order": order, "step": n, "state": "paid", "amount": rng.below(10_000) as f64 / 100.0 });
        for (key, payload) in [
            (format!("orders/{order}"), entry.to_string().into_bytes()),
            (
                format!("sensors/{sensor}"),
                rng.below(u64::MAX).to_be_bytes().repeat(1 + rng.below(20) as usize),
            ),
        ] {
            let ticket = store.append(&key, &payload)?;
            hot_logs.note(key.as_bytes(), 1, payload.len() as u64);
            if rng.percent(20) {
                ticket.wait()?;
            }
        }
        if rng.percent(10) {
            drop(store.delete(format!("orders/{}", rng.below(1 << 16))));
        }
        // A log whose first entry is not durable yet is not there for readers.
        drop(store.read(format!("orders/{order}"), ..).map(|mut entries| entries.next_back()));
        if n % 20 == 0 {
            let wave = (n as f64 / 3000.0).sin() + 1.3;
            thread::sleep(Duration::from_secs_f64(0.008 * wave));
        }
    }
    Ok(())
}

/// What the frontends of a server would tell.
fn clients() -> serde_json::Value {
    json!([
        { "address": "10.0.0.7:51234", "frontend": "redis", "connected_seconds": 5423.0, "commands_per_second": 312.0, "received_bytes": 48_200_113 },
        { "address": "10.0.0.9:40112", "frontend": "http", "connected_seconds": 12.5, "commands_per_second": 0.8, "received_bytes": 5120 },
    ])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let watch = Watch::new();
    let port = std::env::args().nth(1).map_or(Ok(0), |port| port.parse::<u16>())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/", listener.local_addr()?);
    watch.show("clients", clients);
    tokio::spawn(watch.clone().keep());
    tokio::spawn(axum::serve(listener, router(watch.clone())).into_future());
    let folder = tempfile::tempdir()?;
    let store = store(&folder.path().join("shop.brooklet"))?;
    watch.ready(store.clone());
    for seed in 1..=3 {
        let (store, hot_logs) = (store.clone(), watch.hot_logs().clone());
        thread::spawn(move || match work(&store, &hot_logs, seed) {
            Ok(()) | Err(brooklet::Error::Closed) => {}
            Err(error) => eprintln!("a writer ended: {error}"),
        });
    }
    tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new())).await??;
    watch.stopping();
    store.close()?;
    Ok(())
}
