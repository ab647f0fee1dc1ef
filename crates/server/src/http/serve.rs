//! Connections: their number, their timeouts, and their end.

use std::sync::Arc;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Config;
use super::patience::Patient;

/// Most bytes of a request's head, and most headers in it.
const MAX_HEAD: usize = 32 << 10;
const MAX_HEADERS: usize = 64;

/// Serves `router` to whoever connects, until `stop` is cancelled: then no more connections are
/// taken, requests that are there are done, and the call returns, after [`Config::grace`] at the
/// latest.
///
/// Connections over TCP should not wait to fill packets (`TcpStream::set_nodelay`, by
/// [`axum::serve::ListenerExt::tap_io`]): events are small.
pub async fn serve(mut listener: impl Listener, router: Router, config: &Config, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(config.max_connections));
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(config.patience);
    http.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await.0)
        };
        let (place, io) = tokio::select! {
            accepted = accept => accepted,
            () = stop.cancelled() => break,
        };
        let io = TokioIo::new(Patient::new(io, config.patience));
        let mut connection = Box::pin(http.serve_connection(io, TowerToHyperService::new(router.clone())));
        let (stop, abort) = (stop.clone(), abort.clone());
        connections.spawn(async move {
            let _place = place;
            let ended = tokio::select! {
                ended = &mut connection => ended,
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
