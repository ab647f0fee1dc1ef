//! The data of the Redis frontend for the page of the server.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::client::Client;
use super::serve::Shared;
use crate::http::watch::Watch;

/// Clients that are listed, those first that came first.
const LISTED: usize = 100;

impl Shared {
    /// Adds the clients to the page, and the counters to the metrics.
    pub fn show_on(&self, watch: &Watch) {
        let shared = self.clone();
        watch.show("clients", move || shared.list_clients());
        let shared = self.clone();
        watch.append_metrics(move |text| shared.write_metrics(text));
    }

    fn list_clients(&self) -> Value {
        let mut engine = self.lock();
        let now = engine.steady;
        let tell = |client: &mut Client| {
            let seconds = |since: u64| now.saturating_sub(since) as f64 / 1000.0;
            let told = json!({
                "client": client.id,
                "address": client.address,
                "name": String::from_utf8_lossy(&client.name),
                "last_command": client.last_command,
                "connected_seconds": seconds(client.since),
                "idle_seconds": seconds(client.last_seen),
                "memory_bytes": client.memory(),
            });
            (client.id, told)
        };
        let mut all: Vec<(u64, Value)> = engine.clients().map(tell).collect();
        drop(engine);
        all.sort_by_key(|(id, _)| *id);
        all.into_iter().take(LISTED).map(|(_, told)| told).collect()
    }

    fn write_metrics(&self, text: &mut String) {
        let engine = self.lock();
        let (keys, bytes) = engine.keys.cached();
        let stats = &engine.stats;
        let families: [(&str, &str, &str, u64); 8] = [
            ("clients", "gauge", "Redis clients connected now.", engine.client_count() as u64),
            ("clients_waiting", "gauge", "Redis clients that wait for a key.", engine.waiting_count() as u64),
            ("connections_total", "counter", "Redis clients connected since the start.", stats.connections),
            ("commands_total", "counter", "Commands of Redis clients.", stats.commands),
            ("errors_total", "counter", "Errors returned to Redis clients.", stats.error_count()),
            ("expired_keys_total", "counter", "Keys that expired.", stats.expired),
            ("keys_in_memory", "gauge", "Keys of Redis clients that are in memory.", keys as u64),
            ("keys_memory_bytes", "gauge", "Bytes of memory of these keys.", bytes as u64),
        ];
        for (name, kind, help, value) in families {
            _ = writeln!(text, "# HELP brooklet_redis_{name} {help}");
            _ = writeln!(text, "# TYPE brooklet_redis_{name} {kind}");
            _ = writeln!(text, "brooklet_redis_{name} {value}");
        }
    }
}
