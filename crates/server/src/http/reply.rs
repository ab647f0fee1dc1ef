//! Replies: refusals, with the reason and the remedy, and the parts that all replies share.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use brooklet::{Error, ErrorKind};
use bytes::Bytes;
use futures_util::stream;

use super::origin::RESOURCE_POLICY;

/// Most bytes of the reason in a refusal. Bodies are long, and errors repeat parts of them.
const LONGEST: usize = 1024;

/// Cuts the reason of a refusal to a length that no client can make long.
pub fn cut(mut why: String) -> String {
    if why.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
        why.truncate(end);
        why.push_str("...");
    }
    why
}

/// The reason for the refusal of a request, as the reply states it.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    /// The store had changed: if the request is tried again, it may be done.
    pub is_stale: bool,
    why: String,
    headers: Vec<(HeaderName, String)>,
}

impl Refusal {
    pub fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, is_stale: false, why: cut(why.into()), headers: Vec::new() }
    }

    /// The request is wrong: change it.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    pub fn conflict(why: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, why)
    }

    pub fn unsupported(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, why)
    }

    pub fn too_large(why: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, why)
    }

    /// The server has its hands full.
    pub fn busy(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why).with(header::RETRY_AFTER, "1")
    }

    /// The reason and the remedy.
    pub fn why(self) -> String {
        self.why
    }

    pub fn with(mut self, name: HeaderName, value: impl std::fmt::Display) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

/// Sets a header to a value that a header allows. Leaves out any other value.
pub fn set(headers: &mut HeaderMap, name: HeaderName, value: impl std::fmt::Display) {
    if let Ok(value) = HeaderValue::try_from(value.to_string()) {
        headers.insert(name, value);
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match (&error, error.kind()) {
            (Error::PayloadTooLarge { .. } | Error::CommitTooLarge { .. }, _) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            // It was deleted a moment ago.
            (Error::UnknownLog { .. }, _) => StatusCode::NOT_FOUND,
            (Error::InvalidKey { .. }, _) => StatusCode::BAD_REQUEST,
            // Of what a client may ask for, only what retention took is out of range.
            (Error::OutOfRange { .. }, _) => StatusCode::GONE,
            (_, ErrorKind::Full) => StatusCode::INSUFFICIENT_STORAGE,
            (_, ErrorKind::Stopped | ErrorKind::Conflict | ErrorKind::Busy) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a request failed");
        }
        let is_stale = matches!(error, Error::Conflict { .. } | Error::UnknownLog { .. });
        Self { is_stale, ..Self::new(status, error.to_string()) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let mut response = (self.status, self.why + "\n").into_response();
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.headers.into_iter().for_each(|(name, value)| set(response.headers_mut(), name, value));
        response
    }
}

/// Refuses a part of a body, which would be taken for the whole.
pub fn expect_whole(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.contains_key(header::CONTENT_RANGE) {
        true => {
            Err(Refusal::invalid("the body is a part (Content-Range): send the whole without this header"))
        }
        false => Ok(()),
    }
}

/// Returns a reply of server-sent events.
pub fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Asks nginx, and proxies that know this header, to pass each event on at once.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns the body of a reply to HEAD that is made without the one of GET. It has no known length:
/// clients would take the length of an empty body for that of the reply to GET.
pub fn omitted() -> Body {
    Body::from_stream(stream::empty::<Result<Bytes, Infallible>>())
}

/// Answers which methods are supported.
pub fn options(methods: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

/// Adds the headers that protect browsers from bodies: clients choose bodies and their types, and
/// a body that is a page must not run as a page of the server.
pub fn protect(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, "sandbox"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
