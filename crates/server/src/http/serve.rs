//! Connections: their number, their timeouts, and their end.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Config;
use super::body::Stop;
use super::patience::Patient;
use super::strangers::Strangers;
use crate::net::HURRY;

/// Most bytes of a request's head, and most headers in it.
const MAX_HEAD: usize = 32 << 10;
const MAX_HEADERS: usize = 64;

/// Serves `router` to all clients that connect, until `stop` is cancelled. The call then takes no
/// more connections, completes the requests under way, and returns, after [`Config::grace`] at the
/// latest.
///
/// Connections on which no request has reached the routes of [`Http`](super::Http), of
/// [`watch`](super::watch) or of [`welcome`](super::welcome) are strangers: they have a quarter of
/// the places, and the time [`Config::login`]. If places are missing, the oldest stranger is
/// disconnected.
///
/// Connections over TCP should not wait to fill packets (`TcpStream::set_nodelay`, by
/// [`axum::serve::ListenerExt::tap_io`]): events are small.
pub async fn serve(
    mut listener: impl Listener<Addr: ToString>,
    router: Router,
    config: &Config,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(config.max_connections));
    let strangers = Strangers::new(config.max_connections);
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(config.patience);
    http.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    loop {
        let accept = async {
            let (io, address) = listener.accept().await;
            if places.available_permits() == 0 {
                strangers.dismiss_oldest();
            }
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (place, io, address.to_string())
        };
        let (place, io, address) = tokio::select! {
            accepted = accept => accepted,
            () = stop.cancelled() => break,
        };
        let io = TokioIo::new(Patient::new(io, config.patience));
        let (caller, routes) = (strangers.admit(address), TowerToHyperService::new(router.clone()));
        let (of, ends) = (caller.clone(), Stop(stop.clone()));
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(of.clone());
            request.extensions_mut().insert(ends.clone());
            routes.call(request)
        });
        let mut connection = Box::pin(http.serve_connection(io, service));
        let (stop, abort, login) = (stop.clone(), abort.clone(), config.login);
        connections.spawn(async move {
            let _place = place;
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = caller.dismissed(login) => Ok(()),
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        ended = &mut connection => ended,
                        () = abort.cancelled() => Ok(()),
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke off");
            }
        });
    }
    drop(listener);
    connections.close();
    let grace = if config.hurry.is_cancelled() { config.grace.min(HURRY) } else { config.grace };
    if tokio::time::timeout(grace, connections.wait()).await.is_err() {
        abort.cancel();
        connections.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;
    use crate::http::{Access, guard};

    /// Stops a server with a request that never ends. Returns the wait for it, on a clock that goes
    /// on only while nothing else does.
    async fn wait_for_a_request(hurries: bool) -> Duration {
        let config = Config { login: Duration::ZERO, ..Config::default() };
        let (begun, stop, hurry) = (Arc::new(Notify::new()), CancellationToken::new(), config.hurry.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = {
            let (begun, stop) = (begun.clone(), stop.clone());
            let hang = || async move {
                begun.notify_one();
                std::future::pending::<()>().await;
            };
            let router = Router::new().route("/", get(hang));
            tokio::spawn(async move { serve(listener, router, &config, stop).await })
        };
        client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        begun.notified().await;
        tokio::time::pause();
        let begin = Instant::now();
        if hurries {
            hurry.cancel();
        }
        stop.cancel();
        server.await.unwrap();
        begin.elapsed()
    }

    #[tokio::test]
    async fn a_server_in_a_hurry_waits_less_for_requests() {
        let grace = Config::default().grace;
        assert!(wait_for_a_request(false).await >= grace);
        tokio::time::resume();
        assert!((HURRY..grace).contains(&wait_for_a_request(true).await));
    }

    /// Accepts no password, and notifies of each.
    struct Nobody(Arc<Notify>);

    impl Access for Nobody {
        fn is_open(&self) -> bool {
            false
        }

        fn accepts(&self, _: &str, _: &[u8]) -> bool {
            self.0.notify_one();
            false
        }
    }

    /// In the old state a stranger who sent the body of a refused request slowly held up the stop
    /// of the server, for as long as a request of a client may.
    #[tokio::test]
    async fn a_body_that_nobody_needs_does_not_hold_up_the_stop() {
        let config = Config { login: Duration::ZERO, ..Config::default() };
        let (asked, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let router =
            guard(Router::new().route("/", get(|| async {})), Arc::new(Nobody(asked.clone())), Vec::new());
        let grace = config.grace;
        let server = {
            let stop = stop.clone();
            tokio::spawn(async move { serve(listener, router, &config, stop).await })
        };
        let head = "GET / HTTP/1.1\r\nhost: here\r\nauthorization: Bearer no\r\ncontent-length: 9\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        asked.notified().await;
        tokio::time::pause();
        let begin = Instant::now();
        stop.cancel();
        server.await.unwrap();
        assert!(begin.elapsed() < grace, "{:?}", begin.elapsed());
        let mut reply = String::new();
        client.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
    }
}
