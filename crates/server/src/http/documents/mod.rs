//! Documents over HTTP: JSON values that clients read, patch at an expected version, take back to
//! an earlier version, and follow.
//!
//! Documents are those of `brooklet-documents`, in the space `documents`. The server parses a
//! request (`name`, `asked`), and runs the module of its method: `read`, `write`, or `events`.
//! `shown` has the JSON of replies, and `problem` that of refusals (RFC 9457).

mod asked;
mod body;
mod events;
mod name;
mod places;
mod problem;
mod read;
mod shown;
#[cfg(test)]
mod stuck;
mod write;

use std::mem::take;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::{any, get};
use brooklet::{SpaceConfig, Store};
use brooklet_documents::{Answer, Documents, Json, Options};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use self::asked::Asked;
use self::body::Taken;
pub use self::events::later as events_later;
use self::places::{Place, Places};
use self::problem::{Kind, Problem};
use super::budget::{Share, hold};
use super::limits::Limits;
use super::reply::{expect_whole, options, protect, set};
use super::{Config, Gate, Noted, discard, note_append, pass};

/// The space that documents are in.
pub const SPACE: &str = "documents";
/// Where documents are: the rest of a path names the document.
const PREFIX: &str = "/v1/documents/";
/// Calls that may wait for the store at once, of each kind: reads go on while writers wait.
const WRITERS: usize = 96;
/// Fewer: each may build a document, and the text of a reply, before the reply's size is known.
const READERS: usize = 16;
/// Readers of documents that others have in use: their writers may wait for room.
const LATE_READERS: usize = 16;
/// Writers that may build a document, too: a request of a few bytes is enough for one of many MB.
const LOADERS: usize = 16;
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// The documents of a store.
pub struct Face {
    documents: Documents<Json>,
    config: Config,
    reads: Arc<Semaphore>,
    late_reads: Arc<Semaphore>,
    late_places: Arc<Places>,
    writes: Arc<Semaphore>,
    write_places: Arc<Places>,
    loads: Arc<Semaphore>,
    load_places: Arc<Places>,
    limits: Arc<Limits>,
    gate: Option<Gate>,
    pub hot_logs: Noted,
    stop: CancellationToken,
}

impl Face {
    pub fn new(
        store: &Store,
        config: &Config,
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
        let options = Options::new(format!("{SPACE}/")).background(gate.is_none());
        let documents = Documents::open(store, Json::new(), options);
        Ok(Arc::new(Self {
            documents: documents.expect("the options are valid"),
            reads: Arc::new(Semaphore::new(READERS)),
            late_reads: Arc::new(Semaphore::new(LATE_READERS)),
            late_places: Places::new(LATE_READERS),
            writes: Arc::new(Semaphore::new(WRITERS)),
            write_places: Places::new(WRITERS),
            loads: Arc::new(Semaphore::new(LOADERS)),
            load_places: Places::new(LOADERS),
            limits,
            config: config.clone(),
            gate,
            hot_logs: Noted::new(),
            stop,
        }))
    }

    /// Notes a change of a document of so many bytes, for the pages about the server. Returns the
    /// answer to the change.
    fn note(&self, name: &[u8], answer: Answer, bytes: usize) -> Answer {
        if !answer.repeated {
            note_append(&self.hot_logs, &[SPACE.as_bytes(), b"/", name].concat(), 1, bytes);
        }
        answer
    }

