//! A server without a store: it waits until its host owns the store, and sends HTTP clients to the
//! owner meanwhile.
//!
//! Redis clients find a closed port. Most of them cannot be sent to another server, and a client or
//! a load balancer with several addresses tries the next one.

use std::fmt::Write;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use brooklet::Store;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http::{self, guard, welcome};
use crate::net::Listener;
pub use crate::replica::Owner;
use crate::server::{Config, Error, bind, check_spaces, check_wide, expect_free, runtime};
use crate::tls::Tls;

/// Longest time for replies under way at the end.
const GRACE: Duration = Duration::from_millis(200);

/// The owner of the store; `None` while there is none.
type Known = Arc<RwLock<Option<Owner>>>;

/// The HTTP ports of a host that stands by.
///
/// `/healthz` reports that the process lives. `/readyz` replies with 503, and `/` names the owner.
/// All other requests are sent to the owner by 307, or get 503 while its URL is unknown. Events of
/// a document end at once then: after a refusal, a browser does not connect again. The rules for
/// passwords and origins are those of the owner.
#[derive(Debug)]
pub struct Standby {
    owner: Known,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
    addresses: Vec<String>,
}

impl Standby {
    /// Begins to serve at the HTTP addresses of a configuration.
    ///
    /// # Errors
    /// The errors of [`serve`](crate::serve).
    pub fn start(config: &Config) -> Result<Self, Error> {
        let users = config.users()?;
        let tls = config.tls.as_ref().map(Tls::for_http).transpose().map_err(Error::Config)?;
        let runtime = runtime("brooklet-standby", 1)?;
        let listeners = runtime.block_on(bind(&config.http, tls.as_ref(), config.unix_socket_mode))?;
        if let Some(wide) = listeners.iter().find(|listener| listener.is_wide()) {
            check_wide(&wide.address(), &users)?;
        }
        let addresses = listeners.iter().map(Listener::address).collect();
        let (owner, stop) = (Known::default(), CancellationToken::new());
        let routes = router(owner.clone(), config.streams.patience);
        let router = guard(welcome(routes), Arc::new(users), config.streams.allow_origins.clone());
        let login = Duration::from_secs(config.settings.auth_timeout);
        // A takeover waits for the ports.
        let streams = http::Config { login, grace: GRACE, ..config.streams.clone() };
        let stopped = stop.clone();
        let serve = move || {
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for listener in listeners {
                    let (router, streams, stop) = (router.clone(), streams.clone(), stopped.clone());
                    tasks.spawn(async move { http::serve(listener, router, &streams, stop).await });
                }
                while tasks.join_next().await.is_some() {}
            });
        };
        let thread = thread::Builder::new().name("brooklet-standby".into()).spawn(serve);
        Ok(Self { owner, stop, thread: Some(thread.map_err(Error::Start)?), addresses })
    }

    /// Returns the addresses at which this serves.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Closes the ports, without waiting.
    pub fn close(&self) {
        self.stop.cancel();
    }

    /// Sets the owner that clients are sent to.
    pub fn set_owner(&self, owner: Option<Owner>) {
        *self.owner.write().unwrap_or_else(PoisonError::into_inner) = owner;
    }
}

/// Closes the ports, after the replies under way: then the server of the store can have them.
impl Drop for Standby {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a standby's ports panicked");
        }
    }
}

/// Returns an error if a server could not serve a store with these settings here: another process
/// has one of its addresses, or a space of the store is not fit for it. `has_http` is set if the
/// caller listens at the HTTP addresses itself.
///
/// # Errors
/// The errors of [`serve`](crate::serve).
pub fn check_serving(config: &Config, store: &Store, has_http: bool) -> Result<(), Error> {
    check_spaces(config, store, true)?;
    let http = config.http.iter().filter(|_| !has_http);
    config.redis.iter().chain(http).try_for_each(expect_free)
}

