//! The store for people and their tools: metrics, health, and a live page. This module changes
//! nothing.
//!
//! `live` makes rates from two samples of the store (`point`), one each second, and keeps them for
//! the page. `runs` reads the data whose lock the store may hold for longer. `browse` lists logs
//! and entries, on threads that may wait for a device. `page` has the files of the page.

mod browse;
mod live;
mod memory;
mod page;
mod point;
mod probe;
mod query;
mod runs;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use brooklet::Store;
use brooklet::io::{Clock, SystemClock};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::hot_logs::HotLogs;
use crate::http::Config;
use crate::http::limits::Limits;
use crate::http::strangers::welcome;
use crate::replica::Upstream;
use live::History;
use memory::{LISTING, LOOK, within_memory};
pub(crate) use probe::TEXT;
use runs::Runs;

/// Time between two looks at the store.
const EVERY: Duration = Duration::from_secs(1);
/// Listings and reads at a time: where a device does not answer, no more threads than that wait for
/// it.
const BROWSING: usize = 16;

/// Figures that a frontend of the server adds to the page.
pub trait Extra: Send + Sync {
    /// Returns the figures of now. The server makes this call about once a second for each open
    /// page. The call must not wait for anything.
    ///
    /// An array of objects becomes a table, an object a list of figures. The ends of names
    /// determine units: the page shows values whose names end with `_bytes`, `_seconds`,
    /// `_per_second` or `_at` (seconds since the Unix epoch) with their units.
    fn tell(&self) -> Value;
}

impl<F: Fn() -> Value + Send + Sync> Extra for F {
    fn tell(&self) -> Value {
        self()
    }
}

type Append = Box<dyn Fn(&mut String) + Send + Sync>;

/// The source of the pages: a store, once it is open, and the figures that the server's frontends
/// add. Clones are handles to the same source.
#[derive(Clone)]
pub struct Watch(Arc<Inner>);

struct Inner {
    store: OnceLock<Store>,
    stopping: AtomicBool,
    clock: SystemClock,
    hot_logs: Arc<HotLogs>,
    history: History,
    runs: Runs,
    browsing: Arc<Semaphore>,
    extras: RwLock<Vec<(String, Box<dyn Extra>)>>,
    appended: RwLock<Vec<Append>>,
    upstream: OnceLock<Arc<dyn Upstream>>,
    /// The limits of all paths of HTTP, or own ones.
    limits: OnceLock<Arc<Limits>>,
}

impl Watch {
    /// Creates the source for a server that starts. The server is ready once it [has its
    /// store](Self::ready).
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            store: OnceLock::new(),
            stopping: AtomicBool::new(false),
            clock: SystemClock::new(),
            hot_logs: Arc::default(),
            history: History::default(),
            runs: Runs::default(),
            browsing: Arc::new(Semaphore::new(BROWSING)),
            extras: RwLock::default(),
            appended: RwLock::default(),
            upstream: OnceLock::new(),
            limits: OnceLock::new(),
        }))
    }

    /// Notes that the store is open, and the server takes requests. Only the first call counts.
    pub fn ready(&self, store: Store) {
        // The pages show the first store for as long as the process lives.
        let _ = self.0.store.set(store);
        self.look();
    }

    /// Notes that the server is one of a read replica.
    pub(crate) fn follow(&self, upstream: Arc<dyn Upstream>) {
        // There is one for as long as the server serves.
        let _ = self.0.upstream.set(upstream);
    }

    /// The replies are to share the memory of other paths.
    pub(crate) fn share(&self, limits: Arc<Limits>) {
        // The first ones count, for as long as the server serves.
        let _ = self.0.limits.set(limits);
    }

    fn limits(&self) -> &Limits {
        self.0.limits.get_or_init(|| Limits::new(&Config::default()))
    }

    /// Notes that the server stops: clients should send nothing new.
    pub fn stopping(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns the sketch in which frontends note their appends.
    pub fn hot_logs(&self) -> &Arc<HotLogs> {
        &self.0.hot_logs
    }

    /// Adds figures to the page, under this name.
    pub fn show(&self, name: impl Into<String>, extra: impl Extra + 'static) {
        self.0.extras.write().expect("no panics").push((name.into(), Box::new(extra)));
    }

    /// Adds families at the end of `/metrics`. `append` writes them in the text format of
    /// Prometheus.
    pub fn append_metrics(&self, append: impl Fn(&mut String) + Send + Sync + 'static) {
        self.0.appended.write().expect("no panics").push(Box::new(append));
    }

    /// Looks at the store each second, so that a page that is opened shows the last minutes. Ends
    /// never: run it beside the server.
    pub async fn keep(self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look();
        }
    }

    fn store(&self) -> Option<&Store> {
        self.0.store.get()
    }

    /// Why the server is not ready, if it is not.
    fn unready(&self) -> Option<String> {
        if self.0.stopping.load(Ordering::Relaxed) {
            return Some("the server is stopping".into());
        }
        let Some(store) = self.store() else {
            return Some("the server is starting: the store is not open yet".into());
        };
        let stopped = store.activity().stopped?;
        Some(format!("the store stopped writing, restart the server: {stopped}"))
    }

    fn now(&self) -> Duration {
        self.0.clock.now()
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// The routes: `/`, `/page/…`, `/api/…`, `/metrics`, `/healthz` and `/readyz`. All of them are only
/// read.
pub fn router(watch: Watch) -> Router {
    let looks = Router::new()
        .route("/metrics", get(probe::metrics))
        .route("/api/live", get(live::live))
        .layer(from_fn_with_state((watch.clone(), LOOK), within_memory));
    let listings = Router::new()
        .route("/api/logs", get(browse::logs))
        .route("/api/log", get(browse::log))
        .layer(from_fn_with_state((watch.clone(), LISTING), within_memory));
    // Probes have short replies, and are answered whatever the others hold.
    let live = Router::new()
        .route("/healthz", get(probe::healthz))
        .route("/readyz", get(probe::readyz))
        .merge(looks)
        .merge(listings)
        .layer(map_response(fresh))
        .with_state(watch);
    let page = Router::new().route("/", get(page::index)).route("/page/{name}", get(page::part));
    welcome(live.merge(page).layer(map_response(guarded)))
}

/// Forbids caches to keep a reply, which shows the state of one moment.
async fn fresh(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Makes browsers treat a reply as its declared type only: keys and payloads are bytes of others.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, page::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