    /// Takes that the store shows commits of another server, which changed these logs.
    pub fn note_shown(&self, logs: &[Bytes]) {
        logs.iter().for_each(|log| self.documents.note_written(log));
    }

    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route(&format!("{PREFIX}{{*name}}"), any(serve))
            .route(&format!("{}{{kind}}", problem::PREFIX), get(problem::explain))
            .with_state(self.clone())
    }

    /// Does on another thread what may wait for the store.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        turns: &Arc<Semaphore>,
        work: impl FnOnce(&Self) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = turns.clone().acquire_owned().await.expect("it is never closed");
        self.with_turn(turn, work).await
    }

    /// Does on another thread what reads a document. If others have the document in use, it gets a
    /// turn of another kind, so that all other documents are read meanwhile.
    async fn reading<T: Send + 'static>(
        self: &Arc<Self>,
        name: &[u8],
        work: impl FnOnce(&Self) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = self.reads.clone().acquire_owned().await.expect("it is never closed");
        if self.documents.is_busy(name) {
            drop(turn);
            let turn = turn_of(&self.late_places, &self.late_reads, name).await;
            return self.with_turn(turn, work).await;
        }
        self.with_turn(turn, work).await
    }

    /// Returns a turn to read a document, and memory for the reply. Readers of a document that
    /// others have in use wait for their turn without memory: all other replies need it.
    async fn turn_with_memory(&self, name: &[u8]) -> Result<(Turn, Share), Problem> {
        if !self.documents.is_busy(name) {
            let share = self.limits.replies.take(self.config.chunk).await?;
            let turn = self.reads.clone().acquire_owned().await.expect("it is never closed");
            if !self.documents.is_busy(name) {
                return Ok(((turn, None), share));
            }
        }
        let turn = turn_of(&self.late_places, &self.late_reads, name).await;
        Ok((turn, self.limits.replies.take(self.config.chunk).await?))
    }

    /// Does on another thread what may wait for the store, and has its turn.
    async fn with_turn<T: Send + 'static>(
        self: &Arc<Self>,
        turn: impl Send + 'static,
        work: impl FnOnce(&Self) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let face = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let done = {
                let _passes = pass(&face.gate);
                work(&face)
            };
            drop(turn);
            done
        });
        done.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request on a document panicked");
            Err(Problem::new(Kind::Failed, "the server failed: see its log"))
        })
    }

    /// Changes a document, whose state the change needs: `reads_history` if it needs more.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        name: &[u8],
        reads_history: bool,
        work: impl FnOnce(&Self) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        // The turn among the loaders comes first: who waits for it keeps nobody from writing.
        let is_load = reads_history || !self.documents.is_loaded(name);
        let turn = match is_load {
            true => Some(turn_of(&self.load_places, &self.loads, name).await),
            false => None,
        };
        let work = move |face: &Self| {
            let done = work(face);
            drop(turn);
            done
        };
        self.writing(name, work).await
    }

    /// Does on another thread what writes a document.
    async fn writing<T: Send + 'static>(
        self: &Arc<Self>,
        name: &[u8],
        work: impl FnOnce(&Self) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = turn_of(&self.write_places, &self.writes, name).await;
        self.with_turn(turn, work).await
    }

    /// Makes the body of a reply about a document, within the memory for replies.
    async fn body<T: Send + 'static>(
        self: &Arc<Self>,
        name: &[u8],
        work: impl FnOnce(&Self) -> Result<(T, Vec<u8>), Problem> + Send + 'static,
    ) -> Result<(T, Bytes), Problem> {
        let (turn, share) = self.turn_with_memory(name).await?;
        // The share goes with the work, which goes on where the client leaves.
        let work = move |face: &Self| work(face).map(|made| (made, share));
        let ((found, body), mut share) = self.with_turn(turn, work).await?;
        self.limits.replies.grow(&mut share, body.len()).await?;
        Ok((found, hold(body.into(), Some(share))))
    }

    /// Returns the version of a document here, if this is a read replica that is behind the version
    /// which a client asks for.
    fn behind(&self, problem: &Problem, newest: u64) -> Option<u64> {
        problem.version().filter(|version| self.gate.is_some() && *version < newest)
    }

    /// Returns whether the version of a document that a client has seen is not here yet: there is
    /// no document, and the deletion of that version is not here either.
    fn lacks(&self, name: &[u8], newest: u64) -> Result<bool, Problem> {
        Ok(self.documents.version(name)?.is_none() && self.documents.deleted_up_to(name)? < newest)
    }

    async fn read(
        self: &Arc<Self>,
        method: Method,
        name: Vec<u8>,
        asked: Asked,
    ) -> Result<Response<Body>, Problem> {
        let (newest, follows) = (asked.newest(), asked.wants_events && method == Method::GET);
        if self.gate.is_some() && newest > 0 {
            let document = name.clone();
            if self.reading(&name, move |face| face.lacks(&document, newest)).await? {
                return later(follows, "this read replica does not have the document yet: ask again".into());
            }
        }
        let read = match method {
            Method::HEAD => self.head(name, asked).await,
            _ if follows => self.events(name, &asked).await,
            _ => self.get(name, asked).await,
        };
        let problem = match read {
            Err(problem) => problem,
            read => return read,
        };
        match self.behind(&problem, newest) {
            Some(version) => {
                let why = format!("this read replica has version {version}, and not yet {newest}: ask again");
                later(follows, why)
            }
            None => Err(problem),
        }
    }

    async fn answer(self: &Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Problem> {
        let (head, mut body) = request.into_parts();
        let answer = self.answer_to(&head, &mut body).await;
        discard(&head, body, self.config.patience).await;
        answer
    }

    /// Answers a request. Takes its body if the answer depends on the body.
    async fn answer_to(self: &Arc<Self>, head: &Parts, body: &mut Body) -> Result<Response<Body>, Problem> {
        let name = name::of_path(head.uri.path())?;
        let asked = Asked::of(head)?;
        match head.method.clone() {
            method @ (Method::GET | Method::HEAD) => self.read(method, name, asked).await,
            Method::PUT => {
                expect_whole(&head.headers)?;
                let body = Taken::collect(&self.limits, head, take(body)).await?;
                self.put(name, asked, body).await
            }
            Method::PATCH => {
                let body = Taken::collect(&self.limits, head, take(body)).await?;
                self.patch(name, asked, body).await
            }
            Method::POST => self.post(name, asked).await,
            Method::DELETE => self.delete(name, asked).await,
            method => {
                let why = format!("documents do not support {method}: use one of {METHODS}");
                Err(Problem::new(Kind::Method, why).with(header::ALLOW, METHODS))
            }
        }
    }
}

