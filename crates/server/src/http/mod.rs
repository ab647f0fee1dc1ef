//! The HTTP frontend: Durable Streams, below a prefix of the path ([`Config::prefix`]), documents
//! below `/v1/documents/`, and the pages about the server in [`watch`].
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use brooklet_server::http::{Config, Http, serve};
//! use tokio_util::sync::CancellationToken;
//!
//! let (config, stop) = (Config::default(), CancellationToken::new());
//! let http = Http::new(brooklet::Store::open("store")?, config.clone(), stop.clone())?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:4437").await?;
//! tokio::spawn(http.clone().keep());
//! serve(listener, http.router(), &config, stop).await;
//! # Ok(())
//! # }
//! ```
//!
//! The routers serve every client. [`guard`] adds passwords, and keeps web pages of other origins
//! out.

mod body;
mod budget;
mod config;
mod documents;
mod guard;
mod limits;
mod origin;
mod patience;
mod reply;
mod serve;
mod strangers;
mod streams;
pub mod watch;

use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use axum::Router;
use brooklet::Store;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

pub(crate) use body::discard;
pub use config::Config;
pub(crate) use documents::{SPACE as DOCUMENTS, are_events, events_later};
pub use guard::{Access, guard};
pub use origin::Origin;
pub use serve::serve;
pub use strangers::welcome;
pub(crate) use streams::{SPACE as STREAMS, check_space as check_streams};

use crate::hot_logs::HotLogs;

/// The streams and the documents of a store, for HTTP. Clones are handles to the same.
#[derive(Clone)]
pub struct Http {
    streams: Arc<streams::Streams>,
    documents: Arc<documents::Face>,
    limits: Arc<limits::Limits>,
    gate: Option<Gate>,
}

/// An extension of the requests that come over TLS.
#[derive(Clone)]
pub(crate) struct OverTls;

/// Shut while the commits of another server are shown. Those who read the store hold it open.
type Gate = Arc<RwLock<()>>;

/// Where appends are noted for the pages about the server, if there are any.
type Noted = OnceLock<Arc<HotLogs>>;

fn note_append(noted: &Noted, log: &[u8], entries: usize, bytes: usize) {
    if let Some(hot_logs) = noted.get() {
        hot_logs.note(log, entries as u64, bytes as u64);
    }
}

/// Holds the gate open.
fn pass(gate: &Option<Gate>) -> Option<RwLockReadGuard<'_, ()>> {
    gate.as_ref().map(|gate| gate.read().unwrap_or_else(PoisonError::into_inner))
}

impl Http {
    /// Serves what `store` holds. Readers that wait are let go of, politely, as `stop` is
    /// cancelled.
    ///
    /// # Errors
    /// Where a space for streams or documents is not there and cannot be made, or drops logs of
    /// streams.
    pub fn new(store: Store, config: Config, stop: CancellationToken) -> Result<Self, brooklet::Error> {
        check_streams(&store)?;
        Self::open(store, config, stop, false)
    }

    /// Serves a store, or with `follows` one that shows the commits of another server.
    pub(crate) fn open(
        store: Store,
        config: Config,
        stop: CancellationToken,
        follows: bool,
    ) -> Result<Self, brooklet::Error> {
        let limits = limits::Limits::new(&config);
        let gate = follows.then(Gate::default);
        let documents = documents::Face::new(&store, &config, limits.clone(), gate.clone(), stop.clone())?;
        let streams = streams::Streams::new(store, config, limits.clone(), gate.clone(), stop)?;
        Ok(Self { streams, documents, limits, gate })
    }

    /// Has the pages about the server share the memory for replies, and show the busiest logs.
    pub(crate) fn show_on(&self, watch: &watch::Watch) {
        watch.share(self.limits.clone());
        for noted in [&self.streams.hot_logs, &self.documents.hot_logs] {
            // The first pages count, for as long as the server serves.
            let _ = noted.set(watch.hot_logs().clone());
        }
    }

    /// Shows commits of another server, which change these logs, while no request reads.
    pub(crate) fn show(&self, logs: &[Bytes], show: impl FnOnce()) {
        let Some(gate) = &self.gate else { return show() };
        let _shut = gate.write().unwrap_or_else(PoisonError::into_inner);
        show();
        self.streams.note_shown(logs);
        self.documents.note_shown(logs);
    }

    /// The routes of streams and documents, to be merged with others.
    pub fn router(&self) -> Router {
        welcome(self.streams.router().merge(self.documents.router()))
    }

    /// Removes streams that have expired, until the server stops. To be run beside it, once.
    pub async fn keep(self) {
        self.streams.keep_sweeping().await;
    }
}
