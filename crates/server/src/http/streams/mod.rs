//! Durable Streams over HTTP: streams that clients create, append to, and read from any offset,
//! also while the streams grow.
//!
//! The protocol is that of <https://github.com/durable-streams/durable-streams>. The server parses
//! a request (`headers`, `name`, `offset`), finds its stream in memory or in the store (`registry`,
//! `stream`), and runs the module of its method: `create`, `append`, `get` (with `sse`), `remove`.
//! `metadata` has the metadata of streams.
//!
//! The server decides these open points of the protocol: `Stream-Seq` belongs to a stream, for all
//! writers. A producer is known as long as its stream, unless a thousand others wrote after it.
//! JSON messages keep their original text; a sub-offset of a fork counts them up to the end of the
//! source. Text in events that is not UTF-8 shows the replacement character, and every line end is
//! a line feed: such streams should have a binary type. Subscriptions are not offered.

mod append;
mod create;
mod draft;
mod get;
mod headers;
mod json;
mod metadata;
mod name;
mod offset;
mod read;
mod refusals;
mod registry;
mod remove;
mod sse;
mod stream;
mod sweep;
pub(super) mod time;

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{Method, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::any;
use brooklet::{SpaceConfig, SpaceInfo, Store, WhenFull};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::name::Name;
pub use self::name::SPACE;
use self::registry::Registry;
use self::remove::{Why, settled};
use self::stream::Stream;
use super::limits::Limits;
use super::{Config, Gate, Noted, discard, note_append, pass};
use crate::http::reply::{self, Refusal};

/// Calls that may wait for the store at once, of each kind: reads go on while writers wait for
/// room.
const WRITERS: usize = 96;
const READERS: usize = 64;
/// Longest wait of a reader until a stream that has expired is removed: the removal may wait for
/// room.
const REMOVAL: Duration = Duration::from_secs(1);
/// Notes of uses that wait at once, while the store has no room.
const USES: usize = 16_384;
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

/// The streams of a store.
pub struct Streams {
    store: Store,
    config: Config,
    registry: Registry,
    /// Held by who changes several streams as one, so that only one does.
    family: Mutex<()>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    uses: Arc<Semaphore>,
    limits: Arc<Limits>,
    /// If another server writes the store: shut while its commits are shown.
    gate: Option<Gate>,
    pub hot_logs: Noted,
    stop: CancellationToken,
}

impl Streams {
    pub fn new(
        store: Store,
        config: Config,
        limits: Arc<Limits>,
        gate: Option<Gate>,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, brooklet::Error> {
        if store.space(SPACE).is_err() {
            match store.create_space(SPACE, SpaceConfig::new()) {
                Ok(_) | Err(brooklet::Error::ReadOnly) => {}
                Err(error) => return Err(error),
            }
        }
        let longest_wait = config.long_poll.max(config.events).as_millis() as u64;
        Ok(Arc::new(Self {
            registry: Registry::new(config.cached, longest_wait),
            family: Mutex::default(),
            reads: Arc::new(Semaphore::new(READERS)),
            writes: Arc::new(Semaphore::new(WRITERS)),
            uses: Arc::new(Semaphore::new(USES)),
            limits,
            store,
            config,
            gate,
            hot_logs: Noted::new(),
            stop,
        }))
    }

    /// Notes what was appended to a stream, for the pages about the server.
    fn note(&self, name: &Name, messages: &[Bytes]) {
        if !messages.is_empty() {
            let bytes = messages.iter().map(Bytes::len).sum();
            note_append(&self.hot_logs, name.data().as_bytes(), messages.len(), bytes);
        }
    }

    /// Takes that the store shows commits of another server, which changed these logs.
    pub fn note_shown(&self, logs: &[Bytes]) {
        let names: BTreeSet<Name> = logs.iter().filter_map(|log| Name::of_log(log)).collect();
        for name in names {
            let Some(stream) = self.registry.find(&name) else { continue };
            if let Err(refusal) = stream.refresh(&self.store) {
                tracing::warn!(?refusal, %name, "a stream that changed cannot be read");
                self.registry.remove(&name);
            }
        }
    }

    pub fn router(self: &Arc<Self>) -> Router {
        let path = format!("{}{{*name}}", self.config.prefix);
        Router::new().route(&path, any(serve)).with_state(self.clone())
    }

    /// Does what may wait for the store on a thread that may.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        turns: &Arc<Semaphore>,
        work: impl FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = turns.clone().acquire_owned().await.expect("it is never closed");
        let streams = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let done = {
                let _passes = pass(&streams.gate);
                work(&streams)
            };
            drop(turn);
            done
        });
        done.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request panicked");
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed: see its log"))
        })
    }

    /// Does something to a stream, once more if it turns out not to be what it was thought to be. A
    /// refusal shows what others have written, so it waits as long as they do.
    async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        work: impl Fn(&Self, &Arc<Stream>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let of_work = stream.clone();
        let work = move |streams: &Self| match work(streams, &of_work) {
            Err(refusal) if refusal.is_stale => work(streams, &of_work),
            done => done,
        };
        match self.blocking(&self.writes, work).await {
            Err(refusal) => Err(stream.once_durable(refusal).await),
            done => done,
        }
    }

    /// A stream, looked up if need be, and removed if it has expired.
    async fn open(self: &Arc<Self>, name: &Name, is_read: bool) -> Result<Arc<Stream>, Refusal> {
        let stream = self.registry.get(name);
        if !stream.is_loaded() {
            let stream = stream.clone();
            self.blocking(&self.reads, move |streams| stream.turn(&streams.store).map(drop)).await?;
        }
        let seen = stream.seen();
        if seen.identity.is_some_and(|identity| !seen.gone && stream.is_expired(&identity)) {
            if self.gate.is_some() {
                // The owner removes it.
                return Err(Refusal::unknown(name));
            }
            let removal = async {
                let removed = self.write(&stream, |streams, stream| streams.remove(stream, Why::Expired));
                settled(removed.await?).await
            };
            if !is_read {
                removal.await?;
            } else if !matches!(tokio::time::timeout(REMOVAL, removal).await, Ok(Ok(()))) {
                // A store that takes no writes, or none for now, keeps it, unseen.
                tracing::debug!(%name, "a stream that has expired stays");
                return Err(Refusal::unknown(name));
            }
        }
        Ok(stream)
    }

    async fn answer(self: &Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Refusal> {
        let (head, mut body) = request.into_parts();
        let answer = self.answer_to(&head, &mut body).await;
        discard(&head, body, self.config.patience).await;
        answer
    }

    /// Answers a request. Takes its body if the answer depends on the body.
    async fn answer_to(self: &Arc<Self>, head: &Parts, body: &mut Body) -> Result<Response<Body>, Refusal> {
        let name = Name::of_path(head.uri.path(), &self.config.prefix)?;
        match head.method.clone() {
            Method::GET => {
                let asked = get::Request::of(&head.uri)?;
                self.get(self.open(&name, true).await?, asked, &head.headers).await
            }
            Method::HEAD => self.head(&*self.open(&name, true).await?),
            Method::POST => {
                let body = self.limits.bodies.collect(head, take(body)).await?;
                self.post(&self.open(&name, false).await?, &head.headers, body).await
            }
            Method::PUT => {
                let body = self.limits.bodies.collect(head, take(body)).await?;
                self.put(&self.open(&name, false).await?, head, body).await
            }
            Method::DELETE => {
                headers::expect_no_condition(&head.headers)?;
                self.delete(&self.open(&name, false).await?).await
            }
            method => {
                let why = format!("streams do not support {method}: use one of {METHODS}");
                Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, why).with(header::ALLOW, METHODS))
            }
        }
    }
}