/// A turn among all documents, and the place of the request among those for its document. Requests
/// for a document that nobody has in use need no place.
type Turn = (OwnedSemaphorePermit, Option<Place>);

/// Waits for a turn. The place comes first: who waits for it keeps no other document waiting.
async fn turn_of(places: &Arc<Places>, turns: &Arc<Semaphore>, name: &[u8]) -> Turn {
    let place = places.take(name).await;
    (turns.clone().acquire_owned().await.expect("it is never closed"), Some(place))
}

/// Returns whether a request is one for the events of a document. A host that cannot serve it now
/// replies with [`events_later`]: after a refusal, a browser does not ask again.
pub fn are_events(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    *method == Method::GET && uri.path().starts_with(PREFIX) && asked::accepts_events(headers)
}

/// Asks a client to come again later: `follows` if it wants events.
fn later(follows: bool, why: String) -> Result<Response<Body>, Problem> {
    match follows {
        true => Ok(events::later()),
        false => Err(Problem::busy(why)),
    }
}

async fn serve(State(face): State<Arc<Face>>, request: Request<Body>) -> Response<Body> {
    let response = match *request.method() {
        Method::OPTIONS => {
            let mut response = options(METHODS);
            set(response.headers_mut(), write::ACCEPT_PATCH, write::PATCHES);
            response
        }
        _ => face.answer(request).await.unwrap_or_else(IntoResponse::into_response),
    };
    protect(response)
}

