//! What the engine and HTTP leave for each other: the data of the page and of the metrics, and
//! wrong passwords.
//!
//! A commit that waits for room has the engine locked meanwhile, maybe for long. So HTTP never
//! locks the engine: the engine leaves its data here each second, and takes the wrong passwords
//! whenever it is locked.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::acl::{Entry, Log};
use super::client::Client;
use super::engine::Engine;
use super::notices::{Notice, Notices};
use super::serve::Shared;
use crate::http::watch::Watch;

/// Clients that are listed, those first that came first.
const LISTED: usize = 100;
/// Time between two looks at the engine, in milliseconds.
const EVERY: u64 = 1000;
/// Looks that follow a request of the page or of the metrics.
const LOOKS: u32 = 150;
/// Different wrong passwords that wait for the engine; the oldest go first.
const REFUSALS: usize = 128;

/// What the engine and HTTP leave for each other. Nobody waits while one of the locks is held.
pub struct Beside {
    notices: Arc<Notices>,
    shown: Mutex<Shown>,
    /// Looks that are taken before somebody asks again: a server that nobody watches takes none.
    looks: AtomicU32,
    /// Wrong passwords that the engine has not taken yet, and whether there are any.
    refusals: Mutex<Log>,
    has_refusals: AtomicBool,
}

/// What HTTP shows of the engine.
#[derive(Default)]
struct Shown {
    /// Time of the look at the engine.
    at: Option<u64>,
    clients: Value,
    figures: Figures,
}

#[derive(Clone, Copy, Default)]
struct Figures {
    clients: u64,
    waiting: u64,
    connections: u64,
    commands: u64,
    errors: u64,
    expired: u64,
    keys: u64,
    bytes: u64,
}

impl Beside {
    /// Returns what an engine with these notices and HTTP leave for each other: nothing yet.
    pub fn new(notices: Arc<Notices>) -> Self {
        let shown = Shown { clients: json!([]), ..Shown::default() };
        Self {
            notices,
            shown: Mutex::new(shown),
            looks: AtomicU32::new(LOOKS),
            refusals: Mutex::default(),
            has_refusals: AtomicBool::new(false),
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the data of the last look, and asks for the next ones.
    fn ask(&self) -> MutexGuard<'_, Shown> {
        self.looks.store(LOOKS, Ordering::Relaxed);
        self.shown()
    }

    /// Takes a look at the engine, if somebody asked lately and the last one is long enough ago.
    pub fn look(&self, engine: &mut Engine) {
        let now = engine.steady;
        let is_early = || self.shown().at.is_some_and(|at| now.saturating_sub(at) < EVERY);
        let left = self.looks.load(Ordering::Relaxed);
        if left == 0 || is_early() {
            return;
        }
        self.looks.store(left - 1, Ordering::Relaxed);
        let (clients, figures) = (list_clients(engine), Figures::of(engine));
        *self.shown() = Shown { at: Some(now), clients, figures };
    }

    /// Hands the wrong passwords over to the engine.
    pub fn hand_over(&self, engine: &mut Engine) {
        if !self.has_refusals.load(Ordering::Relaxed) || !self.has_refusals.swap(false, Ordering::AcqRel) {
            return;
        }
        let refusals = std::mem::take(&mut *self.refusals.lock().unwrap_or_else(PoisonError::into_inner));
        engine.refusals.append(refusals, engine.settings.acl_log);
    }
}

impl Shared {
    /// Adds the clients to the page, and the counters to the metrics.
    pub fn show_on(&self, watch: &Watch) {
        let beside = self.beside.clone();
        watch.show("clients", move || beside.ask().clients.clone());
        let beside = self.beside.clone();
        watch.append_metrics(move |text| {
            let figures = beside.ask().figures;
            figures.write_metrics(text);
        });
    }