/// Checks the URL at which clients reach a host over HTTP: scheme, host and port. Returns it
/// without the slash at its end.
///
/// ```
/// use brooklet_server::standby::base_url;
/// assert_eq!(base_url("http://10.0.0.5:8379/").as_deref(), Ok("http://10.0.0.5:8379"));
/// assert!(base_url("10.0.0.5:8379").is_err() && base_url("https://host/path").is_err());
/// ```
///
/// # Errors
/// The reason why the text is no such URL.
pub fn base_url(text: &str) -> Result<String, String> {
    let wrong = |why: &str| format!("{text:?} is not a URL such as http://10.0.0.5:8379: {why}");
    let url: Uri = text.parse().map_err(|error| wrong(&format!("{error}")))?;
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return Err(wrong("it has no scheme, or no host"));
    };
    if !matches!(scheme, "http" | "https") {
        return Err(wrong("its scheme is neither http nor https"));
    }
    if authority.as_str().contains('@') || url.path_and_query().is_some_and(|rest| rest.as_str() != "/") {
        return Err(wrong("it has more than a scheme, a host and a port"));
    }
    Ok(format!("{scheme}://{authority}"))
}

fn router(owner: Known, patience: Duration) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/healthz", get(|| async { Json(json!({ "alive": true, "standby": true })) }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(move |owner: State<Known>, request: Request| elsewhere(owner, request, patience))
        .with_state(owner)
        .layer(axum::middleware::map_response(fresh))
}