/// Returns a reply with JSON that is true now.
fn json(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-cache"),
        // The same address has events.
        (header::VARY, "Accept"),
    ];
    (status, headers, body.into()).into_response()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use brooklet_documents::JsonChange;
    use futures_util::stream;
    use serde_json::json;

    use super::*;

    /// In an earlier state the connection of a client broke off while it sent a body that nobody
    /// needed, and many clients did not hear why.
    #[tokio::test]
    async fn bodies_that_nobody_needs_are_taken_in() {
        let (store, config) = (Store::in_memory(1).unwrap(), Config::default());
        let face = Face::new(&store, &config, Limits::new(&config), None, CancellationToken::new()).unwrap();
        // A POST without `?rewind`, a version that is none, and no document.
        for (method, tag) in [("POST", "*"), ("PUT", "x"), ("DELETE", "\"7\"")] {
            let taken = Arc::new(AtomicUsize::new(0));
            let count = taken.clone();
            let body = Body::from_stream(stream::iter((0..8).map(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Bytes::from_static(b"[]"))
            })));
            let request = Request::builder().method(method).uri(format!("{PREFIX}d"));
            assert!(face.answer(request.header("if-match", tag).body(body).unwrap()).await.is_err());
            assert_eq!(taken.load(Ordering::Relaxed), 8, "{method}");
        }
    }

    /// A request of few bytes that loads a document has a turn among few.
    #[tokio::test]
    async fn writers_that_load_a_document_take_turns() {
        let store = Store::in_memory(1).unwrap();
        let config = Config::default();
        let open =
            || Face::new(&store, &config, Limits::new(&config), None, CancellationToken::new()).unwrap();
        let first = open();
        for name in ["hot", "cold"] {
            first.documents.create(name, name, &json!({}).into()).unwrap();
        }
        let face = open();
        face.documents.get("hot").unwrap();
        let send = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(format!("{PREFIX}{path}"));
            let request =
                request.header("if-match", "*").header("content-type", "application/merge-patch+json");
            let (face, request) = (face.clone(), request.body(Body::from("{}")).unwrap());
            tokio::spawn(async move { face.answer(request).await.map(|response| response.status()) })
        };
        let all = face.loads.clone().acquire_many_owned(LOADERS as u32).await.unwrap();
        assert_eq!(send("PATCH", "hot").await.unwrap().unwrap(), StatusCode::OK);
        let mut waiting = [send("PATCH", "cold"), send("POST", "hot?rewind=1")];
        for request in &mut waiting {
            assert!(tokio::time::timeout(Duration::from_millis(50), request).await.is_err());
        }
        drop(all);
        for request in waiting {
            assert_eq!(request.await.unwrap().unwrap(), StatusCode::OK);
        }
    }

    /// In the old state a client that came with a version of the owner was refused for good.
    #[tokio::test]
    async fn a_replica_that_is_behind_asks_for_patience() {
        let store = Store::in_memory(1).unwrap();
        let config = Config::default();
        let (limits, gate) = (Limits::new(&config), Some(Gate::default()));
        let face = Face::new(&store, &config, limits, gate, CancellationToken::new()).unwrap();
        face.documents.create("doc", "1", &json!({}).into()).unwrap();
        let ask = async |method: &str, query: &str, name: &str, value: &str| {
            let request = Request::builder().method(method).uri(format!("{PREFIX}doc{query}"));
            let request = request.header(name, value).body(Body::empty()).unwrap();
            face.answer(request).await.unwrap_or_else(IntoResponse::into_response)
        };
        for (method, query, name, value, status) in [
            ("GET", "?since=1", "accept", "*/*", 200_u16),
            ("GET", "?since=2", "accept", "*/*", 503),
            ("GET", "?at=2", "accept", "*/*", 503),
            ("GET", "", "if-match", "\"2\"", 503),
            ("HEAD", "", "if-match", "\"2\"", 503),
            ("GET", "", "if-match", "\"0\"", 412),
        ] {
            let response = ask(method, query, name, value).await;
            assert_eq!(response.status(), status, "{method} {query} {value}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), status == 503);
        }
        // A browser connects again after the end of a reply, and never after a refusal.
        let response = ask("GET", "?since=2", "accept", "text/event-stream").await;
        assert_eq!(response.status(), StatusCode::OK);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(body, "retry: 1000\n\n");
    }

    /// In an earlier state such a client learned that the document was deleted, or does not exist.
    #[tokio::test]
    async fn a_replica_that_has_no_document_yet_asks_for_patience() {
        let store = Store::in_memory(1).unwrap();
        let config = Config { events: Duration::ZERO, ..Config::default() };
        let (limits, gate) = (Limits::new(&config), Some(Gate::default()));
        let face = Face::new(&store, &config, limits, gate, CancellationToken::new()).unwrap();
        let ask = async |method: &str, query: &str, name: &str, value: &str| {
            let request = Request::builder().method(method).uri(format!("{PREFIX}doc{query}"));
            let request = request.header(name, value).body(Body::empty()).unwrap();
            face.answer(request).await.unwrap_or_else(IntoResponse::into_response)
        };
        let asked = [
            ("GET", "?since=2", "accept", "*/*"),
            ("GET", "?at=2", "accept", "*/*"),
            ("GET", "", "if-match", "\"2\""),
            ("HEAD", "", "if-match", "\"2\""),
        ];
        for (method, query, name, value) in asked {
            let status = ask(method, query, name, value).await.status();
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{method} {query} {value}");
        }
        assert_eq!(ask("GET", "", "accept", "*/*").await.status(), StatusCode::NOT_FOUND);
        let follow = async || {
            let body = ask("GET", "?since=2", "accept", "text/event-stream").await.into_body();
            String::from_utf8(axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap()
        };
        assert_eq!(follow().await, "retry: 1000\n\n");
        // The document comes, and its deletion.
        face.documents.create("doc", "1", &json!({}).into()).unwrap();
        face.documents.patch("doc", 1, "2", &JsonChange::merge(json!({"a": 1}))).unwrap();
        face.documents.delete("doc", 2).unwrap();
        for (method, query, name, value) in asked {
            let status = ask(method, query, name, value).await.status();
            assert_eq!(status, StatusCode::NOT_FOUND, "{method} {query} {value}");
        }
        let events = follow().await;
        assert!(events.contains("event: deleted"), "{events}");
    }
}
