//! The lease of a server whose store another host may take over: while the server has the lease,
//! what a client reads here is not older than the client's request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio_util::sync::CancellationToken;

use crate::http::{are_events, events_later};

/// Time between two looks while replies wait for the lease.
pub(crate) const LOOK: Duration = Duration::from_millis(5);
/// The same for a reply over HTTP that has waited for long: thousands may wait.
const LONGEST: Duration = Duration::from_millis(100);

/// Whether this host still owns the store. Without it, replies that depend on the store's data wait
/// until the host has it again, or the server stops.
#[derive(Clone)]
pub struct Lease(Arc<dyn Fn() -> bool + Send + Sync>);

impl Lease {
    /// Returns the lease that a function looks up. `true` must mean that each read that ended
    /// before the call is linearizable.
    pub fn new(is_held: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_held))
    }

    /// Returns whether the server has the lease now.
    pub(crate) fn is_held(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.is_held()).finish()
    }
}

/// Holds the replies over HTTP back until the server has the lease. A server that stops meanwhile
/// reports the changes that were made, and refuses everything else. Who follows a document comes
/// again a second later.
pub(crate) async fn wait_for_it(
    State((lease, stop)): State<(Lease, CancellationToken)>,
    request: Request,
    next: Next,
) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let is_put = *request.method() == Method::PUT;
    let follows = are_events(request.method(), request.uri(), request.headers());
    let response = next.run(request).await;
    let mut pause = LOOK;
    while !lease.is_held() {
        let stops = tokio::time::timeout(pause, stop.cancelled()).await.is_ok();
        pause = (2 * pause).min(LONGEST);
        // A PUT that finds a stream as it should be has changed nothing. One that replaces a
        // document has the tag of the new version.
        let has_tag = response.headers().contains_key(header::ETAG);
        let is_found = is_put && response.status() == StatusCode::OK && !has_tag;
        let changed = response.status().is_success() && !is_found;
        if stops && !reads && changed {
            break;
        }
        if stops && follows {
            return events_later();
        }
        if stops {
            let why = "this host may not be the owner of the store any more: ask again\n";
            let headers = [(header::RETRY_AFTER, "1"), (header::CACHE_CONTROL, "no-store")];
            return (StatusCode::SERVICE_UNAVAILABLE, headers, why).into_response();
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::http;

    /// In the old state each reply looked 200 times in a second, however long the lease was away,
    /// and 16,000 replies may wait.
    #[tokio::test]
    async fn a_reply_that_waits_for_long_looks_seldom() {
        let looks = Arc::new(AtomicUsize::new(0));
        let of_lease = looks.clone();
        let lease = Lease::new(move || of_lease.fetch_add(1, Ordering::Relaxed) >= 100);
        let router = Router::new()
            .route("/", get(|| async { "read" }))
            .layer(from_fn_with_state((lease, CancellationToken::new()), wait_for_it));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tokio::spawn(async move {
            let config = http::Config { login: Duration::ZERO, ..http::Config::default() };
            http::serve(listener, router, &config, CancellationToken::new()).await;
        });
        client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await.unwrap();
        let looked = async {
            while looks.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), looked).await.expect("the reply waits");
        // From here on, the clock goes on only while nothing else does.
        tokio::time::pause();
        let begin = tokio::time::Instant::now();
        let mut reply = String::new();
        client.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        assert!(begin.elapsed() > Duration::from_secs(5));
    }

    #[tokio::test]
    async fn replies_over_http_wait_for_the_lease_or_the_end() {
        let (is_held, stop) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let of_lease = is_held.clone();
        let lease = Lease::new(move || of_lease.load(Ordering::Relaxed));
        let router = Router::new()
            .route("/", get(|| async { "read" }).post(|| async { "written" }))
            .layer(from_fn_with_state((lease, stop.clone()), wait_for_it));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            http::serve(listener, router, &http::Config::default(), CancellationToken::new()).await;
        });
        let ask = |request: &'static str| async move {
            let mut client = TcpStream::connect(address).await.unwrap();
            let text = format!("{request} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
            client.write_all(text.as_bytes()).await.unwrap();
            let mut reply = String::new();
            client.read_to_string(&mut reply).await.unwrap();
            reply[9..12].parse::<u16>().unwrap()
        };
        let waiting = tokio::spawn(ask("GET /"));
        tokio::time::sleep(4 * LOOK).await;
        assert!(!waiting.is_finished());
        is_held.store(true, Ordering::Relaxed);
        assert_eq!(waiting.await.unwrap(), 200);
        is_held.store(false, Ordering::Relaxed);
        stop.cancel();
        // A refusal depends on data that were read.
        assert_eq!([ask("GET /").await, ask("POST /none").await, ask("POST /").await], [503, 503, 200]);
    }

    /// Sends a request to a server that stops, and has no lease. Returns the replies.
    async fn replies_at_the_end<const N: usize>(requests: [&str; N]) -> [String; N] {
        let (lease, stop) = (Lease::new(|| false), CancellationToken::new());
        stop.cancel();
        let config = http::Config::default();
        let store = brooklet::Store::in_memory(1).unwrap();
        let of_store = http::Http::new(store, config.clone(), CancellationToken::new()).unwrap();
        let router = of_store.router().layer(from_fn_with_state((lease, stop), wait_for_it));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { http::serve(listener, router, &config, CancellationToken::new()).await });
        let mut replies = [const { String::new() }; N];
        for (request, reply) in requests.iter().zip(&mut replies) {
            let (line, rest) = request.split_once('\n').unwrap();
            let text = format!("{line} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n{rest}");
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(text.as_bytes()).await.unwrap();
            client.read_to_string(reply).await.unwrap();
        }
        replies
    }

    /// In an earlier state the client whose document was replaced was asked to send it again.
    #[tokio::test]
    async fn a_document_that_was_replaced_is_reported_at_the_end() {
        let replies = replies_at_the_end([
            "PUT /v1/documents/d\nif-none-match: *\r\ncontent-length: 1\r\n\r\n1",
            "PUT /v1/documents/d\nif-match: \"1\"\r\ncontent-length: 1\r\n\r\n2",
            "PUT /v1/stream/s\ncontent-length: 1\r\n\r\n1",
            // It finds the stream as it should be, and changes nothing.
            "PUT /v1/stream/s\ncontent-length: 1\r\n\r\n1",
        ]);
        assert_eq!(replies.await.map(|reply| reply[9..12].to_owned()), ["201", "200", "201", "503"]);
    }

    /// In an earlier state the status was 503, after which a browser asks no more.
    #[tokio::test]
    async fn a_browser_that_follows_a_document_comes_again_after_the_end() {
        let replies = replies_at_the_end([
            "GET /v1/documents/d\naccept: text/event-stream\r\n\r\n",
            "GET /v1/documents/d\n\r\n",
        ]);
        let [events, other] = replies.await;
        assert!(events.starts_with("HTTP/1.1 200 ") && events.contains("retry: 1000\n\n"), "{events}");
        assert!(other.starts_with("HTTP/1.1 503 "), "{other}");
    }
}