/// Another host may be the owner a moment later.
async fn fresh(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

fn read(owner: &Known) -> Option<Owner> {
    owner.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn reason(owner: Option<&Owner>) -> String {
    match owner {
        Some(owner) => format!("this host stands by: the owner of the store is {}", owner.name),
        None => "this host stands by: the store has no owner at the moment".into(),
    }
}

async fn readyz(State(owner): State<Known>) -> Response {
    let owner = read(&owner);
    let reason = reason(owner.as_ref());
    let url = owner.and_then(|owner| owner.url);
    let body = json!({ "ready": false, "standby": true, "reason": reason, "owner": url });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

async fn metrics() -> Response {
    let mut text = String::new();
    for (name, value, help) in [
        (
            "brooklet_server_ready",
            0,
            "1 if the server is ready: not starting, not stopping, not standing by.",
        ),
        ("brooklet_server_standby", 1, "1 while the host stands by."),
    ] {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}")
            .expect("a string takes all");
    }
    ([(header::CONTENT_TYPE, http::watch::TEXT)], text).into_response()
}

async fn index(State(owner): State<Known>) -> Response {
    let owner = read(&owner);
    let reason = escaped(&reason(owner.as_ref()));
    let link = owner.and_then(|owner| owner.url).map(|url| escaped(&url));
    let link = link.map_or_else(String::new, |url| format!(r#" at <a href="{url}/">{url}</a>"#));
    let page = format!(
        "<!doctype html><meta charset=utf-8><title>Brooklet: standby</title><p>{reason}{link}.</p>\n"
    );
    ([(header::CONTENT_SECURITY_POLICY, "default-src 'none'")], Html(page)).into_response()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Sends a request to the owner, once its body has come, or after a time.
async fn elsewhere(State(owner): State<Known>, request: Request, patience: Duration) -> Response {
    let (head, body) = request.into_parts();
    http::discard(&head, body, patience).await;
    let owner = read(&owner);
    let Some(url) = owner.as_ref().and_then(|owner| owner.url.as_ref()) else {
        if http::are_events(&head.method, &head.uri, &head.headers) {
            return http::events_later();
        }
        let why = format!("{}; its URL is not known here\n", reason(owner.as_ref()));
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why).into_response();
    };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let to = [(header::LOCATION, format!("{url}{path}"))];
    (StatusCode::TEMPORARY_REDIRECT, to, reason(owner.as_ref()) + "\n").into_response()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write as _};
    use std::net::TcpStream;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;

    use super::*;

    fn ask(standby: &Standby, request: &str) -> String {
        ask_with(standby, request, "")
    }

    fn ask_with(standby: &Standby, request: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(&standby.addresses()[0]).unwrap();
        let text = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn start(password: Option<&str>) -> Standby {
        let http = vec!["127.0.0.1:0".parse().unwrap()];
        Standby::start(&Config { http, password: password.map(str::to_owned), ..Config::default() }).unwrap()
    }

    #[test]
    fn clients_are_sent_to_the_owner_once_it_is_known() {
        let standby = start(None);
        let none = ask(&standby, "PUT /v1/stream/a?x=1");
        assert!(none.starts_with("HTTP/1.1 503") && none.contains("retry-after: 1"), "{none}");
        let mut owner = Owner { name: "one".into(), url: None };
        standby.set_owner(Some(owner.clone()));
        let unknown = ask(&standby, "GET /v1/stream/a");
        assert!(unknown.starts_with("HTTP/1.1 503") && unknown.contains("the owner of the store is one"));
        owner.url = Some("http://10.0.0.5:1".into());
        standby.set_owner(Some(owner));
        for path in ["/v1/stream/a?x=1", "//other.example/a", "/v1/documents/a%0d%0a", "/api/logs"] {
            let sent = ask(&standby, &format!("POST {path}"));
            assert!(sent.starts_with("HTTP/1.1 307"), "{sent}");
            assert!(sent.contains(&format!("location: http://10.0.0.5:1{path}\r\n")), "{sent}");
            assert!(sent.contains("cache-control: no-store"));
        }
        let page = ask(&standby, "GET /");
        assert!(page.starts_with("HTTP/1.1 200") && page.contains(r#"<a href="http://10.0.0.5:1/">"#));
    }

    /// In an earlier state the status was 503 while there was no owner, after which a browser asks
    /// no more.
    #[test]
    fn a_browser_that_follows_a_document_comes_again() {
        let standby = start(None);
        let accept = "Accept: text/event-stream\r\n";
        let none = ask_with(&standby, "GET /v1/documents/d?since=3", accept);
        assert!(none.starts_with("HTTP/1.1 200 ") && none.contains("retry: 1000\n\n"), "{none}");
        assert!(none.contains("content-type: text/event-stream\r\n"), "{none}");
        // Programs read the status.
        for request in ["GET /v1/stream/s?offset=-1&live=sse", "PUT /v1/documents/d"] {
            let refused = ask_with(&standby, request, accept);
            assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1"), "{refused}");
        }
        standby.set_owner(Some(Owner { name: "one".into(), url: Some("http://10.0.0.5:1".into()) }));
        let sent = ask_with(&standby, "GET /v1/documents/d?since=3", accept);
        assert!(sent.contains("location: http://10.0.0.5:1/v1/documents/d?since=3\r\n"), "{sent}");
    }

    /// In an earlier state the connection broke off while the client sent its body. Many clients
    /// heard no reply then.
    #[test]
    fn a_client_that_sends_a_long_body_hears_who_the_owner_is() {
        let standby = start(None);
        standby.set_owner(Some(Owner { name: "one".into(), url: Some("http://10.0.0.5:1".into()) }));
        let mut stream = TcpStream::connect(&standby.addresses()[0]).unwrap();
        // More than the buffers of the system take.
        let (head, len) = ("PUT /v1/documents/d HTTP/1.1\r\nHost: localhost\r\nConnection: close", 32 << 20);
        stream.write_all(format!("{head}\r\nContent-Length: {len}\r\n\r\n").as_bytes()).unwrap();
        stream.write_all(&vec![b'1'; len]).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 307 "), "{reply}");
        // One that waits before it sends the body is not asked for it.
        let headers = "Content-Length: 9\r\nExpect: 100-continue\r\n";
        let sent = ask_with(&standby, "PUT /v1/documents/d", headers);
        assert!(sent.starts_with("HTTP/1.1 307 "), "{sent}");
    }

    /// Such as one that was stopped. In an earlier state the look waited for the process, once as
    /// many looks as the system lets wait had come: a standby looks ten times a second.
    #[test]
    fn a_look_at_an_address_waits_for_no_process_that_accepts_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listening = UnixListener::bind(&path).unwrap();
        let (done, looks) = mpsc::channel();
        let look = move || {
            let address = format!("unix:{}", path.display()).parse().unwrap();
            let free = (0..5_000).filter(|_| expect_free(&address).is_ok()).count();
            let _ = done.send(free);
        };
        drop(thread::Builder::new().spawn(look).unwrap());
        assert_eq!(looks.recv_timeout(Duration::from_secs(100)), Ok(0));
    }

    /// In an earlier state a host with such an address took the store over, and ended then.
    #[test]
    fn a_path_at_which_no_socket_can_be_made_is_not_free() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        drop(UnixListener::bind(folder.path().join("left")).unwrap());
        for (name, is_free) in [("new", true), ("left", true), ("file", false), ("none/socket", false)] {
            let address = format!("unix:{}", folder.path().join(name).display()).parse().unwrap();
            assert_eq!(expect_free(&address).is_ok(), is_free, "{name}");
        }
    }

    #[test]
    fn probes_say_that_the_host_lives_and_is_not_ready() {
        let standby = start(Some("secret"));
        let address = standby.addresses()[0].clone();
        assert!(ask(&standby, "GET /healthz").starts_with("HTTP/1.1 200"));
        standby.set_owner(Some(Owner { name: "<one>".into(), url: None }));
        let ready = ask(&standby, "GET /readyz");
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("the owner of the store is <one>"));
        // All else needs the password.
        for path in ["/v1/stream/a", "/metrics"] {
            assert!(ask(&standby, &format!("GET {path}")).starts_with("HTTP/1.1 401"), "{path}");
        }
        let metrics = ask(&start(None), "GET /metrics");
        assert!(
            metrics.contains("\nbrooklet_server_ready 0\n")
                && metrics.contains("\nbrooklet_server_standby 1\n")
        );
        // Its end frees the port.
        drop(standby);
        std::net::TcpListener::bind(address).unwrap();
    }

    #[test]
    fn a_client_that_says_half_of_a_request_does_not_hold_up_the_end() {
        // The server of a store would wait for so long.
        let never = Duration::from_secs(3600);
        let streams = http::Config { patience: never, grace: never, ..http::Config::default() };
        let http = vec!["127.0.0.1:0".parse().unwrap()];
        let standby = Standby::start(&Config { http, streams, ..Config::default() }).unwrap();
        let mut slow = TcpStream::connect(&standby.addresses()[0]).unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
        ask(&standby, "GET /healthz");
        let (ends, ended) = mpsc::channel();
        let end = move || {
            drop(standby);
            ends.send(()).unwrap();
        };
        thread::Builder::new().spawn(end).unwrap();
        ended.recv_timeout(Duration::from_secs(120)).expect("it ends");
    }

    #[test]
    fn a_page_shows_names_as_text() {
        let standby = start(None);
        standby.set_owner(Some(Owner { name: "<b>\"one\"</b>".into(), url: None }));
        assert!(ask(&standby, "GET /").contains("is &lt;b&gt;&quot;one&quot;&lt;/b&gt;."));
    }

    #[test]
    fn urls_have_a_scheme_a_host_and_a_port() {
        for url in ["https://a.example", "http://[::1]:80", "http://host:8379"] {
            assert_eq!(base_url(url).as_deref(), Ok(url));
        }
        for text in [
            "",
            "host:80",
            "/path",
            "ftp://host",
            "http://",
            "http://u:p@host",
            "http://host/p",
            "http://host/?q",
            "http://a b",
        ] {
            assert!(base_url(text).is_err(), "{text:?}");
        }
    }
}
