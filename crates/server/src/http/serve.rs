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
use super::patience::Patient;
use super::strangers::Strangers;

/// Most bytes of a request's head, and most headers in it.
const MAX_HEAD: usize = 32 << 10;
const MAX_HEADERS: usize = 64;

/// Serves `router` to whoever connects, until `stop` is cancelled: then no more connections are
/// taken, requests that are there are done, and the call returns, after [`Config::grace`] at the
/// latest.
///
/// Connections on which no request has reached the routes of [`Http`](super::Http), of
/// [`watch`](super::watch) or of [`welcome`](super::welcome) are strangers: they have a quarter of
/// the places, and [`Config::login`]. The oldest of them makes room where places are missing.
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
        let of = caller.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(of.clone());
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
    if tokio::time::timeout(config.grace, connections.wait()).await.is_err() {
        abort.cancel();
        connections.wait().await;
    }
}
