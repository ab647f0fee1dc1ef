//! The requests of monitoring tools.

use std::fmt::Write;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Watch;

/// The text format of Prometheus.
pub(crate) const TEXT: &str = "text/plain; version=0.0.4";

pub(super) async fn metrics(State(watch): State<Watch>) -> Response {
    let mut text = String::new();
    if let Some(store) = watch.store() {
        write!(text, "{}", store.metrics()).expect("a string takes all");
    }
    let ready = u8::from(watch.unready().is_none());
    let help = "1 if the server is ready: not starting, not stopping, and its store accepts writes.";
    let name = "brooklet_server_ready";
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {ready}").expect("a string takes all");
    for append in watch.0.appended.read().expect("no panics").iter() {
        append(&mut text);
    }
    ([(header::CONTENT_TYPE, TEXT)], text).into_response()
}

/// The process lives. Restarting it helps where the store stopped, but that is for who watches
/// `/readyz` to decide.
pub(super) async fn healthz(State(watch): State<Watch>) -> Response {
    let stopped = watch.store().and_then(|store| store.activity().stopped);
    Json(json!({ "alive": true, "uptime_seconds": watch.now().as_secs(), "stopped": stopped }))
        .into_response()
}

pub(super) async fn readyz(State(watch): State<Watch>) -> Response {
    let reason = watch.unready();
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = json!({ "ready": reason.is_none(), "reason": reason });
    if let (Some(upstream), Some(body)) = (watch.0.upstream.get(), body.as_object_mut()) {
        body.insert("replica".into(), true.into());
        body.extend(upstream.lag().shown_as_json());
    }
    (status, Json(body)).into_response()
}