/// Refuses a store whose space of streams drops logs. The space would first drop the logs that
/// change least: those with the metadata of streams.
pub fn check_space(store: &Store) -> Result<(), brooklet::Error> {
    let drops = |space: &SpaceInfo| {
        let memory = space.config.class.memory();
        space.name == SPACE && memory.is_some_and(|memory| memory.when_full == WhenFull::DropOldest)
    };
    if !store.spaces().iter().any(drops) {
        return Ok(());
    }
    let why = format!(
        "space {SPACE} drops its oldest logs when memory is full, and HTTP streams would lose their metadata: let the space refuse commits instead"
    );
    Err(brooklet::Error::InvalidSpace(why))
}

async fn serve(State(streams): State<Arc<Streams>>, request: Request<Body>) -> Response<Body> {
    let response = match *request.method() {
        Method::OPTIONS => reply::options(METHODS),
        _ => streams.answer(request).await.unwrap_or_else(Refusal::into_response),
    };
    reply::protect(response)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use brooklet::{Class, MemoryConfig};
    use futures_util::{StreamExt, stream};

    use super::*;

    /// Longer than anything here takes, however busy the machine is.
    const FOREVER: Duration = Duration::from_secs(120);

    /// In an earlier state the connection of a client broke off while it sent a body that nobody
    /// needed, and many clients did not hear why.
    #[tokio::test]
    async fn bodies_that_nobody_needs_are_taken_in() {
        const SIZE: usize = 1 << 20;
        const PARTS: usize = 8;
        let config = Config { body_budget: SIZE, max_body: SIZE, ..Config::default() };
        let limits = Limits::new(&config);
        let store = Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let ask = |method: Method, len: usize, is_open: bool| {
            let (streams, taken) = (streams.clone(), taken.clone());
            let parts = stream::iter((0..PARTS).map(move |_| {
                taken.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Bytes::from(vec![b'x'; len]))
            }));
            let body = Body::from_stream(parts.chain(stream::pending().take(usize::from(is_open))));
            let request = Request::builder().method(method).uri("/v1/stream/s").body(body).unwrap();
            async move {
                let answer = streams.answer(request).await;
                answer.map_or_else(|refusal| refusal.status, |response| response.status())
            }
        };
        // A body that has not ended has most of the memory.
        let holder = tokio::spawn(ask(Method::PUT, SIZE / PARTS - 1024, true));
        let is_taken = async {
            while taken.load(Ordering::Relaxed) < PARTS {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(FOREVER, is_taken).await.expect("the body is taken in");
        for (method, status) in [
            (Method::PUT, StatusCode::SERVICE_UNAVAILABLE),
            (Method::PATCH, StatusCode::METHOD_NOT_ALLOWED),
            (Method::DELETE, StatusCode::NOT_FOUND),
        ] {
            taken.store(0, Ordering::Relaxed);
            assert_eq!(ask(method.clone(), SIZE / PARTS / 2, false).await, status);
            assert_eq!(taken.load(Ordering::Relaxed), PARTS, "{method}");
        }
        holder.abort();
    }

    /// In the old state a full memory took the metadata of streams first, which changes least, and
    /// left their messages.
    #[test]
    fn a_space_that_drops_logs_is_refused() {
        for (when_full, is_refused) in [(WhenFull::DropOldest, true), (WhenFull::Refuse, false)] {
            let store = Store::in_memory(1).unwrap();
            let class = Class::Memory(MemoryConfig::new(1 << 20).when_full(when_full));
            store.create_space(SPACE, SpaceConfig::new().class(class)).unwrap();
            let refused = check_space(&store).err();
            assert_eq!(matches!(refused, Some(brooklet::Error::InvalidSpace(_))), is_refused, "{refused:?}");
        }
    }

    /// In the old state the memory for a body returned as its client left, while the body waited
    /// for its turn in the store all the same.
    #[test]
    fn a_body_counts_until_its_work_has_ended() {
        const SIZE: usize = 512 << 10;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = Config { body_budget: SIZE, max_body: SIZE, ..Config::default() };
        let limits = Limits::new(&config);
        let store = Store::in_memory(1).unwrap();
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let ask = |method: Method, len: usize| {
            let request = Request::builder().method(method).uri("/v1/stream/s");
            let request = request.header(header::CONTENT_TYPE, "text/plain");
            let (streams, request) = (streams.clone(), request.body(Body::from(vec![b'x'; len])).unwrap());
            async move { streams.answer(request).await.map(|response| response.status()) }
        };
        assert_eq!(runtime.block_on(ask(Method::PUT, 0)).unwrap(), StatusCode::CREATED);
        let collect = async || {
            let body = Body::from(vec![b'x'; SIZE]);
            let (head, ()) = Request::new(()).into_parts();
            let collected = streams.limits.bodies.collect(&head, body).await;
            collected.map(|_| ()).map_err(|refusal| refusal.status)
        };
        let stream = streams.registry.get(&Name::new("s").unwrap());
        let turn = stream.turn(&streams.store).unwrap();
        let meanwhile = runtime.block_on(async {
            let post = tokio::spawn(ask(Method::POST, SIZE));
            let has_turn = async {
                while streams.writes.available_permits() == WRITERS {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(FOREVER, has_turn).await.expect("the request has its turn");
            post.abort();
            assert!(post.await.unwrap_err().is_cancelled());
            collect().await
        });
        drop(turn);
        assert_eq!(meanwhile, Err(StatusCode::SERVICE_UNAVAILABLE));
        let mut tries = (0..50).map(|_| runtime.block_on(collect()));
        assert!(tries.any(|collected| collected.is_ok()), "the memory returns");
    }
}
