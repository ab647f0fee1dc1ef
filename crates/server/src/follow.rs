//! The frontends of a server whose store follows the log of another server.
//!
//! The frontends cache keys, streams and documents of the store in memory. So each block of commits
//! becomes visible while no request reads, and the cached data of its logs is dropped before the
//! next request reads.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::http::watch::Watch;
use crate::http::{Http, discard};
use crate::redis::Shared;
use crate::replica::{Beside, Upstream};

/// The frontends of a server that is about to serve, or serves.
#[derive(Clone, Default)]
pub(crate) struct Faces(Arc<Mutex<Option<(Shared, Http)>>>);

impl Faces {
    /// Returns the function that shows each block.
    pub fn beside(&self) -> Beside {
        let faces = self.clone();
        Box::new(move |logs, show| {
            let faces = faces.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((redis, http)) = &*faces else { return show() };
            http.show(logs, || redis.show(logs, show));
        })
    }

    /// Drops the frontends: blocks are shown without them.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sets the frontends, which drop the cached data of each block from now on. They have cached
    /// nothing yet.
    pub fn set(&self, redis: Shared, http: Http) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((redis, http));
    }
}

/// Adds the lag to the pages and to the metrics.
pub(crate) fn show_on(watch: &Watch, upstream: &Arc<dyn Upstream>) {
    let of_page = upstream.clone();
    watch.show("replica", move || Value::Object(of_page.lag().shown_as_json()));
    let of_metrics = upstream.clone();
    watch.append_metrics(move |text| of_metrics.lag().write_metrics(text));
    watch.follow(upstream.clone());
}

/// Sends a request that may write to the owner of the store, once its body has come, or after a
/// time.
pub(crate) async fn send_writes_on(
    State((upstream, patience)): State<(Arc<dyn Upstream>, Duration)>,
    request: Request,
    next: Next,
) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    discard(&head, body, patience).await;
    let owner = upstream.lag().owner;
    let why = "this server is a read replica: it takes no writes";
    let mut response = match owner.and_then(|owner| owner.url) {
        Some(url) => {
            let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
            let to = [(header::LOCATION, format!("{url}{path}"))];
            (StatusCode::TEMPORARY_REDIRECT, to, format!("{why}\n")).into_response()
        }
        None => {
            let again = [(header::RETRY_AFTER, "1")];
            let why =
                format!("{why}, and the owner's URL is not known here: start the owner with --advertise\n");
            (StatusCode::SERVICE_UNAVAILABLE, again, why).into_response()
        }
    };
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}