    /// Notes for the log and for `ACL LOG` that a client of HTTP gave a wrong name or password.
    pub fn note_wrong_password(&self, user: &str, address: &str) {
        let refusal = Entry {
            count: 1,
            reason: "auth",
            context: "toplevel",
            object: b"HTTP".to_vec(),
            user: user.to_owned(),
            client: format!("addr={address}"),
            at: self.now().steady,
        };
        let mut refusals = self.beside.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.note(refusal, REFUSALS);
        self.beside.has_refusals.store(true, Ordering::Release);
        drop(refusals);
        let notice = Notice::WrongPassword { user: user.to_owned(), address: address.to_owned() };
        self.beside.notices.push(notice);
    }
}

fn list_clients(engine: &mut Engine) -> Value {
    let now = engine.steady;
    let seconds = |since: u64| now.saturating_sub(since) as f64 / 1000.0;
    let tell = |client: &mut Client| {
        json!({
            "client": client.id,
            "address": client.address,
            "name": String::from_utf8_lossy(&client.name),
            "last_command": client.last_command,
            "connected_seconds": seconds(client.since),
            "idle_seconds": seconds(client.last_seen),
            "memory_bytes": client.memory(),
        })
    };
    let mut ids: Vec<_> = engine.clients().map(|client| client.id).collect();
    ids.sort_unstable();
    ids.into_iter().take(LISTED).filter_map(|id| engine.client(id).map(tell)).collect()
}

impl Figures {
    fn of(engine: &Engine) -> Self {
        let (keys, bytes) = engine.keys.cached();
        Self {
            clients: engine.client_count() as u64,
            waiting: engine.waiting_count() as u64,
            connections: engine.stats.connections,
            commands: engine.stats.commands,
            errors: engine.stats.error_count(),
            expired: engine.stats.expired,
            keys: keys as u64,
            bytes: bytes as u64,
        }
    }

    fn write_metrics(&self, text: &mut String) {
        let families: [(&str, &str, &str, u64); 8] = [
            ("clients", "gauge", "Redis clients connected now.", self.clients),
            ("clients_waiting", "gauge", "Redis clients that wait for a key.", self.waiting),
            ("connections_total", "counter", "Redis clients connected since the start.", self.connections),
            ("commands_total", "counter", "Commands of Redis clients.", self.commands),
            ("errors_total", "counter", "Errors returned to Redis clients.", self.errors),
            ("expired_keys_total", "counter", "Keys that expired.", self.expired),
            ("keys_in_memory", "gauge", "Keys of Redis clients that are in memory.", self.keys),
            ("keys_memory_bytes", "gauge", "Bytes of memory of these keys.", self.bytes),
        ];
        for (name, kind, help, value) in families {
            _ = writeln!(text, "# HELP brooklet_redis_{name} {help}");
            _ = writeln!(text, "# TYPE brooklet_redis_{name} {kind}");
            _ = writeln!(text, "brooklet_redis_{name} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet::Store;

    use super::*;
    use crate::redis::{Settings, Users};

    #[test]
    fn the_page_and_the_metrics_show_the_first_clients_and_all_in_number() {
        let store = Store::in_memory(1).unwrap();
        let shared = Shared::new(store, Users::new(None), Settings::default(), 1 << 20, Arc::default());
        let mut engine = shared.lock();
        let beside = &shared.beside;
        let shown = || {
            let shown = beside.shown();
            let listed = shown.clients.as_array().unwrap();
            (listed.len(), listed.first().map(|client| client["client"].clone()), shown.figures.clients)
        };
        assert_eq!(shown(), (0, None, 0));
        for _ in 0..LISTED + 20 {
            engine.connect("1.2.3.4:5".into(), "here".into()).unwrap();
        }
        engine.steady = 1;
        beside.look(&mut engine);
        assert_eq!(shown(), (LISTED, Some(json!(1)), 120));
        engine.disconnect(1);
        beside.looks.store(0, Ordering::Relaxed);
        engine.steady = 1 + EVERY;
        beside.look(&mut engine);
        assert_eq!(shown(), (LISTED, Some(json!(1)), 120), "nobody asked lately");
        drop(beside.ask());
        engine.steady = EVERY;
        beside.look(&mut engine);
        assert_eq!(shown(), (LISTED, Some(json!(1)), 120), "the last look is less than a second ago");
        engine.steady = 1 + EVERY;
        beside.look(&mut engine);
        assert_eq!(shown(), (LISTED, Some(json!(2)), 119));
        let mut text = String::new();
        beside.shown().figures.write_metrics(&mut text);
        assert!(text.contains("\nbrooklet_redis_clients 119\n"), "{text}");
    }
}
